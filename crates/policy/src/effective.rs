//! The Effective Sandbox Policy (DESIGN §10.7): frozen once, never changed, never read from a file.

use crate::code::Code;
use crate::fault::Refusal;
use crate::rights::{Right, Rights};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// HARNESS's mode over DESIGN's profile (X-MODE). The order is from strict to wide.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Nothing can be changed.
    ReadOnly,
    /// The workspaces can be changed.
    WorkspaceWrite,
    /// No confinement. Needs an action approval each time, so it is refused until approvals exist.
    DangerFullAccess,
}

impl SandboxMode {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::DangerFullAccess => "danger-full-access",
        }
    }
}

/// Where a root comes from (DESIGN §10.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `sandbox.workspaces`.
    Workspace,
    /// `sandbox.mounts`.
    Mount,
    /// The directory or file of an approved entry.
    ApprovedEntryExecutable,
    /// The same for a shell.
    ApprovedShellExecutable,
    /// An entry's `runtime_root`.
    RuntimeRoot,
    /// What every program needs of the system (the backend's table with reasons).
    OsRuntimeRoot,
}

/// What a granted root is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RootKind {
    /// A directory and everything below it.
    Directory,
    /// One file (FS-01).
    File,
}

/// One granted root: an absolute path without links, what may be done below it, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GrantedRoot {
    /// Absolute and resolved when the policy was frozen.
    pub path: PathBuf,
    /// Directory or file.
    pub kind: RootKind,
    /// The rights below it.
    #[serde(serialize_with = "rights_as_words")]
    pub rights: Rights,
    /// Every origin that granted it.
    pub origins: BTreeSet<Origin>,
}

fn rights_as_words<S: serde::Serializer>(
    rights: &Rights,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(rights.iter().map(Right::word))
}

/// Shell or other program (DESIGN §10.3, X-EXE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// cmd, powershell, pwsh, sh, bash, dash, zsh, ksh, fish, ash, busybox.
    Shell,
    /// Anything else.
    Program,
}

/// File names that count as shells (X-EXE), without `.exe`, lower case.
pub const SHELL_NAMES: &[&str] = &[
    "cmd",
    "powershell",
    "pwsh",
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "fish",
    "ash",
    "busybox",
];

impl EntryKind {
    /// Judges by the resolved file name (DESIGN §10.3).
    pub fn of(resolved: &Path) -> Self {
        let name = resolved
            .file_name()
            .map(|name| name.to_string_lossy().to_lowercase())
            .unwrap_or_default();
        let stem = name.strip_suffix(".exe").unwrap_or(&name);
        if SHELL_NAMES.contains(&stem) {
            Self::Shell
        } else {
            Self::Program
        }
    }
}

/// What identifies a file's bytes without reading them again (X-HASH).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Status change time in nanoseconds since 1970.
    pub changed_ns: i128,
}

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256Digest(pub [u8; 32]);

impl std::fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sha256:{self}")
    }
}

impl std::str::FromStr for Sha256Digest {
    type Err = NotADigest;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = text.as_bytes();
        if bytes.len() != 64 || !bytes.iter().all(u8::is_ascii_hexdigit) {
            return Err(NotADigest);
        }
        let mut out = [0u8; 32];
        for (slot, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
            let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
            *slot = digit(pair[0]) << 4 | digit(pair[1]);
        }
        Ok(Self(out))
    }
}

/// A text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not 64 hexadecimal digits")]
pub struct NotADigest;

impl Serialize for Sha256Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An approved entry: the alias the model uses, and the exact file it stands for (SEC-INV-05, PRC-01).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryExecutable {
    /// Unique without regard to case.
    pub alias: String,
    /// Shell or program.
    pub kind: EntryKind,
    /// What the configuration says.
    pub logical: PathBuf,
    /// Where it led when the policy was frozen.
    pub resolved: PathBuf,
    /// The bytes that were pinned.
    pub sha256: Sha256Digest,
    /// The file that carried those bytes.
    pub identity: FileIdentity,
    /// Further programs and libraries of this entry.
    pub runtime_root: Option<PathBuf>,
}

/// Network levels (X-NET). Never open: each level lists what leads out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "access", rename_all = "snake_case")]
pub enum NetworkPolicy {
    /// Nothing, loopback included (SEC-INV-06).
    None,
    /// The sandbox's own loopback only.
    Private,
    /// The private loopback, and these ports of the host's loopback.
    Local {
        /// TCP ports of 127.0.0.1 and ::1.
        ports: BTreeSet<u16>,
    },
    /// The private loopback, and these names and ports.
    Restricted {
        /// Host and TCP port pairs.
        endpoints: BTreeSet<(String, u16)>,
    },
}

impl NetworkPolicy {
    /// The configuration's word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Private => "private",
            Self::Local { .. } => "local",
            Self::Restricted { .. } => "restricted",
        }
    }
}

/// Limits of one Task's sandbox (DESIGN §10.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceLimits {
    /// Memory of the whole tree, bytes.
    pub memory_bytes: u64,
    /// Processes and threads of the whole tree.
    pub process_limit: u32,
    /// Longest life of one program, wall clock.
    pub execution_timeout: Duration,
    /// Bytes kept of each output stream: half head, half tail; the rest is spooled.
    pub output_bytes: u64,
    /// Bytes of the private `TMPDIR`, `HOME` and `/dev/shm` together.
    pub private_bytes: u64,
}

/// Whether declared shells may start (PRC-05).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShellRule {
    /// Declared shells start.
    Allow,
    /// No shell starts.
    Deny,
}

/// When an entry is hashed again (X-HASH).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RehashRule {
    /// When its [`FileIdentity`] differs from the pinned one.
    OnChange,
    /// At every start.
    Always,
}

/// Where partial enforcement is accepted (X-PARTIAL). There is no "allow".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartialRule {
    /// In read-only mode, always logged.
    ReadOnly,
    /// Nowhere.
    Deny,
}

/// What is put together before it is frozen. Every path is absolute and resolved by whoever fills it.
#[derive(Clone, Debug)]
pub struct PolicyDraft {
    /// The mode asked for.
    pub mode: SandboxMode,
    /// Granted roots; the same path may come more than once.
    pub roots: Vec<GrantedRoot>,
    /// Entries, pinned.
    pub entries: Vec<EntryExecutable>,
    /// Network level.
    pub network: NetworkPolicy,
    /// Limits.
    pub resources: ResourceLimits,
    /// Environment given to programs beside the fixed table.
    pub environment: BTreeMap<String, String>,
    /// Relative patterns that are never writable at any depth (X-PROTECT).
    pub protect: Vec<PathBuf>,
    /// Our own files and directories: out of reach of every tool and sandbox, also inside a granted root.
    pub own_files: Vec<PathBuf>,
    /// PRC-05.
    pub shells: ShellRule,
    /// X-HASH.
    pub rehash: RehashRule,
    /// X-PARTIAL.
    pub partial: PartialRule,
    /// The base for relative paths of tools and the default working directory; inside a granted directory root (X-ROOT).
    pub workspace_root: PathBuf,
}

/// The most that may be granted: a draft is only ever narrowed to it.
#[derive(Clone, Debug)]
pub struct Ceiling {
    /// `sandbox.max_mode`.
    pub mode: SandboxMode,
    /// Roots outside these are dropped; `None` leaves the draft's roots.
    pub roots: Option<Vec<PathBuf>>,
    /// `true` narrows the network to `none`.
    pub no_network: bool,
}

impl Ceiling {
    /// No narrowing beyond the mode.
    pub fn mode(mode: SandboxMode) -> Self {
        Self {
            mode,
            roots: None,
            no_network: false,
        }
    }
}

/// The frozen policy. It has no setter and cannot be read from a file; [`PolicyDraft::freeze`] is its only maker.
#[derive(Clone, Debug, Serialize)]
pub struct EffectivePolicy {
    mode: SandboxMode,
    roots: Vec<GrantedRoot>,
    entries: Vec<EntryExecutable>,
    network: NetworkPolicy,
    resources: ResourceLimits,
    environment: BTreeMap<String, String>,
    protect: Vec<PathBuf>,
    own_files: Vec<PathBuf>,
    shells: ShellRule,
    rehash: RehashRule,
    partial: PartialRule,
    workspace_root: PathBuf,
}

impl PolicyDraft {
    /// Freezes the draft, narrowed to the ceiling.
    ///
    /// The same root is merged (DESIGN §10.7: the union of its rights); a nested workspace or mount that is narrower than
    /// the root around it cannot be expressed and is refused, because Landlock grants add up.
    ///
    /// # Errors
    /// Every refusal at once: relative paths, narrower nested roots, two entries with one alias, an entry that the policy
    /// itself lets the sandbox write (X-EXE), a workspace root outside the granted directories.
    pub fn freeze(self, ceiling: &Ceiling) -> Result<EffectivePolicy, Vec<Refusal>> {
        let mut refusals = Vec::new();
        let mode = self.mode.min(ceiling.mode);
        let mut merged: BTreeMap<PathBuf, GrantedRoot> = BTreeMap::new();
        for mut root in self.roots {
            if !root.path.is_absolute() {
                refusals.push(Refusal::new(
                    Code::PathInvalid,
                    "absolute path",
                    root.path.display().to_string(),
                ));
                continue;
            }
            if let Some(kept) = &ceiling.roots
                && root
                    .origins
                    .iter()
                    .all(|origin| matches!(origin, Origin::Workspace | Origin::Mount))
            {
                match narrow_to(&root, kept) {
                    Some(narrowed) => root = narrowed,
                    None => continue,
                }
            }
            if mode == SandboxMode::ReadOnly {
                root.rights = root.rights.intersect(Rights::READ_EXECUTE);
                if root
                    .origins
                    .iter()
                    .all(|origin| matches!(origin, Origin::Workspace | Origin::Mount))
                {
                    root.rights = root.rights.intersect(Rights::READ);
                }
            }
            merged
                .entry(root.path.clone())
                .and_modify(|known| {
                    known.rights = known.rights | root.rights;
                    known.origins.extend(root.origins.iter().copied());
                })
                .or_insert(root);
        }
        let roots: Vec<GrantedRoot> = merged.into_values().collect();
        for inner in &roots {
            let declared = inner
                .origins
                .iter()
                .any(|origin| matches!(origin, Origin::Workspace | Origin::Mount));
            for outer in &roots {
                if declared
                    && outer.path != inner.path
                    && inner.path.starts_with(&outer.path)
                    && !inner.rights.contains(outer.rights)
                {
                    refusals.push(
                        Refusal::new(
                            Code::ConfigurationInvalid,
                            "DESIGN §10.2: narrower nested root",
                            inner.path.display().to_string(),
                        )
                        .with(
                            "detail",
                            format!(
                                "{} < {} ({})",
                                inner.rights,
                                outer.rights,
                                outer.path.display()
                            ),
                        ),
                    );
                }
            }
        }
        let mut aliases = BTreeSet::new();
        for entry in &self.entries {
            if !aliases.insert(entry.alias.to_lowercase()) {
                refusals.push(Refusal::new(
                    Code::ConfigurationInvalid,
                    "sandbox.execution.entries.alias",
                    &entry.alias,
                ));
            }
            if let Some(root) = deepest(&roots, &entry.resolved)
                && root.rights.allows(Right::Write)
            {
                refusals.push(Refusal::new(
                    Code::ExecutableWritable,
                    root.path.display().to_string(),
                    entry.resolved.display().to_string(),
                ));
            }
        }
        let policy = EffectivePolicy {
            mode,
            roots,
            entries: self.entries,
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
        if !policy.rights_at(&policy.workspace_root).allows(Right::Read) {
            refusals.push(
                Refusal::new(
                    Code::PathDenied,
                    "X-ROOT",
                    policy.workspace_root.display().to_string(),
                )
                .requiring(Right::Read),
            );
        }
        if refusals.is_empty() {
            Ok(policy)
        } else {
            Err(refusals)
        }
    }
}

fn narrow_to(root: &GrantedRoot, kept: &[PathBuf]) -> Option<GrantedRoot> {
    kept.iter().find_map(|keep| {
        if root.path.starts_with(keep) {
            Some(root.clone())
        } else if keep.starts_with(&root.path) {
            Some(GrantedRoot {
                path: keep.clone(),
                ..root.clone()
            })
        } else {
            None
        }
    })
}

fn deepest<'a>(roots: &'a [GrantedRoot], path: &Path) -> Option<&'a GrantedRoot> {
    roots
        .iter()
        .filter(|root| match root.kind {
            RootKind::Directory => path.starts_with(&root.path),
            RootKind::File => path == root.path,
        })
        .max_by_key(|root| root.path.components().count())
}

impl EffectivePolicy {
    /// The mode after narrowing.
    pub fn mode(&self) -> SandboxMode {
        self.mode
    }

    /// Granted roots, sorted by path, one per path.
    pub fn roots(&self) -> &[GrantedRoot] {
        &self.roots
    }

    /// Pinned entries.
    pub fn entries(&self) -> &[EntryExecutable] {
        &self.entries
    }

    /// The entry of an alias, without regard to case.
    pub fn entry(&self, alias: &str) -> Option<&EntryExecutable> {
        self.entries
            .iter()
            .find(|entry| entry.alias.eq_ignore_ascii_case(alias))
    }

    /// Network level.
    pub fn network(&self) -> &NetworkPolicy {
        &self.network
    }

    /// Limits.
    pub fn resources(&self) -> &ResourceLimits {
        &self.resources
    }

    /// Environment beside the backend's fixed table.
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    /// Relative patterns that are readable but never writable (X-PROTECT).
    pub fn protect(&self) -> &[PathBuf] {
        &self.protect
    }

    /// Our own files: neither readable nor writable by tools and sandbox, also inside a granted root.
    pub fn own_files(&self) -> &[PathBuf] {
        &self.own_files
    }

    /// PRC-05.
    pub fn shells(&self) -> ShellRule {
        self.shells
    }

    /// X-HASH.
    pub fn rehash(&self) -> RehashRule {
        self.rehash
    }

    /// X-PARTIAL.
    pub fn partial(&self) -> PartialRule {
        self.partial
    }

    /// Base of relative paths and default working directory (X-ROOT).
    pub fn workspace_root(&self) -> &Path {
        &self.workspace_root
    }

    /// The deepest granted root that covers a resolved absolute path.
    pub fn root_of(&self, resolved: &Path) -> Option<&GrantedRoot> {
        deepest(&self.roots, resolved)
    }

    /// The rights at a resolved absolute path: those of every root around it together, none where no root covers it.
    pub fn rights_at(&self, resolved: &Path) -> Rights {
        self.roots
            .iter()
            .filter(|root| match root.kind {
                RootKind::Directory => resolved.starts_with(&root.path),
                RootKind::File => resolved == root.path,
            })
            .fold(Rights::NONE, |sum, root| sum | root.rights)
    }

    /// Whether a resolved path is, lies in, or leads to our own files.
    pub fn is_own_file(&self, resolved: &Path) -> bool {
        self.own_files.iter().any(|own| resolved.starts_with(own))
    }

    /// The protect pattern that a resolved path lies in, if any: `<anything>/.git/config`, `<anything>/.git/hooks/…`.
    pub fn protected_by(&self, resolved: &Path) -> Option<&Path> {
        self.protect.iter().map(PathBuf::as_path).find(|pattern| {
            let wanted: Vec<_> = pattern.components().collect();
            let have: Vec<_> = resolved.components().collect();
            !wanted.is_empty()
                && have
                    .windows(wanted.len())
                    .any(|window| window == wanted.as_slice())
        })
    }
}
