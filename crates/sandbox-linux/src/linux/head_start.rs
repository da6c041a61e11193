//! An init that begins before it is known what for: the network namespace, the dearest part of a sandbox, is made while the
//! caller still reads its arguments, its configuration and the policy (P-1). It runs nothing and can reach nothing new
//! until a [`Launch`] is handed to it, which is checked and permitted as any other.

use super::launch::{self, Launch, NAMESPACES};
use super::once;
use super::sys::signal::{self, SignalSet};
use super::sys::{Errno, Fd, Result, file, memory, process};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// What the two sides share. Zero is the initial state of every word.
#[derive(Debug)]
struct Gate {
    /// The launch is there.
    open: AtomicI32,
    /// Where it is.
    launch: AtomicUsize,
    /// Why there is no network namespace; zero where there is one.
    network: AtomicI32,
    /// The caller's own pidfd.
    launcher: AtomicI32,
}

/// See [`crate::HeadStart`].
#[derive(Debug)]
pub(crate) struct HeadStart {
    gate: &'static Gate,
    init: Option<(i32, Fd)>,
    launcher: Fd,
    unblocked: SignalSet,
}

impl HeadStart {
    /// None where it cannot be; then everything is made when it is needed, and what is missing is said then.
    pub(crate) fn begin() -> Option<Self> {
        once::check_threads().ok()?;
        once::fill_streams().ok()?;
        // SAFETY: atomics of zero are the documented initial state.
        let gate: &'static Gate = unsafe { memory::shared_zeroed() }.ok()?;
        let launcher = process::open_pidfd(process::id(), 0).ok()?;
        gate.launcher.store(launcher.0, Ordering::Release);
        // Blocked before a child exists, as for every init: a terminal's signals are for the command.
        let unblocked = signal::block_only(once::FORWARDED).ok()?;
        let mut started = Self {
            gate,
            init: None,
            launcher,
            unblocked,
        };
        let pidfd = AtomicI32::new(-1);
        let flags = NAMESPACES | libc::CLONE_FILES | libc::CLONE_VM;
        let argument = std::ptr::from_ref(gate).cast_mut().cast::<u8>();
        // SAFETY: the gate is never unmapped, and `wait_at` neither allocates nor panics.
        let pid = unsafe { process::start(flags, Some(&pidfd), None, wait_at, argument) }.ok()?;
        started.init = Some((pid, Fd(pidfd.load(Ordering::Acquire))));
        Some(started)
    }

    /// Hands the launch over. From now on this init is the launch's, which must outlive it. None where it has been used.
    pub(crate) fn hand_over(&mut self, launch: &Launch<'_>) -> Option<(i32, Fd)> {
        let init = self.init.take()?;
        let address = std::ptr::from_ref(launch) as usize;
        self.gate.launch.store(address, Ordering::Release);
        memory::publish(&self.gate.open, 1);
        Some(init)
    }
}

/// What was not used ends; the signals are as they were.
impl Drop for HeadStart {
    fn drop(&mut self) {
        if let Some((pid, pidfd)) = self.init.take() {
            // Our own child and not reaped yet, so this can only fail when it is gone already.
            let _gone = process::kill(pid, libc::SIGKILL);
            while process::wait(pid, 0) == Err(Errno(libc::EINTR)) {}
            file::close(pidfd);
        }
        file::close(self.launcher);
        let _restored = signal::block_only(self.unblocked);
    }
}

extern "C" fn wait_at(gate: *mut u8) -> ! {
    // SAFETY: `begin` passed a mapping that is never unmapped.
    let gate = unsafe { &*gate.cast::<Gate>() };
    if is_alone(gate).unwrap_or(true) {
        process::exit(137);
    }
    if let Err(errno) = process::unshare(libc::CLONE_NEWNET) {
        gate.network.store(errno.0, Ordering::Release);
    }
    // As long as it takes: whoever hands the launch over takes this along when it dies.
    while gate.open.load(Ordering::Acquire) == 0 {
        memory::wait_while(&gate.open, 0, None);
    }
    let launch = gate.launch.load(Ordering::Acquire) as *mut u8;
    let network = match gate.network.load(Ordering::Acquire) {
        0 => Ok(()),
        errno => Err(Errno(errno)),
    };
    // SAFETY: `hand_over` stored a launch that outlives this process before it opened the gate.
    unsafe { launch::init_with_network(launch, network) }
}

/// Whether the caller died before its death could be a signal.
fn is_alone(gate: &Gate) -> Result<bool> {
    process::die_with_parent()?;
    let mut alive = [signal::readable(Fd(gate.launcher.load(Ordering::Acquire)))];
    Ok(signal::poll(&mut alive, Some(0))? > 0)
}
