//! How serving a client ends: in three steps, each of which lets one kind of waiting stop.

use std::convert::Infallible;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// After the end of the input a handler may take this long.
const HANDLERS: Duration = Duration::from_secs(1);
/// After the end of the input replies may take this long to be read, handlers included.
const REPLIES_AFTER_INPUT: Duration = Duration::from_secs(3);
/// After a shutdown replies may take this long to be read.
const REPLIES_AFTER_SHUTDOWN: Duration = Duration::from_secs(1);

/// The three steps. Clones are handles to the same ending.
#[derive(Clone, Default)]
pub(crate) struct Ending {
    input: CancellationToken,
    handlers: CancellationToken,
    output: CancellationToken,
}

impl Ending {
    /// No further request will come. Who waits for news answers with what there is.
    pub(crate) fn no_more_input(&self) {
        self.input.cancel();
    }

    /// Nobody reads our output: there is nothing left to wait for.
    pub(crate) fn client_left(&self) {
        self.input.cancel();
        self.handlers.cancel();
        self.output.cancel();
    }

    /// Resolves when no further request will come.
    pub(crate) async fn input_over(&self) {
        self.input.cancelled().await;
    }

    /// Resolves when a handler must answer without the runtime.
    pub(crate) async fn handlers_over(&self) {
        self.handlers.cancelled().await;
    }

    /// Resolves when replies are given up.
    pub(crate) async fn output_over(&self) {
        self.output.cancelled().await;
    }

    /// Takes the steps at their times once the input is over or `shutdown` is cancelled. To be polled beside the work; it
    /// does not end by itself.
    pub(crate) async fn timing(&self, shutdown: &CancellationToken) -> Infallible {
        let replies = tokio::select! {
            () = shutdown.cancelled() => REPLIES_AFTER_SHUTDOWN,
            () = self.input.cancelled() => {
                tokio::select! {
                    () = shutdown.cancelled() => REPLIES_AFTER_SHUTDOWN,
                    () = tokio::time::sleep(HANDLERS) => REPLIES_AFTER_INPUT - HANDLERS,
                }
            }
        };
        self.input.cancel();
        self.handlers.cancel();
        tokio::time::sleep(replies).await;
        self.output.cancel();
        std::future::pending().await
    }
}
