//! The one place that writes to standard output and standard error, so that `serve` can keep stdout for the protocol
//! (SEC-INV-12). A closed pipe ends the output quietly; it is no error of ours.

use crate::table::Table;
use policy::{Fault, Localize, Message, Refusal};
use std::io::{IsTerminal, Write};

/// Where people read.
pub struct Terminal<'a> {
    texts: &'a dyn Localize,
    /// Before every message on standard error.
    name: &'static str,
}

impl<'a> Terminal<'a> {
    /// A terminal that speaks the chosen language.
    pub fn new(texts: &'a dyn Localize) -> Self {
        Self { texts, name: "" }
    }

    /// The same for `exec`, whose command writes to the same standard error: our messages begin with our name.
    pub fn of_exec(texts: &'a dyn Localize) -> Self {
        Self {
            texts,
            name: "agent-mcp: ",
        }
    }

    /// The texts.
    pub fn texts(&self) -> &dyn Localize {
        self.texts
    }

    /// A line on standard output.
    pub fn line(&self, text: &str) {
        out(text);
    }

    /// A table on standard output: in colour and as wide as the terminal where it is one.
    pub fn table(&self, table: &Table) {
        let mut stdout = std::io::stdout().lock();
        for line in table.lines(width_of(&stdout), colour_on(&stdout)) {
            // Its cells are visible already; what is left are our own colours.
            if writeln!(stdout, "{line}").is_err() {
                return;
            }
        }
        drop(stdout.flush());
    }

    /// A localized line on standard output.
    pub fn say(&self, message: &Message) {
        out(&self.texts.text(message));
    }

    /// A localized line on standard error.
    pub fn warn(&self, message: &Message) {
        self.error(&self.texts.text(message));
    }

    /// A line on standard error that is a message already.
    pub fn error(&self, text: &str) {
        err(&format!("{}{text}", self.name));
    }

    /// A refusal on standard error: code, what was refused, and what to do about it.
    pub fn refusal(&self, refusal: &Refusal) {
        self.error(&format!(
            "{}: {}",
            refusal.code,
            self.texts.text(&refusal.message())
        ));
        self.error(&format!("  {}", self.texts.text(&refusal.hint())));
    }

    /// A fault on standard error: code, what failed, and what to do about it.
    pub fn fault(&self, fault: &Fault) {
        self.error(&format!(
            "{}: {}",
            fault.code,
            self.texts.text(&fault.message())
        ));
        self.error(&format!("  {}", self.texts.text(&fault.hint())));
    }
}

/// A line on standard output.
pub fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    drop(writeln!(stdout, "{}", visible(text)).and_then(|()| stdout.flush()));
}

/// What another program reads, on standard output as it is.
pub fn out_bytes(bytes: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    drop(stdout.write_all(bytes).and_then(|()| stdout.flush()));
}

/// One JSON value on standard output. What a terminal would obey is written as JSON writes it, so that it stays JSON.
pub fn out_json(value: &serde_json::Value) {
    let mut stdout = std::io::stdout().lock();
    drop(writeln!(stdout, "{}", json_line(value)).and_then(|()| stdout.flush()));
}

/// One line of JSON without characters that a terminal obeys; they only stand in its texts.
pub fn json_line(value: &serde_json::Value) -> String {
    value
        .to_string()
        .chars()
        .map(|c| match c {
            c if c.is_control() || hides(c) => format!("\\u{:04x}", c as u32),
            c => c.to_string(),
        })
        .collect()
}

/// Whether to use colour there: on a terminal that knows it, unless `NO_COLOR` is set; `CLICOLOR_FORCE` uses it anywhere.
pub fn colour_on(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if set("NO_COLOR").is_some() {
        return false;
    }
    if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    stream.is_terminal() && set("TERM").is_some_and(|term| term != "dumb")
}

/// Cells in a line of the terminal, if it is one.
#[cfg(unix)]
fn width_of(stream: &impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

#[cfg(not(unix))]
fn width_of(_stream: &impl IsTerminal) -> Option<usize> {
    None
}

/// Directions and separators that change how a line looks.
fn hides(c: char) -> bool {
    matches!(
        c,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}'
    )
}

/// A line on standard error.
pub fn err(text: &str) {
    let mut stderr = std::io::stderr().lock();
    drop(writeln!(stderr, "{}", visible(text)));
}

/// Model text and file names may hold control characters; on a terminal they are shown, not obeyed.
pub fn visible(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => c.to_string(),
            c if c.is_control() => format!("\\u{{{:x}}}", c as u32),
            c if hides(c) => format!("\\u{{{:x}}}", c as u32),
            c => c.to_string(),
        })
        .collect()
}

/// The same on one line: a line break or a tab is shown, too.
pub fn one_visible_line(text: &str) -> String {
    visible(text).replace('\n', "\\n").replace('\t', "\\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// interfaces.md §2: `--json` prints JSON, whatever a model writes.
    #[test]
    fn json_stays_json() {
        let value = serde_json::json!({ "a\u{202e}": "b\u{2028}c\u{7f}d\u{85}\n\"日本語" });
        let line = json_line(&value);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&line).unwrap(),
            value
        );
        assert!(!line.chars().any(|c| c.is_control() || hides(c)), "{line}");
    }
}
