//! One run's public face while it works: the snapshot that `agent_status` reads, and the events that a terminal shows.

use crate::service::{PlannedTaskView, RunEvent, RunState, RunStatus, TokenUsage};
use planner::{TaskGraph, TaskState};
use policy::{Code, Message, RunId, SessionId};
use tokio::sync::watch;

/// Where a run's events go, in order.
pub(crate) type EventSink = Box<dyn Fn(RunEvent) + Send + Sync>;

pub(crate) struct Board {
    status: watch::Sender<RunStatus>,
    events: EventSink,
}

impl Board {
    pub(crate) fn new(status: watch::Sender<RunStatus>, events: EventSink) -> Self {
        Self { status, events }
    }

    pub(crate) fn snapshot(&self) -> RunStatus {
        self.status.borrow().clone()
    }

    /// Steps to another state with what it now does. An illegal step is a mistake of ours and leaves the state alone.
    pub(crate) fn step(&self, next: RunState, message: Message) {
        let mut stepped = false;
        self.status.send_modify(|status| {
            if status.state.may_become(next) {
                status.state = next;
                stepped = true;
            }
            status.message = message;
        });
        if stepped {
            (self.events)(RunEvent::State(next));
        }
    }

    pub(crate) fn say(&self, message: Message) {
        self.status.send_modify(|status| status.message = message);
    }

    pub(crate) fn emit(&self, event: RunEvent) {
        (self.events)(event);
    }

    pub(crate) fn usage(&self, usage: TokenUsage, iterations: u32) {
        self.status.send_modify(|status| {
            status.token_usage = usage;
            status.iterations = iterations;
        });
    }

    pub(crate) fn replans(&self, replans: u32) {
        self.status.send_modify(|status| status.replans = replans);
    }

    pub(crate) fn problem(&self, code: Code, message: Message) {
        self.status
            .send_modify(|status| status.last_error = Some((code, message)));
    }

    /// Counts and the critical path of a graph.
    pub(crate) fn graph(&self, graph: &TaskGraph) {
        self.status.send_modify(|status| {
            status.total_tasks = graph.tasks().len();
            status.completed_tasks = graph
                .tasks()
                .iter()
                .filter(|task| task.state == TaskState::Completed)
                .count();
            status.critical_path_tokens = graph.critical_path().expected_tokens().round() as u64;
            status.current_task = graph
                .tasks()
                .iter()
                .find(|task| task.state == TaskState::Running)
                .map(|task| task.description.clone());
        });
    }

    /// A plan was accepted, or changed (PLN-05).
    pub(crate) fn planned(&self, graph: &TaskGraph) {
        self.graph(graph);
        let tasks = graph
            .tasks()
            .iter()
            .map(|task| PlannedTaskView {
                id: task.id.to_string(),
                description: task.description.clone(),
                depends_on: task.dependencies.iter().map(ToString::to_string).collect(),
                expected_tokens: task.estimate.expected(),
                required_tools: task
                    .required_tools
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                state: task.state.as_str(),
            })
            .collect();
        self.emit(RunEvent::Planned {
            tasks,
            critical_path: graph.critical_path().clone(),
        });
    }

    /// The end; nothing follows.
    pub(crate) fn end(&self, end: RunEnd) {
        self.status.send_modify(|status| {
            if status.state.may_become(end.state) {
                status.state = end.state;
            }
            status.current_task = None;
            if end.problem.is_some() {
                status.last_error = end.problem;
            }
            status.message = end.message;
            status.result = end.result.filter(|_| status.state == RunState::Completed);
        });
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(crate) struct RunEnd {
    pub state: RunState,
    pub problem: Option<(Code, Message)>,
    pub message: Message,
    pub result: Option<String>,
}

impl RunEnd {
    /// It could not be done.
    pub(crate) fn failed(code: Code, message: Message) -> Self {
        let state = Message::new("status.failed").with("code", code);
        Self {
            state: RunState::Failed,
            problem: Some((code, message)),
            message: state,
            result: None,
        }
    }

    /// It was stopped safely.
    pub(crate) fn cancelled(code: Code) -> Self {
        let why = Message::new(code.message_id())
            .with("target", "")
            .with("detail", "");
        Self {
            state: RunState::Cancelled,
            problem: Some((code, why)),
            message: Message::new("status.cancelled"),
            result: None,
        }
    }
}

/// How many runs come first.
pub(crate) fn waiting(before: usize) -> Message {
    Message::new("status.queued").with("count", before)
}

/// The first snapshot of a run.
pub(crate) fn queued(run_id: RunId, session_id: SessionId, before: usize) -> RunStatus {
    RunStatus {
        run_id,
        session_id,
        state: RunState::Queued,
        completed_tasks: 0,
        total_tasks: 0,
        current_task: None,
        token_usage: TokenUsage::default(),
        critical_path_tokens: 0,
        iterations: 0,
        replans: 0,
        last_error: None,
        message: waiting(before),
        result: None,
    }
}
