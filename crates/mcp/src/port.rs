//! The only door to the runtime.

use crate::limits::ServerLimits;
use crate::tasks::TaskParts;
use policy::{Localize, Refusal, RunId, SessionId};
use runtime::AgentService;
use runtime::service::{ClientId, RunEvent, RunRequest, RunStatus, Submitted};
use std::sync::Arc;

/// What is served, whatever the transport.
pub struct Served<P> {
    /// The runtime.
    pub service: P,
    /// Texts of the chosen language.
    pub localize: Arc<dyn Localize>,
    /// How much a client may send.
    pub limits: ServerLimits,
    /// Where tasks are kept (DESIGN §5.7); none: the Tasks extension is not offered.
    pub tasks: Option<TaskParts>,
}

/// What the server asks of the runtime. Implemented by the service handle, and by a fake in the tests.
pub trait AgentPort: Send + Sync + 'static {
    /// Queues a run and returns at once (AT-04).
    ///
    /// # Errors
    /// An unknown or closed session, a full queue, a stopping server, a client that is gone already.
    fn submit(
        &self,
        request: RunRequest,
    ) -> impl Future<Output = Result<Submitted, Refusal>> + Send;

    /// What a run has come to (MCP-STS-01); checks the session when one is named (MCP-STS-02).
    ///
    /// # Errors
    /// `task.not_found`, `task.session_mismatch`.
    fn status(
        &self,
        run: RunId,
        session: Option<SessionId>,
    ) -> impl Future<Output = Result<RunStatus, Refusal>> + Send;

    /// Stops a run safely and returns when it is over and clean. One that is over stays as it is.
    ///
    /// # Errors
    /// `task.not_found`.
    fn cancel(&self, run: RunId) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Resolves when a run is over, with what it came to; with nothing where it is not known, or the runtime is gone.
    fn ended(&self, run: RunId) -> impl Future<Output = Option<RunStatus>> + Send;

    /// Stops every run of the client safely and returns when nothing of them is left (REC-04, DESIGN §16.2). A submit of
    /// that client which arrives later is refused.
    fn client_gone(&self, client: ClientId) -> impl Future<Output = ()> + Send;
}

impl AgentPort for AgentService {
    async fn submit(&self, request: RunRequest) -> Result<Submitted, Refusal> {
        Self::submit(self, request).await
    }

    async fn status(&self, run: RunId, session: Option<SessionId>) -> Result<RunStatus, Refusal> {
        Self::status(self, run, session).await
    }

    async fn cancel(&self, run: RunId) -> Result<(), Refusal> {
        Self::cancel(self, run).await
    }

    async fn ended(&self, run: RunId) -> Option<RunStatus> {
        let mut events = self.subscribe(run).await;
        while let Some(event) = events.recv().await {
            if let RunEvent::Finished(status) = event {
                return Some(*status);
            }
        }
        None
    }

    async fn client_gone(&self, client: ClientId) {
        Self::client_gone(self, client).await;
    }
}
