//! Finds what must stay unwritable inside a writable root (X-PROTECT). Creates nothing.

use policy::sandbox::SandboxError;
use policy::{Code, Refusal};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A walk that would visit more directories is refused: what was not looked at could not be protected.
const MOST_DIRECTORIES: u32 = 100_000;
/// The same for depth; it bounds open descriptors too.
const MOST_DEPTH: usize = 512;

const LOOK: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

struct Frame {
    directory: OwnedFd,
    path: PathBuf,
    waiting: Vec<CString>,
}

fn refusal(path: &Path, detail: impl ToString) -> SandboxError {
    Refusal::new(
        Code::PathProtected,
        "sandbox.protect",
        path.display().to_string(),
    )
    .with("detail", detail)
    .into()
}

/// Every existing path below `root` that ends with one of the patterns.
///
/// # Errors
/// A refusal where the tree is too large to be looked at, or where a protected path leads through a link, because the
/// link's target could then be changed instead.
pub(crate) fn find(root: &Path, patterns: &[PathBuf]) -> Result<Vec<PathBuf>, SandboxError> {
    let mut found = Vec::new();
    if patterns.is_empty() {
        return Ok(found);
    }
    let mut visited = 0u32;
    let mut stack = Vec::new();
    let first =
        openat(rustix::fs::CWD, root, LOOK, Mode::empty()).map_err(|errno| refusal(root, errno))?;
    stack.push(look_into(first, root.to_path_buf(), patterns, &mut found)?);
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
        visited += 1;
        if visited > MOST_DIRECTORIES || stack.len() > MOST_DEPTH {
            return Err(refusal(
                root,
                format!("more than {MOST_DIRECTORIES} directories, or deeper than {MOST_DEPTH}"),
            ));
        }
        stack.push(look_into(directory, path, patterns, &mut found)?);
    }
    Ok(found)
}

fn is_ours(directory: &OwnedFd, name: &CString) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_or(true, |status| {
        status.st_uid == rustix::process::geteuid().as_raw()
    })
}

fn look_into(
    directory: OwnedFd,
    path: PathBuf,
    patterns: &[PathBuf],
    found: &mut Vec<PathBuf>,
) -> Result<Frame, SandboxError> {
    let mut waiting = Vec::new();
    let mut buffer = [MaybeUninit::<u8>::uninit(); 32 * 1024];
    let mut entries = RawDir::new(directory.as_fd(), &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(|errno| refusal(&path, errno))?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        for pattern in patterns {
            let starts = pattern
                .components()
                .next()
                .is_some_and(|first| first.as_os_str().as_bytes() == name);
            if starts && exists_without_links(directory.as_fd(), pattern, &path)? {
                found.push(path.join(pattern));
            }
        }
        // A file system that does not tell the kind: opening it as a directory will.
        if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
            waiting.push(entry.file_name().to_owned());
        }
    }
    Ok(Frame {
        directory,
        path,
        waiting,
    })
}

fn exists_without_links(
    directory: rustix::fd::BorrowedFd<'_>,
    pattern: &Path,
    path: &Path,
) -> Result<bool, SandboxError> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    // Not NOFOLLOW: that would open a link at the end instead of refusing it.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(directory, pattern, flags, Mode::empty(), resolve) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(Errno::LOOP) => Err(refusal(&path.join(pattern), "leads through a link")),
        Err(errno) => Err(refusal(&path.join(pattern), errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn patterns() -> Vec<PathBuf> {
        vec![".git/config".into(), ".git/hooks".into()]
    }

    #[test]
    fn finds_at_any_depth_and_creates_nothing() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at(".git/hooks")).unwrap();
        fs::write(at(".git/config"), "").unwrap();
        fs::create_dir_all(at("a/b/c/.git/hooks")).unwrap();
        fs::create_dir_all(at("d/.git")).unwrap();
        fs::write(at("e"), "").unwrap();
        let mut found = find(root.path(), &patterns()).unwrap();
        found.sort();
        assert_eq!(
            found,
            [at(".git/config"), at(".git/hooks"), at("a/b/c/.git/hooks")]
        );
        assert!(!at("d/.git/hooks").exists());
    }

    #[test]
    fn a_link_in_a_protected_path_is_refused() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("other")).unwrap();
        fs::create_dir_all(root.path().join(".git")).unwrap();
        std::os::unix::fs::symlink("../other", root.path().join(".git/hooks")).unwrap();
        let error = find(root.path(), &patterns()).unwrap_err();
        assert_eq!(error.code(), Code::PathProtected);
    }
}
