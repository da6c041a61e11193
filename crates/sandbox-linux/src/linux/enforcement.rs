//! What is enforced, honestly (X-PARTIAL).

use super::plan::Plan;
use policy::sandbox::{Control, Enforcement};

/// What this plan enforces once it has started with or without a kernel user of its own.
///
/// Not listed, because the namespaces cover them whatever Landlock's version: truncation and metadata outside the grants
/// (read-only mounts, and nothing else is visible), signals (process namespace), abstract sockets (network namespace).
pub(crate) fn of(plan: &Plan, separated: bool) -> Enforcement {
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
        if plan.privileged && plan.owner.user == 0 && !plan.limits.counted {
            // RLIMIT_NPROC does not bind kernel user 0.
            missing.push(Control::Pids);
        }
    }
    Enforcement::missing(missing)
}
