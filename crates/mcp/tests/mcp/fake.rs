//! A runtime that remembers what it was asked and answers what a test told it to.

use mcp::AgentPort;
use policy::{Code, Message, Refusal, RunId, SessionId};
use runtime::service::{ClientId, RunRequest, RunState, RunStatus, Submitted, TokenUsage};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) runs: HashMap<RunId, RunStatus>,
    pub(crate) submitted: Vec<RunRequest>,
    pub(crate) gone: Vec<ClientId>,
    pub(crate) cancelled: Vec<RunId>,
    /// What every submit is refused with.
    pub(crate) refuse: Option<Refusal>,
    /// How long the runtime takes for each answer.
    pub(crate) delay: Duration,
    pub(crate) asked: usize,
    /// Submits that were begun.
    pub(crate) began: usize,
}

/// Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>, Arc<watch::Sender<()>>);

impl Fake {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    /// Wakes who waits for an end.
    pub(crate) fn changed(&self) {
        self.1.send_replace(());
    }

    /// Ends a run as the runtime would.
    pub(crate) fn end(&self, run: RunId, state: RunState, result: &str) {
        self.with(|known| {
            let status = known.runs.get_mut(&run).unwrap();
            status.state = state;
            status.result = Some(result.to_owned());
        });
        self.changed();
    }

    /// A run as the runtime would show it after planning.
    pub(crate) fn add(&self, change: impl FnOnce(&mut RunStatus)) -> RunStatus {
        let mut status = queued();
        change(&mut status);
        self.with(|state| state.runs.insert(status.run_id, status.clone()));
        status
    }
}

pub(crate) fn queued() -> RunStatus {
    RunStatus {
        run_id: RunId::random(),
        session_id: SessionId::random(),
        state: RunState::Queued,
        completed_tasks: 0,
        total_tasks: 0,
        current_task: None,
        token_usage: TokenUsage::default(),
        critical_path_tokens: 0,
        iterations: 0,
        replans: 0,
        last_error: None,
        message: Message::new("run.queued"),
        result: None,
    }
}

impl AgentPort for Fake {
    async fn submit(&self, request: RunRequest) -> Result<Submitted, Refusal> {
        self.with(|state| state.began += 1);
        tokio::time::sleep(self.with(|state| state.delay)).await;
        self.with(|state| {
            let session = request.session_id;
            state.submitted.push(request);
            if let Some(refusal) = &state.refuse {
                return Err(refusal.clone());
            }
            let status = queued();
            let submitted = Submitted {
                run_id: status.run_id,
                session_id: session.unwrap_or(status.session_id),
            };
            state.runs.insert(
                status.run_id,
                RunStatus {
                    session_id: submitted.session_id,
                    ..status
                },
            );
            Ok(submitted)
        })
    }

    async fn status(&self, run: RunId, session: Option<SessionId>) -> Result<RunStatus, Refusal> {
        tokio::time::sleep(self.with(|state| state.delay)).await;
        self.with(|state| {
            state.asked += 1;
            let status = state.runs.get(&run).cloned();
            let status = status
                .ok_or_else(|| Refusal::new(Code::TaskNotFound, "task_id", run.to_string()))?;
            if session.is_some_and(|session| session != status.session_id) {
                return Err(Refusal::new(
                    Code::TaskSessionMismatch,
                    "session_id",
                    run.to_string(),
                ));
            }
            Ok(status)
        })
    }

    async fn cancel(&self, run: RunId) -> Result<(), Refusal> {
        self.with(|state| {
            state.cancelled.push(run);
            match state.runs.get_mut(&run) {
                Some(status) => status.state = RunState::Cancelled,
                None => {
                    return Err(Refusal::new(Code::TaskNotFound, "task_id", run.to_string()));
                }
            }
            Ok(())
        })?;
        self.changed();
        Ok(())
    }

    async fn ended(&self, run: RunId) -> Option<RunStatus> {
        let mut changes = self.1.subscribe();
        loop {
            let status = self.with(|state| state.runs.get(&run).cloned())?;
            if status.state.is_terminal() {
                return Some(status);
            }
            changes.changed().await.ok()?;
        }
    }

    async fn client_gone(&self, client: ClientId) {
        self.with(|state| {
            state.gone.push(client);
            for status in state.runs.values_mut() {
                if !status.state.is_terminal() {
                    status.state = RunState::Cancelled;
                }
            }
        });
        self.changed();
    }
}
