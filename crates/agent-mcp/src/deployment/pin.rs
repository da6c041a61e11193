//! Pinning an entry: where it leads, which file that is, and its bytes (X-EXE: at start, until `apply` exists).

use policy::Message;
use policy::effective::{FileIdentity, Sha256Digest};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A pinned program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Where the path leads.
    pub resolved: PathBuf,
    /// Which file that is.
    pub identity: FileIdentity,
    /// Its bytes.
    pub sha256: Sha256Digest,
}

/// Resolves, opens once, and hashes what was opened.
///
/// # Errors
/// Not there, no regular file, not readable, or changed while it was read.
pub fn pin(path: &Path) -> io::Result<Pinned> {
    let Opened {
        resolved,
        file,
        identity,
    } = Opened::of(path)?;
    Ok(Pinned {
        resolved,
        identity,
        sha256: hash(&file, identity)?,
    })
}

/// A program's file, open.
pub(super) struct Opened {
    pub(super) resolved: PathBuf,
    pub(super) file: File,
    pub(super) identity: FileIdentity,
}

impl Opened {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let resolved = std::fs::canonicalize(path)?;
        let file = File::open(&resolved)?;
        let seen = file.metadata()?;
        if !seen.is_file() {
            return Err(io::Error::other(Message::new("reason.not_a_regular_file")));
        }
        Ok(Self {
            resolved,
            file,
            identity: identity_of(&seen),
        })
    }
}

/// The bytes of an open file, which must be this one from the first to the last of them.
pub(super) fn hash(mut file: &File, identity: FileIdentity) -> io::Result<Sha256Digest> {
    use sha2::{Digest, Sha256};
    use std::io::Read;
    let mut state = Sha256::new();
    let mut buffer = vec![0u8; 128 * 1024];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        state.update(&buffer[..count]);
    }
    if identity_of(&file.metadata()?) != identity {
        return Err(io::Error::other(Message::new("reason.changed_while_read")));
    }
    Ok(Sha256Digest(state.finalize().into()))
}

/// The identity of an opened file.
#[cfg(unix)]
pub fn identity_of(metadata: &std::fs::Metadata) -> FileIdentity {
    use std::os::unix::fs::MetadataExt;
    let nanoseconds =
        |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
    }
}

/// Where the system has no device and inode numbers in the standard library, size and time identify a file.
#[cfg(not(unix))]
pub fn identity_of(metadata: &std::fs::Metadata) -> FileIdentity {
    let modified_ns = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
        .map_or(0, |age| i128::try_from(age.as_nanos()).unwrap_or(0));
    FileIdentity {
        device: 0,
        inode: 0,
        size: metadata.len(),
        modified_ns,
        changed_ns: modified_ns,
    }
}
