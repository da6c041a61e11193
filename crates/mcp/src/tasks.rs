//! The Tasks extension of 2026-07-28, for `agent_run` only (DESIGN §5.7): a client that declares it gets a task in place of
//! "queued", and polls that. The task is the run: one id, one life. Records outlive the client and this process.

use crate::port::AgentPort;
use crate::result_text;
use policy::{Code, Localize, Refusal, RunId};
use record::StateError;
use record::tasks::{TaskOutcome, TaskRecord, TaskRecords};
use rmcp::model::{
    CallToolResult, ContentBlock, CreateTaskResult, DetailedTask, JsonObject, MetaObject,
    ProtocolVersion, Task, TaskPayload, TaskStatus,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use runtime::service::{RunState, RunStatus, Submitted};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// What a task whose server was restarted failed with; clients compare the word.
const RESTARTED: &str = "server_restarted";

/// What tasks need beside the runtime.
#[derive(Clone, Debug)]
pub struct TaskParts {
    /// Where they are kept.
    pub records: Arc<TaskRecords>,
    /// How often a client should ask (`mcp.tasks.poll_interval_ms`).
    pub poll_interval: Duration,
}

/// The tasks of one server. Clones share everything.
pub(crate) struct Tasks<P> {
    port: Arc<P>,
    localize: Arc<dyn Localize>,
    records: Arc<TaskRecords>,
    poll_interval: Duration,
    /// Those who write down what became of a run.
    writers: TaskTracker,
}

impl<P> Clone for Tasks<P> {
    fn clone(&self) -> Self {
        Self {
            port: Arc::clone(&self.port),
            localize: Arc::clone(&self.localize),
            records: Arc::clone(&self.records),
            poll_interval: self.poll_interval,
            writers: self.writers.clone(),
        }
    }
}

/// Whether this request is answered with a task: an earlier revision cannot read one, whatever it declares (M-7).
pub(crate) fn are_wanted(context: &RequestContext<RoleServer>) -> bool {
    are_known(context)
        && context
            .client_capabilities()
            .is_some_and(|capabilities| capabilities.supports_tasks())
}

fn are_known(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

impl<P: AgentPort> Tasks<P> {
    pub(crate) fn new(port: Arc<P>, localize: Arc<dyn Localize>, parts: TaskParts) -> Self {
        let TaskParts {
            records,
            poll_interval,
        } = parts;
        Self {
            port,
            localize,
            records,
            poll_interval,
            writers: TaskTracker::new(),
        }
    }

    /// The task of a run that was queued: on the disk before it is told. A run whose task cannot be written down is stopped.
    pub(crate) async fn create(&self, submitted: &Submitted) -> Result<CreateTaskResult, Refusal> {
        let (run, session) = (submitted.run_id, submitted.session_id);
        match self
            .on_disk(move |records| records.create(run, session))
            .await
        {
            Ok(record) => {
                self.writers.spawn(self.clone().write_end(run));
                let meta = names(&record);
                Ok(CreateTaskResult::new(self.task(&record, TaskStatus::Working)).with_meta(meta))
            }
            Err(error) => {
                // What cannot be found again must not go on; if it is over already, that is as good.
                let _over = self.port.cancel(run).await;
                Err(Refusal::new(Code::StateUnusable, "tasks", run.to_string())
                    .with("detail", error))
            }
        }
    }

    async fn write_end(self, run: RunId) {
        // Without a status the runtime itself is gone; then the next start says what became of it.
        let Some(status) = self.port.ended(run).await else {
            return;
        };
        let outcome = self.outcome(&status);
        if let Err(error) = self
            .on_disk(move |records| records.finish(run, outcome))
            .await
        {
            tracing::error!(%run, %error, "what became of a task cannot be written down");
        }
    }

    fn outcome(&self, status: &RunStatus) -> TaskOutcome {
        match status.state {
            RunState::Cancelled => TaskOutcome::Cancelled,
            state => TaskOutcome::Completed {
                text: result_text::status(status, self.localize.as_ref()),
                is_error: state != RunState::Completed,
            },
        }
    }

    /// `tasks/get`.
    pub(crate) async fn get(
        &self,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<(DetailedTask, MetaObject), ErrorData> {
        let mut record = self.find::<rmcp::model::GetTaskMethod>(id, context).await?;
        let mut message = None;
        if !record.is_finished() && self.records.is_mine(&record) {
            match self.port.status(record.id, None).await {
                // Over, and its record about to be written: what is told must stay true, whatever happens to this process.
                Ok(status) if status.state.is_terminal() => {
                    let (run, outcome) = (record.id, self.outcome(&status));
                    let written = self.on_disk(move |records| {
                        records.finish(run, outcome)?;
                        records.get(run)
                    });
                    match written.await {
                        Ok(Some(written)) => record = written,
                        Ok(None) => return Err(unknown()),
                        Err(error) => return Err(unusable(record.id, &error)),
                    }
                }
                Ok(status) => {
                    let text = self.localize.text(&status.message);
                    message = Some(result_text::one_line(&text));
                }
                Err(refusal) => {
                    tracing::warn!(run = %record.id, code = %refusal.code, "no status of a task");
                }
            }
        }
        let meta = names(&record);
        let payload = payload(&record)?;
        let mut task = self.task(&record, payload.status());
        if matches!(record.outcome, TaskOutcome::Restarted) {
            message = Some(RESTARTED.to_owned());
        }
        task.status_message = message;
        Ok((DetailedTask::new(task, payload), meta))
    }

    /// `tasks/update`: a run never asks its client for anything (X-APPROVER), so no answer is waited for.
    pub(crate) async fn update(
        &self,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.find::<rmcp::model::UpdateTaskMethod>(id, context)
            .await
            .map(drop)
    }

    /// `tasks/cancel`: the run's stop begins before this returns; what became of it is seen by asking.
    pub(crate) async fn cancel(
        &self,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let record = self
            .find::<rmcp::model::CancelTaskMethod>(id, context)
            .await?;
        if record.is_finished() {
            return Ok(());
        }
        if !self.records.is_mine(&record) {
            return Err(ErrorData::invalid_params(
                "taskId: another running server works on it, and only that one can stop it",
                None,
            ));
        }
        let (port, run) = (Arc::clone(&self.port), record.id);
        let stopped = self.writers.spawn(async move {
            if let Err(refusal) = port.cancel(run).await {
                tracing::warn!(%run, code = %refusal.code, "a task cannot be cancelled");
            }
        });
        // Rolling back may take its time; the stop itself does not.
        drop(stopped);
        Ok(())
    }

    fn task(&self, record: &TaskRecord, status: TaskStatus) -> Task {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Task::new(
            record.id.to_string(),
            status,
            format!("{:.3}", record.created),
            format!("{:.3}", record.updated),
        )
        .with_ttl_ms(milliseconds(self.records.lifetime()))
        .with_poll_interval_ms(milliseconds(self.poll_interval))
    }

    /// Returns when everything that ended is written down.
    pub(crate) async fn settle(&self) {
        self.writers.close();
        self.writers.wait().await;
    }

    /// A task that this client could name.
    async fn find<M: rmcp::model::ConstString>(
        &self,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<TaskRecord, ErrorData> {
        if !are_known(context) {
            return Err(ErrorData::method_not_found::<M>());
        }
        let id: RunId = id.parse().map_err(|_| unknown())?;
        match self.on_disk(move |records| records.get(id)).await {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(unknown()),
            Err(error) => Err(unusable(id, &error)),
        }
    }

    /// Off the threads that answer requests: the disk is waited for.
    async fn on_disk<T: Send + 'static>(
        &self,
        act: impl FnOnce(&TaskRecords) -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, String> {
        let records = Arc::clone(&self.records);
        match tokio::task::spawn_blocking(move || act(&records)).await {
            Ok(done) => done.map_err(|error| error.to_string()),
            Err(panic) => Err(panic.to_string()),
        }
    }
}

fn unknown() -> ErrorData {
    ErrorData::invalid_params("taskId: there is no such task", None)
}

fn unusable(run: RunId, error: &str) -> ErrorData {
    tracing::error!(%run, error, "a task's record cannot be used");
    ErrorData::internal_error("the task's record cannot be used", None)
}

/// The two names that the tools know it by.
fn names(record: &TaskRecord) -> MetaObject {
    let mut meta = MetaObject::new();
    meta.insert("task_id".to_owned(), record.id.to_string().into());
    meta.insert("session_id".to_owned(), record.session.to_string().into());
    meta
}

fn payload(record: &TaskRecord) -> Result<TaskPayload, ErrorData> {
    Ok(match &record.outcome {
        TaskOutcome::Working => TaskPayload::Working,
        TaskOutcome::Cancelled => TaskPayload::Cancelled,
        TaskOutcome::Completed { text, is_error } => {
            let content = vec![ContentBlock::text(text.clone())];
            let mut result = match is_error {
                false => CallToolResult::success(content),
                true => CallToolResult::error(content),
            };
            result.meta = Some(names(record));
            TaskPayload::Completed {
                result: object(&result)?,
            }
        }
        TaskOutcome::Restarted => TaskPayload::Failed {
            error: object(&ErrorData::internal_error(RESTARTED, None))?,
        },
    })
}

fn object(value: &impl serde::Serialize) -> Result<JsonObject, ErrorData> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::Object(object)) => Ok(object),
        _ => Err(ErrorData::internal_error("the result is no object", None)),
    }
}
