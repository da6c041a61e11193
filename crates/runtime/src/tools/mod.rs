//! The internal tools (DESIGN §7): search, read, edit, directories, programs.
//!
//! A path is walked from the handle of a granted root ([`Walker`]), judged by `policy`, and used through the handles that
//! were opened on the way; nothing here opens a granted place by its path text. Absent here: no link is followed unless
//! the walk judged where it leads, no process is started but through a [`TaskSandbox`], nothing is changed without an
//! [`EffectLog`] token, and no text in a user's language is made.

mod dir;
mod edit;
mod effect;
mod open;
mod os;
mod process;
mod program;
mod read;
mod result;
mod search;
mod text;
mod walk;

pub use effect::{Before, EffectEnd, EffectLog, Intent};
pub use result::{Effect, EffectKind, ToolResult};
pub use walk::Walker;

use policy::call::{ApprovedCall, ResolvedTargets};
use policy::path::ResolvedPath;
use policy::sandbox::TaskSandbox;
use policy::tool::ToolArguments;
use policy::{Code, EffectivePolicy, Refusal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most results of one search, whatever is configured (DESIGN §7.1).
pub const HARD_SEARCH_RESULTS: u64 = 1_000;
/// Most lines of one tail, whatever is configured (DESIGN §7.1).
pub const HARD_TAIL_LINES: u64 = 10_000;

/// Limits of the tools, from `limits.*` and `runtime.memory_backup_limit_mb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolLimits {
    /// Largest file that is read whole, bytes.
    pub whole_read_bytes: u64,
    /// Most search results; [`HARD_SEARCH_RESULTS`] at most.
    pub search_max_results: u64,
    /// Most lines of a tail; [`HARD_TAIL_LINES`] at most.
    pub tail_max_lines: u64,
    /// Most entries of a directory listing.
    pub dir_list_entries: u64,
    /// Largest file that is edited, and largest content that is written, bytes.
    pub edit_bytes: u64,
    /// Largest old content that is kept in memory while its file is edited; beyond it a backup file is used, bytes.
    pub memory_backup_bytes: u64,
}

impl Default for ToolLimits {
    fn default() -> Self {
        Self {
            whole_read_bytes: 1 << 20,
            search_max_results: HARD_SEARCH_RESULTS,
            tail_max_lines: HARD_TAIL_LINES,
            dir_list_entries: 2_000,
            edit_bytes: 16 << 20,
            memory_backup_bytes: 16 << 20,
        }
    }
}

/// Points around an effect, in order, for crash and fault tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fuse {
    /// The intent is recorded, nothing is written.
    Recorded,
    /// The new bytes are in the temporary file, synced.
    Written,
    /// The effect is done, its directory not yet synced.
    Applied,
    /// Synced, not yet read back.
    Synced,
    /// Read back and found right.
    Verified,
}

/// What the tools of one Task work with.
#[derive(Clone, Copy)]
pub struct ToolContext<'a, L: EffectLog> {
    /// The frozen policy.
    pub policy: &'a Arc<EffectivePolicy>,
    /// Handles of its granted roots.
    pub walker: &'a Walker,
    /// Limits.
    pub limits: ToolLimits,
    /// Journal and audit.
    pub effect_log: &'a L,
    /// The Task's running sandbox; without one no program starts.
    pub sandbox: Option<&'a dyn TaskSandbox>,
    /// An existing directory of ours, user-only, outside every granted root: backups and spooled output.
    pub task_temp: &'a Path,
    /// Set when the run is cancelled; searches stop soon after.
    pub cancelled: Option<&'a AtomicBool>,
    /// Called at each [`Fuse`] point; `None` outside tests.
    pub fuse: Option<&'a (dyn Fn(Fuse) + Sync)>,
}

impl<L: EffectLog> ToolContext<'_, L> {
    fn burn(&self, point: Fuse) {
        if let Some(fuse) = self.fuse {
            fuse(point);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// Carries out an approved call. Blocks: call it off the async threads. `task_update` is the loop's own.
pub fn dispatch<L: EffectLog>(call: ApprovedCall, context: &ToolContext<'_, L>) -> ToolResult {
    let (arguments, targets) = call.into_parts();
    let done = match (arguments, targets) {
        (ToolArguments::FileSearch(call), ResolvedTargets::Paths(paths)) => {
            one(paths).and_then(|root| search::run(&call, &root, context))
        }
        (ToolArguments::FileRead(call), ResolvedTargets::Paths(paths)) => {
            one(paths).and_then(|file| read::run(&call, &file, context))
        }
        (ToolArguments::FileEdit(call), ResolvedTargets::Paths(paths)) => {
            return edit::run(&call, paths, context);
        }
        (ToolArguments::Dir(call), ResolvedTargets::Paths(paths)) => {
            one(paths).and_then(|path| dir::run(&call, &path, context))
        }
        (ToolArguments::ProcessRun(call), ResolvedTargets::Program { program, cwd }) => {
            process::run(&call, program, &cwd, context)
        }
        (arguments, _) => Err(Refusal::new(
            Code::Internal,
            "dispatch",
            arguments.tool().as_str(),
        )),
    };
    done.unwrap_or_else(ToolResult::from)
}

fn one(paths: Vec<ResolvedPath>) -> Result<ResolvedPath, Refusal> {
    let mut paths = paths.into_iter();
    match (paths.next(), paths.next()) {
        (Some(path), None) => Ok(path),
        _ => Err(Refusal::new(
            Code::Internal,
            "dispatch",
            "one path expected",
        )),
    }
}
