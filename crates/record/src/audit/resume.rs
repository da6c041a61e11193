//! Finding the end of an existing chain, to go on there.
//!
//! When the signed head says how long the file is, only the last record is looked at; what a crash left behind the head
//! is checked record by record. Changes before the head are for [`crate::verify`].

use super::ahead::Ahead;
use super::chain::MAC_DIGITS;
use super::encode::{NO_RECORD, RECORD_VERSION};
use super::error::{AuditError, Finding, WriteFailure};
use super::event::EventName;
use super::head::{HEAD_FILE, Head, HeadFile, HeadSigner, Position};
use super::key::Keyed;
use super::{RECORD_LIMIT, file_name};
use crate::kernel_boot::KernelBoot;
use crate::private;
use hmac::Mac;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How the boot before this one ended, as `audit.open` records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreviousEnd {
    None,
    Closed,
    Unclean,
}

impl PreviousEnd {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Closed => "closed",
            Self::Unclean => "unclean",
        }
    }
}

/// A last line without its end, now in a file of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetAside {
    pub file: String,
    pub bytes: u64,
    pub sha256: String,
}

/// The end of a chain.
pub(crate) struct Resumed {
    pub log: File,
    pub head: HeadFile,
    pub number: u32,
    pub size: u64,
    pub seq: u64,
    pub mac: [u8; MAC_DIGITS],
    /// The last record of this file that is surely on the disk, and where it ends.
    pub durable: (u64, u64),
    pub previous_end: PreviousEnd,
    pub set_aside: Option<SetAside>,
    /// Records that were missing in the log and on the disk ahead of it.
    pub restored: u64,
    pub ahead: Option<Ahead>,
}

pub(crate) fn resume(
    directory: &Path,
    signer: &HeadSigner,
    keyed: &Keyed,
    boot_id: &str,
    kernel: Option<&KernelBoot>,
) -> Result<Resumed, AuditError> {
    match HeadFile::open(directory, signer)? {
        None => begin(directory, signer, boot_id),
        Some((head_file, head)) => {
            let ahead = Ahead::open(directory, signer)?;
            End::at(directory, keyed, head, kernel)?.walk(head_file, ahead)
        }
    }
}

fn begin(directory: &Path, signer: &HeadSigner, boot_id: &str) -> Result<Resumed, AuditError> {
    let path = directory.join(file_name(1));
    if path.exists() {
        return Err(AuditError::Invalid {
            file: HEAD_FILE.to_owned(),
            finding: Finding::HeadMissing,
        });
    }
    let start = Position {
        boot_id,
        file: 1,
        size: 0,
        seq: 0,
        mac: &NO_RECORD,
        closed: false,
        unsynced: None,
    };
    let head = HeadFile::create(directory, signer, &start)?;
    Ok(Resumed {
        log: new_file(directory, 1)?,
        head,
        number: 1,
        size: 0,
        seq: 0,
        mac: NO_RECORD,
        durable: (0, 0),
        previous_end: PreviousEnd::None,
        set_aside: None,
        restored: 0,
        ahead: None,
    })
}

/// Makes the next file of a chain, durably.
pub(crate) fn new_file(directory: &Path, number: u32) -> Result<File, WriteFailure> {
    let path = directory.join(file_name(number));
    private::create_new(&path)
        .and_then(|file| file.sync_all())
        .and_then(|()| private::sync_directory(directory))
        .and_then(|()| private::open_append(&path, false))
        .map_err(WriteFailure::of("create the log"))
}

/// The members that chain a record. Every member is named, so that a foreign one is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "members that are only checked for being there")]
struct Line {
    boot_id: String,
    code: Option<String>,
    decision: String,
    detail: serde_json::Map<String, serde_json::Value>,
    event: String,
    mac: String,
    planned_task_id: Option<String>,
    prev: String,
    run_id: Option<String>,
    seq: u64,
    session_id: Option<String>,
    target: Option<String>,
    trace_id: String,
    ts: String,
    v: u32,
}

/// Parses a line without its line feed and checks its mac.
fn check_line(text: &[u8], keyed: &Keyed) -> Option<Line> {
    let line: Line = serde_json::from_slice(text).ok()?;
    // After the real `mac` there are only scalars, in which a quote is escaped: its last place is the real one.
    let member = format!(",\"mac\":\"{}\"", line.mac);
    let anchor = format!("{member},\"planned_task_id\":");
    let at = text
        .windows(anchor.len())
        .rposition(|window| window == anchor.as_bytes())?;
    let mut hasher = keyed.clone();
    hasher.update(&text[..at]);
    hasher.update(&text[at + member.len()..]);
    let mac = private::hex_text(&hasher.finalize().into_bytes().into());
    (mac == line.mac && line.v == RECORD_VERSION).then_some(line)
}

struct End<'a> {
    directory: &'a Path,
    keyed: &'a Keyed,
    log: File,
    number: u32,
    size: u64,
    seq: u64,
    mac: [u8; MAC_DIGITS],
    durable: (u64, u64),
    /// The record that must be there at the least, in the log or ahead of it.
    least: u64,
    last_event: Option<String>,
}

impl<'a> End<'a> {
    /// Where the head says, with the record there checked.
    fn at(
        directory: &'a Path,
        keyed: &'a Keyed,
        head: Head,
        kernel: Option<&KernelBoot>,
    ) -> Result<Self, AuditError> {
        let number = head.file;
        let invalid = |finding| AuditError::Invalid {
            file: file_name(number),
            finding,
        };
        let mac = <[u8; MAC_DIGITS]>::try_from(head.mac.as_bytes())
            .map_err(|_| invalid(Finding::HeadInvalid))?;
        let log = match private::open_append(&directory.join(file_name(number)), false) {
            Ok(log) => log,
            // The head of a new chain is made before its first file.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && number == 1 && head.seq == 0 =>
            {
                new_file(directory, number)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(invalid(Finding::FileMissing));
            }
            Err(error) => return Err(WriteFailure::of("open the log")(error).into()),
        };
        let length = log
            .metadata()
            .map_err(WriteFailure::of("look at the log"))?
            .len();
        let durable = match &head.unsynced {
            Some(unsynced) => (unsynced.seq, unsynced.size),
            None => (head.seq, head.size),
        };
        // The kernel that held the rest in memory is gone, and so may be the rest.
        let rest_may_be_lost = head.unsynced.as_ref().is_some_and(|unsynced| {
            kernel.is_none_or(|kernel| kernel.as_str() != unsynced.kernel_boot)
        });
        let ahead = head.unsynced.as_ref().and_then(|rest| rest.ahead);
        let (seq, size) = if rest_may_be_lost && length < head.size {
            durable
        } else {
            (head.seq, head.size)
        };
        if length < size {
            return Err(invalid(Finding::Truncated));
        }
        let mut end = Self {
            directory,
            keyed,
            log,
            number,
            size,
            seq,
            mac,
            durable,
            least: ahead.unwrap_or(seq),
            last_event: None,
        };
        if size > 0 {
            let text = end.line_before(size)?;
            let line = check_line(&text, keyed).ok_or_else(|| invalid(Finding::RecordInvalid))?;
            // The head signs the mac of its own record only.
            if size == head.size && line.mac.as_bytes() != mac || line.seq != seq {
                return Err(invalid(Finding::ChainBroken));
            }
            end.mac.copy_from_slice(line.mac.as_bytes());
            end.last_event = Some(line.event);
        }
        Ok(end)
    }

    /// The line that ends at `size`, without its line feed.
    fn line_before(&mut self, size: u64) -> Result<Vec<u8>, AuditError> {
        let mut wanted = 4096u64;
        loop {
            let from = size.saturating_sub(wanted);
            let mut text = vec![0; (size - from) as usize];
            self.log
                .seek(SeekFrom::Start(from))
                .and_then(|_| self.log.read_exact(&mut text))
                .map_err(WriteFailure::of("read the log"))?;
            if text.pop() != Some(b'\n') {
                return Err(self.invalid(Finding::RecordInvalid));
            }
            if let Some(before) = text.iter().rposition(|&byte| byte == b'\n') {
                return Ok(text.split_off(before + 1));
            }
            if from == 0 {
                return Ok(text);
            }
            if wanted > RECORD_LIMIT as u64 {
                return Err(self.invalid(Finding::RecordInvalid));
            }
            wanted *= 8;
        }
    }

    /// Follows what a crash left behind the head, through all files, and sets a torn last line aside.
    fn walk(mut self, head: HeadFile, ahead: Option<Ahead>) -> Result<Resumed, AuditError> {
        let set_aside = loop {
            let torn = self.walk_file()?;
            let next = self.directory.join(file_name(self.number + 1));
            match (torn, next.exists()) {
                (torn, false) => break torn.map(|bytes| self.set_aside(&bytes)).transpose()?,
                (Some(_), true) => return Err(self.invalid(Finding::RecordInvalid)),
                (None, true) => {
                    self.number += 1;
                    self.size = 0;
                    self.durable = (self.seq, 0);
                    self.log = private::open_append(&next, false)
                        .map_err(WriteFailure::of("open the log"))?;
                }
            }
        };
        let restored = match &ahead {
            Some(ahead) => self.restore(ahead)?,
            None => 0,
        };
        if self.seq < self.least {
            return Err(self.invalid(Finding::Truncated));
        }
        let previous_end = match &self.last_event {
            Some(event) if event == EventName::AuditClose.word() => PreviousEnd::Closed,
            None if self.seq == 0 => PreviousEnd::None,
            _ => PreviousEnd::Unclean,
        };
        Ok(Resumed {
            log: self.log,
            head,
            number: self.number,
            size: self.size,
            seq: self.seq,
            mac: self.mac,
            durable: self.durable,
            previous_end,
            set_aside,
            restored,
            ahead,
        })
    }

    /// Takes what a power failure took from the log's end from what was written ahead of it. Returns how many records.
    fn restore(&mut self, ahead: &Ahead) -> Result<u64, AuditError> {
        let Some(lost) = ahead.beyond(self.number, self.size)? else {
            return Ok(0);
        };
        let before = self.seq;
        let start = self.size;
        for text in lost.split_inclusive(|&byte| byte == b'\n') {
            self.follow(text)?;
        }
        self.log
            .write_all(&lost)
            .and_then(|()| self.log.sync_all())
            .map_err(WriteFailure::of("write the log"))?;
        debug_assert_eq!(
            self.size,
            start + lost.len() as u64,
            "every line was followed"
        );
        self.durable = (self.seq, self.size);
        Ok(self.seq - before)
    }

    /// One more record, with its line feed.
    fn follow(&mut self, text: &[u8]) -> Result<(), AuditError> {
        let line = text
            .strip_suffix(b"\n")
            .and_then(|text| check_line(text, self.keyed))
            .ok_or_else(|| self.invalid(Finding::RecordInvalid))?;
        if line.prev.as_bytes() != self.mac || line.seq != self.seq + 1 {
            return Err(self.invalid(Finding::ChainBroken));
        }
        self.seq = line.seq;
        self.size += text.len() as u64;
        self.mac.copy_from_slice(line.mac.as_bytes());
        self.last_event = Some(line.event);
        Ok(())
    }

    /// The rest of one file; returns a last line without line feed.
    fn walk_file(&mut self) -> Result<Option<Vec<u8>>, AuditError> {
        let length = self
            .log
            .metadata()
            .map_err(WriteFailure::of("look at the log"))?
            .len();
        if length == self.size {
            return Ok(None);
        }
        let mut log = self
            .log
            .try_clone()
            .map_err(WriteFailure::of("read the log"))?;
        log.seek(SeekFrom::Start(self.size))
            .map_err(WriteFailure::of("read the log"))?;
        let mut reader = BufReader::with_capacity(1 << 16, log);
        let mut text = Vec::new();
        loop {
            text.clear();
            (&mut reader)
                .take(RECORD_LIMIT as u64 + 1)
                .read_until(b'\n', &mut text)
                .map_err(WriteFailure::of("read the log"))?;
            if text.is_empty() {
                return Ok(None);
            }
            if text.last() != Some(&b'\n') {
                if text.len() > RECORD_LIMIT {
                    return Err(self.invalid(Finding::RecordInvalid));
                }
                return Ok(Some(text));
            }
            self.follow(&text)?;
        }
    }

    /// Keeps the torn bytes in a file of their own, then cuts them off.
    fn set_aside(&mut self, bytes: &[u8]) -> Result<SetAside, AuditError> {
        let (path, mut file) = self.new_torn_file()?;
        file.write_all(bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| private::sync_directory(self.directory))
            .and_then(|()| self.log.set_len(self.size))
            .and_then(|()| self.log.sync_all())
            .map_err(WriteFailure::of("set a torn line aside"))?;
        Ok(SetAside {
            file: path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            bytes: bytes.len() as u64,
            sha256: private::hex_text(&Sha256::digest(bytes).into()),
        })
    }

    fn new_torn_file(&self) -> Result<(PathBuf, File), WriteFailure> {
        for number in 1u32.. {
            let path = self.directory.join(format!("audit.torn-{number}"));
            match private::create_new(&path) {
                Ok(file) => return Ok((path, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(WriteFailure::of("set a torn line aside")(error)),
            }
        }
        Err(WriteFailure {
            action: "set a torn line aside",
            kind: io::ErrorKind::AlreadyExists,
            errno: None,
        })
    }

    fn invalid(&self, finding: Finding) -> AuditError {
        AuditError::Invalid {
            file: file_name(self.number),
            finding,
        }
    }
}
