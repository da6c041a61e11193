//! The only door to the runtime.

use policy::{Refusal, RunId, SessionId};
use runtime::AgentService;
use runtime::service::{ClientId, RunRequest, RunStatus, Submitted};

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

    async fn client_gone(&self, client: ClientId) {
        Self::client_gone(self, client).await;
    }
}
