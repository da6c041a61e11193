//! The one owner of a chain: numbers are given outside, here they are chained, signed, written and synced.

use super::ahead::{Ahead, HALF_BYTES};
use super::encode::{Encoded, NO_RECORD};
use super::error::{AuditError, WriteFailure};
use super::head::{HeadFile, HeadSigner, Position, Unsynced};
use super::key::{AuditKey, Keyed};
use super::resume::{PreviousEnd, SetAside, new_file, resume};
use crate::clock::stamp;
use crate::kernel_boot::KernelBoot;
use jiff::Timestamp;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub(crate) const MAC_DIGITS: usize = NO_RECORD.len();

#[derive(Debug)]
pub(crate) struct Chain {
    directory: PathBuf,
    pub(crate) log: File,
    head: HeadFile,
    keyed: Keyed,
    boot_id: String,
    number: u32,
    /// Bytes in the file, without the buffer.
    size: u64,
    seq: u64,
    mac: [u8; MAC_DIGITS],
    buffer: Vec<u8>,
    max_file_bytes: u64,
    unsynced: u32,
    /// The last record of this file that is surely on the disk, and where it ends.
    durable: (u64, u64),
    /// Where the end of the log is on the disk first; made at the first sync.
    ahead: Option<Ahead>,
    signer: HeadSigner,
    /// What this file has after `durable`, as long as that fits ahead of it.
    tail: Option<Vec<u8>>,
    /// The last record that is on the disk there.
    ahead_seq: u64,
    /// Without its name the head cannot say what is only ahead, so the log itself is synced.
    kernel: Option<KernelBoot>,
}

/// What `audit.open` says.
#[derive(Debug)]
pub(crate) struct Opening {
    pub previous_end: PreviousEnd,
    pub set_aside: Option<SetAside>,
    /// Records that a power failure had taken from the log and that were on the disk ahead of it.
    pub restored: u64,
    pub last_seq: u64,
}

impl Chain {
    pub(crate) fn open(
        directory: &Path,
        key: &AuditKey,
        boot_id: &str,
        max_file_bytes: u64,
        kernel: Option<&KernelBoot>,
    ) -> Result<(Self, Opening), AuditError> {
        let keyed = key.for_records();
        let signer = HeadSigner::new(key);
        let end = resume(directory, &signer, &keyed, boot_id, kernel)?;
        let opening = Opening {
            previous_end: end.previous_end,
            set_aside: end.set_aside,
            restored: end.restored,
            last_seq: end.seq,
        };
        let tail = tail_of(&end.log, end.durable.1, end.size)?;
        let chain = Self {
            directory: directory.to_owned(),
            log: end.log,
            head: end.head,
            keyed,
            boot_id: boot_id.to_owned(),
            number: end.number,
            size: end.size,
            seq: end.seq,
            mac: end.mac,
            buffer: Vec::with_capacity(16 << 10),
            max_file_bytes,
            unsynced: 0,
            durable: end.durable,
            ahead: end.ahead,
            signer,
            tail,
            ahead_seq: 0,
            kernel: kernel.cloned(),
        };
        Ok((chain, opening))
    }

    /// Puts the next record into the buffer, into the next file when this one is full.
    pub(crate) fn push(
        &mut self,
        record: &Encoded,
        seq: u64,
        time: Timestamp,
    ) -> Result<(), WriteFailure> {
        debug_assert_eq!(
            seq,
            self.seq + 1,
            "numbers are given in the order of the queue"
        );
        let before = self.buffer.len();
        let previous = self.mac;
        self.mac = record.seal(seq, &stamp(time), &self.mac, &self.keyed, &mut self.buffer);
        let filled = self.size + self.buffer.len() as u64;
        if filled > self.max_file_bytes && self.size + before as u64 > 0 {
            let line = self.buffer.split_off(before);
            let sealed = std::mem::replace(&mut self.mac, previous);
            self.rotate()?;
            self.mac = sealed;
            self.buffer = line;
        }
        self.seq = seq;
        self.unsynced += 1;
        Ok(())
    }

    /// Hands the buffer to the system: from here on a killed process loses nothing.
    pub(crate) fn write(&mut self) -> Result<(), WriteFailure> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.log
            .write_all(&self.buffer)
            .map_err(WriteFailure::of("write the log"))?;
        self.size += self.buffer.len() as u64;
        self.tail = self
            .tail
            .take()
            .filter(|tail| tail.len() + self.buffer.len() <= HALF_BYTES)
            .map(|mut tail| {
                tail.extend_from_slice(&self.buffer);
                tail
            });
        self.buffer.clear();
        Ok(())
    }

    /// Writes and waits for the disk: ahead of the log where that is enough, else for the log itself. Then moves the head.
    pub(crate) fn sync(&mut self, end: HeadState) -> Result<(), WriteFailure> {
        self.write()?;
        if !matches!(end, HeadState::Open) || !self.sync_ahead()? {
            return self.sync_log(end);
        }
        self.unsynced = 0;
        let unsynced = self.left_to_memory();
        self.move_head(end, unsynced)
    }

    /// Whether everything is on the disk ahead of the log now.
    fn sync_ahead(&mut self) -> Result<bool, WriteFailure> {
        let (_, size) = self.durable;
        // The head can only name a record of this file that is on the disk in the log.
        if size == 0 || self.kernel.is_none() {
            return Ok(false);
        }
        let (Some(ahead), Some(tail)) = (&mut self.ahead, &self.tail) else {
            return Ok(false);
        };
        if !ahead.write(self.number, size, tail)? {
            return Ok(false);
        }
        self.ahead_seq = self.seq;
        Ok(true)
    }

    fn left_to_memory(&self) -> Option<Unsynced> {
        let (seq, size) = self.durable;
        Some(Unsynced {
            ahead: (self.ahead_seq > seq).then_some(self.ahead_seq),
            kernel_boot: self.kernel.as_ref()?.as_str().to_owned(),
            seq,
            size,
        })
    }

    /// Writes, waits until the log itself is on the disk, then moves the head there.
    fn sync_log(&mut self, end: HeadState) -> Result<(), WriteFailure> {
        self.write()?;
        self.log
            .sync_data()
            .map_err(WriteFailure::of("sync the log"))?;
        self.unsynced = 0;
        self.durable = (self.seq, self.size);
        self.tail = Some(Vec::new());
        if self.ahead.is_none() && self.kernel.is_some() && matches!(end, HeadState::Open) {
            let unmade = WriteFailure::of("make the file ahead of the log");
            self.ahead = Some(
                Ahead::create(&self.directory, &self.signer)
                    .map_err(|error| unmade(std::io::Error::other(error)))?,
            );
        }
        self.move_head(end, None)
    }

    /// Writes and moves the head as closed without waiting for the disk. The head says which kernel holds what is not there
    /// yet, so that a cut is seen as long as that kernel runs. Without the kernel's name the log is synced.
    pub(crate) fn close_in_memory(&mut self) -> Result<(), WriteFailure> {
        let closed = HeadState::Closed { synced: false };
        // Nothing of a new file is on the disk that the head could name.
        match self.left_to_memory().filter(|_| self.durable.1 > 0) {
            Some(unsynced) => {
                self.write()?;
                self.move_head(closed, Some(unsynced))
            }
            None => self.sync_log(closed),
        }
    }

    fn move_head(
        &mut self,
        end: HeadState,
        unsynced: Option<Unsynced>,
    ) -> Result<(), WriteFailure> {
        let at = Position {
            boot_id: &self.boot_id,
            file: self.number,
            size: self.size,
            seq: self.seq,
            mac: &self.mac,
            closed: matches!(end, HeadState::Closed { .. }),
            unsynced,
        };
        self.head
            .write(&at, matches!(end, HeadState::Closed { synced: true }))
    }

    /// Records that are not on the disk yet.
    pub(crate) fn unsynced(&self) -> u32 {
        self.unsynced
    }

    fn rotate(&mut self) -> Result<(), WriteFailure> {
        self.sync_log(HeadState::Open)?;
        self.log = new_file(&self.directory, self.number + 1)?;
        self.number += 1;
        self.size = 0;
        self.unsynced = 0;
        self.durable = (self.seq, 0);
        self.tail = Some(Vec::new());
        Ok(())
    }
}

/// What a log has between two places; `None` when it is too long to be written ahead.
fn tail_of(log: &File, from: u64, to: u64) -> Result<Option<Vec<u8>>, WriteFailure> {
    let length = to.saturating_sub(from) as usize;
    if length > HALF_BYTES {
        return Ok(None);
    }
    let mut tail = vec![0; length];
    let mut log = log;
    log.seek(SeekFrom::Start(from))
        .and_then(|_| log.read_exact(&mut tail))
        .map_err(WriteFailure::of("read the log"))?;
    Ok(Some(tail))
}

/// What the head says about the chain's end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HeadState {
    Open,
    Closed { synced: bool },
}
