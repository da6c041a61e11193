//! Intent before effect: journal, then audit, both on the disk before a tool acts (product.md §3.7, DC-3).

use super::{Event, Ledger, Section};
use crate::tools::{EffectEnd, EffectLog, Intent};
use policy::Fault;
use record::journal::{Backup, FileOperation, IntentRecorded};
use record::{Durable, EventName, Journal};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Journal and audit of one planned Task's effects.
pub(crate) struct Effects {
    ledger: Ledger,
    journal: Arc<Journal>,
    task: String,
}

impl Ledger {
    pub(crate) fn effects(&self, section: &Section) -> Effects {
        Effects {
            ledger: self.clone(),
            journal: Arc::clone(&section.journal),
            task: section.task.clone(),
        }
    }
}

impl EffectLog for Effects {
    /// Programs have no journal entry of their own: their sandbox has.
    type Token = Option<Durable<IntentRecorded>>;

    fn before(&self, intent: &Intent) -> Result<Self::Token, Fault> {
        let token = match self.journalled(intent) {
            Some(entry) => Some(self.journal.intent(entry)?),
            None => None,
        };
        let event = self.event(intent).of_task(&self.task).allowed();
        let audit = &self.ledger.writers.audit;
        if let Err(error) = audit.append_durable(self.ledger.signed(event)) {
            // Nothing was done, so nothing is open; if this fails too, the section stays for recovery.
            if let Some(token) = token {
                self.journal.rolled_back(token)?;
            }
            return Err(error.into());
        }
        Ok(token)
    }

    fn after(&self, token: Self::Token, end: EffectEnd) -> Result<(), Fault> {
        let Some(token) = token else {
            return Ok(());
        };
        match end {
            EffectEnd::Done => self.journal.commit(token).map_err(Fault::from),
            EffectEnd::Undone => self.journal.rolled_back(token).map_err(Fault::from),
            // The entry stays open, so the Task cannot end as clean.
            EffectEnd::Unclear => Ok(()),
        }
    }
}

impl Effects {
    fn journalled(&self, intent: &Intent) -> Option<record::Intent> {
        let entry = |operation, path: &Path| record::Intent {
            planned_task_id: self.task.clone(),
            operation,
            path: path.to_owned(),
            new_path: None,
            before_sha256: None,
            after_sha256: None,
            backup: Backup::None,
        };
        Some(match intent {
            Intent::Replace {
                path,
                before,
                after_sha256,
                temporary,
                backup,
                ..
            } => record::Intent {
                // What recovery has to remove if it is still there.
                new_path: temporary.clone(),
                before_sha256: before.as_ref().map(|before| before.sha256),
                after_sha256: Some(*after_sha256),
                backup: backup.clone().map_or(Backup::None, Backup::File),
                ..entry(FileOperation::Write, path)
            },
            Intent::Delete { path, before } => record::Intent {
                before_sha256: Some(before.sha256),
                ..entry(FileOperation::Delete, path)
            },
            Intent::Rename {
                path,
                new_path,
                before,
            } => record::Intent {
                new_path: Some(new_path.clone()),
                before_sha256: Some(before.sha256),
                after_sha256: Some(before.sha256),
                ..entry(FileOperation::Rename, path)
            },
            // The outermost new directory: what is below it is new too.
            Intent::MakeDirectories { paths } => {
                let innermost = paths.last().cloned().unwrap_or_else(PathBuf::new);
                record::Intent {
                    new_path: paths.first().cloned(),
                    ..entry(FileOperation::MakeDirectory, &innermost)
                }
            }
            Intent::RemoveDirectory { path, .. } => entry(FileOperation::RemoveDirectory, path),
            Intent::RunProgram { .. } => return None,
        })
    }

    fn event(&self, intent: &Intent) -> Event {
        let text = |path: &Path| path.display().to_string();
        match intent {
            Intent::Replace {
                path,
                before,
                after_sha256,
                ..
            } => {
                let before = before.as_ref().map(|before| before.sha256.to_string());
                let detail =
                    json!({"before_sha256": before, "after_sha256": after_sha256.to_string()});
                Event::new(EventName::FileWrite, text(path)).detail(detail)
            }
            Intent::Delete { path, before } => Event::new(EventName::FileDelete, text(path))
                .detail(json!({"before_sha256": before.sha256.to_string()})),
            Intent::Rename {
                path,
                new_path,
                before,
            } => {
                let detail =
                    json!({"new_path": text(new_path), "before_sha256": before.sha256.to_string()});
                Event::new(EventName::FileRename, text(path)).detail(detail)
            }
            Intent::MakeDirectories { paths } => {
                let innermost = paths.last().map_or_else(String::new, |last| text(last));
                let made = json!({"made": paths.len()});
                Event::new(EventName::DirMake, innermost).detail(made)
            }
            Intent::RemoveDirectory { path, .. } => Event::new(EventName::DirRemove, text(path)),
            Intent::RunProgram { program, argv, cwd } => {
                let arguments = argv.get(1..).unwrap_or(&[]);
                let redacted = self.ledger.writers.redactor.argv(arguments);
                let sha256 = program.sha256.map(|hash| hash.to_string());
                Event::new(EventName::ProcessStart, text(&program.path))
                    .detail(Value::Object(redacted))
                    .detail(json!({"class": program.class, "sha256": sha256, "cwd": text(cwd)}))
            }
        }
    }
}
