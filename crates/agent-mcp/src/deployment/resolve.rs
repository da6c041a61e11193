//! From what a configuration names to what is there: every path resolved on the filesystem, every entry pinned (DESIGN
//! §10.2, §10.3, §10.6), everything that is wrong at once.

use super::hashes::Hashes;
use super::{DeploymentError, filesystem, for_shell, links, width};
use policy::config::{Config, Finding, FindingCode, MountAccess, Profile};
use policy::effective::{EntryExecutable, EntryKind, GrantedRoot, MOST_ROOTS, Origin, RootKind};
use policy::{Blame, Code, Fault, Message, Right, Rights};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Workspaces, then mounts, in the order of the configuration.
pub(super) fn configured_roots(
    config: &Config,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> Vec<GrantedRoot> {
    let sandbox = &config.sandbox;
    let count = sandbox.workspaces.len() + sandbox.mounts.len();
    if count > MOST_ROOTS {
        faults.push(Fault::because(
            Blame::Configuration,
            Code::ConfigurationInvalid,
            "sandbox.workspaces",
            Message::new("reason.too_many_roots")
                .with("count", count)
                .with("limit", MOST_ROOTS),
        ));
        return Vec::new();
    }
    let workspace_rights = match sandbox.profile {
        Profile::Readonly => Rights::READ,
        Profile::Development => Rights::ALL,
    };
    let workspaces = sandbox.workspaces.iter().enumerate();
    let workspaces = workspaces.map(|(index, path)| Asked {
        key: format!("sandbox.workspaces[{index}]"),
        path,
        rights: workspace_rights,
        origin: Origin::Workspace,
    });
    let mounts = sandbox.mounts.iter().enumerate();
    let mounts = mounts.map(|(index, mount)| Asked {
        key: format!("sandbox.mounts[{index}].path"),
        path: &mount.path,
        rights: match mount.access {
            MountAccess::ReadOnly => Rights::READ,
            MountAccess::ReadWrite => Rights::READ_WRITE,
            MountAccess::ReadWriteDelete => Rights::READ_WRITE_DELETE,
        },
        origin: Origin::Mount,
    });
    let mut keys = Vec::new();
    let mut roots = Vec::new();
    for asked in workspaces.chain(mounts) {
        match asked.granted(base) {
            Ok(root) => {
                keys.push(asked.key);
                roots.push(root);
            }
            Err((path, why)) => faults.push(bad_path(config, &asked.key, &path, why)),
        }
    }
    refuse_narrower(config, &keys, &roots, faults);
    roots
}

/// A root as the configuration asks for it.
struct Asked<'a> {
    key: String,
    path: &'a Path,
    rights: Rights,
    origin: Origin,
}

impl Asked<'_> {
    fn granted(&self, base: &Path) -> Result<GrantedRoot, (PathBuf, Message)> {
        let (path, kind) = resolve(&base.join(self.path)).map_err(|why| (self.path.into(), why))?;
        if kind == RootKind::File && self.origin == Origin::Workspace {
            return Err((path, Message::new("os.not_a_directory")));
        }
        if kind == RootKind::Directory
            && self.rights.allows(Right::Write)
            && let Some(why) = width::too_wide(&path)
        {
            return Err((path, why));
        }
        Ok(GrantedRoot {
            path,
            kind,
            rights: self.rights,
            origins: BTreeSet::from([self.origin]),
        })
    }
}

/// DESIGN §10.2: a root inside another one cannot have fewer rights than it, because rights add up on the way down. The
/// same root under several keys has the rights of all of them.
fn refuse_narrower(
    config: &Config,
    keys: &[String],
    roots: &[GrantedRoot],
    faults: &mut Vec<Fault>,
) {
    let rights_of = |path: &Path| {
        let same = roots.iter().filter(|root| root.path == path);
        same.fold(Rights::NONE, |sum, root| sum | root.rights)
    };
    let united: Vec<Rights> = roots.iter().map(|root| rights_of(&root.path)).collect();
    for (inner, key) in keys.iter().enumerate() {
        let outer = (0..roots.len()).find(|outer| {
            roots[*outer].path != roots[inner].path
                && roots[*outer].covers(&roots[inner].path)
                && !united[inner].contains(united[*outer])
        });
        if let Some(outer) = outer {
            let why = Message::new("reason.narrower_root")
                .with("rights", united[inner])
                .with("outer", placed(config, &keys[outer]))
                .with("outer_path", roots[outer].path.display())
                .with("outer_rights", united[outer]);
            faults.push(bad_path(config, key, &roots[inner].path, why));
        }
    }
}

/// Entries in the order of the configuration, each pinned.
pub(super) fn configured_entries(
    config: &Config,
    base: &Path,
    hashes: &mut Hashes,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Finding>,
) -> Vec<EntryExecutable> {
    let configured = &config.sandbox.execution.entries;
    let logical: Vec<PathBuf> = configured
        .iter()
        .map(|entry| base.join(&entry.path))
        .collect();
    let wrong: Vec<Option<Message>> = logical.iter().map(|path| not_a_program(path)).collect();
    let right = logical.iter().zip(&wrong);
    let right: Vec<PathBuf> = right
        .filter(|(_, wrong)| wrong.is_none())
        .map(|(path, _)| path.clone())
        .collect();
    let mut pinned = hashes.pin(&right).into_iter();
    let mut entries = Vec::new();
    let looked_at = configured.iter().zip(logical).zip(wrong);
    for (index, ((entry, logical), wrong)) in looked_at.enumerate() {
        let key = format!("sandbox.execution.entries[{index}]");
        let path_key = format!("{key}.path");
        let pinned = match wrong {
            Some(why) => Err(why),
            None => pinned
                .next()
                .unwrap_or_else(|| Err(std::io::ErrorKind::Interrupted.into()))
                .map_err(|error| Message::of_io(&error)),
        };
        let pinned = match pinned {
            Ok(pinned) => pinned,
            Err(why) => {
                faults.push(bad_path(config, &path_key, &entry.path, why));
                continue;
            }
        };
        if gives_rights(&pinned.resolved)
            && let Some(place) = config.place(&path_key)
        {
            warnings.push(Finding::new(
                FindingCode::RightsInVain,
                place,
                &path_key,
                &pinned.resolved.display().to_string(),
            ));
        }
        let runtime_root = entry.runtime_root.as_ref().and_then(|written| {
            let (path, why) = match resolve(&base.join(written)) {
                Ok((root, RootKind::Directory)) => return Some(root),
                Ok((file, RootKind::File)) => (file, Message::new("os.not_a_directory")),
                Err(why) => (written.clone(), why),
            };
            faults.push(bad_path(config, &format!("{key}.runtime_root"), &path, why));
            None
        });
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

/// Why this is no program of this machine that may be started, if so. Looked at before it is opened: to open a pipe waits for
/// somebody.
fn not_a_program(logical: &Path) -> Option<Message> {
    match resolve(logical) {
        Err(why) => Some(why),
        Ok((_, RootKind::Directory)) => Some(Message::new("os.is_a_directory")),
        Ok((resolved, RootKind::File)) if !is_executable(&resolved) => Some(
            Message::new("reason.not_executable")
                .with("path", for_shell(&resolved.display().to_string())),
        ),
        Ok((_, RootKind::File)) => None,
    }
}

#[cfg(unix)]
fn is_executable(program: &Path) -> bool {
    rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> bool {
    true
}

/// Whether starting it would change the user or the group, which the sandbox never lets happen.
#[cfg(unix)]
fn gives_rights(program: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(program).is_ok_and(|seen| seen.mode() & 0o6000 != 0)
}

#[cfg(not(unix))]
fn gives_rights(_: &Path) -> bool {
    false
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

/// Follows a path to its end on a file system of this machine (DESIGN §10.6).
pub(super) fn resolve(path: &Path) -> Result<(PathBuf, RootKind), Message> {
    let (resolved, kind) = follow(path)?;
    match filesystem::why_not(&resolved) {
        None => Ok((resolved, kind)),
        Some(why) => Err(why),
    }
}

fn follow(path: &Path) -> Result<(PathBuf, RootKind), Message> {
    let resolved = std::fs::canonicalize(path).map_err(|error| links::why(path, &error))?;
    let kind = std::fs::metadata(&resolved)?.file_type();
    if kind.is_dir() {
        Ok((resolved, RootKind::Directory))
    } else if kind.is_file() {
        Ok((resolved, RootKind::File))
    } else {
        Err(Message::new("reason.neither_file_nor_directory"))
    }
}

/// What a person typed on the command line. Where it lies is their choice; what it may do is the policy's.
pub(super) fn resolve_directory(path: &Path, rule: &str) -> Result<PathBuf, DeploymentError> {
    let fault = |why: Message| {
        let code = match why.id() {
            "os.permission_denied" => Code::PermissionDenied,
            "os.not_a_directory" => Code::FileWrongKind,
            _ => Code::FileNotFound,
        };
        DeploymentError::Faults(vec![Fault::because(
            Blame::Configuration,
            code,
            path.display().to_string(),
            Message::new("reason.of_path")
                .with("path", rule)
                .with_message("reason", why),
        )])
    };
    match follow(path) {
        Ok((resolved, RootKind::Directory)) => Ok(resolved),
        Ok(_) => Err(fault(Message::new("os.not_a_directory"))),
        Err(why) => Err(fault(why)),
    }
}

/// A key with its place, as editors understand it.
fn placed(config: &Config, key: &str) -> String {
    let position = config.place(key).map_or_else(String::new, |place| {
        format!("{}:{}:{} ", place.file, place.line, place.column)
    });
    format!("{position}{key}")
}

fn bad_path(config: &Config, key: &str, path: &Path, why: impl Into<Message>) -> Fault {
    Fault::because(
        Blame::Configuration,
        Code::ConfigurationInvalid,
        placed(config, key),
        Message::new("reason.of_path")
            .with("path", path.display())
            .with_message("reason", why),
    )
}
