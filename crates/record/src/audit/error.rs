//! What can go wrong with the audit log.

use super::key::KeyError;
use crate::state::StateError;
use policy::{Blame, Code, Fault, Message};
use std::io;

/// A write that failed. After it, the log takes nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// What was tried.
    pub action: &'static str,
    /// The kind of failure.
    pub kind: io::ErrorKind,
    /// The system's number for it.
    pub errno: Option<i32>,
}

impl WriteFailure {
    pub(crate) fn of(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self {
            action,
            kind: error.kind(),
            errno: error.raw_os_error(),
        }
    }
}

/// Why the end of an existing log cannot be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Records, but no signed head.
    HeadMissing,
    /// The head is not a head signed with this key.
    HeadInvalid,
    /// The head was signed with another key.
    WrongKey,
    /// The head names a file that is not there.
    FileMissing,
    /// The log is shorter than its head says.
    Truncated,
    /// A record is not one, or its mac is wrong.
    RecordInvalid,
    /// A record does not follow the one before it.
    ChainBroken,
}

/// An audit failure. The effect that was to be recorded must not happen.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The instance's directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The existing log does not verify; `audit verify` says more.
    #[error("{file}: {finding:?}")]
    Invalid {
        /// Name in the instance's directory.
        file: String,
        /// What is wrong.
        finding: Finding,
    },
    /// An event that is too large for a record.
    #[error("a record of {bytes} bytes, the limit is {limit}")]
    RecordTooLarge {
        /// Its size.
        bytes: usize,
        /// [`super::RECORD_LIMIT`].
        limit: usize,
    },
    /// An event that cannot be JSON.
    #[error("the event has no JSON form: {0}")]
    NotJson(#[from] serde_json::Error),
    /// This write, or one before it, failed.
    #[error("the log is closed by a failure: {} ({:?})", .0.action, .0.kind)]
    Unwritable(WriteFailure),
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
}

impl AuditError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::Key(error) => error.code(),
            Self::State(error) => error.code(),
            Self::Invalid { .. } => Code::AuditInvalid,
            Self::RecordTooLarge { .. } | Self::NotJson(_) | Self::Unwritable(_) | Self::Closed => {
                Code::AuditUnavailable
            }
        }
    }
}

impl From<AuditError> for Message {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Key(error) => error.reason(),
            AuditError::State(error) => error.reason(),
            AuditError::Invalid { file, .. } => Self::new("reason.log_invalid").with("file", file),
            AuditError::RecordTooLarge { bytes, limit } => Self::new("reason.record_too_large")
                .with("bytes", bytes)
                .with("limit", limit),
            AuditError::NotJson(error) => Self::new("reason.record_no_json").with("detail", error),
            AuditError::Unwritable(failure) => {
                let error = failure.errno.map_or_else(
                    || io::Error::from(failure.kind),
                    io::Error::from_raw_os_error,
                );
                Self::of_io(&error)
            }
            AuditError::Closed => Self::new("reason.log_closed"),
        }
    }
}

impl From<AuditError> for Fault {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Key(error) => error.into(),
            AuditError::State(error) => error.into(),
            AuditError::Invalid { ref file, .. } => {
                let file = file.clone();
                Self::because(Blame::Machine, error.code(), file, error)
            }
            AuditError::RecordTooLarge { .. } | AuditError::NotJson(_) | AuditError::Closed => {
                Self::because(Blame::Us, error.code(), "audit", error)
            }
            AuditError::Unwritable(_) => {
                Self::because(Blame::Machine, error.code(), "audit", error)
            }
        }
    }
}

impl From<WriteFailure> for AuditError {
    fn from(failure: WriteFailure) -> Self {
        Self::Unwritable(failure)
    }
}
