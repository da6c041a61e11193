//! PID 1: reaps, connects for others, watches memory. No allocation, no panic, never blocks for long.

use super::bare::tree;
use super::confine::NO_LISTENER;
use super::connect::{self, Decision, Pending};
use super::explain::observe::{Answer, Observer};
use super::explain::table::Table;
use super::explain::tripwire::Server;
use super::failure::{At as _, Failure, Stage};
use super::launch::{Never, ring};
use super::plan::Plan;
use super::shared::Shared;
use super::sys::signal::{self, SignalSet};
use super::sys::{Errno, Fd, Result, file, memory, process, seccomp, socket};
use super::watch::Watch;
use std::sync::atomic::Ordering;

/// Filters whose programs may be alive at the same time: one for every zygote since the Task began.
const MOST_LISTENERS: usize = 16;
/// Connections on their way at the same time; more are answered "try again".
const MOST_PENDING: usize = 32;
/// How often a full queue is tried again.
const RETRY_NS: u64 = 10_000_000;
/// Poll entries of the caller (see [`Supervisor::wait`]).
pub(crate) const MOST_OTHERS: usize = 2;

pub(crate) struct Supervisor<'p> {
    observer: Observer<'p>,
    tripwire: Option<Server<'p>>,
    listeners: [Option<Fd>; MOST_LISTENERS],
    pending: [Option<(Pending, seccomp::Notification)>; MOST_PENDING],
    child_signals: Fd,
    private_device: u64,
    pub(crate) watch: Watch,
}

impl<'p> Supervisor<'p> {
    pub(crate) fn new(plan: &'p Plan, table: &'p Table, tripwire: Option<Fd>) -> Result<Self> {
        const CHILD: SignalSet = SignalSet::of(&[libc::SIGCHLD]);
        signal::block_only(CHILD)?;
        let private = file::open_at(Fd::CWD, &plan.private.path, file::O_PATH_CLOEXEC, 0)?;
        let mut watch = Watch::new(plan.limits.memory_bytes, plan.page, private)?;
        if plan.bare.is_some() {
            watch.only_below(process::id());
        }
        Ok(Self {
            observer: Observer::new(plan, table),
            tripwire: tripwire.map(|device| Server {
                device,
                nodes: &plan.nodes,
                owner: plan.owner,
            }),
            listeners: [None; MOST_LISTENERS],
            pending: [None; MOST_PENDING],
            child_signals: signal::descriptor(CHILD)?,
            private_device: file::status(private)?.st_dev,
            watch,
        })
    }

    /// SIGKILL for everything but us.
    pub(crate) fn kill_everything(&self) {
        match self.watch.root() {
            Some(root) => tree::kill_below(root),
            // "No such process" is what is wanted.
            None => drop(process::kill(-1, libc::SIGKILL)),
        }
    }

    /// `false` when there are too many.
    pub(crate) fn add_listener(&mut self, listener: Fd) -> bool {
        let free = self.listeners.iter_mut().find(|slot| slot.is_none());
        let Some(slot) = free else {
            return false;
        };
        *slot = Some(listener);
        true
    }

    /// Waits for something to do and does it, except for reaping and for `others`, whose readiness it reports. With
    /// `watched` it looks at the tree's memory and says whether it is over its limit.
    pub(crate) fn wait(&mut self, others: &mut [libc::pollfd], watched: bool) -> Result<Turn> {
        const FIXED: usize = 2 + MOST_OTHERS;
        const TRIPWIRE: usize = 1 + MOST_OTHERS;
        let mut list = [signal::readable(Fd(-1)); FIXED + MOST_LISTENERS + MOST_PENDING];
        list[0] = signal::readable(self.child_signals);
        if let Some(server) = &self.tripwire {
            list[TRIPWIRE] = signal::readable(server.device);
        }
        for (slot, other) in list[1..TRIPWIRE].iter_mut().zip(others.iter()) {
            *slot = *other;
        }
        for (slot, listener) in list[FIXED..].iter_mut().zip(&self.listeners) {
            if let Some(listener) = listener {
                *slot = signal::readable(*listener);
            }
        }
        let mut retry = false;
        for (slot, pending) in list[FIXED + MOST_LISTENERS..].iter_mut().zip(&self.pending) {
            match pending {
                Some((Pending { file: Some(_), .. }, _)) => retry = true,
                Some((pending, _)) => {
                    *slot = signal::readable(pending.socket);
                    slot.events = libc::POLLOUT;
                }
                None => {}
            }
        }
        let mut timeout = watched.then(|| self.watch.pause(process::monotonic_ns()));
        if retry {
            timeout = Some(timeout.unwrap_or(RETRY_NS).min(RETRY_NS));
        }
        signal::poll(&mut list, timeout)?;
        for (other, slot) in others.iter_mut().zip(&list[1..TRIPWIRE]) {
            other.revents = slot.revents;
        }
        self.turn_tripwire(list[TRIPWIRE].revents);
        for index in 0..MOST_LISTENERS {
            self.turn_listener(index, list[FIXED + index].revents);
        }
        for index in 0..MOST_PENDING {
            self.turn_pending(index, list[FIXED + MOST_LISTENERS + index].revents);
        }
        let children = list[0].revents != 0;
        if children {
            while signal::take(self.child_signals).is_some() {}
        }
        Ok(Turn {
            children,
            over_memory: watched && self.watch.is_over(process::monotonic_ns()),
        })
    }

    /// One look at a name outside.
    fn turn_tripwire(&mut self, events: i16) {
        let Some(server) = self.tripwire else { return };
        if events & libc::POLLIN != 0 {
            // A caller that was killed meanwhile leaves nothing to read.
            let _gone = server.turn(Some(&self.observer));
        } else if events != 0 {
            // The kernel has given it up; looking there is an error from now on.
            file::close(server.device);
            self.tripwire = None;
        }
    }

    fn turn_listener(&mut self, index: usize, events: i16) {
        let Some(slot) = self.listeners.get_mut(index) else {
            return;
        };
        let Some(listener) = *slot else { return };
        if events & libc::POLLIN != 0 {
            // A caller that was killed meanwhile leaves nothing to receive.
            let Ok(request) = seccomp::receive(listener) else {
                return;
            };
            if i64::from(request.number) == libc::SYS_connect {
                self.connect(listener, &request);
            } else {
                match self.observer.look(listener, &request) {
                    Answer::Go => seccomp::proceed(listener, request.id),
                    Answer::Refuse(errno) => seccomp::answer(listener, request.id, Err(errno)),
                }
            }
        } else if events != 0 {
            // Nobody is left under this filter.
            file::close(listener);
            *slot = None;
        }
    }

    fn connect(&mut self, listener: Fd, request: &seccomp::Notification) {
        match connect::decide(listener, request, self.private_device) {
            Decision::Done(result) => {
                if let Err(errno) = result {
                    self.observer.say_connect(listener, request, errno);
                }
                seccomp::answer(listener, request.id, result);
            }
            Decision::Later(pending) => self.keep(pending, *request),
        }
    }

    fn keep(&mut self, pending: Pending, request: seccomp::Notification) {
        match self.pending.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some((pending, request)),
            None => {
                seccomp::answer(pending.listener, pending.id, Err(Errno(libc::EAGAIN)));
                pending.close();
            }
        }
    }

    fn turn_pending(&mut self, index: usize, events: i16) {
        let Some(slot) = self.pending.get_mut(index) else {
            return;
        };
        let Some((pending, request)) = *slot else {
            return;
        };
        let result = if !seccomp::is_waiting(pending.listener, pending.id) {
            Err(Errno(libc::EINTR))
        } else if let Some(path) = pending.file {
            match connect::connect_to_file(pending.socket, path) {
                Err(Errno(libc::EAGAIN)) => return,
                other => other,
            }
        } else if events != 0 {
            match socket::option(pending.socket, libc::SO_ERROR) {
                Ok(0) => Ok(()),
                Ok(errno) => Err(Errno(errno)),
                Err(errno) => Err(errno),
            }
        } else {
            return;
        };
        if let Err(errno) = result {
            self.observer.say_connect(pending.listener, &request, errno);
        }
        seccomp::answer(pending.listener, pending.id, result);
        pending.close();
        *slot = None;
    }
}

/// What [`Supervisor::wait`] saw.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// Children may have ended.
    pub(crate) children: bool,
    /// The tree is over its memory limit.
    pub(crate) over_memory: bool,
}

/// Ends every process but init, and waits until it is so.
pub(crate) fn end_everything() {
    loop {
        // "No such process" is what is wanted.
        let _none_left = process::kill(-1, libc::SIGKILL);
        match process::wait(-1, 0) {
            Ok(_) | Err(Errno(libc::EINTR)) => {}
            Err(_) => return,
        }
    }
}

/// A stop, not an end.
fn is_stopped(status: i32) -> bool {
    status & 0xff == 0x7f
}

/// Init of a one-shot sandbox: until the command has ended, then the rest.
pub(crate) fn once(
    plan: &Plan,
    shared: &Shared,
    table: &Table,
    command: i32,
    done: Fd,
    is_interactive: bool,
) -> std::result::Result<Never, Failure> {
    memory::wait_while(&shared.listener, 0, Some(10_000));
    let tripwire = shared.tripwire();
    // Our end must be its server's end, so the launcher must not hold its device. By now everything it gives us is here.
    process::unshare(libc::CLONE_FILES).at(Stage::Descriptors)?;
    memory::publish(&shared.apart, 1);
    let mut supervisor = Supervisor::new(plan, table, tripwire).at(Stage::Supervisor)?;
    let listener = shared.listener.load(Ordering::Acquire);
    if listener > 0 && listener != NO_LISTENER {
        supervisor.add_listener(Fd(listener - 1));
    }
    supervisor.watch.rearm();
    let stops = if is_interactive { libc::WUNTRACED } else { 0 };
    let status = 'running: loop {
        // Before waiting: the command may have ended before the signal was blocked.
        loop {
            match process::wait(-1, libc::WNOHANG | stops) {
                // On a terminal of its own the whole job stops with it.
                Ok(Some((pid, status))) if is_stopped(status) => {
                    if pid == command {
                        shared.stopped.store(1, Ordering::Release);
                        ring(done);
                    }
                }
                Ok(Some((pid, status))) if pid == command => break 'running status,
                Ok(Some(_)) | Err(Errno(libc::EINTR)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        let turn = supervisor
            .wait(&mut [], !plan.limits.counted)
            .at(Stage::Supervisor)?;
        if turn.over_memory {
            shared.out_of_memory.store(1, Ordering::Release);
            // That nothing is left to kill is fine.
            let _none_left = process::kill(-1, libc::SIGKILL);
        }
    };
    let leftovers = supervisor.watch.count().saturating_sub(1);
    end_everything();
    shared.leftovers.store(leftovers as i32, Ordering::Release);
    shared.status.store(status, Ordering::Release);
    memory::publish(&shared.ended, 1);
    ring(done);
    process::exit(0)
}
