//! `agent-mcp exec`: one confined command under the configured policy, or under the preset for the mode rooted at one
//! directory. Audited like a Task. The process has one thread until the command runs.

mod report;

use super::denials;
use super::opening::{flag_locale_or_built_in, load_configured_locale, load_flag_locale, say};
use crate::books::{Books, Writer};
use crate::cli::{ExecArgs, Explain, Mode};
use crate::deployment::{
    AbsenceGuard, Deployment, DeploymentError, Hashes, Narrowing, Threads, locate,
};
use crate::exit;
use crate::locale::{DEFAULT_LANGUAGE, Locale};
use crate::terminal::Terminal;
use policy::sandbox::{Enforcement, Finding, FindingKind, Level, SandboxError};
use policy::{Blame, Category, Code, Fault, Message, Refusal, SandboxMode, TraceId};
use record::Durable;
use record::audit::{Appended, AuditEvent, Decision, EventName};
use report::{Outcome, Program, Report};
use sandbox_linux::{ExecReport, HeadStart};
use std::path::{Path, PathBuf};

/// Does it. The exit code is the command's own, or 125, 126, 127; then a line that begins with `agent-mcp:` says why.
///
/// `begun` is what could be begun before the arguments were read.
pub fn run(arguments: &ExecArgs, begun: Option<HeadStart>) -> u8 {
    let lang = arguments.common.lang.as_deref();
    // Opened before anything runs: its name may lie where the command can put a link.
    let report = match Report::open(arguments) {
        Ok(report) => report,
        Err(fault) => {
            let locale = flag_locale_or_built_in(lang);
            Terminal::of_exec(&locale).fault(&fault);
            return exit::EXEC_SANDBOX;
        }
    };
    let (locale, outcome) = match open(arguments) {
        Ok((deployment, locale)) => {
            let outcome = confined(arguments, &deployment, begun, &Terminal::of_exec(&locale));
            (locale, outcome)
        }
        // Configuration errors are ours, not the command's.
        Err((locale, problem)) => {
            let code = match say(&Terminal::of_exec(&locale), &problem) {
                exit::REFUSED => exit::EXEC_REFUSED,
                _ => exit::EXEC_SANDBOX,
            };
            (locale, Outcome::without_policy(code, &problem))
        }
    };
    if let Err(fault) = report.write(&outcome) {
        Terminal::of_exec(&locale).fault(&fault);
        return exit::EXEC_SANDBOX;
    }
    outcome.code
}

/// The language to say it in, and what is wrong; where a locale is wrong it is said in what is compiled in.
type NotOpened = (Locale, DeploymentError);

fn compiled_in(lang: Option<&str>) -> Locale {
    Locale::built_in(lang.unwrap_or(DEFAULT_LANGUAGE))
}

fn open(arguments: &ExecArgs) -> Result<(Deployment, Locale), NotOpened> {
    let common = &arguments.common;
    let lang = common.lang.as_deref();
    let no_language = |faults| (compiled_in(lang), DeploymentError::Faults(faults));
    let flags = || load_flag_locale(lang).map_err(no_language);
    let cwd = || {
        std::env::current_dir().map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::PermissionDenied => Code::PermissionDenied,
                _ => Code::FileNotFound,
            };
            let fault = Fault::new(Blame::Client, code, "cwd", error);
            DeploymentError::Faults(vec![fault])
        })
    };
    let read = match locate(common.config.as_deref()) {
        Ok(read) => Some(read),
        Err(DeploymentError::NoConfiguration { .. }) => None,
        Err(problem) => return Err((flags()?, problem)),
    };
    let locale = match &read {
        Some(read) => load_configured_locale(lang, read).map_err(no_language)?,
        None => flags()?,
    };
    let max = read.as_ref().map_or(SandboxMode::WorkspaceWrite, |read| {
        read.loaded.config.sandbox.max_mode
    });
    let opened = mode(arguments, max).and_then(|mode| match read {
        Some(read) => {
            let narrowing = Narrowing {
                mode,
                root: arguments.root.clone(),
                cwd: Some(cwd()?),
            };
            // Sharing memory with the command takes one thread.
            let mut hashes = Hashes::of(&read.file, Threads::One);
            Deployment::with_hashes(read, &narrowing, &mut hashes)
        }
        None => {
            let root = match &arguments.root {
                Some(root) => root.clone(),
                None => cwd()?,
            };
            Deployment::preset(mode.unwrap_or(SandboxMode::WorkspaceWrite), &root)
        }
    });
    match opened {
        Ok(deployment) => Ok((deployment, locale)),
        Err(problem) => Err((locale, problem)),
    }
}

/// X-MODE: `danger-full-access` is no sandbox. It needs the configuration's leave and an action approval for each use.
fn mode(arguments: &ExecArgs, max: SandboxMode) -> Result<Option<SandboxMode>, DeploymentError> {
    match arguments.mode {
        None => Ok(None),
        Some(Mode::ReadOnly) => Ok(Some(SandboxMode::ReadOnly)),
        Some(Mode::WorkspaceWrite) => Ok(Some(SandboxMode::WorkspaceWrite)),
        Some(Mode::DangerFullAccess) => {
            let rule = if max < SandboxMode::DangerFullAccess {
                format!("sandbox.max_mode: {}", max.word())
            } else {
                "X-MODE: an action approval for each use".to_owned()
            };
            let target = SandboxMode::DangerFullAccess.word();
            let refusal = Refusal::new(Code::ApprovalRequired, rule, target);
            Err(DeploymentError::Refusals(vec![refusal]))
        }
    }
}

fn unrecorded(deployment: &Deployment) -> impl Fn(record::AuditError) -> Fault + '_ {
    |error| crate::books::fault(error.code(), &deployment.places.audit, error)
}

fn confined(
    arguments: &ExecArgs,
    deployment: &Deployment,
    begun: Option<HeadStart>,
    terminal: &Terminal<'_>,
) -> Outcome {
    let mut outcome = Outcome::under(&deployment.policy);
    if let Err(fault) = in_the_books(arguments, deployment, begun, terminal, &mut outcome) {
        terminal.fault(&fault);
        outcome.failed(exit::EXEC_SANDBOX, fault.code, &fault.to_string());
    }
    outcome
}

fn in_the_books(
    arguments: &ExecArgs,
    deployment: &Deployment,
    begun: Option<HeadStart>,
    terminal: &Terminal<'_>,
    outcome: &mut Outcome,
) -> Result<(), Fault> {
    let policy = &deployment.policy;
    let trace = TraceId::random();
    let program = arguments
        .argv
        .first()
        .map(|word| word.to_string_lossy().into_owned())
        .unwrap_or_default();
    // What is made now has to be there when the sandbox looks what it must mask; what is there already can be opened later.
    let made = deployment.places.state.exists() && deployment.places.key_file.exists();
    let mut written = if made {
        None
    } else {
        Some(Written::open(deployment)?)
    };
    let mut fault = None;
    let result = confine(arguments, deployment, begun, |confined, enforcement| {
        // The intent and what it runs under are on disk before the effect (DESIGN §12.3). All of this happens while the
        // sandbox is being built.
        outcome.program = confined.and_then(|path| program_record(&path));
        outcome.enforcement = Some(enforcement.clone());
        let recorded = match written.take() {
            Some(written) => Ok(written),
            None => Written::open(deployment),
        }
        .and_then(|written| {
            let applied = enforcement_event(trace, &program, enforcement);
            let start = AuditEvent::new(EventName::ProcessStart, trace)
                .decision(Decision::Allow)
                .target(program.clone())
                .detail("command", "exec")
                .detail("mode", policy.mode().word())
                .detail("root", policy.workspace_root().display().to_string())
                .details(identity(outcome.program.as_ref()))
                .details(redacted(&written.books, arguments));
            let recorded: Result<Durable<Appended>, _> = written
                .books
                .audit
                .append(applied)
                .and_then(|_| written.books.audit.append_durable(start));
            recorded.map(|_| written).map_err(unrecorded(deployment))
        });
        match recorded {
            Ok(recorded) => {
                written = Some(recorded);
                if enforcement.level() == Level::Partial {
                    let missing = words(enforcement).join(", ");
                    terminal.warn(&Message::new("exec.partial").with("missing", missing));
                }
                Ok(())
            }
            Err(error) => {
                let failed = SandboxError::Failed {
                    stage: "audit",
                    reason: error.to_string(),
                };
                fault = Some(error);
                Err(failed)
            }
        }
    });
    if let Some(fault) = fault {
        return Err(fault);
    }
    // What was refused before anything was built is recorded all the same.
    let Written { books, guard } = match written {
        Some(written) => written,
        None => Written::open(deployment)?,
    };
    let appeared = guard.check();
    let event = match &result {
        Ok(done) => AuditEvent::new(EventName::ProcessExit, trace)
            .target(program.clone())
            .detail("exit_code", done.end.exit_code())
            .detail("leftovers", done.leftovers)
            .detail("relayed", report::relayed(&done.relayed)),
        // The policy said no, or nothing may run here.
        Err(error) if error.code().category() == Category::PolicyDenied => {
            AuditEvent::new(EventName::PolicyDeny, trace)
                .decision(Decision::Deny)
                .code(error.code())
                .target(program.clone())
                .detail("reason", error.to_string())
        }
        // It was allowed and did not come to it.
        Err(error) => AuditEvent::new(EventName::ProcessExit, trace)
            .code(error.code())
            .target(program.clone())
            .detail("started", false)
            .detail("reason", error.to_string()),
    };
    books.audit.append(event).map_err(unrecorded(deployment))?;
    match result {
        Ok(done) => {
            for denied in denials::records(&done, trace) {
                books.audit.append(denied).map_err(unrecorded(deployment))?;
            }
            denials::say(terminal, policy, &done);
            for finding in &done.findings {
                say_finding(terminal, finding);
                let event = AuditEvent::new(EventName::SandboxFinding, trace)
                    .target(finding.path.display().to_string())
                    .detail("kind", finding.kind.word());
                books.audit.append(event).map_err(unrecorded(deployment))?;
            }
            outcome.ended(&done);
        }
        Err(error) => {
            let code = say_error(terminal, &error, &program);
            outcome.failed(code, error.code(), &error.to_string());
        }
    }
    if let Err(refusal) = appeared {
        let denied = AuditEvent::new(EventName::PolicyDeny, trace)
            .decision(Decision::Deny)
            .code(refusal.code)
            .target(refusal.target.clone());
        books.audit.append(denied).map_err(unrecorded(deployment))?;
        terminal.refusal(&refusal);
        outcome.failed(exit::EXEC_REFUSED, refusal.code, &refusal.target);
    }
    books
        .audit
        .close_in_memory()
        .map_err(unrecorded(deployment))
}

fn say_finding(terminal: &Terminal<'_>, finding: &Finding) {
    let id = match finding.kind {
        FindingKind::Appeared => "exec.finding.appeared",
        FindingKind::Changed => "exec.finding.changed",
    };
    terminal.warn(&Message::new(id).with("path", finding.path.display().to_string()));
}

/// HARNESS's three steps: confine, compare, run what came back. The hook gets the program's place and what is enforced.
fn confine(
    arguments: &ExecArgs,
    deployment: &Deployment,
    begun: Option<HeadStart>,
    mut before: impl FnMut(Option<PathBuf>, &Enforcement) -> Result<(), SandboxError>,
) -> Result<ExecReport, SandboxError> {
    let policy = &deployment.policy;
    let mut confined = sandbox_linux::confine(&arguments.argv, policy)?
        .in_directory(working_directory(policy.workspace_root()))
        .after(begun)
        .explaining(match arguments.explain {
            Explain::Off => sandbox_linux::Explain::Off,
            Explain::On => sandbox_linux::Explain::On,
            Explain::Opens => sandbox_linux::Explain::Opens,
        });
    if let Some(config) = &deployment.config {
        confined = confined.within(config.sandbox.resources.execution_timeout);
    }
    let permit = confined.enforcement().permit(policy)?;
    let program = confined.program();
    confined.run(permit, |enforcement| before(program.clone(), enforcement))
}

fn words(enforcement: &Enforcement) -> Vec<&'static str> {
    enforcement
        .missing_controls()
        .iter()
        .map(|control| control.word())
        .collect()
}

fn enforcement_event(trace: TraceId, program: &str, enforcement: &Enforcement) -> AuditEvent {
    AuditEvent::new(EventName::EnforcementReport, trace)
        .target(program.to_owned())
        .detail("level", enforcement.level().word())
        .detail("missing", words(enforcement))
}

/// What `exec` writes into.
struct Written {
    books: Books,
    guard: AbsenceGuard,
}

impl Written {
    fn open(deployment: &Deployment) -> Result<Self, Fault> {
        let books = Books::open(&deployment.places, Writer::Inline)?;
        let guard = AbsenceGuard::start(&deployment.policy, &deployment.places.state)?;
        Ok(Self { books, guard })
    }
}

/// The caller's own directory when it is inside the root, as any Unix tool; else the root.
fn working_directory(root: &Path) -> std::path::PathBuf {
    match std::env::current_dir().and_then(std::fs::canonicalize) {
        Ok(cwd) if cwd.starts_with(root) => cwd,
        _ => root.to_owned(),
    }
}

/// Largest program that is hashed for the record, bytes: larger ones would delay the start noticeably.
const HASHED_BYTES: u64 = 64 << 20;

/// The program's file and its bytes (X-EXE: the human's own choice is hashed and audited).
fn program_record(path: &Path) -> Option<Program> {
    let small = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= HASHED_BYTES);
    let pinned = crate::deployment::pin(path).ok().filter(|_| small)?;
    Some(Program {
        path: pinned.resolved,
        sha256: pinned.sha256,
    })
}

fn identity(program: Option<&Program>) -> serde_json::Map<String, serde_json::Value> {
    let mut detail = serde_json::Map::new();
    if let Some(program) = program {
        detail.insert("exe".to_owned(), program.path.display().to_string().into());
        detail.insert("sha256".to_owned(), program.sha256.to_string().into());
    }
    detail
}

fn redacted(books: &Books, arguments: &ExecArgs) -> serde_json::Map<String, serde_json::Value> {
    record::Redactor::new(&books.key).argv(&arguments.argv)
}

fn say_error(terminal: &Terminal<'_>, error: &SandboxError, program: &str) -> u8 {
    match error {
        SandboxError::Refused(refusal) => {
            terminal.refusal(refusal);
            match refusal.code {
                Code::SandboxPartial => exit::EXEC_SANDBOX,
                _ => exit::EXEC_REFUSED,
            }
        }
        SandboxError::NotFound(_) => {
            terminal.fault(&Fault::new(
                Blame::Client,
                Code::ProcessNotFound,
                program,
                "",
            ));
            exit::EXEC_NOT_FOUND
        }
        SandboxError::NotExecutable { .. } => {
            terminal.fault(&crate::compose::sandbox_fault(error));
            exit::EXEC_REFUSED
        }
        _ => {
            terminal.fault(&crate::compose::sandbox_fault(error));
            exit::EXEC_SANDBOX
        }
    }
}
