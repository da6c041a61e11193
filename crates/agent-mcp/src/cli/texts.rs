//! The help of every command and flag in the chosen language: clap's definitions come from the derive, their words from
//! the locale files (I18N-01).

use super::Cli;
use crate::locale::english;
use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command, CommandFactory};
use policy::{Localize, Message};

/// Flags with the same meaning, and so the same text, in every command.
const EVERYWHERE: [&str; 4] = ["config", "lang", "help", "version"];

/// The command line with its texts. Without one of its own a thing keeps what the code says; a test finds those.
pub fn localized(texts: &dyn Localize) -> Command {
    command(Cli::command().name("agent-mcp"), "", texts, true)
}

/// Ids of every text that the command line needs.
#[cfg(test)]
fn ids() -> Vec<String> {
    fn collect(command: &Command, path: &str, ids: &mut Vec<String>) {
        ids.push(about_id(path));
        for arg in command.get_arguments() {
            ids.push(arg_id(path, arg));
            if has_words(arg) {
                let values = arg.get_possible_values();
                ids.extend(values.iter().map(|value| value_id(path, arg, value)));
            }
        }
        for sub in command.get_subcommands() {
            collect(sub, &below(path, sub.get_name()), ids);
        }
    }
    let mut found = Vec::new();
    collect(&Cli::command(), "", &mut found);
    found
}

fn below(path: &str, name: &str) -> String {
    format!("{path}.{name}")
}

fn about_id(path: &str) -> String {
    format!("help{path}.about")
}

fn arg_id(path: &str, arg: &Arg) -> String {
    let id = arg.get_id().as_str();
    if EVERYWHERE.contains(&id) {
        return format!("help.{id}");
    }
    format!("help{path}.{id}")
}

fn value_id(path: &str, arg: &Arg, value: &PossibleValue) -> String {
    let name = value.get_name().replace('-', "_");
    format!("{}.{name}", arg_id(path, arg))
}

/// Whether the values explain themselves in the help; names of shells do not need to.
fn has_words(arg: &Arg) -> bool {
    arg.get_possible_values()
        .iter()
        .any(|value| value.get_help().is_some())
        && !matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse)
}

fn said(texts: &dyn Localize, id: &str) -> Option<String> {
    let (id, _) = english().get_key_value(id)?;
    Some(texts.text(&Message::new(id)))
}

fn command(mut command: Command, path: &str, texts: &dyn Localize, first: bool) -> Command {
    if let Some(about) = said(texts, &about_id(path)) {
        command = command.about(about);
    }
    // clap's own two, with our words.
    command = command
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .arg(
            Arg::new("help")
                .short('h')
                .long("help")
                .action(ArgAction::Help),
        );
    if first {
        command = command.arg(
            Arg::new("version")
                .short('V')
                .long("version")
                .action(ArgAction::Version),
        );
    }
    command = command.mut_args(|arg| argument(arg, path, texts));
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in names {
        let path = below(path, &name);
        command = command.mut_subcommand(&name, |sub| self::command(sub, &path, texts, false));
    }
    let template = template(&command, texts);
    command.help_template(template)
}

fn argument(arg: Arg, path: &str, texts: &dyn Localize) -> Arg {
    let Some(mut help) = said(texts, &arg_id(path, &arg)) else {
        return arg;
    };
    let takes_value = !matches!(
        arg.get_action(),
        ArgAction::SetTrue | ArgAction::Help | ArgAction::Version
    );
    if takes_value && !arg.get_default_values().is_empty() {
        let values = arg.get_default_values().iter();
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        let message = Message::new("help.default").with("value", values.join(", "));
        help.push_str(&format!(" [{}]", texts.text(&message)));
    }
    let values = if takes_value {
        arg.get_possible_values()
    } else {
        Vec::new()
    };
    if values.is_empty() {
        return if takes_value {
            arg.hide_default_value(true).help(help)
        } else {
            arg.help(help)
        };
    }
    let names: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
    let message = Message::new("help.values").with("values", names.join(", "));
    let short = format!("{help} [{}]", texts.text(&message));
    let mut long = help;
    for value in values.iter().filter(|_| has_words(&arg)) {
        let words = said(texts, &value_id(path, &arg, value)).unwrap_or_default();
        long.push_str(&format!("\n- {}: {words}", value.get_name()));
    }
    let long = if has_words(&arg) { long } else { short.clone() };
    arg.hide_default_value(true)
        .hide_possible_values(true)
        .help(short)
        .long_help(long)
}

/// The parts that are there, each under its heading.
fn template(command: &Command, texts: &dyn Localize) -> String {
    let heading = |id: &'static str| texts.text(&Message::new(id));
    let mut template = format!(
        "{{about-with-newline}}\n{} {{usage}}\n",
        heading("help.heading.usage")
    );
    let mut part = |there: bool, id, tag: &str| {
        if there {
            template.push_str(&format!("\n{}\n{tag}\n", heading(id)));
        }
    };
    part(
        command.has_subcommands(),
        "help.heading.commands",
        "{subcommands}",
    );
    let positional = command.get_positionals().next().is_some();
    part(positional, "help.heading.arguments", "{positionals}");
    part(true, "help.heading.options", "{options}");
    template
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locale::{Locale, japanese};

    /// I18N-01: every command, flag and value has its text in both languages, and no `help.` text is left over.
    #[test]
    fn i18n_01_all_of_the_command_line_has_texts() {
        let mut ids = ids();
        for id in &ids {
            assert!(english().contains_key(id), "{id} is not in en.json");
            assert!(japanese().contains_key(id), "{id} is not in ja.json");
        }
        ids.extend(["help.help", "help.version", "help.default", "help.values"].map(String::from));
        for id in english().keys().filter(|id| id.starts_with("help.")) {
            assert!(
                ids.contains(id) || id.starts_with("help.heading."),
                "{id} belongs to nothing"
            );
        }
    }

    /// I18N-07: no help keeps an English word of clap's in Japanese.
    #[test]
    fn i18n_07_help_is_japanese_all_through() {
        fn check(command: &mut Command) {
            let help = command.render_long_help().to_string();
            for word in [
                "Usage",
                "Options",
                "Commands",
                "Arguments",
                "Print",
                "default:",
                "values",
            ] {
                assert!(!help.contains(word), "{word}: {help}");
            }
            let names: Vec<String> = command
                .get_subcommands()
                .map(|sub| sub.get_name().to_owned())
                .collect();
            for name in names {
                check(command.find_subcommand_mut(&name).unwrap());
            }
        }
        let mut whole = localized(&Locale::built_in("ja"));
        whole.build();
        whole.clone().debug_assert();
        check(&mut whole);
    }
}
