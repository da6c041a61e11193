//! The Linux backend. Read in this order: `plan` (what will be), `launch` (how it starts), `root` and `confine` (how it
//! becomes so), `supervisor` (who watches), then `once` and `standing` (who asks).

mod confine;
mod connect;
mod enforcement;
mod environment;
mod failure;
mod filter;
mod launch;
pub(crate) mod once;
mod plan;
mod program;
mod protect;
mod root;
mod runtime;
mod serve;
mod shared;
mod status;
mod supervisor;
mod sys;
mod watch;
