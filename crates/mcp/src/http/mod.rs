//! MCP over Streamable HTTP on loopback (MCP-TR-02): stateless, JSON only, one endpoint.
//!
//! ```text
//! accept ─ connections ─ hyper ─ head ─ body ─ message ─▶ SDK ─▶ handler
//!                                  │      │       │        │
//!                                  └──────┴───────┴────────┴──▶ answer, then one entry of the request log
//! ```
//!
//! The SDK does the protocol. Here is what it leaves open: who may connect (loopback, `Host`, `Origin`: M-8), how long and how
//! large a request may be, what is answered to a body that is no message (M-6), and that no answer is ever a stream (M-9,
//! MCP-TR-04). There is no event stream to open, no session to end, and no other endpoint (MCP-TR-03).

mod answer;
mod body;
mod connections;
mod endpoint;
mod head;
mod plain;
mod requests;
mod stall;

use crate::ending::Ending;
use crate::limits::ServerLimits;
use crate::port::{AgentPort, Served};
use crate::server::AgentServer;
use rmcp::ServerHandler;
use runtime::service::ClientId;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use requests::{RequestEntries, RequestLog, request_log};

/// Every client of an HTTP server. Requests name no client, so runs belong to the server: only its stop ends them all
/// (REC-05, X-HTTP).
pub const HTTP_CLIENT: ClientId = ClientId(2);

/// The one endpoint.
pub const ENDPOINT: &str = "/mcp";

/// How many and how slow clients may be. What one of them exceeds costs only that one.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Open connections. One more takes the place of the one that has kept us waiting longest.
    pub connections: usize,
    /// From the start of a connection, or the end of the last answer, to the end of the next request's head.
    pub head: Duration,
    /// For a body up to 64 KiB. Larger ones get a second more for each 4 MiB of the limit.
    pub body: Duration,
    /// How long a client may read nothing of an answer that it was sent.
    pub stall: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            head: Duration::from_secs(30),
            body: Duration::from_secs(10),
            stall: Duration::from_secs(10),
        }
    }
}

/// Why a port cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BindFault {
    /// Only loopback is served (ST-22).
    #[error("{0} is not a loopback address")]
    NotLoopback(SocketAddr),
    /// Another program listens there.
    #[error("{0} is in use")]
    InUse(SocketAddr),
    /// The system's refusal.
    #[error("{0}: {1}")]
    Refused(SocketAddr, io::Error),
}

/// A bound port. Clients can connect from now on; they are answered once it serves.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl HttpServer {
    /// Takes the port, 0 for any free one.
    ///
    /// # Errors
    /// Any address but 127.0.0.1 and ::1, whatever the configuration let pass; a port that is in use.
    pub fn bind(address: SocketAddr) -> Result<Self, BindFault> {
        if !head::is_loopback(address.ip()) {
            return Err(BindFault::NotLoopback(address));
        }
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => BindFault::InUse(address),
            _ => BindFault::Refused(address, error),
        };
        let listener = connections::listen(address).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is cancelled. Then no connection is taken any more, requests that came in are answered
    /// within 2 s, every run is stopped safely, and only then this returns (DESIGN §16.1).
    pub async fn serve(
        self,
        served: Served<impl AgentPort>,
        http: HttpLimits,
        log: Option<RequestLog>,
        shutdown: CancellationToken,
    ) {
        let ending = Ending::default();
        // Waiting for news would keep a connection busy for nothing: each request stands alone.
        let limits = ServerLimits {
            status_wait: Duration::ZERO,
            ..served.limits
        };
        let served = Served { limits, ..served };
        let server = AgentServer::new(served, HTTP_CLIENT, ending.clone());
        let ended = server.clone();
        self.serve_handler(server, limits, http, log, ending, shutdown)
            .await;
        ended.client_gone().await;
    }

    /// The same stack in front of another handler than ours: what the conformance suite's fixture is served with.
    /// Returns when `shutdown` is cancelled and what came in is answered.
    pub async fn serve_other<H: ServerHandler + Clone>(
        self,
        handler: H,
        limits: ServerLimits,
        http: HttpLimits,
        shutdown: CancellationToken,
    ) {
        self.serve_handler(handler, limits, http, None, Ending::default(), shutdown)
            .await;
    }

    /// The transport stack by itself.
    async fn serve_handler<H: ServerHandler + Clone>(
        self,
        handler: H,
        limits: ServerLimits,
        http: HttpLimits,
        log: Option<RequestLog>,
        ending: Ending,
        shutdown: CancellationToken,
    ) {
        let endpoint = Arc::new(endpoint::Endpoint::new(
            handler,
            limits.max_line_bytes,
            http,
            log,
            self.address,
        ));
        let serving = connections::serve(self.listener, endpoint, http, &ending, &shutdown);
        tokio::select! {
            () = serving => {}
            never = ending.timing(&shutdown) => match never {},
        }
    }
}
