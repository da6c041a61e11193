//! What one run writes down. Provisional sink until the signed log is wired in.

use policy::{Code, Fault, RunId, SessionId, TraceId};
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// Where everything is written down.
#[derive(Clone, Debug, Default)]
pub struct Records {
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Records {
    /// Everything written so far.
    pub fn lines(&self) -> Vec<Value> {
        self.lines
            .lock()
            .unwrap_or_else(|held| held.into_inner())
            .clone()
    }
}

/// One run's way to the records.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    records: Records,
    session: SessionId,
    run: RunId,
    trace: TraceId,
}

/// One event of a run.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub name: &'static str,
    pub task: Option<String>,
    pub allowed: Option<bool>,
    pub code: Option<Code>,
    pub target: String,
    pub detail: Value,
}

impl Event {
    pub(crate) fn new(name: &'static str, target: impl Into<String>) -> Self {
        Self {
            name,
            task: None,
            allowed: None,
            code: None,
            target: target.into(),
            detail: Value::Null,
        }
    }

    pub(crate) fn of_task(mut self, task: &str) -> Self {
        self.task = Some(task.to_owned());
        self
    }

    pub(crate) fn denied(mut self, code: Code) -> Self {
        self.allowed = Some(false);
        self.code = Some(code);
        self
    }

    pub(crate) fn allowed(mut self) -> Self {
        self.allowed = Some(true);
        self
    }

    pub(crate) fn code(mut self, code: Option<Code>) -> Self {
        self.code = code;
        self
    }

    pub(crate) fn detail(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }
}

impl Ledger {
    pub(crate) fn new(records: &Records, session: SessionId, run: RunId, trace: TraceId) -> Self {
        Self {
            records: records.clone(),
            session,
            run,
            trace,
        }
    }

    /// Appends an event of the audit log.
    ///
    /// # Errors
    /// `audit.unavailable`: whatever it was to record must not happen.
    pub(crate) async fn audit(&self, event: Event) -> Result<(), Fault> {
        let line = serde_json::json!({
            "event": event.name, "session_id": self.session, "run_id": self.run, "trace_id": self.trace,
            "planned_task_id": event.task, "allowed": event.allowed, "code": event.code.map(Code::as_str),
            "target": event.target, "detail": event.detail,
        });
        self.records
            .lines
            .lock()
            .unwrap_or_else(|held| held.into_inner())
            .push(line);
        Ok(())
    }

    /// The same, synced before it returns: for what an effect follows.
    ///
    /// # Errors
    /// As [`Ledger::audit`].
    pub(crate) async fn audit_durably(&self, event: Event) -> Result<(), Fault> {
        self.audit(event).await
    }
}
