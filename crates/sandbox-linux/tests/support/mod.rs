//! What the tests share: a world to attack, a policy for it, and both ways to run the probe.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod machine;
pub mod matrix;
pub mod probe;
pub mod probe_more;
pub mod rows;
pub mod tracer;
pub mod world;

use policy::effective::{
    Ceiling, FileIdentity, GrantedRoot, NetworkPolicy, Origin, PartialRule, PolicyDraft,
    RehashRule, ResourceLimits, RootKind, ShellRule,
};
use policy::sandbox::{
    Enforcement, PreparedSandbox, ProcessEnd, ProcessOutcome, ProcessRequest, ProgramClass,
    ProgramIdentity, SandboxBackend as _, SandboxError, TaskSandbox,
};
use policy::{EffectivePolicy, Rights, SandboxMode};
use sandbox_linux::{Explain, LinuxSandbox, confine};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A policy in a form that can be given to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    pub workspace: PathBuf,
    /// `r`, `w`, `x`, `d`.
    pub rights: String,
    /// Further roots with their rights.
    pub mounts: Vec<(PathBuf, String)>,
    pub private_network: bool,
    /// Network level `local`, when not empty.
    pub local: Vec<u16>,
    /// Network level `restricted`, when not empty.
    pub restricted: Vec<(String, u16)>,
    pub protect: Vec<PathBuf>,
    pub own_files: Vec<PathBuf>,
    pub memory_mb: u64,
    pub private_mb: u64,
    pub processes: u32,
    pub environment: Vec<(String, String)>,
    /// Mode `read-only` instead of `workspace-write`.
    pub read_only: bool,
    /// `sandbox.partial: deny`.
    pub deny_partial: bool,
    /// Somewhere else than the workspace.
    pub cwd: Option<PathBuf>,
}

impl Spec {
    pub fn new(workspace: &Path, rights: &str) -> Self {
        Self {
            workspace: workspace.to_path_buf(),
            rights: rights.into(),
            mounts: Vec::new(),
            private_network: false,
            local: Vec::new(),
            restricted: Vec::new(),
            protect: vec![".git/config".into(), ".git/hooks".into()],
            own_files: Vec::new(),
            memory_mb: 512,
            private_mb: 64,
            processes: 128,
            environment: Vec::new(),
            read_only: false,
            deny_partial: false,
            cwd: None,
        }
    }

    pub fn mode(&self) -> SandboxMode {
        if self.read_only {
            SandboxMode::ReadOnly
        } else {
            SandboxMode::WorkspaceWrite
        }
    }

    fn draft(&self) -> PolicyDraft {
        let root = |path: &Path, rights: &str, origin| GrantedRoot {
            path: path.to_path_buf(),
            kind: if path.is_dir() {
                RootKind::Directory
            } else {
                RootKind::File
            },
            rights: rights_of(rights),
            origins: [origin].into(),
        };
        let mut roots = vec![
            root(&self.workspace, &self.rights, Origin::Workspace),
            // The probe is this very file.
            root(&this_program(), "rx", Origin::ApprovedEntryExecutable),
        ];
        for (path, rights) in &self.mounts {
            roots.push(root(path, rights, Origin::Mount));
        }
        PolicyDraft {
            mode: self.mode(),
            roots,
            entries: Vec::new(),
            network: if !self.restricted.is_empty() {
                NetworkPolicy::Restricted {
                    endpoints: self.restricted.iter().cloned().collect(),
                }
            } else if !self.local.is_empty() {
                NetworkPolicy::Local {
                    ports: self.local.iter().copied().collect(),
                }
            } else if self.private_network {
                NetworkPolicy::Private
            } else {
                NetworkPolicy::None
            },
            resources: ResourceLimits {
                memory_bytes: self.memory_mb << 20,
                process_limit: self.processes,
                execution_timeout: Duration::from_secs(60),
                output_bytes: 64 << 10,
                private_bytes: self.private_mb << 20,
            },
            environment: self.environment.iter().cloned().collect(),
            protect: self.protect.clone(),
            own_files: self.own_files.clone(),
            shells: ShellRule::Allow,
            rehash: RehashRule::OnChange,
            partial: if self.deny_partial {
                PartialRule::Deny
            } else {
                PartialRule::ReadOnly
            },
            workspace_root: self.workspace.clone(),
        }
    }

    pub fn policy(&self) -> EffectivePolicy {
        self.draft().freeze(&Ceiling::mode(self.mode())).unwrap()
    }
}

/// For tests that change what a [`Spec`] cannot say.
pub fn draft_of(spec: &Spec) -> PolicyDraft {
    spec.draft()
}

fn rights_of(letters: &str) -> Rights {
    letters.chars().fold(Rights::NONE, |sum, letter| {
        sum | match letter {
            'r' => policy::Right::Read.into(),
            'w' => policy::Right::Write.into(),
            'x' => policy::Right::Execute.into(),
            'd' => Rights::from(policy::Right::Delete),
            other => panic!("no right {other}"),
        }
    })
}

pub fn this_program() -> PathBuf {
    std::env::current_exe().unwrap().canonicalize().unwrap()
}

/// Whether this run was given a part of cgroup v2 with memory and pids.
pub fn is_counted() -> bool {
    std::env::var_os("AGENT_MCP_TEST_CGROUP").is_some()
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory of the test's own that is not below `/tmp`, where the private area lies.
pub fn temporary() -> tempfile::TempDir {
    let base = std::env::var_os("SANDBOX_TEST_DIRECTORY").unwrap_or_else(|| "/var/tmp".into());
    tempfile::Builder::new()
        .prefix("sandbox-test-")
        .tempdir_in(base)
        .unwrap()
}

/// What a run came to, whichever way.
#[derive(Clone, Debug)]
pub struct Ran {
    pub end: Option<ProcessEnd>,
    /// The one-shot child's own status, or the code of the error.
    pub code: String,
    pub stdout: String,
    pub stderr: String,
}

/// How to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Once,
    Standing,
}

pub const WAYS: [Way; 2] = [Way::Once, Way::Standing];

/// Runs confined.
pub fn confined(way: Way, spec: &Spec, argv: &[&str]) -> Ran {
    match way {
        Way::Once => once(spec, argv),
        Way::Standing => {
            let sandbox = standing(spec);
            let ran = match sandbox.run(&request(spec, argv)) {
                Ok(outcome) => ran_of(&outcome),
                Err(error) => Ran {
                    end: None,
                    code: error.code().to_string(),
                    stdout: String::new(),
                    stderr: error.to_string(),
                },
            };
            sandbox.end().unwrap();
            ran
        }
    }
}

pub fn ran_of(outcome: &ProcessOutcome) -> Ran {
    Ran {
        end: Some(outcome.end),
        code: outcome.end.exit_code().to_string(),
        stdout: String::from_utf8_lossy(&outcome.stdout.head).into(),
        stderr: String::from_utf8_lossy(&outcome.stderr.head).into(),
    }
}

/// `Confined::run` needs a process with one thread, so a child of ours calls it.
pub fn once_command(spec: &Spec, argv: &[&str]) -> Command {
    let mut command = Command::new(this_program());
    command
        .arg("--once")
        .arg(serde_json::to_string(spec).unwrap())
        .args(argv)
        .stdin(Stdio::null());
    command
}

fn once(spec: &Spec, argv: &[&str]) -> Ran {
    let output = once_command(spec, argv).output().unwrap();
    Ran {
        end: None,
        code: output
            .status
            .code()
            .map_or("signal".into(), |code| code.to_string()),
        stdout: String::from_utf8_lossy(&output.stdout).into(),
        stderr: String::from_utf8_lossy(&output.stderr).into(),
    }
}

pub fn prepare(spec: &Spec) -> Result<Box<dyn PreparedSandbox>, SandboxError> {
    LinuxSandbox.prepare(&Arc::new(spec.policy()), "test")
}

pub fn standing(spec: &Spec) -> Arc<dyn TaskSandbox> {
    started(prepare(spec).unwrap(), spec)
}

pub fn started(prepared: Box<dyn PreparedSandbox>, spec: &Spec) -> Arc<dyn TaskSandbox> {
    let permit = prepared.enforcement().permit(&spec.policy()).unwrap();
    prepared.start(permit).unwrap()
}

pub fn request(spec: &Spec, argv: &[&str]) -> ProcessRequest {
    ProcessRequest {
        program: ProgramIdentity {
            path: argv[0].into(),
            class: ProgramClass::Operator,
            identity: None,
            sha256: None,
        },
        argv: argv.iter().map(OsString::from).collect(),
        cwd: spec.cwd.clone().unwrap_or_else(|| spec.workspace.clone()),
        stdin: None,
        // No test waits for it; an emulated machine is slow.
        timeout: Duration::from_secs(300),
        spool_directory: None,
    }
}

pub fn shell(spec: &Spec, script: &str) -> ProcessRequest {
    request(spec, &["/bin/sh", "-c", script])
}

pub fn identity_of(path: &Path) -> FileIdentity {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).unwrap();
    let ns = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.len(),
        modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
        changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
    }
}

/// Takes over when this process is a probe, a one-shot runner or the sandbox's helper.
pub fn take_over() {
    sandbox_linux::init();
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("--probe") => probe::main(&arguments[2..]),
        Some("--once") => once_main(&arguments[2], &arguments[3..]),
        Some("--standing") => standing_main(&arguments[2], &arguments[3..]),
        Some("--survey") => survey_main(&arguments[2]),
        Some("--machine") => machine::main(&arguments[2..]),
        _ => {}
    }
}

fn explain() -> Explain {
    match std::env::var("ONCE_EXPLAIN").as_deref() {
        Ok("off") => Explain::Off,
        Ok("opens") => Explain::Opens,
        _ => Explain::On,
    }
}

/// `exec`'s exit codes: 125 sandbox failure, 126 refused or not executable, 127 not found.
fn once_main(spec: &str, argv: &[String]) -> ! {
    let spec: Spec = serde_json::from_str(spec).unwrap();
    let timeout = std::env::var("ONCE_TIMEOUT_MS")
        .ok()
        .map(|ms| Duration::from_millis(ms.parse().unwrap()));
    let identity = std::env::var_os("ONCE_IDENTITY").map(|path| identity_of(Path::new(&path)));
    let policy = spec.policy();
    // A refusal here stands for a log that cannot be written.
    let before = |_: &Enforcement| match std::env::var_os("ONCE_UNRECORDED") {
        None => Ok(()),
        Some(_) => Err(SandboxError::Failed {
            stage: "record",
            reason: "asked for".to_owned(),
        }),
    };
    let result = confine(argv, &policy).and_then(|mut confined| {
        if let Some(identity) = identity {
            confined = confined.only(identity);
        }
        if let Some(cwd) = &spec.cwd {
            confined = confined.in_directory(cwd);
        }
        if let Some(timeout) = timeout {
            confined = confined.within(timeout);
        }
        confined = confined.explaining(explain());
        let permit = confined.enforcement().permit(&policy)?;
        confined.run(permit, before)
    });
    let code = match result {
        Ok(report) => {
            if std::env::var_os("ONCE_REPORT").is_some() {
                eprintln!("{report:?}");
            }
            if let Some(path) = std::env::var_os("ONCE_DENIALS") {
                let told =
                    serde_json::json!([report.explanation, report.denials, report.omitted_denials]);
                std::fs::write(path, told.to_string()).unwrap();
            }
            report.end.exit_code()
        }
        Err(error) => {
            eprintln!("{error}");
            code_of(&error)
        }
    };
    std::process::exit(code)
}

fn code_of(error: &SandboxError) -> i32 {
    match error {
        SandboxError::NotFound(_) => 127,
        SandboxError::NotExecutable { .. } | SandboxError::Refused(_) => 126,
        _ => 125,
    }
}

/// A standing sandbox for one program, with the same exit codes.
fn standing_main(spec: &str, argv: &[String]) -> ! {
    let spec: Spec = serde_json::from_str(spec).unwrap();
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let result = prepare(&spec).and_then(|prepared| {
        let permit = prepared.enforcement().permit(&spec.policy())?;
        let sandbox = prepared.start(permit)?;
        let outcome = sandbox.run(&request(&spec, &argv));
        sandbox.end()?;
        outcome
    });
    let code = match result {
        Ok(outcome) => {
            let ran = ran_of(&outcome);
            print!("{}", ran.stdout);
            eprint!("{}", ran.stderr);
            outcome.end.exit_code()
        }
        Err(error) => {
            eprintln!("{error}");
            code_of(&error)
        }
    };
    std::process::exit(code)
}

/// `LEVEL missing,missing`, or the error.
fn survey_main(spec: &str) -> ! {
    let spec: Spec = serde_json::from_str(spec).unwrap();
    match LinuxSandbox.survey(&spec.policy()) {
        Ok(enforcement) => {
            let words: Vec<&str> = enforcement
                .missing_controls()
                .iter()
                .map(|control| control.word())
                .collect();
            println!("{:?} {}", enforcement.level(), words.join(","));
        }
        Err(error) => println!("{error}"),
    }
    std::process::exit(0)
}

/// Writes an executable file. Another process writes it: a descriptor of ours would for a moment be open in whatever another
/// test's thread forks just then, and a file that is open for writing cannot be executed (`ETXTBSY`).
pub fn write_program(path: &Path, content: &[u8]) {
    use std::io::Write as _;
    let mut writer = std::process::Command::new("/bin/sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(content).unwrap();
    assert!(writer.wait().unwrap().success(), "{}", path.display());
}
