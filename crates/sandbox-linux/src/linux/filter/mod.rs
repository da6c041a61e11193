//! The system call filter: a table with a reason per line, compiled to a binary tree.
//!
//! The filter is a deny list over the calls that reach past the namespaces or enlarge the kernel's surface. What the
//! kernel learns after [`table::REVIEWED_BELOW`], and numbers below it that no call has, do not exist (`ENOSYS`) until
//! someone has looked at them; every other call is in `calls.tsv`.

mod alone;
mod compile;
#[cfg(test)]
mod reviewed;
mod table;

pub(crate) use compile::compile;
pub(crate) use table::refusal;

use crate::exec::Explain;

use serde::{Deserialize, Serialize};

/// What the filter depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilterChoice {
    /// TCP sockets exist, for the namespace's own loopback.
    pub(crate) loopback: bool,
    /// Nothing that is writable may be executed, so anonymous memory files may not exist either.
    pub(crate) execution_limited: bool,
    /// Which calls stop at init so that refusals can be explained. What is refused does not depend on it.
    pub(crate) explain: Explain,
    /// A cgroup counts all memory. Where it is only watched, what is in no process's account may not exist.
    pub(crate) memory_counted: bool,
    /// Nobody can be asked: `connect` is refused instead.
    pub(crate) quiet: bool,
    /// A root may be deleted from but not written, and Landlock is too old to tell truncation from either.
    pub(crate) no_truncation: bool,
    /// Programs share the machine's namespaces, so the filter does some of their work.
    pub(crate) alone: Option<Alone>,
}

/// What the filter must do where there are no namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Alone {
    /// Changing modes, owners, times and attributes is refused altogether (read-only mode).
    pub(crate) metadata: bool,
    /// Landlock's version: what it cannot do is refused.
    pub(crate) landlock: u32,
}
