//! Init's side: looks at a stopped call and answers it. Never waits for a file system, never allocates.

use super::calls::{self, At, Object, Operation, WRITING};
use super::path::PlainPath;
use super::places::{self, Found, Kind};
use super::table::Table;
use crate::backend::connect::NumberedPath;
use crate::backend::filter::{self, FilterChoice};
use crate::backend::plan::Plan;
use crate::backend::sys::{Errno, Fd, file, process, seccomp};
use policy::Right;
use std::cell::Cell;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Looks at missing names that are looked into closely.
const MOST_MISSES: u32 = 4096;

/// A page; a path is read in pieces that do not cross one.
const PAGE: u64 = 4096;

/// How a stopped call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// As if it had not been stopped; what the kernel then refuses it refuses.
    Go,
    /// As the filter says without explaining.
    Refuse(Errno),
}

pub(crate) struct Observer<'p> {
    choice: FilterChoice,
    plan: &'p Plan,
    table: &'p Table,
    misses: Cell<u32>,
}

impl<'p> Observer<'p> {
    pub(crate) fn new(plan: &'p Plan, table: &'p Table) -> Self {
        Self {
            choice: plan.filter,
            plan,
            table,
            misses: Cell::new(0),
        }
    }

    /// Answers a call that is not `connect`, and remembers what will be refused.
    pub(crate) fn look(&self, listener: Fd, request: &seccomp::Notification) -> Answer {
        let refused = filter::refusal(self.choice, request.number, &request.arguments);
        if let Some(errno) = refused {
            self.say_refused(request, errno);
            return Answer::Refuse(Errno(errno));
        }
        let Some(call) = calls::call(request.number.into()) else {
            // The filter stops nothing that is not in the table.
            return Answer::Refuse(Errno(libc::EPERM));
        };
        match call.object {
            Object::Files(files) => {
                for at in files {
                    if self.file(listener, request, *at, call.operation) {
                        break;
                    }
                }
            }
            Object::Opened(at, flags) => {
                let flags = request.arguments.get(flags).copied().unwrap_or(0) as u32;
                if flags & WRITING != 0 {
                    self.file(listener, request, at, Operation::Write);
                } else {
                    let right = Right::Read;
                    self.file(listener, request, At { right, ..at }, Operation::Open);
                }
            }
            Object::Address => self.bound(listener, request),
            // Allowed after all.
            Object::Socket | Object::Itself(_) => {}
        }
        Answer::Go
    }

    /// A call that the filter refuses.
    fn say_refused(&self, request: &seccomp::Notification, errno: i32) {
        let Some(call) = calls::call(request.number.into()) else {
            return;
        };
        match call.object {
            Object::Itself(name) => self.table.add(Operation::Call, errno, name.as_bytes()),
            Object::Socket => {
                let mut text = Text::new();
                socket_name(&mut text, request.arguments);
                self.table.add(Operation::Socket, errno, text.bytes());
            }
            // Set-id bits: the mode is refused, not the file.
            _ => self
                .table
                .add(Operation::Call, errno, b"a set-id mode for a file"),
        }
    }

    /// Whether this file will be refused, which is remembered then.
    fn file(
        &self,
        listener: Fd,
        request: &seccomp::Notification,
        at: At,
        operation: Operation,
    ) -> bool {
        let mut path = PlainPath::root();
        if read_path(request, at, &mut path).is_none() || !seccomp::is_waiting(listener, request.id)
        {
            return false;
        }
        let refused = self.refuses(&mut path, at.right, operation);
        if refused {
            self.table.add(operation, 0, path.shown());
        }
        refused
    }

    fn refuses(&self, path: &mut PlainPath, right: Right, operation: Operation) -> bool {
        match places::find(&self.plan.places, path) {
            Found::In(place) => !place.allows(right),
            // It is there: making it again is no denial but "exists", and it may be read and listed.
            Found::Above => !matches!(operation, Operation::Create | Operation::Open),
            Found::Outside => true,
            Found::Unknown => false,
        }
    }

    /// A name that is not there was looked for, by a thread that waits for the answer. `parent` makes the path above it.
    /// `true` when there were so many that the kernel should remember the answer for a while.
    pub(crate) fn missed(
        &self,
        caller: u32,
        parent: impl Fn(&mut PlainPath) -> bool,
        name: &[u8],
        errno: i32,
    ) -> bool {
        let misses = self.misses.get().saturating_add(1);
        self.misses.set(misses);
        let many = misses > MOST_MISSES;
        let mut path = PlainPath::root();
        let mut operation = Operation::Look;
        if !many && let Some(request) = waiting_call(caller) {
            let number = request.number.into();
            let flags = calls::call(number).and_then(|call| match call.object {
                Object::Opened(_, flags) => request.arguments.get(flags).copied(),
                _ => None,
            });
            let flags = flags.unwrap_or(0) as u32;
            if let Some((of, at, seen)) = calls::missed(number, flags, self.choice.explain) {
                operation = of;
                let whole = read_path(&request, at, &mut path).is_some()
                    && matches!(places::find(&self.plan.places, &mut path), Found::Outside);
                if whole && !seen {
                    self.table.add(operation, errno, path.shown());
                }
                if whole {
                    return many;
                }
            }
        }
        // A link of the program's own led here, or its call cannot be read: as far as the name that is missing.
        let mut path = PlainPath::root();
        if parent(&mut path) && path.follow(name).is_ok() {
            self.table.add(operation, errno, path.shown());
        }
        many
    }

    /// `bind`: only a socket file has a place.
    fn bound(&self, listener: Fd, request: &seccomp::Notification) {
        let mut address = [0u8; ADDRESS];
        let Some(length) = read_address(request, &mut address) else {
            return;
        };
        let Some(name) = socket_path(&address, length) else {
            return;
        };
        let mut path = PlainPath::root();
        if start(request, None, name, &mut path).is_none()
            || path.follow(name).is_err()
            || !seccomp::is_waiting(listener, request.id)
        {
            return;
        }
        // Sockets can be made in the private area only, whatever else is writable.
        let private = matches!(places::find(&self.plan.places, &mut path), Found::In(place) if place.kind == Kind::Private);
        if !private {
            self.table.add(Operation::Bind, libc::EACCES, path.shown());
        }
    }

    /// `connect`, after init tried it and got this.
    pub(crate) fn say_connect(&self, listener: Fd, request: &seccomp::Notification, errno: Errno) {
        let mut address = [0u8; ADDRESS];
        let Some(length) = read_address(request, &mut address) else {
            return;
        };
        if !seccomp::is_waiting(listener, request.id) {
            return;
        }
        if let Some(name) = socket_path(&address, length) {
            // Any other answer is the socket's own.
            if errno.0 != libc::EACCES {
                return;
            }
            let mut path = PlainPath::root();
            if start(request, None, name, &mut path).is_some() && path.follow(name).is_ok() {
                self.table.add(Operation::Connect, errno.0, path.shown());
            }
            return;
        }
        let mut text = Text::new();
        let is_internet = internet_name(&mut text, &address);
        // Refused by the sandbox's own loopback, on which a service of the host does not answer and a granted address has its
        // granted ports alone: an endpoint outside that refuses resets instead.
        let told = matches!(
            errno.0,
            libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::EACCES
                | libc::EPERM
                | libc::ECONNREFUSED
        );
        if told && is_internet {
            self.table.add(Operation::Connect, errno.0, text.bytes());
        }
    }
}

/// The call that a thread is waiting in, from `/proc/PID/syscall`: its number, then its arguments in hexadecimal.
fn waiting_call(thread: u32) -> Option<seccomp::Notification> {
    let mut name = NumberedPath::new(b"/proc/");
    name.number(thread as i32);
    name.text(b"/syscall");
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let opened = file::open_at(Fd::CWD, name.as_c_str(), flags, 0).ok()?;
    let mut text = [0u8; 256];
    let length = file::read(opened, &mut text);
    file::close(opened);
    let text = std::str::from_utf8(text.get(..length.ok()?)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let mut request = seccomp::Notification::default();
    request.pid = thread;
    request.number = fields.next()?.parse().ok()?;
    for slot in &mut request.arguments {
        let field = fields.next()?.strip_prefix("0x")?;
        *slot = u64::from_str_radix(field, 16).ok()?;
    }
    Some(request)
}

/// The path of a call, absolute.
fn read_path(request: &seccomp::Notification, at: At, path: &mut PlainPath) -> Option<()> {
    let mut text = [0u8; super::path::MOST];
    let address = request.arguments.get(at.path).copied()?;
    let directory = at
        .directory
        .and_then(|index| request.arguments.get(index))
        .map(|number| *number as u32 as i32);
    if address == 0 {
        // `utimensat` and others without a path: the descriptor itself.
        return start(request, directory, b"", path);
    }
    let name = read_string(request.pid, address, &mut text)?;
    start(request, directory, name, path)?;
    path.follow(name).ok()
}

/// Where a path begins: nowhere for an absolute one.
fn start(
    request: &seccomp::Notification,
    directory: Option<i32>,
    name: &[u8],
    path: &mut PlainPath,
) -> Option<()> {
    if name.first() == Some(&b'/') {
        return Some(());
    }
    let mut link = NumberedPath::new(b"/proc/");
    link.number(request.pid as i32);
    match directory {
        None | Some(libc::AT_FDCWD) => link.text(b"/cwd"),
        Some(number) if number >= 0 => {
            link.text(b"/fd/");
            link.number(number);
        }
        Some(_) => return None,
    }
    let mut text = [0u8; super::path::MOST];
    let length = file::read_link(link.as_c_str(), &mut text).ok()?;
    let base = text.get(..length)?;
    // Pipes and sockets have names without a slash.
    (base.first() == Some(&b'/')).then_some(())?;
    path.follow(base).ok()
}

/// A NUL-terminated string of the caller.
fn read_string(pid: u32, address: u64, text: &mut [u8]) -> Option<&[u8]> {
    let mut have = 0usize;
    while have < text.len() {
        let from = address.checked_add(have as u64)?;
        let in_page = (PAGE - from % PAGE) as usize;
        // Most paths are short.
        let most = if have == 0 { 256 } else { PAGE as usize };
        let end = text.len().min(have + in_page.min(most));
        let piece = text.get_mut(have..end)?;
        let got = process::read_memory(pid, from, piece).ok()?;
        let piece = piece.get(..got)?;
        if let Some(length) = piece.iter().position(|byte| *byte == 0) {
            return text.get(..have + length);
        }
        if got == 0 {
            return None;
        }
        have += got;
    }
    None
}

/// `struct sockaddr_un` and one byte that stays zero.
const ADDRESS: usize = 111;

fn read_address(request: &seccomp::Notification, address: &mut [u8; ADDRESS]) -> Option<usize> {
    let length = (request.arguments[2] as u32 as usize).min(ADDRESS - 1);
    let place = address.get_mut(..length)?;
    let got = process::read_memory(request.pid, request.arguments[1], place).ok()?;
    (got == length && length >= 2).then_some(length)
}

fn family(address: &[u8; ADDRESS]) -> i32 {
    u16::from_ne_bytes([address[0], address[1]]).into()
}

/// The path of a local socket that has one.
fn socket_path(address: &[u8; ADDRESS], length: usize) -> Option<&[u8]> {
    if family(address) != libc::AF_UNIX {
        return None;
    }
    let text = address.get(2..length)?;
    let end = text.iter().position(|byte| *byte == 0);
    let text = text.get(..end.unwrap_or(text.len()))?;
    (!text.is_empty()).then_some(text)
}

/// Writes address and port; false for another family.
fn internet_name(text: &mut Text, address: &[u8; ADDRESS]) -> bool {
    let port = u16::from_be_bytes([address[2], address[3]]);
    let written = match family(address) {
        libc::AF_INET => {
            let ip = Ipv4Addr::new(address[4], address[5], address[6], address[7]);
            write!(text, "{ip}:{port}")
        }
        libc::AF_INET6 => {
            let mut bytes = [0u8; 16];
            let Some(given) = address.get(8..24) else {
                return false;
            };
            bytes.copy_from_slice(given);
            write!(text, "[{}]:{port}", Ipv6Addr::from(bytes))
        }
        _ => return false,
    };
    written.is_ok()
}

fn socket_name(text: &mut Text, arguments: [u64; 6]) {
    let family = arguments[0] as i32;
    let kind = arguments[1] as i32 & 0xf;
    let name = match family {
        libc::AF_UNIX => "unix",
        libc::AF_INET => "inet",
        libc::AF_INET6 => "inet6",
        libc::AF_NETLINK => "netlink",
        libc::AF_PACKET => "packet",
        libc::AF_VSOCK => "vsock",
        libc::AF_BLUETOOTH => "bluetooth",
        libc::AF_ALG => "alg",
        _ => "",
    };
    let kind = match kind {
        libc::SOCK_STREAM => "stream",
        libc::SOCK_DGRAM => "datagram",
        libc::SOCK_RAW => "raw",
        libc::SOCK_SEQPACKET => "seqpacket",
        _ => "other",
    };
    // Both fit.
    let _written = if name.is_empty() {
        write!(text, "family {family} {kind}")
    } else {
        write!(text, "{name} {kind}")
    };
}

/// A short text in a buffer of fixed size.
struct Text {
    bytes: [u8; 80],
    length: usize,
}

impl Text {
    const fn new() -> Self {
        Self {
            bytes: [0; 80],
            length: 0,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        let place = self.bytes.get_mut(self.length..end);
        place
            .ok_or(std::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}
