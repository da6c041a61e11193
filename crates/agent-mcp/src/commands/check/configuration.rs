//! Which configuration is used and why, what lies beside it, and what is worth knowing about what it says.

use super::report::{Mark, Report, both};
use crate::deployment::applied::{Store, differences};
use crate::deployment::{
    Deployment, DeploymentError, Discovery, Found, Hashes, Judged, local_file,
};
use crate::exit;
use crate::locale::Locale;
use policy::config::Config;
use policy::{Localize, Message, SandboxMode};
use serde_json::json;

/// Whether it is applied as it is now; what differs, object by object. Not applied yet is no warning: that is the next step.
pub(super) fn applied(
    report: &mut Report,
    locale: &Locale,
    deployment: &Deployment,
    hashes: &Hashes,
) {
    let Some(now) = &deployment.snapshot else {
        return;
    };
    let stored = match Store::of_user().and_then(|store| store.read(&now.config)) {
        Ok(stored) => stored,
        Err(fault) => return report.fault(locale, "applied", &fault, exit::of(fault.code)),
    };
    let differences = match &stored {
        Some(stored) => differences(Some(stored), now),
        None => Vec::new(),
    };
    let (mark, id) = match (&stored, differences.is_empty()) {
        (None, _) => (Mark::Ok, "show.is_not_applied"),
        (Some(_), true) => (Mark::Ok, "show.is_applied"),
        (Some(_), false) => (Mark::Warning, "show.has_drifted"),
    };
    let message = Message::new(id).with("config", now.config.display());
    let data = json!({ "applied": id == "show.is_applied" });
    report.add_with(mark, "applied", locale.text(&message), data);
    if let Some(problem) = hashes.problem() {
        let detail = both(locale, &problem.message(), &problem.hint());
        let data = json!({ "code": problem.code.as_str() });
        report.add_with(Mark::Warning, "applied", detail, data);
    }
    for difference in differences {
        let detail = format!("{}: {}", difference.object, difference.values());
        report.add_with(Mark::Warning, "applied", detail, json!(difference));
    }
}

/// The file that is used, and those that were seen and passed over.
pub(super) fn discovered(
    report: &mut Report,
    locale: &Locale,
    discovery: &Discovery,
    judged: Judged,
) {
    if let Some(found) = &discovery.found {
        let id = match found {
            Found::Named(_) => "check.config_named",
            Found::InPlace(_) if judged == Judged::Yes => "check.config_project",
            Found::InPlace(_) => "check.config_not_applied",
            Found::Own(_) => "check.config_user",
            Found::System(_) => "check.config_system",
        };
        let path = found.path();
        let message = Message::new(id).with("path", path.display());
        let data = json!({ "path": path, "origin": found.word() });
        report.add_with(Mark::Ok, "configuration", locale.text(&message), data);
        let local = local_file(path);
        if std::fs::symlink_metadata(&local).is_ok() {
            let message = Message::new("check.config_local").with("path", local.display());
            let data = json!({ "path": local, "origin": "local" });
            report.add_with(Mark::Ok, "configuration", locale.text(&message), data);
        }
    }
    for (path, why) in &discovery.passed {
        let message = super::super::opening::passed_over(path, *why);
        let mark = match why {
            crate::deployment::PassedOver::Later => Mark::Ok,
            _ => Mark::Warning,
        };
        let data = json!({ "path": path, "passed_over": why.word() });
        report.add_with(mark, "configuration", locale.text(&message), data);
    }
}

/// Why there is no deployment.
pub(super) fn problem(report: &mut Report, locale: &Locale, problem: &DeploymentError) {
    let subject = "configuration";
    match problem {
        DeploymentError::Findings(findings) => findings
            .iter()
            .for_each(|finding| report.finding(locale, finding)),
        DeploymentError::NoConfiguration { discovery } => {
            let looked: Vec<String> = discovery
                .looked
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            let message = Message::new("cli.no_configuration").with("looked", looked.join(", "));
            let data = json!({ "looked": discovery.looked });
            report.error(subject, locale.text(&message), data, exit::USAGE);
        }
        DeploymentError::Untrusted { file } => {
            let message = Message::new("cli.untrusted").with("file", file.display());
            let data = json!({ "path": file, "trusted": false });
            report.error(subject, locale.text(&message), data, exit::USAGE);
        }
        DeploymentError::Unreadable(fault) => report.fault(locale, subject, fault, exit::USAGE),
        DeploymentError::Faults(faults) => faults
            .iter()
            .for_each(|fault| report.fault(locale, subject, fault, exit::USAGE)),
        DeploymentError::Refusals(refusals) => refusals.iter().for_each(|refusal| {
            report.refusal(locale, subject, refusal, exit::of(refusal.code));
        }),
    }
}

/// What it says: warnings, keys that do nothing yet, the mode, the prompt file.
pub(super) fn contents(report: &mut Report, locale: &Locale, deployment: &Deployment) {
    for warning in &deployment.warnings {
        report.finding(locale, warning);
    }
    let Some(config) = &deployment.config else {
        return;
    };
    for later in config.later_keys() {
        report.finding(locale, &later);
    }
    if let Err(fault) = crate::compose::user_prompt(config, deployment.file.as_deref()) {
        report.fault(locale, "prompt", &fault, exit::USAGE);
    }
    mode(report, locale, deployment, config);
}

fn mode(report: &mut Report, locale: &Locale, deployment: &Deployment, config: &Config) {
    let mode = deployment.policy.mode().word();
    let highest = config.sandbox.max_mode;
    let data = json!({ "mode": mode, "max_mode": highest.word() });
    report.add_with(Mark::Ok, "mode", mode, data);
    if highest == SandboxMode::DangerFullAccess {
        let message = Message::new("check.danger_mode").with("mode", highest.word());
        report.add(Mark::Danger, "mode", locale.text(&message));
    }
}
