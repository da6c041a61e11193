//! Opening what is written: the state directory, this process's instance, the audit key and log.

use crate::deployment::Places;
use policy::{Blame, Code, Fault, Message, Secret};
use record::audit::{AuditKey, AuditLog, KeyError};
use record::{Instance, StateDirectory, SystemClock};
use std::sync::Arc;

/// Overrides `audit.key_file` (X-KEYS); 64 hexadecimal digits.
pub const KEY_VARIABLE: &str = "AGENT_MCP_AUDIT_KEY";

/// The opened books of this process.
pub struct Books {
    /// `<state>`.
    pub state: StateDirectory,
    /// The held instance (X-INST).
    pub instance: Instance,
    /// The key, also for redaction.
    pub key: AuditKey,
    /// The log.
    pub audit: AuditLog,
}

/// Whether the log has its own writer thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A thread that commits in groups: `serve` and `run`.
    Thread,
    /// None: `exec`, which must stay single-threaded until its program runs.
    Inline,
}

impl Books {
    /// Opens them.
    ///
    /// # Errors
    /// `state.unusable`, `audit.key_unusable`, `audit.invalid`, `audit.unavailable`: then nothing runs.
    pub fn open(places: &Places, writer: Writer) -> Result<Self, Fault> {
        let state = StateDirectory::open(&places.state)
            .map_err(|error| fault(error.code(), &places.state, error))?;
        let audit_directory = if places.audit == places.state {
            state.clone()
        } else {
            StateDirectory::open(&places.audit)
                .map_err(|error| fault(error.code(), &places.audit, error))?
        };
        let key = key(places, &audit_directory)?;
        let instance = Instance::claim(&audit_directory)
            .map_err(|error| fault(error.code(), &places.audit, error))?;
        let clock = Arc::new(SystemClock);
        let opened = match writer {
            Writer::Thread => AuditLog::open(&instance, &key, clock),
            Writer::Inline => AuditLog::open_inline(&instance, &key, clock),
        };
        let audit = opened.map_err(|error| fault(error.code(), instance.directory(), error))?;
        Ok(Self {
            state,
            instance,
            key,
            audit,
        })
    }
}

/// The key: from the environment, else from its file.
///
/// # Errors
/// `audit.key_unusable`.
pub fn key(places: &Places, audit_directory: &StateDirectory) -> Result<AuditKey, Fault> {
    let opened = match given_key() {
        Some(given) => given,
        None => AuditKey::open_or_create(audit_directory, &places.key_file),
    };
    opened.map_err(|error| fault(error.code(), &places.key_file, error))
}

/// The key that the environment gives, if it gives one (X-KEYS). What is no text is no key either; it is never shown.
pub fn given_key() -> Option<Result<AuditKey, KeyError>> {
    let text = std::env::var_os(KEY_VARIABLE)?;
    let text = Secret::new(text.to_string_lossy().into_owned());
    Some(AuditKey::given(&text, KEY_VARIABLE))
}

/// A failure of the books.
pub fn fault(code: Code, place: &std::path::Path, why: impl Into<Message>) -> Fault {
    Fault::because(Blame::Machine, code, place.display().to_string(), why)
}
