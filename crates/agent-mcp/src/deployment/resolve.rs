//! From what a configuration names to what is there: every path resolved on the filesystem, every entry pinned (DESIGN
//! §10.2, §10.3, §10.6), everything that is wrong at once.

use super::{DeploymentError, pin, width};
use policy::config::{Config, MountAccess, Profile};
use policy::effective::{EntryExecutable, EntryKind, GrantedRoot, MOST_ROOTS, Origin, RootKind};
use policy::{Blame, Code, Fault, Message, Right, Rights};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub(super) fn configured_roots(
    config: &Config,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> Vec<GrantedRoot> {
    let mut roots = Vec::new();
    let count = config.sandbox.workspaces.len() + config.sandbox.mounts.len();
    if count > MOST_ROOTS {
        faults.push(Fault::because(
            Blame::Configuration,
            Code::ConfigurationInvalid,
            "sandbox.workspaces",
            Message::new("reason.too_many_roots")
                .with("count", count)
                .with("limit", MOST_ROOTS),
        ));
        return roots;
    }
    let workspace_rights = match config.sandbox.profile {
        Profile::Readonly => Rights::READ,
        Profile::Development => Rights::ALL,
    };
    for (index, path) in config.sandbox.workspaces.iter().enumerate() {
        match resolve(&base.join(path)) {
            Ok((path, RootKind::Directory))
                if workspace_rights.allows(Right::Write) && width::too_wide(&path).is_some() =>
            {
                let Some(reason) = width::too_wide(&path) else {
                    continue;
                };
                faults.push(bad_path(
                    config,
                    format!("sandbox.workspaces[{index}]"),
                    &path,
                    reason,
                ));
            }
            Ok((path, RootKind::Directory)) => roots.push(GrantedRoot {
                path,
                kind: RootKind::Directory,
                rights: workspace_rights,
                origins: BTreeSet::from([Origin::Workspace]),
            }),
            Ok((path, RootKind::File)) => {
                faults.push(bad_path(
                    config,
                    format!("sandbox.workspaces[{index}]"),
                    &path,
                    Message::new("os.not_a_directory"),
                ));
            }
            Err(error) => faults.push(bad_path(
                config,
                format!("sandbox.workspaces[{index}]"),
                path,
                error,
            )),
        }
    }
    for (index, mount) in config.sandbox.mounts.iter().enumerate() {
        let rights = match mount.access {
            MountAccess::ReadOnly => Rights::READ,
            MountAccess::ReadWrite => Rights::READ_WRITE,
            MountAccess::ReadWriteDelete => Rights::READ_WRITE_DELETE,
        };
        match resolve(&base.join(&mount.path)) {
            Ok((path, RootKind::Directory))
                if rights.allows(Right::Write) && width::too_wide(&path).is_some() =>
            {
                let Some(reason) = width::too_wide(&path) else {
                    continue;
                };
                faults.push(bad_path(
                    config,
                    format!("sandbox.mounts[{index}].path"),
                    &path,
                    reason,
                ));
            }
            Ok((path, kind)) => {
                roots.push(GrantedRoot {
                    path,
                    kind,
                    rights,
                    origins: BTreeSet::from([Origin::Mount]),
                });
            }
            Err(error) => faults.push(bad_path(
                config,
                format!("sandbox.mounts[{index}].path"),
                &mount.path,
                error,
            )),
        }
    }
    roots
}

pub(super) fn configured_entries(
    config: &Config,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> Vec<EntryExecutable> {
    let mut entries = Vec::new();
    for (index, entry) in config.sandbox.execution.entries.iter().enumerate() {
        let logical = base.join(&entry.path);
        let key = format!("sandbox.execution.entries[{index}]");
        let pinned = match pin(&logical) {
            Ok(pinned) => pinned,
            Err(error) => {
                faults.push(bad_path(config, format!("{key}.path"), &entry.path, error));
                continue;
            }
        };
        let runtime_root = match entry
            .runtime_root
            .as_ref()
            .map(|root| resolve(&base.join(root)))
        {
            None => None,
            Some(Ok((root, RootKind::Directory))) => Some(root),
            Some(Ok((root, RootKind::File))) => {
                faults.push(bad_path(
                    config,
                    format!("{key}.runtime_root"),
                    &root,
                    Message::new("os.not_a_directory"),
                ));
                None
            }
            Some(Err(error)) => {
                let written = entry.runtime_root.clone().unwrap_or_default();
                faults.push(bad_path(
                    config,
                    format!("{key}.runtime_root"),
                    &written,
                    error,
                ));
                None
            }
        };
        entries.push(EntryExecutable {
            alias: entry.alias.clone(),
            kind: EntryKind::of(&pinned.resolved),
            logical,
            resolved: pinned.resolved,
            sha256: pinned.sha256,
            identity: pinned.identity,
            runtime_root,
        });
    }
    entries
}

/// Entries and their runtime roots are granted roots of their own (DESIGN §10.7).
pub(super) fn entry_roots(entries: &[EntryExecutable]) -> Vec<GrantedRoot> {
    let mut roots = Vec::new();
    for entry in entries {
        let origin = match entry.kind {
            EntryKind::Shell => Origin::ApprovedShellExecutable,
            EntryKind::Program => Origin::ApprovedEntryExecutable,
        };
        roots.push(GrantedRoot {
            path: entry.resolved.clone(),
            kind: RootKind::File,
            rights: Rights::READ_EXECUTE,
            origins: BTreeSet::from([origin]),
        });
        if let Some(path) = entry.runtime_root.clone() {
            roots.push(GrantedRoot {
                path,
                kind: RootKind::Directory,
                rights: Rights::READ_EXECUTE,
                origins: BTreeSet::from([Origin::RuntimeRoot]),
            });
        }
    }
    roots
}

pub(super) fn resolve(path: &Path) -> std::io::Result<(PathBuf, RootKind)> {
    let resolved = std::fs::canonicalize(path)?;
    let kind = std::fs::metadata(&resolved)?.file_type();
    if kind.is_dir() {
        Ok((resolved, RootKind::Directory))
    } else if kind.is_file() {
        Ok((resolved, RootKind::File))
    } else {
        Err(std::io::Error::other(Message::new(
            "reason.neither_file_nor_directory",
        )))
    }
}

pub(super) fn resolve_directory(path: &Path, rule: &str) -> Result<PathBuf, DeploymentError> {
    let fault = |why: Message| {
        DeploymentError::Faults(vec![Fault::because(
            Blame::Configuration,
            Code::FileNotFound,
            path.display().to_string(),
            Message::new("reason.of_path")
                .with("path", rule)
                .with_message("reason", why),
        )])
    };
    match resolve(path) {
        Ok((resolved, RootKind::Directory)) => Ok(resolved),
        Ok(_) => Err(fault(Message::new("os.not_a_directory"))),
        Err(error) => Err(fault(error.into())),
    }
}

fn bad_path(config: &Config, key: String, path: &Path, why: impl Into<Message>) -> Fault {
    let position = config.place(&key).map_or_else(String::new, |place| {
        format!("{}:{}:{} ", place.file, place.line, place.column)
    });
    Fault::because(
        Blame::Configuration,
        Code::ConfigurationInvalid,
        format!("{position}{key}"),
        Message::new("reason.of_path")
            .with("path", path.display())
            .with_message("reason", why),
    )
}
