//! Which class a program is of, or why it may not start (DESIGN §11.4, X-EXE, ST-09, ST-20).

use super::ProgramFacts;
use crate::code::Code;
use crate::effective::{
    EffectivePolicy, EntryExecutable, EntryKind, FileIdentity, Origin, RehashRule, Sha256Digest,
    ShellRule,
};
use crate::fault::Refusal;
use crate::rights::Right;
use crate::sandbox::{ProgramClass, ProgramIdentity};
use std::path::PathBuf;

pub(super) fn judge_program(
    policy: &EffectivePolicy,
    executable: &str,
    facts: ProgramFacts,
) -> Result<ProgramIdentity, Refusal> {
    match facts {
        ProgramFacts::Unknown { name } => Err(unknown(policy, name)),
        ProgramFacts::Alias { alias, .. } if !alias.eq_ignore_ascii_case(executable) => {
            Err(Refusal::new(Code::Internal, "stage 5", alias))
        }
        ProgramFacts::Alias {
            alias,
            resolved,
            identity,
            sha256,
        } => match policy.entry(&alias) {
            Some(entry) => judge_entry(policy, entry, resolved, identity, sha256),
            None => Err(unknown(policy, alias)),
        },
        ProgramFacts::Path { resolved, identity } => judge_path(policy, resolved, identity),
    }
}

fn unknown(policy: &EffectivePolicy, name: String) -> Refusal {
    let known: Vec<&str> = policy
        .entries()
        .iter()
        .map(|entry| entry.alias.as_str())
        .collect();
    Refusal::new(Code::ExecutableUnknown, "sandbox.execution.entries", name)
        .with("allowed", known.join(", "))
}

/// An entry starts only from the pinned path with the pinned bytes (SEC-INV-05, PRC-01 to PRC-05).
fn judge_entry(
    policy: &EffectivePolicy,
    entry: &EntryExecutable,
    resolved: PathBuf,
    identity: FileIdentity,
    sha256: Option<Sha256Digest>,
) -> Result<ProgramIdentity, Refusal> {
    if entry.kind == EntryKind::Shell && policy.shells() == ShellRule::Deny {
        return Err(Refusal::new(
            Code::ShellDenied,
            "sandbox.execution.shells",
            &entry.alias,
        ));
    }
    let refuse = |code| Refusal::new(code, &entry.alias, resolved.display().to_string());
    if resolved != entry.resolved {
        return Err(refuse(Code::ExecutableResolutionChanged));
    }
    let same_bytes = match (sha256, policy.rehash()) {
        (Some(now), _) => now == entry.sha256,
        (None, RehashRule::OnChange) => identity == entry.identity,
        (None, RehashRule::Always) => return Err(refuse(Code::ExecutableApprovalMissing)),
    };
    if !same_bytes {
        return Err(refuse(Code::ExecutableHashChanged));
    }
    Ok(ProgramIdentity {
        path: resolved,
        class: match entry.kind {
            EntryKind::Shell => ProgramClass::Shell,
            EntryKind::Program => ProgramClass::Entry,
        },
        identity: Some(identity),
        sha256: Some(entry.sha256),
    })
}

fn judge_path(
    policy: &EffectivePolicy,
    resolved: PathBuf,
    identity: FileIdentity,
) -> Result<ProgramIdentity, Refusal> {
    let target = || resolved.display().to_string();
    let is_entry = |entry: &EntryExecutable| {
        entry.resolved == resolved || is_same_file(entry.identity, identity)
    };
    if policy.entries().iter().any(is_entry) {
        return Err(Refusal::new(
            Code::ExecutableDenied,
            "use the entry's alias",
            target(),
        ));
    }
    if EntryKind::of(&resolved) == EntryKind::Shell {
        return Err(match policy.shells() {
            ShellRule::Deny => {
                Refusal::new(Code::ShellDenied, "sandbox.execution.shells", target())
            }
            ShellRule::Allow => Refusal::new(
                Code::ExecutableDenied,
                "a shell needs an entry in sandbox.execution.entries",
                target(),
            ),
        });
    }
    if policy.is_own_file(&resolved) {
        return Err(Refusal::new(Code::PathProtected, "own files", target()));
    }
    let executable = policy.rights_at(&resolved).allows(Right::Execute);
    let mut runtime_roots = policy
        .entries()
        .iter()
        .filter_map(|entry| entry.runtime_root.as_ref());
    let class = if executable && runtime_roots.any(|root| resolved.starts_with(root)) {
        ProgramClass::RuntimeComponent
    } else if executable
        && policy
            .root_of(&resolved)
            .is_some_and(|root| root.origins.contains(&Origin::Workspace))
    {
        ProgramClass::WorkspaceArtifact
    } else {
        return Err(Refusal::new(
            Code::ExecutableDenied,
            "entries, runtime roots, workspace artifacts",
            target(),
        ));
    };
    Ok(ProgramIdentity {
        path: resolved,
        class,
        identity: Some(identity),
        sha256: None,
    })
}

/// One file under two names (hard links). Where the system has no inode numbers they are 0 and say nothing.
fn is_same_file(one: FileIdentity, other: FileIdentity) -> bool {
    one.inode != 0 && (one.device, one.inode) == (other.device, other.inode)
}
