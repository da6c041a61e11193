//! What a sandbox backend must be. Owned here so that the runtime knows no namespace, descriptor or SID.

use crate::code::Code;
use crate::effective::{EffectivePolicy, FileIdentity, PartialRule, SandboxMode, Sha256Digest};
use crate::fault::Refusal;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A control that a backend can apply, or report as missing (X-PARTIAL).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// Only granted paths exist in the program's view.
    FilesystemView,
    /// Read, write, execute and delete apart, per root.
    FilesystemRights,
    /// Truncation is covered by the write right.
    FilesystemTruncate,
    /// chmod, chown, utimes and xattrs outside the grants.
    FilesystemMetadata,
    /// Nothing that is not granted executable can be run or mapped as code.
    Execution,
    /// No network beyond the granted level.
    Network,
    /// No IPC with the outside.
    Ipc,
    /// No signal to the outside.
    SignalScope,
    /// The system call table.
    SyscallFilter,
    /// The tree ends with the Task, whatever it does.
    ProcessTree,
    /// Other processes are invisible.
    ProcessView,
    /// Memory limit of the whole tree.
    MemoryTree,
    /// Process count limit of the whole tree.
    Pids,
    /// Disk quota in granted roots.
    WorkspaceQuota,
    /// Disk quota in private areas.
    PrivateQuota,
    /// Runs under a user id that owns nothing on the host.
    UidSeparation,
}

impl Control {
    /// Every control, in order.
    pub const ALL: [Self; 16] = [
        Self::FilesystemView,
        Self::FilesystemRights,
        Self::FilesystemTruncate,
        Self::FilesystemMetadata,
        Self::Execution,
        Self::Network,
        Self::Ipc,
        Self::SignalScope,
        Self::SyscallFilter,
        Self::ProcessTree,
        Self::ProcessView,
        Self::MemoryTree,
        Self::Pids,
        Self::WorkspaceQuota,
        Self::PrivateQuota,
        Self::UidSeparation,
    ];

    /// The stable word, as in `missing: [memory_tree]`.
    pub fn word(self) -> &'static str {
        match self {
            Self::FilesystemView => "filesystem_view",
            Self::FilesystemRights => "filesystem_rights",
            Self::FilesystemTruncate => "filesystem_truncate",
            Self::FilesystemMetadata => "filesystem_metadata",
            Self::Execution => "execution",
            Self::Network => "network",
            Self::Ipc => "ipc",
            Self::SignalScope => "signal_scope",
            Self::SyscallFilter => "syscall_filter",
            Self::ProcessTree => "process_tree",
            Self::ProcessView => "process_view",
            Self::MemoryTree => "memory_tree",
            Self::Pids => "pids",
            Self::WorkspaceQuota => "workspace_quota",
            Self::PrivateQuota => "private_quota",
            Self::UidSeparation => "uid_separation",
        }
    }

    /// Resource controls are listed when missing but leave the level `full` (X-PARTIAL).
    pub fn decides_level(self) -> bool {
        !matches!(
            self,
            Self::MemoryTree
                | Self::Pids
                | Self::WorkspaceQuota
                | Self::PrivateQuota
                | Self::UidSeparation
        )
    }
}

/// How much is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Some file, network, IPC or tree control is missing.
    Partial,
    /// All of them are applied.
    Full,
}

impl Level {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Partial => "partial",
            Self::Full => "full",
        }
    }
}

/// What a backend enforces on this machine for this policy. The level follows from the missing controls.
#[derive(Clone, Debug, Serialize)]
pub struct Enforcement {
    level: Level,
    missing: Vec<Control>,
    /// Tells judgements apart that say the same: a permit is for the sandbox that this one was made for.
    #[serde(skip)]
    judgement: u64,
}

/// Two judgements are equal when they say the same; whose they are matters to [`StartPermit::redeem`] only.
impl PartialEq for Enforcement {
    fn eq(&self, other: &Self) -> bool {
        (self.level, &self.missing) == (other.level, &other.missing)
    }
}

impl Eq for Enforcement {}

impl Enforcement {
    /// Judges the level from what is missing. Each call is a judgement of its own; clones of it are the same one.
    pub fn missing(missing: impl IntoIterator<Item = Control>) -> Self {
        let mut missing: Vec<Control> = missing.into_iter().collect();
        missing.sort_unstable();
        missing.dedup();
        let level = if missing.iter().any(|control| control.decides_level()) {
            Level::Partial
        } else {
            Level::Full
        };
        static JUDGEMENTS: AtomicU64 = AtomicU64::new(0);
        Self {
            level,
            missing,
            judgement: JUDGEMENTS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// `full` or `partial`.
    pub fn level(&self) -> Level {
        self.level
    }

    /// What is missing, in order.
    pub fn missing_controls(&self) -> &[Control] {
        &self.missing
    }

    /// Compares what is enforced with what the policy needs; the only maker of [`StartPermit`].
    ///
    /// # Errors
    /// `sandbox.partial` with the missing controls, unless the mode is read-only and `sandbox.partial` accepts that.
    pub fn permit(&self, policy: &EffectivePolicy) -> Result<StartPermit, Refusal> {
        let accepted =
            policy.mode() == SandboxMode::ReadOnly && policy.partial() == PartialRule::ReadOnly;
        if self.level == Level::Full || accepted {
            return Ok(StartPermit {
                judgement: self.judgement,
                rules: (policy.mode(), policy.partial()),
            });
        }
        let missing: Vec<&str> = self
            .missing
            .iter()
            .filter(|control| control.decides_level())
            .map(|control| control.word())
            .collect();
        Err(Refusal::new(
            Code::SandboxPartial,
            "sandbox.partial",
            missing.join(", "),
        ))
    }
}

/// Proof that what is enforced was compared with what is needed. Not `Clone`: one start each, of the sandbox whose
/// [`Enforcement`] made it.
///
/// ```compile_fail,E0451
/// let rules = (policy::SandboxMode::ReadOnly, policy::effective::PartialRule::Deny);
/// let permit = policy::sandbox::StartPermit { judgement: 0, rules };
/// ```
/// ```compile_fail,E0599
/// fn twice(permit: policy::sandbox::StartPermit) -> [policy::sandbox::StartPermit; 2] {
///     [permit.clone(), permit]
/// }
/// ```
/// ```compile_fail,E0382
/// use policy::sandbox::{PreparedSandbox, StartPermit};
/// fn twice(one: Box<dyn PreparedSandbox>, other: Box<dyn PreparedSandbox>, permit: StartPermit) {
///     drop(one.start(permit));
///     drop(other.start(permit));
/// }
/// ```
/// ```
/// use policy::sandbox::{PreparedSandbox, StartPermit};
/// fn once(one: Box<dyn PreparedSandbox>, permit: StartPermit) {
///     drop(one.start(permit));
/// }
/// ```
#[derive(Debug)]
pub struct StartPermit {
    judgement: u64,
    rules: (SandboxMode, PartialRule),
}

impl StartPermit {
    /// Uses the permit up, for the sandbox with this enforcement and this policy. Every backend's `start` begins so.
    ///
    /// # Errors
    /// `sandbox.partial` where the permit was made for another sandbox, or under a policy that accepts something else.
    pub fn redeem(
        self,
        enforcement: &Enforcement,
        policy: &EffectivePolicy,
    ) -> Result<(), Refusal> {
        if self.judgement == enforcement.judgement
            && self.rules == (policy.mode(), policy.partial())
        {
            return Ok(());
        }
        Err(Refusal::new(
            Code::SandboxPartial,
            "StartPermit",
            "made for another sandbox",
        ))
    }
}

/// Why a sandbox could not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The machine cannot confine at all: `SANDBOX_UNAVAILABLE`.
    #[error("SANDBOX_UNAVAILABLE at {stage}: {reason}")]
    Unavailable {
        /// Which step could not be made.
        stage: &'static str,
        /// The operating system's reason.
        reason: String,
    },
    /// The policy refuses this.
    #[error("refused: {0:?}")]
    Refused(Box<Refusal>),
    /// The program does not exist (exit 127).
    #[error("not found: {0}")]
    NotFound(PathBuf),
    /// The program exists and cannot be executed (exit 126), with the errno.
    #[error("cannot execute {path}: errno {errno}")]
    NotExecutable {
        /// The program.
        path: PathBuf,
        /// The kernel's answer.
        errno: i32,
    },
    /// The sandbox broke while it ran (exit 125).
    #[error("sandbox failed at {stage}: {reason}")]
    Failed {
        /// Which step failed.
        stage: &'static str,
        /// The operating system's reason.
        reason: String,
    },
    /// Something was left after the end (SEC-INV-10).
    #[error("residue: {what}")]
    Residue {
        /// What was left.
        what: String,
    },
}

impl From<Refusal> for SandboxError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl SandboxError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::Unavailable { .. } => Code::SandboxUnavailable,
            Self::Refused(refusal) => refusal.code,
            Self::NotFound(_) => Code::ProcessNotFound,
            Self::NotExecutable { .. } => Code::ProcessNotExecutable,
            Self::Failed { .. } => Code::SandboxFailed,
            Self::Residue { .. } => Code::SandboxResidue,
        }
    }
}

/// Something on the host that a sandbox needs while it lives; journalled before it is made (DESIGN §12.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum HostResource {
    /// A cgroup directory to remove.
    Cgroup {
        /// Its absolute path.
        path: PathBuf,
    },
    /// A temporary file or directory to remove.
    Temporary {
        /// Its absolute path.
        path: PathBuf,
    },
    /// The init process to end.
    Process {
        /// Its process id on the host.
        pid: i32,
        /// Its start time in clock ticks since boot, so that a reused id is not mistaken for it.
        start_ticks: u64,
    },
}

/// A backend: Linux, Windows, or the one that always says unavailable.
pub trait SandboxBackend: Send + Sync + fmt::Debug {
    /// What would be enforced for this policy on this machine. Changes nothing.
    ///
    /// # Errors
    /// `Unavailable` where nothing can be confined.
    fn survey(&self, policy: &EffectivePolicy) -> Result<Enforcement, SandboxError>;

    /// Builds one Task's sandbox up to the point where only the permit is missing.
    ///
    /// # Errors
    /// `Unavailable`, or a refusal of the policy itself.
    fn prepare(
        &self,
        policy: &Arc<EffectivePolicy>,
        task: &str,
    ) -> Result<Box<dyn PreparedSandbox>, SandboxError>;
}

/// A sandbox that is ready and waits for its permit.
pub trait PreparedSandbox: Send {
    /// What will really be enforced.
    fn enforcement(&self) -> &Enforcement;

    /// What must be in the journal before the start.
    fn host_resources(&self) -> Vec<HostResource>;

    /// Starts it (BeginTask), once the permit is redeemed.
    ///
    /// # Errors
    /// `sandbox.partial` for another sandbox's permit, `Failed`; either way everything is undone.
    fn start(self: Box<Self>, permit: StartPermit) -> Result<Arc<dyn TaskSandbox>, SandboxError>;
}

/// A Task's running sandbox: init inside, programs on request.
pub trait TaskSandbox: Send + Sync {
    /// Runs one program to its end. Blocks; call it off the async threads. A concurrent [`TaskSandbox::kill`] ends it.
    ///
    /// # Errors
    /// Before the start: a refusal, not found, not executable. After it: `Failed`.
    fn run(&self, request: &ProcessRequest) -> Result<ProcessOutcome, SandboxError>;

    /// Ends everything at once, from any thread. `run` then returns [`ProcessEnd::Killed`] or `Failed`.
    fn kill(&self);

    /// EndTask: ends the tree, waits for it, removes what was made and verifies that nothing is left. A second call is fine.
    ///
    /// # Errors
    /// `Residue`, naming what is left.
    fn end(&self) -> Result<(), SandboxError>;

    /// What the Task's programs left that a tool outside would obey (X-PROTECT). Looks now: complete after [`TaskSandbox::end`].
    /// A backend that protects by other means has nothing to find.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// What went through each granted address so far, for the audit; complete after [`TaskSandbox::end`]. Empty where the
    /// network level grants none.
    fn relayed(&self) -> Vec<Relayed> {
        Vec::new()
    }
}

/// Why a program may start (DESIGN §11.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramClass {
    /// A pinned entry that is no shell.
    Entry,
    /// A pinned shell.
    Shell,
    /// Below an entry's runtime root.
    RuntimeComponent,
    /// Built in a development workspace.
    WorkspaceArtifact,
    /// Chosen by the human at `exec`.
    Operator,
}

/// The exact program to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramIdentity {
    /// Resolved absolute path, the same inside the sandbox.
    pub path: PathBuf,
    /// Why it may start.
    pub class: ProgramClass,
    /// For pinned programs: the file that carried the approved bytes. A different file is refused as `executable.hash_changed`.
    pub identity: Option<FileIdentity>,
    /// The approved or recorded bytes, for the audit.
    pub sha256: Option<Sha256Digest>,
}

/// One program to run: exact argv, never a shell string.
#[derive(Clone, Debug)]
pub struct ProcessRequest {
    /// What to start.
    pub program: ProgramIdentity,
    /// The whole argument vector; `argv[0]` is what the program sees as its name.
    pub argv: Vec<OsString>,
    /// Absolute resolved working directory inside a granted directory.
    pub cwd: PathBuf,
    /// Bytes for standard input; nothing means end of file at once.
    pub stdin: Option<Vec<u8>>,
    /// Wall clock limit, already capped by the policy.
    pub timeout: Duration,
    /// Where output beyond the kept part goes; `None` drops it (and says so).
    pub spool_directory: Option<PathBuf>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum ProcessEnd {
    /// With this status.
    Exited {
        /// 0 to 255.
        status: i32,
    },
    /// By this signal.
    Signaled {
        /// Signal number.
        signal: i32,
    },
    /// It ran out of time and its tree was ended.
    TimedOut,
    /// It ran out of memory and its tree was ended.
    OutOfMemory,
    /// The Task was ended while it ran.
    Killed,
}

impl ProcessEnd {
    /// The shell's number for it: the status, 128 + n for a signal, 124 for a timeout, 137 when killed.
    pub fn exit_code(self) -> i32 {
        match self {
            Self::Exited { status } => status,
            Self::Signaled { signal } => 128 + signal,
            Self::TimedOut => 124,
            Self::OutOfMemory | Self::Killed => 137,
        }
    }

    /// Whether it is a success.
    pub fn is_success(self) -> bool {
        self == Self::Exited { status: 0 }
    }
}

/// One captured stream: head and tail kept, the rest counted and spooled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturedOutput {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The last bytes; empty when everything is in `head`.
    pub tail: Vec<u8>,
    /// All bytes the program wrote.
    pub total_bytes: u64,
    /// The stream's beginning, when it was longer than what is kept: all of it, unless the Task's share of the disk was used up.
    pub spooled: Option<PathBuf>,
    /// How much of it is in that file. Less than `total_bytes`: the rest but `tail` was dropped.
    pub spooled_bytes: u64,
}

impl CapturedOutput {
    /// Bytes that are neither in `head` nor in `tail`.
    pub fn omitted_bytes(&self) -> u64 {
        self.total_bytes
            .saturating_sub(self.head.len() as u64 + self.tail.len() as u64)
    }
}

/// One address that the network levels `local` and `restricted` grant, and what went through it (X-NET).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Relayed {
    /// What the policy lists: `host:port`.
    pub endpoint: String,
    /// The real address.
    pub address: SocketAddr,
    /// `false`: the host has no way to it, so it does not exist inside.
    pub routed: bool,
    /// Connections that the address accepted.
    pub connections: u64,
    /// Connections that it refused, did not answer, or that were one too many.
    pub refused: u64,
    /// Bytes from the programs to the address.
    pub bytes_out: u64,
    /// Bytes from the address to the programs.
    pub bytes_in: u64,
}

impl Relayed {
    /// Whether there is something to tell: it was tried, or could not be.
    pub fn is_notable(&self) -> bool {
        !self.routed || self.connections > 0 || self.refused > 0
    }
}

/// Something the sandbox denied a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denial {
    /// `look`, `open`, `write`, `create`, `delete`, `rename`, `link`, `change`, `execute`, `bind`, `connect`, `socket`, or `call`.
    pub operation: String,
    /// Path, address, kind of socket, or name of a system call.
    pub target: String,
    /// The rule that denied it: `granted roots`, `sandbox.workspaces`, `sandbox.mounts`, `sandbox.mode`, `sandbox.protect`,
    /// `own files`, `runtime`, `executable`, `sandbox.network.access`, `ipc`, `seccomp`.
    pub rule: String,
    /// How often.
    pub count: u32,
    /// The error number that the program was given, where that is known for sure.
    pub errno: Option<i32>,
}

/// How much of what a sandbox refuses can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Explanation {
    /// Nothing is looked at.
    Off,
    /// Calls that change something, start programs or reach the network, but not which missing names were looked at.
    Partial,
    /// All of it.
    On,
}

impl Explanation {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Partial => "partial",
            Self::On => "on",
        }
    }
}

/// Why something that a sandbox leaves behind deserves a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// It was not there at the start, so nothing protected it.
    Appeared,
    /// It was protected, and is another file or has other content now: the host, or a name from outside, changed it.
    Changed,
}

impl FindingKind {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Changed => "changed",
        }
    }
}

/// Something in a writable root that a tool outside the sandbox would obey: a repository, hooks, configuration (X-PROTECT).
/// It is reported, never removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Absolute.
    pub path: PathBuf,
    /// What happened to it.
    pub kind: FindingKind,
}

/// What one program did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessOutcome {
    /// How it ended.
    pub end: ProcessEnd,
    /// Standard output.
    pub stdout: CapturedOutput,
    /// Standard error.
    pub stderr: CapturedOutput,
    /// Wall clock time.
    pub elapsed: Duration,
    /// What was seen denied; empty where the backend cannot see it.
    pub denials: Vec<Denial>,
    /// Processes still alive in the Task's sandbox when the program ended (daemons it left); they end with the Task at the latest.
    pub leftovers: u32,
}
