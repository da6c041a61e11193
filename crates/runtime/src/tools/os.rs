//! What differs between operating systems, in one place: identities, exclusive renames, synced directories.

use cap_fs_ext::{FollowSymlinks, MetadataExt, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use policy::effective::FileIdentity;
use policy::path::{ObjectFacts, ObjectKind};
use policy::{Code, Refusal, Right};
use std::io;
use std::path::Path;

/// Reads, follows no link, and does not wait for a FIFO's writer.
pub(super) fn read_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).follow(FollowSymlinks::No).nonblock(true);
    options
}

/// A new file that must not exist, with these permission bits less the umask.
pub(super) fn create_options(mode: u32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create_new(true)
        .follow(FollowSymlinks::No);
    #[cfg(unix)]
    cap_std::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _unused_here = mode;
    options
}

/// An existing file, to be written through.
pub(super) fn write_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .follow(FollowSymlinks::No)
        .nonblock(true);
    options
}

/// What an object is and which bytes it carries.
pub(super) fn facts(metadata: &Metadata) -> ObjectFacts {
    ObjectFacts {
        kind: kind(metadata),
        identity: identity(metadata),
        links: metadata.nlink(),
    }
}

fn kind(metadata: &Metadata) -> ObjectKind {
    let kind = metadata.file_type();
    if kind.is_file() {
        ObjectKind::File
    } else if kind.is_dir() {
        ObjectKind::Directory
    } else if kind.is_symlink() {
        ObjectKind::Link
    } else {
        ObjectKind::Other
    }
}

/// The identity of an object (X-HASH).
pub(super) fn identity(metadata: &Metadata) -> FileIdentity {
    FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.len(),
        modified_ns: times::modified(metadata),
        changed_ns: times::changed(metadata),
    }
}

#[cfg(unix)]
mod times {
    use cap_std::fs::{Metadata, MetadataExt};

    pub(super) fn modified(metadata: &Metadata) -> i128 {
        i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
    }

    pub(super) fn changed(metadata: &Metadata) -> i128 {
        i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec())
    }
}

#[cfg(not(unix))]
mod times {
    use cap_std::fs::Metadata;
    use std::time::SystemTime;

    pub(super) fn modified(metadata: &Metadata) -> i128 {
        let since = metadata
            .modified()
            .ok()
            .and_then(|time| time.into_std().duration_since(SystemTime::UNIX_EPOCH).ok());
        since.map_or(0, |since| since.as_nanos() as i128)
    }

    pub(super) fn changed(_: &Metadata) -> i128 {
        0
    }
}

/// Whether two facts are of one object, whatever was written to it.
pub(super) fn same_object(one: &FileIdentity, other: &FileIdentity) -> bool {
    (one.device, one.inode) == (other.device, other.inode)
}

/// Permission bits, 0 where the system has none.
pub(super) fn mode_of(metadata: &Metadata) -> u32 {
    #[cfg(unix)]
    return cap_std::fs::MetadataExt::mode(metadata) & 0o777;
    #[cfg(not(unix))]
    {
        let _has_none = metadata;
        0
    }
}

/// Moves a name, and fails with `AlreadyExists` if there is one at the destination.
///
/// Where the file system has no exclusive rename, a second name is made (which is exclusive) and the first one removed.
pub(super) fn rename_exclusive(
    from: &Dir,
    name: &Path,
    to: &Dir,
    new_name: &Path,
) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{RenameFlags, renameat_with};
        match renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
            done => return Ok(done?),
        }
    }
    from.hard_link(name, to, new_name)?;
    from.remove_file(name)
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(directory: &Dir) -> io::Result<()> {
    #[cfg(unix)]
    {
        use rustix::fs::{Mode, OFlags, fsync, openat};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fsync(openat(directory, ".", flags, Mode::empty())?)?;
    }
    #[cfg(not(unix))]
    let _synced_with_the_file = directory;
    Ok(())
}

/// Gives a new file the mode, owner, group, access list and user attributes of the file it replaces, as far as we may.
///
/// # Errors
/// The mode could not be set; the rest is done where possible, because a file of another owner still may be replaced.
pub(super) fn copy_attributes(from: &File, to: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use rustix::fs::{Gid, Mode, Uid, fchmod, fchown, fstat};
        let old = fstat(from)?;
        let new = fstat(to)?;
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid) {
            let group = Some(Gid::from_raw(old.st_gid));
            if fchown(to, Some(Uid::from_raw(old.st_uid)), group).is_err() {
                // Only root gives files away; a group of ours can still be kept.
                let _kept_where_possible = fchown(to, None, group);
            }
        }
        fchmod(to, Mode::from_raw_mode(old.st_mode & 0o777))?;
        #[cfg(target_os = "linux")]
        copy_extended(from, to);
    }
    #[cfg(not(unix))]
    to.set_permissions(from.metadata()?.permissions())?;
    Ok(())
}

/// `user.*` attributes and the POSIX access list; labels of security modules are the kernel's to set.
#[cfg(target_os = "linux")]
fn copy_extended(from: &File, to: &File) {
    use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
    let mut names = vec![0u8; 64 * 1024];
    let Ok(length) = flistxattr(from, &mut names) else {
        return;
    };
    let mut value = vec![0u8; 64 * 1024];
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        if !(name.starts_with(b"user.") || name == b"system.posix_acl_access") {
            continue;
        }
        if let Ok(size) = fgetxattr(from, name, &mut value) {
            let _kept_where_possible = fsetxattr(to, name, &value[..size], XattrFlags::empty());
        }
    }
}

/// Asks the operating system whether this file could be written, so that replacing it does not get around a read-only mode.
pub(super) fn may_write(parent: &Dir, name: &Path) -> bool {
    #[cfg(unix)]
    {
        use rustix::fs::{Access, AtFlags, accessat};
        !matches!(
            accessat(parent, name, Access::WRITE_OK, AtFlags::empty()),
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM | rustix::io::Errno::ROFS)
        )
    }
    #[cfg(not(unix))]
    parent
        .symlink_metadata(name)
        .map_or(true, |metadata| !metadata.permissions().readonly())
}

/// Now, in nanoseconds since 1970, as the times of files have it; 0 before.
pub(super) fn now_ns() -> i128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| i128::try_from(now.as_nanos()).unwrap_or(0))
}

/// An operating system error as the refusal that tells the model what it means.
pub(super) fn refused(
    error: &io::Error,
    target: impl Into<String>,
    right: Option<Right>,
) -> Refusal {
    use io::ErrorKind as Kind;
    let (code, rule) = match error.kind() {
        Kind::NotFound => (Code::FileNotFound, "operating system"),
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => {
            (Code::PathDenied, "operating system permissions")
        }
        Kind::FileTooLarge => (Code::FileTooLarge, "1 GiB is the most a tool reads"),
        Kind::AlreadyExists => (Code::FileExists, "operating system"),
        Kind::NotADirectory | Kind::IsADirectory => (Code::FileWrongKind, "operating system"),
        Kind::DirectoryNotEmpty => (Code::DirectoryNotEmpty, "only empty directories"),
        Kind::CrossesDevices => (Code::RenameCrossDevice, "one file system"),
        Kind::InvalidFilename | Kind::InvalidInput => (Code::PathInvalid, "operating system"),
        _ if is_link_loop(error) => (Code::PathEscapes, "no links"),
        _ => (Code::ToolFailed, "operating system"),
    };
    let refusal = Refusal::new(code, rule, target);
    let refusal = if code == Code::PathDenied
        && let Some(right) = right
    {
        refusal.requiring(right)
    } else {
        refusal
    };
    match code {
        Code::ToolFailed | Code::PathInvalid => refusal.with("detail", error),
        _ => refusal,
    }
}

fn is_link_loop(error: &io::Error) -> bool {
    #[cfg(unix)]
    return error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    #[cfg(not(unix))]
    {
        let _has_none = error;
        false
    }
}
