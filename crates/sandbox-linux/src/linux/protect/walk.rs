//! Looks at every directory of a writable root, once. Follows no link, creates nothing.

use super::names::{GitNames, OBEYED, Patterns, is_git, same_name};
use super::record::Tree;
use super::refusal;
use policy::sandbox::SandboxError;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, openat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A walk that would visit more directories is refused: what was not looked at could not be protected. Two million take
/// about ten seconds.
const MOST_DIRECTORIES: usize = 2_000_000;
/// Deeper ones are not looked at but covered as a whole; it bounds open descriptors too.
const MOST_DEPTH: usize = 400;
/// Longer paths cannot be covered; the directory above is.
const LONGEST_PATH: usize = 3_800;

pub(super) const LOOK: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What there is that a program of the host would obey.
#[derive(Debug, Default)]
pub(super) struct Sight {
    /// Files and directories whose content is obeyed.
    pub(super) obeyed: BTreeSet<PathBuf>,
    /// The same, reached through a link at this place, and what of the pattern still follows behind it.
    pub(super) links: BTreeSet<(PathBuf, PathBuf)>,
    /// Entries that make a directory a repository: `.git` of any kind, bare repositories.
    pub(super) repositories: BTreeSet<PathBuf>,
    /// Directories that git takes for its own.
    pub(super) git_directories: BTreeSet<PathBuf>,
}

pub(super) struct Walk<'p> {
    pub(super) patterns: &'p Patterns,
    pub(super) sight: Sight,
    pub(super) tree: Tree,
}

struct Frame {
    directory: OwnedFd,
    path: PathBuf,
    number: u32,
    waiting: Vec<CString>,
}

impl<'p> Walk<'p> {
    pub(super) fn new(patterns: &'p Patterns) -> Self {
        Self {
            patterns,
            sight: Sight::default(),
            tree: Tree::default(),
        }
    }

    /// Walks from an opened directory down.
    ///
    /// # Errors
    /// A refusal where the tree is too large or cannot be looked at.
    pub(super) fn walk(
        &mut self,
        directory: OwnedFd,
        path: PathBuf,
        parent: Option<(u32, &CStr)>,
    ) -> Result<(), SandboxError> {
        let mut stack = vec![self.enter(directory, path, parent)?];
        while let Some(frame) = stack.last_mut() {
            let Some(name) = frame.waiting.pop() else {
                stack.pop();
                continue;
            };
            let opened = openat(&frame.directory, &name, LOOK, Mode::empty());
            let path = frame.path.join(OsStr::from_bytes(name.as_bytes()));
            let directory = match opened {
                Ok(directory) => directory,
                // Gone or replaced since it was listed.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                // Someone else's, closed to the sandbox's user as well. One of our own could be opened from inside.
                Err(Errno::ACCESS) if !is_ours(&frame.directory, &name) => continue,
                Err(errno) => return Err(refusal(&path, errno)),
            };
            if self.tree.len() >= MOST_DIRECTORIES {
                let detail = format!("more than {MOST_DIRECTORIES} directories to look at");
                return Err(refusal(&path, detail));
            }
            let number = frame.number;
            if stack.len() >= MOST_DEPTH {
                self.sight.obeyed.insert(that_fits(&path).to_path_buf());
                continue;
            }
            let frame = self.enter(directory, path, Some((number, &name)))?;
            stack.push(frame);
        }
        Ok(())
    }

    fn enter(
        &mut self,
        directory: OwnedFd,
        path: PathBuf,
        parent: Option<(u32, &CStr)>,
    ) -> Result<Frame, SandboxError> {
        // Before the entries are read: a change in between is then seen as one.
        let status = rustix::fs::fstat(&directory).map_err(|errno| refusal(&path, errno))?;
        let number = self.tree.add(parent, &path, &status);
        let waiting = self.list(directory.as_fd(), &path)?;
        Ok(Frame {
            directory,
            path,
            number,
            waiting,
        })
    }

    /// Reads one directory: what is obeyed in it goes to the sight, what is below is returned.
    pub(super) fn list(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &Path,
    ) -> Result<Vec<CString>, SandboxError> {
        let mut waiting = Vec::new();
        let mut wanted = self.patterns.wanted_in(path);
        let mut git = GitNames::default();
        let mut unusual = false;
        let mut buffer = [MaybeUninit::<u8>::uninit(); 32 * 1024];
        let mut entries = RawDir::new(directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|errno| refusal(path, errno))?;
            let name = entry.file_name();
            let bytes = name.to_bytes();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                kind = kind_of(directory, name);
            }
            unusual |= !bytes.is_ascii();
            for wanted in &mut wanted {
                if same_name(wanted.name.as_bytes(), bytes) {
                    wanted.seen = true;
                    self.note(path, bytes, kind, wanted.rest);
                }
            }
            if self.patterns.knows_git() {
                git.note(bytes, kind);
            }
            if kind == FileType::Directory {
                waiting.push(name.to_owned());
            }
        }
        if unusual {
            // A file system without case may take other letters for the same name; it is asked.
            for wanted in wanted.iter().filter(|wanted| !wanted.seen) {
                if let Some(kind) = lookup(directory, wanted.name) {
                    self.note(path, wanted.name.as_bytes(), kind, wanted.rest);
                }
            }
            git.ask(|name| lookup(directory, OsStr::new(name)));
        }
        if self.patterns.knows_git() {
            self.note_git(path, &git, &mut waiting);
        }
        Ok(waiting)
    }

    /// One entry that a pattern names, or on whose way it lies.
    fn note(&mut self, directory: &Path, name: &[u8], kind: FileType, rest: &Path) {
        let path = directory.join(OsStr::from_bytes(name));
        if kind == FileType::Symlink {
            self.sight.links.insert((path, rest.to_path_buf()));
        } else if rest.as_os_str().is_empty() {
            self.sight.obeyed.insert(that_fits(&path).to_path_buf());
        }
    }

    fn note_git(&mut self, path: &Path, git: &GitNames, waiting: &mut Vec<CString>) {
        if let Some((name, kind)) = git.repository() {
            let entry = path.join(OsStr::from_bytes(name));
            if kind != FileType::Directory && kind != FileType::Symlink {
                // A pointer to a directory elsewhere.
                self.sight.obeyed.insert(that_fits(&entry).to_path_buf());
            }
            self.sight.repositories.insert(entry);
        }
        let named = path.file_name().is_some_and(|name| is_git(name.as_bytes()));
        if !named && !git.is_directory_of_git() {
            return;
        }
        self.sight.git_directories.insert(path.to_path_buf());
        if !path.ancestors().any(|above| {
            above
                .file_name()
                .is_some_and(|name| is_git(name.as_bytes()))
        }) {
            self.sight.repositories.insert(path.to_path_buf());
        }
        for (index, _) in OBEYED.iter().enumerate() {
            if let Some((name, kind)) = git.obeyed(index) {
                self.note(path, name, kind, Path::new(""));
            }
        }
        if named {
            // Nothing of the user's is in there, and there are many.
            waiting.retain(|name| name.to_bytes() != b"objects");
        }
    }
}

/// The path itself, or the nearest above it that can be mounted on.
fn that_fits(path: &Path) -> &Path {
    path.ancestors()
        .find(|path| path.as_os_str().len() <= LONGEST_PATH)
        .unwrap_or(path)
}

fn is_ours(directory: &OwnedFd, name: &CString) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_or(true, |status: Stat| {
        status.st_uid == rustix::process::geteuid().as_raw()
    })
}

fn kind_of(directory: BorrowedFd<'_>, name: &CStr) -> FileType {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |status| {
            FileType::from_raw_mode(status.st_mode)
        })
}

fn lookup(directory: BorrowedFd<'_>, name: &OsStr) -> Option<FileType> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .ok()
        .map(|status| FileType::from_raw_mode(status.st_mode))
}
