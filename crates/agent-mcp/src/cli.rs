//! The command line (X-CLI). No flag widens the sandbox policy or sets a sampling value.
//!
//! The comments here are for who reads the code. What people see is in the locale files, under `help.…` (I18N-01).

mod texts;
mod usage;

pub use texts::localized;
pub use usage::{again, language_asked_for, tell};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Lets an agent hand over work to a local model; lets nothing happen that a human did not allow.
#[derive(Debug, Parser)]
#[command(
    name = "agent-mcp",
    version,
    propagate_version = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags that every command takes.
#[derive(Debug, Clone, Default, Args)]
pub struct Common {
    /// Configuration file. Without it: agent.yaml or .agent-mcp/agent.yaml in this directory or above it, then
    /// agent-mcp/agent.yaml in the user's configuration directory, then /etc/agent-mcp/agent.yaml.
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Language of everything that is printed, and of the model's final answer: en, ja, or a file of the locale directory.
    #[arg(long, value_name = "LOCALE")]
    pub lang: Option<String>,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Be the MCP server.
    Serve(ServeArgs),
    /// Check configuration, locales, Ollama and what this machine can enforce. Changes nothing.
    Check(CheckArgs),
    /// Show what the configuration grants and what changed, ask once, and apply it. `serve` and `run` demand it.
    Apply(ApplyArgs),
    /// Show what the configuration grants on this machine, and what of it is applied. Changes nothing.
    Show(ShowArgs),
    /// Do one piece of work at this terminal: plan, progress, tokens, answer.
    Run(RunArgs),
    /// Run one command confined, without any model.
    Exec(ExecArgs),
    /// See everything work on this machine with an embedded recorded model, in a temporary workspace.
    Demo(DemoArgs),
    /// Verify or read the signed audit log.
    Audit(AuditArgs),
    /// Write a commented configuration, locales, a skill and a box into a directory. Never overwrites.
    Init(InitArgs),
    /// Print the completions for a shell.
    Completions(CompletionsArgs),
    /// Print the manual page, or write one for each command into a directory.
    Man(ManArgs),
}

/// `serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Common flags.
    #[command(flatten)]
    pub common: Common,
    /// Transport; the configuration's, if not given.
    #[arg(long, value_enum)]
    pub transport: Option<Transport>,
}

/// MCP transports (MCP-TR-01, MCP-TR-02).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Standard input and output.
    Stdio,
    /// Streamable HTTP on loopback.
    Http,
}

/// `check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Common flags.
    #[command(flatten)]
    pub common: Common,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// `apply`
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Common flags.
    #[command(flatten)]
    pub common: Common,
    /// Apply without asking.
    #[arg(long)]
    pub yes: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// `show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Common flags.
    #[command(flatten)]
    pub common: Common,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// `run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Common flags.
    #[command(flatten)]
    pub common: Common,
    /// The work, in plain language.
    #[arg(value_name = "REQUEST")]
    pub request: String,
    /// An image to send along; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,
    /// Print one JSON event a line instead of text.
    #[arg(long)]
    pub json: bool,
}

/// `exec`
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Common flags.
    #[command(flatten)]
    pub common: Common,
    /// Sandbox mode; can only narrow a configured policy. Without a configuration: workspace-write.
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// Directory to work in; without a configuration the only one that can be changed. Default: the current directory.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Write what was enforced, as JSON, to standard error or to --report-file.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub report: Option<Report>,
    /// Where --report goes.
    #[arg(long, value_name = "FILE", requires = "report")]
    pub report_file: Option<PathBuf>,
    /// Say what the sandbox refused and why. `opens` looks at every file that is opened too, which takes 1.1 to 4 times as long.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "on")]
    pub explain: Explain,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "ARGV")]
    pub argv: Vec<OsString>,
}

/// Modes that `exec` offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Nothing can be changed.
    ReadOnly,
    /// The root can be changed.
    WorkspaceWrite,
    /// No confinement; refused here, because each use needs a person's approval.
    DangerFullAccess,
}

/// What `exec` explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Explain {
    /// Nothing.
    Off,
    /// Refused changes, programs, network, and files that are not there.
    On,
    /// Also every file that is opened for reading.
    Opens,
}

/// Report formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Report {
    /// One JSON object.
    Json,
}

/// `demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Language of everything that is printed.
    #[arg(long, value_name = "LOCALE")]
    pub lang: Option<String>,
    /// Only serve the recorded model and print its endpoint, until interrupted.
    #[arg(long)]
    pub model_only: bool,
    /// Keep the temporary workspace and state.
    #[arg(long)]
    pub keep: bool,
}

/// `completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: clap_complete::Shell,
    /// Language of the descriptions.
    #[arg(long, value_name = "LOCALE")]
    pub lang: Option<String>,
}

/// `man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory to write into; made if it is not there.
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Language of the pages.
    #[arg(long, value_name = "LOCALE")]
    pub lang: Option<String>,
}

/// `audit`
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// What to do with the log.
    #[command(subcommand)]
    pub action: AuditAction,
}

/// `audit …`
#[derive(Debug, Subcommand)]
pub enum AuditAction {
    /// Verify every instance's signatures, chain and end.
    Verify(AuditVerifyArgs),
    /// Print records.
    Show(AuditShowArgs),
}

/// `audit verify`
#[derive(Debug, Args)]
pub struct AuditVerifyArgs {
    /// Common flags.
    #[command(flatten)]
    pub common: Common,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `audit show`
#[derive(Debug, Args)]
pub struct AuditShowArgs {
    /// Common flags.
    #[command(flatten)]
    pub common: Common,
    /// Only this run (the public task id).
    #[arg(long, value_name = "TASK_ID")]
    pub run: Option<String>,
    /// Only this trace.
    #[arg(long, value_name = "TRACE_ID")]
    pub trace: Option<String>,
    /// Only this event, such as policy.deny.
    #[arg(long, value_name = "EVENT")]
    pub event: Option<String>,
    /// Print the records as they are.
    #[arg(long)]
    pub json: bool,
}

/// `init`
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Directory to write into; made if it is not there. A directory called .agent-mcp makes the directory around it the workspace.
    #[arg(value_name = "DIR", default_value = ".agent-mcp")]
    pub directory: PathBuf,
    /// Language of everything that is printed, and of the new configuration.
    #[arg(long, value_name = "LOCALE")]
    pub lang: Option<String>,
    /// Where Ollama answers.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:11434")]
    pub ollama: String,
}
