//! What one run writes down: audit, LLM log, session events, recovery journal. Everything carries the trace id (DC-3).

use crate::ollama::{ChatAnswer, OllamaFault, WireCall};
use crate::tools::{EffectEnd, EffectLog, Intent, ToolResult};
use policy::sandbox::HostResource;
use policy::{Blame, Code, Fault, RunId, SessionId, TraceId};
use record::{AuditEvent, AuditLog, Decision, EventName, Redactor};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Where everything is written down.
#[derive(Clone, Debug)]
pub struct Records {
    /// The signed audit log.
    pub audit: AuditLog,
    /// Stands for arguments without saying them (X-ARGS).
    pub redactor: Redactor,
}

/// One run's way to the records.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    records: Records,
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

/// One call to the model, for the LLM log (DESIGN §15.2).
pub(crate) struct LlmCall<'a> {
    pub phase: &'static str,
    pub task: Option<&'a str>,
    pub iteration: u32,
    pub replan: u32,
    pub model: &'a str,
    pub request: Value,
    pub answer: Option<&'a ChatAnswer>,
    pub fault: Option<&'a OllamaFault>,
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
        self.records.audit.append(self.signed(event))?;
        Ok(())
    }

    /// The same, synced before it returns: for what an effect follows.
    ///
    /// # Errors
    /// As [`Ledger::audit`].
    pub(crate) async fn audit_durably(&self, event: Event) -> Result<(), Fault> {
        let (audit, event) = (self.records.audit.clone(), self.signed(event));
        let joined = tokio::task::spawn_blocking(move || audit.append_durable(event)).await;
        let appended = joined
            .map_err(|problem| Fault::new(Blame::Us, Code::AuditUnavailable, "audit", problem))?;
        // The proof is consumed here: what follows in the caller is the effect it was made for.
        appended.map(drop).map_err(Fault::from)
    }

    /// Arguments as the audit may hold them (X-ARGS).
    pub(crate) fn redact(&self, arguments: &Value) -> Value {
        match self.records.redactor.json(arguments) {
            Ok(members) => Value::Object(members),
            Err(_) => json!({"arguments": "redacted"}),
        }
    }

    pub(crate) async fn session_event(
        &self,
        _what: &'static str,
        _code: Option<Code>,
    ) -> Result<(), Fault> {
        Ok(())
    }

    pub(crate) async fn model_call(&self, _call: LlmCall<'_>) -> Result<(), Fault> {
        Ok(())
    }

    pub(crate) async fn tool_result(
        &self,
        _task: &str,
        _iteration: u32,
        _call: &WireCall,
        _result: &ToolResult,
    ) -> Result<(), Fault> {
        Ok(())
    }

    pub(crate) async fn begin_section(
        &self,
        _task: &str,
        _temporary: &Path,
    ) -> Result<Section, Fault> {
        Ok(Section {})
    }

    pub(crate) async fn host_resources(
        &self,
        _section: &Section,
        _resources: Vec<HostResource>,
    ) -> Result<(), Fault> {
        Ok(())
    }

    pub(crate) async fn end_section(&self, _section: Section) -> Result<(), Fault> {
        Ok(())
    }

    pub(crate) fn effects(&self, task: &str, _section: &Section) -> Effects {
        Effects {
            ledger: self.clone(),
            task: task.to_owned(),
        }
    }
}

/// One planned Task's part of the recovery journal.
#[derive(Debug)]
pub(crate) struct Section {}

/// Journal and audit of effects, for the tools.
pub(crate) struct Effects {
    ledger: Ledger,
    task: String,
}

impl EffectLog for Effects {
    type Token = ();

    fn before(&self, intent: &Intent) -> Result<(), Fault> {
        let event = self.event(intent).of_task(&self.task).allowed();
        let appended = self
            .ledger
            .records
            .audit
            .append_durable(self.ledger.signed(event));
        appended.map(drop).map_err(Fault::from)
    }

    fn after(&self, _token: (), _end: EffectEnd) -> Result<(), Fault> {
        Ok(())
    }
}

impl Effects {
    fn event(&self, intent: &Intent) -> Event {
        let path = |path: &Path| path.display().to_string();
        match intent {
            Intent::Replace {
                path: file,
                before,
                after_sha256,
                ..
            } => {
                let before = before.as_ref().map(|before| before.sha256.to_string());
                Event::new(EventName::FileWrite, path(file)).detail(
                    json!({"before_sha256": before, "after_sha256": after_sha256.to_string()}),
                )
            }
            Intent::Delete { path: file, before } => Event::new(EventName::FileDelete, path(file))
                .detail(json!({"before_sha256": before.sha256.to_string()})),
            Intent::Rename {
                path: file,
                new_path,
                before,
            } => Event::new(EventName::FileRename, path(file)).detail(
                json!({"new_path": path(new_path), "before_sha256": before.sha256.to_string()}),
            ),
            Intent::MakeDirectories { paths } => {
                let innermost = paths.last().map_or_else(String::new, |last| path(last));
                Event::new(EventName::DirMake, innermost).detail(json!({"made": paths.len()}))
            }
            Intent::RemoveDirectory {
                path: directory, ..
            } => Event::new(EventName::DirRemove, path(directory)),
            Intent::RunProgram { program, argv, cwd } => {
                let redacted = self
                    .ledger
                    .records
                    .redactor
                    .argv(argv.get(1..).unwrap_or(&[]));
                Event::new(EventName::ProcessStart, path(&program.path))
                    .detail(Value::Object(redacted))
                    .detail(json!({
                        "class": program.class, "sha256": program.sha256.map(|hash| hash.to_string()),
                        "cwd": path(cwd),
                    }))
            }
        }
    }
}
