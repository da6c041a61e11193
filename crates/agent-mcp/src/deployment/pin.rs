//! Pinning an entry: where it leads, which file that is, and its bytes (X-EXE: at start, until `apply` exists).

use policy::Message;
use policy::effective::{FileIdentity, Sha256Digest};
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
    let resolved = std::fs::canonicalize(path)?;
    let file = std::fs::File::open(&resolved)?;
    let before = file.metadata()?;
    if !before.is_file() {
        return Err(io::Error::other(Message::new("reason.not_a_regular_file")));
    }
    let sha256 = hash(&file)?;
    let identity = identity_of(&file.metadata()?);
    if identity != identity_of(&before) {
        return Err(io::Error::other(Message::new("reason.changed_while_read")));
    }
    Ok(Pinned {
        resolved,
        identity,
        sha256,
    })
}

fn hash(mut file: &std::fs::File) -> io::Result<Sha256Digest> {
    use sha2::{Digest, Sha256};
    use std::io::Read;
    let mut state = Sha256::new();
    let mut buffer = vec![0u8; 128 * 1024];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(Sha256Digest(state.finalize().into()));
        }
        state.update(&buffer[..count]);
    }
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
