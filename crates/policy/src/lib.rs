//! What may happen.
//!
//! This crate judges facts that others gather: the platform opens the path, the runtime resolves the name, `policy` says
//! yes or no. Absent here: no process is started, no socket is opened, no clock is read, no text in a user's language is
//! made (only message ids and data), and nothing is decided by what a model says about itself.
#![forbid(unsafe_code)]

pub mod call;
pub mod code;
pub mod config;
pub mod effective;
pub mod fault;
pub mod ids;
pub mod layers;
pub mod message;
pub mod path;
pub mod reach;
pub mod rights;
pub mod sandbox;
pub mod secret;
mod standing;
pub mod tool;

pub use code::{Category, Code};
pub use effective::{EffectivePolicy, PolicyDraft, SandboxMode};
pub use fault::{Blame, Fault, Outcome, Refusal};
pub use ids::{RunId, SessionId, TraceId};
pub use message::{Localize, Message};
pub use rights::{Right, Rights};
pub use secret::{Secret, Untrusted};
pub use standing::{NothingApplied, Standing};
