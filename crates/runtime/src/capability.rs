//! What may be done, for the model (DESIGN §9.2, part 5): places with rights, programs, network, limits. Nothing of the
//! policy beyond that.

use policy::effective::{EntryKind, SandboxMode};
use policy::effective::{NetworkPolicy, Origin, RootKind, ShellRule};
use policy::{EffectivePolicy, Right};
use std::fmt::Write;

/// The capability summary.
pub(crate) fn summary(policy: &EffectivePolicy) -> String {
    let mut text = String::from("PERMISSIONS\n");
    let root = policy.workspace_root().display();
    // Writing to a String cannot fail.
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    line(format_args!("Workspace root: {root}"));
    for granted in policy.roots() {
        let declared = granted
            .origins
            .iter()
            .any(|origin| matches!(origin, Origin::Workspace | Origin::Mount));
        if !declared {
            continue;
        }
        let kind = match granted.kind {
            RootKind::Directory => "directory",
            RootKind::File => "file",
        };
        let rights: Vec<&str> = granted.rights.iter().map(Right::word).collect();
        line(format_args!(
            "- {kind} {}: {}",
            granted.path.display(),
            rights.join(", ")
        ));
    }
    line(format_args!(
        "Everything else on this machine is out of reach."
    ));
    if policy.mode() == SandboxMode::ReadOnly {
        line(format_args!("Nothing can be changed: read-only mode."));
    }
    let programs: Vec<&str> = policy
        .entries()
        .iter()
        .filter(|entry| entry.kind == EntryKind::Program || policy.shells() == ShellRule::Allow)
        .map(|entry| entry.alias.as_str())
        .collect();
    if programs.is_empty() {
        line(format_args!("Programs: none are configured."));
    } else {
        line(format_args!(
            "Programs, by exactly these names: {}",
            programs.join(", ")
        ));
    }
    match policy.network() {
        NetworkPolicy::None => line(format_args!("Network: none.")),
        NetworkPolicy::Private => line(format_args!(
            "Network: only between programs of the same task."
        )),
        NetworkPolicy::Local { ports } => {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            line(format_args!(
                "Network: this machine's ports {}.",
                ports.join(", ")
            ));
        }
        NetworkPolicy::Restricted { endpoints } => {
            let endpoints: Vec<String> = endpoints
                .iter()
                .map(|(host, port)| format!("{host}:{port}"))
                .collect();
            line(format_args!("Network: only {}.", endpoints.join(", ")));
        }
    }
    let resources = policy.resources();
    line(format_args!(
        "Limits of a program: {} s, {} MiB of memory, {} processes.",
        resources.execution_timeout.as_secs(),
        resources.memory_bytes >> 20,
        resources.process_limit
    ));
    text
}
