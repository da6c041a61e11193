//! Facts about the program that a call names (DESIGN §7.4, X-HASH, PRC-01 to PRC-03).

use super::walk::Walker;
use super::{open, os, text};
use policy::call::{ProgramFacts, WalkedTargets};
use policy::effective::{EntryExecutable, FileIdentity, RehashRule, Sha256Digest};
use policy::path::{ObjectKind, WalkedPath};
use policy::tool::{DirOperation, EditOperation, ToolArguments};
use policy::{Code, EffectivePolicy, Refusal};
use std::io;
use std::path::Path;

impl Walker {
    /// What stage 5 judges: every path of a call, walked in the way that its operation needs.
    ///
    /// # Errors
    /// As [`Walker::walk`] and [`Walker::program_facts`].
    pub fn walk_call(
        &self,
        policy: &EffectivePolicy,
        arguments: &ToolArguments,
    ) -> Result<WalkedTargets, Refusal> {
        self.walk_targets(policy, arguments)
            .map_err(|refusal| name_the_right(refusal, arguments))
    }

    fn walk_targets(
        &self,
        policy: &EffectivePolicy,
        arguments: &ToolArguments,
    ) -> Result<WalkedTargets, Refusal> {
        let paths = match arguments {
            ToolArguments::TaskUpdate(_) => return Ok(WalkedTargets::Graph),
            ToolArguments::ProcessRun(call) => {
                let cwd = self.walk(call.cwd.as_deref().unwrap_or("."))?;
                let program = self.program_facts(policy, &call.executable, &cwd)?;
                return Ok(WalkedTargets::Program { program, cwd });
            }
            ToolArguments::FileSearch(call) => vec![self.walk(&call.root)?],
            ToolArguments::FileRead(call) => vec![self.walk(&call.path)?],
            ToolArguments::FileEdit(call) => match (call.operation, &call.new_path) {
                (EditOperation::Delete, _) => vec![self.walk_entry(&call.path)?],
                (EditOperation::Rename, Some(new_path)) => {
                    vec![self.walk_entry(&call.path)?, self.walk_entry(new_path)?]
                }
                _ => vec![self.walk(&call.path)?],
            },
            ToolArguments::Dir(call) => vec![match call.operation {
                DirOperation::Mkdir => self.walk_for_create(&call.path)?,
                DirOperation::Rmdir => self.walk_entry(&call.path)?,
                DirOperation::List => self.walk(&call.path)?,
            }],
        };
        Ok(WalkedTargets::Paths(paths))
    }

    /// Finds the program that `name` stands for: the alias of an entry, or a path relative to `cwd`. A bare name that is
    /// no alias is unknown; no search path is consulted.
    ///
    /// # Errors
    /// A path outside every granted root (`policy.executable_denied`, ST-20, nothing is looked at there), a path that is
    /// no regular file, an entry whose file is gone.
    pub fn program_facts(
        &self,
        policy: &EffectivePolicy,
        name: &str,
        cwd: &WalkedPath,
    ) -> Result<ProgramFacts, Refusal> {
        if let Some(entry) = policy.entry(name) {
            return self.entry_facts(policy.rehash(), entry);
        }
        if !name.contains(std::path::is_separator) {
            return Ok(ProgramFacts::Unknown {
                name: name.to_owned(),
            });
        }
        // An entry's own path is no substitute for its alias (DESIGN §7.4); the policy says so if it gets the path.
        let asked = cwd.resolved.join(name);
        let is_entry = |entry: &&EntryExecutable| asked == entry.resolved || asked == entry.logical;
        if let Some(entry) = policy.entries().iter().find(is_entry) {
            return Ok(ProgramFacts::Path {
                resolved: entry.resolved.clone(),
                identity: entry.identity,
            });
        }
        let walked = match self.walk_from(&cwd.resolved, name) {
            Ok(walked) => walked,
            Err(refusal) if refusal.code == Code::FileNotFound => {
                return Ok(ProgramFacts::Unknown {
                    name: name.to_owned(),
                });
            }
            Err(refusal) if refusal.code == Code::PathDenied => {
                let rule = "entries, runtime roots, workspace artifacts";
                return Err(Refusal::new(Code::ExecutableDenied, rule, refusal.target));
            }
            Err(refusal) => return Err(refusal),
        };
        match walked.object {
            None => Ok(ProgramFacts::Unknown {
                name: name.to_owned(),
            }),
            Some(object) if object.kind == ObjectKind::File => Ok(ProgramFacts::Path {
                resolved: walked.resolved,
                identity: object.identity,
            }),
            Some(_) => Err(Refusal::new(
                Code::FileKindUnsupported,
                "regular file",
                text::path(&walked.resolved),
            )),
        }
    }

    /// Resolves the entry's configured path again, and reads its bytes only when it is not the pinned file (X-HASH).
    fn entry_facts(
        &self,
        rehash: RehashRule,
        entry: &EntryExecutable,
    ) -> Result<ProgramFacts, Refusal> {
        let gone = |error: io::Error| {
            Refusal::new(
                Code::ExecutableResolutionChanged,
                &entry.alias,
                text::path(&entry.logical),
            )
            .with("detail", error)
        };
        let resolved = std::fs::canonicalize(&entry.logical).map_err(gone)?;
        // Identity and bytes of one descriptor: of two opens, the first could be of one file and the second of another.
        let mut file = open_program(&resolved).map_err(gone)?;
        let identity = identity(&file).map_err(gone)?;
        let sha256 = match rehash {
            RehashRule::Always => Some(hash(&mut file, identity).map_err(gone)?),
            RehashRule::OnChange if identity == entry.identity => None,
            RehashRule::OnChange => Some(self.cached_hash(&mut file, identity).map_err(gone)?),
        };
        Ok(ProgramFacts::Alias {
            alias: entry.alias.clone(),
            resolved,
            identity,
            sha256,
        })
    }

    fn cached_hash(
        &self,
        file: &mut cap_std::fs::File,
        identity: FileIdentity,
    ) -> io::Result<Sha256Digest> {
        let known = |hashes: &std::collections::HashMap<_, _>| hashes.get(&identity).copied();
        if let Some(sha256) = self.hashes.lock().ok().and_then(|hashes| known(&hashes)) {
            return Ok(sha256);
        }
        let start = os::now_ns();
        let sha256 = hash(file, identity)?;
        // What has just changed may change again and look the same.
        if identity.is_settled_at(start)
            && let Ok(mut hashes) = self.hashes.lock()
        {
            hashes.insert(identity, sha256);
        }
        Ok(sha256)
    }
}

fn identity(file: &cap_std::fs::File) -> io::Result<FileIdentity> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    Ok(os::identity(&metadata))
}

/// The bytes of an opened file, whose identity must not change meanwhile.
fn hash(file: &mut cap_std::fs::File, before: FileIdentity) -> io::Result<Sha256Digest> {
    let sha256 = open::hash_reader(file)?;
    if identity(file)? != before {
        return Err(io::Error::other("changed while it was read"));
    }
    Ok(sha256)
}

/// An entry's path is the human's own configuration, so it is opened by path; a FIFO put there does not make us wait.
fn open_program(path: &Path) -> io::Result<cap_std::fs::File> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    cap_std::fs::Dir::open_ambient_dir(directory, cap_std::ambient_authority())?
        .open_with(name, &os::read_options())
}

/// A walk knows no rights; the call does. People want to read which one was missing.
fn name_the_right(refusal: Refusal, arguments: &ToolArguments) -> Refusal {
    let wanted = arguments
        .paths()
        .into_iter()
        .flat_map(|(_, rights)| rights.iter().collect::<Vec<_>>())
        .next();
    match (refusal.code, refusal.required, wanted) {
        (Code::PathDenied, None, Some(right)) => refusal.requiring(right),
        _ => refusal,
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use policy::effective::{Ceiling, EntryKind, SandboxMode};

    /// X-HASH: bytes that were read of a file that has just changed are not kept for the next launch; it could change again and
    /// look the same.
    #[test]
    fn x_hash_what_just_changed_is_read_at_each_launch() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let policy = policy::PolicyDraft::preset(SandboxMode::ReadOnly, &base)
            .freeze(&Ceiling::mode(SandboxMode::ReadOnly))
            .unwrap();
        let walker = Walker::open(&policy).unwrap();
        let fresh = base.join("fresh");
        std::fs::copy("/bin/true", &fresh).unwrap();
        let kept = |path: &Path| {
            let resolved = path.canonicalize().unwrap();
            let identity = identity(&open_program(&resolved).unwrap()).unwrap();
            let entry = EntryExecutable {
                alias: "tool".to_owned(),
                kind: EntryKind::Program,
                logical: resolved.clone(),
                resolved,
                sha256: Sha256Digest([0; 32]),
                identity: identity.never_the_same(),
                runtime_root: None,
            };
            let facts = walker.entry_facts(RehashRule::OnChange, &entry).unwrap();
            assert!(
                matches!(
                    facts,
                    ProgramFacts::Alias {
                        sha256: Some(_),
                        ..
                    }
                ),
                "it was read"
            );
            walker.hashes.lock().unwrap().contains_key(&identity)
        };
        assert!(!kept(&fresh));
        assert!(kept(Path::new("/bin/true")), "control");
    }
}
