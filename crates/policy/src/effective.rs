//! The Effective Sandbox Policy (DESIGN §10.7): frozen once, never changed, never read from a file.

use crate::rights::{Right, Rights};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

mod freeze;

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

impl Origin {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Mount => "mount",
            Self::ApprovedEntryExecutable => "approved_entry_executable",
            Self::ApprovedShellExecutable => "approved_shell_executable",
            Self::RuntimeRoot => "runtime_root",
            Self::OsRuntimeRoot => "os_runtime_root",
        }
    }

    /// Whether the human granted it as data; the others exist only so that a program can run.
    pub fn is_declared(self) -> bool {
        matches!(self, Self::Workspace | Self::Mount)
    }
}

/// Roots that one policy can grant: each is mounted at every start, so more would make starts slow.
pub const MOST_ROOTS: usize = 256;

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

impl GrantedRoot {
    /// Whether it reaches a resolved absolute path. A text with `..` in it is not resolved, and nothing reaches it.
    pub fn covers(&self, resolved: &Path) -> bool {
        let below = match self.kind {
            RootKind::Directory => resolved.starts_with(&self.path),
            RootKind::File => resolved == self.path,
        };
        below
            && !resolved
                .components()
                .any(|part| part == Component::ParentDir)
    }
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
    /// Judges by the resolved file name (DESIGN §10.3). A version or a variant behind the name does not hide a shell: `ksh93`,
    /// `zsh-5.9`, `busybox.nosuid`, `bash-static`.
    pub fn of(resolved: &Path) -> Self {
        let name = resolved
            .file_name()
            .map(|name| name.to_string_lossy().to_lowercase())
            .unwrap_or_default();
        let mut stem = name.as_str();
        loop {
            let shorter = SHELL_VARIANTS
                .iter()
                .find_map(|variant| stem.strip_suffix(variant))
                .unwrap_or(stem)
                .trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '_'));
            if shorter == stem {
                break;
            }
            stem = shorter;
        }
        if SHELL_NAMES.contains(&stem) {
            Self::Shell
        } else {
            Self::Program
        }
    }
}

/// What distributions put behind a shell's name.
const SHELL_VARIANTS: &[&str] = &[
    "exe", "static", "nosuid", "suid", "preview", "real", "distrib",
];

/// What identifies a file's bytes without reading them again (X-HASH).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

impl FileIdentity {
    /// A change this shortly before a file is read, in nanoseconds, may be followed by another with the same time. Clocks of file
    /// systems tick every 10 ms at most, those of old ones every 2 s.
    pub const GRANULARITY_NS: i128 = 2_000_000_000;

    /// Whether this identity, seen at the moment when the file's bytes began to be read (nanoseconds since 1970), stands for them
    /// from then on: its times are older than [`FileIdentity::GRANULARITY_NS`]. Times in the future are not.
    pub fn is_settled_at(&self, moment_ns: i128) -> bool {
        let latest = self.changed_ns.max(self.modified_ns);
        latest.saturating_add(Self::GRANULARITY_NS) < moment_ns
    }

    /// The same file with a change time that none has: its bytes have to be read wherever they matter (X-HASH).
    #[must_use]
    pub fn never_the_same(self) -> Self {
        Self {
            changed_ns: i128::MIN,
            ..self
        }
    }
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

impl PolicyDraft {
    /// What a command in one directory needs: the mode's rights there, no network, `.git/config` and hooks protected, 4 GiB
    /// of memory, 512 processes, no time limit, 512 MiB of private space. Change any field before freezing it.
    ///
    /// `workspace` must be absolute and resolved (`std::fs::canonicalize`).
    pub fn preset(mode: SandboxMode, workspace: &Path) -> Self {
        let rights = match mode {
            SandboxMode::ReadOnly => Rights::READ,
            SandboxMode::WorkspaceWrite | SandboxMode::DangerFullAccess => Rights::ALL,
        };
        Self {
            mode,
            roots: vec![GrantedRoot {
                path: workspace.to_path_buf(),
                kind: RootKind::Directory,
                rights,
                origins: BTreeSet::from([Origin::Workspace]),
            }],
            entries: Vec::new(),
            network: NetworkPolicy::None,
            resources: ResourceLimits {
                memory_bytes: 4 << 30,
                process_limit: 512,
                execution_timeout: Duration::from_secs(u64::from(u32::MAX)),
                output_bytes: 64 << 10,
                private_bytes: 512 << 20,
            },
            environment: BTreeMap::new(),
            protect: vec![PathBuf::from(".git/config"), PathBuf::from(".git/hooks")],
            own_files: Vec::new(),
            shells: ShellRule::Allow,
            rehash: RehashRule::OnChange,
            partial: PartialRule::ReadOnly,
            workspace_root: workspace.to_path_buf(),
        }
    }
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
///
/// SEC-INV-02: nothing that comes from outside becomes one, and a frozen one is not written to.
///
/// ```compile_fail,E0277
/// let policy: policy::EffectivePolicy = serde_json::from_str("{}").unwrap();
/// ```
/// ```compile_fail,E0616
/// fn widen(policy: &mut policy::EffectivePolicy) {
///     policy.mode = policy::SandboxMode::DangerFullAccess;
/// }
/// ```
/// ```compile_fail,E0451
/// fn widen(policy: policy::EffectivePolicy) -> policy::EffectivePolicy {
///     policy::EffectivePolicy { mode: policy::SandboxMode::DangerFullAccess, ..policy }
/// }
/// ```
/// A draft is data until it is frozen:
///
/// ```
/// fn freeze(draft: policy::PolicyDraft) -> Option<policy::EffectivePolicy> {
///     draft.freeze(&policy::effective::Ceiling::mode(policy::SandboxMode::ReadOnly)).ok()
/// }
/// ```
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
        self.roots
            .iter()
            .filter(|root| root.covers(resolved))
            .max_by_key(|root| root.path.components().count())
    }

    /// The rights at a resolved absolute path: those of every root around it together, none where no root covers it.
    pub fn rights_at(&self, resolved: &Path) -> Rights {
        self.roots
            .iter()
            .filter(|root| root.covers(resolved))
            .fold(Rights::NONE, |sum, root| sum | root.rights)
    }

    /// Whether a resolved path is, lies in, or leads to our own files. ASCII case makes no difference: on a file system
    /// without case, `Agent.YAML` is our file too.
    pub fn is_own_file(&self, resolved: &Path) -> bool {
        self.own_files.iter().any(|own| lies_in(resolved, own))
    }

    /// Whether one of our own files lies below a resolved path, which may be read then but neither moved nor removed.
    pub fn leads_to_own_file(&self, resolved: &Path) -> bool {
        self.own_files.iter().any(|own| lies_in(own, resolved))
    }

    /// The protect pattern that a resolved path lies in, if any: `<anything>/.git/config`, `<anything>/.git/hooks/…`.
    /// ASCII case makes no difference, as in [`EffectivePolicy::is_own_file`].
    pub fn protected_by(&self, resolved: &Path) -> Option<&Path> {
        let have: Vec<_> = resolved.components().collect();
        let lies_in = |pattern: &&Path| {
            let wanted: Vec<_> = pattern.components().collect();
            !wanted.is_empty()
                && have
                    .windows(wanted.len())
                    .any(|window| same_names(window, &wanted))
        };
        let is_about_git = |pattern: &&Path| {
            let first = pattern.iter().next();
            first.is_some_and(|first| first.eq_ignore_ascii_case(".git")) && is_git_rule(&have)
        };
        let mut patterns = self.protect.iter().map(PathBuf::as_path);
        let exact = patterns.clone().find(lies_in);
        exact.or_else(|| patterns.find(is_about_git))
    }

    /// The protect pattern that begins with the end of a resolved path: `.git` for `.git/config`. A file in this place
    /// (a worktree's `.git`, which names another directory) would lead around the pattern.
    pub fn protects_below(&self, resolved: &Path) -> Option<&Path> {
        let have: Vec<_> = resolved.components().collect();
        self.protect.iter().map(PathBuf::as_path).find(|pattern| {
            let wanted: Vec<_> = pattern.components().collect();
            (1..wanted.len().min(have.len() + 1))
                .any(|count| same_names(&have[have.len() - count..], &wanted[..count]))
        })
    }
}

/// Whether git takes a path for configuration or hooks, beyond `.git/config` and `.git/hooks` themselves: those of submodules
/// and worktrees below `.git`, and what stands in for a repository's own. The sandbox protects the same.
fn is_git_rule(have: &[Component<'_>]) -> bool {
    let is = |part: &Component<'_>, names: &[&str]| {
        let part = part.as_os_str();
        names.iter().any(|name| part.eq_ignore_ascii_case(name))
    };
    let Some(git) = have.iter().position(|part| is(part, &[".git"])) else {
        return false;
    };
    let below = &have[git + 1..];
    let Some((first, rest)) = below.split_first() else {
        return false;
    };
    let obeyed = ["config", "hooks", "config.worktree", "commondir"];
    is(first, &obeyed[2..])
        || (is(first, &["modules", "worktrees"]) && rest.iter().any(|part| is(part, &obeyed)))
}

fn lies_in(path: &Path, directory: &Path) -> bool {
    let mut have = path.components();
    directory
        .components()
        .all(|wanted| have.next().is_some_and(|part| same_name(part, wanted)))
}

fn same_names(have: &[Component<'_>], wanted: &[Component<'_>]) -> bool {
    have.iter()
        .zip(wanted)
        .all(|(have, wanted)| same_name(*have, *wanted))
}

fn same_name(have: Component<'_>, wanted: Component<'_>) -> bool {
    have.as_os_str().eq_ignore_ascii_case(wanted.as_os_str())
}
