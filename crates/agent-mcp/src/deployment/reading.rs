//! Reads a configuration file: a regular file, of this user or root, closed to others, not larger than one may be.

use super::{guarded, links};
use policy::{Blame, Code, Fault, Message};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;

/// The bytes of one file; of a file that is too large so many that its reader sees it.
///
/// # Errors
/// Not there, with the chain of links that leads nowhere; not a regular file, which is not opened; open to others; not
/// readable.
pub(super) fn read_bounded(path: &Path) -> Result<Vec<u8>, Fault> {
    // To open a device can do something, and to open a pipe waits for somebody.
    let seen =
        std::fs::metadata(path).map_err(|error| unreadable(path, links::why(path, &error)))?;
    refuse_other_kinds(path, &seen)?;
    if let Some(why) = guarded::why_not(path) {
        return Err(unreadable(path, why));
    }
    let file = open(path).map_err(|error| unreadable(path, error))?;
    let seen = file.metadata().map_err(|error| unreadable(path, error))?;
    refuse_other_kinds(path, &seen)?;
    let mut text = Vec::new();
    let limit = policy::config::MAX_FILE_BYTES as u64 + 1;
    file.take(limit)
        .read_to_end(&mut text)
        .map_err(|error| unreadable(path, error))?;
    Ok(text)
}

fn refuse_other_kinds(path: &Path, seen: &std::fs::Metadata) -> Result<(), Fault> {
    match (seen.is_file(), seen.is_dir()) {
        (true, _) => Ok(()),
        (_, true) => Err(unreadable(path, Message::new("os.is_a_directory"))),
        _ => Err(unreadable(path, Message::new("reason.not_a_regular_file"))),
    }
}

/// Does not wait, should it have become a pipe meanwhile.
#[cfg(unix)]
fn open(path: &Path) -> std::io::Result<File> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

#[cfg(not(unix))]
fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

/// The fault of a configuration file.
pub(super) fn unreadable(path: &Path, why: impl Into<Message>) -> Fault {
    Fault::because(
        Blame::Configuration,
        Code::ConfigurationInvalid,
        path.display().to_string(),
        why,
    )
}
