//! All connections of one sandbox, driven by one epoll descriptor that never blocks whoever drives it.
//!
//! A connection is accepted before its real address is dialled, because the kernel has answered the program by then
//! anyway: it does so for a listening socket without asking. When the real address refuses, the program's connection is
//! reset before anything is read from it.

use super::connection::{Connection, Flow, Interest, Pipes, Pumped, Side};
use super::grants::{Grant, Reach};
use policy::sandbox::Relayed;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a real address may take to answer.
const DIAL_WITHIN: Duration = Duration::from_secs(10);
/// How long accepting pauses when no descriptor is free.
const PAUSE: Duration = Duration::from_millis(100);
/// How long what programs sent before their end may take to be delivered.
const FINISH_WITHIN: Duration = Duration::from_secs(2);
/// How long a driver looks for the next message before it sleeps, where the last one came soon. Being woken takes as
/// long as many an answer does.
const ALERT: Duration = Duration::from_micros(50);
/// Messages that follow one another no later than that are worth being looked for.
const SOON: Duration = Duration::from_micros(100);
/// Bytes; what moves more at once is no message, and sleeping gathers more of it.
const MESSAGE: u64 = 16 << 10;
/// How long a driver may be kept by them.
const KEPT: Duration = Duration::from_millis(1);
/// Without waiting.
pub(super) const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};
/// Connections that one listener hands over before others have their turn.
const ACCEPTS_AT_ONCE: usize = 64;
/// Events that are taken at once.
const EVENTS: usize = 256;
/// Descriptors that are left to everything else.
const RESERVED: u64 = 64;
/// Pipes, and the share of the descriptors that they may take.
const MOST_PIPES: u64 = 128;
const PIPE_SHARE: u64 = 16;

/// What went through, by grant. Read from any thread while the relay works.
pub(crate) struct Tally {
    grants: Vec<Grant>,
    counts: Vec<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    refused: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
}

impl Tally {
    fn new(reach: &Reach) -> Self {
        let grants = reach.grants.clone();
        Self {
            counts: grants.iter().map(|_| Counts::default()).collect(),
            grants,
        }
    }

    /// One line for every granted address, in the policy's order.
    pub(crate) fn report(&self) -> Vec<Relayed> {
        let line = |(grant, counts): (&Grant, &Counts)| Relayed {
            endpoint: grant.endpoint.clone(),
            address: grant.address,
            routed: grant.routed,
            connections: counts.connections.load(Ordering::Relaxed),
            refused: counts.refused.load(Ordering::Relaxed),
            bytes_out: counts.bytes_out.load(Ordering::Relaxed),
            bytes_in: counts.bytes_in.load(Ordering::Relaxed),
        };
        self.grants.iter().zip(&self.counts).map(line).collect()
    }
}

struct Listener {
    socket: OwnedFd,
    /// Index into the grants.
    grant: usize,
    address: SocketAddr,
}

/// What an event belongs to.
#[derive(Clone, Copy)]
enum Token {
    Timer,
    Stop,
    Listener(usize),
    Connection(usize, Side),
}

impl Token {
    fn pack(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Self::Timer => 0,
            Self::Stop => 1,
            Self::Listener(index) => 2 | (index as u64) << 2,
            Self::Connection(index, side) => {
                3 | (index as u64) << 3 | u64::from(side == Side::Remote) << 2
            }
        })
    }

    fn unpack(data: epoll::EventData) -> Self {
        let word = data.u64();
        match word & 3 {
            0 => Self::Timer,
            1 => Self::Stop,
            2 => Self::Listener((word >> 2) as usize),
            _ => Self::Connection(
                (word >> 3) as usize,
                if word & 4 == 0 {
                    Side::Client
                } else {
                    Side::Remote
                },
            ),
        }
    }
}

/// See the module's head.
pub(crate) struct Relay {
    epoll: OwnedFd,
    timer: OwnedFd,
    listeners: Vec<Listener>,
    connections: Vec<Option<Connection>>,
    /// Places that may be used again, once the events at hand are dealt with.
    free: Vec<usize>,
    freed: Vec<usize>,
    /// Place, serial and end of patience of those that dial, oldest first.
    dials: VecDeque<(usize, u64, Instant)>,
    /// Accepting pauses until then.
    paused: Option<Instant>,
    pipes: Pipes,
    most: usize,
    alive: usize,
    serial: u64,
    tally: Arc<Tally>,
    events: Vec<epoll::Event>,
    /// The last turn that had something to do moved messages, and no bulk.
    brisk: bool,
    /// When that turn was over.
    last: Instant,
}

impl Relay {
    /// Takes the listeners of the routed grants, in their order.
    ///
    /// # Errors
    /// No descriptor is free, or a listener is missing.
    pub(crate) fn new(reach: &Reach, listeners: Vec<OwnedFd>) -> Result<Self, Errno> {
        let routed = reach.grants.iter().enumerate().filter(|(_, it)| it.routed);
        let listeners: Vec<Listener> = routed
            .zip(listeners)
            .map(|((grant, it), socket)| Listener {
                socket,
                grant,
                address: it.address,
            })
            .collect();
        if listeners.len() != reach.routed().count() {
            return Err(Errno::BADF);
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let descriptors = limit.current.unwrap_or(1 << 20).min(1 << 20);
        let pipes = MOST_PIPES.min(descriptors / PIPE_SHARE);
        let others = RESERVED + 2 * pipes + listeners.len() as u64;
        let relay = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            timer: rustix::time::timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )?,
            listeners,
            connections: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            dials: VecDeque::new(),
            paused: None,
            pipes: Pipes::new(pipes as usize),
            most: (descriptors.saturating_sub(others) / 2) as usize,
            alive: 0,
            serial: 0,
            tally: Arc::new(Tally::new(reach)),
            events: Vec::with_capacity(EVENTS),
            brisk: false,
            last: Instant::now(),
        };
        relay.add(&relay.timer, Token::Timer)?;
        relay.watch_listeners()?;
        Ok(relay)
    }

    /// Ends [`Relay::turn`] for good when this descriptor is ready.
    pub(crate) fn stop_with(&self, stop: &OwnedFd) -> Result<(), Errno> {
        self.add(stop, Token::Stop)
    }

    /// Readable when [`Relay::turn`] has something to do.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(crate) fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    fn add(&self, fd: impl AsFd, token: Token) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, token.pack(), epoll::EventFlags::IN)
    }

    fn watch_listeners(&self) -> Result<(), Errno> {
        for (index, listener) in self.listeners.iter().enumerate() {
            self.add(&listener.socket, Token::Listener(index))?;
        }
        Ok(())
    }

    /// Does what there is to do, and stays awake for messages that follow at once, for one millisecond at most. `false`:
    /// it was told to stop.
    ///
    /// # Errors
    /// As [`Relay::turn`].
    pub(crate) fn turns(&mut self, wait: Option<&Timespec>) -> Result<bool, Errno> {
        let before = self.last;
        if !self.turn(wait)? {
            return Ok(false);
        }
        let begun = self.last;
        if begun.duration_since(before) > SOON {
            return Ok(true);
        }
        while self.brisk && self.last.duration_since(begun) < KEPT {
            let last = self.last;
            if !self.turn(Some(&AT_ONCE))? {
                return Ok(false);
            }
            if self.last == last {
                if last.elapsed() > ALERT {
                    break;
                }
                // Whoever prepares the answer may need this very processor.
                rustix::thread::sched_yield();
            }
        }
        Ok(true)
    }

    /// Does what there is to do, after waiting for it this long (`None`: for ever). `false`: it was told to stop.
    ///
    /// # Errors
    /// The descriptor itself failed, which the kernel does not do.
    fn turn(&mut self, wait: Option<&Timespec>) -> Result<bool, Errno> {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let waited = epoll::wait(&self.epoll, spare_capacity(&mut events), wait);
        let mut goes_on = true;
        self.brisk |= !events.is_empty();
        for event in &events {
            let (flags, data) = (event.flags, event.data);
            match Token::unpack(data) {
                Token::Timer => self.timer_fired(),
                Token::Stop => goes_on = false,
                Token::Listener(index) => self.accept(index),
                Token::Connection(index, side) => {
                    self.serve(index, side, flags);
                }
            }
        }
        if !events.is_empty() {
            self.last = Instant::now();
        }
        self.events = events;
        self.free.append(&mut self.freed);
        match waited {
            Ok(_) | Err(Errno::INTR) => Ok(goes_on),
            Err(errno) => Err(errno),
        }
    }

    /// After every program has ended: delivers what they had sent, for two seconds at most.
    pub(crate) fn finish(&mut self) {
        let deadline = Instant::now() + FINISH_WITHIN;
        let mut wait = Duration::ZERO;
        loop {
            // What waits to be accepted was sent before the end, too.
            if self.turn(Some(&timespec(wait))).is_err() {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let undelivered = self.connections.iter().flatten().any(|it| !it.out.closed);
            let nothing_new = self.paused.is_none() && !wait.is_zero();
            if left.is_zero() || (!undelivered && (nothing_new || self.connections.is_empty())) {
                return;
            }
            wait = if undelivered {
                left
            } else {
                Duration::from_millis(1)
            };
        }
    }

    fn counts(&self, grant: usize) -> Option<&Counts> {
        self.tally.counts.get(grant)
    }

    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_AT_ONCE {
            let Some(listener) = self.listeners.get(index) else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match net::accept_with(&listener.socket, flags) {
                Ok(client) => {
                    let (grant, address) = (listener.grant, listener.address);
                    self.begin(client, grant, address);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return self.pause();
                }
                // One that was given up before it was accepted.
                Err(_) => {}
            }
        }
    }

    /// No descriptor is free. The kernel keeps whoever waits; to look again at once would only burn the processor.
    fn pause(&mut self) {
        for listener in &self.listeners {
            // Not registered means not watched, which is what is wanted.
            let _unwatched = epoll::delete(&self.epoll, &listener.socket);
        }
        self.paused = Some(Instant::now() + PAUSE);
        self.set_timer();
    }

    fn begin(&mut self, client: OwnedFd, grant: usize, address: SocketAddr) {
        let dialled = if self.alive < self.most {
            dial(address)
        } else {
            Err(Errno::MFILE)
        };
        // A socket that sends small pieces late still works.
        let _delays = net::sockopt::set_tcp_nodelay(&client, true);
        let (remote, dialing) = match dialled {
            Ok(dialled) => dialled,
            Err(_) => {
                if let Some(counts) = self.counts(grant) {
                    counts.refused.fetch_add(1, Ordering::Relaxed);
                }
                // Dropped right here, as a reset.
                let _told = net::sockopt::set_socket_linger(&client, Some(Duration::ZERO));
                return;
            }
        };
        self.serial += 1;
        let connection = Connection {
            client,
            remote,
            grant,
            serial: self.serial,
            dialing,
            out: Flow::default(),
            back: Flow::default(),
            broken: None,
            registered: [None; 2],
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        self.connections[index] = Some(connection);
        self.alive += 1;
        if dialing {
            let first = self.dials.is_empty();
            let until = Instant::now() + DIAL_WITHIN;
            self.dials.push_back((index, self.serial, until));
            if first {
                self.set_timer();
            }
            self.register(index);
        } else {
            self.count_connection(grant);
            // It has begun to talk while it was accepted; the other has hardly heard of it.
            self.advance(index, Some(Side::Client));
        }
    }

    fn count_connection(&self, grant: usize) {
        if let Some(counts) = self.counts(grant) {
            counts.connections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Something happened on one side of a connection.
    fn serve(&mut self, index: usize, side: Side, flags: epoll::EventFlags) {
        let failed = flags.contains(epoll::EventFlags::ERR);
        let Some(Some(connection)) = self.connections.get_mut(index) else {
            // Ended by an earlier event of the same turn.
            return;
        };
        if connection.dialing {
            let answer = match side {
                // The program gave up meanwhile.
                Side::Client => Err(Errno::CONNABORTED),
                Side::Remote => net::sockopt::socket_error(&connection.remote).and_then(|it| it),
            };
            let grant = connection.grant;
            if answer.is_err() {
                return self.refuse(index);
            }
            connection.dialing = false;
            self.count_connection(grant);
        } else if failed {
            if connection.broken.is_some() {
                return self.end(index, true);
            }
            connection.broken = Some(side);
        } else if flags == epoll::EventFlags::IN {
            // It has something to say and nothing else happened.
            return self.advance(index, Some(side));
        }
        self.advance(index, None);
    }

    fn refuse(&mut self, index: usize) {
        if let Some(Some(connection)) = self.connections.get(index)
            && let Some(counts) = self.counts(connection.grant)
        {
            counts.refused.fetch_add(1, Ordering::Relaxed);
        }
        self.end(index, true);
    }

    /// Moves bytes, from one side only where nothing happened on the other, then ends the connection or asks for what it waits for.
    fn advance(&mut self, index: usize, only: Option<Side>) {
        let Some(Some(connection)) = self.connections.get_mut(index) else {
            return;
        };
        let (mut bytes_out, mut bytes_in) = (0, 0);
        let pumped = loop {
            let pumped = connection.pump(only, &mut self.pipes, &mut bytes_out, &mut bytes_in);
            // A broken side is not watched, and has only what is in its queue.
            let flows = connection.broken.is_some();
            if !(flows && pumped == Ok(Pumped::More)) {
                break pumped;
            }
        };
        if let Some(counts) = self.tally.counts.get(connection.grant) {
            counts.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
            counts.bytes_in.fetch_add(bytes_in, Ordering::Relaxed);
        }
        self.brisk &= bytes_out + bytes_in < MESSAGE;
        let waits_for_broken = match connection.broken {
            None => false,
            Some(Side::Client) => !connection.out.blocked,
            Some(Side::Remote) => !connection.back.blocked,
        };
        if pumped.is_err() || waits_for_broken {
            self.end(index, true);
        } else if connection.is_over() {
            self.end(index, false);
        } else {
            self.register(index);
        }
    }

    fn register(&mut self, index: usize) {
        let Some(Some(connection)) = self.connections.get_mut(index) else {
            return;
        };
        let mut failed = false;
        for (place, side) in [Side::Client, Side::Remote].into_iter().enumerate() {
            let wanted = connection.interest(side);
            let current = connection.registered[place];
            if wanted == current {
                continue;
            }
            let (socket, data) = (
                connection.socket(side),
                Token::Connection(index, side).pack(),
            );
            let result = match (current, wanted) {
                (None, Some(wanted)) => epoll::add(&self.epoll, socket, data, flags(wanted)),
                (Some(_), Some(wanted)) => epoll::modify(&self.epoll, socket, data, flags(wanted)),
                (Some(_), None) => epoll::delete(&self.epoll, socket),
                (None, None) => Ok(()),
            };
            failed |= result.is_err();
            connection.registered[place] = wanted;
        }
        if failed {
            // The kernel has no room to watch it.
            self.end(index, true);
        }
    }

    fn end(&mut self, index: usize, reset: bool) {
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        if reset {
            connection.reset(&mut self.pipes);
        }
        self.alive -= 1;
        self.freed.push(index);
    }

    fn timer_fired(&mut self) {
        // Quiet again; one that was set anew meanwhile has nothing to read.
        let _fired = rustix::io::read(&self.timer, &mut [0u8; 8]);
        let now = Instant::now();
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
            if self.watch_listeners().is_err() {
                return self.pause();
            }
        }
        while let Some((index, serial, _)) = self.dials.front().copied().filter(|it| it.2 <= now) {
            self.dials.pop_front();
            if self.is_dialing(index, serial) {
                self.refuse(index);
            }
        }
        self.set_timer();
    }

    fn is_dialing(&self, index: usize, serial: u64) -> bool {
        let connection = self.connections.get(index).and_then(Option::as_ref);
        connection.is_some_and(|it| it.serial == serial && it.dialing)
    }

    /// For the first thing that has to happen at a time.
    fn set_timer(&mut self) {
        while let Some((index, serial, _)) = self.dials.front().copied() {
            if self.is_dialing(index, serial) {
                break;
            }
            self.dials.pop_front();
        }
        let next = self
            .dials
            .front()
            .map(|dial| dial.2)
            .into_iter()
            .chain(self.paused)
            .min();
        let after = next.map_or(Duration::ZERO, |next| {
            // Zero would switch it off.
            next.saturating_duration_since(Instant::now())
                .max(Duration::from_nanos(1))
        });
        let time = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(after),
        };
        // A valid time on a timer of our own.
        let _set = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time);
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, interest.read);
    flags.set(epoll::EventFlags::OUT, interest.write);
    flags
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Begins to connect to exactly this address. `true`: it is on its way. Within this machine it has arrived already, which
/// a second call learns.
fn dial(address: SocketAddr) -> Result<(OwnedFd, bool), Errno> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    net::sockopt::set_tcp_nodelay(&socket, true)?;
    match net::connect(&socket, &address) {
        Ok(()) => Ok((socket, false)),
        Err(Errno::INPROGRESS | Errno::INTR) => match net::connect(&socket, &address) {
            Ok(()) | Err(Errno::ISCONN) => Ok((socket, false)),
            Err(Errno::ALREADY | Errno::INPROGRESS | Errno::INTR) => Ok((socket, true)),
            Err(errno) => Err(errno),
        },
        Err(errno) => Err(errno),
    }
}
