//! State, audit and log directories and the audit key: there or can be made, whose, open to whom, on how much free space.
//! Nothing is made.

use super::report::{Mark, Report};
use crate::books::{KEY_VARIABLE, given_key};
use crate::deployment::Places;
use crate::exit;
use crate::locale::Locale;
use policy::{Fault, Localize, Message};
use record::StateDirectory;
use record::audit::AuditKey;
use serde_json::json;
use std::path::Path;

/// Below this the log may soon stop everything: its records are synced before their effects. Bytes.
const LOW_SPACE: u64 = 256 << 20;

pub(super) fn rows(report: &mut Report, locale: &Locale, places: &Places) {
    for (subject, path) in [
        ("state", &places.state),
        ("audit", &places.audit),
        ("logs", &places.logs),
    ] {
        directory(report, locale, subject, path);
    }
    key(report, locale, places);
}

fn directory(report: &mut Report, locale: &Locale, subject: &'static str, path: &Path) {
    let there = match StateDirectory::look(path) {
        Ok(there) => there,
        Err(error) => {
            return report.fault(locale, subject, &Fault::from(error), exit::USAGE);
        }
    };
    found(report, locale, subject, path, there, free_bytes(path));
}

fn found(
    report: &mut Report,
    locale: &Locale,
    subject: &'static str,
    path: &Path,
    there: bool,
    free: Option<u64>,
) {
    let data = json!({ "path": path, "exists": there, "free_bytes": free });
    let shown = path.display();
    match free {
        Some(free) if free < LOW_SPACE => {
            let message = Message::new("check.space_low")
                .with("path", shown)
                .with("free", free >> 20);
            report.add_with(Mark::Warning, subject, locale.text(&message), data);
        }
        _ if there => report.add_with(Mark::Ok, subject, shown.to_string(), data),
        _ => {
            let message = Message::new("check.will_be_made").with("path", shown);
            report.add_with(Mark::Ok, subject, locale.text(&message), data);
        }
    }
}

/// X-KEYS: the variable goes before the file; its value is never shown.
fn key(report: &mut Report, locale: &Locale, places: &Places) {
    let subject = "audit_key";
    match given_key() {
        Some(Ok(_)) => {
            let message = Message::new("check.key_variable")
                .with("variable", KEY_VARIABLE)
                .with("path", places.key_file.display());
            let data = json!({ "origin": "environment", "variable": KEY_VARIABLE });
            report.add_with(Mark::Ok, subject, locale.text(&message), data);
        }
        Some(Err(error)) => report.fault(locale, subject, &Fault::from(error), exit::USAGE),
        None => match AuditKey::look(&places.audit, &places.key_file) {
            Ok(found) => {
                let shown = places.key_file.display();
                let data =
                    json!({ "origin": "file", "path": places.key_file, "exists": found.is_some() });
                let detail = match found {
                    Some(_) => shown.to_string(),
                    None => locale.text(&Message::new("check.will_be_made").with("path", shown)),
                };
                report.add_with(Mark::Ok, subject, detail, data);
            }
            Err(error) => report.fault(locale, subject, &Fault::from(error), exit::USAGE),
        },
    }
}

/// What this user can still write there, or above where it will be made.
#[cfg(unix)]
fn free_bytes(path: &Path) -> Option<u64> {
    let existing = path.ancestors().find(|path| path.exists())?;
    let space = rustix::fs::statvfs(existing).ok()?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 4: little space is told before the log stops everything.
    #[test]
    fn spec_15_low_space() {
        let locale = Locale::built_in("en");
        let marks = |free| {
            let mut report = Report::default();
            found(&mut report, &locale, "state", Path::new("/s"), true, free);
            (report.details(Mark::Ok), report.details(Mark::Warning))
        };
        assert_eq!(marks(None), (vec!["/s".to_owned()], Vec::new()));
        assert_eq!(marks(Some(LOW_SPACE)), (vec!["/s".to_owned()], Vec::new()));
        let (ok, low) = marks(Some(LOW_SPACE - 1));
        assert!(ok.is_empty() && low[0].contains("255 MiB free"), "{low:?}");
    }
}
