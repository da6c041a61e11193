//! What one run writes down: audit, LLM log, session events, recovery journal. Everything carries the trace id (DC-3).

mod effects;
mod llm;
mod section;

pub(crate) use effects::Effects;
pub(crate) use llm::LlmExchange;
pub(crate) use section::{Section, finish};

use policy::{Blame, Code, Fault, RunId, SessionId, TraceId};
use record::logs::{LlmLog, LlmRecord, SessionEvent, SessionEvents};
use record::{AuditEvent, AuditLog, Clock, Decision, EventName, Journal, Redactor};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// Where everything is written down. The journals lie in the audit log's instance.
#[derive(Debug)]
pub struct Records {
    /// The signed audit log.
    pub audit: AuditLog,
    /// Stands for arguments without saying them (X-ARGS).
    pub redactor: Redactor,
    /// Every call to the model (DESIGN §15.2).
    pub llm_log: LlmLog,
    /// What a replay reads (X-STATE).
    pub session_events: SessionEvents,
}

/// The records in use. The two plain logs have one writer at a time: the one run at work.
#[derive(Debug)]
pub(crate) struct Writers {
    audit: AuditLog,
    redactor: Redactor,
    llm_log: Mutex<LlmLog>,
    session_events: Mutex<SessionEvents>,
    clock: Arc<dyn Clock>,
}

impl Writers {
    pub(crate) fn new(records: Records, clock: Arc<dyn Clock>) -> Self {
        Self {
            audit: records.audit,
            redactor: records.redactor,
            llm_log: Mutex::new(records.llm_log),
            session_events: Mutex::new(records.session_events),
            clock,
        }
    }
}

/// One run's way to the records.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    writers: Arc<Writers>,
    session: SessionId,
    run: RunId,
    trace: TraceId,
}

/// One event of a run, before it gets the run's ids.
#[derive(Clone, Debug)]
#[must_use = "an event that is not appended is not recorded"]
pub(crate) struct Event {
    name: EventName,
    task: Option<String>,
    decision: Decision,
    code: Option<Code>,
    target: String,
    detail: Map<String, Value>,
}

impl Event {
    pub(crate) fn new(name: EventName, target: impl Into<String>) -> Self {
        Self {
            name,
            task: None,
            decision: Decision::None,
            code: None,
            target: target.into(),
            detail: Map::new(),
        }
    }

    pub(crate) fn of_task(mut self, task: &str) -> Self {
        self.task = Some(task.to_owned());
        self
    }

    pub(crate) fn denied(mut self, code: Code) -> Self {
        self.decision = Decision::Deny;
        self.code = Some(code);
        self
    }

    pub(crate) fn allowed(mut self) -> Self {
        self.decision = Decision::Allow;
        self
    }

    pub(crate) fn code(mut self, code: Option<Code>) -> Self {
        self.code = code;
        self
    }

    /// Adds the members of an object.
    pub(crate) fn detail(mut self, detail: Value) -> Self {
        if let Value::Object(members) = detail {
            self.detail.extend(members);
        }
        self
    }
}

impl Ledger {
    pub(crate) fn new(
        writers: &Arc<Writers>,
        session: SessionId,
        run: RunId,
        trace: TraceId,
    ) -> Self {
        Self {
            writers: Arc::clone(writers),
            session,
            run,
            trace,
        }
    }

    fn signed(&self, event: Event) -> AuditEvent {
        let mut signed = AuditEvent::new(event.name, self.trace)
            .session(self.session)
            .run(self.run)
            .decision(event.decision)
            .target(event.target)
            .details(event.detail);
        if let Some(task) = event.task {
            signed = signed.planned_task(task);
        }
        if let Some(code) = event.code {
            signed = signed.code(code);
        }
        signed
    }

    /// Appends an event of the audit log.
    ///
    /// # Errors
    /// `audit.unavailable`: whatever it was to record must not happen.
    pub(crate) async fn audit(&self, event: Event) -> Result<(), Fault> {
        self.writers.audit.append(self.signed(event))?;
        Ok(())
    }

    /// The same, synced before it returns: for what an effect follows.
    ///
    /// # Errors
    /// As [`Ledger::audit`].
    pub(crate) async fn audit_durably(&self, event: Event) -> Result<(), Fault> {
        let (audit, event) = (self.writers.audit.clone(), self.signed(event));
        // The proof ends here: what follows in the caller is what it was made for.
        off_the_async_thread("audit", move || {
            audit.append_durable(event).map(drop).map_err(Fault::from)
        })
        .await
    }

    /// Arguments as the audit may hold them (X-ARGS).
    pub(crate) fn redact(&self, arguments: &Value) -> Value {
        match self.writers.redactor.json(arguments) {
            Ok(members) => Value::Object(members),
            Err(_) => json!({"arguments": "redacted"}),
        }
    }

    /// A run reached a state.
    ///
    /// # Errors
    /// `state.unusable`.
    pub(crate) async fn session_event(&self, status: &'static str) -> Result<(), Fault> {
        let ledger = self.clone();
        off_the_async_thread("session events", move || {
            let event = SessionEvent::Run {
                run_id: ledger.run,
                status: status.to_owned(),
            };
            let writers = &ledger.writers;
            let mut events = writers
                .session_events
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            events
                .append(ledger.session, ledger.trace, event, &*writers.clock)
                .map_err(Fault::from)
        })
        .await
    }

    /// The recovery journal of this run.
    ///
    /// # Errors
    /// `state.unusable`.
    pub(crate) async fn journal(&self) -> Result<Arc<Journal>, Fault> {
        let ledger = self.clone();
        off_the_async_thread("journal", move || {
            let writers = &ledger.writers;
            let journal = Journal::create(writers.audit.instance(), ledger.run, &*writers.clock)?;
            Ok(Arc::new(journal))
        })
        .await
    }

    /// The LLM log proves nothing: a failing one is said and does not stop the run.
    fn log(&self, record: &LlmRecord) {
        let mut log = self
            .writers
            .llm_log
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = log.append(record) {
            tracing::error!(%error, trace_id = %self.trace, "the LLM log cannot be written");
        }
    }

    /// RFC 3339, UTC, milliseconds.
    fn stamp(&self) -> String {
        format!("{:.3}", self.writers.clock.now())
    }
}

/// Waits for the disk without blocking the runtime.
async fn off_the_async_thread<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(problem) => Err(Fault::new(Blame::Us, Code::Internal, what, problem)),
    }
}
