//! `agent-mcp apply`: the one command that changes the Applied Configuration Store (DESIGN §10.6). Everything is resolved
//! and verified first; then one diff, one question, one atomic replacement.

use super::opening::{Unjudged, open_unjudged};
use crate::books::{Books, Writer, fault};
use crate::cli::ApplyArgs;
use crate::deployment::Narrowing;
use crate::deployment::applied::{Change, Difference, Snapshot, Store, differences};
use crate::exit;
use crate::table::{Cell, Style, Table};
use crate::terminal::{Terminal, out_json};
use policy::effective::Sha256Digest;
use policy::{Blame, Code, Fault, Message, TraceId};
use record::audit::{AuditEvent, Decision, EventName};
use serde_json::json;
use std::io::IsTerminal;

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    NobodyToAsk,
}

/// Does it.
pub fn run(arguments: &ApplyArgs) -> u8 {
    let opened = match open_unjudged(&arguments.common, &Narrowing::default()) {
        Ok(opened) => opened,
        Err(code) => return code,
    };
    let terminal = Terminal::new(&opened.locale);
    match apply(arguments, &opened, &terminal) {
        Ok(code) => {
            if code == exit::OK {
                opened
                    .hashes
                    .remember_or_hash_again(&opened.snapshot.config);
            }
            code
        }
        Err(fault) => {
            terminal.fault(&fault);
            exit::of(fault.code)
        }
    }
}

fn apply(arguments: &ApplyArgs, opened: &Unjudged, terminal: &Terminal<'_>) -> Result<u8, Fault> {
    let Unjudged {
        deployment,
        snapshot,
        hashes,
        ..
    } = opened;
    let digest = snapshot.digest().map_err(|error| {
        let config = snapshot.config.display().to_string();
        Fault::new(
            Blame::Configuration,
            Code::ConfigurationInvalid,
            config,
            error,
        )
    })?;
    let store = Store::of_user()?;
    let turn = store.turn(&snapshot.config, || {
        terminal.warn(&Message::new("apply.waiting").with("config", snapshot.config.display()));
    })?;
    // What cannot be read is replaced by what a person applies now; they are told.
    let applied = match store.read(&snapshot.config) {
        Ok(applied) => {
            if let Some(problem) = hashes.problem() {
                terminal.fault(problem);
            }
            applied
        }
        Err(problem) => {
            terminal.fault(&problem);
            None
        }
    };
    let differences = differences(applied.as_ref(), snapshot);
    if differences.is_empty() {
        if arguments.json {
            print_json(snapshot, &digest, &differences, "unchanged");
        } else {
            terminal
                .say(&Message::new("apply.unchanged").with("config", snapshot.config.display()));
        }
        return Ok(exit::OK);
    }
    if !arguments.json {
        show(terminal, snapshot, &differences, applied.is_none());
    }
    let answer = match arguments.yes {
        true => Answer::Yes,
        false => ask(terminal),
    };
    if answer == Answer::NobodyToAsk {
        terminal.warn(&Message::new("apply.nobody_to_ask"));
        return Ok(exit::USAGE);
    }
    let books = Books::open(&deployment.places, Writer::Thread)?;
    let decision = match answer {
        Answer::Yes => Decision::Allow,
        _ => Decision::Deny,
    };
    let event = AuditEvent::new(EventName::ConfigLoad, TraceId::random())
        .decision(decision)
        .target(snapshot.config.display().to_string())
        .detail("action", "apply")
        .detail("snapshot_sha256", digest.to_string())
        .detail(
            "replaces_sha256",
            applied
                .and_then(|applied| applied.digest().ok())
                .map(|digest| digest.to_string()),
        );
    let unrecorded =
        |error: record::AuditError| fault(error.code(), &deployment.places.audit, error);
    // Recorded before it takes effect (SEC-INV-08): an applied snapshot that nobody recorded cannot be.
    let code = match answer {
        Answer::Yes => {
            let recorded = books.audit.append_durable(event).map_err(unrecorded)?;
            turn.replace(snapshot, recorded)?;
            exit::OK
        }
        _ => {
            books.audit.append(event).map_err(unrecorded)?;
            exit::REFUSED
        }
    };
    books.audit.close().map_err(unrecorded)?;
    match (arguments.json, code) {
        (true, exit::OK) => print_json(snapshot, &digest, &differences, "applied"),
        (true, _) => print_json(snapshot, &digest, &differences, "refused"),
        (false, exit::OK) => {
            terminal.say(&Message::new("apply.applied").with("config", snapshot.config.display()));
        }
        (false, _) => terminal.warn(&Message::new("apply.refused")),
    }
    Ok(code)
}

fn show(terminal: &Terminal<'_>, snapshot: &Snapshot, differences: &[Difference], first: bool) {
    let id = if first { "apply.first" } else { "apply.diff" };
    terminal.say(&Message::new(id).with("config", snapshot.config.display()));
    let mut table = Table::new();
    for difference in differences {
        let (sign, id) = match difference.change {
            Change::Added => ("+", "apply.added"),
            Change::Removed => ("-", "apply.removed"),
            Change::Widened => ("!", "apply.widened"),
            Change::Narrowed => ("<", "apply.narrowed"),
            Change::Changed => ("~", "apply.changed"),
        };
        let style = match difference.change.widens() && !first {
            true => Style::Red,
            false => Style::Plain,
        };
        let word = format!("{sign} {}", terminal.texts().text(&Message::new(id)));
        let value = match (&difference.old, &difference.new) {
            (None, Some(new)) => new.clone(),
            _ => difference.values(),
        };
        table.row([
            Cell::styled(&word, style),
            Cell::styled(&difference.object, style),
            Cell::styled(&value, style),
        ]);
    }
    terminal.table(&table);
}

/// One question, default no.
fn ask(terminal: &Terminal<'_>) -> Answer {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Answer::NobodyToAsk;
    }
    terminal.warn(&Message::new("apply.question"));
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(_) if ["y", "yes"].contains(&line.trim().to_lowercase().as_str()) => Answer::Yes,
        _ => Answer::No,
    }
}

fn print_json(
    snapshot: &Snapshot,
    digest: &Sha256Digest,
    differences: &[Difference],
    result: &str,
) {
    out_json(&json!({
        "config": snapshot.config, "result": result, "snapshot_sha256": digest.to_string(),
        "differences": differences,
    }));
}
