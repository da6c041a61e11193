//! The composition root: command line, configuration loading, locales, demo.
//!
//! Absent here: no rule is decided (that is `policy`), nothing is enforced (that is the sandbox backend), no process is
//! started but through it, and only [`terminal`] writes to standard output.
#![forbid(unsafe_code)]

mod books;
pub mod cli;
mod commands;
pub mod compose;
pub mod deployment;
mod exit;
mod interrupt;
pub mod locale;
mod logging;
mod models;
pub mod recorded;
pub mod table;
mod terminal;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

/// Parses the command line and does it.
pub fn main() -> ExitCode {
    // Before anything is read, for one command: what does not depend on what is read.
    let begun = std::env::args_os()
        .nth(1)
        .filter(|word| word == "exec")
        .and_then(|_| sandbox_linux::HeadStart::begin());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(not_read(error)),
    };
    let code = match cli.command {
        Command::Exec(arguments) => commands::exec::run(&arguments, begun),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Apply(arguments) => commands::apply::run(&arguments),
        Command::Show(arguments) => commands::show::run(&arguments),
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::Audit(arguments) => commands::audit::run(&arguments),
        Command::Init(arguments) => commands::init::run(&arguments),
        Command::Completions(arguments) => commands::generate::completions(&arguments),
        Command::Man(arguments) => commands::generate::man(&arguments),
    };
    ExitCode::from(code)
}

/// Help and version, or what is wrong with the command line, in the language of the flag.
fn not_read(error: clap::Error) -> u8 {
    let words: Vec<_> = std::env::args_os().collect();
    let language = cli::language_asked_for(words.iter().skip(1).cloned());
    let locale = commands::flag_locale_or_built_in(language.as_deref());
    let error = cli::again(&locale, &words, error);
    if !error.use_stderr() {
        drop(error.print());
        return exit::OK;
    }
    // 2 could be the command's own.
    let (prefix, code) = if words.get(1).is_some_and(|word| word == "exec") {
        ("agent-mcp: ", exit::EXEC_SANDBOX)
    } else {
        ("", exit::USAGE)
    };
    for line in cli::tell(&locale, &error) {
        terminal::err(&format!("{prefix}{line}"));
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        drop(error.print());
    }
    code
}
