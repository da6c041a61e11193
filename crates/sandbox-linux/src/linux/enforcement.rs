//! What is enforced, honestly (X-PARTIAL).

use super::filter::Alone;
use super::plan::Plan;
use policy::sandbox::{Control, Enforcement};

/// What is enforced without namespaces. Covered although they are missing: network and other IPC (refused by the filter),
/// truncation (Landlock 3, else the filter), metadata in read-only mode (the filter).
pub(crate) fn without_namespaces(alone: Alone) -> Enforcement {
    let mut missing = vec![
        // Hidden paths are not opened, but can be asked for, and become the working directory.
        Control::FilesystemView,
        // What may be read can be mapped as code: no mount says noexec.
        Control::Execution,
        // A guard that is killed from outside no longer ends what it watches.
        Control::ProcessTree,
        // Other processes' directories in /proc exist, though nothing in them can be opened.
        Control::ProcessView,
        Control::MemoryTree,
        // The kernel counts the user's other processes too.
        Control::Pids,
        Control::WorkspaceQuota,
        Control::PrivateQuota,
        Control::UidSeparation,
    ];
    if !alone.metadata {
        missing.push(Control::FilesystemMetadata);
    }
    if alone.landlock < 6 {
        missing.push(Control::SignalScope);
    }
    Enforcement::missing(missing)
}

/// What this plan enforces once it has started with or without a kernel user of its own.
///
/// Not listed, because the namespaces cover them whatever Landlock's version: truncation and metadata outside the grants
/// (read-only mounts, and nothing else is visible), signals (process namespace), abstract sockets (network namespace).
pub(crate) fn of(plan: &Plan, separated: bool) -> Enforcement {
    if let Some(alone) = plan.filter.alone {
        return without_namespaces(alone);
    }
    // Disks have no quota for us.
    let mut missing = vec![Control::WorkspaceQuota];
    if !plan.limits.counted {
        // Watched, not limited.
        missing.push(Control::MemoryTree);
    }
    if plan.landlock == 0 {
        // Write and delete cannot be told apart without it.
        missing.push(Control::FilesystemRights);
    }
    if !separated {
        missing.push(Control::UidSeparation);
        if plan.owner.user == 0 && !plan.limits.counted {
            // RLIMIT_NPROC does not bind kernel user 0, which the root of a user namespace may be as well.
            missing.push(Control::Pids);
        }
    }
    Enforcement::missing(missing)
}
