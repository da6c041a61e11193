//! One run, from its plan to its answer.

use crate::board::{Board, RunEnd};
use crate::ollama::OllamaClient;
use crate::parts::{RunLimits, RuntimeParts};
use crate::service::RunRequest;
use crate::session::SessionContext;
use crate::stop::Stop;
use policy::{Blame, Code, EffectivePolicy, Fault, Message, RunId, SessionId, TraceId};
use std::sync::Arc;

/// What every run shares; nothing in it changes.
pub(crate) struct Engine {
    parts: RuntimeParts,
    #[expect(dead_code, reason = "the loop follows")]
    client: OllamaClient,
}

impl Engine {
    /// # Errors
    /// `configuration.invalid`.
    pub(crate) fn new(parts: RuntimeParts) -> Result<Self, Fault> {
        let (settings, backoff) = (parts.model.settings.clone(), parts.model.backoff.clone());
        let client = OllamaClient::with_backoff(settings, backoff).map_err(|problem| {
            Fault::new(
                Blame::Configuration,
                Code::ConfigurationInvalid,
                "ollama",
                problem,
            )
        })?;
        Ok(Self { parts, client })
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

pub(crate) async fn execute(_engine: Arc<Engine>, job: Job) -> Ending {
    let message = Message::new(Code::Internal.message_id());
    job.board.end(RunEnd::failed(Code::Internal, message));
    Ending {
        board: job.board,
        session: job.session,
    }
}
