//! Checking an audit log from outside (`audit verify`), and showing it (`audit show`).
//!
//! Nothing here is shared with the writer in [`crate::audit`] but the key: not its state, not its parsing, not its types.
//! No lock is needed; a running instance can be checked. What it cannot see: an older log together with the head of that
//! time put back as a whole (signed checkpoints elsewhere will), and a whole instance directory that is gone.

mod ahead;
mod head;
mod line;
mod report;
mod show;

pub use report::{Problem, ProblemKind, VerifyError, VerifyReport};
pub use show::{ShowFilter, ShownRecord, show};

use crate::audit::AuditKey;
use crate::kernel_boot::KernelBoot;
use crate::private;
use ahead::Beyond;
use head::SeenHead;
use line::{Line, NO_MAC};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Longest line that is read, bytes. The writer refuses longer records.
const LINE_LIMIT: u64 = 1 << 20;
const READ_BYTES: usize = 1 << 20;

/// Verifies one instance's directory: every record, the chain, the head, and what was set aside. Stops at the first
/// problem, which is in the report.
///
/// # Errors
/// Only when the files cannot be read.
pub fn verify_instance(directory: &Path, key: &AuditKey) -> Result<VerifyReport, VerifyError> {
    verify_instance_under(directory, key, KernelBoot::current().as_ref())
}

/// [`verify_instance`] as under that kernel: records that had been left to the memory of another one may be missing.
///
/// # Errors
/// As `verify_instance`.
pub fn verify_instance_under(
    directory: &Path,
    key: &AuditKey,
    kernel: Option<&KernelBoot>,
) -> Result<VerifyReport, VerifyError> {
    // The head first: a running instance only gets longer than it.
    let head = SeenHead::read(directory, key)?;
    let files = chain_files(directory)?;
    let mut walk = Walk::new(directory, key, kernel);
    let problem = walk.all(&files, &head)?;
    walk.report.problem = problem;
    walk.report.files = files.len() as u32;
    Ok(walk.report)
}

/// Verifies every instance of a state directory, by number.
///
/// # Errors
/// Only when the files cannot be read.
pub fn verify_state(state: &Path, key: &AuditKey) -> Result<Vec<VerifyReport>, VerifyError> {
    let instances = state.join("instances");
    let mut directories = Vec::new();
    for entry in read_directory(&instances)? {
        if entry.is_dir() {
            directories.push(entry);
        }
    }
    directories.sort();
    directories
        .iter()
        .map(|directory| verify_instance(directory, key))
        .collect()
}

fn read_directory(path: &Path) -> Result<Vec<PathBuf>, VerifyError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(VerifyError::new(path, error)),
    };
    entries
        .map(|entry| {
            entry
                .map(|entry| entry.path())
                .map_err(|error| VerifyError::new(path, error))
        })
        .collect()
}

/// The files of a chain: number and path, by number.
fn chain_files(directory: &Path) -> Result<Vec<(u32, PathBuf)>, VerifyError> {
    let mut files = Vec::new();
    for path in read_directory(directory)? {
        let number = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_prefix("audit.")?.strip_suffix(".jsonl"))
            .and_then(|number| number.parse().ok());
        if let Some(number) = number {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files)
}

/// Where the walk is in the chain.
struct Walk<'a> {
    directory: &'a Path,
    key: &'a AuditKey,
    keyed: hmac::Hmac<Sha256>,
    kernel: Option<&'a KernelBoot>,
    report: VerifyReport,
    last_mac: [u8; 64],
    last_was_close: bool,
    boot_id: [u8; 36],
    /// Whether the record the head speaks of was seen.
    head_met: bool,
    set_aside: BTreeSet<String>,
}

impl<'a> Walk<'a> {
    fn new(directory: &'a Path, key: &'a AuditKey, kernel: Option<&'a KernelBoot>) -> Self {
        Self {
            directory,
            key,
            keyed: key.for_records(),
            kernel,
            report: VerifyReport::empty(directory),
            last_mac: NO_MAC,
            last_was_close: false,
            boot_id: [0; 36],
            head_met: false,
            set_aside: BTreeSet::new(),
        }
    }

    fn all(
        &mut self,
        files: &[(u32, PathBuf)],
        head: &SeenHead,
    ) -> Result<Option<Problem>, VerifyError> {
        let head = match head {
            SeenHead::Missing if files.is_empty() => return Ok(None),
            SeenHead::Missing => return Ok(Some(head_problem(ProblemKind::HeadMissing))),
            SeenHead::Invalid => return Ok(Some(head_problem(ProblemKind::HeadInvalid))),
            SeenHead::WrongKey => return Ok(Some(head_problem(ProblemKind::WrongKey))),
            SeenHead::Signed(head) => head,
        };
        self.report.head_seq = head.seq;
        self.head_met = head.seq == 0;
        for (at, (number, path)) in files.iter().enumerate() {
            let expected = at as u32 + 1;
            if *number != expected {
                return Ok(Some(self.problem(
                    ProblemKind::FileMissing,
                    &format!("audit.{expected:04}.jsonl"),
                    0,
                    None,
                )));
            }
            let last = at + 1 == files.len();
            let size = match self.file(*number, path, last, head)? {
                Ok(size) => size,
                Err(problem) => return Ok(Some(problem)),
            };
            if last && let Some(problem) = self.ahead(*number, size, path, head)? {
                return Ok(Some(problem));
            }
        }
        let lost = self.lost_with_kernel(head);
        self.report.lost_with_kernel = lost.unwrap_or(0);
        if !self.head_met && lost.is_none() {
            let name = format!("audit.{:04}.jsonl", head.file);
            let missing_end = head.closed && self.report.last_seq + 1 == head.seq;
            let kind = match missing_end {
                true => ProblemKind::EndRecordMissing,
                false => ProblemKind::Truncated,
            };
            return Ok(Some(self.problem(kind, &name, 0, Some(head.seq))));
        }
        self.count_unrecorded()?;
        self.report.closed = self.last_was_close;
        self.report.beyond_head = self.report.last_seq.saturating_sub(head.seq);
        Ok(None)
    }

    fn file(
        &mut self,
        number: u32,
        path: &Path,
        last: bool,
        head: &head::HeadClaim,
    ) -> Result<Result<u64, Problem>, VerifyError> {
        let name = file_name(path);
        let file = private::open_read(path).map_err(|error| VerifyError::new(path, error))?;
        let mut reader = BufReader::with_capacity(READ_BYTES, file);
        let mut text = Vec::with_capacity(4096);
        let mut size = 0u64;
        for count in 1u64.. {
            text.clear();
            (&mut reader)
                .take(LINE_LIMIT + 1)
                .read_until(b'\n', &mut text)
                .map_err(|error| VerifyError::new(path, error))?;
            if text.is_empty() {
                break;
            }
            size += text.len() as u64;
            self.report.bytes += text.len() as u64;
            if text.pop() != Some(b'\n') {
                let torn = last && size > 0 && text.len() as u64 <= LINE_LIMIT;
                let kind = match torn {
                    true => ProblemKind::TornTail,
                    false => ProblemKind::RecordAltered,
                };
                return Ok(Err(self.problem(kind, &name, count, None)));
            }
            if let Some((kind, seq)) = self.record_at(&text, number, size, head)? {
                return Ok(Err(self.problem(kind, &name, count, seq)));
            }
        }
        Ok(Ok(size))
    }

    /// What the last file lost in a power failure and what is on the disk ahead of it.
    fn ahead(
        &mut self,
        number: u32,
        mut size: u64,
        log: &Path,
        head: &head::HeadClaim,
    ) -> Result<Option<Problem>, VerifyError> {
        // While the kernel that held the end runs, the log has lost nothing by itself.
        if head.is_held_by(self.kernel) {
            return Ok(None);
        }
        let end = match ahead::beyond(self.directory, self.key, number, size)? {
            Beyond::Nothing => return Ok(None),
            Beyond::End(end) => end,
            Beyond::Gap => {
                // A running instance has written on since.
                let next = self
                    .directory
                    .join(format!("audit.{:04}.jsonl", number + 1));
                let grown = log.metadata().is_ok_and(|metadata| metadata.len() > size);
                let problem = || self.problem(ProblemKind::Truncated, &file_name(log), 0, None);
                return Ok((!grown && !next.exists()).then(problem));
            }
        };
        for (count, line) in (1u64..).zip(end.split_inclusive(|&byte| byte == b'\n')) {
            size += line.len() as u64;
            let Some(text) = line.strip_suffix(b"\n") else {
                let kind = ProblemKind::RecordAltered;
                return Ok(Some(self.problem(kind, ahead::AHEAD_NAME, count, None)));
            };
            if let Some((kind, seq)) = self.record_at(text, number, size, head)? {
                return Ok(Some(self.problem(kind, ahead::AHEAD_NAME, count, seq)));
            }
            self.report.ahead += 1;
        }
        Ok(None)
    }

    /// One record that ends at this place, against the chain so far and the head.
    fn record_at(
        &mut self,
        text: &[u8],
        number: u32,
        size: u64,
        head: &head::HeadClaim,
    ) -> Result<Option<(ProblemKind, Option<u64>)>, VerifyError> {
        if let Some(problem) = self.record(text)? {
            return Ok(Some(problem));
        }
        if self.report.last_seq == head.seq {
            if let Some(kind) = self.meet(head, number, size) {
                return Ok(Some((kind, Some(head.seq))));
            }
            self.head_met = true;
        }
        Ok(None)
    }

    /// One record against the chain so far.
    fn record(&mut self, text: &[u8]) -> Result<Option<(ProblemKind, Option<u64>)>, VerifyError> {
        let Some(line) = Line::scan(text) else {
            return Ok(Some((ProblemKind::RecordAltered, None)));
        };
        if line.mac_of(text, &self.keyed) != line.mac {
            return Ok(Some((ProblemKind::RecordAltered, Some(line.seq))));
        }
        // From here on the record is one that a writer with this key made; is it in its place?
        let refuse = |kind| Ok(Some((kind, Some(line.seq))));
        if line.version != b"1" {
            return refuse(ProblemKind::VersionUnknown);
        }
        let expected = self.report.last_seq + 1;
        if line.seq > expected {
            return refuse(ProblemKind::RecordMissing);
        }
        if line.seq < expected {
            return refuse(ProblemKind::RecordMoved);
        }
        if line.prev != self.last_mac {
            return refuse(ProblemKind::ChainBroken);
        }
        let opens = line.event == b"audit.open";
        if opens {
            if let Some(kind) = self.boot(line.detail)? {
                return refuse(kind);
            }
            self.boot_id.copy_from_slice(line.boot_id);
        } else if line.boot_id != self.boot_id || self.last_was_close {
            return refuse(ProblemKind::BootInvalid);
        }
        self.report.records += 1;
        self.report.last_seq = line.seq;
        self.last_mac.copy_from_slice(line.mac);
        self.last_was_close = line.event == b"audit.close";
        Ok(None)
    }

    /// An `audit.open`: does it say the truth about how the boot before it ended, and about what was set aside?
    fn boot(&mut self, detail: &[u8]) -> Result<Option<ProblemKind>, VerifyError> {
        #[derive(serde::Deserialize)]
        struct Opening {
            previous_end: String,
            set_aside: Option<SetAside>,
        }
        #[derive(serde::Deserialize)]
        struct SetAside {
            file: String,
            bytes: u64,
            sha256: String,
        }
        let Ok(opening) = serde_json::from_slice::<Opening>(detail) else {
            return Ok(Some(ProblemKind::BootInvalid));
        };
        let first = self.report.last_seq == 0;
        match (opening.previous_end.as_str(), first) {
            ("none", true) => {}
            ("closed", false) if self.last_was_close => {}
            ("closed", false) => return Ok(Some(ProblemKind::EndRecordMissing)),
            ("unclean", false) if !self.last_was_close => self.report.unclean_stops += 1,
            _ => return Ok(Some(ProblemKind::BootInvalid)),
        }
        self.report.boots += 1;
        let Some(torn) = opening.set_aside else {
            return Ok(None);
        };
        let path = self.directory.join(&torn.file);
        let mut content = Vec::new();
        let read = File::open(&path).and_then(|file| {
            file.take(torn.bytes.saturating_add(1))
                .read_to_end(&mut content)
        });
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(ProblemKind::SetAsideInvalid));
            }
            Err(error) => return Err(VerifyError::new(&path, error)),
            Ok(_) => {}
        }
        if private::hex_text(&Sha256::digest(&content).into()) != torn.sha256 {
            return Ok(Some(ProblemKind::SetAsideInvalid));
        }
        self.set_aside.insert(torn.file);
        self.report.set_aside += 1;
        Ok(None)
    }

    /// The record the head speaks of: same mac, same place?
    fn meet(&self, head: &head::HeadClaim, number: u32, size: u64) -> Option<ProblemKind> {
        if self.last_mac != head.mac || number != head.file || size != head.size {
            return Some(ProblemKind::HeadMismatch);
        }
        (head.closed && !self.last_was_close).then_some(ProblemKind::EndRecordMissing)
    }

    /// The chain ends before the head's record, but not before its last one on the disk, and the kernel that held the
    /// rest is gone: how many records went with it.
    fn lost_with_kernel(&self, head: &head::HeadClaim) -> Option<u64> {
        let earliest = head.earliest_end(self.kernel);
        let last = self.report.last_seq;
        (!self.head_met && (earliest..head.seq).contains(&last)).then(|| head.seq - last)
    }

    /// A set-aside file that no record names is a crash between two steps; it is only counted.
    fn count_unrecorded(&mut self) -> Result<(), VerifyError> {
        for path in read_directory(self.directory)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("audit.torn-") && !self.set_aside.contains(name.as_ref()) {
                self.report.set_aside_unrecorded += 1;
            }
        }
        Ok(())
    }

    fn problem(&self, kind: ProblemKind, file: &str, line: u64, seq: Option<u64>) -> Problem {
        Problem {
            kind,
            file: file.to_owned(),
            line,
            seq,
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn head_problem(kind: ProblemKind) -> Problem {
    Problem {
        kind,
        file: head::HEAD_NAME.to_owned(),
        line: 1,
        seq: None,
    }
}
