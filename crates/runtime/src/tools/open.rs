//! Opening a judged file, and reading it without waiting and without end.

use super::os;
use super::result::digest;
use cap_std::fs::{Dir, File, Metadata};
use policy::effective::Sha256Digest;
use policy::path::{ObjectFacts, ObjectKind, ResolvedPath};
use policy::{Code, Refusal, Right};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::Path;

/// An opened regular file.
pub(super) struct Opened {
    /// Reads from its start.
    pub(super) file: File,
    /// Its metadata when it was opened.
    pub(super) metadata: Metadata,
}

/// The path of a target as text.
pub(super) fn shown(path: &Path) -> String {
    super::text::path(path)
}

/// What must be there for an operation on files.
///
/// # Errors
/// Not found, or a directory.
pub(super) fn existing_file(target: &ResolvedPath) -> Result<&ObjectFacts, Refusal> {
    let object = target
        .object()
        .ok_or_else(|| Refusal::new(Code::FileNotFound, "must exist", shown(target.path())))?;
    match object.kind {
        ObjectKind::File => Ok(object),
        ObjectKind::Directory => Err(Refusal::new(
            Code::FileWrongKind,
            "file",
            shown(target.path()),
        )),
        ObjectKind::Link | ObjectKind::Other => Err(Refusal::new(
            Code::FileKindUnsupported,
            "regular file",
            shown(target.path()),
        )),
    }
}

/// Opens the judged file for reading and looks at what was opened, not at what was there before.
///
/// # Errors
/// Not a regular file (any more), not there, or not ours to read.
pub(super) fn for_reading(target: &ResolvedPath) -> Result<Opened, Refusal> {
    existing_file(target)?;
    regular(target.parent(), target.name(), target.path())
}

/// Opens one name in a directory; `place` is only for messages.
pub(super) fn regular(parent: &Dir, name: &Path, place: &Path) -> Result<Opened, Refusal> {
    let file = parent
        .open_with(name, &os::read_options())
        .map_err(|error| os::refused(&error, shown(place), Some(Right::Read)))?;
    let metadata = file
        .metadata()
        .map_err(|error| os::refused(&error, shown(place), Some(Right::Read)))?;
    if !metadata.is_file() {
        return Err(Refusal::new(
            Code::FileKindUnsupported,
            "regular file",
            shown(place),
        ));
    }
    Ok(Opened { file, metadata })
}

impl Opened {
    /// All bytes, if there are at most `limit`.
    ///
    /// # Errors
    /// `file.too_large` with size and limit, also when it grows while it is read.
    pub(super) fn bytes(&mut self, limit: u64, place: &Path) -> Result<Vec<u8>, Refusal> {
        let too_large = |size: u64| {
            Refusal::new(Code::FileTooLarge, "size limit", shown(place))
                .with("size", size)
                .with("limit", limit)
        };
        if self.metadata.len() > limit {
            return Err(too_large(self.metadata.len()));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(self.metadata.len()).unwrap_or(0) + 1);
        (&mut self.file)
            .take(limit + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| os::refused(&error, shown(place), Some(Right::Read)))?;
        if bytes.len() as u64 > limit {
            return Err(too_large(bytes.len() as u64));
        }
        Ok(bytes)
    }

    /// SHA-256 of the rest of the file.
    ///
    /// # Errors
    /// `FileTooLarge` above [`HASHED_BYTES`]: a sparse file of terabytes would hold the run for hours.
    pub(super) fn hash(&mut self) -> io::Result<Sha256Digest> {
        if self.metadata.len() > HASHED_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        hash_reader(&mut self.file)
    }
}

/// Largest file that a tool reads whole to hash or search it, bytes.
pub(super) const HASHED_BYTES: u64 = 1 << 30;

/// SHA-256 of everything a reader gives.
pub(super) fn hash_reader(reader: &mut impl Read) -> io::Result<Sha256Digest> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 256 * 1024];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(Sha256Digest(hash.finalize().into())),
            Ok(count) => hash.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// SHA-256 of bytes in memory.
pub(super) fn hash_bytes(bytes: &[u8]) -> Sha256Digest {
    digest(bytes)
}
