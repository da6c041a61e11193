//! Signals and waiting for descriptors.

use super::raw::{Errno, Fd, Result, call};

const SET_BYTES: usize = 8;

/// A set of signals as the kernel sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalSet(u64);

impl SignalSet {
    pub(crate) const EMPTY: Self = Self(0);
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) const fn without(self, signal: i32) -> Self {
        Self(self.0 & !(1 << (signal - 1)))
    }

    pub(crate) const fn of(signals: &[i32]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < signals.len() {
            bits |= 1 << (signals[index] - 1);
            index += 1;
        }
        Self(bits)
    }
}

/// Replaces the set of blocked signals and returns the old one.
pub(crate) fn block_only(set: SignalSet) -> Result<SignalSet> {
    let mut old = SignalSet::EMPTY;
    // SAFETY: both sets have the size that is passed.
    unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK as usize,
                &raw const set.0 as usize,
                &raw mut old.0 as usize,
                SET_BYTES,
                0,
                0,
            ],
        )
    }?;
    Ok(old)
}

/// A descriptor that becomes readable when one of these (blocked) signals comes.
pub(crate) fn descriptor(set: SignalSet) -> Result<Fd> {
    // SAFETY: the set has the size that is passed.
    unsafe {
        call(
            libc::SYS_signalfd4,
            [
                usize::MAX,
                &raw const set.0 as usize,
                SET_BYTES,
                (libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) as usize,
                0,
                0,
            ],
        )
    }
    .map(|fd| Fd(fd as i32))
}

/// Takes one signal number off a signal descriptor.
pub(crate) fn take(fd: Fd) -> Option<i32> {
    let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
    let taken = super::file::read(fd, &mut record).ok()?;
    (taken == record.len())
        .then(|| i32::from_ne_bytes([record[0], record[1], record[2], record[3]]))
}

/// The kernel's `struct sigaction`, default action: the handler is null.
#[repr(C)]
pub(crate) struct KernelAction([u64; 4]);

impl KernelAction {
    /// `SIG_IGN`.
    const IGNORE: Self = Self([1, 0, 0, 0]);
}

/// Ignores a signal, and returns what was done with it before.
pub(crate) fn ignore(signal: i32) -> Result<KernelAction> {
    let (ignored, mut before) = (KernelAction::IGNORE, KernelAction([0; 4]));
    // SAFETY: both actions have the kernel's layout on both architectures.
    unsafe {
        call(
            libc::SYS_rt_sigaction,
            [
                signal as usize,
                &raw const ignored as usize,
                &raw mut before as usize,
                SET_BYTES,
                0,
                0,
            ],
        )
    }?;
    Ok(before)
}

/// Puts an action back that the kernel gave us.
pub(crate) fn set_action(signal: i32, action: &KernelAction) -> Result<()> {
    // SAFETY: an action that was in force before is valid, its handler included.
    unsafe {
        call(
            libc::SYS_rt_sigaction,
            [
                signal as usize,
                std::ptr::from_ref(action) as usize,
                0,
                SET_BYTES,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

/// Back to the default action; Rust programs ignore SIGPIPE and children inherit that.
pub(crate) fn reset(signal: i32) -> Result<()> {
    let action = KernelAction([0; 4]);
    // SAFETY: an all-zero action is the default one on both architectures.
    unsafe {
        call(
            libc::SYS_rt_sigaction,
            [
                signal as usize,
                &raw const action as usize,
                0,
                SET_BYTES,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

/// Waits until one is ready or the time is over; `None` waits for ever. Interrupted counts as nothing ready.
pub(crate) fn poll(list: &mut [libc::pollfd], timeout_ns: Option<u64>) -> Result<usize> {
    let limit = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    });
    let limit = limit
        .as_ref()
        .map_or(0, |limit| std::ptr::from_ref(limit) as usize);
    // SAFETY: the list is writable for its length; the time is valid or null.
    let answer = unsafe {
        call(
            libc::SYS_ppoll,
            [
                list.as_mut_ptr() as usize,
                list.len(),
                limit,
                0,
                SET_BYTES,
                0,
            ],
        )
    };
    match answer {
        Err(Errno(libc::EINTR)) => {
            for entry in list.iter_mut() {
                entry.revents = 0;
            }
            Ok(0)
        }
        other => other,
    }
}

/// An entry of a poll list that waits for input.
pub(crate) fn readable(fd: Fd) -> libc::pollfd {
    libc::pollfd {
        fd: fd.0,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// A timer that becomes readable; not armed yet.
pub(crate) fn new_timer() -> Result<Fd> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_timerfd_create,
            [
                libc::CLOCK_MONOTONIC as usize,
                (libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) as usize,
                0,
                0,
                0,
                0,
            ],
        )
    }
    .map(|fd| Fd(fd as i32))
}

/// Arms the timer once, from now.
pub(crate) fn arm(timer: Fd, after_ns: u32) -> Result<()> {
    let zero = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let time = libc::itimerspec {
        it_interval: zero,
        it_value: libc::timespec {
            tv_sec: 0,
            tv_nsec: after_ns.into(),
        },
    };
    // SAFETY: the time is readable; the old one is not asked for.
    unsafe {
        call(
            libc::SYS_timerfd_settime,
            [timer.arg(), 0, &raw const time as usize, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Makes a timer that has fired quiet again.
pub(crate) fn quiet(timer: Fd) {
    // One that has not fired has nothing to read.
    let _fired = super::file::read(timer, &mut [0u8; 8]);
}
