//! The recovery journal (DESIGN §12.2, §12.3; NFR-03): what must be undone if this process dies now.
//!
//! One JSON document per run, `<instance>/journal/<run_id>.json`, with a section per planned Task. Each change appends the
//! whole new document as one line and syncs it before the call returns: the last whole line counts, a torn one was never
//! promised. That is one sync a change, where replacing the file would be three (file, rename, directory); the file is
//! replaced only when it has grown. A document stays small: a settled intent drops its backup, an ended Task drops its
//! intents, and larger backups lie in files of their own. Not here: undoing anything; recovery reads [`stale_journals`]
//! and does it while it holds the instance.

mod document;
mod file;

pub use document::{
    Backup, FileIntent, FileOperation, INLINE_BACKUP_LIMIT, JournalDocument, TaskSection, TaskState,
};

use crate::clock::{Clock, stamp};
use crate::durable::Durable;
use crate::instance::Instance;
use crate::state::{StateError, TEMPORARY_SUFFIX};
use document::JOURNAL_VERSION;
use file::JournalFile;
use policy::effective::Sha256Digest;
use policy::sandbox::HostResource;
use policy::{Blame, Code, Fault, RunId};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

const JOURNAL_DIRECTORY: &str = "journal";

/// Why the journal could not take something. The effect it was for must not happen.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file.
    #[error(transparent)]
    State(#[from] StateError),
    /// The run has no such planned Task.
    #[error("no section for planned Task {planned_task_id}")]
    TaskUnknown {
        /// Its id.
        planned_task_id: String,
    },
    /// A change of state that DESIGN §12.2 does not have.
    #[error("planned Task {planned_task_id}: {from:?} cannot become {to:?}")]
    Transition {
        /// Its id.
        planned_task_id: String,
        /// Its state.
        from: TaskState,
        /// The state that was asked for.
        to: TaskState,
    },
    /// No such open intent.
    #[error("planned Task {planned_task_id} has no open intent {seq}")]
    IntentUnknown {
        /// Its id.
        planned_task_id: String,
        /// The intent's number.
        seq: u64,
    },
    /// The Task cannot end with open intents, the run not with open Tasks.
    #[error("{open} is not settled")]
    Unsettled {
        /// What is open.
        open: String,
    },
    /// A backup too large to lie in the document.
    #[error("an inline backup of {bytes} bytes, the limit is {limit}")]
    BackupTooLarge {
        /// Its size.
        bytes: usize,
        /// [`INLINE_BACKUP_LIMIT`].
        limit: usize,
    },
}

impl JournalError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::State(error) => error.code(),
            Self::TaskUnknown { .. }
            | Self::Transition { .. }
            | Self::IntentUnknown { .. }
            | Self::Unsettled { .. }
            | Self::BackupTooLarge { .. } => Code::Internal,
        }
    }
}

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::State(error) => error.into(),
            other => Self::new(Blame::Us, other.code(), "journal", &other),
        }
    }
}

/// A planned Task whose section is on the disk; [`crate::Durable`] of it goes into the sandbox's start.
#[derive(Debug, PartialEq, Eq)]
pub struct TaskBegun {
    /// The planned Task.
    pub planned_task_id: String,
}

/// What is about to be done to a file, in one planned Task.
#[derive(Debug)]
pub struct Intent {
    /// The planned Task.
    pub planned_task_id: String,
    /// What is done.
    pub operation: FileOperation,
    /// To what: absolute, resolved.
    pub path: PathBuf,
    /// The new name of a rename.
    pub new_path: Option<PathBuf>,
    /// The content before; `None` when there is nothing.
    pub before_sha256: Option<Sha256Digest>,
    /// The content after; `None` when there will be nothing.
    pub after_sha256: Option<Sha256Digest>,
    /// How to get the content before back.
    pub backup: Backup,
}

/// An intent that is on the disk, by its number.
#[derive(Debug, PartialEq, Eq)]
pub struct IntentRecorded {
    planned_task_id: String,
    seq: u64,
}

impl IntentRecorded {
    /// Its number in the run, from 1.
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

/// A run's journal. It keeps the instance's lock.
#[derive(Debug)]
pub struct Journal {
    _instance: Instance,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    document: JournalDocument,
    file: JournalFile,
}

impl Journal {
    /// A new run's journal; durable when it returns.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn create(
        instance: &Instance,
        run_id: RunId,
        clock: &dyn Clock,
    ) -> Result<Self, JournalError> {
        let document = JournalDocument {
            schema_version: JOURNAL_VERSION,
            run_id,
            created_at: stamp(clock.now()),
            next_intent: 1,
            tasks: Vec::new(),
        };
        let file = JournalFile::create(&path_of(instance, run_id)?, &document)?;
        Ok(Self {
            _instance: instance.clone(),
            current: Mutex::new(Current { document, file }),
        })
    }

    /// Takes up a dead run's journal, for recovery: every Task that was not clean is now `RECOVERY_REQUIRED`, durably.
    ///
    /// # Errors
    /// `state.unusable`, also when it is missing or damaged.
    pub fn adopt(instance: &Instance, run_id: RunId) -> Result<Self, JournalError> {
        let path = path_of(instance, run_id)?;
        let document = file::read(&path)?;
        // The old file may end in a torn line: it is replaced, not appended to.
        let file = JournalFile::create(&path, &document)?;
        let journal = Self {
            _instance: instance.clone(),
            current: Mutex::new(Current { document, file }),
        };
        journal.change(|document| {
            for task in &mut document.tasks {
                if task.state.may_become(TaskState::RecoveryRequired) {
                    task.state = TaskState::RecoveryRequired;
                }
            }
            Ok(())
        })?;
        Ok(journal)
    }

    /// The document as it is on the disk.
    pub fn document(&self) -> JournalDocument {
        self.lock().document.clone()
    }

    /// Opens a planned Task's section (`PREPARING`), with what its sandbox will need on the host. Also begins one again
    /// that had ended.
    ///
    /// # Errors
    /// `state.unusable`, or a Task that has not ended.
    pub fn begin_task(
        &self,
        planned_task_id: &str,
        host_resources: Vec<HostResource>,
        temp_paths: Vec<PathBuf>,
        clock: &dyn Clock,
    ) -> Result<Durable<TaskBegun>, JournalError> {
        let created_at = stamp(clock.now());
        self.change(|document| {
            if let Ok(before) = document.task(planned_task_id) {
                before.advance(TaskState::Preparing)?;
                document
                    .tasks
                    .retain(|task| task.planned_task_id != planned_task_id);
            }
            document.tasks.push(TaskSection {
                planned_task_id: planned_task_id.to_owned(),
                state: TaskState::Preparing,
                created_at,
                host_resources,
                temp_paths,
                file_intents: Vec::new(),
            });
            Ok(())
        })?;
        Ok(Durable::after_sync(TaskBegun {
            planned_task_id: planned_task_id.to_owned(),
        }))
    }

    /// The next state, with host resources that are known only now (a process id).
    ///
    /// # Errors
    /// `state.unusable`, or a change that DESIGN §12.2 does not have.
    pub fn advance(
        &self,
        planned_task_id: &str,
        to: TaskState,
        more_resources: Vec<HostResource>,
    ) -> Result<(), JournalError> {
        self.change(|document| {
            let task = document.task(planned_task_id)?;
            task.advance(to)?;
            task.host_resources.extend(more_resources);
            Ok(())
        })
    }

    /// Records what is about to be done to a file. File and directory are synced when it returns; the proof goes into the
    /// effect, and then into [`Journal::commit`] or [`Journal::rolled_back`].
    ///
    /// # Errors
    /// `state.unusable`; a Task that is not running; a backup that belongs into a file.
    pub fn intent(&self, intent: Intent) -> Result<Durable<IntentRecorded>, JournalError> {
        intent.backup.check_size()?;
        let planned_task_id = intent.planned_task_id.clone();
        let seq = self.change(|document| document.add_intent(intent))?;
        Ok(Durable::after_sync(IntentRecorded {
            planned_task_id,
            seq,
        }))
    }

    /// The effect was made and verified: it stays. Its backup is dropped from the document; a backup file is the
    /// caller's to remove.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn commit(&self, done: Durable<IntentRecorded>) -> Result<(), JournalError> {
        let IntentRecorded {
            planned_task_id,
            seq,
        } = done.into_value();
        self.change(|document| document.task(&planned_task_id)?.commit(seq))
    }

    /// The effect was not made, or was undone and the old content verified.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn rolled_back(&self, undone: Durable<IntentRecorded>) -> Result<(), JournalError> {
        let IntentRecorded {
            planned_task_id,
            seq,
        } = undone.into_value();
        self.change(|document| document.task(&planned_task_id)?.drop_intent(seq))
    }

    /// As [`Journal::rolled_back`], for recovery, where no proof survived.
    ///
    /// # Errors
    /// `state.unusable`, or no such open intent.
    pub fn recovered(&self, planned_task_id: &str, seq: u64) -> Result<(), JournalError> {
        self.change(|document| document.task(planned_task_id)?.drop_intent(seq))
    }

    /// `CLEANING` is done and verified: the Task is `CLEAN`.
    ///
    /// # Errors
    /// `state.unusable`, a Task that is not `CLEANING`, or open intents.
    pub fn end_task(&self, planned_task_id: &str) -> Result<(), JournalError> {
        self.change(|document| document.task(planned_task_id)?.end())
    }

    /// Every Task is `CLEAN`: the journal is removed, durably.
    ///
    /// # Errors
    /// `state.unusable`, or a Task that is not clean; the file stays then.
    pub fn finish(self) -> Result<(), JournalError> {
        let current = self.lock();
        let open = current
            .document
            .tasks
            .iter()
            .find(|task| task.state != TaskState::Clean)
            .map(|task| task.planned_task_id.clone());
        if let Some(open) = open {
            return Err(JournalError::Unsettled { open });
        }
        Ok(current.file.remove()?)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        // The document is replaced as a whole, after the disk has it: a panic leaves it whole.
        self.current.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Changes a copy, writes it, and only then takes it.
    fn change<T>(
        &self,
        make: impl FnOnce(&mut JournalDocument) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let mut current = self.lock();
        let mut next = current.document.clone();
        let made = make(&mut next)?;
        current.file.write(&next)?;
        current.document = next;
        Ok(made)
    }
}

fn path_of(instance: &Instance, run_id: RunId) -> Result<PathBuf, StateError> {
    let name = format!("{run_id}.json");
    let file = instance.subdirectory(JOURNAL_DIRECTORY)?.file(&name)?;
    Ok(file.path().to_owned())
}

/// The journal files of an instance directory, by name; nothing is opened.
pub(crate) fn journal_files(instance: &Path) -> Result<Vec<PathBuf>, StateError> {
    Ok(listing(instance)?
        .into_iter()
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect())
}

fn listing(instance: &Path) -> Result<Vec<PathBuf>, StateError> {
    let directory = instance.join(JOURNAL_DIRECTORY);
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StateError::io("read", &directory)(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StateError::io("read", &directory))?;
        paths.push(entry.path());
    }
    paths.sort();
    Ok(paths)
}

/// A journal that a dead process left.
#[derive(Debug)]
pub struct StaleJournal {
    /// Its file.
    pub path: PathBuf,
    /// What it says, or why it cannot be read. An unreadable journal means that recovery failed (REC-07), not that there
    /// is nothing to do.
    pub document: Result<JournalDocument, StateError>,
}

/// What dead processes left in an instance. Holding it proves that nobody else is writing; call it before this process
/// creates a journal of its own. Temporary files of interrupted writes are removed: they were never the journal.
///
/// # Errors
/// `state.unusable` for the directory; a bad journal is an entry.
pub fn stale_journals(instance: &Instance) -> Result<Vec<StaleJournal>, StateError> {
    let mut stale = Vec::new();
    for path in listing(instance.directory())? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') && name.ends_with(TEMPORARY_SUFFIX) {
            fs::remove_file(&path).map_err(StateError::io("remove", &path))?;
            continue;
        }
        let document = file::read(&path);
        stale.push(StaleJournal { path, document });
    }
    Ok(stale)
}
