//! `once DIR PROGRAM [ARGUMENT…]`: one command confined to DIR, to measure and to try (P-1).

use policy::effective::{
    Ceiling, GrantedRoot, NetworkPolicy, Origin, PartialRule, PolicyDraft, RehashRule,
    ResourceLimits, RootKind, ShellRule,
};
use policy::{EffectivePolicy, Rights, SandboxMode};
use sandbox_linux::{ExecRequest, exec_once};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

fn policy(workspace: &Path) -> Result<EffectivePolicy, String> {
    PolicyDraft {
        mode: SandboxMode::WorkspaceWrite,
        roots: vec![GrantedRoot {
            path: workspace.to_path_buf(),
            kind: RootKind::Directory,
            rights: Rights::ALL,
            origins: [Origin::Workspace].into(),
        }],
        entries: Vec::new(),
        network: NetworkPolicy::None,
        resources: ResourceLimits {
            memory_bytes: 4 << 30,
            process_limit: 512,
            execution_timeout: Duration::from_secs(600),
            output_bytes: 64 << 10,
            private_bytes: 256 << 20,
        },
        environment: [].into(),
        protect: vec![".git/config".into(), ".git/hooks".into()],
        own_files: Vec::new(),
        shells: ShellRule::Allow,
        rehash: RehashRule::OnChange,
        partial: PartialRule::ReadOnly,
        workspace_root: workspace.to_path_buf(),
    }
    .freeze(&Ceiling::mode(SandboxMode::WorkspaceWrite))
    .map_err(|refusals| format!("{refusals:?}"))
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let directory: PathBuf = arguments.next().unwrap_or_default().into();
    let argv = arguments.collect();
    let run = || {
        let workspace = directory
            .canonicalize()
            .map_err(|error| error.to_string())?;
        let policy = policy(&workspace)?;
        let request = ExecRequest {
            argv,
            cwd: workspace,
            identity: None,
            timeout: None,
        };
        exec_once(&policy, &request, || Ok(())).map_err(|error| error.to_string())
    };
    match run() {
        Ok(report) => {
            if std::env::var_os("REPORT").is_some() {
                eprintln!("{report:?}");
            }
            ExitCode::from(report.end.exit_code() as u8)
        }
        Err(error) => {
            eprintln!("once: {error}");
            ExitCode::from(125)
        }
    }
}
