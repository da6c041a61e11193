//! One output stream: head and tail in memory, everything in a file once it is too long for that.

use policy::sandbox::CapturedOutput;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// All spool files of one Task together stop growing here, so that no Task can fill the state directory's disk. Counting goes
/// on, and [`CapturedOutput::spooled_bytes`] says how much is in the file.
pub(crate) const TASK_SPOOL: u64 = 1 << 30;

/// What one Task may still spool; its streams share it.
pub(crate) type Budget = Arc<AtomicU64>;

pub(crate) fn budget() -> Budget {
    Arc::new(AtomicU64::new(TASK_SPOOL))
}

/// Takes up to this much, and says how much it was.
fn draw(budget: &Budget, wanted: u64) -> u64 {
    let mut left = budget.load(Ordering::Relaxed);
    loop {
        let drawn = left.min(wanted);
        match budget.compare_exchange_weak(left, left - drawn, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => return drawn,
            Err(now) => left = now,
        }
    }
}

/// Where a stream that is too long goes.
struct Spool {
    path: PathBuf,
    file: File,
    written: u64,
    /// Nothing more is written.
    full: bool,
}

pub(crate) struct Capture {
    head_limit: usize,
    tail_limit: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    /// The file's path, until it is needed or has failed.
    spool_path: Option<PathBuf>,
    spool: Option<Spool>,
    budget: Budget,
}

impl Capture {
    /// Keeps `keep` bytes: half of the head, half of the tail.
    pub(crate) fn new(keep: u64, spool_path: Option<PathBuf>, budget: Budget) -> Self {
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        Self {
            head_limit: keep / 2,
            tail_limit: keep - keep / 2,
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            spool_path,
            spool: None,
            budget,
        }
    }

    pub(crate) fn take(&mut self, mut bytes: &[u8]) {
        let fits = self.total + bytes.len() as u64 <= (self.head_limit + self.tail_limit) as u64;
        if !fits {
            self.spool_from_here();
        }
        self.total += bytes.len() as u64;
        self.write_spool(bytes);
        let room = self.head_limit - self.head.len();
        let (into_head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(into_head);
        bytes = rest;
        if bytes.len() > self.tail_limit {
            bytes = &bytes[bytes.len() - self.tail_limit..];
        }
        let too_many = (self.tail.len() + bytes.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..too_many);
        self.tail.extend(bytes);
    }

    /// Begins the file with what is in memory, which is everything so far.
    fn spool_from_here(&mut self) {
        let Some(path) = self.spool_path.take() else {
            return;
        };
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        // Without the file the omitted bytes are counted and `spooled` stays empty, which says so.
        if let Ok(file) = opened {
            self.spool = Some(Spool {
                path,
                file,
                written: 0,
                full: false,
            });
            let (first, second) = self.tail.as_slices();
            let so_far = [self.head.as_slice(), first, second].concat();
            self.write_spool(&so_far);
        }
    }

    fn write_spool(&mut self, bytes: &[u8]) {
        let Some(spool) = &mut self.spool else {
            return;
        };
        if spool.full {
            return;
        }
        let room = draw(&self.budget, bytes.len() as u64);
        // What comes after a gap must not follow what was before it.
        spool.full = room < bytes.len() as u64;
        let bytes = &bytes[..usize::try_from(room).unwrap_or(bytes.len())];
        if spool.file.write_all(bytes).is_ok() {
            spool.written += bytes.len() as u64;
        } else {
            self.budget
                .fetch_add(spool.written + room, Ordering::Relaxed);
            // A file that is not the whole stream must not be taken for it. That it cannot be removed changes nothing.
            let _left = std::fs::remove_file(&spool.path);
            self.spool = None;
        }
    }

    pub(crate) fn finish(self) -> CapturedOutput {
        let mut head = self.head;
        let mut tail = Vec::from(self.tail);
        if self.total == (head.len() + tail.len()) as u64 {
            head.append(&mut tail);
        }
        CapturedOutput {
            head,
            tail,
            total_bytes: self.total,
            spooled_bytes: self.spool.as_ref().map_or(0, |spool| spool.written),
            spooled: self.spool.map(|spool| spool.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(keep: u64, chunks: &[&[u8]]) -> (CapturedOutput, Option<Vec<u8>>) {
        let directory = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(keep, Some(directory.path().join("s")), budget());
        chunks.iter().for_each(|chunk| capture.take(chunk));
        let output = capture.finish();
        let spooled = output
            .spooled
            .as_ref()
            .map(|path| std::fs::read(path).unwrap());
        (output, spooled)
    }

    #[test]
    fn what_fits_is_all_in_the_head() {
        let (output, spooled) = capture(8, &[b"abc", b"defgh"]);
        assert_eq!(
            (output.head.as_slice(), output.tail.len()),
            (&b"abcdefgh"[..], 0)
        );
        assert_eq!(
            (output.total_bytes, output.omitted_bytes(), spooled),
            (8, 0, None)
        );
    }

    #[test]
    fn head_and_tail_are_kept_and_the_whole_is_spooled() {
        for chunks in [
            &[&b"0123456789abcdef"[..]][..],
            &[b"01234", b"56789a", b"bcdef"],
        ] {
            let (output, spooled) = capture(8, chunks);
            assert_eq!(output.head, b"0123");
            assert_eq!(output.tail, b"cdef");
            assert_eq!(output.omitted_bytes(), 8);
            assert_eq!(spooled.unwrap(), b"0123456789abcdef");
        }
    }

    /// The streams of a Task share what it may spool; each file is the beginning of its stream, and the rest is counted.
    #[test]
    fn a_task_cannot_fill_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let shared = Arc::new(AtomicU64::new(10));
        let spooled = |name: &str, chunks: &[&[u8]]| {
            let path = directory.path().join(name);
            let mut capture = Capture::new(2, Some(path), Arc::clone(&shared));
            chunks.iter().for_each(|chunk| capture.take(chunk));
            let output = capture.finish();
            let file = std::fs::read(output.spooled.as_ref().unwrap()).unwrap();
            assert_eq!(output.spooled_bytes, file.len() as u64);
            (file, output.total_bytes, output.tail)
        };
        assert_eq!(
            spooled("a", &[b"abcdef"]),
            (b"abcdef".to_vec(), 6, b"f".to_vec())
        );
        assert_eq!(
            spooled("b", &[b"ghi", b"jkl", b"mno"]),
            (b"ghij".to_vec(), 9, b"o".to_vec())
        );
        assert_eq!(spooled("c", &[b"pqr"]), (Vec::new(), 3, b"r".to_vec()));
    }

    #[test]
    fn nothing_kept_is_still_counted() {
        let mut capture = Capture::new(0, None, budget());
        capture.take(b"xyz");
        let output = capture.finish();
        assert_eq!((output.total_bytes, output.omitted_bytes()), (3, 3));
        assert_eq!(output.spooled, None);
    }
}
