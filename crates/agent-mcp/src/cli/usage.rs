//! What is wrong with a command line, in the chosen language. clap finds it; the words are ours.

use super::localized;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use policy::{Localize, Message};
use std::ffi::{OsStr, OsString};

/// The language of the flag, before the command line can be read as a whole; what follows `--` is another program's.
pub fn language_asked_for(words: impl IntoIterator<Item = OsString>) -> Option<String> {
    let mut words = words
        .into_iter()
        .take_while(|word| word != OsStr::new("--"));
    while let Some(word) = words.next() {
        let Some(word) = word.to_str() else { continue };
        if word == "--lang" {
            return words.next()?.into_string().ok();
        }
        if let Some(language) = word.strip_prefix("--lang=") {
            return Some(language.to_owned());
        }
    }
    None
}

/// The lines for a command line that could not be read. Help and version are printed by clap itself, with our texts.
pub fn tell(texts: &dyn Localize, error: &Error) -> Vec<String> {
    let mut lines = vec![texts.text(&reason(error))];
    for (kind, id) in [
        (ContextKind::SuggestedArg, "cli.did_you_mean"),
        (ContextKind::SuggestedSubcommand, "cli.did_you_mean"),
        (ContextKind::SuggestedValue, "cli.did_you_mean"),
    ] {
        if let Some(nearest) = context(error, kind) {
            lines.push(texts.text(&Message::new(id).with("nearest", nearest)));
        }
    }
    if let Some(usage) = context(error, ContextKind::Usage) {
        let usage = usage.trim_start_matches("Usage:").trim();
        let heading = texts.text(&Message::new("help.heading.usage"));
        for (at, line) in usage.lines().enumerate() {
            match at {
                0 => lines.push(format!("{heading} {line}")),
                _ => lines.push(line.to_owned()),
            }
        }
    }
    lines.push(texts.text(&Message::new("cli.see_help")));
    lines
}

fn reason(error: &Error) -> Message {
    let get = |kind| context(error, kind);
    let argument = || get(ContextKind::InvalidArg).unwrap_or_default();
    let value = || get(ContextKind::InvalidValue).filter(|value| !value.is_empty());
    match error.kind() {
        ErrorKind::UnknownArgument => {
            Message::new("cli.unknown_argument").with("argument", argument())
        }
        ErrorKind::InvalidSubcommand => Message::new("cli.unknown_command").with(
            "command",
            get(ContextKind::InvalidSubcommand).unwrap_or_default(),
        ),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Message::new("cli.missing_command")
        }
        ErrorKind::MissingRequiredArgument => {
            Message::new("cli.missing_argument").with("argument", argument())
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => match value() {
            Some(value) => {
                let wrong = Message::new(match get(ContextKind::ValidValue) {
                    Some(_) => "cli.unknown_value",
                    None => "cli.invalid_value",
                });
                wrong
                    .with("argument", argument())
                    .with("value", value)
                    .with("allowed", get(ContextKind::ValidValue).unwrap_or_default())
            }
            None => Message::new("cli.missing_value").with("argument", argument()),
        },
        ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            Message::new("cli.missing_value").with("argument", argument())
        }
        ErrorKind::TooManyValues => Message::new("cli.too_many_values")
            .with("argument", argument())
            .with("value", value().unwrap_or_default()),
        ErrorKind::ArgumentConflict => {
            let other = get(ContextKind::PriorArg).unwrap_or_default();
            let argument = argument();
            if other == argument {
                Message::new("cli.twice").with("argument", argument)
            } else {
                Message::new("cli.conflict")
                    .with("argument", argument)
                    .with("other", other)
            }
        }
        ErrorKind::InvalidUtf8 => Message::new("cli.not_utf8"),
        _ => Message::new("cli.wrong").with("detail", error.kind()),
    }
}

fn context(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        ContextValue::StyledStr(text) => Some(text.to_string()),
        ContextValue::StyledStrs(texts) => {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            Some(texts.join(", "))
        }
        ContextValue::Number(number) => Some(number.to_string()),
        ContextValue::Bool(_) | ContextValue::None => None,
        _ => None,
    }
}

/// The error again, of the command with the texts, so that its help and its usage have them.
pub fn again(texts: &dyn Localize, words: &[OsString], error: Error) -> Error {
    match localized(texts).try_get_matches_from(words) {
        Err(again) => again,
        Ok(_) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I18N-05: the flag counts wherever it stands, but not among another program's arguments.
    #[test]
    fn i18n_05_the_language_is_found() {
        let check = |line: &str, wanted: Option<&str>| {
            let words = line.split(' ').map(OsString::from);
            assert_eq!(language_asked_for(words).as_deref(), wanted, "{line}");
        };
        check("a check --lang ja", Some("ja"));
        check("a --lang=ja --nonsense", Some("ja"));
        check("a exec -- x --lang ja", None);
        check("a check --lang", None);
    }
}
