//! What `exec` says and records about what the sandbox refused.

use crate::terminal::Terminal;
use policy::sandbox::Denial;
use policy::{Code, EffectivePolicy, Message, TraceId};
use record::audit::{AuditEvent, Decision, EventName};
use sandbox_linux::ExecReport;
use std::path::Path;

/// Lines on the screen; the report has all.
const SHOWN: usize = 10;
/// Records of one run; the rest is one record with their number.
const RECORDED: usize = 100;

/// Says after the command's end what it was refused and why, as far as that matters to a person.
pub(super) fn say(terminal: &Terminal<'_>, policy: &EffectivePolicy, report: &ExecReport) {
    let failed = !report.end.is_success();
    let mattering: Vec<&Denial> = report
        .denials
        .iter()
        .filter(|denial| matters(denial, failed))
        .collect();
    let root = policy.workspace_root().display().to_string();
    for denial in mattering.iter().take(SHOWN) {
        let texts = terminal.texts();
        let what = texts.text(&operation(denial).with("target", &denial.target));
        let why = reason(denial)
            .with("workspace", &root)
            .with("network", policy.network().word());
        let line = Message::new("exec.denied")
            .with("what", what)
            .with("why", texts.text(&why));
        terminal.warn(&line);
    }
    let more = mattering.len().saturating_sub(SHOWN) + report.omitted_denials as usize;
    if more > 0 {
        terminal.warn(&Message::new("exec.denied_more").with("count", more));
    }
}

/// Programs look for many files by habit. A missing one is worth a line when the command failed and the host has it.
fn matters(denial: &Denial, failed: bool) -> bool {
    match denial.operation.as_str() {
        "open" | "look" => failed && is_on_host(denial),
        // Shells try a name in every directory.
        "execute" => is_on_host(denial),
        // Nothing was waiting there: the sandbox is the reason only if a service of the host was meant.
        "connect" => failed || denial.errno != Some(CONNECTION_REFUSED),
        _ => true,
    }
}

#[cfg(target_os = "linux")]
const CONNECTION_REFUSED: i32 = rustix::io::Errno::CONNREFUSED.raw_os_error();
#[cfg(not(target_os = "linux"))]
const CONNECTION_REFUSED: i32 = 0;

/// Asked on this side of the sandbox, after its end: the program never learns it.
fn is_on_host(denial: &Denial) -> bool {
    Path::new(&denial.target).symlink_metadata().is_ok()
}

fn operation(denial: &Denial) -> Message {
    Message::new(match denial.operation.as_str() {
        "look" => "denied.what.look",
        "write" => "denied.what.write",
        "create" => "denied.what.create",
        "delete" => "denied.what.delete",
        "rename" => "denied.what.rename",
        "link" => "denied.what.link",
        "change" => "denied.what.change",
        "execute" => "denied.what.execute",
        "bind" => "denied.what.bind",
        "connect" => "denied.what.connect",
        "socket" => "denied.what.socket",
        "call" => "denied.what.call",
        _ => "denied.what.open",
    })
}

fn reason(denial: &Denial) -> Message {
    Message::new(match denial.rule.as_str() {
        "sandbox.workspaces" => "denied.why.workspace",
        "sandbox.mounts" => "denied.why.mount",
        "sandbox.mode" => "denied.why.mode",
        "sandbox.protect" => "denied.why.protect",
        "own files" => "denied.why.own",
        "runtime" => "denied.why.runtime",
        "executable" => "denied.why.executable",
        "sandbox.network.access" => "denied.why.network",
        "ipc" => "denied.why.ipc",
        "seccomp" => "denied.why.call",
        _ => "denied.why.outside",
    })
}

/// One record for each different refusal.
pub(super) fn records(report: &ExecReport, trace: TraceId) -> Vec<AuditEvent> {
    let denied = || {
        AuditEvent::new(EventName::PolicyDeny, trace)
            .decision(Decision::Deny)
            .code(Code::SandboxDenied)
    };
    let mut records: Vec<AuditEvent> = report
        .denials
        .iter()
        .take(RECORDED)
        .map(|denial| {
            denied()
                .target(denial.target.clone())
                .detail("operation", denial.operation.clone())
                .detail("rule", denial.rule.clone())
                .detail("count", denial.count)
        })
        .collect();
    let more = report.denials.len().saturating_sub(RECORDED) + report.omitted_denials as usize;
    if more > 0 {
        records.push(denied().target("").detail("not_listed", more));
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(operation: &str, target: &str) -> Denial {
        Denial {
            operation: operation.into(),
            target: target.into(),
            rule: "granted roots".into(),
            count: 1,
            errno: None,
        }
    }

    #[test]
    fn habits_are_not_shown_and_changes_always_are() {
        let missing = "/no such directory/file";
        assert!(!matters(&denial("open", missing), true));
        assert!(!matters(&denial("look", "/"), false));
        assert!(!matters(&denial("open", "/"), false));
        assert!(matters(&denial("open", "/"), true));
        assert!(matters(&denial("write", missing), false));
        assert!(matters(&denial("socket", "inet stream"), false));
        assert!(!matters(&denial("execute", missing), true));
    }
}
