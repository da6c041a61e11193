//! Pauses that are written down instead of waited for.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Every pause that was asked for, in order.
#[derive(Clone, Debug, Default)]
pub struct PauseLog(Arc<Mutex<Vec<Duration>>>);

impl PauseLog {
    /// A pause that ends at once and is written down.
    #[expect(
        clippy::type_complexity,
        reason = "the runtime names this type; testkit knows nothing of the runtime"
    )]
    pub fn pause(
        &self,
    ) -> Arc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync> {
        let log = Arc::clone(&self.0);
        Arc::new(move |length| {
            log.lock().expect("no test panics here").push(length);
            Box::pin(std::future::ready(()))
        })
    }

    /// In milliseconds.
    pub fn milliseconds(&self) -> Vec<u128> {
        let log = self.0.lock().expect("no test panics here");
        log.iter().map(Duration::as_millis).collect()
    }
}
