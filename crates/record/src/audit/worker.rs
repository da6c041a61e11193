//! Group commit: one thread owns the chain; everybody else queues.
//!
//! A record is handed to the system within 1 ms, and synced when 16 are waiting, when one has waited 50 ms, or when somebody
//! waits for it. What came in during a sync goes into the next one together.

use super::chain::{Chain, HeadState};
use super::encode::Encoded;
use super::error::{AuditError, WriteFailure};
use crate::clock::Clock;
use jiff::Timestamp;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Records that may wait for a sync that nobody asked for.
const GROUP_RECORDS: u32 = 16;
/// How long one may wait for it.
const GROUP_TIME: Duration = Duration::from_millis(50);
/// How long one may wait in the queue for others, so that a stream of records does not wake the thread for each.
const QUEUE_TIME: Duration = Duration::from_millis(1);
/// Bytes in the queue, beyond which `append` waits for the disk.
const QUEUE_BYTES: usize = 8 << 20;

#[derive(Debug)]
struct Waiting {
    record: Encoded,
    seq: u64,
    time: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    /// The last record is `audit.close`.
    Closed,
    /// The last handle went away without a close.
    Abandoned,
}

#[derive(Debug)]
struct Queue {
    pending: Vec<Waiting>,
    pending_bytes: usize,
    pending_since: Instant,
    next_seq: u64,
    wanted: u64,
    synced: u64,
    failed: Option<WriteFailure>,
    ending: Ending,
    ended: bool,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    done: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic while the queue is held leaves numbers, not promises; the chain is not behind this lock.
        self.queue.lock().unwrap_or_else(|held| held.into_inner())
    }
}

/// The queue's side of the thread.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    pub(crate) fn start(chain: Chain, last_seq: u64) -> Result<Self, AuditError> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue {
                pending: Vec::new(),
                pending_bytes: 0,
                pending_since: Instant::now(),
                next_seq: last_seq + 1,
                wanted: 0,
                synced: last_seq,
                failed: None,
                ending: Ending::No,
                ended: false,
            }),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let owned = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || {
                let guard = EndGuard(owned);
                run(chain, &guard.0);
            })
            .map_err(WriteFailure::of("start the audit thread"))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Queues one record; waits only when the queue is full.
    pub(crate) fn append(&self, record: Encoded, clock: &dyn Clock) -> Result<u64, AuditError> {
        self.queue(record, clock, Ending::No)
    }

    fn queue(&self, record: Encoded, clock: &dyn Clock, ending: Ending) -> Result<u64, AuditError> {
        let mut queue = self.shared.lock();
        loop {
            check_open(&queue)?;
            if queue.pending_bytes < QUEUE_BYTES {
                break;
            }
            queue = wait(&self.shared.done, queue);
        }
        let seq = queue.next_seq;
        queue.next_seq += 1;
        if queue.pending.is_empty() {
            queue.pending_since = Instant::now();
        }
        queue.pending_bytes += record.bytes();
        let time = clock.now();
        queue.pending.push(Waiting { record, seq, time });
        queue.ending = ending;
        let waiting = queue.pending.len();
        drop(queue);
        if waiting == 1 || waiting == GROUP_RECORDS as usize {
            self.shared.work.notify_one();
        }
        Ok(seq)
    }

    /// Waits until the record with this number is on the disk.
    pub(crate) fn wait_synced(&self, seq: u64) -> Result<(), AuditError> {
        let mut queue = self.shared.lock();
        queue.wanted = queue.wanted.max(seq);
        self.shared.work.notify_one();
        loop {
            if queue.synced >= seq {
                return Ok(());
            }
            if let Some(failure) = &queue.failed {
                return Err(failure.clone().into());
            }
            queue = wait(&self.shared.done, queue);
        }
    }

    /// Everything that was appended before is on the disk.
    pub(crate) fn flush(&self) -> Result<(), AuditError> {
        let last = self.shared.lock().next_seq - 1;
        self.wait_synced(last)
    }

    /// Queues the end record, waits for it and for the thread.
    pub(crate) fn close(&self, end: Encoded, clock: &dyn Clock) -> Result<(), AuditError> {
        let seq = self.queue(end, clock, Ending::Closed)?;
        let synced = self.wait_synced(seq);
        self.join();
        synced
    }

    fn join(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(|held| held.into_inner());
        if let Some(thread) = thread.take() {
            // A panic there has already failed everybody who waits, by the guard.
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        {
            let mut queue = self.shared.lock();
            if queue.ending == Ending::No {
                queue.ending = Ending::Abandoned;
            }
        }
        self.shared.work.notify_one();
        self.join();
    }
}

fn wait<'a>(condition: &Condvar, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
    condition
        .wait(queue)
        .unwrap_or_else(|held| held.into_inner())
}

fn check_open(queue: &Queue) -> Result<(), AuditError> {
    if let Some(failure) = &queue.failed {
        return Err(failure.clone().into());
    }
    if queue.ending != Ending::No || queue.ended {
        return Err(AuditError::Closed);
    }
    Ok(())
}

/// However the thread ends, nobody waits for it for ever.
struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.ended = true;
        if queue.synced + 1 < queue.next_seq && queue.failed.is_none() {
            queue.failed = Some(WriteFailure {
                action: "run the audit thread",
                kind: io::ErrorKind::Other,
                errno: None,
            });
        }
        drop(queue);
        self.0.done.notify_all();
    }
}

fn run(mut chain: Chain, shared: &Shared) {
    let mut oldest_unsynced: Option<Instant> = None;
    let mut taken: Vec<Waiting> = Vec::new();
    loop {
        let (wanted, ending) = take(shared, &mut taken, oldest_unsynced);
        let last = taken.last().map(|waiting| waiting.seq);
        let due = oldest_unsynced.is_some_and(|since| since.elapsed() >= GROUP_TIME);
        match write(&mut chain, &mut taken, wanted || due, ending) {
            Ok(synced) => {
                let mut queue = shared.lock();
                if synced {
                    // Everything taken so far is on the disk, also what an earlier round only wrote.
                    let pending = queue
                        .pending
                        .first()
                        .map_or(queue.next_seq, |next| next.seq);
                    queue.synced = pending - 1;
                    oldest_unsynced = None;
                } else if last.is_some() {
                    oldest_unsynced = oldest_unsynced.or_else(|| Some(Instant::now()));
                }
                drop(queue);
                shared.done.notify_all();
            }
            Err(failure) => {
                shared.lock().failed = Some(failure);
                return;
            }
        }
        if ending != Ending::No {
            return;
        }
    }
}

/// Waits for something to do: records, a sync that somebody wants, a sync that is due, or the end.
fn take(
    shared: &Shared,
    taken: &mut Vec<Waiting>,
    oldest_unsynced: Option<Instant>,
) -> (bool, Ending) {
    let mut queue = shared.lock();
    loop {
        let wanted = queue.wanted > queue.synced;
        let full = queue.pending.len() >= GROUP_RECORDS as usize;
        let in_queue = (!queue.pending.is_empty())
            .then(|| QUEUE_TIME.saturating_sub(queue.pending_since.elapsed()));
        let unsynced = oldest_unsynced.map(|since| GROUP_TIME.saturating_sub(since.elapsed()));
        let left = in_queue.into_iter().chain(unsynced).min();
        let due = left.is_some_and(|left| left.is_zero());
        if wanted || full || due || queue.ending != Ending::No {
            std::mem::swap(&mut queue.pending, taken);
            queue.pending_bytes = 0;
            return (wanted, queue.ending);
        }
        queue = match left {
            None => wait(&shared.work, queue),
            Some(left) => shared
                .work
                .wait_timeout(queue, left)
                .map_or_else(|held| held.into_inner().0, |(queue, _)| queue),
        };
    }
}

/// Whether it was synced.
fn write(
    chain: &mut Chain,
    taken: &mut Vec<Waiting>,
    sync: bool,
    ending: Ending,
) -> Result<bool, WriteFailure> {
    for waiting in taken.drain(..) {
        chain.push(&waiting.record, waiting.seq, waiting.time)?;
    }
    chain.write()?;
    let end = match ending {
        Ending::Closed => HeadState::Closed { synced: true },
        Ending::No | Ending::Abandoned => HeadState::Open,
    };
    if !sync && ending == Ending::No && chain.unsynced() < GROUP_RECORDS {
        return Ok(false);
    }
    chain.sync(end)?;
    Ok(true)
}
