//! The signed audit log (DC-3, DESIGN §15.3, GUARD "audit signing", SEC-INV-12).
//!
//! One RFC 8785 object a line; each line's `mac` is HMAC-SHA256 over the line without it, with the previous `mac` inside.
//! One chain per instance over the files `audit.0001.jsonl`, `audit.0002.jsonl`, …; `audit.head` holds the signed end.
//! Not here yet: signed checkpoints outside the directory. Without them, somebody who can write here and kept an older
//! head together with the log of that time can put both back.

mod ahead;
pub(crate) mod chain;
mod encode;
mod error;
mod event;
mod head;
mod key;
mod log;
mod resume;
mod worker;

pub use error::{AuditError, Finding, WriteFailure};
pub use event::{AuditEvent, Decision, EventName};
pub use key::{AuditKey, KEY_FILE, KeyError, KeyOrigin};
pub use log::{Appended, AuditLog, AuditOptions};

/// Largest record, bytes, with its line feed. An event that is larger is refused before its effect.
pub const RECORD_LIMIT: usize = 1 << 20;

/// The file of a chain with this number, from 1.
pub(crate) fn file_name(number: u32) -> String {
    format!("audit.{number:04}.jsonl")
}
