//! PID 2 of a standing sandbox: confined once, it starts every program, which therefore inherits everything at no cost.
//!
//! It shares memory and descriptors with init (our code only), starts programs as init's children, and is replaced by
//! init when it dies.

use super::confine;
use super::failure::{At as _, Failure, Stage};
use super::plan::Plan;
use super::program::{Program, Refused, execute};
use super::serve::Lines;
use super::shared::Shared;
use super::sys::process::StringArray;
use super::sys::signal::{self, SignalSet};
use super::sys::{Errno, Fd, file, memory, process, socket};
use super::wire::{Header, MOST_INLINE, Report, next_string};
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Programs that the server waits for at the same time.
pub(crate) const MOST_RUNNING: usize = 64;

const WATCH_AFTER_NS: u32 = 8_000_000;

/// A program that the server waits for. Free while `report` is zero.
pub(crate) struct Running {
    /// Its number inside, once it exists.
    pub(crate) pid: AtomicI32,
    /// The pipe for its report, plus one.
    report: AtomicI32,
}

impl Running {
    pub(crate) fn is_taken(&self) -> bool {
        self.report.load(Ordering::Acquire) != 0
    }

    /// Sends the report and frees the slot. Only the first caller for a program does.
    pub(crate) fn finish(&self, report: Report) {
        self.pid.store(0, Ordering::Release);
        if let Some(pipe) = self.take_pipe() {
            tell(pipe, report);
        }
    }

    /// The pipe for the report, which the caller now owes.
    pub(crate) fn take_pipe(&self) -> Option<Fd> {
        let pipe = self.report.swap(0, Ordering::AcqRel);
        (pipe > 0).then(|| Fd(pipe - 1))
    }
}

/// Sends a report and closes its pipe.
pub(crate) fn tell(pipe: Fd, report: Report) {
    // A server that no longer listens has ended the Task.
    let _gone = file::write(pipe, &report.encode());
    file::close(pipe);
}

/// Everything that init and zygote share, in init's memory.
pub(crate) struct Workshop<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) shared: &'p Shared,
    pub(crate) filter: &'p [libc::sock_filter],
    pub(crate) requests: Fd,
    /// The cgroup for zygote and programs.
    group: Option<Fd>,
    /// Wakes init when a program has run for a while: only then its memory must be watched, and a short program costs
    /// no extra switch.
    pub(crate) timer: Fd,
    pub(crate) environment: StringArray<'p>,
    /// In memory that both share whether or not they share the rest.
    pub(crate) running: &'static [Running; MOST_RUNNING],
    pub(crate) zygote_stack: usize,
    pub(crate) program_stack: usize,
}

impl<'p> Workshop<'p> {
    pub(crate) fn new(
        plan: &'p Plan,
        shared: &'p Shared,
        filter: &'p [libc::sock_filter],
        lines: &Lines,
    ) -> Result<Self, Failure> {
        Ok(Self {
            plan,
            shared,
            filter,
            requests: lines.requests,
            group: lines.group.map(|group| group.tree),
            timer: signal::new_timer().at(Stage::Serve)?,
            environment: super::program::pointers(&plan.environment),
            // SAFETY: a free slot is all zero.
            running: unsafe { memory::shared_zeroed() }.at(Stage::Serve)?,
            zygote_stack: memory::new_stack().at(Stage::Serve)?,
            program_stack: memory::new_stack().at(Stage::Serve)?,
        })
    }

    /// Starts a zygote; its filter's listener appears in the shared page.
    ///
    /// No zygote and no program that still runs our code may be alive: they use the same stacks.
    pub(crate) fn start_zygote(&self) -> Result<i32, Failure> {
        self.shared.listener.store(0, Ordering::Release);
        let argument = std::ptr::from_ref(self).cast_mut().cast::<u8>();
        let stack = self.zygote_stack;
        match self.group {
            // In a cgroup the zygote dies with the programs when memory runs out, and so does whoever shares its memory.
            // SAFETY: init never returns, so `self` outlives the zygote; the stack is free as the function demands.
            Some(_) => unsafe {
                process::start_with(libc::CLONE_FILES, None, self.group, stack, zygote, argument)
            },
            // The older call: where there are no namespaces, the newer one is often missing too.
            // SAFETY: as above.
            None => unsafe {
                process::start_on(libc::CLONE_VM | libc::CLONE_FILES, stack, zygote, argument)
            },
        }
        .at(Stage::Serve)
    }
}

extern "C" fn zygote(workshop: *mut u8) -> ! {
    // SAFETY: `start_zygote` passed a reference that outlives this process.
    let workshop = unsafe { &*workshop.cast::<Workshop<'_>>() };
    if let Err(failure) = confine_zygote(workshop) {
        workshop.shared.fail(failure);
        memory::publish(&workshop.shared.listener, -1);
        process::exit(125);
    }
    loop {
        if serve_one(workshop).is_err() {
            // The line is closed: the server is gone, and init sees that too.
            process::exit(0);
        }
    }
}

fn confine_zygote(workshop: &Workshop<'_>) -> Result<(), Failure> {
    process::die_with_parent().at(Stage::ParentDeath)?;
    // Programs may signal everything inside; only SIGKILL and SIGSTOP reach the zygote, and init notices both.
    signal::block_only(SignalSet::ALL).at(Stage::Serve)?;
    // Privileges were given up by init, for good.
    confine::limit(&workshop.plan.limits)?;
    confine::apply_landlock(workshop.shared.ruleset())?;
    let listener = confine::load_filter(workshop.filter, workshop.plan.filter.quiet)?;
    memory::publish(&workshop.shared.listener, listener);
    Ok(())
}

/// One program about to be executed, on the zygote's stack while the child borrows it.
struct Attempt<'a> {
    workshop: &'a Workshop<'a>,
    slot: &'a Running,
    directory: &'a CStr,
    path: &'a CStr,
    arguments: &'a [*const c_char],
    header: Header,
    streams: [Fd; 3],
    refused: AtomicU64,
}

/// Takes one request. An error means that there will be no more.
fn serve_one(workshop: &Workshop<'_>) -> Result<(), Errno> {
    let mut message = [0u8; Header::BYTES + MOST_INLINE];
    let received = loop {
        match socket::receive(workshop.requests, &mut message) {
            Err(Errno(libc::EINTR)) => {}
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Err(Errno(libc::EPIPE));
    }
    let mut descriptors = received.descriptors();
    let report = descriptors.next();
    let streams = [descriptors.next(), descriptors.next()];
    let message = message.get(..received.bytes).unwrap_or(&[]);
    if let (Some(report), [Some(stdout), Some(stderr)], Some(header)) =
        (report, streams, Header::decode(message))
    {
        let stdin = if header.has_stdin {
            descriptors.next()
        } else {
            None
        };
        let in_file = if header.in_file {
            descriptors.next()
        } else {
            None
        };
        let inline = message.get(Header::BYTES..).unwrap_or(&[]);
        // Descriptor 0 is the null device of the new root.
        let streams = [stdin.unwrap_or(Fd(0)), stdout, stderr];
        match in_file.map(|fd| memory::map_file(fd, header.bytes as usize)) {
            None => start(workshop, header, inline, report, streams),
            Some(Ok(mapped)) => {
                start(workshop, header, mapped, report, streams);
                memory::unmap(mapped);
            }
            Some(Err(errno)) => tell(report, Report::Failed(errno.0)),
        }
    } else if let Some(report) = report {
        tell(report, Report::Failed(libc::EPROTO));
    }
    // The report's own number belongs to whoever finishes the program.
    for fd in received.descriptors().skip(1) {
        file::close(fd);
    }
    Ok(())
}

fn start(workshop: &Workshop<'_>, header: Header, strings: &[u8], report: Fd, streams: [Fd; 3]) {
    let Some(slot) = workshop.running.iter().find(|slot| !slot.is_taken()) else {
        return tell(report, Report::Failed(libc::EAGAIN));
    };
    slot.report.store(report.0 + 1, Ordering::Release);
    if !workshop.plan.limits.counted
        && let Err(errno) = signal::arm(workshop.timer, WATCH_AFTER_NS)
    {
        return slot.finish(Report::Failed(errno.0));
    }
    let Ok(pointers) = memory::pointer_array(header.arguments as usize + 1) else {
        return slot.finish(Report::Failed(libc::ENOMEM));
    };
    let parsed = parse(strings, pointers, header.arguments as usize);
    if let Some((directory, path)) = parsed {
        let attempt = Attempt {
            workshop,
            slot,
            directory,
            path,
            arguments: pointers,
            header,
            streams,
            refused: AtomicU64::new(0),
        };
        let flags = libc::CLONE_PARENT | libc::CLONE_VM | libc::CLONE_VFORK;
        let argument = std::ptr::from_ref(&attempt).cast_mut().cast::<u8>();
        // SAFETY: with CLONE_VFORK we wait until the child has executed or ended, so `attempt` and the stack are its own.
        let started =
            unsafe { process::start_on(flags, workshop.program_stack, program, argument) };
        if let Err(errno) = started {
            slot.finish(Report::Failed(errno.0));
        } else if let Some(refused) = Refused::unpack(attempt.refused.load(Ordering::Acquire)) {
            slot.finish(Report::Refused(refused));
        }
    } else {
        slot.finish(Report::Failed(libc::EPROTO));
    }
    memory::free_pointer_array(pointers);
}

/// Directory and program; the arguments' pointers go into the array, which ends with a null.
fn parse<'s>(
    strings: &'s [u8],
    pointers: &mut [*const c_char],
    arguments: usize,
) -> Option<(&'s CStr, &'s CStr)> {
    let (directory, rest) = next_string(strings)?;
    let (path, mut rest) = next_string(rest)?;
    for pointer in pointers.iter_mut().take(arguments) {
        let (argument, after) = next_string(rest)?;
        *pointer = argument.as_ptr();
        rest = after;
    }
    Some((directory, path))
}

/// The program's process, until it is executed.
extern "C" fn program(attempt: *mut u8) -> ! {
    // SAFETY: `start` passed a reference and waits for us.
    let attempt = unsafe { &*attempt.cast::<Attempt<'_>>() };
    // Before anything can end this process, so that init knows whose end it is.
    attempt.slot.pid.store(process::id(), Ordering::Release);
    let refused = match run_program(attempt) {
        Ok(refused) => refused,
        Err(errno) => Refused::NotExecutable(errno.0),
    };
    // The zygote reports this one; init must not.
    attempt.slot.pid.store(0, Ordering::Release);
    attempt.refused.store(refused.pack(), Ordering::Release);
    process::exit(127)
}

fn run_program(attempt: &Attempt<'_>) -> Result<Refused, Errno> {
    for (number, stream) in attempt.streams.iter().enumerate() {
        let target = Fd(number as i32);
        if *stream != target {
            file::duplicate_onto(*stream, target, 0)?;
        }
    }
    process::new_session()?;
    if attempt.workshop.plan.bare.is_some() {
        // No process namespace does it.
        process::die_with_parent()?;
    }
    // First of all the tripwire's device: nobody may wait for its server and keep it alive.
    confine::leave_nothing()?;
    if let Err(errno) = file::change_directory(attempt.directory) {
        return Ok(Refused::Directory(errno.0));
    }
    let program = Program {
        candidates: &[attempt.path],
        arguments: attempt.arguments,
        environment: attempt.workshop.environment.pointers(),
        identity: attempt.header.identity,
        approved: attempt.header.approved,
    };
    // SAFETY: `parse` filled the array with strings of the request and left the null at its end; the environment is a
    // `StringArray`.
    Ok(unsafe { execute(&program) })
}
