//! The re-executed binary: a fresh process with one thread that starts init and guards its life.
//!
//! It is not init itself because a process namespace's init must be a child, and because init must not keep the
//! server's identity. It holds nothing but the control line and init's pidfd.

use super::bare;
use super::cgroup::Places;
use super::explain::table::Table;
use super::launch::{Launch, Role};
use super::plan::Plan;
use super::relay;
use super::serve::Lines;
use super::sys::{Errno, Fd, file, memory, process, signal, socket};
use super::wire::{FAILED, STARTED};
use std::sync::atomic::{AtomicBool, Ordering};

/// The name the helper is started under; a program whose name this is has been started by [`super::standing`].
pub(crate) const NAME: &str = "agent-mcp: sandbox init";

/// Where the control line is.
const CONTROL: Fd = Fd(0);

static CALLED: AtomicBool = AtomicBool::new(false);

/// Whether this program can be executed again as the helper.
pub(crate) fn is_possible() -> bool {
    CALLED.load(Ordering::Relaxed)
}

/// See [`crate::init`].
pub(crate) fn init() {
    CALLED.store(true, Ordering::Relaxed);
    match std::env::args_os().next() {
        Some(name) if name == NAME => run(),
        Some(name) if name == relay::RESOLVER => relay::run_resolver(),
        _ => {}
    }
}

fn run() -> ! {
    // Whatever a thread of the server had open without close-on-exec.
    let status = match file::close_range(3, u32::MAX, false).and_then(|()| serve()) {
        Ok(()) => 0,
        Err(_) => 125,
    };
    process::exit(status)
}

/// Receives the plan, starts init, and stays until either side ends.
fn serve() -> Result<(), Errno> {
    // Signals of the server's terminal are not for us.
    process::new_session()?;
    let mut word = [0u8; 8];
    let received = socket::receive(CONTROL, &mut word)?;
    let mut descriptors = received.descriptors();
    let (Some(requests), Some(plan), Some(denied)) =
        (descriptors.next(), descriptors.next(), descriptors.next())
    else {
        return Err(Errno(libc::EPROTO));
    };
    let bytes = usize::try_from(u64::from_ne_bytes(word)).map_err(|_| Errno(libc::EPROTO))?;
    let text = memory::map_file(plan, bytes)?;
    let plan_read: Plan = serde_json::from_slice(text).map_err(|_| Errno(libc::EPROTO))?;
    memory::unmap(text);
    file::close(plan);
    let lines = Lines {
        control: CONTROL,
        requests,
        group: match (
            descriptors.next(),
            descriptors.next(),
            descriptors.next(),
            descriptors.next(),
        ) {
            (Some(top), init @ Some(_), Some(tree), Some(events)) => Some(Places {
                top,
                init,
                tree,
                events,
            }),
            _ => None,
        },
    };
    let table = Table::in_file(denied)?;
    file::close(denied);
    if plan_read.bare.is_some() {
        let failure = match bare::guard::serve(&plan_read, table, lines) {
            Ok(never) => match never {},
            Err(failure) => failure,
        };
        bare::guard::end(&plan_read);
        return fail(failure);
    }
    let launch = match Launch::new(&plan_read, table, Role::Standing(lines)) {
        Ok(launch) => launch,
        Err(failure) => return fail(failure),
    };
    let init = match launch.start(None) {
        Ok(init) => init,
        Err(failure) => return fail(failure),
    };
    // Nobody needs to look into this process any more. A kernel that refuses that has no such thing.
    let _closed = process::set_dumpable(false);
    // Nothing is closed here: init shares this descriptor table until it has taken what it keeps.
    let mut message = [STARTED, u8::from(init.separated), 0, 0, 0, 0];
    message[2..].copy_from_slice(&init.pid.to_ne_bytes());
    let told = socket::send(CONTROL, &message, &[init.pidfd]);
    if told.is_ok() {
        memory::wait_while(&launch.shared.apart, 0, Some(10_000));
        launch.shared.let_go_of_tripwire();
        guard(&init)?;
    }
    // Its end is the end of the whole tree. One that has ended already is what is wanted.
    let _ended = process::signal_pidfd(init.pidfd, libc::SIGKILL, 0);
    launch.shared.let_go_of_tripwire();
    while process::wait(init.pid, 0) == Err(Errno(libc::EINTR)) {}
    match launch.shared.failure() {
        Some(failure) => fail(failure),
        None => Ok(()),
    }
}

/// Waits until init or the server ends. Commands on the line are init's to read.
fn guard(init: &super::launch::Init) -> Result<(), Errno> {
    let mut hang_up = signal::readable(CONTROL);
    hang_up.events = 0;
    let mut list = [hang_up, signal::readable(init.pidfd)];
    while signal::poll(&mut list, None)? == 0 {}
    Ok(())
}

fn fail(failure: super::failure::Failure) -> Result<(), Errno> {
    let mut message = [FAILED, 0, 0, 0, 0, 0, 0, 0, 0];
    message[1..].copy_from_slice(&failure.pack().to_ne_bytes());
    socket::send(CONTROL, &message, &[])
}
