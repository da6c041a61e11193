//! What the outside (MCP, the command line, later the console) asks of the runtime, and what it gets to see.
//!
//! One owner per piece of state: the run queue task owns runs, the session store owns sessions. An [`AgentService`] is only
//! a handle that sends messages to them.

use crate::desk::{Ask, Desk};
use crate::parts::{Records, RuntimeParts};
use crate::run::Engine;
use planner::CriticalPath;
use policy::{Code, Fault, Message, Refusal, RunId, SessionId};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// One image of a request (MCP-RUN-04). Checked for type, base64 and size before it is queued.
#[derive(Clone, Debug)]
pub struct Image {
    /// `image/png`, `image/jpeg` or `image/webp`.
    pub mime_type: String,
    /// Base64 as the client sent it.
    pub data_base64: String,
}

/// Who owns a run: when that client goes, its runs are stopped safely (REC-04).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(pub u64);

/// A request as it comes in (SPEC §5.3).
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The work in plain language; not empty.
    pub request: String,
    /// An existing session, or nothing for a new one.
    pub session_id: Option<SessionId>,
    /// For this run's model calls only (MCP-RUN-03), 0.0 to 2.0.
    pub temperature: Option<f64>,
    /// Images for a model with vision.
    pub images: Vec<Image>,
    /// The owner.
    pub client: ClientId,
    /// `run` gives its own working directory; MCP sessions have none (X-ROOT).
    pub cwd: Option<PathBuf>,
}

/// What `agent_run` answers with at once (AT-04).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The public `task_id`.
    pub run_id: RunId,
    /// The session it belongs to.
    pub session_id: SessionId,
}

/// Public states of a run (SPEC §5.5, X-STATES).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Accepted, not started.
    Queued,
    /// The TaskGraph is being made or changed.
    Planning,
    /// A model call or a tool is at work.
    Running,
    /// Every planned Task is completed.
    Completed,
    /// It could not be done.
    Failed,
    /// Stopped safely.
    Cancelled,
}

impl RunState {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Planning => "planning",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing follows.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The one table of legal transitions (DESIGN §17.1, X-STATES).
    #[expect(
        clippy::match_like_matches_macro,
        reason = "a table reads better row by row"
    )]
    pub fn may_become(self, next: Self) -> bool {
        use RunState::*;
        match (self, next) {
            (Queued, Planning)
            | (Planning, Running)
            | (Running, Planning)
            | (Running, Completed) => true,
            (Queued | Planning | Running, Failed | Cancelled) => true,
            _ => false,
        }
    }
}

/// Tokens of a run so far (OLL-13). A call without counts adds nothing and is noted in the LLM log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenUsage {
    /// Sum of `prompt_eval_count`.
    pub input: u64,
    /// Sum of `eval_count`.
    pub output: u64,
}

impl TokenUsage {
    /// Input and output together.
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// Everything `agent_status` shows (DESIGN §5.5).
#[derive(Clone, Debug, PartialEq)]
pub struct RunStatus {
    /// The public `task_id`.
    pub run_id: RunId,
    /// Its session.
    pub session_id: SessionId,
    /// Its state.
    pub state: RunState,
    /// Completed planned Tasks.
    pub completed_tasks: usize,
    /// All planned Tasks.
    pub total_tasks: usize,
    /// Description of the running planned Task (model text: one line it, X-ONELINE).
    pub current_task: Option<String>,
    /// Tokens so far.
    pub token_usage: TokenUsage,
    /// Expected tokens on the critical path, rounded.
    pub critical_path_tokens: u64,
    /// Model calls so far.
    pub iterations: u32,
    /// Replans so far.
    pub replans: u32,
    /// The last error, if any.
    pub last_error: Option<(Code, Message)>,
    /// What it is doing or waiting for.
    pub message: Message,
    /// The final answer; only when completed.
    pub result: Option<String>,
}

/// What a person at the terminal sees while a run goes on (`agent-mcp run`, the demo).
#[derive(Clone, Debug)]
pub enum RunEvent {
    /// The state changed.
    State(RunState),
    /// A plan was accepted, or changed.
    Planned {
        /// Every planned Task in creation order.
        tasks: Vec<PlannedTaskView>,
        /// The critical path.
        critical_path: CriticalPath,
    },
    /// A planned Task started.
    TaskStarted {
        /// Its id in the graph.
        task: String,
        /// What is enforced for it.
        enforcement: Option<policy::sandbox::Enforcement>,
    },
    /// A tool call came back.
    ToolFinished {
        /// The planned Task.
        task: String,
        /// Catalogue name.
        tool: &'static str,
        /// What it was about: a path, a command line.
        target: String,
        /// Nothing when it worked; else the code and the message.
        problem: Option<(Code, Message)>,
        /// First lines of what came back, for people.
        excerpt: String,
    },
    /// Something the operator should know: repetition, a missing control, an escalation.
    Notice(Message),
    /// A planned Task ended.
    TaskEnded {
        /// Its id in the graph.
        task: String,
        /// Whether it was completed.
        completed: bool,
        /// Tokens spent on it.
        spent: TokenUsage,
        /// Expected tokens (E of PERT).
        expected: f64,
    },
    /// Nothing follows.
    Finished(Box<RunStatus>),
}

/// One planned Task for people.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedTaskView {
    /// Id in the graph.
    pub id: String,
    /// Model text.
    pub description: String,
    /// Ids it depends on.
    pub depends_on: Vec<String>,
    /// E of PERT.
    pub expected_tokens: f64,
    /// Tools that must succeed.
    pub required_tools: Vec<String>,
    /// State word.
    pub state: &'static str,
}

/// The handle. Clones reach the same runs; nothing is kept in it.
#[derive(Clone)]
pub struct AgentService {
    desk: mpsc::UnboundedSender<Ask>,
}

impl AgentService {
    /// Starts the owner of sessions and runs on the current tokio runtime.
    ///
    /// # Errors
    /// `configuration.invalid` when no client can be made from the model's settings, or the tool catalogue is unusable.
    pub fn start(parts: RuntimeParts, records: Records) -> Result<Self, Fault> {
        let engine = Arc::new(Engine::new(parts, records)?);
        let (desk, inbox) = mpsc::unbounded_channel();
        tokio::spawn(Desk::new(engine, inbox, desk.downgrade()).work());
        Ok(Self { desk })
    }

    /// Queues a run and returns at once (AT-04).
    ///
    /// # Errors
    /// `request.invalid`, `image.invalid`, `session.not_found`, `session.closed`, `policy.path_denied` for the working
    /// directory, `run.queue_full`, `server.stopping`.
    pub async fn submit(&self, request: RunRequest) -> Result<Submitted, Refusal> {
        self.ask(|reply| Ask::Submit(Box::new(request), reply))
            .await
    }

    /// What is known about a run. Statuses are kept for 24 h after the end.
    ///
    /// # Errors
    /// `task.not_found`, `task.session_mismatch`, and for another session `session.not_found` or `session.closed`.
    pub async fn status(
        &self,
        run: RunId,
        session: Option<SessionId>,
    ) -> Result<RunStatus, Refusal> {
        self.ask(|reply| Ask::Status(run, session, reply)).await
    }

    /// Stops a run safely and returns when it is over and clean. A run that is over already stays as it is.
    ///
    /// # Errors
    /// `task.not_found`.
    pub async fn cancel(&self, run: RunId) -> Result<(), Refusal> {
        self.ask(|reply| Ask::Cancel(run, reply)).await
    }

    /// Stops that client's runs safely and returns when they are over and clean (REC-04).
    pub async fn client_gone(&self, client: ClientId) {
        self.tell(|reply| Ask::ClientGone(client, reply)).await;
    }

    /// Takes no more runs, stops all of them safely and returns when they are over and clean (DESIGN §16.1).
    pub async fn shutdown(&self) {
        self.tell(Ask::Shutdown).await;
    }

    /// Every event of a run from its start; ends after [`RunEvent::Finished`]. For an unknown run it ends at once.
    pub async fn subscribe(&self, run: RunId) -> mpsc::UnboundedReceiver<RunEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        // Without a desk the sender is dropped, and the receiver ends at once.
        drop(self.desk.send(Ask::Subscribe(run, sender)));
        receiver
    }

    async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<Result<T, Refusal>>) -> Ask,
    ) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        let gone = || Refusal::new(Code::ServerStopping, "run queue", "agent");
        self.desk.send(question(reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    async fn tell(&self, order: impl FnOnce(oneshot::Sender<()>) -> Ask) {
        let (reply, answer) = oneshot::channel();
        // Without a desk nothing runs, so there is nothing to wait for.
        if self.desk.send(order(reply)).is_ok() {
            drop(answer.await);
        }
    }
}
