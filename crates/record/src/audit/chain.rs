//! The one owner of a chain: numbers are given outside, here they are chained, signed, written and synced.

use super::encode::{Encoded, NO_RECORD};
use super::error::{AuditError, WriteFailure};
use super::head::{HeadFile, HeadSigner, Position, Unsynced};
use super::key::{AuditKey, Keyed};
use super::resume::{PreviousEnd, SetAside, new_file, resume};
use crate::clock::stamp;
use crate::kernel_boot::KernelBoot;
use jiff::Timestamp;
use std::fs::File;
use std::io::Write;
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
}

/// What `audit.open` says.
#[derive(Debug)]
pub(crate) struct Opening {
    pub previous_end: PreviousEnd,
    pub set_aside: Option<SetAside>,
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
        let end = resume(directory, &HeadSigner::new(key), &keyed, boot_id, kernel)?;
        let opening = Opening {
            previous_end: end.previous_end,
            set_aside: end.set_aside,
            last_seq: end.seq,
        };
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
        self.buffer.clear();
        Ok(())
    }

    /// Writes, waits for the disk, then moves the head there.
    pub(crate) fn sync(&mut self, end: HeadState) -> Result<(), WriteFailure> {
        self.write()?;
        self.log
            .sync_data()
            .map_err(WriteFailure::of("sync the log"))?;
        self.unsynced = 0;
        self.durable = (self.seq, self.size);
        self.move_head(end, None)
    }

    /// Writes and moves the head as closed without waiting for the disk. The head says which kernel holds what is not there
    /// yet, so that a cut is seen as long as that kernel runs.
    pub(crate) fn close_in_memory(&mut self, kernel: &KernelBoot) -> Result<(), WriteFailure> {
        let (seq, size) = self.durable;
        if size == 0 {
            // Nothing of this file is on the disk that the head could name.
            return self.sync(HeadState::Closed { synced: false });
        }
        self.write()?;
        let unsynced = Unsynced {
            kernel_boot: kernel.as_str().to_owned(),
            seq,
            size,
        };
        self.move_head(HeadState::Closed { synced: false }, Some(unsynced))
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
        self.sync(HeadState::Open)?;
        self.log = new_file(&self.directory, self.number + 1)?;
        self.number += 1;
        self.size = 0;
        self.unsynced = 0;
        self.durable = (self.seq, 0);
        Ok(())
    }
}

/// What the head says about the chain's end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HeadState {
    Open,
    Closed { synced: bool },
}
