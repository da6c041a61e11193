//! A small world to judge in: `/w` is a workspace, `/opt/py` a runtime root, `/m` a mount, `/w/agent.yaml` is ours.
#![allow(dead_code, reason = "every test file uses its own part")]

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use policy::call::{ApprovedCall, ProgramFacts, ProposedCall, Scope, WalkedTargets};
use policy::effective::{
    Ceiling, EntryExecutable, EntryKind, FileIdentity, GrantedRoot, NetworkPolicy, Origin,
    PartialRule, RehashRule, ResourceLimits, RootKind, Sha256Digest, ShellRule,
};
use policy::layers::PermissionLayers;
use policy::path::{ObjectFacts, ObjectKind, WalkedPath};
use policy::tool::{Operation, ToolName};
use policy::{EffectivePolicy, PolicyDraft, Refusal, Right, Rights, SandboxMode, Untrusted};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `"rwxd"` in any part.
pub fn rights(letters: &str) -> Rights {
    letters.chars().fold(Rights::NONE, |sum, letter| {
        sum | Rights::from(match letter {
            'r' => Right::Read,
            'w' => Right::Write,
            'x' => Right::Execute,
            'd' => Right::Delete,
            _ => panic!("no right is called {letter}"),
        })
    })
}

pub fn root(path: &str, letters: &str, origin: Origin) -> GrantedRoot {
    GrantedRoot {
        path: PathBuf::from(path),
        kind: RootKind::Directory,
        rights: rights(letters),
        origins: BTreeSet::from([origin]),
    }
}

pub fn file_root(path: &str, letters: &str, origin: Origin) -> GrantedRoot {
    GrantedRoot {
        kind: RootKind::File,
        ..root(path, letters, origin)
    }
}

/// A file whose identity is told by one number.
pub fn identity(number: u64) -> FileIdentity {
    FileIdentity {
        device: 1,
        inode: number,
        size: 10,
        modified_ns: 20,
        changed_ns: 30,
    }
}

/// Bytes told by one number.
pub fn digest(number: u8) -> Sha256Digest {
    Sha256Digest([number; 32])
}

/// An entry of file and bytes number `number`.
pub fn entry(alias: &str, logical: &str, resolved: &str, number: u8) -> EntryExecutable {
    EntryExecutable {
        alias: alias.to_owned(),
        kind: EntryKind::of(Path::new(resolved)),
        logical: PathBuf::from(logical),
        resolved: PathBuf::from(resolved),
        sha256: digest(number),
        identity: identity(number.into()),
        runtime_root: None,
    }
}

pub fn draft() -> PolicyDraft {
    let mut python = entry("python", "/usr/bin/python3", "/opt/py/bin/python3.11", 1);
    python.runtime_root = Some(PathBuf::from("/opt/py"));
    PolicyDraft {
        mode: SandboxMode::WorkspaceWrite,
        roots: vec![
            root("/w", "rwxd", Origin::Workspace),
            root("/m", "rw", Origin::Mount),
            root("/ro", "r", Origin::Mount),
            root("/opt/py", "rx", Origin::RuntimeRoot),
            file_root(
                "/opt/py/bin/python3.11",
                "rx",
                Origin::ApprovedEntryExecutable,
            ),
            file_root("/usr/bin/dash", "rx", Origin::ApprovedShellExecutable),
            file_root("/usr/bin/git", "rx", Origin::ApprovedEntryExecutable),
        ],
        entries: vec![
            python,
            entry("sh", "/bin/sh", "/usr/bin/dash", 2),
            entry("vcs", "/usr/bin/git", "/usr/bin/git", 3),
        ],
        network: NetworkPolicy::None,
        resources: ResourceLimits {
            memory_bytes: 1 << 30,
            process_limit: 64,
            execution_timeout: Duration::from_secs(60),
            output_bytes: 1 << 16,
            private_bytes: 1 << 20,
        },
        environment: BTreeMap::new(),
        protect: vec![PathBuf::from(".git/config"), PathBuf::from(".git/hooks")],
        own_files: vec![PathBuf::from("/w/agent.yaml"), PathBuf::from("/w/boxes")],
        shells: ShellRule::Allow,
        rehash: RehashRule::OnChange,
        partial: PartialRule::ReadOnly,
        workspace_root: PathBuf::from("/w"),
    }
}

/// The highest ceiling there is.
pub fn no_ceiling() -> Ceiling {
    Ceiling::mode(SandboxMode::DangerFullAccess)
}

pub fn frozen(change: impl FnOnce(&mut PolicyDraft)) -> EffectivePolicy {
    let mut draft = draft();
    change(&mut draft);
    draft
        .freeze(&no_ceiling())
        .expect("the world is consistent")
}

/// What the platform would bring for a path. The parent is some directory; nothing here looks into it.
pub fn walked(path: &str, kind: Option<ObjectKind>) -> WalkedPath {
    WalkedPath {
        resolved: PathBuf::from(path),
        parent: Dir::open_ambient_dir(".", ambient_authority())
            .expect("the current directory can be opened"),
        name: "name".into(),
        object: kind.map(|kind| ObjectFacts {
            kind,
            identity: identity(99),
            links: 1,
        }),
    }
}

pub fn file(path: &str) -> WalkedTargets {
    WalkedTargets::Paths(vec![walked(path, Some(ObjectKind::File))])
}

/// A program in `/w`.
pub fn program(program: ProgramFacts) -> WalkedTargets {
    WalkedTargets::Program {
        program,
        cwd: walked("/w", Some(ObjectKind::Directory)),
    }
}

/// An alias that leads to file number `number`, not hashed again.
pub fn alias(alias: &str, resolved: &str, number: u64) -> ProgramFacts {
    ProgramFacts::Alias {
        alias: alias.to_owned(),
        resolved: PathBuf::from(resolved),
        identity: identity(number),
        sha256: None,
    }
}

/// A program that is named by its path.
pub fn path(resolved: &str) -> ProgramFacts {
    ProgramFacts::Path {
        resolved: PathBuf::from(resolved),
        identity: identity(50),
    }
}

pub fn every_tool() -> Scope {
    Scope {
        whitelist: BTreeSet::from(ToolName::ALL),
        required_tools: BTreeSet::from(ToolName::ALL),
    }
}

pub fn asking(operations: impl IntoIterator<Item = Operation>) -> PermissionLayers {
    PermissionLayers::default_box(operations.into_iter().collect())
}

pub fn propose(tool: &str, arguments: serde_json::Value) -> ProposedCall {
    ProposedCall {
        tool: Untrusted::new(tool.to_owned()),
        arguments: Untrusted::new(arguments),
    }
}

/// All six stages.
pub fn pass(
    call: ProposedCall,
    scope: &Scope,
    layers: &mut PermissionLayers,
    policy: &EffectivePolicy,
    targets: WalkedTargets,
) -> Result<ApprovedCall, Refusal> {
    call.validate()?
        .scope(scope)?
        .plausible()?
        .permit(layers)?
        .resolve(policy, targets)?
        .approve()
}

/// `ok`, or the code and the rule.
pub fn verdict<T>(result: Result<T, Refusal>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(refusal) => format!("{}: {}", refusal.code, refusal.rule),
    }
}
