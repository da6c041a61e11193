//! A Task's running sandbox from the server's side: `run`, `kill`, `end`.

use super::bare::{self, Area};
use super::capture::{Budget, Capture, budget};
use super::cgroup::Group;
use super::explain::places::Place;
use super::explain::table::Table;
use super::explain::tell;
use super::protect::Record;
use super::relay::{RelayThread, Tally};
use super::standing::{ends_within, fd_of, memory_file};
use super::status;
use super::sys::memory::SharedFile;
use super::sys::socket as raw_socket;
use super::wire::{Header, KILL, MOST_INLINE, Report};
use policy::EffectivePolicy;
use policy::sandbox::{
    Finding, ProcessEnd, ProcessOutcome, ProcessRequest, ProgramClass, Relayed, SandboxError,
    TaskSandbox,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, pidfd_send_signal};
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a tree may take to die after it was killed.
const DIES_WITHIN: Duration = Duration::from_secs(10);
/// Bytes that may still be in a pipe when its program has ended: the most a pipe can be made to hold.
const MOST_IN_PIPE: usize = 1 << 20;
const CHUNK: usize = 64 * 1024;

/// What a running sandbox consists of on our side.
pub(super) struct Parts {
    pub(super) helper: Child,
    pub(super) init: OwnedFd,
    pub(super) init_id: i32,
    pub(super) control: OwnedFd,
    pub(super) requests: OwnedFd,
    /// Removed after everything in it has ended.
    pub(super) group: Option<Group>,
    /// The private area where it is a directory; removed after the tree has ended. Then there are no namespaces either.
    pub(super) area: Option<Area>,
}

impl Parts {
    pub(super) fn helper_id(&self) -> i32 {
        i32::try_from(self.helper.id()).unwrap_or(-1)
    }

    fn kill(&self) {
        if self.area.is_some() {
            // The guard ends the tree when its line is closed; killed, it could not. A closed line is what is wanted.
            let _closed = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
            return;
        }
        // One that has ended already is what is wanted.
        let _ended = pidfd_send_signal(&self.init, Signal::KILL);
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.kill();
        // The helper ends when init has ended; to be sure, it is ended too. Afterwards it is reaped either way.
        ends_within(self.init.as_fd(), DIES_WITHIN);
        let _ended = self.helper.kill();
        let _reaped = self.helper.wait();
    }
}

/// What init has seen refused, and what is needed to find the rules for it.
pub(super) struct Witness {
    pub(super) table: SharedFile<Table>,
    pub(super) places: Vec<Place>,
}

/// Programs of one Task are one tree: a time limit or a memory limit that one of them breaks ends all that run in it,
/// because a daemon can hide from whoever started it, but not from the Task. The Task itself goes on.
pub(super) struct Task {
    /// `None` after the end.
    parts: std::sync::RwLock<Option<Parts>>,
    record: Record,
    killed: AtomicBool,
    /// What is left to do at the end: stopping the relay, if there is one.
    end: Mutex<Option<RelayThread>>,
    tally: Option<Arc<Tally>>,
    output_bytes: u64,
    spool_name: String,
    spooled: AtomicU64,
    spool_budget: Budget,
    witness: Witness,
    policy: Arc<EffectivePolicy>,
}

impl Task {
    pub(super) fn new(
        parts: Parts,
        witness: Witness,
        record: Record,
        relay: Option<RelayThread>,
        policy: &Arc<EffectivePolicy>,
        task: &str,
    ) -> Self {
        let spool_name = task
            .chars()
            .map(|letter| {
                if letter.is_ascii_alphanumeric() || letter == '-' {
                    letter
                } else {
                    '_'
                }
            })
            .take(80)
            .collect();
        Self {
            parts: std::sync::RwLock::new(Some(parts)),
            record,
            killed: AtomicBool::new(false),
            tally: relay.as_ref().map(RelayThread::tally),
            end: Mutex::new(relay),
            output_bytes: policy.resources().output_bytes,
            spool_name,
            spooled: AtomicU64::new(0),
            spool_budget: budget(),
            witness,
            policy: Arc::clone(policy),
        }
    }

    fn capture(&self, request: &ProcessRequest, stream: &str) -> Capture {
        let path = request.spool_directory.as_ref().map(|directory| {
            let number = self.spooled.fetch_add(1, Ordering::Relaxed);
            directory.join(format!("{}-{number}.{stream}", self.spool_name))
        });
        Capture::new(self.output_bytes, path, Arc::clone(&self.spool_budget))
    }
}

fn failed(stage: &'static str, reason: impl ToString) -> SandboxError {
    SandboxError::Failed {
        stage,
        reason: reason.to_string(),
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), SandboxError> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed("pipe", errno))?;
    // The program may be another user than we are, and opens its streams again by name (`/dev/stderr`).
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::fchmod(&write, mode).map_err(|errno| failed("pipe", errno))?;
    Ok((read, write))
}

impl TaskSandbox for Task {
    fn run(&self, request: &ProcessRequest) -> Result<ProcessOutcome, SandboxError> {
        let guard = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        let Some(parts) = guard.as_ref() else {
            return Err(failed("run", "the Task has ended"));
        };
        if parts.area.is_some() {
            bare::plan::check_directory(&self.policy, &request.cwd)?;
        }
        let started = Instant::now();
        let seen_before = self.witness.table.counts();
        let mut exchange = Exchange::begin(self, parts, request)?;
        let report = exchange.until_reported(started + request.timeout)?;
        exchange.drain();
        let (end, leftovers) = self.judge(report, exchange.timed_out, request)?;
        // Of programs that run at the same time in one Task each gets the refusals of all: they are one tree.
        let Witness { table, places } = &self.witness;
        let (denials, _more) = tell::denials(&self.policy, places, table, &seen_before);
        Ok(ProcessOutcome {
            end,
            stdout: exchange.stdout.finish(),
            stderr: exchange.stderr.finish(),
            elapsed: started.elapsed(),
            denials,
            leftovers,
        })
    }

    fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        let guard = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(parts) = guard.as_ref() {
            parts.kill();
        }
    }

    fn end(&self) -> Result<(), SandboxError> {
        let mut relay = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        self.kill();
        {
            let guard = self.parts.read().unwrap_or_else(PoisonError::into_inner);
            let Some(parts) = guard.as_ref() else {
                return Ok(());
            };
            // The kernel lets init end only after everything in its namespace has ended.
            if !ends_within(parts.init.as_fd(), DIES_WITHIN) {
                return Err(SandboxError::Residue {
                    what: format!("init {} does not end", parts.init_id),
                });
            }
        }
        let mut guard = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        let group = guard.as_mut().and_then(|parts| parts.group.take());
        let area = guard
            .as_ref()
            .and_then(|parts| Some(parts.area.as_ref()?.path().to_path_buf()));
        // Reaps the helper, and removes the private area where it is a directory.
        *guard = None;
        // Nobody is left to send anything; what is on its way is delivered.
        *relay = None;
        if let Some(path) = area.filter(|path| path.exists()) {
            return Err(SandboxError::Residue {
                what: path.display().to_string(),
            });
        }
        match group.map(|group| group.remove()) {
            Some(Err(what)) => Err(SandboxError::Residue { what }),
            _ => Ok(()),
        }
    }

    fn findings(&self) -> Vec<Finding> {
        self.record.findings()
    }

    fn relayed(&self) -> Vec<Relayed> {
        self.tally
            .as_ref()
            .map_or_else(Vec::new, |tally| tally.report())
    }
}

impl Task {
    fn judge(
        &self,
        report: Option<Report>,
        timed_out: bool,
        request: &ProcessRequest,
    ) -> Result<(ProcessEnd, u32), SandboxError> {
        if self.killed.load(Ordering::Acquire) {
            return Ok((ProcessEnd::Killed, 0));
        }
        match report {
            Some(Report::Ended { leftovers, .. }) if timed_out => {
                Ok((ProcessEnd::TimedOut, leftovers))
            }
            // The time was over before it could be started.
            Some(Report::Failed(_)) | None if timed_out => Ok((ProcessEnd::TimedOut, 0)),
            Some(Report::Ended {
                leftovers,
                out_of_memory: true,
                ..
            }) => Ok((ProcessEnd::OutOfMemory, leftovers)),
            Some(Report::Ended {
                status, leftovers, ..
            }) => Ok((status::end(status), leftovers)),
            Some(Report::Refused(refused)) => {
                Err(refused.error(&request.program.path, &request.cwd))
            }
            Some(Report::Failed(errno)) => Err(failed("start", super::sys::Errno(errno))),
            None => Err(failed("run", "the sandbox's init has ended")),
        }
    }
}

/// One request and its pipes.
struct Exchange<'t> {
    parts: &'t Parts,
    report: OwnedFd,
    stdin: Option<(OwnedFd, &'t [u8])>,
    out: Option<OwnedFd>,
    error: Option<OwnedFd>,
    stdout: Capture,
    stderr: Capture,
    buffer: Vec<u8>,
    timed_out: bool,
}

fn push(strings: &mut Vec<u8>, text: &OsStr) -> Result<(), SandboxError> {
    if text.as_bytes().contains(&0) {
        return Err(failed("request", "a NUL in an argument"));
    }
    strings.extend_from_slice(text.as_bytes());
    strings.push(0);
    Ok(())
}

fn encode(request: &ProcessRequest) -> Result<Vec<u8>, SandboxError> {
    let mut strings = Vec::with_capacity(256);
    push(&mut strings, request.cwd.as_os_str())?;
    push(&mut strings, request.program.path.as_os_str())?;
    for argument in &request.argv {
        push(&mut strings, argument)?;
    }
    Ok(strings)
}

impl<'t> Exchange<'t> {
    fn begin(
        task: &Task,
        parts: &'t Parts,
        request: &'t ProcessRequest,
    ) -> Result<Self, SandboxError> {
        let strings = encode(request)?;
        let (report, report_end) = pipe()?;
        let (out, out_end) = pipe()?;
        let (error, error_end) = pipe()?;
        let mut descriptors = vec![fd_of(&report_end), fd_of(&out_end), fd_of(&error_end)];
        let input = request
            .stdin
            .as_deref()
            .map(|bytes| pipe().map(|ends| (ends, bytes)));
        let input = input.transpose()?;
        if let Some(((read_end, write_end), _)) = &input {
            rustix::io::ioctl_fionbio(write_end, true).map_err(|errno| failed("pipe", errno))?;
            descriptors.push(fd_of(read_end));
        }
        let in_file = strings.len() > MOST_INLINE;
        let header = Header {
            has_stdin: input.is_some(),
            in_file,
            identity: request.program.identity,
            approved: matches!(
                request.program.class,
                ProgramClass::Entry | ProgramClass::Shell
            ),
            bytes: u32::try_from(strings.len()).map_err(|_| failed("request", "too long"))?,
            arguments: request.argv.len() as u32,
        };
        let mut message = header.encode().to_vec();
        let file;
        if in_file {
            file = memory_file(&strings).map_err(|error| failed("request", error))?;
            descriptors.push(fd_of(&file));
        } else {
            message.extend_from_slice(&strings);
        }
        raw_socket::send(fd_of(&parts.requests), &message, &descriptors)
            .map_err(|errno| failed("request", errno))?;
        Ok(Self {
            parts,
            report,
            stdin: input.map(|((_, write_end), bytes)| (write_end, bytes)),
            out: Some(out),
            error: Some(error),
            stdout: task.capture(request, "stdout"),
            stderr: task.capture(request, "stderr"),
            buffer: Vec::with_capacity(CHUNK),
            timed_out: false,
        })
    }

    /// Feeds and reads until the report comes; `None` when its pipe ended without one.
    fn until_reported(&mut self, deadline: Instant) -> Result<Option<Report>, SandboxError> {
        let mut deadline = deadline;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if self.timed_out {
                    // It cannot even be killed from inside; then all of it goes.
                    self.parts.kill();
                } else {
                    // A line that is closed means that init is ending, which ends the program too.
                    let _closed = raw_socket::send(fd_of(&self.parts.control), &[KILL], &[]);
                }
                self.timed_out = true;
                deadline = Instant::now() + DIES_WITHIN;
                continue;
            }
            let ready = self.wait(left)?;
            if ready.stdin {
                self.feed();
            }
            if ready.out {
                read_into(&mut self.out, &mut self.stdout, &mut self.buffer);
            }
            if ready.error {
                read_into(&mut self.error, &mut self.stderr, &mut self.buffer);
            }
            if ready.report {
                let mut message = [0u8; Report::BYTES];
                let length = rustix::io::read(&self.report, &mut message)
                    .map_err(|errno| failed("report", errno))?;
                return Ok(Report::decode(&message[..length]));
            }
        }
    }

    fn wait(&self, left: Duration) -> Result<Ready, SandboxError> {
        let limit = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut list = Vec::with_capacity(4);
        list.push(PollFd::new(&self.report, PollFlags::IN));
        let wanted = [
            (self.out.as_ref(), PollFlags::IN),
            (self.error.as_ref(), PollFlags::IN),
            (self.stdin.as_ref().map(|(fd, _)| fd), PollFlags::OUT),
        ];
        let mut places = [None; 3];
        for (place, (fd, flags)) in places.iter_mut().zip(wanted) {
            if let Some(fd) = fd {
                *place = Some(list.len());
                list.push(PollFd::new(fd, flags));
            }
        }
        match poll(&mut list, Some(&limit)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(errno) => return Err(failed("poll", errno)),
        }
        let is_ready =
            |place: Option<usize>| place.is_some_and(|place| !list[place].revents().is_empty());
        Ok(Ready {
            report: is_ready(Some(0)),
            out: is_ready(places[0]),
            error: is_ready(places[1]),
            stdin: is_ready(places[2]),
        })
    }

    fn feed(&mut self) {
        let Some((fd, bytes)) = &mut self.stdin else {
            return;
        };
        match rustix::io::write(&*fd, bytes) {
            Ok(written) => *bytes = &bytes[written..],
            Err(Errno::AGAIN | Errno::INTR) => return,
            // The program does not read any more.
            Err(_) => *bytes = &[],
        }
        if bytes.is_empty() {
            self.stdin = None;
        }
    }

    /// What the program wrote before it ended. A process it left behind may still hold the pipes; it is not waited for.
    fn drain(&mut self) {
        for (fd, capture) in [
            (&mut self.out, &mut self.stdout),
            (&mut self.error, &mut self.stderr),
        ] {
            let mut left = MOST_IN_PIPE;
            while let Some(open) = fd.as_ref() {
                let waiting = rustix::io::ioctl_fionread(open).unwrap_or(0);
                if waiting == 0 || left == 0 {
                    break;
                }
                left = left.saturating_sub(read_into(fd, capture, &mut self.buffer));
            }
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Ready {
    report: bool,
    out: bool,
    error: bool,
    stdin: bool,
}

/// Reads once; closes at the end of the stream.
fn read_into(fd: &mut Option<OwnedFd>, capture: &mut Capture, buffer: &mut Vec<u8>) -> usize {
    let Some(open) = fd.as_ref() else { return 0 };
    buffer.clear();
    match rustix::io::read(open, rustix::buffer::spare_capacity(buffer)) {
        Ok(0) => {
            *fd = None;
            0
        }
        Ok(length) => {
            capture.take(buffer);
            length
        }
        Err(Errno::INTR) => 0,
        Err(_) => {
            *fd = None;
            0
        }
    }
}
