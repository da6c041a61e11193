//! Doing the work: agent loop, sessions, prompts, the Ollama client and the internal tools.
//!
//! The runtime asks `policy` what may happen, uses a sandbox to make it so, and writes what did happen with `record`.
//! Absent here: no process is started but through a [`policy::sandbox::TaskSandbox`] (AGT-05), no socket is opened but by
//! [`ollama`], no policy is made or changed (SEC-INV-01, SEC-INV-02), nothing of MCP is known, no text in a user's language
//! is made (only asked for by message id), no session outlives the process (SES-03), and nothing is believed because a
//! model says so (AGT-04).
#![forbid(unsafe_code)]

mod board;
mod capability;
mod catalogue;
mod compose;
mod desk;
mod evidence;
mod image;
mod ledger;
pub mod ollama;
mod parts;
mod plan;
mod repetition;
mod run;
pub mod service;
mod session;
mod stop;
pub mod tools;

pub use parts::{
    Language, ModelParts, Records, RunLimits, RuntimeParts, SkillDescriptor, ToolLimits,
};
pub use service::AgentService;
