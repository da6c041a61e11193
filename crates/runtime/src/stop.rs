//! Stopping a run safely (DESIGN §16): one token, and why it fired.

use policy::Code;
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// Clones stop the same run. The first reason stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    token: CancellationToken,
    why: Arc<OnceLock<Code>>,
}

impl Stop {
    /// Fires, with `run.cancelled`, `run.client_gone` or `server.stopping`.
    pub(crate) fn fire(&self, why: Code) {
        // A second reason changes nothing: the run is stopping already.
        self.why.get_or_init(|| why);
        self.token.cancel();
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Why it fired, if it did.
    pub(crate) fn fired(&self) -> Option<Code> {
        self.token
            .is_cancelled()
            .then(|| self.why.get().copied().unwrap_or(Code::Cancelled))
    }
}
