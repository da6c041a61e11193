//! One confined command: what to run, and what came of it.

use policy::effective::FileIdentity;
use policy::sandbox::{Enforcement, ProcessEnd};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Where a program without a slash is looked for, unless the policy's environment has a `PATH` of its own.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// A command for [`crate::exec_once`]: exact argv, never a shell string.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// The whole argument vector. A first element without a slash is searched in the sandbox's own `PATH`.
    pub argv: Vec<OsString>,
    /// Absolute resolved working directory inside a granted directory.
    pub cwd: PathBuf,
    /// The file that must be executed, where the caller has recorded it (X-HASH); another one is refused as
    /// `executable.hash_changed`.
    pub identity: Option<FileIdentity>,
    /// Wall clock limit for the command; `None` leaves it to whoever started us.
    pub timeout: Option<Duration>,
}

/// What [`crate::exec_once`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecReport {
    /// How the command ended.
    pub end: ProcessEnd,
    /// What was enforced, and what was missing (X-PARTIAL).
    pub enforcement: Enforcement,
    /// Wall clock time, building and ending the sandbox included.
    pub elapsed: Duration,
    /// Processes still alive when the command ended; they were ended with it (PRC-06).
    pub leftovers: u32,
}
