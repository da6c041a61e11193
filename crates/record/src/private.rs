//! Files and directories for this user only. Judged by metadata, never by a failing open: root ignores modes.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Why a file or directory is not for this user only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposure {
    ForeignOwner { owner: u32 },
    OpenToOthers { mode: u32 },
}

/// Owner and mode bits of what is open. Where there are no mode bits, the directory's own access list has to do.
#[cfg(unix)]
pub(crate) fn exposure(metadata: &Metadata) -> Option<Exposure> {
    use std::os::unix::fs::MetadataExt;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Some(Exposure::ForeignOwner {
            owner: metadata.uid(),
        });
    }
    (metadata.mode() & 0o077 != 0).then_some(Exposure::OpenToOthers {
        mode: metadata.mode() & 0o7777,
    })
}

/// As above, for systems without mode bits.
#[cfg(not(unix))]
pub(crate) fn exposure(_metadata: &Metadata) -> Option<Exposure> {
    None
}

#[cfg(unix)]
fn restrict(options: &mut OpenOptions) -> &mut OpenOptions {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;
    // NONBLOCK: a FIFO in the place of a file must not hang the open. It changes nothing for regular files.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.mode(0o600).custom_flags(flags.bits() as i32)
}

#[cfg(not(unix))]
fn restrict(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Creates a file that must not exist, 0600.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    restrict(OpenOptions::new().write(true).create_new(true)).open(path)
}

/// Opens for reading, without following a link.
pub(crate) fn open_read(path: &Path) -> io::Result<File> {
    restrict(OpenOptions::new().read(true)).open(path)
}

/// Opens for reading and writing in place, without following a link; creates nothing.
pub(crate) fn open_update(path: &Path) -> io::Result<File> {
    restrict(OpenOptions::new().read(true).write(true)).open(path)
}

/// Opens for reading and appending, without following a link; creates it 0600 when asked.
pub(crate) fn open_append(path: &Path, create: bool) -> io::Result<File> {
    restrict(OpenOptions::new().read(true).append(true).create(create)).open(path)
}

/// Opens a lock file, creating it 0600.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    restrict(
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false),
    )
    .open(path)
}

/// Makes a directory 0700. `false` when something is there already.
pub(crate) fn make_directory(path: &Path) -> io::Result<bool> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether this user may make names in a directory: its mode, and whether its file system takes any.
#[cfg(unix)]
pub(crate) fn may_write(directory: &Path) -> io::Result<()> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let ways = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, directory, ways, AtFlags::EACCESS).map_err(Into::into)
}

/// As above, where only trying tells.
#[cfg(not(unix))]
pub(crate) fn may_write(_directory: &Path) -> io::Result<()> {
    Ok(())
}

/// Makes names in a directory durable. Where directories cannot be synced, renames are durable by themselves (NTFS).
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        File::open(path)?.sync_all()
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        Ok(())
    }
}

/// Whether opening failed because the last part of the path is a link.
pub(crate) fn is_link_refusal(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
    }
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}

/// Lower case hexadecimal.
pub(crate) fn hex<const N: usize, const M: usize>(bytes: &[u8; N]) -> [u8; M] {
    const { assert!(M == 2 * N) };
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = [0; M];
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    out
}

/// [`hex`] as text.
pub(crate) fn hex_text(bytes: &[u8; 32]) -> String {
    hex::<32, 64>(bytes)
        .iter()
        .map(|&digit| digit as char)
        .collect()
}
