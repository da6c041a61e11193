//! Who drives a Task's relay: one thread with a descriptor table of its own.
//!
//! So thousands of connections take no descriptor from the server, no program that the server starts can inherit one,
//! and with the thread everything of the relay is gone.

use super::{Reach, Relay, Tally};
use crate::backend::sys::signal::{self, SignalSet};
use crate::backend::sys::{Errno, Fd, file, process};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Bytes; nothing in it recurses.
const STACK: usize = 256 << 10;

/// A running relay. Dropping it ends it: what programs had sent is delivered, for two seconds at most.
pub(crate) struct RelayThread {
    tally: Arc<Tally>,
    /// Closed to stop it.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl RelayThread {
    /// Takes the listeners of the routed grants, in their order.
    ///
    /// # Errors
    /// The thread or its descriptor table could not be made.
    pub(crate) fn start(reach: &Reach, listeners: Vec<OwnedFd>) -> std::io::Result<Self> {
        let (stop_end, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let numbers: Vec<i32> = listeners.iter().map(OwnedFd::as_raw_fd).collect();
        let stop_number = stop_end.as_raw_fd();
        let reach = reach.clone();
        let (tell, told) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("relay".into())
            .stack_size(STACK)
            .spawn(move || run(&reach, &numbers, stop_number, &tell))?;
        // Until then the thread uses our descriptors; afterwards it has its own, and ours are closed here.
        let started = told.recv();
        drop((listeners, stop_end));
        match started {
            Ok(Ok(tally)) => Ok(Self {
                tally,
                stop: Some(stop),
                thread: Some(thread),
            }),
            Ok(Err(errno)) => Err(std::io::Error::from_raw_os_error(errno.0)),
            Err(_) => Err(std::io::Error::other("the relay's thread ended")),
        }
    }

    pub(crate) fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }
}

impl Drop for RelayThread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // One that panicked has closed its table too.
            let _ended = thread.join();
        }
    }
}

fn run(reach: &Reach, listeners: &[i32], stop: i32, tell: &SyncSender<Result<Arc<Tally>, Errno>>) {
    let begun = begin(reach, listeners, stop);
    let (mut relay, stop) = match begun {
        Ok(begun) => begun,
        Err(errno) => {
            // Whoever asked waits for exactly this.
            let _told = tell.send(Err(errno));
            return;
        }
    };
    // As above.
    let _told = tell.send(Ok(relay.tally()));
    while relay.turns(None) == Ok(true) {}
    drop(stop);
    relay.finish();
}

fn begin(reach: &Reach, listeners: &[i32], stop: i32) -> Result<(Relay, OwnedFd), Errno> {
    // No signal of the server is ours, and a receiver that has gone must not raise one.
    signal::block_only(SignalSet::ALL)?;
    process::unshare(libc::CLONE_FILES)?;
    let mut kept: Vec<i32> = listeners.iter().copied().chain([stop]).collect();
    kept.sort_unstable();
    // The standard streams stay, so that a panic can be told.
    let mut next = 3;
    for number in kept {
        if next < number {
            file::close_range(next, number as u32 - 1, false)?;
        }
        next = number + 1;
    }
    file::close_range(next, u32::MAX, false)?;
    let own = |number: &i32| owned(Fd(*number));
    let stop = owned(Fd(stop));
    let listeners = listeners.iter().map(own).collect();
    let failed = |errno: rustix::io::Errno| Errno(errno.raw_os_error());
    let relay = Relay::new(reach, listeners).map_err(failed)?;
    relay.stop_with(&stop).map_err(failed)?;
    Ok((relay, stop))
}

fn owned(fd: Fd) -> OwnedFd {
    // SAFETY: the number stands in this thread's own table, where nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(fd.0) }
}
