//! Records that are on the disk before the log is.
//!
//! A log that grows makes the file system write its journal at each sync, 2 to 10 ms; a file whose blocks are there already
//! is written over in 0.2 ms. So the end of the log that is not synced yet is also written, signed, into one half of
//! `audit.ahead`, and that is synced instead. The halves take turns: a half torn by a power failure never takes the one
//! before it along. After such a failure the log's lost end is taken from here; at all other times the file repeats what
//! the log has.

use super::error::{AuditError, Finding, WriteFailure};
use super::head::HeadSigner;
use crate::private;
use crate::state::AtomicFile;
use hmac::Mac;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

pub(crate) const AHEAD_FILE: &str = "audit.ahead";
/// One half, with its header.
pub(crate) const HALF_BYTES: usize = 32 << 10;
/// Longest header line.
const HEADER_BYTES: usize = 512;
const AHEAD_VERSION: u32 = 1;

/// What a half holds. Members in RFC 8785 order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// How many bytes of the log follow this line.
    bytes: u64,
    /// Of which file of the chain.
    file: u32,
    key_id: String,
    /// From where in that file.
    size: u64,
    v: u32,
}

impl Header {
    fn end(&self) -> (u32, u64) {
        (self.file, self.size.saturating_add(self.bytes))
    }
}

#[derive(Serialize, Deserialize)]
struct SignedHeader {
    hmac: String,
    #[serde(flatten)]
    header: Header,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Ahead {
    file: File,
    signer: HeadSigner,
    /// The halves whose headers are readable, the one that reaches farthest first.
    halves: Vec<(u64, Header)>,
}

impl Ahead {
    /// `None` where there is none, or one that cannot be used: then the log itself is synced.
    pub(crate) fn open(
        directory: &Path,
        signer: &HeadSigner,
    ) -> Result<Option<Self>, WriteFailure> {
        let mut file = match private::open_update(&directory.join(AHEAD_FILE)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(WriteFailure::of("open the file ahead of the log")(error)),
        };
        let length = file
            .metadata()
            .map_err(WriteFailure::of("look at the file ahead of the log"))?
            .len();
        if length != 2 * HALF_BYTES as u64 {
            return Ok(None);
        }
        let mut halves: Vec<(u64, Header)> = Vec::new();
        for half in 0..2 {
            let mut text = vec![0; HEADER_BYTES];
            let read = file
                .seek(SeekFrom::Start(half * HALF_BYTES as u64))
                .and_then(|_| file.read_exact(&mut text));
            if read.is_err() {
                return Ok(None);
            }
            if let Some(SignedHeader { header, .. }) = header_of(&text)
                && header.key_id == signer.key_id()
            {
                halves.push((half, header));
            }
        }
        halves.sort_by_key(|(_, header)| std::cmp::Reverse(header.end()));
        let signer = signer.clone();
        Ok(Some(Self {
            file,
            signer,
            halves,
        }))
    }

    /// Makes the file with all its blocks, durably.
    pub(crate) fn create(directory: &Path, signer: &HeadSigner) -> Result<Self, AuditError> {
        let path = directory.join(AHEAD_FILE);
        let mut blank = vec![b' '; 2 * HALF_BYTES];
        blank[HALF_BYTES - 1] = b'\n';
        blank[2 * HALF_BYTES - 1] = b'\n';
        AtomicFile::at(&path).write(&blank)?;
        let file = private::open_update(&path)
            .map_err(WriteFailure::of("open the file ahead of the log"))?;
        Ok(Self {
            file,
            signer: signer.clone(),
            halves: Vec::new(),
        })
    }

    /// Writes this end of the log, which begins at `size` of file `number`, and waits for the disk. `false` when it is too
    /// long: nothing was written.
    pub(crate) fn write(
        &mut self,
        number: u32,
        size: u64,
        end: &[u8],
    ) -> Result<bool, WriteFailure> {
        let header = Header {
            bytes: end.len() as u64,
            file: number,
            key_id: self.signer.key_id().to_owned(),
            size,
            v: AHEAD_VERSION,
        };
        let Some(mut text) = self.encode(&header, end) else {
            return Ok(false);
        };
        if text.len() + end.len() > HALF_BYTES {
            return Ok(false);
        }
        text.extend_from_slice(end);
        // The one that reaches less far, so that the other stays whole.
        let half = self.halves.first().map_or(0, |(last, _)| 1 - last);
        self.file
            .seek(SeekFrom::Start(half * HALF_BYTES as u64))
            .and_then(|_| self.file.write_all(&text))
            .and_then(|()| self.file.sync_data())
            .map_err(WriteFailure::of("write ahead of the log"))?;
        self.halves.retain(|(other, _)| *other != half);
        self.halves.insert(0, (half, header));
        Ok(true)
    }

    /// The header line; the end that it signs follows.
    fn encode(&self, header: &Header, end: &[u8]) -> Option<Vec<u8>> {
        let mut hasher = self.signer.keyed_ahead();
        hasher.update(&serde_json_canonicalizer::to_vec(header).ok()?);
        hasher.update(end);
        let hmac = private::hex_text(&hasher.finalize().into_bytes().into());
        let header = header.clone();
        let mut line = serde_json_canonicalizer::to_vec(&SignedHeader { hmac, header }).ok()?;
        line.push(b'\n');
        (line.len() <= HEADER_BYTES).then_some(line)
    }

    /// What the log lacks: its end from `size` of file `number` on. `None` when it has everything.
    ///
    /// # Errors
    /// What is here begins behind the log's end, or in a file that is gone: the log was cut.
    pub(crate) fn beyond(&self, number: u32, size: u64) -> Result<Option<Vec<u8>>, AuditError> {
        for (half, header) in &self.halves {
            if header.end() <= (number, size) {
                continue;
            }
            // Torn by a power failure: what it was to prove never began, and the other half still holds.
            let Some(end) = self.read(*half, header)? else {
                continue;
            };
            let cut = |finding| AuditError::Invalid {
                file: AHEAD_FILE.to_owned(),
                finding,
            };
            if header.file != number {
                return Err(cut(Finding::FileMissing));
            }
            let had = size
                .checked_sub(header.size)
                .ok_or_else(|| cut(Finding::Truncated))?;
            // It reaches beyond `size`, which is inside it then.
            return Ok(end.get(had as usize..).map(<[u8]>::to_vec));
        }
        Ok(None)
    }

    /// The end of the log in this half; `None` when it is not what its header signed.
    fn read(&self, half: u64, header: &Header) -> Result<Option<Vec<u8>>, WriteFailure> {
        let mut file = &self.file;
        let mut text = vec![0; HALF_BYTES];
        file.seek(SeekFrom::Start(half * HALF_BYTES as u64))
            .and_then(|_| file.read_exact(&mut text))
            .map_err(WriteFailure::of("read the file ahead of the log"))?;
        let line = text
            .iter()
            .position(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        let end = usize::try_from(header.bytes)
            .ok()
            .and_then(|bytes| text.get(line..line.checked_add(bytes)?));
        Ok(end
            .filter(|end| self.encode(header, end).as_deref() == text.get(..line))
            .map(<[u8]>::to_vec))
    }
}

fn header_of(text: &[u8]) -> Option<SignedHeader> {
    let line = text.iter().position(|&byte| byte == b'\n')?;
    let signed: SignedHeader = serde_json::from_slice(&text[..line]).ok()?;
    (signed.header.v == AHEAD_VERSION).then_some(signed)
}
