//! MCP over standard input and output (MCP-TR-01): one client, from the first line to the end of its input.
//!
//! ```text
//! stdin ─ lines ─ message ─ lifecycle ─▶ SDK ─▶ handler      (transport::LineTransport owns the way in)
//! stdout ◀──── output task ◀──────────── SDK ◀──┘            (output::Output owns the way out)
//! ```

mod lifecycle;
mod lines;
mod output;
mod transport;

use crate::ending::Ending;
use crate::port::{AgentPort, Served};
use crate::server::AgentServer;
use rmcp::service::{QuitReason, ServerInitializeError, serve_server_with_ct};
use runtime::service::ClientId;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// The one client of a stdio server.
pub const STDIO_CLIENT: ClientId = ClientId(1);

/// Why serving ended. Nothing is wrong in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeEnd {
    /// The client closed its end: no more input, or nobody reads the output.
    ClientGone,
    /// `shutdown` was cancelled.
    Shutdown,
}

/// Serving failed for a reason that is ours.
#[derive(Debug, thiserror::Error)]
pub enum McpFault {
    /// The protocol loop panicked.
    #[error("the protocol loop ended unexpectedly: {0}")]
    Loop(#[from] tokio::task::JoinError),
    /// The SDK gave up before it had chosen a lifecycle.
    #[error("the protocol could not be started: {0}")]
    Start(Box<ServerInitializeError>),
}

/// Serves one client until its input ends, its output is closed, or `shutdown` is cancelled.
///
/// Everything that came in before the end of the input is answered. Then the client's runs are stopped safely
/// (DESIGN §16.2), and only then this returns; in every case, a fault included. Replies get 3 s after the end of the input
/// (1 s after `shutdown`), so that a client which does not read cannot keep its runs alive.
///
/// `stdin` and `stdout` are usually tokio's: those block a thread each, so end the runtime with `shutdown_background`.
///
/// # Errors
/// A panic in the protocol loop, or an SDK failure before the first request. Nothing a client sends leads to one.
pub async fn serve_stdio<R, W>(
    served: Served<impl AgentPort>,
    stdin: R,
    stdout: W,
    shutdown: CancellationToken,
) -> Result<ServeEnd, McpFault>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let ending = Ending::default();
    let (output, writer) = output::open(stdout, ending.clone());
    let transport =
        transport::LineTransport::new(stdin, served.limits.max_line_bytes, output, ending.clone());
    let server = AgentServer::new(served, STDIO_CLIENT, ending.clone());
    let ended = server.clone();
    // A child token, because the SDK cancels the one it is given when it ends.
    let protocol = speak(server, transport, shutdown.child_token());
    let work = async {
        let end = protocol.await;
        ending.no_more_input();
        if let Err(panic) = writer.await {
            tracing::error!(%panic, "the output task panicked");
        }
        end
    };
    let end = tokio::select! {
        end = work => end,
        never = ending.timing(&shutdown) => match never {},
    };
    ended.client_gone().await;
    end.map(|()| {
        if shutdown.is_cancelled() {
            ServeEnd::Shutdown
        } else {
            ServeEnd::ClientGone
        }
    })
}

async fn speak<P, R>(
    server: AgentServer<P>,
    transport: transport::LineTransport<R>,
    stop: CancellationToken,
) -> Result<(), McpFault>
where
    P: AgentPort,
    R: AsyncRead + Send + Unpin + 'static,
{
    let running = match serve_server_with_ct(server, transport, stop).await {
        Ok(running) => running,
        // The input ended, or we were stopped, before a lifecycle was chosen: that is no failure (M-2).
        Err(
            ServerInitializeError::ConnectionClosed(_)
            | ServerInitializeError::Cancelled
            | ServerInitializeError::TransportError { .. },
        ) => return Ok(()),
        Err(error) => return Err(McpFault::Start(Box::new(error))),
    };
    match running.waiting().await? {
        QuitReason::JoinError(error) => Err(McpFault::Loop(error)),
        // Closed or cancelled.
        _ => Ok(()),
    }
}
