//! `agent-mcp completions` and `agent-mcp man`: made from the command definitions, in the chosen language.

use super::opening::flag_locale;
use crate::cli::{CompletionsArgs, ManArgs, localized};
use crate::exit;
use crate::locale::Locale;
use crate::terminal::{Terminal, out_bytes};
use clap::Command;
use clap_mangen::Man;
use policy::{Blame, Code, Fault, Localize, Message};
use std::io::Error;
use std::path::Path;

/// Prints the completions for a shell.
pub fn completions(arguments: &CompletionsArgs) -> u8 {
    let locale = match flag_locale(arguments.lang.as_deref()) {
        Ok(locale) => locale,
        Err(code) => return code,
    };
    let mut script = Vec::new();
    let mut command = localized(&locale);
    clap_complete::generate(arguments.shell, &mut command, "agent-mcp", &mut script);
    out_bytes(&script);
    exit::OK
}

/// Prints the main page, or writes it and one for each command.
pub fn man(arguments: &ManArgs) -> u8 {
    let locale = match flag_locale(arguments.lang.as_deref()) {
        Ok(locale) => locale,
        Err(code) => return code,
    };
    let mut command = localized(&locale);
    command.build();
    let result = match &arguments.directory {
        None => page(&command, &locale).map(|text| out_bytes(&text)),
        Some(directory) => write_all(directory, &command, &locale),
    };
    match result {
        Ok(()) => exit::OK,
        Err(error) => {
            let place = arguments.directory.as_deref().unwrap_or(Path::new("-"));
            let place = place.display().to_string();
            Terminal::new(&locale).fault(&Fault::because(
                Blame::Machine,
                Code::ToolFailed,
                place,
                error,
            ));
            exit::FAILED
        }
    }
}

fn write_all(directory: &Path, command: &Command, locale: &Locale) -> Result<(), Error> {
    std::fs::create_dir_all(directory)?;
    let terminal = Terminal::new(locale);
    let mut waiting = vec![command.clone()];
    while let Some(command) = waiting.pop() {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let file = directory.join(format!("{name}.1"));
        std::fs::write(&file, page(&command, locale)?)?;
        terminal.say(&Message::new("init.wrote").with("path", file.display()));
        waiting.extend(command.get_subcommands().cloned());
    }
    Ok(())
}

/// One page. The headings that the generator writes are in English; the locale has them under `man.heading.…`.
fn page(command: &Command, texts: &dyn Localize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    Man::new(command.clone()).render(&mut bytes)?;
    let text = String::from_utf8(bytes).map_err(Error::other)?;
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let heading = line
            .strip_prefix(".SH ")
            .and_then(|word| HEADINGS.iter().find(|(name, _)| *name == word));
        match heading {
            Some((_, id)) => {
                out.push_str(".SH ");
                out.push_str(&texts.text(&Message::new(id)));
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    Ok(out.into_bytes())
}

const HEADINGS: [(&str, &str); 6] = [
    ("NAME", "man.heading.name"),
    ("SYNOPSIS", "man.heading.synopsis"),
    ("DESCRIPTION", "man.heading.description"),
    ("OPTIONS", "man.heading.options"),
    ("SUBCOMMANDS", "man.heading.commands"),
    ("VERSION", "man.heading.version"),
];
