//! The pauses between repetitions (OLL-12, DESIGN §16.3): 250, 500 and 1000 ms and no framework.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// How a pause is spent. Injected, because no test sleeps to be right.
pub type Pause = Arc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Three fixed pauses. A server's `Retry-After` is reported and does not change them (DESIGN §16.3 fixes them).
#[derive(Clone)]
pub struct Backoff {
    pause: Pause,
}

impl Backoff {
    /// Before the second, third and fourth attempt.
    pub const PAUSES: [Duration; 3] = [
        Duration::from_millis(250),
        Duration::from_millis(500),
        Duration::from_millis(1000),
    ];

    /// Waits for real.
    pub fn standard() -> Self {
        Self::with_pause(Arc::new(|length| Box::pin(tokio::time::sleep(length))))
    }

    /// Waits as `pause` does.
    pub fn with_pause(pause: Pause) -> Self {
        Self { pause }
    }

    /// The pause after that many repetitions; nothing when they are used up.
    pub(super) fn after(
        &self,
        repetitions: usize,
    ) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        Self::PAUSES
            .get(repetitions)
            .map(|length| (self.pause)(*length))
    }
}

impl std::fmt::Debug for Backoff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backoff").finish_non_exhaustive()
    }
}
