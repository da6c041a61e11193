//! The bytes of programs, read once: their SHA-256 is remembered in the applied store by device, inode, size, modification and
//! change time, so that an unchanged start reads none of them (issue 4). What is not remembered is hashed in parallel.
//!
//! Nobody but root can set a change time, so whoever writes to a file makes it another one for this record. Three cases are left,
//! and in each of them the file is hashed again: it changed so shortly before it was hashed that a later change could have the
//! same time; its file system does not keep these numbers ([`filesystem::keeps_identity`]); it was being written through a
//! memory mapping, which is why it is synced first: a page that is clean takes a new change time before it can be written again.

use super::applied::Store;
use super::filesystem;
use super::pin::{Opened, Pinned, hash};
use policy::Fault;
use policy::effective::{FileIdentity, Sha256Digest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The version that this program writes and reads.
const SCHEMA_VERSION: u32 = 1;
/// A change this shortly before hashing may be followed by another with the same time. Clocks of file systems tick every 10 ms at
/// most, those of old ones every 2 s.
const GRANULARITY: Duration = Duration::from_secs(2);

type Known = BTreeMap<FileIdentity, Sha256Digest>;

/// How many threads may hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Only this one: `exec` shares its memory with what it starts.
    One,
    /// As many as the machine runs at a time.
    All,
}

/// The record in the store.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashRecord {
    schema_version: u32,
    /// The configuration it belongs to, resolved.
    config: PathBuf,
    executables: Vec<Remembered>,
    /// SHA-256 over the executables as they are written here: a record that rotted is not believed.
    sha256: String,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remembered {
    identity: FileIdentity,
    sha256: String,
}

impl HashRecord {
    fn of(config: &Path, known: &Known) -> serde_json::Result<Self> {
        let executables: Vec<Remembered> = known
            .iter()
            .map(|(identity, sha256)| Remembered {
                identity: *identity,
                sha256: sha256.to_string(),
            })
            .collect();
        Ok(Self {
            schema_version: SCHEMA_VERSION,
            config: super::resolve_existing(config),
            sha256: digest(&executables)?,
            executables,
        })
    }

    /// What it holds; none where it is not exactly what this program writes for this configuration.
    fn known(&self, config: &Path) -> Option<Known> {
        let is_ours = self.schema_version == SCHEMA_VERSION
            && self.config == super::resolve_existing(config)
            && digest(&self.executables).ok().as_ref() == Some(&self.sha256);
        let one = |one: &Remembered| Some((one.identity, one.sha256.parse().ok()?));
        is_ours.then(|| self.executables.iter().map(one).collect())?
    }
}

fn digest(executables: &[Remembered]) -> serde_json::Result<String> {
    use sha2::Digest;
    let text = serde_json::to_vec(executables)?;
    Ok(Sha256Digest(sha2::Sha256::digest(text).into()).to_string())
}

/// Pins programs, and knows which it need not read.
#[derive(Debug)]
pub struct Hashes {
    known: Known,
    /// What was pinned and may be remembered.
    settled: Known,
    threads: Threads,
    now: fn() -> SystemTime,
    /// Why the record was not believed.
    problem: Option<Fault>,
    /// Files that were read.
    read: usize,
}

impl Hashes {
    /// Nothing is remembered.
    pub fn none(threads: Threads) -> Self {
        Self {
            known: Known::new(),
            settled: Known::new(),
            threads,
            now: SystemTime::now,
            problem: None,
            read: 0,
        }
    }

    /// What the user's store remembers for a configuration. A record that is not ours, whole and closed to others is not believed,
    /// which [`Hashes::problem`] tells; then everything is hashed.
    pub fn of(config: &Path, threads: Threads) -> Self {
        match Store::of_user() {
            Ok(store) => Self::from_store(&store, config, threads),
            Err(problem) => Self {
                problem: Some(problem),
                ..Self::none(threads)
            },
        }
    }

    fn from_store(store: &Store, config: &Path, threads: Threads) -> Self {
        let (known, problem) = match store.read_hashes(config) {
            Ok(None) => (Known::new(), None),
            Ok(Some(record)) => match record.known(config) {
                Some(known) => (known, None),
                None => (Known::new(), Some(store.not_our_hashes(config))),
            },
            Err(problem) => (Known::new(), Some(problem)),
        };
        Self {
            known,
            problem,
            ..Self::none(threads)
        }
    }

    /// Why the record was not believed, if so.
    pub fn problem(&self) -> Option<&Fault> {
        self.problem.as_ref()
    }

    /// Remembers what was pinned, and nothing else; writes only where that is news. The store must have been found good.
    ///
    /// # Errors
    /// `state.unusable`. Nothing is lost but time.
    pub fn remember(&self, store: &Store, config: &Path) -> Result<(), Fault> {
        if self.settled == self.known && self.problem.is_none() {
            return Ok(());
        }
        // Numbers and digests are always JSON; a path that is no text has no snapshot either.
        let Ok(record) = HashRecord::of(config, &self.settled) else {
            return Ok(());
        };
        store.keep_hashes(config, &record)
    }

    /// The same in the user's store, where it does not matter whether that works.
    pub fn remember_or_hash_again(&self, config: &Path) {
        drop(Store::of_user().and_then(|store| self.remember(&store, config)));
    }

    /// How many programs were read.
    pub fn read(&self) -> usize {
        self.read
    }

    /// Pins each of these, in this order.
    pub(super) fn pin(&mut self, paths: &[PathBuf]) -> Vec<io::Result<Pinned>> {
        let mut found: Vec<Option<io::Result<Pinned>>> =
            paths.iter().map(|path| self.remembered(path)).collect();
        let unread: Vec<usize> = (0..paths.len()).filter(|at| found[*at].is_none()).collect();
        self.read += unread.len();
        for (at, pinned) in self.read_all(paths, &unread) {
            found[at] = Some(pinned.map(|Read { pinned, settled }| {
                if settled {
                    self.settled.insert(pinned.identity, pinned.sha256);
                }
                pinned
            }));
        }
        let never = || Err(io::Error::from(io::ErrorKind::Interrupted));
        found
            .into_iter()
            .map(|pinned| pinned.unwrap_or_else(never))
            .collect()
    }

    /// The file of a path, if its bytes are known.
    fn remembered(&mut self, path: &Path) -> Option<io::Result<Pinned>> {
        if self.known.is_empty() {
            return None;
        }
        let Opened {
            resolved,
            file,
            identity,
        } = Opened::of(path).ok()?;
        let sha256 = *self.known.get(&identity)?;
        if !filesystem::keeps_identity(&file) {
            return None;
        }
        self.settled.insert(identity, sha256);
        Some(Ok(Pinned {
            resolved,
            identity,
            sha256,
        }))
    }

    fn read_all(&self, paths: &[PathBuf], unread: &[usize]) -> Vec<(usize, io::Result<Read>)> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(unread.len()));
        let work = || {
            while let Some(at) = unread.get(next.fetch_add(1, Ordering::Relaxed)) {
                let read = Read::of(&paths[*at], self.now);
                let mut done = done.lock().unwrap_or_else(|poison| poison.into_inner());
                done.push((*at, read));
            }
        };
        let threads = match self.threads {
            Threads::One => 1,
            Threads::All => std::thread::available_parallelism().map_or(1, usize::from),
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(unread.len()) {
                // Where there is no further thread, those that are there do the work.
                drop(std::thread::Builder::new().spawn_scoped(scope, work));
            }
            work();
        });
        done.into_inner()
            .unwrap_or_else(|poison| poison.into_inner())
    }
}

/// A program whose bytes were read.
struct Read {
    pinned: Pinned,
    /// Whether its identity stands for its bytes from now on.
    settled: bool,
}

impl Read {
    fn of(path: &Path, now: fn() -> SystemTime) -> io::Result<Self> {
        let Opened {
            resolved,
            file,
            identity,
        } = Opened::of(path)?;
        // From here on, to write through a mapping takes a new change time first.
        let keeps = filesystem::keeps_identity(&file) && file.sync_data().is_ok();
        let start = now();
        let sha256 = hash(&file, identity)?;
        Ok(Self {
            pinned: Pinned {
                resolved,
                identity,
                sha256,
            },
            settled: keeps && is_settled(&identity, start),
        })
    }
}

/// Whether the last change was long enough before this moment. A time in the future is not.
fn is_settled(identity: &FileIdentity, moment: SystemTime) -> bool {
    let Ok(moment) = moment.duration_since(UNIX_EPOCH) else {
        return false;
    };
    let latest = identity.changed_ns.max(identity.modified_ns);
    let granularity = i128::try_from(GRANULARITY.as_nanos()).unwrap_or(i128::MAX);
    i128::try_from(moment.as_nanos())
        .is_ok_and(|moment| latest.saturating_add(granularity) < moment)
}
