//! What was refused, in memory that init writes and the other side reads. Bounded; what does not fit is counted.

use super::calls::Operation;
use crate::backend::sys::memory::{self, SharedFile};
use crate::backend::sys::{Fd, Result};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Different lines that are kept of looks at names that are not there, which programs make by habit, and of everything
/// else. Neither can push the other out.
const MOST_LOOKS: u32 = 192;
const MOST_OTHERS: u32 = 320;
const MOST: usize = (MOST_LOOKS + MOST_OTHERS) as usize;
/// Bytes of all targets together.
const TEXT: usize = 128 << 10;

struct Line {
    hash: AtomicU64,
    /// Operation in the lowest byte, error number above it.
    what: AtomicU32,
    at: AtomicU32,
    length: AtomicU32,
    count: AtomicU32,
}

/// All zero in the beginning. Only init writes; a line does not change but for its count.
pub(crate) struct Table {
    lines: AtomicU32,
    looks: AtomicU32,
    text_used: AtomicU32,
    omitted: AtomicU32,
    line: [Line; MOST],
    text: [AtomicU8; TEXT],
}

/// One refusal as init saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) operation: Operation,
    /// What the program was told, where that is known.
    pub(crate) errno: Option<i32>,
    pub(crate) target: Vec<u8>,
    pub(crate) count: u32,
}

fn hash(what: u32, target: &[u8]) -> u64 {
    let seed = 0xcbf2_9ce4_8422_2325 ^ u64::from(what);
    target.iter().fold(seed, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Table {
    /// Bytes of a file that holds one.
    pub(crate) const BYTES: usize = size_of::<Self>();

    /// The one in a file of [`Table::BYTES`] zeros that only init writes to.
    pub(crate) fn in_file(file: Fd) -> Result<&'static Self> {
        // SAFETY: atomics take any bytes; the server sealed the file's size.
        unsafe { memory::map_shared(file) }
    }

    /// The same, for as long as the guard lives.
    pub(crate) fn seen_in_file(file: Fd) -> Result<SharedFile<Self>> {
        // SAFETY: atomics take any bytes; the file's size is sealed.
        unsafe { SharedFile::map(file) }
    }

    /// A new one, shared with every process that is made from now on.
    pub(crate) fn new() -> Result<&'static Self> {
        // SAFETY: atomics of zero are the documented initial state.
        unsafe { memory::shared_zeroed() }
    }

    /// Adds one refusal. For init alone: two writers would mix their lines up.
    pub(crate) fn add(&self, operation: Operation, errno: i32, target: &[u8]) {
        let what = u32::from(operation as u8) | (errno as u32) << 8;
        let hash = hash(what, target);
        let lines = self.lines.load(Ordering::Relaxed);
        for line in self.line.iter().take(lines as usize) {
            if line.hash.load(Ordering::Relaxed) == hash && self.is(line, what, target) {
                let count = line.count.load(Ordering::Relaxed);
                line.count.store(count.saturating_add(1), Ordering::Release);
                return;
            }
        }
        if !self.insert(lines, hash, what, operation, target) {
            let omitted = self.omitted.load(Ordering::Relaxed);
            self.omitted
                .store(omitted.saturating_add(1), Ordering::Release);
        }
    }

    fn is(&self, line: &Line, what: u32, target: &[u8]) -> bool {
        line.what.load(Ordering::Relaxed) == what
            && line.length.load(Ordering::Relaxed) as usize == target.len()
            && self
                .text
                .iter()
                .skip(line.at.load(Ordering::Relaxed) as usize)
                .zip(target)
                .all(|(have, wanted)| have.load(Ordering::Relaxed) == *wanted)
    }

    fn insert(
        &self,
        lines: u32,
        hash: u64,
        what: u32,
        operation: Operation,
        target: &[u8],
    ) -> bool {
        let looks = self.looks.load(Ordering::Relaxed);
        let is_look = matches!(operation, Operation::Open | Operation::Look);
        let full = if is_look {
            looks >= MOST_LOOKS
        } else {
            lines - looks >= MOST_OTHERS
        };
        let start = self.text_used.load(Ordering::Relaxed) as usize;
        let place = self.text.get(start..start + target.len());
        let (false, Some(place), Some(line)) = (full, place, self.line.get(lines as usize)) else {
            return false;
        };
        for (slot, byte) in place.iter().zip(target) {
            slot.store(*byte, Ordering::Relaxed);
        }
        line.hash.store(hash, Ordering::Relaxed);
        line.what.store(what, Ordering::Relaxed);
        line.at.store(start as u32, Ordering::Relaxed);
        line.length.store(target.len() as u32, Ordering::Relaxed);
        line.count.store(1, Ordering::Relaxed);
        self.text_used
            .store((start + target.len()) as u32, Ordering::Relaxed);
        self.looks
            .store(looks + u32::from(is_look), Ordering::Relaxed);
        self.lines.store(lines + 1, Ordering::Release);
        true
    }

    /// The counts so far, to tell later what is new.
    pub(crate) fn counts(&self) -> Counts {
        let lines = self.lines.load(Ordering::Acquire) as usize;
        Counts {
            lines: self
                .line
                .iter()
                .take(lines)
                .map(|line| line.count.load(Ordering::Acquire))
                .collect(),
            omitted: self.omitted.load(Ordering::Acquire),
        }
    }

    /// What was added since these counts, and how many refusals found no place.
    pub(crate) fn since(&self, before: &Counts) -> (Vec<Record>, u32) {
        let lines = self.lines.load(Ordering::Acquire) as usize;
        let records = self.line.iter().take(lines).enumerate();
        let records = records.filter_map(|(index, line)| {
            let then = before.lines.get(index).copied().unwrap_or(0);
            let count = line.count.load(Ordering::Acquire).saturating_sub(then);
            let what = line.what.load(Ordering::Relaxed);
            let start = line.at.load(Ordering::Relaxed) as usize;
            let end = start + line.length.load(Ordering::Relaxed) as usize;
            let text = self.text.get(start..end)?;
            (count > 0).then_some(())?;
            Some(Record {
                operation: Operation::of(what as u8)?,
                errno: Some((what >> 8) as i32).filter(|errno| *errno != 0),
                target: text
                    .iter()
                    .map(|byte| byte.load(Ordering::Relaxed))
                    .collect(),
                count,
            })
        });
        let omitted = self.omitted.load(Ordering::Acquire);
        (records.collect(), omitted.saturating_sub(before.omitted))
    }
}

/// See [`Table::counts`].
#[derive(Default)]
pub(crate) struct Counts {
    lines: Vec<u32>,
    omitted: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> &'static Table {
        Table::new().unwrap()
    }

    #[test]
    fn equal_refusals_are_one_line_with_a_count() {
        let table = table();
        for _ in 0..3 {
            table.add(Operation::Delete, 0, b"/usr/bin/cc");
        }
        table.add(Operation::Socket, libc::EACCES, b"inet stream");
        let before = table.counts();
        let (records, omitted) = table.since(&Counts::default());
        assert_eq!((records.len(), omitted), (2, 0));
        assert_eq!((records[0].count, records[0].errno), (3, None));
        assert_eq!(records[1].errno, Some(libc::EACCES));
        table.add(Operation::Delete, 0, b"/usr/bin/cc");
        let (records, _) = table.since(&before);
        assert_eq!((records.len(), records[0].count), (1, 1));
    }

    /// A flood of names neither grows the table nor hides what matters more.
    #[test]
    fn floods_are_counted_and_leave_room() {
        let table = table();
        for number in 0..100_000u32 {
            table.add(Operation::Open, 0, format!("/x/{number}").as_bytes());
        }
        table.add(Operation::Write, 0, b"/etc/passwd");
        let (records, omitted) = table.since(&Counts::default());
        assert_eq!(records.len() as u32, MOST_LOOKS + 1);
        assert_eq!(omitted, 100_000 - MOST_LOOKS);
        assert_eq!(records.last().unwrap().target, b"/etc/passwd");
    }

    #[test]
    fn long_targets_run_out_of_room_and_not_of_bounds() {
        let table = table();
        for number in 0..200u8 {
            table.add(Operation::Write, 0, &[number; 4096]);
        }
        let (records, omitted) = table.since(&Counts::default());
        assert_eq!((records.len(), omitted), (TEXT / 4096, 200 - 32));
    }
}
