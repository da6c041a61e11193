//! `agent-mcp exec`: one confined command under the configured policy, or under the preset for the mode rooted at one
//! directory. Audited like a Task. The process has one thread until the command runs.

use super::opening::{configured_locale, flag_locale, report};
use crate::books::{Books, Writer};
use crate::cli::{ExecArgs, Mode};
use crate::deployment::{AbsenceGuard, Deployment, DeploymentError, Narrowing, locate};
use crate::exit;
use crate::locale::Locale;
use crate::terminal::{Terminal, err, json_line};
use policy::sandbox::{Level, SandboxError};
use policy::{Blame, Code, EffectivePolicy, Fault, Message, SandboxMode, TraceId};
use record::Durable;
use record::audit::{Appended, AuditEvent, Decision, EventName};
use sandbox_linux::{ExecReport, ExecRequest};
use std::path::Path;

/// Does it. The exit code is the command's own, or 125, 126, 127.
pub fn run(arguments: &ExecArgs) -> u8 {
    let (deployment, locale) = match open(arguments) {
        Ok(opened) => opened,
        // Usage and configuration errors are ours, not the command's.
        Err(exit::REFUSED) => return exit::EXEC_REFUSED,
        Err(_) => return exit::EXEC_SANDBOX,
    };
    let terminal = Terminal::new(&locale);
    match confined(arguments, &deployment, &terminal) {
        Ok(code) => code,
        Err(fault) => {
            terminal.fault(&fault);
            exit::EXEC_SANDBOX
        }
    }
}

fn open(arguments: &ExecArgs) -> Result<(Deployment, Locale), u8> {
    let common = &arguments.common;
    let mode = arguments.mode.map(|mode| match mode {
        Mode::ReadOnly => SandboxMode::ReadOnly,
        Mode::WorkspaceWrite => SandboxMode::WorkspaceWrite,
    });
    let cwd = || {
        std::env::current_dir().map_err(|error| {
            err(&format!("agent-mcp: {error}"));
            exit::EXEC_SANDBOX
        })
    };
    let read = match locate(common.config.as_deref()) {
        Ok(read) => read,
        Err(DeploymentError::NoConfiguration { .. }) => {
            let locale = flag_locale(common.lang.as_deref())?;
            let root = match &arguments.root {
                Some(root) => root.clone(),
                None => cwd()?,
            };
            return match Deployment::preset(mode.unwrap_or(SandboxMode::WorkspaceWrite), &root) {
                Ok(deployment) => Ok((deployment, locale)),
                Err(problem) => Err(report(&locale, &problem)),
            };
        }
        Err(problem) => return Err(report(&flag_locale(common.lang.as_deref())?, &problem)),
    };
    let narrowing = Narrowing {
        mode,
        root: arguments.root.clone(),
        cwd: Some(cwd()?),
    };
    let locale = configured_locale(common.lang.as_deref(), &read)?;
    match Deployment::of(read, &narrowing) {
        Ok(deployment) => Ok((deployment, locale)),
        Err(problem) => Err(report(&locale, &problem)),
    }
}

fn confined(
    arguments: &ExecArgs,
    deployment: &Deployment,
    terminal: &Terminal<'_>,
) -> Result<u8, Fault> {
    let policy = &deployment.policy;
    // Opened before anything runs: its name may lie where the command can put a link.
    let report = open_report(arguments)?;
    let trace = TraceId::random();
    let program = arguments
        .argv
        .first()
        .map(|word| word.to_string_lossy().into_owned())
        .unwrap_or_default();
    let unrecorded = |error: record::AuditError| {
        crate::books::fault(error.code(), &deployment.places.audit, error)
    };
    let request = ExecRequest {
        argv: arguments.argv.clone(),
        cwd: working_directory(policy.workspace_root()),
        identity: None,
        timeout: deployment
            .config
            .as_ref()
            .map(|config| config.sandbox.resources.execution_timeout),
    };
    // What is made now has to be there when the sandbox looks what it must mask; what is there already can be opened later.
    let made = deployment.places.state.exists() && deployment.places.key_file.exists();
    let mut written = if made {
        None
    } else {
        Some(Written::open(deployment)?)
    };
    let mut fault = None;
    // The intent is on disk before the effect (DESIGN §12.3). All of this happens while the sandbox is being built.
    let result = sandbox_linux::exec_once(policy, &request, || {
        let recorded = match written.take() {
            Some(written) => Ok(written),
            None => Written::open(deployment),
        }
        .and_then(|written| {
            let start = AuditEvent::new(EventName::ProcessStart, trace)
                .decision(Decision::Allow)
                .target(program.clone())
                .detail("command", "exec")
                .detail("mode", policy.mode().word())
                .detail("root", policy.workspace_root().display().to_string())
                .details(identity(policy, &request))
                .details(redacted(&written.books, arguments));
            let recorded: Result<Durable<Appended>, _> = written.books.audit.append_durable(start);
            recorded.map(|_| written).map_err(unrecorded)
        });
        match recorded {
            Ok(recorded) => {
                written = Some(recorded);
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
    let code = match &result {
        Ok(done) => {
            let missing: Vec<&str> = done
                .enforcement
                .missing_controls()
                .iter()
                .map(|control| control.word())
                .collect();
            let level = match done.enforcement.level() {
                Level::Full => "full",
                Level::Partial => {
                    terminal
                        .warn(&Message::new("exec.partial").with("missing", missing.join(", ")));
                    "partial"
                }
            };
            let enforcement = AuditEvent::new(EventName::EnforcementReport, trace)
                .target(program.clone())
                .detail("level", level)
                .detail("missing", missing);
            books.audit.append(enforcement).map_err(unrecorded)?;
            let end = AuditEvent::new(EventName::ProcessExit, trace)
                .target(program.clone())
                .detail("exit_code", done.end.exit_code())
                .detail("leftovers", done.leftovers);
            books.audit.append(end).map_err(unrecorded)?;
            u8::try_from(done.end.exit_code()).unwrap_or(exit::EXEC_SANDBOX)
        }
        Err(error) => {
            let denied = AuditEvent::new(EventName::PolicyDeny, trace)
                .decision(Decision::Deny)
                .code(error.code())
                .target(program.clone())
                .detail("reason", error.to_string());
            books.audit.append(denied).map_err(unrecorded)?;
            say_error(terminal, error, &program)
        }
    };
    let code = match appeared {
        Ok(()) => code,
        Err(refusal) => {
            let denied = AuditEvent::new(EventName::PolicyDeny, trace)
                .decision(Decision::Deny)
                .code(refusal.code)
                .target(refusal.target.clone());
            books.audit.append(denied).map_err(unrecorded)?;
            terminal.refusal(&refusal);
            exit::EXEC_REFUSED
        }
    };
    books.audit.close_in_memory().map_err(unrecorded)?;
    if arguments.report.is_some() {
        write_report(report, &result, code)?;
    }
    Ok(code)
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

/// The program as the sandbox will find it, and its bytes (X-EXE: the human's own choice is hashed and audited).
fn identity(
    policy: &EffectivePolicy,
    request: &ExecRequest,
) -> serde_json::Map<String, serde_json::Value> {
    let mut detail = serde_json::Map::new();
    let Some(name) = request.argv.first().map(Path::new) else {
        return detail;
    };
    let found = if name.components().count() > 1 || name.is_absolute() {
        Some(request.cwd.join(name))
    } else {
        let path = policy
            .environment()
            .get("PATH")
            .map_or(sandbox_linux::PATH, String::as_str);
        path.split(':')
            .map(|place| Path::new(place).join(name))
            .find(|place| place.is_file())
    };
    let Some(found) = found else { return detail };
    if std::fs::metadata(&found).is_ok_and(|metadata| metadata.len() <= HASHED_BYTES)
        && let Ok(pinned) = crate::deployment::pin(&found)
    {
        detail.insert(
            "exe".to_owned(),
            pinned.resolved.display().to_string().into(),
        );
        detail.insert("sha256".to_owned(), pinned.sha256.to_string().into());
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

/// The file that the report goes to, if one was named: a regular file, and no link at its end.
fn open_report(arguments: &ExecArgs) -> Result<Option<std::fs::File>, Fault> {
    let Some(path) = &arguments.report_file else {
        return Ok(None);
    };
    let refused = |error: std::io::Error| crate::books::fault(Code::ToolFailed, path, error);
    let mut options = std::fs::File::options();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.custom_flags(flags.bits() as i32);
    }
    let file = options.open(path).map_err(refused)?;
    if !file.metadata().map_err(refused)?.is_file() {
        return Err(refused(std::io::Error::other("not a regular file")));
    }
    file.set_len(0).map_err(refused)?;
    Ok(Some(file))
}

fn write_report(
    file: Option<std::fs::File>,
    result: &Result<ExecReport, SandboxError>,
    code: u8,
) -> Result<(), Fault> {
    use std::io::Write;
    let object = match result {
        Ok(done) => serde_json::json!({
            "v": 1, "exit_code": code, "end": done.end, "enforcement": done.enforcement,
            "elapsed_ms": done.elapsed.as_secs_f64() * 1e3, "leftovers": done.leftovers,
        }),
        Err(error) => {
            serde_json::json!({ "v": 1, "exit_code": code, "error": { "code": error.code().as_str(), "detail": error.to_string() } })
        }
    };
    match file {
        None => err(&json_line(&object)),
        Some(mut file) => writeln!(file, "{}", json_line(&object)).map_err(|error| {
            crate::books::fault(Code::ToolFailed, Path::new("--report-file"), error)
        })?,
    }
    Ok(())
}
