//! A runtime on a temporary workspace with a scripted model, real records, and a fake sandbox.
//!
//! The sandbox here confines nothing and starts nothing: it answers as a script says. What a real one enforces is tested
//! where it is made and, end to end, in the binary's tests.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "support of tests")]

use policy::config::Config;
use policy::effective::{
    Ceiling, EntryExecutable, EntryKind, FileIdentity, GrantedRoot, NetworkPolicy, Origin,
    PartialRule, RehashRule, ResourceLimits, RootKind, Sha256Digest, ShellRule,
};
use policy::sandbox::{
    CapturedOutput, Control, Enforcement, Finding, FindingKind, HostResource, PreparedSandbox,
    ProcessEnd, ProcessOutcome, ProcessRequest, SandboxBackend, SandboxError, StartPermit,
    TaskSandbox,
};
use policy::{
    EffectivePolicy, Localize, Message, NothingApplied, PolicyDraft, Rights, SandboxMode,
};
use record::clock::ManualClock;
use record::logs::{LlmLog, RollingLimits, SessionEvents};
use record::{AuditKey, AuditLog, Clock, Instance, Redactor, StateDirectory};
use runtime::ollama::Backoff;
use runtime::service::{ClientId, RunEvent, RunRequest, RunStatus, Submitted};
use runtime::{AgentService, Language, ModelParts, Records, RunLimits, RuntimeParts, ToolLimits};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use testkit::{Answer, PauseLog, Script, ScriptedModel};

/// One planned Task on the wire, with the numbers that most tests do not care about.
pub fn task(id: &str, description: &str, after: &[&str], effect: bool, tools: &[&str]) -> Value {
    json!({
        "id": id, "description": description, "depends_on": after, "budget_class": "8K",
        "optimistic_tokens": 100, "most_likely_tokens": 200, "pessimistic_tokens": 600,
        "requires_external_effect": effect, "required_tools": tools,
    })
}

pub fn plan(tasks: &[Value]) -> Answer {
    Answer::json(&json!({ "tasks": tasks }))
}

/// A plan with one Task that edits.
pub fn edit_plan() -> Answer {
    plan(&[task("t1", "write hello.txt", &[], true, &["file_edit"])])
}

pub fn write(path: &str, content: &str) -> Answer {
    Answer::call(
        "file_edit",
        json!({"path": path, "operation": "overwrite", "content": content}),
    )
}

pub fn read(path: &str) -> Answer {
    Answer::call("file_read", json!({"path": path}))
}

/// Texts as `id {placeholders}`, so that tests see what was asked for.
#[derive(Debug)]
struct PlainTexts;

impl Localize for PlainTexts {
    fn text(&self, message: &Message) -> String {
        let arguments: Vec<String> = message
            .arguments()
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let parts = message.parts().iter();
        let parts = parts.map(|(name, part)| format!("{name}={}", self.text(part)));
        let all: Vec<String> = arguments.into_iter().chain(parts).collect();
        format!("{} {{{}}}", message.id(), all.join(" "))
    }

    fn language(&self) -> &str {
        "en"
    }
}

/// What the fake sandbox does with a program.
pub type Program = Arc<dyn Fn(&ProcessRequest, &Path) -> ProcessOutcome + Send + Sync>;

pub struct FakeBackend {
    pub missing: Vec<Control>,
    pub unavailable: bool,
    pub residue: bool,
    pub program: Program,
    pub log: Arc<Mutex<Vec<String>>>,
    pub gate: Arc<(Mutex<bool>, Condvar)>,
}

impl std::fmt::Debug for FakeBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FakeBackend")
    }
}

pub fn exited(status: i32, stdout: &str) -> ProcessOutcome {
    ProcessOutcome {
        end: ProcessEnd::Exited { status },
        stdout: CapturedOutput {
            head: stdout.into(),
            total_bytes: stdout.len() as u64,
            ..CapturedOutput::default()
        },
        stderr: CapturedOutput::default(),
        elapsed: Duration::from_millis(1),
        denials: Vec::new(),
        leftovers: 0,
    }
}

struct FakePrepared {
    enforcement: Enforcement,
    sandbox: FakeSandbox,
}

struct FakeSandbox {
    residue: bool,
    program: Program,
    log: Arc<Mutex<Vec<String>>>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl SandboxBackend for FakeBackend {
    fn survey(&self, _: &EffectivePolicy) -> Result<Enforcement, SandboxError> {
        Ok(Enforcement::missing(self.missing.iter().copied()))
    }

    fn prepare(
        &self,
        _: &Arc<EffectivePolicy>,
        task: &str,
    ) -> Result<Box<dyn PreparedSandbox>, SandboxError> {
        if self.unavailable {
            return Err(SandboxError::Unavailable {
                stage: "user namespace",
                reason: "EPERM".into(),
            });
        }
        let task = task.rsplit('-').next().unwrap_or(task).to_owned();
        self.log.lock().unwrap().push(format!("prepare {task}"));
        Ok(Box::new(FakePrepared {
            enforcement: Enforcement::missing(self.missing.iter().copied()),
            sandbox: FakeSandbox {
                residue: self.residue,
                program: Arc::clone(&self.program),
                log: Arc::clone(&self.log),
                gate: Arc::clone(&self.gate),
            },
        }))
    }
}

impl PreparedSandbox for FakePrepared {
    fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    fn host_resources(&self) -> Vec<HostResource> {
        vec![HostResource::Cgroup {
            path: "/sys/fs/cgroup/fake".into(),
        }]
    }

    fn start(self: Box<Self>, _: StartPermit) -> Result<Arc<dyn TaskSandbox>, SandboxError> {
        self.sandbox.note("start");
        Ok(Arc::new(self.sandbox))
    }
}

impl FakeSandbox {
    fn note(&self, what: &str) {
        self.log.lock().unwrap().push(what.to_owned());
    }
}

impl TaskSandbox for FakeSandbox {
    fn run(&self, request: &ProcessRequest) -> Result<ProcessOutcome, SandboxError> {
        let words: Vec<String> = request
            .argv
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        self.note(&format!("run {}", words.join(" ")));
        if words.get(1).map(String::as_str) == Some("hang") {
            let (killed, changed) = &*self.gate;
            let mut killed = killed.lock().unwrap();
            while !*killed {
                killed = changed.wait(killed).unwrap();
            }
            return Ok(ProcessOutcome {
                end: ProcessEnd::Killed,
                ..exited(0, "")
            });
        }
        Ok((self.program)(request, &request.cwd))
    }

    /// Whatever was left, the fake found a repository.
    fn findings(&self) -> Vec<Finding> {
        let path = "/ws/new/.git".into();
        let kind = FindingKind::Appeared;
        self.residue
            .then_some(Finding { path, kind })
            .into_iter()
            .collect()
    }

    fn kill(&self) {
        self.note("kill");
        let (killed, changed) = &*self.gate;
        *killed.lock().unwrap() = true;
        changed.notify_all();
    }

    fn end(&self) -> Result<(), SandboxError> {
        self.note("end");
        if self.residue {
            let what = "a process".into();
            return Err(SandboxError::Residue { what });
        }
        Ok(())
    }
}

/// What a test changes.
pub type Change<T> = Box<dyn FnOnce(&mut T)>;

/// What a test may change before the start.
pub struct Setup {
    pub script: Script,
    pub limits: Option<Change<RunLimits>>,
    pub config: Option<Change<Config>>,
    pub missing: Vec<Control>,
    pub unavailable: bool,
    pub residue: bool,
    pub program: Program,
    pub user_prompt: Option<String>,
    pub asks: BTreeSet<policy::tool::Operation>,
    pub read_only: bool,
}

impl Setup {
    pub fn new(script: Script) -> Self {
        Self {
            script,
            limits: None,
            config: None,
            missing: Vec::new(),
            unavailable: false,
            residue: false,
            program: Arc::new(|_, _| exited(0, "done\n")),
            user_prompt: None,
            asks: BTreeSet::new(),
            read_only: false,
        }
    }
}

pub struct Stage {
    pub service: AgentService,
    pub model: ScriptedModel,
    pub pauses: PauseLog,
    pub clock: Arc<ManualClock>,
    pub audit: AuditLog,
    pub sandbox_log: Arc<Mutex<Vec<String>>>,
    pub instance: Instance,
    workspace: PathBuf,
    temporary: PathBuf,
    logs: PathBuf,
    // Last: removed when everything above is gone.
    _directory: TempDir,
}

pub fn stage(script: Script) -> Stage {
    build(Setup::new(script))
}

/// Must be called on a tokio runtime.
pub fn build(setup: Setup) -> Stage {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    let workspace = base.join("work");
    std::fs::create_dir(&workspace).unwrap();
    let program = base.join("programs/python3");
    std::fs::create_dir(base.join("programs")).unwrap();
    std::fs::write(&program, "#!/bin/false\n").unwrap();
    let model = ScriptedModel::start(setup.script);
    let mut config = Config::minimal("scripted").unwrap();
    config.ollama.endpoint = model.endpoint().parse().unwrap();
    if let Some(change) = setup.config {
        change(&mut config);
    }
    let mut limits = RunLimits::from_config(&config);
    if let Some(change) = setup.limits {
        change(&mut limits);
    }
    let pauses = PauseLog::default();
    let mut parts = ModelParts::from_config(&config);
    parts.backoff = Backoff::with_pause(pauses.pause());
    let clock = Arc::new(ManualClock::at("2026-01-02T03:04:05Z".parse().unwrap()));
    let shared: Arc<dyn Clock> = clock.clone();
    let state = StateDirectory::open(&base.join("state")).unwrap();
    let instance = Instance::claim(&state).unwrap();
    let key = AuditKey::open_or_create(&state, &base.join("state/audit.key")).unwrap();
    let audit = AuditLog::open(&instance, &key, Arc::clone(&shared)).unwrap();
    let logs = StateDirectory::open(&base.join("state/logs")).unwrap();
    let rolling = RollingLimits {
        max_file_bytes: 10 << 20,
        retained_files: 1,
    };
    let sandbox_log = Arc::new(Mutex::new(Vec::new()));
    let temporary = base.join("state/tmp");
    let runtime_parts = RuntimeParts {
        policy: Arc::new(policy_of(
            &workspace,
            &program,
            &base.join("state"),
            setup.read_only,
        )),
        standing: Arc::new(NothingApplied),
        sandbox: Arc::new(FakeBackend {
            missing: setup.missing,
            unavailable: setup.unavailable,
            residue: setup.residue,
            program: setup.program,
            log: Arc::clone(&sandbox_log),
            gate: Arc::default(),
        }),
        model: parts,
        limits,
        tools: ToolLimits::from_config(&config),
        asks: setup.asks,
        user_system_prompt: setup.user_prompt,
        skills: Vec::new(),
        language: Language {
            tag: "en".into(),
            name: "English".into(),
            instruction: String::new(),
        },
        texts: Arc::new(PlainTexts),
        temporary: temporary.clone(),
        clock: shared,
    };
    let records = Records {
        audit: audit.clone(),
        redactor: Redactor::new(&key),
        llm_log: LlmLog::open(&logs, "llm.jsonl", rolling).unwrap(),
        session_events: SessionEvents::open(&StateDirectory::open(instance.directory()).unwrap())
            .unwrap(),
    };
    Stage {
        service: AgentService::start(runtime_parts, records).unwrap(),
        model,
        pauses,
        clock,
        audit,
        sandbox_log,
        instance,
        workspace,
        temporary,
        logs: logs.path().to_owned(),
        _directory: directory,
    }
}

fn policy_of(workspace: &Path, program: &Path, state: &Path, read_only: bool) -> EffectivePolicy {
    let draft = PolicyDraft {
        mode: SandboxMode::WorkspaceWrite,
        roots: vec![GrantedRoot {
            path: workspace.to_owned(),
            kind: RootKind::Directory,
            rights: Rights::ALL,
            origins: BTreeSet::from([Origin::Workspace]),
        }],
        entries: vec![EntryExecutable {
            alias: "python3".into(),
            kind: EntryKind::Program,
            logical: program.to_owned(),
            resolved: program.to_owned(),
            sha256: sha256_of(program),
            identity: identity_of(program),
            runtime_root: None,
        }],
        network: NetworkPolicy::None,
        resources: ResourceLimits {
            memory_bytes: 1 << 30,
            process_limit: 64,
            execution_timeout: Duration::from_secs(60),
            output_bytes: 64 << 10,
            private_bytes: 64 << 20,
        },
        environment: Default::default(),
        protect: vec![".git/config".into(), ".git/hooks".into()],
        own_files: vec![state.to_owned()],
        shells: ShellRule::Allow,
        rehash: RehashRule::OnChange,
        partial: PartialRule::ReadOnly,
        workspace_root: workspace.to_owned(),
    };
    let mode = if read_only {
        SandboxMode::ReadOnly
    } else {
        SandboxMode::WorkspaceWrite
    };
    draft.freeze(&Ceiling::mode(mode)).unwrap()
}

fn sha256_of(path: &Path) -> Sha256Digest {
    use sha2::Digest;
    Sha256Digest(sha2::Sha256::digest(std::fs::read(path).unwrap()).into())
}

fn identity_of(path: &Path) -> FileIdentity {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).unwrap();
    let nanoseconds =
        |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
    }
}

pub fn request(text: &str) -> RunRequest {
    RunRequest {
        request: text.into(),
        session_id: None,
        temperature: None,
        images: Vec::new(),
        client: ClientId(1),
        cwd: None,
    }
}

impl Stage {
    pub fn path(&self, name: &str) -> PathBuf {
        self.workspace.join(name)
    }

    pub fn put(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub fn content(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }

    pub async fn submit(&self, text: &str) -> Submitted {
        self.service.submit(request(text)).await.unwrap()
    }

    /// Runs a request to its end.
    pub async fn run(&self, text: &str) -> RunStatus {
        self.run_request(request(text)).await
    }

    pub async fn run_request(&self, request: RunRequest) -> RunStatus {
        let submitted = self.service.submit(request).await.unwrap();
        self.finish(submitted).await.0
    }

    /// Waits for the end and returns every event.
    pub async fn finish(&self, submitted: Submitted) -> (RunStatus, Vec<RunEvent>) {
        let mut receiver = self.service.subscribe(submitted.run_id).await;
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            events.push(event);
        }
        match events.last() {
            Some(RunEvent::Finished(status)) => ((**status).clone(), events),
            other => panic!("the last event is {other:?}"),
        }
    }

    /// The audit log's lines.
    pub fn audited(&self) -> Vec<Value> {
        self.audit.flush().unwrap();
        let file = self.instance.directory().join("audit.0001.jsonl");
        lines(&file)
    }

    pub fn audited_as(&self, event: &str) -> Vec<Value> {
        self.audited()
            .into_iter()
            .filter(|line| line["event"] == event)
            .collect()
    }

    pub fn llm_log(&self) -> Vec<Value> {
        lines(&self.logs.join("llm.jsonl"))
    }

    /// Bodies of the chat requests so far.
    pub fn chats(&self) -> Vec<Value> {
        self.model
            .requests()
            .iter()
            .map(|request| serde_json::from_slice(&request.body).unwrap())
            .collect()
    }

    /// SEC-INV-10: no journal, no temporary directory.
    pub fn assert_clean(&self) {
        let journal = self.instance.directory().join("journal");
        for directory in [&journal, &self.temporary] {
            let left: Vec<_> = std::fs::read_dir(directory)
                .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
                .unwrap_or_default();
            assert!(left.is_empty(), "left behind: {left:?}");
        }
    }
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
