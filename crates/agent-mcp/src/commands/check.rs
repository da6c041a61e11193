//! `agent-mcp check`: everything that can be known before the start, in one table. Changes nothing (SPEC §15).

use super::opening::{configured_locale, finding_line, flag_locale, report};
use crate::cli::CheckArgs;
use crate::deployment::{Deployment, DeploymentError, Narrowing, locate};
use crate::exit;
use crate::locale::Locale;
use crate::table::{Cell, Style, Table};
use crate::terminal::{Terminal, out_json};
use policy::sandbox::{Control, Enforcement, SandboxBackend};
use policy::{Localize, Message, SandboxMode};
use runtime::ollama::{OllamaClient, OllamaSettings};
use serde::Serialize;

/// How a row came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mark {
    Ok,
    Warning,
    Error,
}

/// One row of the table.
#[derive(Debug, Serialize)]
struct Row {
    mark: Mark,
    subject: &'static str,
    detail: String,
}

/// Does it.
pub fn run(arguments: &CheckArgs) -> u8 {
    let read = match locate(arguments.common.config.as_deref()) {
        Ok(read) => read,
        Err(problem) => {
            let locale = match flag_locale(arguments.common.lang.as_deref()) {
                Ok(locale) => locale,
                Err(code) => return code,
            };
            let nothing_to_show = matches!(
                problem,
                DeploymentError::NoConfiguration { .. } | DeploymentError::Untrusted { .. }
            );
            if nothing_to_show {
                return report(&locale, &problem);
            }
            return print(
                arguments.json,
                &locale,
                problem_rows(&locale, &problem),
                exit::USAGE,
            );
        }
    };
    let locale = match configured_locale(arguments.common.lang.as_deref(), &read) {
        Ok(locale) => locale,
        Err(code) => return code,
    };
    match Deployment::of(read, &Narrowing::default()) {
        Ok(deployment) => {
            let (rows, code) = rows(&locale, &deployment);
            print(arguments.json, &locale, rows, code)
        }
        Err(problem) => {
            let code = match &problem {
                DeploymentError::Refusals(refusals) => {
                    refusals.first().map_or(exit::USAGE, |r| exit::of(r.code))
                }
                _ => exit::USAGE,
            };
            print(
                arguments.json,
                &locale,
                problem_rows(&locale, &problem),
                code,
            )
        }
    }
}

fn problem_rows(locale: &Locale, problem: &DeploymentError) -> Vec<Row> {
    let error = |detail: String| Row {
        mark: Mark::Error,
        subject: "configuration",
        detail,
    };
    match problem {
        DeploymentError::Findings(findings) => findings
            .iter()
            .map(|finding| Row {
                mark: match finding.severity {
                    policy::config::Severity::Error => Mark::Error,
                    policy::config::Severity::Warning => Mark::Warning,
                },
                subject: "configuration",
                detail: finding_line(locale, finding),
            })
            .collect(),
        DeploymentError::NoConfiguration { .. } | DeploymentError::Untrusted { .. } => Vec::new(),
        DeploymentError::Unreadable(fault) => vec![error(locale.text(&fault.message()))],
        DeploymentError::Faults(faults) => faults
            .iter()
            .map(|fault| error(locale.text(&fault.message())))
            .collect(),
        DeploymentError::Refusals(refusals) => refusals
            .iter()
            .map(|refusal| error(locale.text(&refusal.message())))
            .collect(),
    }
}

fn rows(locale: &Locale, deployment: &Deployment) -> (Vec<Row>, u8) {
    let mut rows = Vec::new();
    let mut code = exit::OK;
    let mut add = |mark, subject, detail: String| {
        rows.push(Row {
            mark,
            subject,
            detail,
        })
    };
    if let Some(file) = &deployment.file {
        add(Mark::Ok, "configuration", file.display().to_string());
    }
    for warning in &deployment.warnings {
        add(
            Mark::Warning,
            "configuration",
            finding_line(locale, warning),
        );
    }
    if let Some(config) = &deployment.config {
        for later in config.later_keys() {
            add(Mark::Warning, "configuration", finding_line(locale, &later));
        }
    }
    add(Mark::Ok, "language", locale.language().to_owned());
    add(
        Mark::Ok,
        "state",
        deployment.places.state.display().to_string(),
    );
    if let Some(config) = &deployment.config
        && let Err(fault) = crate::compose::user_prompt(config, deployment.file.as_deref())
    {
        add(Mark::Error, "prompt", locale.text(&fault.message()));
        code = exit::USAGE;
    }
    if let Some(fault) = unusable_places(&deployment.places) {
        add(Mark::Error, "state", locale.text(&fault.message()));
        code = exit::USAGE;
    }
    add(Mark::Ok, "mode", deployment.policy.mode().word().to_owned());
    for root in deployment.policy.roots() {
        add(
            Mark::Ok,
            "root",
            format!("{} {}", root.path.display(), root.rights),
        );
    }
    for entry in deployment.policy.entries() {
        add(
            Mark::Ok,
            "entry",
            format!(
                "{} = {} sha256:{}",
                entry.alias,
                entry.resolved.display(),
                entry.sha256
            ),
        );
    }
    add(
        Mark::Ok,
        "network",
        deployment.policy.network().word().to_owned(),
    );
    let backend = crate::compose::backend();
    match backend.survey(&deployment.policy) {
        Ok(enforcement) => {
            let permitted = enforcement.permit(&deployment.policy);
            let mark = match (&permitted, enforcement.missing_controls().is_empty()) {
                (Err(_), _) => Mark::Error,
                (Ok(_), false) => Mark::Warning,
                (Ok(_), true) => Mark::Ok,
            };
            add(mark, "enforcement", summary(&enforcement));
            for control in enforcement.missing_controls() {
                // What leaves the level full is worth knowing and no reason to act.
                let mark = match (&permitted, control.decides_level()) {
                    (Err(_), true) => Mark::Error,
                    (_, true) => Mark::Warning,
                    (_, false) => Mark::Ok,
                };
                add(mark, "missing", control_line(locale, *control));
            }
            for (mode, other) in other_modes(backend.as_ref(), deployment) {
                if other != enforcement {
                    let detail = format!("{}: {}", mode.word(), summary(&other));
                    add(Mark::Ok, "enforcement", detail);
                    for control in other.missing_controls() {
                        if !enforcement.missing_controls().contains(control) {
                            let line = control_line(locale, *control);
                            add(Mark::Ok, "missing", format!("{}: {line}", mode.word()));
                        }
                    }
                }
            }
            if let Err(refusal) = permitted {
                add(Mark::Error, "enforcement", locale.text(&refusal.message()));
                code = exit::SANDBOX;
            }
        }
        Err(error) => {
            let fault = crate::compose::sandbox_fault(&error);
            add(Mark::Error, "enforcement", locale.text(&fault.message()));
            code = exit::SANDBOX;
        }
    }
    if let Some(config) = &deployment.config {
        let (mark, detail) = model_row(locale, config);
        add(mark, "model", detail);
    }
    (rows, code)
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

/// What a start would trip over; nothing is made.
fn unusable_places(places: &crate::deployment::Places) -> Option<policy::Fault> {
    let wrong = |path: &std::path::Path, detail: &str| {
        Some(crate::books::fault(
            policy::Code::StateUnusable,
            path,
            detail,
        ))
    };
    for directory in [&places.state, &places.audit, &places.logs] {
        let existing = directory.ancestors().find(|path| path.exists())?;
        if !existing.is_dir() {
            return wrong(existing, "not a directory");
        }
    }
    match record::audit::AuditKey::open(&places.key_file) {
        Ok(_) | Err(record::audit::KeyError::Missing { .. }) => None,
        Err(error) => Some(crate::books::fault(error.code(), &places.key_file, error)),
    }
}

/// Whether Ollama answers and the model can call tools. Never more than a warning: it may be started later.
fn model_row(locale: &Locale, config: &policy::config::Config) -> (Mark, String) {
    let settings = OllamaSettings {
        deadline: std::time::Duration::from_secs(5),
        connect_timeout: std::time::Duration::from_secs(2),
        ..OllamaSettings::from_config(&config.ollama)
    };
    let client = match OllamaClient::new(settings) {
        Ok(client) => client,
        Err(problem) => return (Mark::Warning, problem.to_string()),
    };
    let Ok(tokio) = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    else {
        return (Mark::Warning, "no runtime".to_owned());
    };
    let shown = tokio.block_on(client.show(&config.ollama.model));
    match shown {
        Ok(details) if details.capabilities.is_some_and(|can| !can.tools) => {
            let message = Message::new(policy::Code::OllamaToolsUnsupported.message_id())
                .with("target", &config.ollama.model);
            (Mark::Warning, locale.text(&message))
        }
        Ok(_) => (
            Mark::Ok,
            format!("{} @ {}", config.ollama.model, config.ollama.endpoint),
        ),
        Err(fault) => (Mark::Warning, locale.text(&fault.to_fault().message())),
    }
}

fn print(json: bool, locale: &Locale, rows: Vec<Row>, code: u8) -> u8 {
    if json {
        let worst = rows.iter().map(|row| row.mark).max().unwrap_or(Mark::Ok);
        let object = serde_json::json!({ "result": worst, "exit_code": code, "rows": rows });
        out_json(&object);
        return code;
    }
    let terminal = Terminal::new(locale);
    let mut table = Table::new().wrapping();
    for row in &rows {
        let mark = match row.mark {
            Mark::Ok => Cell::styled("ok", Style::Green),
            Mark::Warning => Cell::styled("warning", Style::Yellow),
            Mark::Error => Cell::styled("ERROR", Style::Red),
        };
        table.row([mark, row.subject.into(), row.detail.as_str().into()]);
    }
    terminal.table(&table);
    let worst = if code == exit::OK {
        "check.fine"
    } else {
        "check.wrong"
    };
    terminal.say(&Message::new(worst));
    code
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
