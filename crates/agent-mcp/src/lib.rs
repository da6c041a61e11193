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
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = match (error.use_stderr(), is_exec()) {
                (false, _) => exit::OK,
                (true, false) => exit::USAGE,
                // 2 could be the command's own.
                (true, true) => {
                    let text = error.render().to_string();
                    for line in text.lines().filter(|line| !line.trim().is_empty()) {
                        terminal::err(&format!("agent-mcp: {line}"));
                    }
                    return ExitCode::from(exit::EXEC_SANDBOX);
                }
            };
            drop(error.print());
            return ExitCode::from(code);
        }
    };
    let code = match cli.command {
        Command::Exec(arguments) => commands::exec::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::Audit(arguments) => commands::audit::run(&arguments),
        Command::Init(arguments) => commands::init::run(&arguments),
    };
    ExitCode::from(code)
}

/// Whether `exec` was asked for, where the command line could not be read.
fn is_exec() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "exec")
}
