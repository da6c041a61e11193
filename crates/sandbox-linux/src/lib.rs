//! Makes the Effective Sandbox Policy so on Linux (`sandbox.md`, HARNESS's `confine`): new namespaces with a root that holds
//! nothing but the granted paths, Landlock, a system call filter, no privileges, limits.
//!
//! Absent here: nothing judges a request (that is `policy`), nothing is written into a workspace to protect it, no socket
//! of the host is opened, no file of the state directory is touched but the spool that a request names, no setting of the
//! machine is changed, and no weaker sandbox is started silently: what is missing is in [`policy::sandbox::Enforcement`],
//! and where the view cannot be confined at all nothing runs (`SANDBOX_UNAVAILABLE`).
//!
//! Not here yet: the Landlock-only fallback without user namespaces, network levels `local` and `restricted`, delegated
//! cgroups, and naming what was denied.
//!
//! Callers invoke [`init`] first thing in `main`: the sandbox's helper is the same binary, executed again.

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
pub use exec::{ExecReport, ExecRequest, PATH};

use policy::EffectivePolicy;
use policy::sandbox::SandboxError;

/// Must be the first thing `main` does. Returns at once unless this process is a sandbox's helper, that is, this program executed
/// again by [`LinuxSandbox`]; then it never returns.
///
/// A program that does not call it gets `SANDBOX_UNAVAILABLE` from [`LinuxSandbox`] instead of being started again and again.
pub fn init() {
    backend::init();
}

/// Runs one command confined, with our own standard streams, and waits for it and everything it started (P-1).
///
/// Must be called while this process has one thread, as it is at the start of `agent-mcp exec`: init and command share its memory
/// until the program is executed. INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are passed on to the command's
/// process group while it runs.
///
/// `before` is called while the sandbox is being built, and the command is not started before it has returned: whatever
/// must be on the disk before the effect is written there in time that is spent anyway. It must start no thread.
///
/// # Errors
/// Those of `before`, with nothing started. `Refused` by the policy itself or for partial enforcement (X-PARTIAL), `Unavailable` where the machine cannot confine,
/// `NotFound` and `NotExecutable` for the program.
pub fn exec_once(
    policy: &EffectivePolicy,
    request: &ExecRequest,
    before: impl FnOnce() -> Result<(), SandboxError>,
) -> Result<ExecReport, SandboxError> {
    backend::exec_once(policy, request, before)
}
