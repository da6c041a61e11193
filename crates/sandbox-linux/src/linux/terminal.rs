//! A terminal of the command's own, relayed to ours: it never holds a descriptor of the real one.
//!
//! Where all three standard streams are our controlling terminal, the command gets the far end of a new pseudo-terminal. Init
//! leads its session, so that the command's process group has a parent in it and can be stopped from the keyboard, as a
//! shell's child can. What the command does to its terminal (modes, size, stolen input) ends with that terminal.

use super::sys::signal::{self, SignalSet};
use super::sys::{Fd, Result, file, process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::{self, OptionalActions, Termios};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, IntoRawFd as _, OwnedFd};

/// What is on its way in one direction. Small: it bounds what a terminal that does not read can hold up.
const BUFFER: usize = 4096;
/// How long the last output may take to reach a terminal that does not take it.
const LAST_WORDS_MS: i64 = 2000;

/// Bytes between two terminals.
struct Line {
    bytes: [u8; BUFFER],
    start: usize,
    end: usize,
}

impl Line {
    const fn new() -> Self {
        Self {
            bytes: [0; BUFFER],
            start: 0,
            end: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Reads once; `false` at the end.
    fn fill(&mut self, from: impl AsFd) -> bool {
        (self.start, self.end) = (0, 0);
        match rustix::io::read(from, &mut self.bytes[..]) {
            Ok(0) => false,
            Ok(count) => {
                self.end = count;
                true
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Writes once. What cannot be written any more is dropped: nobody is there to read it.
    fn flush(&mut self, to: impl AsFd) {
        match rustix::io::write(to, &self.bytes[self.start..self.end]) {
            Ok(count) => self.start += count,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => self.start = self.end,
        }
    }
}

/// Both ends of the new terminal, and ours.
pub(crate) struct Terminal {
    /// Ours, opened again so that it never blocks us; where that is not allowed, a copy that does.
    real: OwnedFd,
    near: OwnedFd,
    /// The command's end, a number that init and command use; -1 once it is closed here.
    far: Fd,
    /// How ours was before.
    saved: Termios,
    is_raw: bool,
    is_input_open: bool,
    input: Line,
    output: Line,
}

/// Whether all three streams are the terminal that controls us.
fn is_interactive() -> bool {
    let streams = [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ];
    let device = |stream| rustix::fs::fstat(stream).map(|status| status.st_rdev).ok();
    let Some(first) = device(streams[0]) else {
        return false;
    };
    let session = termios::tcgetsid(streams[0]).ok();
    streams
        .iter()
        .all(|stream| termios::isatty(stream) && device(*stream) == Some(first))
        && session.is_some()
        && session == rustix::process::getsid(None).ok()
}

impl Terminal {
    /// Makes one where the command is used interactively. `None` where it is not, or where this machine gives no
    /// pseudo-terminals: then the command has our streams and no controlling terminal.
    pub(crate) fn take() -> Option<Self> {
        if !is_interactive() {
            return None;
        }
        let saved = termios::tcgetattr(rustix::stdio::stdin()).ok()?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let near = rustix::pty::openpt(flags).ok()?;
        rustix::pty::unlockpt(&near).ok()?;
        let far = rustix::pty::ioctl_tiocgptpeer(&near, flags).ok()?;
        termios::tcsetattr(&far, OptionalActions::Now, &saved).ok()?;
        rustix::io::ioctl_fionbio(&near, true).ok()?;
        let again = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let real = rustix::fs::open("/proc/self/fd/0", again, rustix::fs::Mode::empty())
            .or_else(|_| rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3))
            .ok()?;
        let terminal = Self {
            real,
            near,
            far: Fd(far.into_raw_fd()),
            saved,
            is_raw: false,
            is_input_open: true,
            input: Line::new(),
            output: Line::new(),
        };
        terminal.resize();
        Some(terminal)
    }

    pub(crate) fn far(&self) -> Fd {
        self.far
    }

    /// The command's terminal becomes as large as ours; the kernel tells the programs on it.
    pub(crate) fn resize(&self) {
        // A terminal without a size has none to pass on.
        if let Ok(size) = termios::tcgetwinsize(&self.real) {
            let _told = termios::tcsetwinsize(&self.near, size);
        }
    }

    fn is_foreground(&self) -> bool {
        termios::tcgetpgrp(&self.real).is_ok_and(|group| group == rustix::process::getpgrp())
    }

    /// Every key goes to the command's terminal, which makes signals of them. In the background ours is left alone.
    pub(crate) fn enter(&mut self) {
        if !self.is_raw && self.is_foreground() {
            let mut raw = self.saved.clone();
            raw.make_raw();
            self.is_raw = termios::tcsetattr(&self.real, OptionalActions::Now, &raw).is_ok();
        }
    }

    /// Ours is as it was.
    pub(crate) fn leave(&mut self) {
        if self.is_raw && self.is_foreground() {
            // One that is gone needs nothing.
            let _gone = termios::tcsetattr(&self.real, OptionalActions::Drain, &self.saved);
        }
        self.is_raw = false;
    }

    /// Somebody stopped the command from the keyboard: the whole job stops, and this returns when it goes on. Where nobody
    /// could let it go on (no shell watches), the kernel does not stop us.
    pub(crate) fn stop_job(&mut self, blocked: SignalSet) -> Result<()> {
        self.leave();
        process::kill(0, libc::SIGTSTP)?;
        // Delivered here, if at all.
        signal::block_only(blocked.without(libc::SIGTSTP))?;
        signal::block_only(blocked)?;
        self.enter();
        Ok(())
    }

    /// What to wait for: ours, then the command's.
    pub(crate) fn interest(&self) -> [libc::pollfd; 2] {
        let mut list = [&self.real, &self.near].map(|fd| {
            let mut entry = signal::readable(Fd(fd.as_raw_fd()));
            entry.events = 0;
            entry
        });
        if self.is_input_open && self.input.is_empty() {
            list[0].events |= libc::POLLIN;
        }
        if !self.output.is_empty() {
            list[0].events |= libc::POLLOUT;
        }
        if self.output.is_empty() {
            list[1].events |= libc::POLLIN;
        }
        if !self.input.is_empty() {
            list[1].events |= libc::POLLOUT;
        }
        // An end that is only hung up would be ready for ever.
        for entry in &mut list {
            if entry.events == 0 {
                entry.fd = -1;
            }
        }
        list
    }

    /// Moves what can be moved.
    pub(crate) fn turn(&mut self, ready: [libc::pollfd; 2]) {
        let [real, near] = ready.map(|entry| (entry.events, entry.revents));
        let may = |(events, revents): (i16, i16), flag: i16| {
            events & flag != 0 && revents & (flag | libc::POLLHUP | libc::POLLERR) != 0
        };
        if may(real, libc::POLLOUT) {
            self.output.flush(&self.real);
        }
        if may(near, libc::POLLOUT) {
            self.input.flush(&self.near);
        }
        if may(real, libc::POLLIN) {
            self.is_input_open = self.input.fill(&self.real);
        }
        if may(near, libc::POLLIN) {
            // Its end is seen from the command's.
            let _open = self.output.fill(&self.near);
        }
    }

    /// After the command and all it started have ended: what they wrote last.
    fn last_words(&mut self) {
        if self.far.0 < 0 {
            return;
        }
        // Only then does the near end come to its end.
        file::close(self.far);
        self.far = Fd(-1);
        while is_ready(self.real.as_fd(), PollFlags::OUT) {
            self.output.flush(&self.real);
            if self.output.is_empty()
                && (!is_ready(self.near.as_fd(), PollFlags::IN) || !self.output.fill(&self.near))
            {
                return;
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.last_words();
        self.leave();
    }
}

/// Whether a descriptor becomes ready in time.
fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let limit = Timespec {
        tv_sec: LAST_WORDS_MS / 1000,
        tv_nsec: LAST_WORDS_MS % 1000 * 1_000_000,
    };
    matches!(poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&limit)), Ok(count) if count > 0)
}

/// In init, before the command exists: leads a session that this terminal controls.
pub(crate) fn lead_session(far: Fd) -> Result<()> {
    process::new_session()?;
    process::control_terminal(far)
}

/// In init: the command leads the foreground group of the session.
pub(crate) fn give_foreground(far: Fd, command: i32) -> Result<()> {
    process::lead_group(command)?;
    process::set_foreground(far, command)
}

/// In the command, which shares its descriptors with its launcher until here: three streams of its own.
pub(crate) fn stand_on(far: Fd) -> Result<()> {
    // Closes nothing; only makes the table our own.
    file::close_range(i32::MAX, i32::MAX as u32, true)?;
    for stream in 0..3 {
        file::duplicate_onto(far, Fd(stream), 0)?;
    }
    Ok(())
}
