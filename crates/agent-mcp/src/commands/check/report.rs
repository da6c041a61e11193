//! Rows, marks, and how they are printed.

use crate::exit;
use crate::locale::Locale;
use crate::table::{Cell, Style, Table};
use crate::terminal::{Terminal, out_json};
use policy::config::{Finding, FindingCode, Severity};
use policy::{Fault, Localize, Message, Refusal};
use serde::Serialize;
use serde_json::Value;

/// How a row came out. Only an error keeps from starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mark {
    /// As it should be.
    Ok,
    /// Something does not work yet, or not well.
    Warning,
    /// It works, and gives away more than people expect: shown in red.
    Danger,
    /// It cannot start like this.
    Error,
}

impl Mark {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Danger => "DANGER",
            Self::Error => "ERROR",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Ok => Style::Green,
            Self::Warning => Style::Yellow,
            Self::Danger | Self::Error => Style::Red,
        }
    }
}

/// One row of the table. `subject` and the names in `data` are stable (docs/guide/check.md); `detail` is for people.
#[derive(Debug, Serialize)]
struct Row {
    mark: Mark,
    subject: &'static str,
    detail: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    data: Value,
}

/// All rows and the exit code.
#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<Row>,
    code: u8,
}

impl Report {
    /// A row for people.
    pub(super) fn add(&mut self, mark: Mark, subject: &'static str, detail: impl Into<String>) {
        self.add_with(mark, subject, detail, Value::Null);
    }

    /// A row for people and programs.
    pub(super) fn add_with(
        &mut self,
        mark: Mark,
        subject: &'static str,
        detail: impl Into<String>,
        data: Value,
    ) {
        self.rows.push(Row {
            mark,
            subject,
            detail: detail.into(),
            data,
        });
    }

    /// What fails and what to do about it.
    pub(super) fn fault(
        &mut self,
        locale: &Locale,
        subject: &'static str,
        fault: &Fault,
        code: u8,
    ) {
        let detail = both(locale, &fault.message(), &fault.hint());
        self.error(
            subject,
            detail,
            serde_json::json!({ "code": fault.code.as_str() }),
            code,
        );
    }

    /// What is refused and what to do about it.
    pub(super) fn refusal(
        &mut self,
        locale: &Locale,
        subject: &'static str,
        refusal: &Refusal,
        code: u8,
    ) {
        let detail = both(locale, &refusal.message(), &refusal.hint());
        self.error(
            subject,
            detail,
            serde_json::json!({ "code": refusal.code.as_str() }),
            code,
        );
    }

    /// A row that keeps from starting.
    pub(super) fn error(
        &mut self,
        subject: &'static str,
        detail: impl Into<String>,
        data: Value,
        code: u8,
    ) {
        self.add_with(Mark::Error, subject, detail, data);
        // What is written comes first: it decides what the machine is asked for.
        if self.code == exit::OK || code == exit::USAGE {
            self.code = code;
        }
    }

    /// One thing about the file, with its position.
    pub(super) fn finding(&mut self, locale: &Locale, finding: &Finding) {
        let detail = super::super::opening::finding_line(locale, finding);
        let data = serde_json::json!({
            "file": finding.file, "line": finding.line, "column": finding.column, "key": finding.key,
            "code": finding.message.id(),
        });
        let mark = match (finding.severity, finding.code) {
            (Severity::Error, _) => return self.error("configuration", detail, data, exit::USAGE),
            // What leaves this machine, and what nothing stops (X-MODEL, X-KEYS).
            (
                _,
                FindingCode::RemoteEndpoint
                | FindingCode::CloudModel
                | FindingCode::HardBlockObserve,
            ) => Mark::Danger,
            _ => Mark::Warning,
        };
        self.add_with(mark, "configuration", detail, data);
    }

    /// The rows with a mark, for people.
    #[cfg(test)]
    pub(super) fn details(&self, mark: Mark) -> Vec<String> {
        self.rows
            .iter()
            .filter(|row| row.mark == mark)
            .map(|row| row.detail.clone())
            .collect()
    }

    /// Prints everything; returns the exit code.
    pub(super) fn print(self, json: bool, locale: &Locale) -> u8 {
        let Self { rows, code } = self;
        if json {
            let worst = rows.iter().map(|row| row.mark).max().unwrap_or(Mark::Ok);
            out_json(&serde_json::json!({ "result": worst, "exit_code": code, "rows": rows }));
            return code;
        }
        let terminal = Terminal::new(locale);
        let mut table = Table::new().wrapping();
        for row in &rows {
            let detail = match row.mark {
                // What gives away more than people expect is red as a whole (X-MODEL, X-KEYS).
                Mark::Danger => Cell::styled(&row.detail, Style::Red),
                Mark::Ok | Mark::Warning | Mark::Error => row.detail.as_str().into(),
            };
            let mark = Cell::styled(row.mark.word(), row.mark.style());
            table.row([mark, row.subject.into(), detail]);
        }
        terminal.table(&table);
        let attention = rows
            .iter()
            .filter(|row| matches!(row.mark, Mark::Warning | Mark::Danger))
            .count();
        if attention > 0 {
            terminal.say(&Message::new("check.attention").with("count", attention));
        }
        let last = match code {
            exit::OK => "check.fine",
            _ => "check.wrong",
        };
        terminal.say(&Message::new(last));
        code
    }
}

/// Message and hint in one line.
pub(super) fn both(locale: &Locale, message: &Message, hint: &Message) -> String {
    format!("{} {}", locale.text(message), locale.text(hint))
}
