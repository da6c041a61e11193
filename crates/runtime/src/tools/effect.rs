//! Before an effect it is written down (product.md §3.7, DESIGN §12.3, DC-3).
//!
//! A tool that changes something calls [`EffectLog::before`] with what it is about to do, and the function that does it
//! takes the token by value. There is no other way to get a [`Recorded`], so the record cannot be forgotten.

use super::result::of_fault;
use policy::effective::{FileIdentity, Sha256Digest};
use policy::sandbox::ProgramIdentity;
use policy::{Fault, Refusal};
use std::ffi::OsString;
use std::path::PathBuf;

/// A file as it is before an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// Its bytes.
    pub sha256: Sha256Digest,
    /// Which file carries them.
    pub identity: FileIdentity,
    /// Permission bits (`0o777`), 0 where there are none.
    pub mode: u32,
}

/// What is about to be done, with all that undoing it after a crash needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent {
    /// A file gets new bytes, or comes into being. `temporary` is renamed over `path` in one step, so after a crash the
    /// file is wholly old or wholly new: recovery removes `temporary` if it is there. With `in_place` (a granted single
    /// file, FS-01) there is no temporary and `backup` holds the old bytes: recovery copies them back unless the file
    /// has `after_sha256`.
    Replace {
        /// The file.
        path: PathBuf,
        /// What was there.
        before: Option<Before>,
        /// What will be there.
        after_sha256: Sha256Digest,
        /// The new bytes until they are moved into place; in the same directory.
        temporary: Option<PathBuf>,
        /// The old bytes, where they were too large for memory or are written in place.
        backup: Option<PathBuf>,
        /// Written through the existing file.
        in_place: bool,
    },
    /// A file goes away. Recovery has nothing to undo: it is there or it is not.
    Delete {
        /// The file.
        path: PathBuf,
        /// What was there.
        before: Before,
    },
    /// A file gets another name. Recovery moves it back only if the destination has `before.sha256` (DESIGN §7.3).
    Rename {
        /// The old name.
        path: PathBuf,
        /// The new name; did not exist.
        new_path: PathBuf,
        /// What moves.
        before: Before,
    },
    /// Directories come into being, outermost first. Recovery removes those that are empty, innermost first (DESIGN §7.6).
    MakeDirectories {
        /// Each new directory.
        paths: Vec<PathBuf>,
    },
    /// An empty directory goes away. Recovery makes it again (DESIGN §7.6).
    RemoveDirectory {
        /// The directory.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// A program starts inside the Task's sandbox.
    RunProgram {
        /// Which.
        program: ProgramIdentity,
        /// Its whole argument vector; redact it before it goes to the audit (X-ARGS).
        argv: Vec<OsString>,
        /// Where.
        cwd: PathBuf,
    },
}

/// How an effect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectEnd {
    /// Done and verified.
    Done,
    /// Not done, or undone and verified: everything is as it was.
    Undone,
    /// Neither could be verified. The journal entry must stay for recovery.
    Unclear,
}

/// Where effects are recorded: the recovery journal and the audit. Implemented by the agent loop over `record`.
pub trait EffectLog: Send + Sync {
    /// Proof that the intent is on the disk.
    type Token;

    /// Makes the intent durable.
    ///
    /// # Errors
    /// Nothing was recorded; the effect will not happen.
    fn before(&self, intent: &Intent) -> Result<Self::Token, Fault>;

    /// The effect ended.
    ///
    /// # Errors
    /// The end could not be recorded; the effect stands.
    fn after(&self, token: Self::Token, end: EffectEnd) -> Result<(), Fault>;
}

/// An intent that is on the disk. Only [`record`] makes one; every function with an effect takes it by value.
#[must_use]
pub(super) struct Recorded<'l, L: EffectLog> {
    log: &'l L,
    token: L::Token,
}

/// The one place where an intent becomes permission to act.
pub(super) fn record<'l, L: EffectLog>(
    log: &'l L,
    intent: &Intent,
) -> Result<Recorded<'l, L>, Refusal> {
    let token = log.before(intent).map_err(of_fault)?;
    Ok(Recorded { log, token })
}

impl<L: EffectLog> Recorded<'_, L> {
    /// Closes the record.
    pub(super) fn close(self, end: EffectEnd) -> Result<(), Refusal> {
        self.log.after(self.token, end).map_err(of_fault)
    }

    /// Closes the record of an effect that failed; the failure is what the caller reports, joined by a failing log.
    pub(super) fn close_failed(self, end: EffectEnd, failure: Refusal) -> Refusal {
        match self.close(end) {
            Ok(()) => failure,
            Err(log) => failure.with("log", log.code),
        }
    }
}
