//! `confine`: the only door to a process (HARNESS). What to run, what is enforced, and what came of it.

use crate::backend::{self, Readied};
use policy::effective::FileIdentity;
use policy::sandbox::{
    Denial, Enforcement, Explanation, Finding, ProcessEnd, ProcessOutcome, ProcessRequest,
    ProgramClass, ProgramIdentity, Relayed, SandboxBackend as _, SandboxError, StartPermit,
};
use policy::{Code, EffectivePolicy, Message, Refusal};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where a program without a slash is looked for, unless the policy's environment has a `PATH` of its own.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// How much is done to explain what a sandbox refuses. What is refused does not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Explain {
    /// Nothing.
    Off,
    /// Calls that change something, start programs or reach the network.
    #[default]
    On,
    /// Every open too: 1.1 to 4 times as long for programs that open many files.
    Opens,
}

/// One command: exact argv, never a shell string.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// The whole argument vector, never empty and without NUL. A first element without a slash is searched in the sandbox's
    /// own `PATH`.
    pub(crate) argv: Vec<OsString>,
    /// Absolute resolved working directory inside a granted directory.
    pub(crate) cwd: PathBuf,
    pub(crate) identity: Option<FileIdentity>,
    pub(crate) timeout: Option<Duration>,
}

/// Confines one command: nothing runs yet, and whatever runs later runs under exactly this policy.
///
/// `argv` is the exact argument vector. A program name without a slash is searched in the sandbox's own `PATH`.
/// What comes back carries what this machine enforces of the policy; whether that is enough is the caller's decision,
/// made with [`Enforcement::permit`], without whose [`StartPermit`] nothing starts:
///
/// ```
/// use sandbox_linux::policy::effective::{Ceiling, PolicyDraft, SandboxMode};
/// use sandbox_linux::policy::sandbox::SandboxError;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let workspace = std::env::current_dir()?.canonicalize()?;
/// let mode = SandboxMode::ReadOnly;
/// let policy = PolicyDraft::preset(mode, &workspace)
///     .freeze(&Ceiling::mode(mode))
///     .map_err(|refusals| format!("{refusals:?}"))?;
///
/// let confined = match sandbox_linux::confine(["cat", "/etc/shadow"], &policy) {
///     Ok(confined) => confined,
///     // Fail closed: never start the command some other way.
///     Err(SandboxError::Unavailable { stage, reason }) => {
///         eprintln!("nothing was run: {stage}: {reason}");
///         return Ok(());
///     }
///     Err(error) => return Err(error.into()),
/// };
/// // Partial enforcement is handled here: in read-only mode it is accepted, elsewhere it is a refusal.
/// let permit = confined.enforcement().permit(&policy).map_err(SandboxError::from)?;
/// let report = confined.run(permit, |enforced| {
///     eprintln!("{:?}, missing {:?}", enforced.level(), enforced.missing_controls());
///     Ok(())
/// })?;
/// assert_eq!(report.end.exit_code(), 1); // there is no such file inside
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Unavailable` (`SANDBOX_UNAVAILABLE`) where this machine has no way to confine, a refusal where the policy asks for what
/// cannot be made so (`danger-full-access` does not pass here: it is not a sandbox) or argv is empty or holds a NUL.
pub fn confine<A: Into<OsString>>(
    argv: impl IntoIterator<Item = A>,
    policy: &EffectivePolicy,
) -> Result<Confined<'_>, SandboxError> {
    let argv: Vec<OsString> = argv.into_iter().map(Into::into).collect();
    let wrong =
        |why: Message| Refusal::new(Code::ToolArgumentsInvalid, "argv", "argv").because(why);
    if argv.is_empty() {
        return Err(wrong(Message::new("mcp.field_empty")).into());
    }
    if let Some(index) = argv
        .iter()
        .position(|word| word.as_encoded_bytes().contains(&0))
    {
        return Err(wrong(Message::new("reason.nul_in_argument").with("index", index)).into());
    }
    let readied = Readied::new(policy)?;
    Ok(Confined {
        policy,
        command: Command {
            argv,
            cwd: policy.workspace_root().to_path_buf(),
            identity: None,
            timeout: None,
        },
        enforcement: readied.enforcement(),
        readied,
        begun: None,
    })
}

/// The part of a sandbox that depends on no policy, begun while the caller is still finding out what the policy is: its
/// namespaces and the network in it, two milliseconds of a second processor (P-1).
///
/// Nothing runs in it: it waits for [`Confined::run`], which gives it everything, the policy included, or for being dropped,
/// which ends it. INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are held back from now until it is dropped or the
/// run is over.
#[derive(Debug)]
#[must_use = "dropped, it ends"]
pub struct HeadStart(backend::HeadStart);

impl HeadStart {
    /// Begins. This process must have one thread, as for [`Confined::run`].
    ///
    /// None where it cannot be done here. That is no error: [`Confined::run`] makes everything itself, and says what is
    /// wrong then.
    pub fn begin() -> Option<Self> {
        backend::HeadStart::begin().map(Self)
    }
}

/// A confined command that has not started. Made by [`confine`]; ends in [`Confined::run`] or [`Confined::output`].
#[derive(Debug)]
#[must_use = "nothing has run"]
pub struct Confined<'p> {
    policy: &'p EffectivePolicy,
    command: Command,
    enforcement: Enforcement,
    readied: Readied,
    begun: Option<HeadStart>,
}

impl Confined<'_> {
    /// What will be enforced. Controls that show only at the start, and do not decide the level (`uid_separation`, `pids`),
    /// are in the report and in what [`Confined::run`] shows before the start.
    pub fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// Another working directory than the policy's workspace root: absolute, resolved, inside a granted directory.
    pub fn in_directory(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.command.cwd = cwd.into();
        self
    }

    /// The file that must be executed, where the caller has recorded it (X-HASH); another one is refused as
    /// `executable.hash_changed`.
    pub fn only(mut self, identity: FileIdentity) -> Self {
        self.command.identity = Some(identity);
        self
    }

    /// Wall clock limit; then the whole tree is ended. Without it only [`Confined::output`] has one, the policy's.
    pub fn within(mut self, limit: Duration) -> Self {
        self.command.timeout = Some(limit);
        self
    }

    /// How much [`Confined::run`] explains in [`ExecReport::denials`]; [`Confined::output`] always explains by default.
    pub fn explaining(mut self, explain: Explain) -> Self {
        self.readied.explain(explain);
        self
    }

    /// Goes on with what has begun, for [`Confined::run`]. Where the policy or this machine needs something else, that is
    /// dropped and everything made anew.
    pub fn after(mut self, begun: Option<HeadStart>) -> Self {
        self.begun = begun;
        self
    }

    /// Where the program's file is, as far as that can be seen from outside: for a record of what was started.
    pub fn program(&self) -> Option<PathBuf> {
        backend::locate(self.policy, &self.command)
    }

    /// Runs it with our own standard streams and waits for it and everything it started (P-1).
    ///
    /// On a terminal (all three streams are our controlling terminal) the command gets a pseudo-terminal of its own as its
    /// controlling terminal, which is relayed: job control works, and it never holds a descriptor of the real one.
    /// INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are passed on to the command's process group while it runs.
    ///
    /// This process must have one thread: the command shares its memory until the program is executed.
    ///
    /// `before` is called while the sandbox is being built, with what is really enforced, and the command is not started
    /// before it has returned: whatever must be on the disk before the effect is written there in time that is spent anyway.
    /// It must start no thread. Where the machine turns out to forbid namespaces only then, it is called a second time, with
    /// what the second way enforces; what it was told before has not started.
    ///
    /// # Errors
    /// Those of `before`, with nothing started. `Unavailable` where the machine cannot confine or we have several threads,
    /// `Refused` for another sandbox's permit, and where what came about is less than the policy needs (X-PARTIAL),
    /// `NotFound` and `NotExecutable` for the program, `Failed` when the sandbox broke.
    pub fn run(
        self,
        permit: StartPermit,
        mut before: impl FnMut(&Enforcement) -> Result<(), SandboxError>,
    ) -> Result<ExecReport, SandboxError> {
        permit.redeem(&self.enforcement, self.policy)?;
        let begun = self.begun.map(|begun| begun.0);
        let run = |enforced: &Enforcement| {
            // What came about may be less than what was seen possible.
            let _enough = enforced.permit(self.policy)?;
            before(enforced)
        };
        self.readied.run(self.policy, &self.command, begun, run)
    }

    /// Runs it in a sandbox of its own with `stdin` (nothing: end of file at once) and captures its output: `output_bytes`
    /// of the policy's resources are kept of each stream, half head, half tail.
    ///
    /// Any number of threads may do this at the same time. The program must have called [`crate::init`] first in `main`.
    ///
    /// # Errors
    /// As [`Confined::run`].
    pub fn output(
        self,
        permit: StartPermit,
        stdin: Option<Vec<u8>>,
    ) -> Result<ProcessOutcome, SandboxError> {
        permit.redeem(&self.enforcement, self.policy)?;
        let name = Path::new(&self.command.argv[0]);
        let path = self
            .program()
            .ok_or_else(|| SandboxError::NotFound(name.to_path_buf()))?;
        let request = ProcessRequest {
            program: ProgramIdentity {
                path,
                class: ProgramClass::Operator,
                identity: self.command.identity,
                sha256: None,
            },
            cwd: self.command.cwd,
            stdin,
            timeout: self
                .command
                .timeout
                .unwrap_or(self.policy.resources().execution_timeout),
            spool_directory: None,
            argv: self.command.argv,
        };
        let policy = Arc::new(self.policy.clone());
        let prepared = crate::LinuxSandbox.prepare(&policy, "confine")?;
        let permit = prepared.enforcement().permit(&policy)?;
        let sandbox = prepared.start(permit)?;
        let outcome = sandbox.run(&request);
        // What is left is worse than whatever the run came to.
        sandbox.end()?;
        outcome
    }
}

/// What [`Confined::run`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecReport {
    /// How the command ended.
    pub end: ProcessEnd,
    /// What was enforced, and what was missing (X-PARTIAL).
    pub enforcement: Enforcement,
    /// Wall clock time, building and ending the sandbox included.
    pub elapsed: Duration,
    /// Processes still alive when the command ended; they were ended with it (PRC-06).
    pub leftovers: u32,
    /// How much of what was refused could be seen.
    pub explanation: Explanation,
    /// What was seen refused, at most 512 different ones.
    pub denials: Vec<Denial>,
    /// Refusals beyond that.
    pub omitted_denials: u32,
    /// What it left in writable roots that a tool outside would obey (X-PROTECT).
    pub findings: Vec<Finding>,
    /// What went through each granted address; empty where the network level grants none.
    pub relayed: Vec<Relayed>,
}
