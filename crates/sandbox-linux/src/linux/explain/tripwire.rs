//! An empty file system where the host has directories that were not granted, so that looking for a name in them is seen.
//!
//! Init is its server (FUSE). It holds the directories above the granted roots and nothing else; every other name "does
//! not exist", as it would without it, and what was looked for is remembered. A server that is gone gives errors: its
//! descriptor is init's alone once the sandbox runs, and init's end closes it.
//!
//! Where the device or the mount is not to be had, there is none of this, and [`policy::sandbox::Explanation`] says so.

use super::observe::Observer;
use super::path::PlainPath;
use crate::backend::plan::{Owner, Step};
use crate::backend::sys::{Errno, Fd, Result, file, mount, process};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};

/// Directories of every system that hold what is not granted: users, services, data. With a tripwire they are there
/// whatever the host has.
pub(crate) const COVERED: &[&str] = &[
    "/data", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/var",
];

/// Where it is mounted while the root is built.
pub(crate) const WORKPLACE: &CStr = c".outside";

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Kind {
    Directory,
    File,
    Link(CString),
}

/// Something that exists in it; its number is its place in the list, plus one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Node {
    parent: u64,
    name: CString,
    kind: Kind,
}

const ROOT: u64 = 1;

/// Whether a path relative to the new root lies in the tripwire.
pub(crate) fn covers(path: &CStr) -> bool {
    let first = path.to_bytes().split(|byte| *byte == b'/').next();
    COVERED
        .iter()
        .any(|covered| first == covered.as_bytes().get(1..))
}

/// Whether the tripwire has what this step would make.
pub(crate) fn has(step: &Step) -> bool {
    match step {
        Step::Directory(path) | Step::File { path, .. } | Step::Link { path, .. } => covers(path),
        _ => false,
    }
}

/// What has to exist in it for these steps.
pub(crate) fn nodes(steps: &[Step]) -> Vec<Node> {
    let mut nodes = vec![Node {
        parent: 0,
        name: CString::default(),
        kind: Kind::Directory,
    }];
    for step in steps {
        let (path, kind) = match step {
            Step::Outside(path) | Step::Directory(path) => (path, Kind::Directory),
            Step::File { path, .. } => (path, Kind::File),
            Step::Link { path, target } => (path, Kind::Link(target.clone())),
            _ => continue,
        };
        if !covers(path) {
            continue;
        }
        let mut parent = ROOT;
        let mut parts = path.to_bytes().split(|byte| *byte == b'/').peekable();
        while let Some(part) = parts.next() {
            let kind = match parts.peek() {
                Some(_) => Kind::Directory,
                None => kind.clone(),
            };
            parent = child(&nodes, parent, part).unwrap_or_else(|| {
                nodes.push(Node {
                    parent,
                    name: CString::new(part).unwrap_or_default(),
                    kind,
                });
                nodes.len() as u64
            });
        }
    }
    nodes
}

fn child(nodes: &[Node], parent: u64, name: &[u8]) -> Option<u64> {
    let mut list = nodes.iter();
    let at = list.position(|node| node.parent == parent && node.name.to_bytes() == name)?;
    // The root is nobody's child.
    (at > 0).then_some(at as u64 + 1)
}

/// Opens the device. Must be done inside the user namespace, and before a change of user where only root may.
pub(crate) fn open() -> Result<Fd> {
    file::open_at(Fd::CWD, c"/dev/fuse", libc::O_RDWR | libc::O_CLOEXEC, 0)
}

/// A detached mount whose server is whoever reads from `device`.
pub(crate) fn mount(device: Fd, owner: Owner, attributes: u64) -> Result<Fd> {
    let number = |value: u32| {
        let mut text = Number::default();
        text.write(value);
        text
    };
    let device = number(device.0 as u32);
    let (user, group) = (number(owner.user), number(owner.group));
    mount::fresh(
        c"fuse",
        &[
            (c"fd", device.as_c_str()),
            (c"rootmode", c"40000"),
            (c"user_id", user.as_c_str()),
            (c"group_id", group.as_c_str()),
        ],
        attributes,
    )
}

/// A number as text, without allocating.
#[derive(Default)]
struct Number([u8; 11]);

impl Number {
    fn write(&mut self, value: u32) {
        let mut digits = [0u8; 10];
        let mut rest = value;
        let mut count = 0;
        for slot in digits.iter_mut() {
            *slot = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
            if rest == 0 {
                break;
            }
        }
        let reversed = digits.iter().take(count).rev();
        for (slot, digit) in self.0.iter_mut().zip(reversed) {
            *slot = *digit;
        }
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// The server's side.
#[derive(Clone, Copy)]
pub(crate) struct Server<'p> {
    pub(crate) device: Fd,
    pub(crate) nodes: &'p [Node],
    pub(crate) owner: Owner,
}

/// Requests of the kernel's protocol that are answered; others are "not implemented", which the kernel remembers.
mod request {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const READLINK: u32 = 5;
    pub(super) const READ: u32 = 15;
    pub(super) const STATFS: u32 = 17;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const READDIRPLUS: u32 = 44;
}

/// Bytes of `struct fuse_in_header` and of `struct fuse_out_header`.
const IN: usize = 40;
const OUT: usize = 16;
/// Bytes of `struct fuse_entry_out`.
const ENTRY: usize = 128;
/// The kernel's smallest buffer for a request.
const BUFFER: usize = 8192;
/// What exists stays as it is for longer than any sandbox.
const FOR_EVER: u64 = 1 << 30;

/// An answer's bytes.
struct Reply {
    bytes: [u8; BUFFER],
    length: usize,
}

impl Reply {
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        let end = self.length + bytes.len();
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(bytes);
            self.length = end;
        }
        self
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    fn long(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }
}

fn long_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    u64::from_ne_bytes(word.unwrap_or_default())
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    u32::from_ne_bytes(word.unwrap_or_default())
}

impl Server<'_> {
    /// Takes one request and answers it. Names that do not exist go to the observer, if there is one yet.
    pub(crate) fn turn(&self, observer: Option<&Observer<'_>>) -> Result<()> {
        let mut buffer = [0u8; BUFFER];
        let length = file::read(self.device, &mut buffer)?;
        let message = buffer.get(..length).unwrap_or(&[]);
        let (operation, unique) = (word_at(message, 4), long_at(message, 8));
        if matches!(
            operation,
            request::FORGET | request::BATCH_FORGET | request::INTERRUPT
        ) {
            return Ok(());
        }
        let mut reply = Reply {
            bytes: [0; BUFFER],
            length: OUT,
        };
        let errno = self.answer(operation, message, observer, &mut reply);
        let errno = errno.err().map_or(0, |errno| -errno.0);
        let length = if errno == 0 { reply.length } else { OUT };
        let head = [(length as u32).to_ne_bytes(), errno.to_ne_bytes()];
        for (place, word) in reply.bytes.chunks_exact_mut(4).zip(head) {
            place.copy_from_slice(&word);
        }
        if let Some(place) = reply.bytes.get_mut(8..OUT) {
            place.copy_from_slice(&unique.to_ne_bytes());
        }
        // A caller that is gone by now needs no answer.
        let _gone = file::write(self.device, reply.bytes.get(..length).unwrap_or(&[]));
        Ok(())
    }

    fn answer(
        &self,
        operation: u32,
        message: &[u8],
        observer: Option<&Observer<'_>>,
        reply: &mut Reply,
    ) -> Result<()> {
        let number = long_at(message, 16);
        let body = message.get(IN..).unwrap_or(&[]);
        match operation {
            // Version 7.31; links are cached, and a list says what its names are, where the kernel offers it.
            request::INIT => {
                let flags = word_at(body, 12) & (1 << 23 | 1 << 13);
                reply.word(7).word(31).word(4096).word(flags);
                reply.word(0).word(4096).word(1).put(&[0; 36]);
            }
            request::LOOKUP => {
                let name = CStr::from_bytes_until_nul(body).map_err(|_| Errno(libc::EIO))?;
                self.look_up(
                    number,
                    name.to_bytes(),
                    word_at(message, 32),
                    observer,
                    reply,
                );
            }
            request::GETATTR => {
                reply.long(FOR_EVER).long(0);
                self.attributes(number, reply);
            }
            request::READLINK => match self.kind(number)? {
                Kind::Link(target) => {
                    reply.put(target.to_bytes());
                }
                _ => return Err(Errno(libc::EINVAL)),
            },
            // Files are only places to mount on.
            request::READ => {}
            request::STATFS => {
                reply.put(&[0; 80]);
            }
            // What is empty here need not be empty on the host, so it is not shown as such.
            request::OPENDIR if self.nodes.iter().all(|node| node.parent != number) => {
                if let Some(observer) = observer {
                    let above = |path: &mut PlainPath| self.path_of(number, path);
                    observer.missed(word_at(message, 32), above, b"", libc::EACCES);
                }
                return Err(Errno(libc::EACCES));
            }
            request::OPENDIR => {
                reply.put(&[0; 16]);
            }
            request::READDIR | request::READDIRPLUS => {
                let known = operation == request::READDIRPLUS;
                self.list(number, long_at(body, 8), word_at(body, 16), known, reply);
            }
            _ => return Err(Errno(libc::ENOSYS)),
        }
        Ok(())
    }

    fn kind(&self, number: u64) -> Result<&Kind> {
        let at = usize::try_from(number).map_err(|_| Errno(libc::ESTALE))?;
        let node = at.checked_sub(1).and_then(|at| self.nodes.get(at));
        node.map(|node| &node.kind).ok_or(Errno(libc::ESTALE))
    }

    fn look_up(
        &self,
        parent: u64,
        name: &[u8],
        caller: u32,
        observer: Option<&Observer<'_>>,
        reply: &mut Reply,
    ) {
        match child(self.nodes, parent, name) {
            Some(number) => self.entry(number, reply),
            None => {
                let cached = observer.is_some_and(|observer| {
                    let above = |path: &mut PlainPath| self.path_of(parent, path);
                    observer.missed(caller, above, name, libc::ENOENT)
                });
                // No such name; asked again next time, or after a second when there were very many.
                reply.long(0).long(0).long(cached.into()).put(&[0; 104]);
            }
        }
    }

    /// Follows `path` to a node; false when it does not fit.
    fn path_of(&self, number: u64, path: &mut PlainPath) -> bool {
        let mut chain = [0u64; 64];
        let mut depth = 0;
        let mut at = number;
        while at > ROOT {
            let Some(slot) = chain.get_mut(depth) else {
                return false;
            };
            *slot = at;
            depth += 1;
            at = self
                .nodes
                .get(at as usize - 1)
                .map_or(0, |node| node.parent);
        }
        chain.iter().take(depth).rev().all(|number| {
            self.nodes
                .get(*number as usize - 1)
                .is_some_and(|node| path.follow(node.name.to_bytes()).is_ok())
        })
    }

    /// `struct fuse_entry_out`.
    fn entry(&self, number: u64, reply: &mut Reply) {
        reply
            .long(number)
            .long(0)
            .long(FOR_EVER)
            .long(FOR_EVER)
            .long(0);
        self.attributes(number, reply);
    }

    /// `struct fuse_attr`.
    fn attributes(&self, number: u64, reply: &mut Reply) {
        let (mode, size) = match self.kind(number) {
            Ok(Kind::Link(target)) => (libc::S_IFLNK | 0o777, target.as_bytes().len()),
            Ok(Kind::File) => (libc::S_IFREG | 0o444, 0),
            Ok(Kind::Directory) | Err(_) => (libc::S_IFDIR | 0o555, 0),
        };
        reply.long(number).long(size as u64).long(0);
        // Times, and their nanoseconds.
        reply.put(&[0; 36]);
        reply
            .word(mode)
            .word(2)
            .word(self.owner.user)
            .word(self.owner.group);
        reply.word(0).word(4096).word(0);
    }

    /// `struct fuse_dirent` for each child from the offset on; `known` puts before it what looking the name up would say.
    fn list(&self, number: u64, offset: u64, size: u32, known: bool, reply: &mut Reply) {
        let end = OUT + (size as usize).min(4096);
        for (at, node) in self.nodes.iter().enumerate().skip(offset as usize) {
            if node.parent != number {
                continue;
            }
            let name = node.name.to_bytes();
            let padded = name.len().next_multiple_of(8);
            let before = if known { ENTRY } else { 0 };
            if reply.length + before + 24 + padded > end {
                return;
            }
            if known {
                self.entry(at as u64 + 1, reply);
            }
            let kind = match node.kind {
                Kind::Directory => libc::DT_DIR,
                Kind::File => libc::DT_REG,
                Kind::Link(_) => libc::DT_LNK,
            };
            reply.long(at as u64 + 1).long(at as u64 + 1);
            reply
                .word(name.len() as u32)
                .word(u32::from(kind))
                .put(name);
            reply.put([0u8; 8].get(name.len() + 8 - padded..).unwrap_or(&[]));
        }
    }
}

/// Asks for what lies at the top, all at once: the kernel then knows each name without asking for it.
pub(crate) fn learn(root: Fd) -> Result<()> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let top = file::open_at(root, WORKPLACE, flags, 0)?;
    let listed = file::entries(top, &mut [0; 4096]);
    file::close(top);
    listed.map(drop)
}

/// Serves while init itself looks names up in it: a server cannot wait for its own answers. Ended by [`dismiss`].
pub(crate) fn stand_in(server: &Server<'_>) -> Result<i32> {
    let argument = std::ptr::from_ref(server).cast_mut().cast::<u8>();
    let flags = libc::CLONE_VM | libc::CLONE_FILES;
    // SAFETY: `dismiss` is called before `server` goes; `serve` neither allocates nor panics.
    unsafe { process::start(flags, None, None, serve, argument) }
}

/// Ends the stand-in. All that init asked is answered by now, so it holds no request.
pub(crate) fn dismiss(stand_in: i32) {
    let _gone = process::kill(stand_in, libc::SIGKILL);
    while process::wait(stand_in, 0) == Err(Errno(libc::EINTR)) {}
}

extern "C" fn serve(server: *mut u8) -> ! {
    // SAFETY: `stand_in` passed a reference that outlives this process.
    let server = unsafe { &*server.cast::<Server<'_>>() };
    if process::die_with_parent().is_ok() {
        while let Ok(()) | Err(Errno(libc::EINTR | libc::EAGAIN | libc::ENOENT)) = server.turn(None)
        {
        }
    }
    process::exit(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_above_the_roots_exists() {
        let steps = [
            Step::Directory(c"home".into()),
            Step::Directory(c"home/user".into()),
            Step::File {
                path: c"home/user/file".into(),
                content: Vec::new(),
            },
            Step::Directory(c"etc".into()),
            Step::Link {
                target: c"/tmp".into(),
                path: c"var/tmp".into(),
            },
        ];
        let nodes = nodes(&steps);
        let home = child(&nodes, ROOT, b"home").unwrap();
        let user = child(&nodes, home, b"user").unwrap();
        assert!(child(&nodes, user, b"file").is_some());
        let var = child(&nodes, ROOT, b"var").unwrap();
        assert!(child(&nodes, var, b"tmp").is_some());
        for (parent, name) in [(ROOT, &b"etc"[..]), (user, b".ssh"), (0, b"")] {
            assert_eq!(child(&nodes, parent, name), None);
        }
    }

    #[test]
    fn numbers_become_text() {
        for value in [0, 7, 10, 65534, u32::MAX] {
            let mut text = Number::default();
            text.write(value);
            assert_eq!(text.as_c_str().to_str().unwrap(), value.to_string());
        }
    }
}
