//! What this machine enforces, what is missing, and how to get it (X-PARTIAL).

use super::network::Reach;
use super::report::{Mark, Report};
use crate::deployment::Deployment;
use crate::exit;
use crate::locale::Locale;
use policy::sandbox::{Control, Enforcement, SandboxBackend};
use policy::{Localize, Message, SandboxMode};
use serde_json::json;

/// For the configured mode, and where it differs for presets of the others. Where a name leads nowhere now, no sandbox
/// could be made with the policy itself; then a preset of its mode says what this machine can do.
pub(super) fn rows(report: &mut Report, locale: &Locale, deployment: &Deployment, reach: Reach) {
    let backend = crate::compose::backend();
    let preset = match reach {
        Reach::Known => None,
        Reach::Unknown => {
            let (mode, root) = (deployment.policy.mode(), deployment.policy.workspace_root());
            Deployment::preset(mode, root).ok()
        }
    };
    let policy = &preset.as_ref().unwrap_or(deployment).policy;
    let enforcement = match backend.survey(policy) {
        Ok(enforcement) => enforcement,
        Err(error) => {
            let fault = crate::compose::sandbox_fault(&error);
            report.fault(locale, "enforcement", &fault, exit::SANDBOX);
            return;
        }
    };
    let permitted = enforcement.permit(&deployment.policy);
    let mark = match (&permitted, enforcement.missing_controls().is_empty()) {
        (Err(_), _) => Mark::Error,
        (Ok(_), false)
            if enforcement
                .missing_controls()
                .iter()
                .any(|c| c.decides_level()) =>
        {
            Mark::Warning
        }
        (Ok(_), _) => Mark::Ok,
    };
    report.add_with(
        mark,
        "enforcement",
        summary(&enforcement),
        data(deployment.policy.mode(), &enforcement),
    );
    for control in enforcement.missing_controls() {
        // What leaves the level full is worth knowing and no reason to act.
        let mark = match (&permitted, control.decides_level()) {
            (Err(_), true) => Mark::Error,
            (_, true) => Mark::Warning,
            (_, false) => Mark::Ok,
        };
        report.add(mark, "missing", control_line(locale, *control));
    }
    for (mode, other) in other_modes(backend.as_ref(), deployment) {
        if other != enforcement {
            let detail = format!("{}: {}", mode.word(), summary(&other));
            report.add_with(Mark::Ok, "enforcement", detail, data(mode, &other));
            for control in other.missing_controls() {
                if !enforcement.missing_controls().contains(control) {
                    let line = control_line(locale, *control);
                    report.add(Mark::Ok, "missing", format!("{}: {line}", mode.word()));
                }
            }
        }
    }
    if let Err(refusal) = permitted {
        report.refusal(locale, "enforcement", &refusal, exit::SANDBOX);
    }
}

fn data(mode: SandboxMode, enforcement: &Enforcement) -> serde_json::Value {
    let missing: Vec<&str> = enforcement
        .missing_controls()
        .iter()
        .map(|control| control.word())
        .collect();
    json!({ "mode": mode.word(), "level": enforcement.level().word(), "missing": missing })
}

fn summary(enforcement: &Enforcement) -> String {
    let missing: Vec<&str> = enforcement
        .missing_controls()
        .iter()
        .map(|control| control.word())
        .collect();
    let missing = if missing.is_empty() {
        "-".to_owned()
    } else {
        missing.join(", ")
    };
    format!("{}; missing: {missing}", enforcement.level().word())
}

/// What is missing, what that means and how to get it.
fn control_line(locale: &Locale, control: Control) -> String {
    let text = locale.text(&Message::new(control_id(control)));
    format!("{}: {text}", control.word())
}

fn control_id(control: Control) -> &'static str {
    match control {
        Control::FilesystemView => "control.filesystem_view",
        Control::FilesystemRights => "control.filesystem_rights",
        Control::FilesystemTruncate => "control.filesystem_truncate",
        Control::FilesystemMetadata => "control.filesystem_metadata",
        Control::Execution => "control.execution",
        Control::Network => "control.network",
        Control::Ipc => "control.ipc",
        Control::SignalScope => "control.signal_scope",
        Control::SyscallFilter => "control.syscall_filter",
        Control::ProcessTree => "control.process_tree",
        Control::ProcessView => "control.process_view",
        Control::MemoryTree => "control.memory_tree",
        Control::Pids => "control.pids",
        Control::WorkspaceQuota => "control.workspace_quota",
        Control::PrivateQuota => "control.private_quota",
        Control::UidSeparation => "control.uid_separation",
    }
}

/// What the same machine enforces for a preset of each mode over the same workspace.
fn other_modes(
    backend: &dyn SandboxBackend,
    deployment: &Deployment,
) -> Vec<(SandboxMode, Enforcement)> {
    [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite]
        .into_iter()
        .filter(|mode| *mode != deployment.policy.mode())
        .filter_map(|mode| {
            let preset = Deployment::preset(mode, deployment.policy.workspace_root()).ok()?;
            Some((mode, backend.survey(&preset.policy).ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every control has its words in both languages, under the id that follows from its stable word.
    #[test]
    fn every_control_has_its_texts() {
        assert_eq!(Control::UidSeparation as usize + 1, Control::ALL.len());
        for control in Control::ALL {
            let id = control_id(control);
            assert_eq!(id, format!("control.{}", control.word()));
            for texts in [crate::locale::english(), crate::locale::japanese()] {
                assert!(texts.get(id).is_some_and(|text| text.len() > 20), "{id}");
            }
        }
        assert_eq!(
            crate::locale::english()
                .keys()
                .filter(|key| key.starts_with("control."))
                .count(),
            Control::ALL.len()
        );
    }
}
