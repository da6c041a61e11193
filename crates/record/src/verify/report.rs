//! What a verification found.

use policy::{Blame, Code, Fault, Message};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// The files could not be read; nothing is said about the log.
#[derive(Debug, thiserror::Error)]
#[error("read {path}: {source}")]
pub struct VerifyError {
    /// What could not be read.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl VerifyError {
    pub(super) fn new(path: &Path, source: io::Error) -> Self {
        Self {
            path: path.to_owned(),
            source,
        }
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        Code::AuditUnavailable
    }
}

impl From<VerifyError> for Fault {
    fn from(error: VerifyError) -> Self {
        let target = error.path.display().to_string();
        Self::because(Blame::Machine, error.code(), target, error)
    }
}

impl From<VerifyError> for Message {
    fn from(error: VerifyError) -> Self {
        Self::new("reason.of_path")
            .with("path", error.path.display())
            .with_message("reason", Self::of_io(&error.source))
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// Log files without `audit.head`.
    HeadMissing,
    /// `audit.head` was changed.
    HeadInvalid,
    /// `audit.head` names another record or place than the log has.
    HeadMismatch,
    /// The log was signed with another key.
    WrongKey,
    /// A file of the chain is gone.
    FileMissing,
    /// A line is no record, was changed, or was inserted: its mac is wrong.
    RecordAltered,
    /// A genuine record, but the ones before it are gone.
    RecordMissing,
    /// A genuine record that belongs elsewhere in this chain: swapped or repeated.
    RecordMoved,
    /// A genuine record that does not follow the one before it: taken from another chain.
    ChainBroken,
    /// A record of a boot that was not opened, or was closed before.
    BootInvalid,
    /// A record format that this verifier does not know.
    VersionUnknown,
    /// The end is cut off: the head knows more records.
    Truncated,
    /// The last line has no end; the next start sets it aside. Also seen while an instance is writing.
    TornTail,
    /// A clean stop without its `audit.close`.
    EndRecordMissing,
    /// A set-aside line is gone or was changed.
    SetAsideInvalid,
}

/// The first problem, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What is wrong.
    pub kind: ProblemKind,
    /// File name in the instance's directory.
    pub file: String,
    /// Line in it, from 1; 0 when a line is not there.
    pub line: u64,
    /// The record's number, where it could be read. Only as good as the record, when that was altered.
    pub seq: Option<u64>,
}

/// What was verified up to the first problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// The instance's directory.
    pub directory: PathBuf,
    /// Files of the chain.
    pub files: u32,
    /// Bytes read.
    pub bytes: u64,
    /// Records that verified.
    pub records: u64,
    /// The last record that verified; 0 for none.
    pub last_seq: u64,
    /// The record the head speaks of.
    pub head_seq: u64,
    /// Records after that one: genuine, but their cutting would not be seen.
    pub beyond_head: u64,
    /// Records that a short `exec` had left to the memory of a kernel that ended before they were on the disk.
    pub lost_with_kernel: u64,
    /// Records that a power failure took from the log and that are on the disk in `audit.ahead`; the next start puts them
    /// back.
    pub ahead: u64,
    /// How often the log was opened.
    pub boots: u64,
    /// How many of these ended without `audit.close`, not counting the last.
    pub unclean_stops: u64,
    /// Whether the last boot ended with `audit.close`.
    pub closed: bool,
    /// Torn lines that were set aside, recorded and found unchanged.
    pub set_aside: u64,
    /// Set-aside files that no record names: a crash while setting aside.
    pub set_aside_unrecorded: u64,
    /// The first problem; the log is good when there is none.
    pub problem: Option<Problem>,
}

impl VerifyReport {
    pub(super) fn empty(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            files: 0,
            bytes: 0,
            records: 0,
            last_seq: 0,
            head_seq: 0,
            beyond_head: 0,
            lost_with_kernel: 0,
            ahead: 0,
            boots: 0,
            unclean_stops: 0,
            closed: false,
            set_aside: 0,
            set_aside_unrecorded: 0,
            problem: None,
        }
    }

    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.problem.is_none()
    }
}
