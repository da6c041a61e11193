//! The bytes of programs, read once: their SHA-256 is remembered in the applied store by device, inode, size, modification and
//! change time, so that an unchanged start reads none of them (issue 4). What is not remembered is hashed in parallel.
//!
//! Nobody but root can set a change time, so whoever writes to a file makes it another one for this record. What could still be
//! written unseen is hashed again each time: what changed so shortly before it was hashed that a later change could have the same
//! time; what lies on a file system that does not keep these numbers ([`filesystem::keeps_identity`]); what others may write, who
//! could hold a write that has begun. A file is synced before it is hashed: then its pages are clean, and a mapping has to take a
//! new change time before it can write again. See docs/decisions/0011.

use super::applied::Store;
use super::pin::{Opened, Pinned, hash};
use super::{filesystem, guarded};
use policy::Fault;
use policy::effective::{FileIdentity, Sha256Digest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The version that this program writes and reads.
const SCHEMA_VERSION: u32 = 1;

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
    now: fn() -> i128,
    /// Why the record was not believed.
    problem: Option<Fault>,
    #[cfg(test)]
    read: usize,
}

impl Hashes {
    /// Nothing is remembered.
    pub fn none(threads: Threads) -> Self {
        Self {
            known: Known::new(),
            settled: Known::new(),
            threads,
            now: now_ns,
            problem: None,
            #[cfg(test)]
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

    /// Pins each of these, in this order.
    pub(super) fn pin(&mut self, paths: &[PathBuf]) -> Vec<io::Result<Pinned>> {
        let mut found: Vec<Option<io::Result<Pinned>>> =
            paths.iter().map(|path| self.remembered(path)).collect();
        let unread: Vec<usize> = (0..paths.len()).filter(|at| found[*at].is_none()).collect();
        #[cfg(test)]
        {
            self.read += unread.len();
        }
        for (at, read) in self.read_all(paths, &unread) {
            found[at] = Some(read.map(|read| self.learn(read)));
        }
        let never = || Err(io::Error::from(io::ErrorKind::Interrupted));
        found
            .into_iter()
            .map(|pinned| pinned.unwrap_or_else(never))
            .collect()
    }

    fn learn(&mut self, Read { pinned, stands }: Read) -> Pinned {
        let Pinned {
            identity, sha256, ..
        } = pinned;
        match stands {
            Stands::Kept => drop(self.settled.insert(identity, sha256)),
            Stands::WhileWeRun => {}
            Stands::No => {
                return Pinned {
                    identity: identity.never_the_same(),
                    ..pinned
                };
            }
        }
        pinned
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

/// Now, in nanoseconds since 1970; 0 before.
fn now_ns() -> i128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i128::try_from(now.as_nanos()).unwrap_or(0))
}

/// A program whose bytes were read.
struct Read {
    pinned: Pinned,
    stands: Stands,
}

/// For how long its identity stands for these bytes.
enum Stands {
    /// From now on.
    Kept,
    /// Not beyond: its file system does not keep it, or others may write it.
    WhileWeRun,
    /// It changed too shortly before.
    No,
}

impl Read {
    fn of(path: &Path, now: fn() -> i128) -> io::Result<Self> {
        let Opened {
            resolved,
            file,
            identity,
        } = Opened::of(path)?;
        // From here on, to write through a mapping takes a new change time first.
        let keeps = filesystem::keeps_identity(&file)
            && guarded::is_closed_to_others(&resolved, &file.metadata()?)
            && file.sync_data().is_ok();
        let start = now();
        let sha256 = hash(&file, identity)?;
        let stands = match (identity.is_settled_at(start), keeps) {
            (false, _) => Stands::No,
            (true, false) => Stands::WhileWeRun,
            (true, true) => Stands::Kept,
        };
        Ok(Self {
            pinned: Pinned {
                resolved,
                identity,
                sha256,
            },
            stands,
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    const SECOND: i128 = 1_000_000_000;

    /// Every file of a test is older than the granularity.
    fn later() -> i128 {
        now_ns() + 3600 * SECOND
    }

    /// A configuration with programs, and a store.
    struct World {
        directory: tempfile::TempDir,
        config: PathBuf,
        store: Store,
    }

    impl World {
        /// None where the temporary directory is on a file system whose identities do not count.
        fn new() -> Option<Self> {
            let directory = tempfile::tempdir().unwrap();
            let config = directory.path().canonicalize().unwrap().join("agent.yaml");
            std::fs::write(&config, "schema_version: 2\n").unwrap();
            if !filesystem::keeps_identity(&std::fs::File::open(&config).unwrap()) {
                assert!(
                    std::env::var_os("AGENT_MCP_FORBID_SKIPS").is_none(),
                    "needs: FileSystem(ext4, xfs, btrfs, f2fs) under TMPDIR"
                );
                eprintln!("needs: FileSystem");
                return None;
            }
            Some(Self {
                store: Store::below(config.with_file_name("state")),
                config,
                directory,
            })
        }

        fn program(&self, name: &str, content: &str) -> PathBuf {
            let path = self.config.with_file_name(name);
            std::fs::write(&path, content).unwrap();
            path
        }

        /// A start at this time that remembers what it may.
        fn start_at(&self, programs: &[PathBuf], now: fn() -> i128) -> Start {
            let mut hashes = Hashes::from_store(&self.store, &self.config, Threads::All);
            hashes.now = now;
            let pinned = hashes.pin(programs);
            let problem = hashes.problem().map(|fault| fault.to_string());
            hashes.remember(&self.store, &self.config).unwrap();
            Start {
                pinned: pinned.into_iter().map(Result::unwrap).collect(),
                read: hashes.read,
                problem,
            }
        }

        fn start(&self, programs: &[PathBuf]) -> Start {
            let start = self.start_at(programs, later);
            for (path, pinned) in programs.iter().zip(&start.pinned) {
                assert_eq!(
                    pinned.sha256,
                    super::super::pin(path).unwrap().sha256,
                    "{path:?}"
                );
            }
            start
        }

        fn record(&self) -> PathBuf {
            let directory = self.config.with_file_name("state/applied-configurations");
            let mut found = std::fs::read_dir(directory).unwrap();
            found
                .find_map(|entry| {
                    let path = entry.unwrap().path();
                    path.to_string_lossy()
                        .ends_with(HASHES_ENDING)
                        .then_some(path)
                })
                .unwrap()
        }
    }

    const HASHES_ENDING: &str = ".hashes.json";

    struct Start {
        pinned: Vec<Pinned>,
        read: usize,
        problem: Option<String>,
    }

    /// Issue 4, X-HASH: an unchanged start reads no program; in their order, whoever hashed them.
    #[test]
    fn x_hash_an_unchanged_start_reads_nothing() {
        let Some(world) = World::new() else { return };
        let mut programs: Vec<PathBuf> = (0..20)
            .map(|number| world.program(&format!("p{number}"), &format!("program {number}")))
            .collect();
        let first = world.start(&programs);
        assert_eq!((first.read, first.problem), (20, None));
        let second = world.start(&programs);
        assert_eq!((second.read, second.problem), (0, None));
        assert_eq!(first.pinned, second.pinned);
        programs.push(world.program("more", "one more"));
        assert_eq!(world.start(&programs).read, 1);
        // What is not asked for any more is forgotten.
        assert_eq!(world.start(&programs[..1]).read, 0);
        assert_eq!(world.start(&programs[..2]).read, 1);
        // One that is gone is told at its place.
        std::fs::remove_file(&programs[0]).unwrap();
        let mut hashes = Hashes::from_store(&world.store, &world.config, Threads::One);
        let pinned = hashes.pin(&programs[..3]);
        assert!(pinned[0].is_err() && pinned[1].is_ok() && pinned[2].is_ok());
    }

    /// AT-09, ST-24: one byte of the same length under the same modification time, however it came there.
    #[test]
    fn at_09_another_file_that_looks_the_same_is_read() {
        let Some(world) = World::new() else { return };
        let tool = world.program("tool", "the good program");
        let good = std::fs::metadata(&tool).unwrap().modified().unwrap();
        let evil = "the evil program";
        let as_before = |path: &Path| {
            let times = std::fs::FileTimes::new().set_modified(good);
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_times(times).unwrap();
        };
        let write = |path: &Path| {
            std::fs::write(path, evil).unwrap();
            as_before(path);
        };
        let elsewhere = tool.with_file_name("elsewhere");
        let in_place = || write(&tool);
        let renamed = || {
            write(&elsewhere);
            std::fs::rename(&elsewhere, &tool).unwrap();
        };
        let linked = || {
            write(&elsewhere);
            std::fs::remove_file(&tool).unwrap();
            std::fs::hard_link(&elsewhere, &tool).unwrap();
        };
        let through_a_link = || {
            let other_name = tool.with_file_name("other-name");
            std::fs::hard_link(&tool, &other_name).unwrap();
            write(&other_name);
            std::fs::remove_file(other_name).unwrap();
        };
        let led_elsewhere = || {
            write(&elsewhere);
            std::fs::remove_file(&tool).unwrap();
            symlink(&elsewhere, &tool).unwrap();
        };
        let ways: [(&str, &dyn Fn()); 5] = [
            ("in place", &in_place),
            ("renamed", &renamed),
            ("linked", &linked),
            ("through a link", &through_a_link),
            ("led elsewhere", &led_elsewhere),
        ];
        for (way, change) in ways {
            drop(std::fs::remove_file(&tool));
            world.program("tool", "the good program");
            as_before(&tool);
            let before = world.start(std::slice::from_ref(&tool));
            assert_eq!(
                world.start(std::slice::from_ref(&tool)).read,
                0,
                "{way}: control"
            );
            change();
            let after = world.start(std::slice::from_ref(&tool));
            assert_eq!(after.read, 1, "{way}");
            let (before, after) = (&before.pinned[0], &after.pinned[0]);
            assert_ne!(before.sha256, after.sha256, "{way}");
            let looks = |pinned: &Pinned| (pinned.identity.size, pinned.identity.modified_ns);
            assert_eq!(looks(before), looks(after), "{way}: it looks the same");
        }
        // Two that changed places.
        std::fs::remove_file(&tool).unwrap();
        let pair = [
            world.program("tool", "the good program"),
            world.program("b", evil),
        ];
        let before = world.start(&pair);
        std::fs::rename(&pair[0], &elsewhere).unwrap();
        std::fs::rename(&pair[1], &pair[0]).unwrap();
        std::fs::rename(&elsewhere, &pair[1]).unwrap();
        let after = world.start(&pair);
        assert_eq!(before.pinned[0].sha256, after.pinned[1].sha256);
        assert_eq!(before.pinned[1].sha256, after.pinned[0].sha256);
    }

    /// X-HASH: what changed a moment before it was hashed, or claims to change in the future, is not remembered.
    #[test]
    fn x_hash_what_just_changed_is_not_remembered() {
        let Some(world) = World::new() else { return };
        let tool = [world.program("tool", "fresh")];
        let first = world.start_at(&tool, now_ns);
        assert_eq!(first.read, 1);
        // Nor does it count while we run.
        let seen = super::super::identity_of(&std::fs::metadata(&tool[0]).unwrap());
        assert_ne!(first.pinned[0].identity, seen);
        assert_eq!(world.start(&tool).pinned[0].identity, seen, "control");
        let tool = [world.program("tool", "fresh again")];
        assert_eq!(world.start_at(&tool, now_ns).read, 1);
        assert_eq!(world.start_at(&tool, now_ns).read, 1, "still fresh");
        // Others may write it, so they may be about to.
        let mode = |mode| {
            std::fs::set_permissions(&tool[0], std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o757);
        assert_eq!(world.start(&tool).read, 1);
        assert_eq!(world.start(&tool).read, 1, "open to others");
        mode(0o755);
        assert_eq!(world.start(&tool).read, 1);
        assert_eq!(world.start(&tool).read, 0, "control");
        let future =
            std::fs::FileTimes::new().set_modified(SystemTime::now() + Duration::from_secs(7200));
        let file = std::fs::File::options().write(true).open(&tool[0]);
        file.unwrap().set_times(future).unwrap();
        assert_eq!(world.start(&tool).read, 1);
        assert_eq!(world.start(&tool).read, 1, "from the future");
    }

    /// X-HASH: a page that a mapping has made writable takes no new time when it is written again, unless it was synced.
    #[test]
    #[allow(
        clippy::disallowed_types,
        reason = "the writer must be another program: this crate has no unsafe code"
    )]
    fn x_hash_a_writer_with_a_mapping_is_seen() {
        use std::process::{Command, Stdio};
        let Some(world) = World::new() else { return };
        let tool = [world.program("tool", "a program that is mapped")];
        let script = "import mmap, sys\n\
            f = open(sys.argv[1], 'r+b')\n\
            m = mmap.mmap(f.fileno(), 0)\n\
            for byte in b'12':\n    m[0] = byte\n    print('written', flush=True)\n    sys.stdin.readline()\n";
        let child = Command::new("python3")
            .args(["-c", script])
            .arg(&tool[0])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            assert!(
                std::env::var_os("AGENT_MCP_FORBID_SKIPS").is_none(),
                "needs: python3"
            );
            eprintln!("needs: python3");
            return;
        };
        let mut written = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut go_on = child.stdin.take().unwrap();
        written.next().unwrap().unwrap();
        let before = world.start(&tool);
        assert_eq!(world.start(&tool).read, 0, "control");
        writeln!(go_on).unwrap();
        written.next().unwrap().unwrap();
        let after = world.start(&tool);
        assert_eq!(after.read, 1);
        assert_ne!(before.pinned[0].sha256, after.pinned[0].sha256);
        drop(go_on);
        assert!(child.wait().unwrap().success());
    }

    /// ST-23: a record that is not whole, ours, this version's, this configuration's and closed to others is not believed; all
    /// is hashed, it is told, and the next record is good.
    #[test]
    fn st_23_a_record_that_is_not_ours_is_not_believed() {
        let Some(world) = World::new() else { return };
        let tool = [world.program("tool", "a program")];
        world.start(&tool);
        let path = world.record();
        let good = std::fs::read_to_string(&path).unwrap();
        let digest = world.start(&tool).pinned[0].sha256.to_string();
        let other = digest.replace(
            &digest[..1],
            if digest.starts_with('0') { "1" } else { "0" },
        );
        let private = std::fs::Permissions::from_mode(0o600);
        let put = |text: &str| {
            drop(std::fs::remove_file(&path));
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, private.clone()).unwrap();
        };
        // Somebody else's configuration, with the same program.
        let foreign = world.program("other.yaml", "schema_version: 2\n");
        let texts = [
            good[..good.len() / 2].to_owned(),
            String::new(),
            "[]".to_owned(),
            good.replace(&digest, &other),
            good.replace("\"schema_version\":1", "\"schema_version\":2"),
            good.replace("\"schema_version\":1", "\"schema_version\":0"),
            good.replace("\"inode\":", "\"more\":1,\"inode\":"),
            good.replace(
                &world.config.display().to_string(),
                &foreign.display().to_string(),
            ),
        ];
        let refused = |what: &str| {
            let start = world.start(&tool);
            assert_eq!(start.read, 1, "{what}");
            assert!(start.problem.is_some(), "{what}");
            let start = world.start(&tool);
            assert_eq!((start.read, start.problem), (0, None), "{what}: replaced");
        };
        for text in texts {
            assert_ne!(text, good);
            put(&text);
            refused(&text);
        }
        put(&good);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        refused("open to others");
        let elsewhere = world.program("record", &good);
        std::fs::set_permissions(&elsewhere, private.clone()).unwrap();
        std::fs::remove_file(&path).unwrap();
        symlink(&elsewhere, &path).unwrap();
        refused("a link");
        if rustix::process::geteuid().is_root() {
            put(&good);
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            refused("another user's");
        }
        put(&good);
        let start = world.start(&tool);
        assert_eq!((start.read, start.problem), (0, None), "control");
        drop(world.directory);
    }
}
