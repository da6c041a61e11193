//! One connection: two flows of bytes, each with its own end. Nothing here blocks or keeps more than one pipe of bytes.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Bytes that a pipe is asked to hold; what the user's share of pipe memory does not allow stays smaller.
const PIPE_BYTES: usize = 256 << 10;
/// Bytes that one flow moves before others have their turn.
const TURN_BYTES: usize = 1 << 20;
/// Bytes that are copied at once: small messages, and everything where no pipe is left.
const COPY_BYTES: usize = 16 << 10;
/// Bytes that were copied and that receivers have not taken, of all connections together.
const MOST_KEPT: usize = 16 << 20;

/// Bytes travel through these inside the kernel, without being copied. One is held only by a flow whose receiver has
/// stopped in the middle; with more of those than pipes, bytes are copied and stay with the sender's kernel meanwhile.
pub(super) struct Pipes {
    idle: Vec<(OwnedFd, OwnedFd)>,
    left: usize,
    copied: Box<[u8; COPY_BYTES]>,
    /// Bytes in [`Flow::kept`] of all flows.
    kept: usize,
}

impl Pipes {
    pub(super) fn new(most: usize) -> Self {
        Self {
            idle: Vec::new(),
            left: most,
            copied: Box::new([0; COPY_BYTES]),
            kept: 0,
        }
    }

    fn take(&mut self) -> Option<(OwnedFd, OwnedFd)> {
        if let Some(pipe) = self.idle.pop() {
            return Some(pipe);
        }
        if self.left == 0 {
            return None;
        }
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // A smaller one works too.
        let _size = rustix::pipe::fcntl_setpipe_size(&pipe.0, PIPE_BYTES);
        self.left -= 1;
        Some(pipe)
    }

    /// A pipe that is not empty must not come back.
    fn give_back(&mut self, pipe: (OwnedFd, OwnedFd)) {
        self.idle.push(pipe);
    }

    /// Its bytes were given up with it.
    fn lose(&mut self) {
        self.left += 1;
    }
}

/// One direction.
#[derive(Default)]
pub(super) struct Flow {
    /// A pipe with this many bytes in it.
    held: Option<((OwnedFd, OwnedFd), usize)>,
    /// Bytes that were copied and that the receiver did not take at once.
    kept: Vec<u8>,
    /// The sender fills whole buffers: its bytes are moved, not copied.
    bulk: bool,
    /// The sender has said that no more comes.
    pub(super) ended: bool,
    /// That was passed on to the receiver.
    pub(super) closed: bool,
    /// The receiver takes nothing at the moment.
    pub(super) blocked: bool,
}

/// How far a flow came.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pumped {
    /// There is nothing to do until one of the sockets says so.
    Waits,
    /// There may be more; others come first.
    More,
}

impl Flow {
    /// Moves what can be moved, and counts it. A sender with little to say is not asked again whether it has more, because
    /// the next wait tells that for nothing; `to_the_last` asks.
    ///
    /// Small messages are copied, which takes two calls; moving them through a pipe takes four.
    ///
    /// # Errors
    /// Either side is broken.
    pub(super) fn pump(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        pipes: &mut Pipes,
        count: &mut u64,
        to_the_last: bool,
    ) -> Result<Pumped, Errno> {
        let mut moved = 0;
        self.blocked = false;
        while !self.closed {
            if !self.kept.is_empty() {
                match retried(|| send(to, &self.kept, SendFlags::NOSIGNAL)) {
                    Ok(sent) => {
                        moved += sent;
                        *count += sent as u64;
                        pipes.kept -= sent;
                        self.kept.drain(..sent);
                    }
                    Err(Errno::AGAIN) => {
                        self.blocked = true;
                        return Ok(Pumped::Waits);
                    }
                    Err(errno) => return Err(errno),
                }
                continue;
            }
            if let Some((pipe, bytes)) = self.held.take() {
                match drain(&pipe, to, bytes) {
                    Ok(sent) => {
                        moved += sent;
                        *count += sent as u64;
                        if sent < bytes {
                            self.held = Some((pipe, bytes - sent));
                        } else {
                            pipes.give_back(pipe);
                        }
                    }
                    Err(Errno::AGAIN) => {
                        self.held = Some((pipe, bytes));
                        self.blocked = true;
                        return Ok(Pumped::Waits);
                    }
                    Err(errno) => {
                        pipes.lose();
                        return Err(errno);
                    }
                }
                continue;
            }
            if self.ended {
                // A receiver that is gone already needs no end.
                let _gone = shutdown(to, Shutdown::Write);
                self.closed = true;
                return Ok(Pumped::Waits);
            }
            if moved >= TURN_BYTES {
                return Ok(Pumped::More);
            }
            if !self.bulk && pipes.kept <= MOST_KEPT {
                let received =
                    match retried(|| recv(from, &mut pipes.copied[..], RecvFlags::empty())) {
                        Ok((_, 0)) => {
                            self.ended = true;
                            continue;
                        }
                        Ok((_, received)) => received,
                        Err(Errno::AGAIN) => return Ok(Pumped::Waits),
                        Err(errno) => return Err(errno),
                    };
                let bytes = &pipes.copied[..received];
                let sent = match retried(|| send(to, bytes, SendFlags::NOSIGNAL)) {
                    Ok(sent) => sent,
                    Err(Errno::AGAIN) => 0,
                    Err(errno) => return Err(errno),
                };
                moved += sent;
                *count += sent as u64;
                if sent < received {
                    self.kept = bytes[sent..].to_vec();
                    pipes.kept += self.kept.len();
                } else if received < COPY_BYTES && !to_the_last {
                    return Ok(Pumped::Waits);
                }
                self.bulk = received == COPY_BYTES;
                continue;
            }
            let Some(pipe) = pipes.take() else {
                match self.copy(from, to, pipes)? {
                    Some(sent) => {
                        moved += sent;
                        *count += sent as u64;
                        continue;
                    }
                    None => return Ok(Pumped::Waits),
                }
            };
            match fill(from, &pipe) {
                Ok(0) => {
                    self.ended = true;
                    pipes.give_back(pipe);
                }
                Ok(bytes) => self.held = Some((pipe, bytes)),
                Err(errno) => {
                    pipes.give_back(pipe);
                    self.bulk = false;
                    return match errno {
                        Errno::AGAIN => Ok(Pumped::Waits),
                        errno => Err(errno),
                    };
                }
            }
        }
        Ok(Pumped::Waits)
    }

    /// The same without a pipe: what the receiver does not take is left in the sender's queue. `None`: wait.
    fn copy(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        pipes: &mut Pipes,
    ) -> Result<Option<usize>, Errno> {
        let buffer = &mut pipes.copied[..];
        let looked = match retried(|| recv(from, &mut *buffer, RecvFlags::PEEK)) {
            Ok((_, 0)) => {
                self.ended = true;
                return Ok(Some(0));
            }
            Ok((_, looked)) => looked,
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let sent = match retried(|| send(to, &buffer[..looked], SendFlags::NOSIGNAL)) {
            Ok(sent) => sent,
            Err(Errno::AGAIN) => {
                self.blocked = true;
                return Ok(None);
            }
            Err(errno) => return Err(errno),
        };
        // Exactly those bytes leave the queue, without being copied again.
        let mut taken = 0;
        while taken < sent {
            let rest = &mut buffer[..sent - taken];
            match retried(|| recv(from, &mut *rest, RecvFlags::TRUNC))?.1 {
                0 => return Err(Errno::PIPE),
                length => taken += length,
            }
        }
        Ok(Some(sent))
    }

    /// Gives up what it holds.
    pub(super) fn abandon(&mut self, pipes: &mut Pipes) {
        if self.held.take().is_some() {
            pipes.lose();
        }
        pipes.kept -= std::mem::take(&mut self.kept).len();
    }
}

fn retried<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

fn fill(from: &OwnedFd, pipe: &(OwnedFd, OwnedFd)) -> Result<usize, Errno> {
    retried(|| splice(from, None, &pipe.1, None, PIPE_BYTES, FLAGS))
}

fn drain(pipe: &(OwnedFd, OwnedFd), to: &OwnedFd, bytes: usize) -> Result<usize, Errno> {
    match retried(|| splice(&pipe.0, None, to, None, bytes, FLAGS)) {
        // Nothing taken although there is something to take.
        Ok(0) => Err(Errno::PIPE),
        other => other,
    }
}

/// The two sides of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The program inside.
    Client,
    /// The real address.
    Remote,
}

/// What a side is asked for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Interest {
    pub(super) read: bool,
    pub(super) write: bool,
}

/// See the module's head.
pub(super) struct Connection {
    pub(super) client: OwnedFd,
    pub(super) remote: OwnedFd,
    /// Which grant it uses.
    pub(super) grant: usize,
    /// Never the same twice.
    pub(super) serial: u64,
    /// The real address has not answered yet.
    pub(super) dialing: bool,
    pub(super) out: Flow,
    pub(super) back: Flow,
    /// A side that has failed; what it had sent before still goes to the other.
    pub(super) broken: Option<Side>,
    /// What each side is registered for; `None`: not at all.
    pub(super) registered: [Option<Interest>; 2],
}

impl Connection {
    pub(super) fn socket(&self, side: Side) -> BorrowedFd<'_> {
        match side {
            Side::Client => self.client.as_fd(),
            Side::Remote => self.remote.as_fd(),
        }
    }

    /// Moves bytes both ways, or only those that come from one side.
    pub(super) fn pump(
        &mut self,
        only: Option<Side>,
        pipes: &mut Pipes,
        bytes_out: &mut u64,
        bytes_in: &mut u64,
    ) -> Result<Pumped, Errno> {
        if self.dialing {
            return Ok(Pumped::Waits);
        }
        let (client, remote) = (&self.client, &self.remote);
        let mut more = Pumped::Waits;
        let to_the_last = self.broken.is_some();
        let wanted = |side| only.is_none_or(|only| only == side);
        if self.broken != Some(Side::Remote) && wanted(Side::Client) {
            more = self
                .out
                .pump(client, remote, pipes, bytes_out, to_the_last)?;
        }
        if self.broken != Some(Side::Client)
            && wanted(Side::Remote)
            && self
                .back
                .pump(remote, client, pipes, bytes_in, to_the_last)?
                == Pumped::More
        {
            more = Pumped::More;
        }
        Ok(more)
    }

    /// Whether nothing can happen on it any more.
    pub(super) fn is_over(&self) -> bool {
        self.out.closed && self.back.closed
    }

    /// What a side has to be watched for; `None`: it must not be watched, because it would report its end for ever.
    pub(super) fn interest(&self, side: Side) -> Option<Interest> {
        if self.broken == Some(side) {
            return None;
        }
        let (from, to) = match side {
            Side::Client => (&self.out, &self.back),
            Side::Remote => (&self.back, &self.out),
        };
        let interest = if self.dialing {
            Interest {
                read: false,
                write: side == Side::Remote,
            }
        } else {
            Interest {
                read: !from.ended && !from.blocked,
                write: to.blocked,
            }
        };
        let idle = interest == Interest::default();
        // A failure is reported even to those who ask for nothing.
        (!idle || !to.closed).then_some(interest)
    }

    /// Ends both sides as failed, which their peers notice as a reset.
    pub(super) fn reset(&mut self, pipes: &mut Pipes) {
        for socket in [&self.client, &self.remote] {
            // A socket that cannot be told ends all the same.
            let _told =
                rustix::net::sockopt::set_socket_linger(socket, Some(std::time::Duration::ZERO));
        }
        self.out.abandon(pipes);
        self.back.abandon(pipes);
    }
}
