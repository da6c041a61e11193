//! From a configuration file to a frozen policy: finds and reads the files, resolves every path on the filesystem, pins
//! every entry (X-EXE), and reports everything that is wrong at once.

use policy::config::{Config, Finding, Loaded, Source};
use policy::effective::{Ceiling, ResourceLimits, Sha256Digest};
use policy::{
    Blame, Code, EffectivePolicy, Fault, Message, PolicyDraft, Refusal, Right, SandboxMode,
};
use reading::{read_bounded, unreadable};
use resolve::{configured_entries, configured_roots, entry_roots, resolve_directory};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub mod applied;
mod discovery;
mod filesystem;
mod guarded;
mod hashes;
mod links;
mod own_files;
mod pin;
mod places;
mod reading;
mod resolve;
mod width;

pub use discovery::{Discovery, Found, PassedOver, discover};
pub use hashes::{Hashes, Threads};
pub use own_files::{AbsenceGuard, GuardedBackend};
pub use pin::{identity_of, pin};
pub use places::{Places, base_directory, for_shell, local_file, resolve_existing, user_directory};
pub use width::too_wide;

/// Private areas of one Task (`TMPDIR`, `HOME`, `/dev/shm`) together.
const PRIVATE_BYTES: u64 = 512 * 1024 * 1024;

/// Everything a command needs to know about where and under what it works.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// The configuration file; none for a preset.
    pub file: Option<PathBuf>,
    /// The meaning; none for a preset.
    pub config: Option<Config>,
    /// What should be looked at.
    pub warnings: Vec<Finding>,
    /// State, logs, audit, key.
    pub places: Places,
    /// The frozen policy.
    pub policy: Arc<EffectivePolicy>,
    /// What `apply` stores, whatever this command narrows; none for a preset.
    pub snapshot: Option<applied::Snapshot>,
}

/// Why there is no deployment.
#[derive(Debug)]
pub enum DeploymentError {
    /// Nothing to read, and the command needs one.
    NoConfiguration {
        /// Where it was looked for, and what was seen there.
        discovery: Box<Discovery>,
    },
    /// A file was found in the working directory that no person has applied as it is now.
    Untrusted {
        /// The file.
        file: PathBuf,
    },
    /// The file cannot be read.
    Unreadable(Fault),
    /// What is written is wrong.
    Findings(Vec<Finding>),
    /// What is written is right and cannot be done on this machine.
    Faults(Vec<Fault>),
    /// The policy cannot be frozen.
    Refusals(Vec<Refusal>),
}

/// How a command narrows the policy. It never widens it (X-CLI).
#[derive(Clone, Debug, Default)]
pub struct Narrowing {
    /// A stricter mode.
    pub mode: Option<SandboxMode>,
    /// Only this directory, and the working directory below it.
    pub root: Option<PathBuf>,
    /// The working directory of `run` and `exec` (X-ROOT); MCP sessions have none.
    pub cwd: Option<PathBuf>,
}

/// A configuration as read, before anything was resolved. `check` works with this when resolving fails.
#[derive(Debug)]
pub struct ReadConfiguration {
    /// The file.
    pub file: PathBuf,
    /// Its meaning and its warnings.
    pub loaded: Loaded,
    /// The bytes of both files.
    pub fingerprint: Sha256Digest,
    /// How a person stands to it.
    pub judged: Judged,
}

/// Whether a person has decided about a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Named, put where only they or the administrator write, or applied as it is.
    Yes,
    /// Only found: what ran there may have written it. Nobody whom it names is asked, and its texts are not used.
    NotYet,
}

/// The configuration that a command works with: the named one, or the first one found. For `exec` and `audit`, which obey it:
/// one that is only found must have been applied as it is now.
///
/// # Errors
/// None there, one that no person has applied as it is now, unreadable, or every finding at once.
pub fn locate(named: Option<&Path>) -> Result<ReadConfiguration, DeploymentError> {
    match read_found(named, Unjudged::Refused)? {
        read if read.judged == Judged::Yes => Ok(read),
        ReadConfiguration { file, .. } => Err(DeploymentError::Untrusted { file }),
    }
}

/// The same for a person who looks at it, whoever wrote it: [`ReadConfiguration::judged`] tells.
///
/// # Errors
/// As [`locate`], without `Untrusted`.
pub fn look(named: Option<&Path>) -> Result<ReadConfiguration, DeploymentError> {
    read_found(named, Unjudged::Shown)
}

/// What becomes of one that nobody has judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unjudged {
    /// Nothing of it is told: it would not be obeyed.
    Refused,
    Shown,
}

fn read_found(
    named: Option<&Path>,
    unjudged: Unjudged,
) -> Result<ReadConfiguration, DeploymentError> {
    let mut discovery = discover(named);
    let Some(found) = discovery.found.take() else {
        let discovery = Box::new(discovery);
        return Err(DeploymentError::NoConfiguration { discovery });
    };
    match found {
        Found::InPlace(file) => {
            let applied = applied::Store::of_user()
                .and_then(|store| store.read(&file))
                .ok()
                .flatten();
            let judged = |now: &Sha256Digest| {
                let applied = applied.as_ref().map(|applied| &applied.fingerprint);
                match applied == Some(&now.to_string()) {
                    true => Judged::Yes,
                    false => Judged::NotYet,
                }
            };
            if unjudged == Unjudged::Refused && judged(&fingerprint_of(&file)?) == Judged::NotYet {
                return Err(DeploymentError::Untrusted { file });
            }
            let mut read = read_configuration(&file)?;
            // What was judged is what is used.
            read.judged = judged(&read.fingerprint);
            Ok(read)
        }
        Found::Named(file) | Found::Own(file) => read_configuration(&file),
        Found::System(file) => match discovery::system_problem(&file) {
            None => read_configuration(&file),
            Some(problem) => Err(DeploymentError::Unreadable(unreadable(&file, problem))),
        },
    }
}

/// The bytes of a configuration and of the local file beside it.
///
/// # Errors
/// Unreadable.
pub fn fingerprint_of(file: &Path) -> Result<Sha256Digest, DeploymentError> {
    let (base, local) = read_both(file)?;
    Ok(fingerprint(&base, local.as_deref()))
}

fn fingerprint(base: &[u8], local: Option<&[u8]>) -> Sha256Digest {
    use sha2::{Digest, Sha256};
    let mut hash = Sha256::new();
    hash.update((base.len() as u64).to_le_bytes());
    hash.update(base);
    if let Some(local) = local {
        hash.update([1]);
        hash.update(local);
    }
    Sha256Digest(hash.finalize().into())
}

fn read_both(file: &Path) -> Result<(Vec<u8>, Option<Vec<u8>>), DeploymentError> {
    let base = read_bounded(file).map_err(DeploymentError::Unreadable)?;
    let local_path = places::local_file(file);
    let local = match std::fs::symlink_metadata(&local_path) {
        Ok(_) => Some(read_bounded(&local_path).map_err(DeploymentError::Unreadable)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(DeploymentError::Unreadable(unreadable(&local_path, error))),
    };
    Ok((base, local))
}

/// Reads a configuration and `agent.local.yaml` beside it (DESIGN §10.1).
///
/// # Errors
/// Unreadable, or every finding at once.
pub fn read_configuration(file: &Path) -> Result<ReadConfiguration, DeploymentError> {
    let (base, local) = read_both(file)?;
    let name = file.display().to_string();
    let local_name = places::local_file(file).display().to_string();
    let mut sources = vec![Source {
        name: &name,
        text: &base,
    }];
    if let Some(local) = &local {
        sources.push(Source {
            name: &local_name,
            text: local,
        });
    }
    if local.is_some() && local_is_in_reach(file, &base) {
        let local = places::local_file(file).display().to_string();
        let refusal = Refusal::new(Code::PathProtected, "docs/decisions/0002", local);
        return Err(DeploymentError::Refusals(vec![refusal]));
    }
    let loaded = Config::read(&sources).map_err(DeploymentError::Findings)?;
    Ok(ReadConfiguration {
        file: file.to_owned(),
        loaded,
        fingerprint: fingerprint(&base, local.as_deref()),
        judged: Judged::Yes,
    })
}

/// Whether what runs under the base file alone could have written the local file beside it. The local file itself has no
/// say in this. In doubt it could.
fn local_is_in_reach(file: &Path, base: &[u8]) -> bool {
    let Ok(directory) = places::base_directory(file) else {
        return true;
    };
    // The model is what a local file is most often for.
    let model = br#"{"ollama": {"model": "any"}}"#;
    let sources = [
        Source {
            name: "base",
            text: base,
        },
        Source {
            name: "model",
            text: model,
        },
    ];
    let Ok(Loaded { config, .. }) = Config::read(&sources) else {
        return true;
    };
    let roots = configured_roots(&config, &directory, &mut Vec::new());
    let writable = roots
        .iter()
        .any(|root| root.rights.allows(Right::Write) && directory.starts_with(&root.path));
    // A directory of its own, without any root in it, is masked as a whole.
    writable && roots.iter().any(|root| root.path.starts_with(&directory))
}

impl Deployment {
    /// The deployment of a configuration file, with every program read.
    ///
    /// # Errors
    /// Everything that is wrong at once, by kind.
    pub fn of(read: ReadConfiguration, narrowing: &Narrowing) -> Result<Self, DeploymentError> {
        Self::with_hashes(read, narrowing, &mut Hashes::none(Threads::All))
    }

    /// The same, with the programs read that are not remembered.
    ///
    /// # Errors
    /// As [`Deployment::of`].
    pub fn with_hashes(
        read: ReadConfiguration,
        narrowing: &Narrowing,
        hashes: &mut Hashes,
    ) -> Result<Self, DeploymentError> {
        let ReadConfiguration {
            file,
            loaded: Loaded {
                config,
                mut warnings,
            },
            fingerprint,
            judged: _,
        } = read;
        let mut faults = Vec::new();
        let base =
            places::base_directory(&file).map_err(|fault| DeploymentError::Faults(vec![fault]))?;
        let places =
            Places::of(&config, &base).map_err(|fault| DeploymentError::Faults(vec![fault]))?;
        let roots = configured_roots(&config, &base, &mut faults);
        let entries = configured_entries(&config, &base, hashes, &mut faults, &mut warnings);
        let own_files = own_files::of(&config, &file, &base, &places, &roots);
        if !faults.is_empty() {
            return Err(DeploymentError::Faults(faults));
        }
        let snapshot = applied::Snapshot::of(&applied::Resolved {
            file: &file,
            fingerprint: &fingerprint,
            config: &config,
            base: &base,
            roots: &roots,
            entries: &entries,
        })
        .map_err(|error| DeploymentError::Unreadable(unreadable(&file, error)))?;
        let workspace_root = match (&narrowing.cwd, &narrowing.root) {
            (_, Some(root)) => resolve_directory(root, "--root")?,
            (Some(cwd), None) => resolve_directory(cwd, "cwd")?,
            (None, None) => match roots.first() {
                Some(first) => first.path.clone(),
                None => {
                    let position = config.place("sandbox").map_or_else(String::new, |place| {
                        format!("{}:{}:{} ", place.file, place.line, place.column)
                    });
                    let fault = Fault::because(
                        Blame::Configuration,
                        Code::ConfigurationInvalid,
                        format!("{position}sandbox.workspaces"),
                        Message::new("reason.no_workspace"),
                    );
                    return Err(DeploymentError::Faults(vec![fault]));
                }
            },
        };
        let kept = narrowing
            .root
            .as_ref()
            .map(|_| vec![workspace_root.clone()]);
        let draft = PolicyDraft {
            mode: narrowing
                .mode
                .map_or(config.sandbox.default_mode(), |mode| {
                    mode.min(config.sandbox.default_mode())
                }),
            roots: roots.into_iter().chain(entry_roots(&entries)).collect(),
            entries,
            network: config.sandbox.network.clone(),
            resources: ResourceLimits {
                memory_bytes: config.sandbox.resources.memory_mib * 1024 * 1024,
                process_limit: config.sandbox.resources.process_limit,
                execution_timeout: config.sandbox.resources.execution_timeout,
                output_bytes: config.limits.process_output_bytes,
                private_bytes: PRIVATE_BYTES,
            },
            environment: config.sandbox.environment.clone(),
            protect: config.sandbox.protect.clone(),
            own_files,
            shells: config.sandbox.execution.shells,
            rehash: config.sandbox.execution.rehash,
            partial: config.sandbox.partial,
            workspace_root,
        };
        let ceiling = Ceiling {
            mode: config.sandbox.max_mode,
            roots: kept,
            no_network: false,
        };
        let policy = draft.freeze(&ceiling).map_err(DeploymentError::Refusals)?;
        Ok(Self {
            file: Some(file),
            config: Some(config),
            warnings,
            places,
            policy: Arc::new(policy),
            snapshot: Some(snapshot),
        })
    }

    /// The preset of `exec` without any configuration: the mode, rooted at one directory, no network.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn preset(mode: SandboxMode, root: &Path) -> Result<Self, DeploymentError> {
        let places =
            Places::default_places().map_err(|fault| DeploymentError::Faults(vec![fault]))?;
        let root = resolve_directory(root, "--root")?;
        if mode != SandboxMode::ReadOnly
            && let Some(reason) = width::too_wide(&root)
        {
            let refusal = Refusal::new(Code::PathDenied, reason.id(), root.display().to_string());
            return Err(DeploymentError::Refusals(vec![
                refusal.requiring(Right::Write),
            ]));
        }
        let mut draft = PolicyDraft::preset(mode, &root);
        draft.own_files = places.own();
        let policy = draft
            .freeze(&Ceiling::mode(SandboxMode::WorkspaceWrite))
            .map_err(DeploymentError::Refusals)?;
        Ok(Self {
            file: None,
            config: None,
            warnings: Vec::new(),
            places,
            policy: Arc::new(policy),
            snapshot: None,
        })
    }
}
