//! The private area without a mount: a directory in memory that only this user can enter, gone with its sandbox.
//!
//! Whoever made it holds a lock on it while it is needed. One that nobody locks has lost its owner and is swept by the
//! next sandbox of this user, so nothing in its name has to be believed.

use crate::backend::plan::{HOME, SHARED_MEMORY};
use policy::sandbox::SandboxError;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const PREFIX: &str = "agent-mcp-private-";
const TMPFS_MAGIC: u64 = 0x0102_1994;
const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The directory, while it is needed.
#[derive(Debug)]
pub(crate) struct Area {
    path: PathBuf,
    _locked: OwnedFd,
}

fn unavailable(reason: impl ToString) -> SandboxError {
    SandboxError::Unavailable {
        stage: "private area",
        reason: reason.to_string(),
    }
}

impl Area {
    /// Makes one, and sweeps what sandboxes of this user that died have left.
    ///
    /// # Errors
    /// `Unavailable` where there is no memory-backed directory to make it in.
    pub(crate) fn make() -> Result<Self, SandboxError> {
        // Nothing in `/dev` can be granted, so no root lies above or below it.
        let base = Path::new("/dev/shm");
        let memory = rustix::fs::statfs(base).map_err(unavailable)?.f_type as u64 == TMPFS_MAGIC;
        if !memory {
            return Err(unavailable("/dev/shm is not backed by memory"));
        }
        sweep(base);
        // Somebody who sweeps may meet it before it is locked.
        for _ in 0..8 {
            let path = base.join(format!("{PREFIX}{}", random_name()?));
            rustix::fs::mkdir(&path, Mode::RWXU).map_err(unavailable)?;
            let Ok(opened) = rustix::fs::open(&path, OPEN, Mode::empty()) else {
                continue;
            };
            rustix::fs::flock(&opened, FlockOperation::LockExclusive).map_err(unavailable)?;
            if rustix::fs::stat(&path).is_err() {
                continue;
            }
            for name in [HOME, SHARED_MEMORY] {
                rustix::fs::mkdirat(&opened, name, Mode::RWXU).map_err(unavailable)?;
            }
            return Ok(Self {
                path,
                _locked: opened,
            });
        }
        Err(unavailable("it is removed as soon as it is made"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn random_name() -> Result<String, SandboxError> {
    let mut bytes = [0u8; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(unavailable)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Removes what is ours by name and owner and locked by nobody.
fn sweep(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let Ok(opened) = rustix::fs::open(entry.path(), OPEN, Mode::empty()) else {
            continue;
        };
        let own = rustix::fs::fstat(&opened)
            .is_ok_and(|status| status.st_uid == rustix::process::geteuid().as_raw());
        let free = rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive).is_ok();
        if own && free {
            remove(&entry.path());
        }
    }
}

/// Removes the directory with everything in it, however deep and whatever its modes: each directory found is moved up
/// before it is looked into. No program of the sandbox may be alive. Whether it is gone is for the caller to check.
pub(crate) fn remove(path: &Path) {
    let Ok(top) = rustix::fs::open(path, OPEN, Mode::empty()) else {
        return;
    };
    let mut moved = 0u64;
    while let Some(name) = first_entry(top.as_fd()) {
        // An entry that stays would be met for ever.
        if remove_entry(top.as_fd(), &name, &mut moved).is_err() {
            return;
        }
    }
    // A directory that is not empty stays, and the caller sees it.
    let _gone = rustix::fs::rmdir(path);
}

fn first_entry(directory: BorrowedFd<'_>) -> Option<CString> {
    let entries = rustix::fs::Dir::read_from(directory).ok()?;
    entries
        .flatten()
        .map(|entry| entry.file_name().to_owned())
        .find(|name| !matches!(name.to_bytes(), b"." | b".."))
}

fn remove_entry(top: BorrowedFd<'_>, name: &CString, moved: &mut u64) -> Result<(), Errno> {
    match rustix::fs::unlinkat(top, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return other,
    }
    // A program may have made it without any mode.
    rustix::fs::chmodat(top, name, Mode::RWXU, AtFlags::empty())?;
    let directory = rustix::fs::openat(top, name, OPEN, Mode::empty())?;
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let entry = entry?;
        let inner = entry.file_name();
        if matches!(inner.to_bytes(), b"." | b"..") {
            continue;
        }
        match rustix::fs::unlinkat(&directory, inner, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {
                rustix::fs::chmodat(&directory, inner, Mode::RWXU, AtFlags::empty())?;
                *moved += 1;
                let up = format!(".moved-{}-{moved}", std::process::id());
                rustix::fs::renameat(&directory, inner, top, OsStr::new(&up))?;
            }
            other => other?,
        }
    }
    rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-INV-10: deep trees, trees without modes, links.
    #[test]
    fn whatever_is_in_it_is_removed_and_links_are_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("keep"), "x").unwrap();
        let place = Area::make().unwrap();
        let path = place.path().to_path_buf();
        let mut deep = rustix::fs::open(&path, OPEN, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&deep, "d", Mode::RWXU).unwrap();
            deep = rustix::fs::openat(&deep, "d", OPEN, Mode::empty()).unwrap();
        }
        rustix::fs::mkdirat(&deep, "closed", Mode::empty()).unwrap();
        std::os::unix::fs::symlink(outside.path(), path.join("link")).unwrap();
        drop(place);
        assert!(!path.exists());
        assert!(outside.path().join("keep").exists());
    }

    /// DESIGN §12.3: one whose owner died is swept by the next, a living one is not.
    #[test]
    fn what_nobody_locks_is_swept() {
        let alive = Area::make().unwrap();
        let orphan = Path::new("/dev/shm").join(format!("{PREFIX}{}", random_name().unwrap()));
        std::fs::create_dir_all(orphan.join("x")).unwrap();
        let next = Area::make().unwrap();
        assert!(!orphan.exists());
        assert!(alive.path().exists() && next.path().exists());
    }
}
