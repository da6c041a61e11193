//! `confine DIR PROGRAM [ARGUMENT…]`: runs one command that can change DIR and nothing else, and has no network.
//!
//! `cargo run -p sandbox-linux --example confine -- . sh -c 'echo hello > note; cat ~/.ssh/id_ed25519; ls /'`
//!
//! `REPORT=1` also prints what was enforced and what came of it.

use sandbox_linux::policy::effective::{Ceiling, PolicyDraft, SandboxMode};
use sandbox_linux::policy::sandbox::SandboxError;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    // First, before any thread: the sandbox's helper is this program, executed again.
    sandbox_linux::init();
    let mut arguments = std::env::args_os().skip(1);
    let directory = arguments.next().unwrap_or_default();
    match run(Path::new(&directory), arguments.collect()) {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            eprintln!("confine: {why}");
            ExitCode::from(125)
        }
    }
}

fn run(directory: &Path, argv: Vec<OsString>) -> Result<u8, String> {
    // 1. A policy. Paths in it are absolute and free of links; freezing checks it, and nothing can change it afterwards.
    let workspace = directory
        .canonicalize()
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let mode = SandboxMode::WorkspaceWrite;
    let mut draft = PolicyDraft::preset(mode, &workspace);
    draft.resources.process_limit = 64;
    let policy = draft
        .freeze(&Ceiling::mode(mode))
        .map_err(|refusals| format!("{refusals:?}"))?;

    // 2. Confine the exact argv. Where that is impossible there is no other way to run it.
    let confined = sandbox_linux::confine(argv, &policy).map_err(|error| error.to_string())?;

    // 3. Decide about what this machine enforces. `permit` refuses what is partial unless the mode is read-only.
    let permit = confined
        .enforcement()
        .permit(&policy)
        .map_err(|refusal| SandboxError::from(refusal).to_string())?;

    // 4. Run it on our own streams. The closure sees what is really enforced before anything has started.
    let report = confined.run(permit, |_| Ok(()));
    let report = report.map_err(|error| error.to_string())?;
    if std::env::var_os("REPORT").is_some() {
        eprintln!("{report:?}");
    }
    Ok(u8::try_from(report.end.exit_code()).unwrap_or(125))
}
