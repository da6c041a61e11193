//! PID 1 of a standing sandbox: supervises, reports every end, and starts the zygote again when it dies.

use super::bare;
use super::cgroup::{self, Places};
use super::confine::NO_LISTENER;
use super::explain::table::Table;
use super::failure::{At as _, Failure, Stage};
use super::launch::Never;
use super::plan::Plan;
use super::shared::Shared;
use super::supervisor::Supervisor;
use super::sys::{Errno, Fd, file, memory, process, signal, socket};
use super::wire::{KILL, LISTENERS, READY, Report};
use super::zygote::{MOST_RUNNING, Running, Workshop, tell};
use std::sync::atomic::Ordering;

/// The two ends that init keeps of the host.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    /// Commands and readiness; its end is the server's end.
    pub(crate) control: Fd,
    /// Requests, read by the zygote.
    pub(crate) requests: Fd,
    /// The cgroup for everything, where one is delegated.
    pub(crate) group: Option<Places>,
}

/// Numbers from here on are what init keeps; everything else is closed.
const KEPT: i32 = 300;

/// Serves until the control line ends.
pub(crate) fn serve(
    plan: &Plan,
    shared: &Shared,
    table: &Table,
    filter: &[libc::sock_filter],
    lines: Lines,
) -> Result<Never, Failure> {
    hand_over(shared, lines.control).at(Stage::Listeners)?;
    if plan.bare.is_some() {
        let (lines, tripwire) = keep_only(shared, lines).at(Stage::Descriptors)?;
        // Without a user namespace of its own.
        process::drop_own_privileges().at(Stage::Privileges)?;
        return serve_kept(plan, shared, table, tripwire, filter, lines);
    }
    process::unshare(libc::CLONE_FILES).at(Stage::Descriptors)?;
    let (lines, tripwire) = keep_only(shared, lines).at(Stage::Descriptors)?;
    memory::publish(&shared.apart, 1);
    process::drop_privileges().at(Stage::Privileges)?;
    serve_kept(plan, shared, table, tripwire, filter, lines)
}

fn serve_kept(
    plan: &Plan,
    shared: &Shared,
    table: &Table,
    tripwire: Option<Fd>,
    filter: &[libc::sock_filter],
    lines: Lines,
) -> Result<Never, Failure> {
    let workshop = Workshop::new(plan, shared, filter, &lines)?;
    let mut init = Init {
        supervisor: Supervisor::new(plan, table, tripwire).at(Stage::Supervisor)?,
        zygote: 0,
        workshop: &workshop,
        leftovers: 0,
        out_of_memory: false,
        events: lines.group.map(|group| group.events),
        memory_kills: 0,
    };
    init.start_zygote()?;
    socket::send(lines.control, &[READY], &[]).at(Stage::Serve)?;
    loop {
        let mut lines_ready = [
            signal::readable(lines.control),
            signal::readable(workshop.timer),
        ];
        let watched = !plan.limits.counted && init.is_busy();
        let turn = init
            .supervisor
            .wait(&mut lines_ready, watched)
            .at(Stage::Supervisor)?;
        if lines_ready[1].revents != 0 {
            signal::quiet(workshop.timer);
        }
        if turn.children {
            init.reap()?;
        }
        if turn.over_memory {
            init.out_of_memory = true;
            init.kill_programs()?;
            init.out_of_memory = false;
        }
        if lines_ready[0].revents != 0 && !init.obey(lines.control)? {
            // Our end is everyone's end.
            if plan.bare.is_some() {
                bare::guard::end(plan);
            }
            process::exit(0);
        }
    }
}

/// Gives the server the listening sockets of the granted addresses; nobody else keeps one.
fn hand_over(shared: &Shared, control: Fd) -> super::sys::Result<()> {
    let mut listeners = shared.take_listeners();
    loop {
        let mut some = [Fd(-1); socket::MOST_DESCRIPTORS];
        let mut count = 0;
        for (slot, listener) in some.iter_mut().zip(&mut listeners) {
            *slot = listener;
            count += 1;
        }
        let Some(some) = some.get(..count).filter(|some| !some.is_empty()) else {
            return Ok(());
        };
        socket::send(control, &[LISTENERS], some)?;
        for listener in some {
            file::close(*listener);
        }
    }
}

/// A descriptor table of our own with nothing of the host in it but the two lines and the rule set; the standard streams
/// are the sandbox's own null device.
fn keep_only(shared: &Shared, lines: Lines) -> super::sys::Result<(Lines, Option<Fd>)> {
    let mut kept = Lines {
        control: file::duplicate_above(lines.control, KEPT)?,
        requests: file::duplicate_above(lines.requests, KEPT)?,
        group: lines.group,
    };
    let mut last = kept.control.0.max(kept.requests.0);
    if let Some(group) = &mut kept.group {
        for place in [&mut group.tree, &mut group.events] {
            *place = file::duplicate_above(*place, KEPT)?;
            last = last.max(place.0);
        }
    }
    let tripwire = match shared.tripwire() {
        Some(device) => Some(file::duplicate_above(device, KEPT)?),
        None => None,
    };
    last = last.max(tripwire.map_or(0, |device| device.0));
    if let Some(ruleset) = shared.ruleset() {
        let ruleset = file::duplicate_above(ruleset, KEPT)?;
        shared.ruleset.store(ruleset.0 + 1, Ordering::Release);
        last = last.max(ruleset.0);
    }
    file::close_range(last + 1, u32::MAX, false)?;
    file::close_range(3, KEPT as u32 - 1, false)?;
    let null = file::open_at(Fd::CWD, c"/dev/null", libc::O_RDWR, 0)?;
    for number in 0..3 {
        file::duplicate_onto(null, Fd(number), 0)?;
    }
    file::close(null);
    Ok((kept, tripwire))
}

struct Init<'w> {
    supervisor: Supervisor<'w>,
    zygote: i32,
    workshop: &'w Workshop<'w>,
    /// Processes that ended programs left behind, as last counted.
    leftovers: u32,
    out_of_memory: bool,
    /// `memory.events` of the tree's cgroup.
    events: Option<Fd>,
    /// Its count of ended processes as of the last zygote's start.
    memory_kills: u64,
}

impl Init<'_> {
    fn start_zygote(&mut self) -> Result<(), Failure> {
        if let Some(events) = self.events {
            self.memory_kills = cgroup::memory_kills(events);
        }
        self.zygote = self.workshop.start_zygote()?;
        let word = &self.workshop.shared.listener;
        memory::wait_while(word, 0, Some(10_000));
        let listener = word.load(Ordering::Acquire);
        if listener == NO_LISTENER {
            return Ok(());
        }
        if listener > 0 && self.supervisor.add_listener(Fd(listener - 1)) {
            return Ok(());
        }
        Err(self.workshop.shared.failure().unwrap_or(Failure {
            stage: Stage::Filter,
            errno: libc::ETIMEDOUT,
            step: 0,
        }))
    }

    /// Whether the kernel ended the tree for want of memory since the zygote was started. It ends all of it.
    fn ran_out(&self) -> bool {
        self.out_of_memory
            || self
                .events
                .is_some_and(|events| cgroup::memory_kills(events) > self.memory_kills)
    }

    /// Whether memory must be watched: a program runs, or one has left something behind.
    fn is_busy(&mut self) -> bool {
        if self.workshop.running.iter().any(|slot| slot.is_taken()) {
            return true;
        }
        if self.leftovers > 0 {
            self.leftovers = self.count_leftovers();
        }
        self.leftovers > 0
    }

    /// Everything but init, zygote and the programs that the server waits for.
    fn count_leftovers(&self) -> u32 {
        let running = self.workshop.running.iter();
        let expected = running
            .filter(|slot| slot.pid.load(Ordering::Acquire) != 0)
            .count() as u32;
        self.supervisor.watch.count().saturating_sub(2 + expected)
    }

    fn reap(&mut self) -> Result<(), Failure> {
        loop {
            match process::wait(-1, libc::WNOHANG | libc::WUNTRACED) {
                Ok(Some((pid, _))) if pid == self.zygote => {
                    // Ended or stopped by a program: it takes everything with it.
                    return self.kill_programs();
                }
                Ok(Some((_, status))) if status & 0xff == 0x7f => {}
                Ok(Some((pid, status))) => self.report(pid, status),
                Err(Errno(libc::EINTR)) => {}
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }

    fn report(&mut self, pid: i32, status: i32) {
        let running = &self.workshop.running;
        let slot = running
            .iter()
            .find(|slot| slot.pid.load(Ordering::Acquire) == pid);
        // An orphan of some program has nobody who waits for it.
        let Some(slot) = slot else { return };
        slot.pid.store(0, Ordering::Release);
        self.leftovers = self.count_leftovers();
        slot.finish(Report::Ended {
            status,
            leftovers: self.leftovers,
            out_of_memory: status & 0x7f == libc::SIGKILL && self.ran_out(),
        });
    }

    /// Ends every process but init, reports all programs, and begins anew.
    fn kill_programs(&mut self) -> Result<(), Failure> {
        let running = &self.workshop.running;
        let mut ended = [None; MOST_RUNNING];
        let out_of_memory = self.ran_out();
        loop {
            self.supervisor.kill_everything();
            match process::wait(-1, 0) {
                Ok(Some((pid, status))) => {
                    let of = |slot: &Running| slot.pid.load(Ordering::Acquire) == pid;
                    if let Some(index) = running.iter().position(of) {
                        running[index].pid.store(0, Ordering::Release);
                        ended[index] = Some(status);
                    }
                }
                Ok(None) | Err(Errno(libc::EINTR)) => {}
                Err(_) => break,
            }
        }
        self.leftovers = 0;
        let pipes = running.each_ref().map(Running::take_pipe);
        // Only a new zygote takes the request that follows a report; a dying one would take it along.
        let started = self.start_zygote();
        for (pipe, status) in pipes.into_iter().zip(ended) {
            let Some(pipe) = pipe else { continue };
            let report = match status {
                Some(status) => Report::Ended {
                    status,
                    leftovers: 0,
                    out_of_memory,
                },
                // The zygote died before this one existed.
                None => Report::Failed(libc::EAGAIN),
            };
            tell(pipe, report);
        }
        started
    }

    /// `false`: the server is gone.
    fn obey(&mut self, control: Fd) -> Result<bool, Failure> {
        let mut message = [0u8; 16];
        match socket::receive(control, &mut message) {
            Ok(received) if received.bytes > 0 => {
                for fd in received.descriptors() {
                    file::close(fd);
                }
                if message[0] == KILL {
                    self.kill_programs()?;
                }
                Ok(true)
            }
            Err(Errno(libc::EINTR | libc::EAGAIN)) => Ok(true),
            Ok(_) | Err(_) => Ok(false),
        }
    }
}
