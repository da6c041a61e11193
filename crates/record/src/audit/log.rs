//! The handle everybody appends through.

use super::chain::{Chain, HeadState, Opening};
use super::encode::Encoded;
use super::error::{AuditError, WriteFailure};
use super::event::{AuditEvent, EventName};
use super::key::{AuditKey, KeyOrigin};
use super::worker::Worker;
use crate::clock::Clock;
use crate::durable::Durable;
use crate::instance::Instance;
use crate::kernel_boot::KernelBoot;
use policy::TraceId;
use serde_json::json;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a log may be given besides its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// Bytes after which the chain goes on in the next file. A record larger than this has a file of its own.
    pub max_file_bytes: u64,
    /// The kernel that runs; without its name nothing is left to its memory.
    pub kernel_boot: Option<KernelBoot>,
}

impl Default for AuditOptions {
    /// 64 MiB a file, this machine's kernel.
    fn default() -> Self {
        Self {
            max_file_bytes: 64 << 20,
            kernel_boot: KernelBoot::current(),
        }
    }
}

/// A record's place in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Counts from 1 over all boots and files of the instance.
    pub seq: u64,
}

/// An instance's audit log. Clones are handles of the same log; it keeps the instance's lock.
///
/// When any write fails, every later append fails too, with `audit.unavailable`: what was to be recorded must not happen.
#[derive(Clone, Debug)]
pub struct AuditLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    instance: Instance,
    clock: Arc<dyn Clock>,
    boot_id: String,
    boot_trace: TraceId,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    Grouped(Worker),
    Inline(Box<Mutex<Inline>>),
}

#[derive(Debug)]
struct Inline {
    chain: Chain,
    last_seq: u64,
    state: InlineState,
}

#[derive(Debug)]
enum InlineState {
    Open,
    Failed(WriteFailure),
    Closed,
}

impl AuditLog {
    /// Goes on with the instance's chain, or starts one, with a writer thread of its own (group commit). The first records
    /// are `audit.open` and, for a new key, `key.created`.
    ///
    /// # Errors
    /// `audit.invalid` when the existing end does not verify, `audit.key_unusable`, `audit.unavailable`.
    pub fn open(
        instance: &Instance,
        key: &AuditKey,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AuditError> {
        Self::open_with(instance, key, clock, AuditOptions::default())
    }

    /// [`AuditLog::open`] with other limits.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_with(
        instance: &Instance,
        key: &AuditKey,
        clock: Arc<dyn Clock>,
        options: AuditOptions,
    ) -> Result<Self, AuditError> {
        let boot_id = new_boot_id();
        let (chain, opening) = Chain::open(
            instance.directory(),
            key,
            &boot_id,
            options.max_file_bytes,
            options.kernel_boot.as_ref(),
        )?;
        let worker = Worker::start(chain, opening.last_seq)?;
        Self::begin(
            instance,
            key,
            clock,
            boot_id,
            opening,
            Mode::Grouped(worker),
        )
    }

    /// The same log without a thread, for short `exec` runs: the caller's thread writes, and only
    /// [`AuditLog::append_durable`], [`AuditLog::flush`] and [`AuditLog::close`] wait for the disk.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_inline(
        instance: &Instance,
        key: &AuditKey,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AuditError> {
        Self::open_inline_with(instance, key, clock, AuditOptions::default())
    }

    /// [`AuditLog::open_inline`] with other limits.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_inline_with(
        instance: &Instance,
        key: &AuditKey,
        clock: Arc<dyn Clock>,
        options: AuditOptions,
    ) -> Result<Self, AuditError> {
        let boot_id = new_boot_id();
        let (chain, opening) = Chain::open(
            instance.directory(),
            key,
            &boot_id,
            options.max_file_bytes,
            options.kernel_boot.as_ref(),
        )?;
        let mode = Mode::Inline(Box::new(Mutex::new(Inline {
            chain,
            last_seq: opening.last_seq,
            state: InlineState::Open,
        })));
        Self::begin(instance, key, clock, boot_id, opening, mode)
    }

    fn begin(
        instance: &Instance,
        key: &AuditKey,
        clock: Arc<dyn Clock>,
        boot_id: String,
        opening: Opening,
        mode: Mode,
    ) -> Result<Self, AuditError> {
        let log = Self {
            inner: Arc::new(Inner {
                instance: instance.clone(),
                clock,
                boot_id,
                boot_trace: TraceId::random(),
                mode,
            }),
        };
        let mut open = AuditEvent::new(EventName::AuditOpen, log.inner.boot_trace)
            .detail("instance", instance.number())
            .detail("key_id", key.id())
            .detail("previous_end", opening.previous_end.word());
        if let Some(torn) = opening.set_aside {
            open = open.detail(
                "set_aside",
                json!({"file": torn.file, "bytes": torn.bytes, "sha256": torn.sha256}),
            );
        }
        if opening.restored > 0 {
            open = open.detail("restored", opening.restored);
        }
        log.append(open)?;
        if key.origin() == KeyOrigin::Created {
            log.append(
                AuditEvent::new(EventName::KeyCreated, log.inner.boot_trace)
                    .detail("key_id", key.id()),
            )?;
        }
        Ok(log)
    }

    /// The instance it belongs to.
    pub fn instance(&self) -> &Instance {
        &self.inner.instance
    }

    /// This opening of the log.
    pub fn boot_id(&self) -> &str {
        &self.inner.boot_id
    }

    /// For events that belong to no run.
    pub fn boot_trace(&self) -> TraceId {
        self.inner.boot_trace
    }

    /// Records an event; it is synced soon (16 records or 50 ms; inline: at the next sync).
    ///
    /// # Errors
    /// `audit.unavailable`: too large, closed, or a write failed before.
    pub fn append(&self, event: AuditEvent) -> Result<Appended, AuditError> {
        let record = Encoded::of(&event, &self.inner.boot_id)?;
        let seq = match &self.inner.mode {
            Mode::Grouped(worker) => worker.append(record, &*self.inner.clock)?,
            Mode::Inline(inline) => lock(inline).append(&record, &*self.inner.clock)?,
        };
        Ok(Appended { seq })
    }

    /// Records an event and waits until it, and all before it, are on the disk. Blocks; call it off the async threads.
    ///
    /// # Errors
    /// As `append`. The effect must not happen then.
    pub fn append_durable(&self, event: AuditEvent) -> Result<Durable<Appended>, AuditError> {
        let appended = self.append(event)?;
        match &self.inner.mode {
            Mode::Grouped(worker) => worker.wait_synced(appended.seq)?,
            Mode::Inline(inline) => lock(inline).sync(HeadState::Open)?,
        }
        Ok(Durable::after_sync(appended))
    }

    /// Waits until everything that was appended is on the disk.
    ///
    /// # Errors
    /// `audit.unavailable`.
    pub fn flush(&self) -> Result<(), AuditError> {
        match &self.inner.mode {
            Mode::Grouped(worker) => worker.flush(),
            Mode::Inline(inline) => lock(inline).sync(HeadState::Open),
        }
    }

    /// Records `audit.close`, syncs, and marks the head as closed. Other handles fail with `Closed` from then on.
    ///
    /// # Errors
    /// `audit.unavailable`, also when it was closed before.
    pub fn close(&self) -> Result<(), AuditError> {
        let event = AuditEvent::new(EventName::AuditClose, self.inner.boot_trace);
        let end = Encoded::of(&event, &self.inner.boot_id)?;
        match &self.inner.mode {
            Mode::Grouped(worker) => worker.close(end, &*self.inner.clock),
            Mode::Inline(inline) => {
                let mut inline = lock(inline);
                inline.append(&end, &*self.inner.clock)?;
                inline.sync(HeadState::Closed { synced: false })?;
                inline.state = InlineState::Closed;
                Ok(())
            }
        }
    }

    /// As [`AuditLog::close`], but an inline log does not wait for the disk: one sync less for a short `exec`. What came
    /// after the last sync survives the end of the process, and its cutting is seen as long as this kernel runs; only
    /// with the kernel can it be lost. The next sync of this chain covers it.
    ///
    /// # Errors
    /// As `close`.
    pub fn close_in_memory(&self) -> Result<(), AuditError> {
        let Mode::Inline(inline) = &self.inner.mode else {
            return self.close();
        };
        let event = AuditEvent::new(EventName::AuditClose, self.inner.boot_trace);
        let end = Encoded::of(&event, &self.inner.boot_id)?;
        let mut inline = lock(inline);
        inline.append(&end, &*self.inner.clock)?;
        inline.close_in_memory()?;
        inline.state = InlineState::Closed;
        Ok(())
    }
}

fn new_boot_id() -> String {
    uuid::Uuid::new_v4().hyphenated().to_string()
}

fn lock(inline: &Mutex<Inline>) -> MutexGuard<'_, Inline> {
    inline.lock().unwrap_or_else(|held| {
        // A panic in the middle of a write: what is in the chain's buffer is not known.
        let mut inline = held.into_inner();
        inline.state = InlineState::Failed(WriteFailure {
            action: "write the log",
            kind: std::io::ErrorKind::Other,
            errno: None,
        });
        inline
    })
}

impl Inline {
    fn check_open(&self) -> Result<(), AuditError> {
        match &self.state {
            InlineState::Open => Ok(()),
            InlineState::Failed(failure) => Err(failure.clone().into()),
            InlineState::Closed => Err(AuditError::Closed),
        }
    }

    fn append(&mut self, record: &Encoded, clock: &dyn Clock) -> Result<u64, AuditError> {
        self.check_open()?;
        let seq = self.last_seq + 1;
        let written = self
            .chain
            .push(record, seq, clock.now())
            .and_then(|()| self.chain.write());
        self.poison(written)?;
        self.last_seq = seq;
        Ok(seq)
    }

    fn sync(&mut self, end: HeadState) -> Result<(), AuditError> {
        self.check_open()?;
        let synced = self.chain.sync(end);
        self.poison(synced)
    }

    fn close_in_memory(&mut self) -> Result<(), AuditError> {
        let moved = self.chain.close_in_memory();
        self.poison(moved)
    }

    fn poison(&mut self, result: Result<(), WriteFailure>) -> Result<(), AuditError> {
        result.map_err(|failure| {
            self.state = InlineState::Failed(failure.clone());
            AuditError::Unwritable(failure)
        })
    }
}

#[cfg(test)]
mod tests;
