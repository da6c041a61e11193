//! One confined command for a person or a script: no helper, no second execution of our own binary.

use super::bare::{self, Area};
use super::cgroup::{Group, Shape};
use super::enforcement;
use super::explain::table::{Counts, Table};
use super::explain::tell;
use super::failure::Failure;
use super::head_start::HeadStart;
use super::launch::{Init, Launch, Role};
use super::plan::{Plan, plan};
use super::program::{Program, Refused, candidates, pointers};
use super::relay::SingleRelay;
use super::shared::Shared;
use super::sys::signal::{self, SignalSet};
use super::sys::{Errno, Fd, file, memory, process};
use super::terminal::Terminal;
use crate::exec::{Command, ExecReport, Explain};
use policy::sandbox::{Enforcement, ProcessEnd, SandboxError};
use policy::{Code, EffectivePolicy, Refusal};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Signals that are passed on to the command instead of ending us.
pub(crate) const FORWARDED: SignalSet = SignalSet::of(&[
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
]);

/// A plan that can be carried out, for [`crate::Confined`].
#[derive(Debug)]
pub(crate) struct Readied {
    plan: Plan,
    group: Option<Group>,
}

impl Readied {
    pub(crate) fn new(policy: &EffectivePolicy) -> Result<Self, SandboxError> {
        let mut plan = plan(policy)?;
        let group = Group::new(&plan.limits, Shape::Once);
        plan.count(group.is_some());
        Ok(Self { plan, group })
    }

    /// Whether the owner can be translated shows only at the start, and does not decide the level.
    pub(crate) fn enforcement(&self) -> Enforcement {
        enforcement::of(&self.plan, self.plan.privileged)
    }

    /// See [`crate::Confined::explaining`].
    pub(crate) fn explain(&mut self, explain: Explain) {
        self.plan.explain(explain);
    }

    /// See [`crate::Confined::run`].
    pub(crate) fn run(
        self,
        policy: &EffectivePolicy,
        request: &Command,
        mut begun: Option<HeadStart>,
        mut before: impl FnMut(&Enforcement) -> Result<(), SandboxError>,
    ) -> Result<ExecReport, SandboxError> {
        let group = self.group.as_ref();
        run(
            policy,
            self.plan,
            group,
            request,
            begun.as_mut(),
            &mut before,
        )
    }
}

/// The command and its launcher share memory until the program is executed, and a death signal is bound to a thread.
pub(crate) fn check_threads() -> Result<(), SandboxError> {
    let tasks = rustix::fs::stat("/proc/self/task").map_err(|errno| SandboxError::Unavailable {
        stage: "threads",
        reason: errno.to_string(),
    })?;
    // `.`, `..` and one directory for every thread.
    match tasks.st_nlink {
        3 => Ok(()),
        links => Err(SandboxError::Unavailable {
            stage: "threads",
            reason: format!(
                "{} threads; run needs one, output takes any number",
                links - 2
            ),
        }),
    }
}

fn run(
    policy: &EffectivePolicy,
    mut whole: Plan,
    group: Option<&Group>,
    request: &Command,
    begun: Option<&mut HeadStart>,
    before: &mut dyn FnMut(&Enforcement) -> Result<(), SandboxError>,
) -> Result<ExecReport, SandboxError> {
    let started = Instant::now();
    check_threads()?;
    fill_streams().map_err(|errno| failed("streams", errno))?;
    check_streams()?;
    if whole.privileged {
        open_pipes_to_all();
    }
    // Ignored, as some callers leave it, it would take our children's ends away from us.
    signal::reset(libc::SIGCHLD).map_err(|errno| failed("signals", errno))?;
    // Init shares our memory and closes it to other processes; a second attempt must look into its own again.
    let dumpable = process::is_dumpable();
    let again = || process::set_dumpable(dumpable).map_err(|errno| failed("retry", errno));
    let mut attempted = attempt(policy, &whole, group, request, begun, started, before);
    if matches!(&attempted, Err(Stop::Failed(failure)) if failure.is_unasked(&whole)) {
        again()?;
        whole.be_quiet();
        attempted = attempt(policy, &whole, group, request, None, started, before);
    }
    match attempted {
        Err(Stop::Failed(failure)) if failure.is_forbidden(&whole) => {
            // Nothing ran yet, and nothing will that needs what this machine forbids.
            bare::plan::enforcement(policy, &whole)?.permit(policy)?;
            bare::plan::check_directory(policy, &request.cwd)?;
            again()?;
            whole.count(false);
            let place = Area::make()?;
            let plan = bare::plan::plan(policy, whole, place.path())?;
            attempt(policy, &plan, None, request, None, started, before)
                .map_err(|stop| stop.error(&plan))
        }
        other => other.map_err(|stop| stop.error(&whole)),
    }
}

/// Why there is no report.
enum Stop {
    /// The sandbox could not be built.
    Failed(Failure),
    Error(SandboxError),
}

impl From<SandboxError> for Stop {
    fn from(error: SandboxError) -> Self {
        Self::Error(error)
    }
}

impl Stop {
    fn error(self, plan: &Plan) -> SandboxError {
        match self {
            Self::Failed(failure) => failure.unavailable(plan),
            Self::Error(error) => error,
        }
    }
}

/// Builds the sandbox of this plan and runs the command in it.
fn attempt(
    policy: &EffectivePolicy,
    plan: &Plan,
    group: Option<&Group>,
    request: &Command,
    begun: Option<&mut HeadStart>,
    started: Instant,
    before: &mut dyn FnMut(&Enforcement) -> Result<(), SandboxError>,
) -> Result<ExecReport, Stop> {
    let arguments = strings(request)?;
    let Some(name) = arguments.first() else {
        return Err(SandboxError::NotFound("".into()).into());
    };
    let places = candidates(name, search_path(plan));
    let place_list: Vec<&CStr> = places.iter().map(CString::as_c_str).collect();
    let argument_list = pointers(&arguments);
    let environment = pointers(&plan.environment);
    let directory = c_string(request.cwd.as_os_str().as_bytes())?;
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
        .map_err(|errno| failed("event", Errno(errno.raw_os_error())))?;
    let done = Fd(event.as_raw_fd());
    let table = Table::new().map_err(|errno| failed("explaining", errno))?;
    // Without namespaces nobody relays one: the command keeps our streams, in a session that has no terminal.
    let mut terminal = match plan.bare {
        None => Terminal::take(),
        Some(_) => None,
    };
    let launch = Launch::new(
        plan,
        table,
        Role::Once {
            program: Program {
                candidates: &place_list,
                arguments: argument_list.pointers(),
                environment: environment.pointers(),
                identity: request.identity,
                approved: request.identity.is_some(),
            },
            directory: &directory,
            done,
            group: group.map(Group::places),
            terminal: terminal.as_ref().map(Terminal::far),
        },
    )
    .map_err(Stop::Failed)?;
    // Blocked before init exists, so that none is lost; the command unblocks everything for itself.
    let unblocked = signal::block_only(FORWARDED).map_err(|errno| failed("signals", errno))?;
    let result = launch.start(begun).map_err(Stop::Failed).and_then(|init| {
        // Init builds the root meanwhile, so that waiting for the disk costs nothing.
        let enforcement = enforcement::of(plan, init.separated);
        if let Err(error) = before(&enforcement) {
            reap(launch.shared, &init);
            return Err(error.into());
        }
        memory::publish(&launch.shared.recorded, 1);
        if plan.bare.is_none() {
            memory::wait_while(&launch.shared.apart, 0, Some(10_000));
        }
        let tripwire = launch.shared.tripwire().is_some();
        launch.shared.let_go_of_tripwire();
        let deadline = request.timeout.map(|timeout| started + timeout);
        if let Some(terminal) = &mut terminal {
            terminal.enter();
        }
        let mut relay = SingleRelay::begin(&plan.reach, launch.shared, init.pidfd);
        let end = match &mut relay {
            Ok(relay) => {
                let own = &mut terminal;
                wait(launch.shared, &init, done, deadline, relay.as_mut(), own)
            }
            Err(errno) => Err(*errno),
        };
        // Once init has said that everything else is gone, all that is left is the kernel's own tidying of the
        // namespaces, which nobody needs to wait for: init has no code of ours left to run but its exit.
        if plan.bare.is_some() || launch.shared.ended.load(Ordering::Acquire) == 0 {
            reap(launch.shared, &init);
        } else {
            // Reaped now if it is that fast, else by whoever reaps us.
            let _reaped = process::wait(init.pid, libc::WNOHANG);
            file::close(init.pidfd);
        }
        // Nothing writes any more: what is on its way arrives, and ours is as it was.
        drop(terminal.take());
        let end = end.map_err(|errno| failed("wait", errno))?;
        let by_itself = matches!(end, Over::Done);
        let relay = relay.ok().flatten();
        let relayed = relay.map_or_else(Vec::new, |relay| relay.end(by_itself));
        if let Some(failure) = launch.shared.failure() {
            return Err(Stop::Failed(failure));
        }
        if let Some(group) = group {
            if group.ran_out() {
                launch.shared.out_of_memory.store(1, Ordering::Release);
            }
            group
                .remove()
                .map_err(|what| SandboxError::Residue { what })?;
        }
        let end = judge(launch.shared, request, end)?;
        let (denials, omitted_denials) =
            tell::denials(policy, &plan.places, table, &Counts::default());
        Ok(ExecReport {
            end,
            explanation: tell::explanation(plan, tripwire),
            denials,
            omitted_denials,
            enforcement,
            elapsed: started.elapsed(),
            leftovers: launch.shared.leftovers.load(Ordering::Acquire) as u32,
            findings: plan.record.findings(),
            relayed,
        })
    });
    signal::block_only(unblocked).map_err(|errno| failed("signals", errno))?;
    result
}

fn failed(stage: &'static str, errno: Errno) -> SandboxError {
    SandboxError::Failed {
        stage,
        reason: errno.to_string(),
    }
}

fn c_string(bytes: &[u8]) -> Result<CString, SandboxError> {
    CString::new(bytes).map_err(|_| failed("arguments", Errno(libc::EINVAL)))
}

fn strings(request: &Command) -> Result<Vec<CString>, SandboxError> {
    request
        .argv
        .iter()
        .map(|argument| c_string(argument.as_bytes()))
        .collect()
}

/// The value of `PATH` inside: the table's, or what the policy says instead.
fn search_path(plan: &Plan) -> &str {
    plan.environment
        .iter()
        .find_map(|pair| pair.to_str().ok()?.strip_prefix("PATH="))
        .unwrap_or(super::environment::PATH)
}

/// Where the program's file is, seen from outside: the first candidate that is a file and that the sandbox can see.
pub(crate) fn locate(policy: &EffectivePolicy, command: &Command) -> Option<PathBuf> {
    let name = CString::new(command.argv.first()?.as_bytes()).ok()?;
    let search = policy
        .environment()
        .get("PATH")
        .map_or(super::environment::PATH, String::as_str);
    candidates(&name, search)
        .into_iter()
        .map(|path| command.cwd.join(OsStr::from_bytes(path.as_bytes())))
        .find(|path| path.is_file())
}

/// A closed standard stream would become some other file's number.
pub(crate) fn fill_streams() -> Result<(), Errno> {
    loop {
        let fd = file::open_at(Fd::CWD, c"/dev/null", libc::O_RDWR, 0)?;
        if fd.0 > 2 {
            file::close(fd);
            return Ok(());
        }
    }
}

/// A directory as a standard stream would be a way into the host's tree that no namespace closes (SEC-INV-03).
fn check_streams() -> Result<(), SandboxError> {
    for (number, name) in ["stdin", "stdout", "stderr"].into_iter().enumerate() {
        let fd = Fd(number as i32);
        let status = file::status(fd).map_err(|errno| failed("streams", errno))?;
        let flags = file::flags(fd).map_err(|errno| failed("streams", errno))?;
        if status.st_mode & libc::S_IFMT == libc::S_IFDIR || flags & libc::O_PATH != 0 {
            return Err(Refusal::new(Code::PathDenied, "standard streams", name).into());
        }
    }
    Ok(())
}

/// As root, the program runs as another user and could not open its own streams again by name (`/dev/stdin`), when they
/// are pipes that root made. Whoever holds neither end finds no way to a pipe.
fn open_pipes_to_all() {
    for stream in [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ] {
        let is_pipe =
            rustix::fs::fstatfs(stream).is_ok_and(|status| status.f_type == PIPE_FILE_SYSTEM);
        if is_pipe {
            // A pipe of somebody else stays as it is; then only opening it by name fails.
            let _foreign = rustix::fs::fchmod(stream, rustix::fs::Mode::from_raw_mode(0o666));
        }
    }
}

/// `PIPEFS_MAGIC`.
const PIPE_FILE_SYSTEM: rustix::fs::FsWord = 0x5049_5045;

/// How long a command may go on after the first SIGTERM; a second one ends it at once.
const GRACE: Duration = Duration::from_secs(10);

/// Why the wait was over.
enum Over {
    /// The command has ended, or never started.
    Done,
    /// The time was used up.
    Time,
    /// We were told to end, and the command does not.
    Asked,
}

fn wait(
    shared: &Shared,
    init: &Init,
    done: Fd,
    deadline: Option<Instant>,
    mut relay: Option<&mut SingleRelay>,
    terminal: &mut Option<Terminal>,
) -> Result<Over, Errno> {
    let signals = signal::descriptor(FORWARDED)?;
    let none = signal::readable(Fd(-1));
    let mut list = [
        signal::readable(done),
        signal::readable(init.pidfd),
        signal::readable(signals),
        // A negative number is passed over.
        signal::readable(Fd(relay.as_ref().map_or(-1, |relay| relay.number()))),
        none,
        none,
    ];
    let mut asked: Option<Instant> = None;
    let result = 'waiting: loop {
        let now = Instant::now();
        if asked.is_some_and(|asked| asked + GRACE <= now) {
            break Over::Asked;
        }
        if deadline.is_some_and(|deadline| deadline <= now) {
            break Over::Time;
        }
        let next = deadline
            .into_iter()
            .chain(asked.map(|asked| asked + GRACE))
            .min();
        let left = next.map(|next| next.saturating_duration_since(now).as_nanos() as u64);
        if let Some(terminal) = terminal {
            [list[4], list[5]] = terminal.interest();
        }
        let ready = signal::poll(&mut list, left)?;
        if ready == 0 {
            continue;
        }
        if list[0].revents != 0 || list[1].revents != 0 {
            match terminal {
                Some(terminal) if stopped(shared, done) => {
                    terminal.stop_job(FORWARDED)?;
                    forward(shared, libc::SIGCONT);
                }
                _ => break Over::Done,
            }
        }
        if let Some(terminal) = terminal {
            terminal.turn([list[4], list[5]]);
        }
        if list[3].revents != 0
            && let Some(relay) = relay.as_deref_mut()
        {
            relay.turn()?;
        }
        while let Some(number) = signal::take(signals) {
            if number == libc::SIGTERM && asked.replace(now).is_some() {
                break 'waiting Over::Asked;
            }
            if let Some(terminal) = terminal {
                match number {
                    // The kernel tells the programs on the other terminal.
                    libc::SIGWINCH => {
                        terminal.resize();
                        continue;
                    }
                    libc::SIGTSTP => terminal.leave(),
                    libc::SIGCONT => terminal.enter(),
                    _ => {}
                }
            }
            forward(shared, number);
            if number == libc::SIGTERM {
                // A stopped command could not act on it.
                forward(shared, libc::SIGCONT);
            }
        }
    };
    file::close(signals);
    Ok(result)
}

/// Whether the command was stopped and has not ended; then the bell is off again.
fn stopped(shared: &Shared, done: Fd) -> bool {
    if shared.ended.load(Ordering::Acquire) != 0 || shared.stopped.swap(0, Ordering::AcqRel) == 0 {
        return false;
    }
    // It rang, so this does not block; if the end has rung it meanwhile, init's own end follows.
    file::read(done, &mut [0u8; 8]).is_ok()
}

/// To the command's process group. The command leads a session of its own, so a terminal's stop and continue are passed
/// on as the signals that cannot be ignored, and we stop with it.
fn forward(shared: &Shared, number: i32) {
    let sent = match number {
        libc::SIGTSTP => libc::SIGSTOP,
        other => other,
    };
    let command = Fd(shared.command.load(Ordering::Acquire));
    if command.0 > 0 {
        // Before Linux 6.9 only the process itself can be reached. One that has ended needs no signal.
        let group = process::PIDFD_SIGNAL_PROCESS_GROUP;
        let _ended = process::signal_pidfd(command, sent, group).or_else(|errno| {
            if errno.0 == libc::EINVAL {
                process::signal_pidfd(command, sent, 0)
            } else {
                Err(errno)
            }
        });
    }
    if number == libc::SIGTSTP {
        // Returns when we are continued; our own SIGCONT is then waiting to be passed on.
        let _stopped = process::kill(process::id(), libc::SIGSTOP);
    }
}

/// Ends whatever still runs and waits for init, whose end is the end of the whole tree.
fn reap(shared: &Shared, init: &Init) {
    // Until then it uses our memory. An init that has ended already is what is wanted.
    let _ended = process::signal_pidfd(init.pidfd, init.ends_with, 0);
    shared.let_go_of_tripwire();
    while process::wait(init.pid, 0) == Err(Errno(libc::EINTR)) {}
    file::close(init.pidfd);
}

fn judge(shared: &Shared, request: &Command, over: Over) -> Result<ProcessEnd, SandboxError> {
    let ended = shared.ended.load(Ordering::Acquire) != 0;
    if matches!(over, Over::Time) && !ended {
        return Ok(ProcessEnd::TimedOut);
    }
    if matches!(over, Over::Asked) && !ended {
        return Ok(ProcessEnd::Signaled {
            signal: libc::SIGTERM,
        });
    }
    if !ended {
        return Ok(ProcessEnd::Killed);
    }
    if let Some(refused) = Refused::unpack(shared.refused.load(Ordering::Acquire)) {
        let program = request.argv.first().map(Path::new).unwrap_or(Path::new(""));
        return Err(refused.error(program, &request.cwd));
    }
    if shared.out_of_memory.load(Ordering::Acquire) != 0 {
        return Ok(ProcessEnd::OutOfMemory);
    }
    Ok(super::status::end(shared.status.load(Ordering::Acquire)))
}
