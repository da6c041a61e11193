//! The signed end of a chain, so that a cut tail is seen.
//!
//! One sector, overwritten in place after each data sync and not synced itself (only a clean close of a server syncs it;
//! the close of a short `exec` does not even wait for its last records, and says so in [`Unsynced`]): a killed process loses nothing of it, and after a power failure an older head is legal, since what follows it still
//! chains. A rename per sync would cost two more fsyncs each; syncing the head would cost one, and would show nothing that
//! somebody who can write here could not hide by putting an older copy of the head back.

use super::error::{AuditError, Finding, WriteFailure};
use super::key::{AHEAD_PURPOSE, AuditKey, HEAD_PURPOSE, Keyed};
use crate::private;
use crate::state::AtomicFile;
use hmac::Mac;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

pub(crate) const HEAD_FILE: &str = "audit.head";
/// Version 1 had no `unsynced`, version 2 no `ahead` in it; both are still read.
const HEAD_VERSION: u32 = 3;
/// One disk sector: written as a whole or not at all.
const HEAD_BYTES: usize = 512;

/// What is signed. Members in RFC 8785 order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    pub boot_id: String,
    pub closed: bool,
    pub file: u32,
    pub key_id: String,
    pub mac: String,
    pub seq: u64,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsynced: Option<Unsynced>,
    pub v: u32,
}

/// Says that what follows this record had not been waited for. A process that ends loses nothing of it, only a kernel
/// that ends can: under another kernel than this one the chain may end anywhere after this record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unsynced {
    /// The last record that is in [`super::ahead`] and surely on the disk there, if any is beyond `seq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    pub kernel_boot: String,
    /// The last record that is surely on the disk, in the same file.
    pub seq: u64,
    /// Where it ends.
    pub size: u64,
}

/// The head with its signature, as it lies on the disk.
#[derive(Serialize, Deserialize)]
struct SignedHead {
    hmac: String,
    #[serde(flatten)]
    head: Head,
}

#[derive(Debug)]
pub(crate) struct HeadFile {
    file: File,
    signer: HeadSigner,
}

/// What signs heads, and the name of its key.
#[derive(Clone, Debug)]
pub(crate) struct HeadSigner {
    keyed: Keyed,
    keyed_ahead: Keyed,
    key_id: String,
}

impl HeadSigner {
    pub(crate) fn new(key: &AuditKey) -> Self {
        Self {
            keyed: key.for_purpose(HEAD_PURPOSE),
            keyed_ahead: key.for_purpose(AHEAD_PURPOSE),
            key_id: key.id(),
        }
    }

    pub(crate) fn key_id(&self) -> &str {
        &self.key_id
    }

    pub(crate) fn keyed_ahead(&self) -> Keyed {
        self.keyed_ahead.clone()
    }

    fn head(&self, at: &Position<'_>) -> Head {
        Head {
            boot_id: at.boot_id.to_owned(),
            closed: at.closed,
            file: at.file,
            key_id: self.key_id.clone(),
            mac: at.mac.iter().map(|&digit| digit as char).collect(),
            seq: at.seq,
            size: at.size,
            unsynced: at.unsynced.clone(),
            v: HEAD_VERSION,
        }
    }

    /// The canonical object with `hmac` over the canonical object without it, spaces, and a line feed as the last byte.
    fn encode(&self, head: &Head) -> Result<Vec<u8>, AuditError> {
        let mut hasher = self.keyed.clone();
        hasher.update(&serde_json_canonicalizer::to_vec(head)?);
        let hmac = private::hex_text(&hasher.finalize().into_bytes().into());
        let head = head.clone();
        let mut text = serde_json_canonicalizer::to_vec(&SignedHead { hmac, head })?;
        if text.len() >= HEAD_BYTES {
            return Err(invalid(Finding::HeadInvalid));
        }
        text.resize(HEAD_BYTES, b' ');
        text[HEAD_BYTES - 1] = b'\n';
        Ok(text)
    }
}

/// Where a chain stands.
pub(crate) struct Position<'a> {
    pub boot_id: &'a str,
    pub file: u32,
    pub size: u64,
    pub seq: u64,
    pub mac: &'a [u8; 64],
    pub closed: bool,
    pub unsynced: Option<Unsynced>,
}

fn invalid(finding: Finding) -> AuditError {
    AuditError::Invalid {
        file: HEAD_FILE.to_owned(),
        finding,
    }
}

impl HeadFile {
    /// Opens and checks the head; `None` when there is none.
    pub(crate) fn open(
        directory: &Path,
        signer: &HeadSigner,
    ) -> Result<Option<(Self, Head)>, AuditError> {
        let mut file = match private::open_update(&directory.join(HEAD_FILE)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(WriteFailure::of("open the head")(error).into()),
        };
        let mut text = Vec::with_capacity(HEAD_BYTES + 1);
        (&mut file)
            .take(HEAD_BYTES as u64 + 1)
            .read_to_end(&mut text)
            .map_err(WriteFailure::of("read the head"))?;
        let SignedHead { head, .. } =
            serde_json::from_slice(&text).map_err(|_| invalid(Finding::HeadInvalid))?;
        if head.key_id != signer.key_id {
            return Err(invalid(Finding::WrongKey));
        }
        // Only the exact bytes that we would write count, the signature among them.
        let known = match head.v {
            1 => head.unsynced.is_none(),
            2 => head
                .unsynced
                .as_ref()
                .is_none_or(|rest| rest.ahead.is_none()),
            version => version == HEAD_VERSION,
        };
        if signer.encode(&head)? != text || !known {
            return Err(invalid(Finding::HeadInvalid));
        }
        let signer = signer.clone();
        Ok(Some((Self { file, signer }, head)))
    }

    /// Makes the head of an empty chain; it exists, durably, before the first record.
    pub(crate) fn create(
        directory: &Path,
        signer: &HeadSigner,
        start: &Position<'_>,
    ) -> Result<Self, AuditError> {
        let path = directory.join(HEAD_FILE);
        AtomicFile::at(&path).write(&signer.encode(&signer.head(start))?)?;
        let file = private::open_update(&path).map_err(WriteFailure::of("open the head"))?;
        let signer = signer.clone();
        Ok(Self { file, signer })
    }

    /// Overwrites it; `synced` waits for the disk.
    pub(crate) fn write(&mut self, at: &Position<'_>, synced: bool) -> Result<(), WriteFailure> {
        let unencodable = |_| WriteFailure {
            action: "encode the head",
            kind: io::ErrorKind::InvalidData,
            errno: None,
        };
        let text = self
            .signer
            .encode(&self.signer.head(at))
            .map_err(unencodable)?;
        self.file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.write_all(&text))
            .map_err(WriteFailure::of("write the head"))?;
        if synced {
            self.file
                .sync_data()
                .map_err(WriteFailure::of("sync the head"))?;
        }
        Ok(())
    }
}
