//! `task DIR COUNT SCRIPT`: one Task's sandbox in which a shell script runs COUNT times, as a server would run a model's
//! commands. `cargo xtask soak` kills it at random instants.

use sandbox_linux::LinuxSandbox;
use sandbox_linux::policy::effective::{Ceiling, PolicyDraft, SandboxMode};
use sandbox_linux::policy::sandbox::{
    ProcessRequest, ProgramClass, ProgramIdentity, SandboxBackend as _, SandboxError,
};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

fn main() -> ExitCode {
    sandbox_linux::init();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match run(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            eprintln!("task: {why}");
            ExitCode::from(125)
        }
    }
}

fn run(arguments: &[OsString]) -> Result<u8, String> {
    let [directory, count, script] = arguments else {
        return Err("usage: task DIR COUNT SCRIPT".to_owned());
    };
    let text = |error: SandboxError| error.to_string();
    let workspace = std::fs::canonicalize(directory).map_err(|error| error.to_string())?;
    let count: u32 = count
        .to_string_lossy()
        .parse()
        .map_err(|_| "COUNT is a number".to_owned())?;
    let mode = SandboxMode::WorkspaceWrite;
    let mut draft = PolicyDraft::preset(mode, &workspace);
    draft.resources.execution_timeout = Duration::from_secs(60);
    let policy = draft
        .freeze(&Ceiling::mode(mode))
        .map_err(|refusals| format!("{refusals:?}"))?;
    let policy = Arc::new(policy);
    let request = ProcessRequest {
        program: ProgramIdentity {
            path: "/bin/sh".into(),
            class: ProgramClass::Operator,
            identity: None,
            sha256: None,
        },
        argv: vec!["sh".into(), "-c".into(), script.clone()],
        cwd: workspace,
        stdin: None,
        timeout: policy.resources().execution_timeout,
        spool_directory: None,
    };
    let prepared = LinuxSandbox.prepare(&policy, "task").map_err(text)?;
    let permit = prepared
        .enforcement()
        .permit(&policy)
        .map_err(|refusal| text(refusal.into()))?;
    let sandbox = prepared.start(permit).map_err(text)?;
    let mut code = 0;
    for _ in 0..count {
        let outcome = sandbox.run(&request).map_err(text)?;
        code = code.max(outcome.end.exit_code());
    }
    sandbox.end().map_err(text)?;
    Ok(u8::try_from(code).unwrap_or(125))
}
