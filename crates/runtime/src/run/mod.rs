//! One run, from its plan to its answer.

mod begin;
mod finish;
mod halt;
mod hands;
mod model;
mod planning;
mod replan;
mod settle;
mod stages;
mod summarize;
mod task;
mod update;

use crate::board::{Board, RunEnd};
use crate::catalogue;
use crate::compose::Composer;
use crate::evidence::Denied;
use crate::ledger::{self, Event, Ledger, Writers};
use crate::ollama::{OllamaClient, RequestOptions, ToolSet};
use crate::parts::{Records, RunLimits, RuntimeParts};
use crate::service::{RunRequest, RunState, TokenUsage};
use crate::session::{Exchange, SessionContext};
use crate::stop::Stop;
use crate::tools::Walker;
use halt::Halt;
use planner::{TaskGraph, TaskState};
use policy::layers::PermissionLayers;
use policy::tool::ToolName;
use policy::{Blame, Code, EffectivePolicy, Fault, Message, Refusal, RunId, SessionId, TraceId};
use record::{EventName, Journal};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What every run shares; nothing in it changes.
pub(crate) struct Engine {
    parts: RuntimeParts,
    client: OllamaClient,
    composer: Composer,
    whitelist: BTreeSet<ToolName>,
    tools: ToolSet,
    walker: Arc<Walker>,
    writers: Arc<Writers>,
}

impl Engine {
    /// # Errors
    /// `configuration.invalid`, and what [`Walker::open`] says about the granted roots.
    pub(crate) fn new(parts: RuntimeParts, records: Records) -> Result<Self, Fault> {
        let (settings, backoff) = (parts.model.settings.clone(), parts.model.backoff.clone());
        let client = OllamaClient::with_backoff(settings, backoff).map_err(|problem| {
            let code = Code::ConfigurationInvalid;
            Fault::new(Blame::Configuration, code, "ollama", problem)
        })?;
        let composer = Composer::new(
            &parts.policy,
            parts.user_system_prompt.as_deref(),
            &parts.skills,
            &parts.language,
        );
        // The default box (X-BOX): all tools of the catalogue.
        let whitelist = BTreeSet::from(ToolName::ALL);
        let tools = catalogue::tool_set(&whitelist)
            .map_err(|problem| Fault::new(Blame::Us, Code::Internal, "tool catalogue", problem))?;
        let walker = Arc::new(Walker::open(&parts.policy)?);
        let writers = Arc::new(Writers::new(records, Arc::clone(&parts.clock)));
        Ok(Self {
            parts,
            client,
            composer,
            whitelist,
            tools,
            walker,
            writers,
        })
    }

    pub(crate) fn now_seconds(&self) -> i64 {
        self.parts.clock.now().as_second()
    }

    pub(crate) fn limits(&self) -> &RunLimits {
        &self.parts.limits
    }

    pub(crate) fn policy(&self) -> &EffectivePolicy {
        &self.parts.policy
    }
}

/// One run's order.
pub(crate) struct Job {
    pub run_id: RunId,
    pub session_id: SessionId,
    pub trace: TraceId,
    pub request: RunRequest,
    pub images: Vec<String>,
    pub stop: Stop,
    pub board: Board,
    pub session: SessionContext,
}

/// What comes back from a run. Its board shows the end.
pub(crate) struct Ending {
    pub board: Board,
    pub session: SessionContext,
}

/// Tokens of a run by what they were spent on.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    /// Planning, Tasks and the answer (OLL-13).
    run: TokenUsage,
    /// Summaries: session maintenance, counted apart (DESIGN §8.5).
    maintenance: TokenUsage,
    /// Calls whose counts the server did not give.
    unknown: u32,
}

/// A run at work.
struct Run {
    engine: Arc<Engine>,
    ledger: Ledger,
    run_id: RunId,
    request: String,
    images: Vec<String>,
    options: RequestOptions,
    stop: Stop,
    board: Board,
    session: SessionContext,
    graph: Option<TaskGraph>,
    layers: PermissionLayers,
    /// Refused calls of this run.
    denied: Vec<Denied>,
    /// Where this run's own results begin in the session.
    results_from: usize,
    /// The recovery journal, from the first Task on.
    journal: Option<Arc<Journal>>,
    /// What the model wrote at the end of each Task.
    texts: Vec<(String, String)>,
    spent: Spent,
    iterations: u32,
    replans: u32,
    /// The last `prompt_eval_count`, for the summary ratio (DESIGN §9.3).
    last_prompt_tokens: Option<u64>,
}

/// Works a job to its end, whatever it is. When this returns, nothing of the run is left.
pub(crate) async fn execute(engine: Arc<Engine>, job: Job) -> Ending {
    let Job {
        run_id,
        session_id,
        trace,
        request,
        images,
        stop,
        board,
        session,
    } = job;
    let options = RequestOptions::from_config(&engine.parts.model.ollama, request.temperature);
    let ledger = Ledger::new(&engine.writers, session_id, run_id, trace);
    let layers = PermissionLayers::default_box(engine.parts.asks.clone());
    let results_from = session.results.len();
    let mut run = Run {
        engine,
        ledger,
        run_id,
        request: request.request,
        images,
        options,
        stop,
        board,
        session,
        graph: None,
        layers,
        denied: Vec::new(),
        results_from,
        journal: None,
        texts: Vec::new(),
        spent: Spent::default(),
        iterations: 0,
        replans: 0,
        last_prompt_tokens: None,
    };
    let worked = run.work().await;
    run.close(worked).await
}

impl Run {
    async fn work(&mut self) -> Result<String, Halt> {
        let start = Event::new(EventName::RunStart, self.run_id.to_string());
        self.ledger.audit_durably(start).await?;
        self.ledger.session_event(RunState::Planning.word()).await?;
        self.board
            .step(RunState::Planning, Message::new("status.planning"));
        self.check_model().await?;
        self.plan().await?;
        self.board
            .step(RunState::Running, Message::new("status.running"));
        while let Some(next) = self.next_task() {
            if let Some(denied) = self.work_on(&next).await? {
                self.replan(&denied).await?;
            }
        }
        if !self.graph()?.is_completed() {
            // DESIGN §8.4: no Task can run, and not all are completed.
            return Err(Refusal::new(Code::ReplanFailed, "DESIGN §8.4", "plan")
                .because(Message::new("reason.no_task_can_run"))
                .into());
        }
        self.answer().await
    }

    fn next_task(&self) -> Option<planner::TaskId> {
        self.graph
            .as_ref()?
            .ready()
            .first()
            .map(|task| task.id.clone())
    }

    fn graph(&mut self) -> Result<&mut TaskGraph, Halt> {
        self.graph
            .as_mut()
            .ok_or_else(|| Fault::new(Blame::Us, Code::Internal, "run", "no plan").into())
    }

    /// Fails if the run was stopped.
    fn check_stop(&self) -> Result<(), Halt> {
        self.stop
            .fired()
            .map_or(Ok(()), |why| Err(Halt::Stopped(why)))
    }

    /// The one way out: states, records, conversation.
    async fn close(mut self, worked: Result<String, Halt>) -> Ending {
        let stopped = matches!(worked, Err(Halt::Stopped(_)));
        if let Some(graph) = &mut self.graph {
            let next = if stopped {
                TaskState::Cancelled
            } else {
                TaskState::Failed
            };
            let open: Vec<_> = graph
                .tasks()
                .iter()
                .filter(|task| !task.state.is_terminal())
                .map(|task| task.id.clone())
                .collect();
            for id in open {
                // Every state that is not terminal leads to both.
                drop(graph.transition(&id, next));
            }
            self.board.graph(graph);
        }
        let mut end = match &worked {
            Ok(answer) => self.completed(answer.clone()),
            Err(halt) => halt.end(),
        };
        let cleared = match self.journal.take() {
            Some(journal) => ledger::finish(journal).await,
            None => Ok(()),
        };
        if let Err(fault) = cleared {
            // Something may be left: a later recovery reads the journal (SEC-INV-10). What failed first is what is told.
            tracing::error!(%fault, "the journal stays");
            if end.state != RunState::Failed {
                end = RunEnd::failed(fault.code, fault.message());
            }
        }
        let recorded = self.record_end(&end).await;
        if let (Err(fault), RunState::Completed) = (recorded, end.state) {
            // What cannot be recorded is not reported as done (DC-3).
            end = RunEnd::failed(fault.code, fault.message());
        }
        self.session.conversation.push(Exchange {
            request: self.request.clone(),
            answer: end.result.clone().unwrap_or_else(|| {
                format!(
                    "(This request ended {}.)",
                    end.problem.as_ref().map_or(
                        "without an answer".to_owned(),
                        |(code, _)| format!("{}: {code}", end.state.word())
                    )
                )
            }),
        });
        self.session.graph = self.graph.take();
        self.board.end(end);
        Ending {
            board: self.board,
            session: self.session,
        }
    }

    fn completed(&self, answer: String) -> RunEnd {
        let message = match self.denied.len() {
            0 => Message::new("status.completed"),
            count => Message::new("status.completed_with_refusals").with("count", count),
        };
        RunEnd {
            state: RunState::Completed,
            problem: None,
            message,
            result: Some(answer),
        }
    }

    async fn record_end(&self, end: &RunEnd) -> Result<(), Fault> {
        let code = end.problem.as_ref().map(|(code, _)| *code);
        let spent = &self.spent;
        let detail = serde_json::json!({
            "state": end.state.word(), "iterations": self.iterations, "replans": self.replans,
            "input_tokens": spent.run.input, "output_tokens": spent.run.output,
            "maintenance_tokens": spent.maintenance.total(), "calls_without_counts": spent.unknown,
        });
        let event = Event::new(EventName::RunEnd, self.run_id.to_string())
            .code(code)
            .detail(detail);
        self.ledger.session_event(end.state.word()).await?;
        self.ledger.audit_durably(event).await
    }
}
