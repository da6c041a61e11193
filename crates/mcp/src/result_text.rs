//! The text of a result: one line per field, so that a field's value cannot look like another field (X-ONELINE).

use policy::{Localize, Refusal};
use runtime::service::{RunStatus, Submitted};
use std::fmt::Write;

/// DESIGN §5.3.
pub(crate) fn submitted(submitted: &Submitted, message: &str) -> String {
    let mut lines = Lines::default();
    lines.field("task_id", submitted.run_id);
    lines.field("session_id", submitted.session_id);
    lines.field("status", "queued");
    lines.field("message", message);
    lines.text
}

/// DESIGN §5.5. `result` is the last field, may have several lines, and is there only when the run is completed.
pub(crate) fn status(status: &RunStatus, localize: &dyn Localize) -> String {
    let usage = status.token_usage;
    let (error_code, error) = match &status.last_error {
        Some((code, message)) => (code.as_str(), localize.text(message)),
        None => ("", String::new()),
    };
    let mut lines = Lines::default();
    lines.field("task_id", status.run_id);
    lines.field("session_id", status.session_id);
    lines.field("status", status.state.word());
    lines.field(
        "completed_tasks",
        format_args!("{}/{}", status.completed_tasks, status.total_tasks),
    );
    lines.field(
        "current_task",
        status.current_task.as_deref().unwrap_or_default(),
    );
    lines.field(
        "token_usage",
        format_args!(
            "input={} output={} total={}",
            usage.input,
            usage.output,
            usage.total()
        ),
    );
    lines.field("critical_path_tokens", status.critical_path_tokens);
    lines.field("iterations", status.iterations);
    lines.field("replans", status.replans);
    lines.field("last_error_code", error_code);
    lines.field("last_error", error);
    lines.field("message", localize.text(&status.message));
    if status.state == runtime::service::RunState::Completed {
        lines.last("result", status.result.as_deref().unwrap_or_default());
    }
    lines.text
}

/// A failed call: the stable code, what was wrong, and what to do about it.
pub(crate) fn refusal(refusal: &Refusal, localize: &dyn Localize) -> String {
    let hint = refusal.hint();
    let mut message = localize.text(&refusal.message());
    let advice = localize.text(&hint);
    // A locale without this hint answers with the id.
    if advice != hint.id() {
        message.push(' ');
        message.push_str(&advice);
    }
    let mut lines = Lines::default();
    lines.field("error_code", refusal.code);
    lines.field("message", message);
    lines.text
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn field(&mut self, name: &str, value: impl std::fmt::Display) {
        let value = one_line(&value.to_string());
        self.last(name, &value);
    }

    fn last(&mut self, name: &str, value: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        // Writing to a String cannot fail.
        let _ = write!(self.text, "{name}: {value}");
    }
}

/// Text on one line that reads as it is stored: whatever ends a line becomes a space; other control characters, and the
/// marks that reorder or hide text, become U+FFFD.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => ' ',
            '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => char::REPLACEMENT_CHARACTER,
            control if control.is_control() => char::REPLACEMENT_CHARACTER,
            other => other,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_break_becomes_a_space() {
        for character in [
            '\n', '\r', '\t', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}',
        ] {
            assert_eq!(one_line(&format!("a{character}b")), "a b", "{character:?}");
        }
    }

    #[test]
    fn what_hides_or_reorders_is_shown_as_replaced() {
        for character in [
            '\0', '\u{1b}', '\u{7f}', '\u{9b}', '\u{61c}', '\u{200e}', '\u{202e}', '\u{2066}',
            '\u{2069}',
        ] {
            assert_eq!(
                one_line(&format!("a{character}b")),
                "a\u{fffd}b",
                "{character:?}"
            );
        }
    }

    #[test]
    fn other_languages_stay_as_they_are() {
        let text = "計画を立てています… 👩‍👩‍👧 café";
        assert_eq!(one_line(text), text);
    }
}
