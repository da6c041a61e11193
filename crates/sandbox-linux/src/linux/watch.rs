//! Memory of the whole tree, watched by init where no cgroup does it.
//!
//! The sum of resident sets is cheap and counts shared pages more than once; only when it is over the limit, the
//! proportional sets decide. The nearer to the limit, the shorter the pause.

use super::bare::tree;
use super::connect::NumberedPath;
use super::sys::{Fd, file, process};

/// The kernel's offset of the first process in `/proc`; everything before it is no process.
const FIRST_PROCESS: usize = 256;
const SHORTEST_PAUSE_NS: u64 = 5_000_000;
const LONGEST_PAUSE_NS: u64 = 50_000_000;
/// Bytes per nanosecond that a tree is believed to take at most: 4 GB/s.
const FASTEST_GROWTH: u64 = 4;

pub(crate) struct Watch {
    proc: Fd,
    /// The memory-backed area, whose files are in no process's account.
    private: Fd,
    limit: u64,
    page: u64,
    next_ns: u64,
    /// Only this process and those below it, where `/proc` is the machine's. Whoever asks for that may allocate.
    below: Option<i32>,
}

/// What one look found.
#[derive(Clone, Copy, Default)]
pub(crate) struct Look {
    pub(crate) processes: u32,
    /// Of processes, and of what no process has.
    resident: u64,
    /// Mapped shared memory; files of the private area may be among it.
    shared: u64,
    private: u64,
}

impl Look {
    /// Never counts anything twice; a file of the private area hides behind other shared memory at most.
    fn total(&self) -> u64 {
        self.resident.saturating_add(self.shared.max(self.private))
    }
}

impl Watch {
    pub(crate) fn new(limit: u64, page: u64, private: Fd) -> super::sys::Result<Self> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        Ok(Self {
            proc: file::open_at(Fd::CWD, c"/proc", flags, 0)?,
            private,
            limit,
            page,
            next_ns: 0,
            below: None,
        })
    }

    /// From now on only what is below this process counts, and it itself.
    pub(crate) fn only_below(&mut self, root: i32) {
        self.below = Some(root);
    }

    /// The process that the tree hangs from, where it is not all that `/proc` shows.
    pub(crate) fn root(&self) -> Option<i32> {
        self.below
    }

    /// Nanoseconds until the next look is due.
    pub(crate) fn pause(&self, now_ns: u64) -> u64 {
        self.next_ns.saturating_sub(now_ns)
    }

    /// Looks when it is time. `true`: the tree is over its limit.
    pub(crate) fn is_over(&mut self, now_ns: u64) -> bool {
        if now_ns < self.next_ns {
            return false;
        }
        let look = self.look(Measure::Resident);
        let headroom = self.limit.saturating_sub(look.total());
        let pause = (headroom / FASTEST_GROWTH / 2).clamp(SHORTEST_PAUSE_NS, LONGEST_PAUSE_NS);
        self.next_ns = now_ns + pause;
        look.total() > self.limit && self.look(Measure::Proportional).total() > self.limit
    }

    /// Starts the first look one short pause from now.
    pub(crate) fn rearm(&mut self) {
        self.next_ns = process::monotonic_ns() + SHORTEST_PAUSE_NS;
    }

    /// How many processes there are, init included.
    pub(crate) fn count(&self) -> u32 {
        self.look(Measure::Nothing).processes
    }

    fn look(&self, measure: Measure) -> Look {
        let mut look = Look::default();
        if let Some(root) = self.below {
            look.processes = 1;
            for member in tree::below(root) {
                let mut name = NumberedPath::new(b"");
                name.number(member.pid);
                look.processes += 1;
                self.measure(measure, name.as_c_str().to_bytes(), &mut look);
            }
            return look;
        }
        if !matches!(measure, Measure::Nothing) {
            look.resident = self.detached_segments();
            look.private = file::used(self.private).unwrap_or(0);
        }
        let mut buffer = [0u8; 8192];
        if file::seek(self.proc, FIRST_PROCESS).is_err() {
            return look;
        }
        while let Ok(length @ 1..) = file::entries(self.proc, &mut buffer) {
            let mut rest = buffer.get(..length).unwrap_or(&[]);
            // `struct linux_dirent64`: inode, offset, record length at 16, kind at 18, name from 19.
            while let Some(&[low, high]) = rest.get(16..18) {
                let record = usize::from(u16::from_ne_bytes([low, high]));
                let name = rest.get(19..record).unwrap_or(&[]);
                if name.first().is_some_and(u8::is_ascii_digit) {
                    look.processes += 1;
                    self.measure(measure, name, &mut look);
                }
                rest = rest.get(record.max(1)..).unwrap_or(&[]);
            }
        }
        look
    }

    fn measure(&self, measure: Measure, name: &[u8], look: &mut Look) {
        let digits = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
        if matches!(measure, Measure::Nothing) {
            return;
        }
        let mut text = [0u8; 512];
        if matches!(measure, Measure::Proportional) {
            let text = self.read(digits, b"/smaps_rollup", &mut text);
            let part = |label: &[u8]| {
                text.split(|byte| *byte == b'\n')
                    .find_map(|line| line.strip_prefix(label))
                    .map(|rest| number(rest) * 1024)
            };
            if let (Some(all), Some(shared)) = (part(b"Pss:"), part(b"Pss_Shmem:")) {
                look.resident += all.saturating_sub(shared);
                look.shared += shared;
                return;
            }
            // It hides, or it is ending: then all that is resident counts as its own.
        }
        // Size, then resident pages.
        let text = self.read(digits, b"/statm", &mut text);
        let mut fields = text.split(|byte| *byte == b' ');
        look.resident += fields.nth(1).map_or(0, number) * self.page;
    }

    /// Memory of System V segments that no process has attached: it is in nobody's account, and outlives its maker.
    fn detached_segments(&self) -> u64 {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // A kernel without them has none.
        let Ok(fd) = file::open_at(self.proc, c"sysvipc/shm", flags, 0) else {
            return 0;
        };
        let mut segments = Segments::default();
        let mut text = [0u8; 4096];
        while let Ok(length @ 1..) = file::read(fd, &mut text) {
            segments.take(text.get(..length).unwrap_or(&[]));
        }
        file::close(fd);
        segments.detached
    }

    fn read<'t>(&self, digits: &[u8], name: &[u8], text: &'t mut [u8]) -> &'t [u8] {
        let mut path = NumberedPath::new(digits);
        path.text(name);
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // A process that ended meanwhile holds nothing.
        let Ok(fd) = file::open_at(self.proc, path.as_c_str(), flags, 0) else {
            return &[];
        };
        let length = file::read(fd, text).unwrap_or(0);
        file::close(fd);
        text.get(..length).unwrap_or(&[])
    }
}

/// Reads `/proc/sysvipc/shm` piece by piece: a line of titles, then a line of sixteen numbers for each segment.
#[derive(Default)]
struct Segments {
    after_titles: bool,
    field: u32,
    in_word: bool,
    value: u64,
    attached: u64,
    detached: u64,
}

impl Segments {
    const ATTACHED: u32 = 6;
    const RESIDENT: u32 = 14;

    fn take(&mut self, text: &[u8]) {
        for byte in text {
            if byte.is_ascii_whitespace() {
                self.end_word();
                if *byte == b'\n' {
                    self.after_titles = true;
                    self.field = 0;
                }
            } else {
                self.in_word = true;
                self.value = self
                    .value
                    .wrapping_mul(10)
                    .wrapping_add(u64::from(byte.wrapping_sub(b'0') & 0xf));
            }
        }
    }

    fn end_word(&mut self) {
        if self.in_word && self.after_titles {
            match self.field {
                Self::ATTACHED => self.attached = self.value,
                Self::RESIDENT if self.attached == 0 => {
                    self.detached = self.detached.saturating_add(self.value);
                }
                _ => {}
            }
        }
        self.field += u32::from(self.in_word);
        self.in_word = false;
        self.value = 0;
    }
}

#[derive(Clone, Copy)]
enum Measure {
    Nothing,
    Resident,
    Proportional,
}

pub(crate) fn number(text: &[u8]) -> u64 {
    text.iter()
        .skip_while(|byte| !byte.is_ascii_digit())
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |sum: u64, digit| {
            sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_out_of_text() {
        assert_eq!(number(b"  1234 kB"), 1234);
        assert_eq!(number(b""), 0);
    }

    /// Cut anywhere, because the kernel's answer comes in pieces.
    #[test]
    fn only_detached_segments_count() {
        let text = b"       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n\
            0          1   600                  8192    10    11      0     0     0     0     0          1          1          1                  8192                     0\n\
            0          2   600                  4096    10    11      2     0     0     0     0          1          1          1                  4096                     0\n\
            5          3   600                 16384    10    11      0     0     0     0     0          1          1          1                 12288                     0\n";
        for cut in 0..text.len() {
            let mut segments = Segments::default();
            segments.take(&text[..cut]);
            segments.take(&text[cut..]);
            assert_eq!(segments.detached, 8192 + 12288, "cut at {cut}");
        }
    }

    #[test]
    fn finds_this_process() {
        let nothing = Fd(-1);
        let watch = Watch::new(1 << 40, 4096, nothing).unwrap();
        let look = watch.look(Measure::Resident);
        assert!(look.processes >= 1 && look.resident > 0);
        assert!(watch.look(Measure::Proportional).resident > 0);
    }
}
