//! The Linux backend. Read in this order: `plan` (what will be), `launch` (how it starts), `root` and `confine` (how it
//! becomes so), `supervisor` (who watches), then `once` and `standing` (who asks).

mod bare;
mod capture;
mod cgroup;
mod confine;
mod connect;
mod enforcement;
mod environment;
mod explain;
mod failure;
mod filter;
mod head_start;
mod helper;
mod launch;
mod once;
mod plan;
mod program;
mod protect;
mod relay;
mod root;
mod runtime;
mod serve;
mod shared;
mod standing;
mod status;
mod supervisor;
mod sys;
mod task;
mod terminal;
mod watch;
mod wire;
mod zygote;

pub(crate) use head_start::HeadStart;
pub(crate) use helper::init;
pub(crate) use once::{Readied, locate};
pub(crate) use relay::ask_for_names;
pub(crate) use runtime::system_places;
pub use standing::LinuxSandbox;
