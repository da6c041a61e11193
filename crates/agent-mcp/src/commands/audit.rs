//! `agent-mcp audit verify|show`: reads the log; changes nothing.

use super::opening::{configured_locale, flag_locale, report};
use crate::books;
use crate::cli::{AuditAction, AuditArgs, AuditShowArgs, AuditVerifyArgs, Common};
use crate::deployment::{DeploymentError, Places, base_directory, locate};
use crate::exit;
use crate::locale::Locale;
use crate::terminal::{Terminal, out, out_json};
use policy::{Code, Fault, Message};
use record::audit::AuditKey;
use record::verify::{ShowFilter, VerifyReport, show, verify_state};
use std::path::PathBuf;

/// Does it.
pub fn run(arguments: &AuditArgs) -> u8 {
    let common = match &arguments.action {
        AuditAction::Verify(arguments) => &arguments.common,
        AuditAction::Show(arguments) => &arguments.common,
    };
    let (places, locale) = match places(common) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let terminal = Terminal::new(&locale);
    let result = match &arguments.action {
        AuditAction::Verify(arguments) => verify(arguments, &places, &terminal),
        AuditAction::Show(arguments) => print(arguments, &places, &terminal),
    };
    result.unwrap_or_else(|fault| {
        terminal.fault(&fault);
        exit::of(fault.code)
    })
}

/// Where the log is: the configuration's place, or the default one where there is no configuration.
fn places(common: &Common) -> Result<(Places, Locale), u8> {
    let read = match locate(common.config.as_deref()) {
        Ok(read) => read,
        Err(DeploymentError::NoConfiguration { .. }) => {
            let locale = flag_locale(common.lang.as_deref())?;
            return match Places::default_places() {
                Ok(places) => Ok((places, locale)),
                Err(fault) => {
                    Terminal::new(&locale).fault(&fault);
                    Err(exit::USAGE)
                }
            };
        }
        Err(problem) => return Err(report(&flag_locale(common.lang.as_deref())?, &problem)),
    };
    let locale = configured_locale(common.lang.as_deref(), &read)?;
    match base_directory(&read.file).and_then(|base| Places::of(&read.loaded.config, &base)) {
        Ok(places) => Ok((places, locale)),
        Err(fault) => {
            Terminal::new(&locale).fault(&fault);
            Err(exit::USAGE)
        }
    }
}

fn verify(
    arguments: &AuditVerifyArgs,
    places: &Places,
    terminal: &Terminal<'_>,
) -> Result<u8, Fault> {
    let reports = reports(places)?;
    if arguments.json {
        let good = reports.iter().all(VerifyReport::is_good)
            && missing_instance(&reports, places).is_none();
        out_json(&serde_json::json!({ "verified": good, "instances": reports }));
        return Ok(if good { exit::OK } else { exit::FAILED });
    }
    Ok(say(&reports, places, terminal))
}

/// Verifies and prints the one line that people look for.
///
/// # Errors
/// The log or its key cannot be read.
pub fn verify_and_print(places: &Places, terminal: &Terminal<'_>) -> Result<u8, Fault> {
    Ok(say(&reports(places)?, places, terminal))
}

fn say(reports: &[VerifyReport], places: &Places, terminal: &Terminal<'_>) -> u8 {
    if let Some(missing) = missing_instance(reports, places) {
        let message = Message::new("audit.broken").with("place", missing.display());
        terminal.say(&message.with("problem", "instance_missing"));
        return exit::FAILED;
    }
    if reports.is_empty() {
        terminal.say(&Message::new("audit.empty").with("directory", places.audit.display()));
        return exit::OK;
    }
    let broken: Vec<_> = reports
        .iter()
        .filter_map(|report| report.problem.as_ref().map(|problem| (report, problem)))
        .collect();
    for (report, problem) in &broken {
        let seq = problem
            .seq
            .map_or_else(String::new, |seq| format!(" (seq {seq})"));
        let place = format!(
            "{}:{}{seq}",
            report.directory.join(&problem.file).display(),
            problem.line
        );
        let kind = serde_json::to_value(problem.kind)
            .ok()
            .and_then(|kind| kind.as_str().map(str::to_owned));
        terminal.say(
            &Message::new("audit.broken")
                .with("place", place)
                .with("problem", kind.unwrap_or_default()),
        );
    }
    if !broken.is_empty() {
        return exit::FAILED;
    }
    let sum = |of: fn(&VerifyReport) -> u64| reports.iter().map(of).sum::<u64>();
    let lost = sum(|report| report.lost_with_kernel);
    if lost > 0 {
        terminal.say(&Message::new("audit.lost").with("records", lost));
    }
    let ahead = sum(|report| report.ahead);
    if ahead > 0 {
        terminal.say(&Message::new("audit.ahead").with("records", ahead));
    }
    terminal.say(
        &Message::new("audit.verified")
            .with("records", sum(|report| report.records))
            .with("files", sum(|report| u64::from(report.files)))
            .with("instances", reports.len()),
    );
    exit::OK
}

/// An instance whose directory is gone: the numbers have no gaps, and a key is only made for a first one. The deletion of
/// the highest numbers is not seen before the anchors of a later version.
fn missing_instance(reports: &[VerifyReport], places: &Places) -> Option<PathBuf> {
    let instances = places.audit.join("instances");
    let numbers: Vec<u32> = reports
        .iter()
        .filter_map(|report| report.directory.file_name()?.to_str()?.parse().ok())
        .collect();
    let highest = numbers.iter().copied().max().unwrap_or_default();
    let needed = highest.max(u32::from(places.key_file.exists()));
    (1..=needed)
        .find(|number| !numbers.contains(number))
        .map(|number| instances.join(format!("{number:04}")))
}

fn reports(places: &Places) -> Result<Vec<VerifyReport>, Fault> {
    if !places.audit.join("instances").exists() {
        return Ok(Vec::new());
    }
    let key = match books::given_key() {
        Some(given) => given,
        None => AuditKey::open(&places.key_file),
    }
    .map_err(|error| books::fault(error.code(), &places.key_file, error))?;
    verify_state(&places.audit, &key)
        .map_err(|error| books::fault(error.code(), &places.audit, error))
}

fn print(arguments: &AuditShowArgs, places: &Places, terminal: &Terminal<'_>) -> Result<u8, Fault> {
    let unreadable =
        |error: record::verify::VerifyError| books::fault(error.code(), &places.audit, error);
    let mut records = Vec::new();
    let mut code = exit::OK;
    for directory in instance_directories(places)? {
        let filter = ShowFilter {
            run_id: arguments.run.clone(),
            trace_id: arguments.trace.clone(),
            event: arguments.event.clone(),
        };
        for record in show(&directory, filter).map_err(unreadable)? {
            match record {
                Ok(record) => records.push(record),
                Err(error) => {
                    terminal.fault(&unreadable(error));
                    code = exit::FAILED;
                }
            }
        }
    }
    // Instances write at the same time; people and programs read in time's order.
    records.sort_by(|a, b| a.ts.cmp(&b.ts));
    for record in &records {
        if arguments.json {
            out_json(&serde_json::to_value(record).unwrap_or_default());
            continue;
        }
        let target = record.target.as_deref().unwrap_or("");
        let detail = if record.detail.is_empty() {
            String::new()
        } else {
            serde_json::to_string(&record.detail).unwrap_or_default()
        };
        let code = record.code.as_deref().unwrap_or("");
        let line = format!(
            "{} {:<19} {:<5} {code} {target} {detail}",
            record.ts, record.event, record.decision
        );
        out(&super::run::one_line_whole(&line));
    }
    Ok(code)
}

fn instance_directories(places: &Places) -> Result<Vec<PathBuf>, Fault> {
    let instances = places.audit.join("instances");
    let entries = match std::fs::read_dir(&instances) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(books::fault(Code::StateUnusable, &instances, error)),
    };
    let mut directories: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    directories.sort();
    Ok(directories)
}
