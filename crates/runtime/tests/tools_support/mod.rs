//! A world for tool tests: a granted workspace, a place outside of it, our own files inside of it, and a log.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test stops where its setting fails")]

use policy::call::{ProposedCall, Scope};
use policy::effective::{
    Ceiling, EffectivePolicy, EntryExecutable, EntryKind, FileIdentity, GrantedRoot, NetworkPolicy,
    Origin, PartialRule, PolicyDraft, RehashRule, ResourceLimits, RootKind, SandboxMode,
    Sha256Digest, ShellRule,
};
use policy::layers::PermissionLayers;
use policy::sandbox::TaskSandbox;
use policy::tool::ToolName;
use policy::{Blame, Code, Fault, Refusal, Rights, Untrusted};
use runtime::tools::{
    EffectEnd, EffectLog, Fuse, Intent, ToolContext, ToolLimits, ToolResult, Walker, dispatch,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What was recorded, and how it ended.
#[derive(Default)]
pub struct Log {
    pub entries: Mutex<Vec<(Intent, Option<EffectEnd>)>>,
    pub refuses: AtomicBool,
}

impl EffectLog for Log {
    type Token = usize;

    fn before(&self, intent: &Intent) -> Result<usize, Fault> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(Fault::new(
                Blame::Machine,
                Code::AuditUnavailable,
                "audit",
                "disk full",
            ));
        }
        let mut entries = self.entries.lock().unwrap();
        entries.push((intent.clone(), None));
        Ok(entries.len() - 1)
    }

    fn after(&self, token: usize, end: EffectEnd) -> Result<(), Fault> {
        self.entries.lock().unwrap()[token].1 = Some(end);
        Ok(())
    }
}

impl Log {
    pub fn ends(&self) -> Vec<Option<EffectEnd>> {
        self.entries
            .lock()
            .unwrap()
            .iter()
            .map(|(_, end)| *end)
            .collect()
    }
}

pub struct World {
    _directory: tempfile::TempDir,
    pub workspace: PathBuf,
    pub outside: PathBuf,
    pub temp: PathBuf,
    pub policy: Arc<EffectivePolicy>,
    pub walker: Walker,
    pub log: Log,
    pub limits: ToolLimits,
}

/// How a world differs from the usual one.
pub struct Setting {
    pub rights: Rights,
    pub more_roots: fn(&Path) -> Vec<GrantedRoot>,
    pub entries: fn(&Path) -> Vec<EntryExecutable>,
    pub rehash: RehashRule,
    pub shells: ShellRule,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            rights: Rights::ALL,
            more_roots: |_| Vec::new(),
            entries: |_| Vec::new(),
            rehash: RehashRule::OnChange,
            shells: ShellRule::Allow,
        }
    }
}

pub const SECRET: &str = "the secret outside";

pub fn root(
    path: impl Into<PathBuf>,
    kind: RootKind,
    rights: Rights,
    origin: Origin,
) -> GrantedRoot {
    GrantedRoot {
        path: path.into(),
        kind,
        rights,
        origins: BTreeSet::from([origin]),
    }
}

pub fn identity(path: &Path) -> FileIdentity {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    let ns = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.len(),
        modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
        changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
    }
}

pub fn sha256(bytes: &[u8]) -> Sha256Digest {
    Sha256Digest(Sha256::digest(bytes).into())
}

pub fn entry(alias: &str, path: &Path) -> EntryExecutable {
    EntryExecutable {
        alias: alias.to_owned(),
        kind: EntryKind::of(path),
        logical: path.to_owned(),
        resolved: path.canonicalize().unwrap(),
        sha256: sha256(&std::fs::read(path).unwrap()),
        identity: identity(path),
        runtime_root: None,
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(&Setting::default())
    }

    /// `base/ws` is the workspace, with `ws/own` as our own files; `base/outside` is not granted.
    pub fn with(setting: &Setting) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let (workspace, outside, temp) = (base.join("ws"), base.join("outside"), base.join("temp"));
        for path in [
            &workspace,
            &outside,
            &temp,
            &workspace.join("own"),
            &base.join("bin"),
        ] {
            std::fs::create_dir(path).unwrap();
        }
        std::fs::write(outside.join("secret.txt"), SECRET).unwrap();
        std::fs::write(workspace.join("own/journal.json"), SECRET).unwrap();
        std::fs::write(base.join("bin/prog"), "#!/bin/true\n").unwrap();
        std::fs::write(base.join("single.txt"), "one granted file\n").unwrap();
        let mut roots = vec![root(
            &workspace,
            RootKind::Directory,
            setting.rights,
            Origin::Workspace,
        )];
        roots.extend((setting.more_roots)(&base));
        let policy = PolicyDraft {
            mode: SandboxMode::WorkspaceWrite,
            roots,
            entries: (setting.entries)(&base),
            network: NetworkPolicy::None,
            resources: ResourceLimits {
                memory_bytes: 1 << 30,
                process_limit: 64,
                execution_timeout: Duration::from_secs(60),
                output_bytes: 64 * 1024,
                private_bytes: 1 << 26,
            },
            environment: BTreeMap::new(),
            protect: vec![".git/config".into(), ".git/hooks".into()],
            own_files: vec![workspace.join("own")],
            shells: setting.shells,
            rehash: setting.rehash,
            partial: PartialRule::Deny,
            workspace_root: workspace.clone(),
        }
        .freeze(&Ceiling::mode(SandboxMode::WorkspaceWrite))
        .unwrap();
        let walker = Walker::open(&policy).unwrap();
        Self {
            _directory: directory,
            workspace,
            outside,
            temp,
            policy: Arc::new(policy),
            walker,
            log: Log::default(),
            limits: ToolLimits::default(),
        }
    }

    pub fn base(&self) -> &Path {
        self.workspace.parent().unwrap()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.workspace.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.workspace.join(name)).unwrap()
    }

    pub fn link(&self, target: impl AsRef<Path>, name: &str) {
        std::os::unix::fs::symlink(target, self.workspace.join(name)).unwrap();
    }

    /// A whole call: all stages, then the dispatcher.
    pub fn call(&self, tool: &str, arguments: Value) -> ToolResult {
        self.call_with(tool, arguments, None, None)
    }

    pub fn call_with(
        &self,
        tool: &str,
        arguments: Value,
        sandbox: Option<&dyn TaskSandbox>,
        fuse: Option<&(dyn Fn(Fuse) + Sync)>,
    ) -> ToolResult {
        let context = ToolContext {
            policy: &self.policy,
            walker: &self.walker,
            limits: self.limits,
            effect_log: &self.log,
            sandbox,
            task_temp: &self.temp,
            cancelled: None,
            fuse,
        };
        match self.approve(tool, arguments) {
            Ok(call) => dispatch(call, &context),
            Err(refusal) => refusal.into(),
        }
    }

    pub fn approve(
        &self,
        tool: &str,
        arguments: Value,
    ) -> Result<policy::call::ApprovedCall, Refusal> {
        let all = BTreeSet::from(ToolName::ALL);
        let scope = Scope {
            whitelist: all.clone(),
            required_tools: all,
        };
        let proposed = ProposedCall {
            tool: Untrusted::new(tool.to_owned()),
            arguments: Untrusted::new(arguments),
        };
        let mut layers = PermissionLayers::default_box(BTreeSet::new());
        let permitted = proposed
            .validate()?
            .scope(&scope)?
            .plausible()?
            .permit(&mut layers)?;
        let walked = self.walker.walk_call(&self.policy, permitted.arguments())?;
        permitted.resolve(&self.policy, walked)?.approve()
    }

    /// No file of ours is left beside the files we edited, and no backup in the Task's directory.
    pub fn assert_clean(&self) {
        let mut waiting = vec![self.base().to_owned()];
        while let Some(directory) = waiting.pop() {
            for entry in std::fs::read_dir(&directory).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().to_string_lossy().into_owned();
                assert!(
                    !name.starts_with(".agent-mcp-") && !name.starts_with("backup-"),
                    "{:?}",
                    entry.path()
                );
                if entry.file_type().unwrap().is_dir() {
                    waiting.push(entry.path());
                }
            }
        }
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A refusal with its code, nothing done.
#[track_caller]
pub fn assert_refused(result: &ToolResult, code: Code) {
    assert_eq!(result.code, Some(code), "{}", result.output);
    assert!(!result.ok && result.effects.is_empty());
    assert!(!result.output.contains(SECRET), "{}", result.output);
    if code.category() == policy::Category::PolicyDenied {
        assert!(!result.retry_allowed, "DESIGN §7.8");
    }
}

#[track_caller]
pub fn assert_ok(result: &ToolResult) {
    assert!(result.ok, "{}", result.output);
}
