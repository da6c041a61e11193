//! One planned Task's section of the recovery journal (DESIGN §12.2).

use super::{Ledger, off_the_async_thread};
use policy::Fault;
use policy::sandbox::HostResource;
use record::Journal;
use record::journal::TaskState;
use std::path::Path;
use std::sync::Arc;

/// A section that is on the disk.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(super) journal: Arc<Journal>,
    pub(super) task: String,
}

impl Ledger {
    /// Opens a section with everything that has to be removed after a crash, before any of it is made.
    ///
    /// # Errors
    /// `state.unusable`.
    pub(crate) async fn begin_section(
        &self,
        journal: &Arc<Journal>,
        task: &str,
        resources: Vec<HostResource>,
        temporary: &Path,
    ) -> Result<Section, Fault> {
        let section = Section {
            journal: Arc::clone(journal),
            task: task.to_owned(),
        };
        let (begun, clock) = (section.clone(), Arc::clone(&self.writers.clock));
        let temporary = temporary.to_owned();
        off_the_async_thread("journal", move || {
            let paths = vec![temporary];
            begun
                .journal
                .begin_task(&begun.task, resources, paths, &*clock)
                .map(drop)
                .map_err(Fault::from)
        })
        .await?;
        Ok(section)
    }
}

impl Section {
    async fn advance(&self, to: TaskState) -> Result<(), Fault> {
        let section = self.clone();
        off_the_async_thread("journal", move || {
            section
                .journal
                .advance(&section.task, to, Vec::new())
                .map_err(Fault::from)
        })
        .await
    }

    /// The sandbox stands, its programs do not run yet.
    pub(crate) async fn applied(&self) -> Result<(), Fault> {
        self.advance(TaskState::Applied).await
    }

    /// Programs may run.
    pub(crate) async fn running(&self) -> Result<(), Fault> {
        self.advance(TaskState::Running).await
    }

    /// It is being taken down.
    pub(crate) async fn cleaning(&self) -> Result<(), Fault> {
        self.advance(TaskState::Cleaning).await
    }

    /// Everything is gone and that was verified.
    ///
    /// # Errors
    /// An intent is still open: its effect could not be verified, and the section stays for recovery.
    pub(crate) async fn clean(self) -> Result<(), Fault> {
        off_the_async_thread("journal", move || {
            self.journal.end_task(&self.task).map_err(Fault::from)
        })
        .await
    }
}

/// Removes the journal of a run whose Tasks are all clean.
///
/// # Errors
/// A Task is not clean; the file stays for recovery.
pub(crate) async fn finish(journal: Arc<Journal>) -> Result<(), Fault> {
    off_the_async_thread("journal", move || match Arc::try_unwrap(journal) {
        Ok(journal) => journal.finish().map_err(Fault::from),
        Err(_) => Err(Fault::new(
            policy::Blame::Us,
            policy::Code::Internal,
            "journal",
            "still in use",
        )),
    })
    .await
}
