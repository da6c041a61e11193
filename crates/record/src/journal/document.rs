//! The journal's document: what recovery reads.

use super::{Intent, JournalError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use policy::RunId;
use policy::effective::Sha256Digest;
use policy::sandbox::HostResource;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;

/// The version of the journal format.
pub(super) const JOURNAL_VERSION: u32 = 1;
/// Bytes of old content that may lie in the document itself. More would be written again with every change.
pub const INLINE_BACKUP_LIMIT: usize = 64 << 10;

/// A run's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalDocument {
    /// 1.
    pub schema_version: u32,
    /// The run: the public `task_id` (X-TASK).
    pub run_id: RunId,
    /// RFC 3339, UTC.
    pub created_at: String,
    /// The number of the next intent.
    pub next_intent: u64,
    /// One section per planned Task, in the order they began.
    pub tasks: Vec<TaskSection>,
}

/// One planned Task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSection {
    /// The planned Task.
    pub planned_task_id: String,
    /// Where it stands.
    pub state: TaskState,
    /// RFC 3339, UTC.
    pub created_at: String,
    /// What to remove on the host, in the order it was made; removed in reverse.
    pub host_resources: Vec<HostResource>,
    /// Private files and directories to remove.
    pub temp_paths: Vec<PathBuf>,
    /// What was done to files, in order; undone in reverse.
    pub file_intents: Vec<FileIntent>,
}

/// DESIGN §12.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskState {
    /// Nothing is left of it.
    Clean,
    /// Its resources are being made.
    Preparing,
    /// They are there.
    Applied,
    /// Programs may be running.
    Running,
    /// It is being taken down.
    Cleaning,
    /// Its process died in any of the others.
    RecoveryRequired,
}

impl TaskState {
    /// Every transition there is (DESIGN §12.2). A failed preparation cleans too.
    pub fn may_become(self, next: Self) -> bool {
        use TaskState::{Applied, Clean, Cleaning, Preparing, RecoveryRequired, Running};
        match (self, next) {
            (Clean, Preparing)
            | (Preparing, Applied)
            | (Applied, Running)
            | (Preparing | Applied | Running | RecoveryRequired, Cleaning)
            | (Cleaning, Clean)
            | (Preparing | Applied | Running | Cleaning, RecoveryRequired) => true,
            (
                Clean | Preparing | Applied | Running | Cleaning | RecoveryRequired,
                Clean | Preparing | Applied | Running | Cleaning | RecoveryRequired,
            ) => false,
        }
    }
}

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileOperation {
    /// A new file or other content.
    Write,
    /// The file goes.
    Delete,
    /// The file or directory gets another name.
    Rename,
    /// A new directory.
    MakeDirectory,
    /// An empty directory goes.
    RemoveDirectory,
}

/// One change of a file, written before it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileIntent {
    /// Its number in the run.
    pub seq: u64,
    /// What is done.
    pub operation: FileOperation,
    /// To what.
    pub path: PathBuf,
    /// The new name of a rename.
    pub new_path: Option<PathBuf>,
    /// Content before; `null` for nothing.
    #[serde(with = "optional_digest")]
    pub before_sha256: Option<Sha256Digest>,
    /// Content after; `null` for nothing.
    #[serde(with = "optional_digest")]
    pub after_sha256: Option<Sha256Digest>,
    /// How to get the content before back.
    pub backup: Backup,
    /// It was made and verified: it stays.
    pub committed: bool,
}

/// Old content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backup {
    /// There was none, or it is not needed any more.
    None,
    /// In the document, as base64: up to [`INLINE_BACKUP_LIMIT`] bytes.
    Inline(#[serde(with = "base64_text")] Vec<u8>),
    /// In this file, which was synced before.
    File(PathBuf),
}

impl Backup {
    pub(super) fn check_size(&self) -> Result<(), JournalError> {
        match self {
            Self::Inline(content) if content.len() > INLINE_BACKUP_LIMIT => {
                Err(JournalError::BackupTooLarge {
                    bytes: content.len(),
                    limit: INLINE_BACKUP_LIMIT,
                })
            }
            Self::None | Self::Inline(_) | Self::File(_) => Ok(()),
        }
    }
}

impl JournalDocument {
    /// Whether nothing is left to undo.
    pub fn is_clean(&self) -> bool {
        self.tasks.iter().all(|task| task.state == TaskState::Clean)
    }

    pub(super) fn task(&mut self, id: &str) -> Result<&mut TaskSection, JournalError> {
        self.tasks
            .iter_mut()
            .find(|task| task.planned_task_id == id)
            .ok_or_else(|| JournalError::TaskUnknown {
                planned_task_id: id.to_owned(),
            })
    }

    pub(super) fn add_intent(&mut self, intent: Intent) -> Result<u64, JournalError> {
        let seq = self.next_intent;
        self.next_intent += 1;
        let task = self.task(&intent.planned_task_id)?;
        match task.state {
            TaskState::Preparing | TaskState::Applied | TaskState::Running => {}
            from @ (TaskState::Clean | TaskState::Cleaning | TaskState::RecoveryRequired) => {
                return Err(JournalError::Transition {
                    planned_task_id: intent.planned_task_id,
                    from,
                    to: TaskState::Running,
                });
            }
        }
        task.file_intents.push(FileIntent {
            seq,
            operation: intent.operation,
            path: intent.path,
            new_path: intent.new_path,
            before_sha256: intent.before_sha256,
            after_sha256: intent.after_sha256,
            backup: intent.backup,
            committed: false,
        });
        Ok(seq)
    }
}

impl TaskSection {
    /// What may be half done, newest first: the order to undo it in.
    pub fn open_intents(&self) -> impl Iterator<Item = &FileIntent> {
        self.file_intents
            .iter()
            .rev()
            .filter(|intent| !intent.committed)
    }

    pub(super) fn advance(&mut self, to: TaskState) -> Result<(), JournalError> {
        if !self.state.may_become(to) {
            return Err(JournalError::Transition {
                planned_task_id: self.planned_task_id.clone(),
                from: self.state,
                to,
            });
        }
        self.state = to;
        Ok(())
    }

    pub(super) fn commit(&mut self, seq: u64) -> Result<(), JournalError> {
        let at = self.open_intent(seq)?;
        self.file_intents[at].committed = true;
        self.file_intents[at].backup = Backup::None;
        Ok(())
    }

    pub(super) fn drop_intent(&mut self, seq: u64) -> Result<(), JournalError> {
        let at = self.open_intent(seq)?;
        self.file_intents.remove(at);
        Ok(())
    }

    pub(super) fn end(&mut self) -> Result<(), JournalError> {
        if let Some(open) = self.open_intents().next() {
            return Err(JournalError::Unsettled {
                open: format!("{}: intent {}", self.planned_task_id, open.seq),
            });
        }
        self.advance(TaskState::Clean)?;
        self.host_resources.clear();
        self.temp_paths.clear();
        self.file_intents.clear();
        Ok(())
    }

    fn open_intent(&self, seq: u64) -> Result<usize, JournalError> {
        self.file_intents
            .iter()
            .position(|intent| intent.seq == seq && !intent.committed)
            .ok_or_else(|| JournalError::IntentUnknown {
                planned_task_id: self.planned_task_id.clone(),
                seq,
            })
    }
}

/// A digest as its 64 digits, or `null`.
mod optional_digest {
    use super::{Deserialize, Deserializer, Serializer, Sha256Digest};

    pub(super) fn serialize<S: Serializer>(
        digest: &Option<Sha256Digest>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match digest {
            Some(digest) => serializer.collect_str(digest),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Sha256Digest>, D::Error> {
        Option::<String>::deserialize(deserializer)?
            .map(|text| text.parse().map_err(serde::de::Error::custom))
            .transpose()
    }
}

/// Bytes as base64.
mod base64_text {
    use super::{Deserialize, Deserializer, Engine, STANDARD, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}
