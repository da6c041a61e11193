//! The Applied Configuration Store (DESIGN §10.3): what a person has seen and applied, as one snapshot per configuration.
//! `serve` and `run` demand that the present resolution is exactly this (ST-24); any drift keeps everything closed.

mod differ;
mod store;
mod watch;

pub use differ::{Change, Difference, differences};
pub use store::Store;
pub use watch::Watch;

use policy::config::{Ask, Config};
use policy::effective::{EntryExecutable, GrantedRoot, NetworkPolicy, Origin, Sha256Digest};
use policy::{Code, Refusal, Right};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The version that this program writes. Older ones that it can read are listed in `store`.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything that a configuration resolves to on this machine (DESIGN §10.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The configuration file, resolved.
    pub config: PathBuf,
    /// SHA-256 over the bytes of the base and the local file.
    pub fingerprint: String,
    /// Workspaces, mounts, runtime roots.
    pub roots: Vec<AppliedRoot>,
    /// Entries.
    pub entries: Vec<AppliedEntry>,
    /// Everything else that decides what may be done, by configuration key.
    pub settings: BTreeMap<String, String>,
}

/// A granted root and which object it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppliedRoot {
    /// `workspace`, `mount`, `runtime_root`.
    pub origin: String,
    /// What the configuration says, made absolute.
    pub logical: PathBuf,
    /// Where it leads.
    pub resolved: PathBuf,
    /// The words of its rights.
    pub rights: Vec<String>,
    /// Device number of what is there.
    pub device: u64,
    /// Inode number of what is there.
    pub inode: u64,
}

/// A pinned entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppliedEntry {
    /// The alias.
    pub alias: String,
    /// `shell` or `program`.
    pub kind: String,
    /// What the configuration says, made absolute.
    pub logical: PathBuf,
    /// Where it leads.
    pub resolved: PathBuf,
    /// Its bytes, in hexadecimal.
    pub sha256: String,
}

/// What a snapshot is made of.
pub struct Resolved<'a> {
    /// The configuration file as it was named.
    pub file: &'a Path,
    /// The bytes of both files.
    pub fingerprint: &'a Sha256Digest,
    /// The meaning.
    pub config: &'a Config,
    /// The directory that relative paths are relative to.
    pub base: &'a Path,
    /// Workspaces and mounts, in the configuration's order.
    pub roots: &'a [GrantedRoot],
    /// Pinned entries.
    pub entries: &'a [EntryExecutable],
}

impl Snapshot {
    /// The snapshot of a resolution.
    ///
    /// # Errors
    /// A root that is not there any more.
    pub fn of(resolved: &Resolved<'_>) -> std::io::Result<Self> {
        let Resolved {
            file,
            fingerprint,
            config,
            base,
            ..
        } = resolved;
        let sandbox = &config.sandbox;
        let written = sandbox
            .workspaces
            .iter()
            .chain(sandbox.mounts.iter().map(|mount| &mount.path));
        let mut roots = Vec::new();
        for (written, root) in written.zip(resolved.roots) {
            let origin = match root.origins.contains(&Origin::Mount) {
                true => Origin::Mount,
                false => Origin::Workspace,
            };
            let rights = root.rights.iter().map(|right| right.word().to_owned());
            roots.push(AppliedRoot::at(
                origin,
                base.join(written),
                &root.path,
                rights.collect(),
            )?);
        }
        for (entry, configured) in resolved.entries.iter().zip(&sandbox.execution.entries) {
            let (Some(root), Some(written)) = (&entry.runtime_root, &configured.runtime_root)
            else {
                continue;
            };
            let rights = [Right::Read, Right::Execute].map(|right| right.word().to_owned());
            roots.push(AppliedRoot::at(
                Origin::RuntimeRoot,
                base.join(written),
                root,
                rights.to_vec(),
            )?);
        }
        roots.sort_by(|a, b| a.object().cmp(&b.object()));
        roots.dedup();
        let entries = resolved.entries.iter().map(|entry| AppliedEntry {
            alias: entry.alias.clone(),
            kind: word(&entry.kind),
            logical: entry.logical.clone(),
            resolved: entry.resolved.clone(),
            sha256: entry.sha256.to_string(),
        });
        Ok(Self {
            schema_version: SCHEMA_VERSION,
            config: super::resolve_existing(file),
            fingerprint: fingerprint.to_string(),
            roots,
            entries: entries.collect(),
            settings: settings(config),
        })
    }

    /// SHA-256 over the snapshot as it is stored: the audit log names it (ST-23).
    ///
    /// # Errors
    /// A path that is no UTF-8, which cannot be stored either.
    pub fn digest(&self) -> serde_json::Result<Sha256Digest> {
        use sha2::Digest;
        let text = serde_json::to_vec(self)?;
        Ok(Sha256Digest(sha2::Sha256::digest(text).into()))
    }

    /// ST-24: refuses everything that is not as it was applied, every object by itself.
    ///
    /// # Errors
    /// `sandbox.not_applied`, `sandbox.resolution_changed`, `executable.hash_changed`.
    pub fn demand(&self, applied: Option<&Self>) -> Result<(), Vec<Refusal>> {
        let Some(applied) = applied else {
            let target = self.config.display().to_string();
            return Err(vec![Refusal::new(Code::SandboxNotApplied, "apply", target)]);
        };
        let refusals: Vec<Refusal> = differences(Some(applied), self)
            .iter()
            .map(Difference::refusal)
            .collect();
        if refusals.is_empty() {
            Ok(())
        } else {
            Err(refusals)
        }
    }
}

impl AppliedRoot {
    fn at(
        origin: Origin,
        logical: PathBuf,
        resolved: &Path,
        rights: Vec<String>,
    ) -> std::io::Result<Self> {
        let identity = super::identity_of(&std::fs::metadata(resolved)?);
        Ok(Self {
            origin: origin.word().to_owned(),
            logical,
            resolved: resolved.to_owned(),
            rights,
            device: identity.device,
            inode: identity.inode,
        })
    }

    /// The same root as it is now.
    fn now(&self) -> std::io::Result<Self> {
        let resolved = std::fs::canonicalize(&self.logical)?;
        let identity = super::identity_of(&std::fs::metadata(&resolved)?);
        Ok(Self {
            resolved,
            device: identity.device,
            inode: identity.inode,
            ..self.clone()
        })
    }

    fn object(&self) -> (&str, &Path) {
        (&self.origin, &self.logical)
    }

    /// The path, and which object is there: a replaced directory is another one.
    pub fn place(&self) -> String {
        let Self {
            resolved,
            device,
            inode,
            ..
        } = self;
        format!("{} ({device}:{inode})", resolved.display())
    }
}

/// Keys whose values a person applies; the rest of the file is covered by its fingerprint.
fn settings(config: &Config) -> BTreeMap<String, String> {
    let sandbox = &config.sandbox;
    let paths = |paths: &[PathBuf]| {
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        paths.join(", ")
    };
    let resources = &sandbox.resources;
    let mut settings: BTreeMap<String, String> = [
        ("sandbox.mode", sandbox.default_mode().word().to_owned()),
        ("sandbox.max_mode", sandbox.max_mode.word().to_owned()),
        ("sandbox.network.access", sandbox.network.word().to_owned()),
        ("sandbox.protect", paths(&sandbox.protect)),
        ("sandbox.partial", word(&sandbox.partial)),
        ("sandbox.execution.shells", word(&sandbox.execution.shells)),
        ("sandbox.execution.rehash", word(&sandbox.execution.rehash)),
        (
            "sandbox.resources.memory_mb",
            resources.memory_mib.to_string(),
        ),
        (
            "sandbox.resources.process_limit",
            resources.process_limit.to_string(),
        ),
        (
            "sandbox.resources.execution_timeout_seconds",
            resources.execution_timeout.as_secs().to_string(),
        ),
        ("approvals.ask", asks(&config.approvals.ask)),
        (
            "approvals.timeout_seconds",
            config.approvals.timeout.as_secs().to_string(),
        ),
        (
            "boxes.directory",
            config.boxes.directory.display().to_string(),
        ),
        (
            "agent.user_system_prompt",
            config
                .agent
                .user_system_prompt
                .as_ref()
                .map_or_else(String::new, |path| path.display().to_string()),
        ),
        (
            "skills.directory",
            config.skills.directory.display().to_string(),
        ),
        (
            "localization.directory",
            config.localization.directory.display().to_string(),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    for (name, value) in &sandbox.environment {
        settings.insert(format!("sandbox.environment.{name}"), value.clone());
    }
    match &sandbox.network {
        NetworkPolicy::None | NetworkPolicy::Private => {}
        NetworkPolicy::Local { ports } => {
            for port in ports {
                settings.insert(
                    format!("sandbox.network.local_endpoints[{port}]"),
                    String::new(),
                );
            }
        }
        NetworkPolicy::Restricted { endpoints } => {
            for (host, port) in endpoints {
                settings.insert(
                    format!("sandbox.network.restricted_endpoints[{host}:{port}]"),
                    String::new(),
                );
            }
        }
    }
    settings
}

/// The word that the configuration uses for it.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => other.map_or_else(|_| String::new(), |value| value.to_string()),
    }
}

fn asks(asks: &[Ask]) -> String {
    let asks: Vec<String> = asks
        .iter()
        .map(|ask| match ask {
            Ask::Operation(operation) => operation.word().to_owned(),
            Ask::Command { name, argv } => format!("{name}: {}", argv.join(" ")),
        })
        .collect();
    asks.join(", ")
}
