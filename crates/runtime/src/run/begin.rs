//! Begin and end of one planned Task (DESIGN §12.2): its sandbox, its temporary directory, its journal section.

use super::Run;
use super::halt::Halt;
use super::hands::{Hands, Witness, blocking};
use crate::evidence::Evidence;
use crate::ledger::{Event, Section};
use crate::ollama::TruncationWatch;
use crate::repetition::{Patience, SameCalls, SameFailures};
use crate::service::{RunEvent, TokenUsage};
use crate::tools::ToolLimits;
use planner::{TaskId, TaskState};
use policy::call::Scope;
use policy::sandbox::{Enforcement, PreparedSandbox, SandboxError, StartPermit, TaskSandbox};
use policy::tool::ToolName;
use policy::{Blame, Code, Fault, Message, Refusal};
use record::EventName;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// One planned Task at work.
pub(super) struct Seat {
    pub id: TaskId,
    pub evidence: Evidence,
    pub scope: Scope,
    pub hands: Arc<Hands>,
    /// Calls of the model so far (DC-4).
    pub calls: u32,
    /// Refused calls so far.
    pub denials: u32,
    /// Whether the server refused the prompt's length already.
    pub was_too_long: bool,
    /// Whether nothing has succeeded since the last refusal.
    pub refusal_open: bool,
    pub same_calls: SameCalls,
    pub failures: SameFailures,
    pub watch: TruncationWatch,
    section: Section,
}

/// A sandbox with its permit.
struct Ready {
    sandbox: Box<dyn PreparedSandbox>,
    permit: StartPermit,
}

impl Run {
    /// Begins a Task. When it fails, nothing of the Task is left.
    pub(super) async fn begin(&mut self, id: &TaskId) -> Result<Seat, Halt> {
        self.check_stop()?;
        let graph = self.graph()?;
        graph
            .transition(id, TaskState::Running)
            .map_err(|problem| Fault::new(Blame::Us, Code::Internal, id.as_str(), problem))?;
        let Some(task) = graph.task(id).cloned() else {
            return Err(Fault::new(Blame::Us, Code::Internal, id.as_str(), "no such task").into());
        };
        let (done, all) = (
            graph
                .tasks()
                .iter()
                .filter(|task| task.state == TaskState::Completed)
                .count(),
            graph.tasks().len(),
        );
        if let Some(graph) = &self.graph {
            self.board.graph(graph);
        }
        self.board.say(
            Message::new("status.running_task")
                .with("number", done + 1)
                .with("count", all),
        );
        let required: BTreeSet<ToolName> = task
            .required_tools
            .iter()
            .filter_map(|tool| tool.as_str().parse().ok())
            .collect();
        let detail = json!({
            "required_tools": task.required_tools, "requires_external_effect": task.requires_external_effect,
            "expected_tokens": task.estimate.expected(),
        });
        let event = Event::new(EventName::TaskStart, id.as_str())
            .of_task(id.as_str())
            .detail(detail);
        self.ledger.audit_durably(event).await?;
        let standing = Arc::clone(&self.engine.parts.standing);
        if let Err(refusal) = blocking(move || standing.check()).await? {
            return Err(self.denied(id, refusal).await);
        }
        // A side-effect tool outside `required_tools` is never dispatched, so no other Task starts a program.
        let prepared = if required.contains(&ToolName::ProcessRun) {
            Some(self.prepare_sandbox(id).await?)
        } else {
            None
        };
        let resources = prepared
            .as_ref()
            .map_or_else(Vec::new, |ready| ready.sandbox.host_resources());
        let temporary = self.temporary_directory(id);
        let journal = match &self.journal {
            Some(journal) => Arc::clone(journal),
            None => self.ledger.journal().await?,
        };
        self.journal = Some(Arc::clone(&journal));
        let section = self
            .ledger
            .begin_section(&journal, id.as_str(), resources, &temporary)
            .await?;
        let sandbox = match self.apply(prepared, &section, &temporary).await {
            Ok(sandbox) => sandbox,
            Err(halt) => {
                section.cleaning().await?;
                remove(&temporary)?;
                section.clean().await?;
                return Err(halt);
            }
        };
        let (sandbox, enforcement) = sandbox.unzip();
        self.board.emit(RunEvent::TaskStarted {
            task: id.to_string(),
            enforcement,
        });
        let engine = &self.engine;
        let limits = engine.limits();
        let patience = Patience {
            notice: limits.repetition_notice,
            limit: limits.same_failure_limit,
        };
        Ok(Seat {
            id: id.clone(),
            evidence: Evidence::new(required.clone(), task.requires_external_effect),
            scope: Scope {
                whitelist: engine.whitelist.clone(),
                required_tools: required,
            },
            hands: Arc::new(Hands {
                policy: Arc::clone(&engine.parts.policy),
                walker: Arc::clone(&engine.walker),
                limits: tool_limits(engine.parts.tools),
                temporary,
                sandbox,
                effects: self.ledger.effects(&section),
                cancelled: AtomicBool::new(false),
            }),
            calls: 0,
            denials: 0,
            refusal_open: false,
            was_too_long: false,
            same_calls: SameCalls::new(patience),
            failures: SameFailures::new(patience),
            watch: TruncationWatch::new(engine.parts.model.ollama.options.num_ctx),
            section,
        })
    }

    /// Builds the sandbox up to its permit. Nothing is on the host yet.
    async fn prepare_sandbox(&self, id: &TaskId) -> Result<Ready, Halt> {
        let backend = Arc::clone(&self.engine.parts.sandbox);
        let policy = Arc::clone(&self.engine.parts.policy);
        let name = format!("{}-{}", self.run_id, id);
        let sandbox = blocking(move || backend.prepare(&policy, &name))
            .await?
            .map_err(halt_of)?;
        let enforcement = sandbox.enforcement().clone();
        let missing: Vec<&str> = enforcement
            .missing_controls()
            .iter()
            .map(|control| control.word())
            .collect();
        let report = Event::new(EventName::EnforcementReport, id.as_str())
            .of_task(id.as_str())
            .detail(json!({"level": enforcement.level(), "missing": missing}));
        self.ledger.audit_durably(report).await?;
        match enforcement.permit(&self.engine.parts.policy) {
            Ok(permit) => Ok(Ready { sandbox, permit }),
            Err(refusal) => Err(self.denied(id, refusal).await),
        }
    }

    /// Records why a Task does not begin.
    async fn denied(&self, id: &TaskId, refusal: Refusal) -> Halt {
        let event = Event::new(EventName::PolicyDeny, &refusal.target)
            .of_task(id.as_str())
            .denied(refusal.code)
            .detail(json!({"rule": refusal.rule}));
        match self.ledger.audit(event).await {
            Ok(_) => refusal.into(),
            Err(fault) => fault.into(),
        }
    }

    /// Makes what the section names: the temporary directory, and the sandbox if the Task has one.
    async fn apply(
        &self,
        prepared: Option<Ready>,
        section: &Section,
        temporary: &Path,
    ) -> Result<Option<(Witness, Enforcement)>, Halt> {
        make_private(temporary)?;
        let Some(Ready { sandbox, permit }) = prepared else {
            return Ok(None);
        };
        let enforcement = sandbox.enforcement().clone();
        section.applied().await?;
        let inner = blocking(move || sandbox.start(permit))
            .await?
            .map_err(halt_of)?;
        let witness = Witness {
            inner,
            seen: Mutex::new(None),
        };
        if let Err(fault) = section.running().await {
            let ended = blocking(move || witness.end()).await?;
            ended.map_err(halt_of)?;
            return Err(fault.into());
        }
        Ok(Some((witness, enforcement)))
    }

    /// Ends a Task: the tree is dead, nothing is left, the journal section is clear (SEC-INV-10).
    pub(super) async fn end(
        &mut self,
        seat: Seat,
        to: TaskState,
        code: Option<Code>,
    ) -> Result<(), Halt> {
        let Seat {
            id, hands, section, ..
        } = seat;
        section.cleaning().await?;
        let (ended, findings, relayed) = {
            let hands = Arc::clone(&hands);
            blocking(move || match &hands.sandbox {
                Some(sandbox) => (sandbox.end(), sandbox.findings(), sandbox.relayed()),
                None => (Ok(()), Vec::new(), Vec::new()),
            })
            .await?
        };
        for finding in findings {
            let event = Event::new(
                EventName::SandboxFinding,
                finding.path.display().to_string(),
            );
            let detail = json!({ "kind": finding.kind.word() });
            self.ledger
                .audit(event.of_task(id.as_str()).detail(detail))
                .await?;
        }
        // Whatever else fails, the first thing that was left behind is what is reported, and the section stays for recovery.
        ended.map_err(halt_of)?;
        remove(&hands.temporary)?;
        // The effect log in the hands holds the journal too.
        drop(hands);
        section.clean().await?;
        let graph = self.graph()?;
        graph
            .transition(&id, to)
            .map_err(|problem| Fault::new(Blame::Us, Code::Internal, id.as_str(), problem))?;
        let (spent, expected) = graph.task(&id).map_or_else(Default::default, |task| {
            let usage = task.usage();
            let spent = TokenUsage {
                input: usage.input.0,
                output: usage.output.0,
            };
            (spent, task.estimate.expected())
        });
        if let Some(graph) = &self.graph {
            self.board.graph(graph);
        }
        let relayed: Vec<_> = relayed.iter().filter(|line| line.is_notable()).collect();
        let detail = json!({
            "relayed": relayed, "state": to.as_str(), "input_tokens": spent.input, "output_tokens": spent.output,
            "expected_tokens": expected,
        });
        let event = Event::new(EventName::TaskEnd, id.as_str())
            .of_task(id.as_str())
            .code(code)
            .detail(detail);
        self.ledger.audit_durably(event).await?;
        self.board.emit(RunEvent::TaskEnded {
            task: id.to_string(),
            completed: to == TaskState::Completed,
            spent,
            expected,
        });
        Ok(())
    }

    fn temporary_directory(&self, id: &TaskId) -> PathBuf {
        let name = format!("{}-{}", self.run_id, id);
        self.engine.parts.temporary.join(name)
    }
}

fn tool_limits(parts: crate::parts::ToolLimits) -> ToolLimits {
    ToolLimits {
        whole_read_bytes: parts.limits.whole_read_bytes,
        search_max_results: parts.limits.search_max_results.into(),
        tail_max_lines: parts.limits.tail_max_lines.into(),
        dir_list_entries: parts.limits.dir_list_entries.into(),
        edit_bytes: parts.limits.edit_bytes,
        memory_backup_bytes: parts.memory_backup_limit_bytes,
    }
}

fn halt_of(error: SandboxError) -> Halt {
    let code = error.code();
    match error {
        SandboxError::Refused(refusal) => Halt::Refused(refusal),
        SandboxError::Unavailable { stage, reason } | SandboxError::Failed { stage, reason } => {
            Fault::new(Blame::Machine, code, stage, reason).into()
        }
        other => Fault::new(Blame::Machine, code, "sandbox", other).into(),
    }
}

fn make_private(path: &Path) -> Result<(), Halt> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|error| unusable(path, &error))
}

fn remove(path: &Path) -> Result<(), Halt> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(unusable(path, &error)),
        _ => Ok(()),
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> Halt {
    let target = path.display().to_string();
    Fault::new(Blame::Machine, Code::StateUnusable, target, error).into()
}
