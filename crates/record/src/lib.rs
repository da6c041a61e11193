//! What did happen.
//!
//! The signed audit log, its verifier, the recovery journal, the instance locks and the plain logs. Absent here: no
//! decision is made (that is `policy`), no process is started, no socket is opened, no environment variable is read, no
//! clock is read but through [`clock::Clock`], nothing is recovered (only what recovery reads is written), and no text in
//! a user's language is made. [`verify`] shares no state and no parsing with the writer in [`audit`] but the key.
#![forbid(unsafe_code)]

pub mod audit;
pub mod clock;
pub mod durable;
pub mod instance;
pub mod journal;
pub mod kernel_boot;
pub mod logs;
mod private;
pub mod redact;
pub mod state;
pub mod tasks;
pub mod verify;

pub use audit::{Appended, AuditError, AuditEvent, AuditKey, AuditLog, Decision, EventName};
pub use clock::{Clock, SystemClock};
pub use durable::Durable;
pub use instance::Instance;
pub use journal::{Intent, Journal};
pub use kernel_boot::KernelBoot;

pub use redact::Redactor;
pub use state::{AtomicFile, StateDirectory, StateError, StateLock};
pub use tasks::{TaskOutcome, TaskRecord, TaskRecords};
