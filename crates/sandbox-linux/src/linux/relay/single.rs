//! The relay of a one-shot sandbox: driven by the loop that waits for the command, in the only thread there is.

use super::engine::AT_ONCE;
use super::{Reach, Relay};
use crate::backend::shared::Shared;
use crate::backend::sys::signal::{self, KernelAction};
use crate::backend::sys::{Errno, Fd, memory, process};
use policy::sandbox::Relayed;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::Ordering;

/// A relay, and what is put back when it ends.
pub(crate) struct SingleRelay {
    relay: Relay,
    _process: Prepared,
}

/// The process as a relay needs it, until this is dropped.
struct Prepared {
    limit: [u64; 2],
    on_broken_pipe: KernelAction,
}

impl Prepared {
    fn new() -> Result<Self, Errno> {
        // Init and the command exist already, so neither inherits it.
        let limit = process::raise_open_files()?;
        // A receiver that has gone must not end us.
        let on_broken_pipe = signal::ignore(libc::SIGPIPE)?;
        Ok(Self {
            limit,
            on_broken_pipe,
        })
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // Both only put back what was there.
        let _same = process::set_open_files(self.limit);
        let _same = signal::set_action(libc::SIGPIPE, &self.on_broken_pipe);
    }
}

impl SingleRelay {
    /// Waits for the command to have made the listeners. `None` where nothing is granted, or nothing came of the start,
    /// which the caller sees by itself.
    pub(crate) fn begin(reach: &Reach, shared: &Shared, init: Fd) -> Result<Option<Self>, Errno> {
        if reach.grants.is_empty() {
            return Ok(None);
        }
        // An init that has failed ends, and takes the command along before it says anything.
        while !memory::wait_while(&shared.listener, 0, Some(20)) {
            if signal::poll(&mut [signal::readable(init)], Some(0))? > 0 {
                return Ok(None);
            }
        }
        if shared.listener.load(Ordering::Acquire) <= 0 {
            return Ok(None);
        }
        let listeners = shared
            .take_listeners()
            // SAFETY: the command left the number to us in the table that we share, and has its own table by now or
            // closes nothing in this one.
            .map(|fd| unsafe { OwnedFd::from_raw_fd(fd.0) })
            .collect();
        let prepared = Prepared::new()?;
        let relay = Relay::new(reach, listeners).map_err(|errno| Errno(errno.raw_os_error()))?;
        Ok(Some(Self {
            relay,
            _process: prepared,
        }))
    }

    /// Readable when [`SingleRelay::turn`] has something to do.
    pub(crate) fn number(&self) -> i32 {
        self.relay.descriptor().as_raw_fd()
    }

    pub(crate) fn turn(&mut self) -> Result<(), Errno> {
        match self.relay.turns(Some(&AT_ONCE)) {
            Ok(_) => Ok(()),
            Err(errno) => Err(Errno(errno.raw_os_error())),
        }
    }

    /// Delivers what the command sent before its end, for two seconds at most, when it ended by itself.
    pub(crate) fn end(mut self, by_itself: bool) -> Vec<Relayed> {
        if by_itself {
            self.relay.finish();
        }
        self.relay.tally().report()
    }
}
