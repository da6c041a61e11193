//! Makes the Effective Sandbox Policy so on Linux (`sandbox.md`, HARNESS's `confine`): new namespaces with a root that holds
//! nothing but the granted paths, Landlock, a system call filter, no privileges, limits.
//!
//! Absent here: nothing judges a request (that is `policy`), nothing is written into a workspace to protect it, no socket
//! of the host is opened but to exactly the addresses that the network level grants, no file of the state directory is touched but the spool that a request names, no setting of the
//! machine is changed, and no weaker sandbox is started silently: what is missing is in [`policy::sandbox::Enforcement`],
//! and where the view cannot be confined at all nothing runs (`SANDBOX_UNAVAILABLE`).
//!
//! # For other programs
//!
//! The crate needs nothing of the agent: make a policy, [`confine`] an exact argv, decide about what is enforced, run.
//! `examples/confine.rs` is a whole program; `docs/guide/library.md` explains each step. Callers invoke [`init`] first
//! thing in `main`: the sandbox's helper is the same binary, executed again. There is no other way to start a process
//! here than through [`confine`] or, for many commands in one sandbox, [`LinuxSandbox`]; both take a
//! [`policy::sandbox::StartPermit`], and neither has a mode without confinement.

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[path = "linux/mod.rs"]
mod backend;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
#[path = "elsewhere.rs"]
mod backend;
mod exec;

pub use backend::LinuxSandbox;
pub use exec::{Confined, ExecReport, Explain, HeadStart, PATH, confine};
pub use policy;

/// What names lead to, or why that is not known.
pub type Answers = std::collections::BTreeMap<String, Result<Vec<std::net::IpAddr>, String>>;

/// Asks the host's resolver for names, as a sandbox with `restricted` does before it starts: all at once, for five
/// seconds at most, whatever the resolver does. Judge the answers with [`policy::reach::reachable`].
///
/// # Errors
/// `Unavailable` where there is no backend, or where [`init`] was not called first in `main`. What is wrong with one name
/// is that name's answer.
pub fn ask_for_names(names: &[String]) -> Result<Answers, policy::sandbox::SandboxError> {
    backend::ask_for_names(names)
}

/// What every sandbox on this machine sees of the system, with the rights there: the table of the runtime (DESIGN §10.7,
/// `os_runtime_root`). Without a backend nothing.
pub fn system_places() -> Vec<(std::path::PathBuf, policy::Rights)> {
    backend::system_places()
}

/// Must be the first thing `main` does. Returns at once unless this process is a sandbox's helper, that is, this program executed
/// again by [`LinuxSandbox`] or [`Confined::output`]; then it never returns.
///
/// A program that does not call it gets `SANDBOX_UNAVAILABLE` from those instead of being started again and again.
/// [`Confined::run`] does not need it.
pub fn init() {
    backend::init();
}
