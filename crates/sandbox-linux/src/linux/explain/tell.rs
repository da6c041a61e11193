//! The other side: from what init saw to the rule of the policy behind it.

use super::calls::Operation;
use super::path::PlainPath;
use super::places::{self, Found, Kind, Place};
use super::table::{Counts, Record, Table};
use crate::backend::plan::Plan;
use crate::exec::Explain;
use policy::effective::Origin;
use policy::sandbox::{Denial, Explanation};
use policy::{EffectivePolicy, Right, SandboxMode};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// How much of what is refused can be said.
pub(crate) fn explanation(plan: &Plan, tripwire: bool) -> Explanation {
    match plan.filter.explain {
        Explain::Off => Explanation::Off,
        // Looks at names that are not there go unseen without a tripwire.
        Explain::On if !tripwire => Explanation::Partial,
        Explain::On => Explanation::On,
        Explain::Opens => Explanation::On,
    }
}

/// What was refused since these counts, with the rule for each, and how many more there were.
pub(crate) fn denials(
    policy: &EffectivePolicy,
    places: &[Place],
    table: &Table,
    since: &Counts,
) -> (Vec<Denial>, u32) {
    let (records, omitted) = table.since(since);
    let denials = records
        .into_iter()
        .filter_map(|record| denial(policy, places, record))
        .collect();
    (denials, omitted)
}

fn denial(policy: &EffectivePolicy, places: &[Place], record: Record) -> Option<Denial> {
    let rule = match record.operation {
        Operation::Call => "seccomp",
        Operation::Socket => match record.target.starts_with(b"unix") {
            true => "ipc",
            false => "sandbox.network.access",
        },
        Operation::Connect if record.target.first() != Some(&b'/') => "sandbox.network.access",
        Operation::Connect | Operation::Bind => "ipc",
        _ => {
            let path = Path::new(OsStr::from_bytes(&record.target));
            let mut plain = PlainPath::root();
            plain.follow(&record.target).ok()?;
            let found = places::find(places, &mut plain);
            if is_ordinary(&found, record.operation, path) {
                return None;
            }
            rule_of(policy, &found, record.operation, path)
        }
    };
    Some(Denial {
        operation: record.operation.word().to_owned(),
        target: String::from_utf8_lossy(&record.target).into_owned(),
        rule: rule.to_owned(),
        count: record.count,
        errno: record.errno,
    })
}

/// Answers that any directory would have given: init did not look whether the file is there, so it is looked at here. Only
/// where the program sees the same file as we do.
fn is_ordinary(found: &Found<'_>, operation: Operation, path: &Path) -> bool {
    let visible = matches!(found, Found::In(place) if place.kind == Kind::Bound);
    if !visible {
        return false;
    }
    let exists = std::fs::symlink_metadata(path).is_ok();
    match operation {
        Operation::Create => exists,
        Operation::Delete
        | Operation::Change
        | Operation::Execute
        | Operation::Look
        | Operation::Open => !exists,
        _ => false,
    }
}

fn rule_of(
    policy: &EffectivePolicy,
    found: &Found<'_>,
    operation: Operation,
    path: &Path,
) -> &'static str {
    if policy.is_own_file(path) {
        return "own files";
    }
    let Found::In(place) = found else {
        return "granted roots";
    };
    match place.kind {
        Kind::Masked => return "own files",
        Kind::Protected => return "sandbox.protect",
        Kind::Processes | Kind::Private => return "runtime",
        Kind::Own | Kind::Link(_) | Kind::Bound => {}
    }
    if operation == Operation::Execute {
        return "executable";
    }
    let Some(root) = policy.root_of(path) else {
        return "runtime";
    };
    if root.origins.contains(&Origin::Workspace) {
        let writes = !matches!(operation, Operation::Look | Operation::Open);
        if writes && policy.mode() == SandboxMode::ReadOnly && !place.allows(Right::Write) {
            "sandbox.mode"
        } else {
            "sandbox.workspaces"
        }
    } else if root.origins.contains(&Origin::Mount) {
        "sandbox.mounts"
    } else {
        "runtime"
    }
}
