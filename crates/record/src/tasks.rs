//! What outlives a client of long work (DESIGN §5.7): one file for each task, `<state>/mcp-tasks/<id>.json`.
//!
//! Each names the process that works on it. A task is unfinished only as long as that process lives: whoever finds one of a
//! dead process writes down that it failed, because its server was restarted. What another living process works on can be
//! read, and is left alone.

use crate::clock::Clock;
use crate::instance::Instance;
use crate::state::{StateDirectory, StateError, TEMPORARY_SUFFIX};
use jiff::Timestamp;
use policy::{RunId, SessionId, TraceId};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// So many records are kept; then the oldest finished ones go before their time.
pub const MOST_TASKS: usize = 20_000;

const DIRECTORY: &str = "mcp-tasks";
const SUFFIX: &str = ".json";
const VERSION: u32 = 1;
/// The largest record that is read, bytes; the final text is bounded far below by the model's answer.
const LIMIT: u64 = 64 << 20;

/// The process that works on a task: instance numbers are used again, so a random word tells its holders apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    instance: u32,
    process: String,
}

/// What became of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields, tag = "state")]
pub enum TaskOutcome {
    /// Nothing yet.
    Working,
    /// There is a result.
    Completed {
        /// Its text.
        text: String,
        /// Whether the run failed.
        is_error: bool,
    },
    /// It was stopped.
    Cancelled,
    /// Its server was restarted.
    Restarted,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRecord {
    version: u32,
    /// The run's public id; it is also what a client names it by.
    pub id: RunId,
    /// The run's session.
    pub session: SessionId,
    /// When it was made.
    pub created: Timestamp,
    /// When it changed last.
    pub updated: Timestamp,
    /// What became of it.
    pub outcome: TaskOutcome,
    owner: Owner,
}

impl TaskRecord {
    /// Whether nothing follows.
    pub fn is_finished(&self) -> bool {
        self.outcome != TaskOutcome::Working
    }

    fn is_expired(&self, now: Timestamp, lifetime: Duration) -> bool {
        // A clock that went back makes nothing older.
        Duration::try_from(now.duration_since(self.created)).is_ok_and(|age| age >= lifetime)
    }
}

/// The records, for one process. Calls wait for the disk.
#[derive(Debug)]
pub struct TaskRecords {
    directory: StateDirectory,
    instance: Instance,
    owner: Owner,
    lifetime: Duration,
    clock: Arc<dyn Clock>,
    /// Files there, as far as this process knows.
    count: AtomicUsize,
}

impl TaskRecords {
    /// Opens them for the process that holds `instance`: removes what is expired, and writes down what dead processes left
    /// unfinished. A record that cannot be read stays, and is refused when it is
    /// asked for. `lifetime` counts from a record's creation, and is for finished ones.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn open(
        state: &StateDirectory,
        instance: &Instance,
        lifetime: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StateError> {
        let records = Self {
            directory: state.directory(DIRECTORY)?,
            instance: instance.clone(),
            owner: Owner {
                instance: instance.number(),
                process: TraceId::random().to_string(),
            },
            lifetime,
            clock,
            count: AtomicUsize::new(0),
        };
        let mut count = 0;
        for id in records.ids()? {
            // One damaged file must not keep the others from being served.
            if !matches!(records.get(id), Ok(None)) {
                count += 1;
            }
        }
        records.count.store(count, Ordering::Relaxed);
        Ok(records)
    }

    /// Writes down that this process works on a task. Durable when it returns.
    ///
    /// # Errors
    /// `state.unusable`; then the task must not be told to anybody.
    pub fn create(&self, id: RunId, session: SessionId) -> Result<TaskRecord, StateError> {
        if self.count.load(Ordering::Relaxed) >= MOST_TASKS {
            self.make_room()?;
        }
        let now = self.clock.now();
        let record = TaskRecord {
            version: VERSION,
            id,
            session,
            created: now,
            updated: now,
            outcome: TaskOutcome::Working,
            owner: self.owner.clone(),
        };
        self.write(&record)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(record)
    }

    /// Writes down what became of it. What is finished already stays as it is. Durable when it returns.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn finish(&self, id: RunId, outcome: TaskOutcome) -> Result<(), StateError> {
        match self.read(id)? {
            Some(mut record) if !record.is_finished() => {
                record.outcome = outcome;
                record.updated = self.clock.now();
                self.write(&record)
            }
            _ => Ok(()),
        }
    }

    /// What is known of a task. None for one that never was, or is expired: its record is removed then.
    ///
    /// # Errors
    /// `state.unusable`: it is damaged, of a newer version, open to others, a link, or the disk's refusal.
    pub fn get(&self, id: RunId) -> Result<Option<TaskRecord>, StateError> {
        let Some(mut record) = self.read(id)? else {
            return Ok(None);
        };
        if !record.is_finished() && !self.is_mine(&record) && self.is_dead(&record)? {
            record.outcome = TaskOutcome::Restarted;
            record.updated = self.clock.now();
            self.write(&record)?;
        }
        if record.is_finished() && record.is_expired(self.clock.now(), self.lifetime) {
            self.remove(id)?;
            return Ok(None);
        }
        Ok(Some(record))
    }

    /// How long a finished record is kept, from its creation.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Whether this process works on it, or did.
    pub fn is_mine(&self, record: &TaskRecord) -> bool {
        record.owner == self.owner
    }

    fn is_dead(&self, record: &TaskRecord) -> Result<bool, StateError> {
        // We hold that number now, so whoever held it is gone.
        if record.owner.instance == self.owner.instance {
            return Ok(true);
        }
        let mut all = self.instance.all()?.into_iter();
        match all.find(|entry| entry.number == record.owner.instance) {
            // Its next holder finds out when it opens these records.
            Some(entry) => entry.try_adopt().map(|free| free.is_some()),
            None => Ok(true),
        }
    }

    fn read(&self, id: RunId) -> Result<Option<TaskRecord>, StateError> {
        let file = self.directory.file(&name(id))?;
        let damaged = |reason: String| StateError::Damaged {
            path: file.path().to_owned(),
            reason,
        };
        let Some(text) = file.read(LIMIT)? else {
            return Ok(None);
        };
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let versioned: Versioned =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if versioned.version != VERSION {
            return Err(damaged(format!(
                "version {} is not {VERSION}",
                versioned.version
            )));
        }
        let record: TaskRecord =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if record.id != id {
            return Err(damaged(format!("it is of task {}", record.id)));
        }
        Ok(Some(record))
    }

    fn write(&self, record: &TaskRecord) -> Result<(), StateError> {
        self.directory.file(&name(record.id))?.write_json(record)
    }

    fn remove(&self, id: RunId) -> Result<(), StateError> {
        self.directory.file(&name(id))?.remove()?;
        let one_less = |count: usize| count.checked_sub(1);
        let _none_left = self
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        Ok(())
    }

    /// Every record there; what a process that was killed was writing goes.
    fn ids(&self) -> Result<Vec<RunId>, StateError> {
        let path = self.directory.path();
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(path).map_err(StateError::io("list", path))? {
            let entry = entry.map_err(StateError::io("list", path))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.starts_with('.') && name.ends_with(TEMPORARY_SUFFIX) {
                self.remove_unfinished(&entry.path(), name)?;
            } else if let Some(id) = name.strip_suffix(SUFFIX).and_then(|id| id.parse().ok()) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// A temporary file of a process that is gone; others may still be at it.
    fn remove_unfinished(&self, path: &Path, name: &str) -> Result<(), StateError> {
        let writer = name
            .trim_end_matches(TEMPORARY_SUFFIX)
            .rsplit('.')
            .next()
            .and_then(|end| end.split('-').next())
            .and_then(|process| process.parse::<i32>().ok());
        let alive = writer.is_some_and(|writer| Path::new(&format!("/proc/{writer}")).exists());
        if alive {
            return Ok(());
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StateError::io("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Removes what is expired, then the oldest finished ones, until a tenth is free.
    fn make_room(&self) -> Result<(), StateError> {
        let mut kept = Vec::new();
        for id in self.ids()? {
            if let Ok(Some(record)) = self.get(id) {
                kept.push((record.created, id, record.is_finished()));
            }
        }
        kept.sort();
        let surplus = kept.len().saturating_sub(MOST_TASKS - MOST_TASKS / 10);
        let finished = kept.iter().filter(|(_, _, finished)| *finished);
        for (_, id, _) in finished.take(surplus) {
            self.remove(*id)?;
        }
        Ok(())
    }
}

fn name(id: RunId) -> String {
    format!("{id}{SUFFIX}")
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use jiff::SignedDuration;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    struct Place {
        _directory: tempfile::TempDir,
        state: StateDirectory,
        clock: Arc<ManualClock>,
    }

    impl Place {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let state = StateDirectory::open(&directory.path().join("state")).unwrap();
            Self {
                _directory: directory,
                state,
                clock: Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH)),
            }
        }

        fn process(&self) -> (Instance, TaskRecords) {
            let instance = Instance::claim(&self.state).unwrap();
            let clock: Arc<dyn Clock> = self.clock.clone();
            let records = TaskRecords::open(&self.state, &instance, DAY, clock).unwrap();
            (instance, records)
        }

        fn file(&self, id: RunId) -> std::path::PathBuf {
            self.state.path().join(DIRECTORY).join(name(id))
        }
    }

    fn made(records: &TaskRecords) -> RunId {
        let id = RunId::random();
        records.create(id, SessionId::random()).unwrap();
        id
    }

    fn outcome(records: &TaskRecords, id: RunId) -> Option<TaskOutcome> {
        records.get(id).unwrap().map(|record| record.outcome)
    }

    /// DESIGN §5.7: what is created is on the disk, for this user only, and what became of it is written once.
    #[test]
    fn design_5_7_a_task_is_on_disk_when_it_is_told() {
        let place = Place::new();
        let (_instance, records) = place.process();
        let id = made(&records);
        let mode = fs::metadata(place.file(id)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let directory = fs::metadata(place.state.path().join(DIRECTORY)).unwrap();
        assert_eq!(directory.permissions().mode() & 0o777, 0o700);
        assert_eq!(outcome(&records, id), Some(TaskOutcome::Working));
        let done = TaskOutcome::Completed {
            text: "done".to_owned(),
            is_error: false,
        };
        records.finish(id, done.clone()).unwrap();
        records.finish(id, TaskOutcome::Cancelled).unwrap();
        assert_eq!(outcome(&records, id), Some(done.clone()));
        assert_eq!(outcome(&records, RunId::random()), None);
        // Another process of the same user reads it by its name.
        let (_other, others) = place.process();
        assert_eq!(outcome(&others, id), Some(done));
    }

    /// DESIGN §5.7, X-INST: only what a dead process worked on has failed, also when its number was taken again.
    #[test]
    fn x_inst_only_a_dead_process_fails_its_tasks() {
        let place = Place::new();
        let (first, records) = place.process();
        let (second, others) = place.process();
        let (of_first, of_second) = (made(&records), made(&others));
        assert_eq!(outcome(&others, of_first), Some(TaskOutcome::Working));
        assert_eq!(outcome(&records, of_second), Some(TaskOutcome::Working));
        // The second dies while the first lives: the first finds out when it is asked.
        drop((second, others));
        assert_eq!(outcome(&records, of_second), Some(TaskOutcome::Restarted));
        assert_eq!(outcome(&records, of_first), Some(TaskOutcome::Working));
        // The first dies, and another takes its number.
        drop((first, records));
        let (third, records) = place.process();
        assert_eq!(third.number(), 1);
        assert_eq!(outcome(&records, of_first), Some(TaskOutcome::Restarted));
    }

    /// A living process whose number is not ours keeps what it works on, whoever asks; one whose place is gone is dead.
    #[test]
    fn x_inst_a_missing_instance_is_dead() {
        let place = Place::new();
        let (second, others) = {
            let first = Instance::claim(&place.state).unwrap();
            let second = place.process();
            drop(first);
            second
        };
        let id = made(&others);
        let (_first, records) = place.process();
        assert_eq!(outcome(&records, id), Some(TaskOutcome::Working));
        let gone = second.directory().to_owned();
        drop((second, others));
        fs::remove_dir_all(gone).unwrap();
        assert_eq!(outcome(&records, id), Some(TaskOutcome::Restarted));
    }

    /// DESIGN §5.7: when its time is over it is removed by being asked for, or at the next start. What is worked on stays.
    #[test]
    fn design_5_7_expired_records_go_on_access() {
        let place = Place::new();
        let (instance, records) = place.process();
        let (asked, forgotten, working) = (made(&records), made(&records), made(&records));
        for id in [asked, forgotten] {
            records.finish(id, TaskOutcome::Cancelled).unwrap();
        }
        place
            .clock
            .advance(SignedDuration::from_hours(24) - SignedDuration::from_millis(1));
        assert!(outcome(&records, asked).is_some(), "control");
        place.clock.advance(SignedDuration::from_millis(1));
        assert_eq!(outcome(&records, asked), None);
        assert!(!place.file(asked).exists() && place.file(forgotten).exists());
        assert_eq!(outcome(&records, working), Some(TaskOutcome::Working));
        drop((instance, records));
        drop(place.process());
        assert!(!place.file(forgotten).exists());
    }

    /// Damaged, newer, of another task, a link, open to others: refused, and the others are served.
    #[test]
    fn design_5_7_a_record_that_is_not_ours_is_refused() {
        let place = Place::new();
        let (_instance, records) = place.process();
        let good = made(&records);
        let text = fs::read_to_string(place.file(good)).unwrap();
        let refused = |id: RunId, why: &str| {
            let error = records.get(id).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        let put = |text: &str| {
            let id = made(&records);
            fs::write(
                place.file(id),
                text.replace(&good.to_string(), &id.to_string()),
            )
            .unwrap();
            id
        };
        refused(put("{"), "damaged");
        refused(
            put(&text.replace("\"version\":1", "\"version\":2")),
            "version 2",
        );
        refused(put(&text.replace("\"session\"", "\"sessions\"")), "damaged");
        let id = made(&records);
        fs::write(place.file(id), &text).unwrap();
        refused(id, "it is of task");
        let id = put(&text);
        fs::set_permissions(place.file(id), fs::Permissions::from_mode(0o644)).unwrap();
        refused(id, "open to others");
        let id = made(&records);
        fs::remove_file(place.file(id)).unwrap();
        symlink(place.file(good), place.file(id)).unwrap();
        refused(id, "symbolic link");
        assert_eq!(outcome(&records, good), Some(TaskOutcome::Working));
        let (_other, others) = place.process();
        assert_eq!(outcome(&others, good), Some(TaskOutcome::Working));
    }

    /// What a process that was killed was writing is removed; what is being written now is not.
    #[test]
    fn an_unfinished_file_goes() {
        let place = Place::new();
        let (_instance, records) = place.process();
        let id = made(&records);
        let directory = place.state.path().join(DIRECTORY);
        let dead = directory.join(format!(".{}.2147483647-0.tmp", name(id)));
        let alive = directory.join(format!(".{}.{}-9.tmp", name(id), std::process::id()));
        for path in [&dead, &alive] {
            fs::write(path, "").unwrap();
        }
        drop(place.process());
        assert!(!dead.exists() && alive.exists());
    }

    /// Beyond the most that are kept, the oldest finished ones go before their time, and nothing that is worked on.
    #[test]
    fn design_5_7_there_is_a_most() {
        let place = Place::new();
        let (_instance, records) = place.process();
        let working = made(&records);
        place.clock.advance(SignedDuration::from_secs(1));
        let oldest = made(&records);
        records.finish(oldest, TaskOutcome::Cancelled).unwrap();
        place.clock.advance(SignedDuration::from_secs(1));
        let text = fs::read_to_string(place.file(oldest)).unwrap();
        let newer = made(&records);
        records.finish(newer, TaskOutcome::Cancelled).unwrap();
        let newer_text = fs::read_to_string(place.file(newer)).unwrap();
        for _ in 0..MOST_TASKS - 2 {
            let id = RunId::random();
            fs::write(
                place.file(id),
                newer_text.replace(&newer.to_string(), &id.to_string()),
            )
            .unwrap();
            fs::set_permissions(place.file(id), fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert!(text.contains(&oldest.to_string()));
        let (_other, others) = place.process();
        assert!(place.file(oldest).exists(), "control");
        made(&others);
        assert!(!place.file(oldest).exists());
        assert_eq!(outcome(&others, working), Some(TaskOutcome::Working));
    }
}
