//! From draft to frozen policy: narrows, merges, and refuses what could not be enforced as it is written.

use super::{
    Ceiling, EffectivePolicy, EntryExecutable, EntryKind, GrantedRoot, NetworkPolicy, PolicyDraft,
    RootKind, SandboxMode,
};
use crate::code::Code;
use crate::fault::Refusal;
use crate::rights::{Right, Rights};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

impl PolicyDraft {
    /// Freezes the draft, narrowed to the ceiling.
    ///
    /// The same root is merged (DESIGN §10.7: the union of its rights); a nested workspace or mount that is narrower than
    /// the root around it cannot be expressed and is refused, because Landlock grants add up.
    ///
    /// # Errors
    /// Every refusal at once: relative paths and paths with `..`, one path as file and directory, narrower nested roots,
    /// protect patterns that match nothing, two entries with one alias, an entry that the policy itself lets the sandbox
    /// write (X-EXE), a workspace root outside the granted directories or in our own files.
    pub fn freeze(self, ceiling: &Ceiling) -> Result<EffectivePolicy, Vec<Refusal>> {
        let mut refusals = Vec::new();
        self.refuse_unresolved_paths(ceiling, &mut refusals);
        self.refuse_idle_patterns(&mut refusals);
        let mode = self.mode.min(ceiling.mode);
        let narrowed = self
            .roots
            .into_iter()
            .flat_map(|root| narrow(&root, mode, ceiling));
        let roots = merge(narrowed, &mut refusals);
        refuse_narrower_nested(&roots, &mut refusals);
        let policy = EffectivePolicy {
            mode,
            roots,
            entries: self.entries.into_iter().map(with_strictest_kind).collect(),
            network: if ceiling.no_network {
                NetworkPolicy::None
            } else {
                self.network
            },
            resources: self.resources,
            environment: self.environment,
            protect: self.protect,
            own_files: self.own_files,
            shells: self.shells,
            rehash: self.rehash,
            partial: self.partial,
            workspace_root: self.workspace_root,
        };
        policy.refuse_entries(&mut refusals);
        policy.refuse_workspace_root(&mut refusals);
        if refusals.is_empty() {
            Ok(policy)
        } else {
            Err(refusals)
        }
    }

    fn refuse_unresolved_paths(&self, ceiling: &Ceiling, refusals: &mut Vec<Refusal>) {
        let entries = self.entries.iter();
        let unresolved = self
            .roots
            .iter()
            .map(|root| &root.path)
            .chain(entries.clone().map(|entry| &entry.resolved))
            .chain(entries.filter_map(|entry| entry.runtime_root.as_ref()))
            .chain(&self.own_files)
            .chain([&self.workspace_root])
            .chain(ceiling.roots.iter().flatten())
            .filter(|path| !is_resolved(path));
        refusals.extend(unresolved.map(|path| {
            Refusal::new(
                Code::PathInvalid,
                "absolute path without ..",
                path.display().to_string(),
            )
        }));
    }

    fn refuse_idle_patterns(&self, refusals: &mut Vec<Refusal>) {
        let idle = self.protect.iter().filter(|pattern| {
            let mut parts = pattern.components().peekable();
            parts.peek().is_none() || parts.any(|part| !matches!(part, Component::Normal(_)))
        });
        refusals.extend(idle.map(|pattern| {
            Refusal::new(
                Code::ConfigurationInvalid,
                "sandbox.protect",
                pattern.display().to_string(),
            )
        }));
    }
}

impl EffectivePolicy {
    fn refuse_entries(&self, refusals: &mut Vec<Refusal>) {
        let mut aliases = BTreeSet::new();
        for entry in &self.entries {
            if !aliases.insert(entry.alias.to_lowercase()) {
                refusals.push(Refusal::new(
                    Code::ConfigurationInvalid,
                    "sandbox.execution.entries.alias",
                    &entry.alias,
                ));
            }
            // Any root around it counts, not the deepest: the entry's own root never takes a right away.
            let writable = self
                .roots
                .iter()
                .find(|root| root.covers(&entry.resolved) && root.rights.allows(Right::Write));
            if let Some(root) = writable {
                refusals.push(Refusal::new(
                    Code::ExecutableWritable,
                    root.path.display().to_string(),
                    entry.resolved.display().to_string(),
                ));
            }
        }
    }

    fn refuse_workspace_root(&self, refusals: &mut Vec<Refusal>) {
        let target = self.workspace_root.display().to_string();
        let readable = self.roots.iter().any(|root| {
            root.kind == RootKind::Directory
                && root.covers(&self.workspace_root)
                && root.rights.allows(Right::Read)
        });
        if !readable {
            refusals.push(Refusal::new(Code::PathDenied, "X-ROOT", target).requiring(Right::Read));
        } else if self.is_own_file(&self.workspace_root) {
            refusals.push(Refusal::new(
                Code::PathProtected,
                "X-ROOT: own files",
                target,
            ));
        }
    }
}

/// What the mode and the ceiling leave of a root. Its declared and its derived origins are narrowed apart, so that an
/// entry inside a workspace does not keep the workspace open.
fn narrow(root: &GrantedRoot, mode: SandboxMode, ceiling: &Ceiling) -> Vec<GrantedRoot> {
    let (declared, derived): (BTreeSet<_>, BTreeSet<_>) =
        root.origins.iter().partition(|origin| origin.is_declared());
    let mut left = Vec::new();
    if !declared.is_empty() || derived.is_empty() {
        let most = match mode {
            SandboxMode::ReadOnly => Rights::READ,
            SandboxMode::WorkspaceWrite | SandboxMode::DangerFullAccess => Rights::ALL,
        };
        let paths = match &ceiling.roots {
            Some(kept) => narrow_to(root, kept),
            None => vec![root.path.clone()],
        };
        left.extend(paths.into_iter().map(|path| GrantedRoot {
            path,
            kind: root.kind,
            rights: root.rights.intersect(most),
            origins: declared.clone(),
        }));
    }
    if !derived.is_empty() {
        left.push(GrantedRoot {
            path: root.path.clone(),
            kind: root.kind,
            rights: root.rights.intersect(Rights::READ_EXECUTE),
            origins: derived,
        });
    }
    left
}

/// The parts of a root that lie in the kept ones.
fn narrow_to(root: &GrantedRoot, kept: &[PathBuf]) -> Vec<PathBuf> {
    if kept.iter().any(|keep| root.path.starts_with(keep)) {
        return vec![root.path.clone()];
    }
    match root.kind {
        RootKind::Directory => kept
            .iter()
            .filter(|keep| keep.starts_with(&root.path))
            .cloned()
            .collect(),
        RootKind::File => Vec::new(),
    }
}

fn merge(
    roots: impl Iterator<Item = GrantedRoot>,
    refusals: &mut Vec<Refusal>,
) -> Vec<GrantedRoot> {
    let mut merged: BTreeMap<PathBuf, GrantedRoot> = BTreeMap::new();
    for root in roots {
        match merged.get_mut(&root.path) {
            None => {
                merged.insert(root.path.clone(), root);
            }
            Some(known) if known.kind == root.kind => {
                known.rights = known.rights | root.rights;
                known.origins.extend(root.origins);
            }
            Some(_) => refusals.push(Refusal::new(
                Code::ConfigurationInvalid,
                "one path as file and directory",
                root.path.display().to_string(),
            )),
        }
    }
    merged.into_values().collect()
}

fn refuse_narrower_nested(roots: &[GrantedRoot], refusals: &mut Vec<Refusal>) {
    let declared = roots.iter().filter(|root| {
        root.origins.is_empty() || root.origins.iter().any(|origin| origin.is_declared())
    });
    for inner in declared {
        for outer in roots {
            if outer.path != inner.path
                && outer.covers(&inner.path)
                && !inner.rights.contains(outer.rights)
            {
                let detail = format!(
                    "{} < {} ({})",
                    inner.rights,
                    outer.rights,
                    outer.path.display()
                );
                refusals.push(
                    Refusal::new(
                        Code::ConfigurationInvalid,
                        "DESIGN §10.2: narrower nested root",
                        inner.path.display().to_string(),
                    )
                    .with("detail", detail),
                );
            }
        }
    }
}

/// A shell under either of its names is a shell (PRC-05): `/bin/ksh` may lead to a file of another name.
fn with_strictest_kind(mut entry: EntryExecutable) -> EntryExecutable {
    let names = [&entry.resolved, &entry.logical];
    if names
        .into_iter()
        .any(|name| EntryKind::of(name) == EntryKind::Shell)
    {
        entry.kind = EntryKind::Shell;
    }
    entry
}

fn is_resolved(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
}
