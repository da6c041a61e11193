//! Connections: how many, how long, and which one goes when there are too many.

use super::HttpLimits;
use super::endpoint::Endpoint;
use super::stall::StallLimit;
use crate::ending::Ending;
use ::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::ServerHandler;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Connections that the kernel keeps for us until we take them.
const BACKLOG: u32 = 1024;
/// The longest head of a request, bytes; 431 beyond.
const HEAD_BYTES: usize = 32 << 10;
/// The most header lines; 431 beyond.
const HEADERS: usize = 100;
/// What hyper may hold of a connection, bytes.
const BUFFER_BYTES: usize = 64 << 10;
/// After a failed accept, which is a lack of file descriptors or memory.
const BREATH: Duration = Duration::from_millis(50);

pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restart right after a stop takes the same port; two servers at a time cannot.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Takes and serves connections until `shutdown`, then finishes those that are open until replies are given up.
pub(super) async fn serve<H: ServerHandler + Clone>(
    listener: TcpListener,
    endpoint: Arc<Endpoint<H>>,
    limits: HttpLimits,
    ending: &Ending,
    shutdown: &CancellationToken,
) {
    let open = Arc::new(Open::default());
    let mut connections = JoinSet::new();
    let mut number = 0;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = connections.join_next() => {
                report(ended);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be taken");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        number += 1;
        let Some(evicted) = open.take(number, limits.connections) else {
            tracing::debug!("a connection was refused: all are at work");
            continue;
        };
        let connection = Connection {
            number,
            peer,
            open: Arc::clone(&open),
            endpoint: Arc::clone(&endpoint),
        };
        let (ending, shutdown) = (ending.clone(), shutdown.clone());
        connections.spawn(async move {
            tokio::select! {
                () = evicted.cancelled() => tracing::debug!("a waiting connection made room for another"),
                () = ending.output_over() => {}
                () = connection.work(stream, limits, &shutdown) => {}
            }
        });
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(panic) = ended {
        tracing::error!(%panic, "a connection's task panicked");
    }
}

struct Connection<H: ServerHandler> {
    number: u64,
    peer: SocketAddr,
    open: Arc<Open>,
    endpoint: Arc<Endpoint<H>>,
}

impl<H: ServerHandler> Drop for Connection<H> {
    fn drop(&mut self) {
        self.open.lock().remove(&self.number);
    }
}

impl<H: ServerHandler + Clone> Connection<H> {
    async fn work(&self, stream: TcpStream, limits: HttpLimits, shutdown: &CancellationToken) {
        // Answers are small and waited for.
        drop(stream.set_nodelay(true));
        let stream = TokioIo::new(StallLimit::new(stream, limits.stall));
        let service = service_fn(|request: Request<Incoming>| async {
            let answer = self
                .endpoint
                .answer(request, self.peer, || {
                    self.open.set(self.number, State::Working)
                })
                .await;
            self.open.set(self.number, State::Waiting(Instant::now()));
            Ok::<_, Infallible>(answer)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_headers(HEADERS)
            .max_header_size(HEAD_BYTES)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(stream, service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            // A client that left or sent no HTTP. Nothing of what it sent is repeated.
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

#[derive(Clone, Copy)]
enum State {
    /// The client has something to send or to read, since then.
    Waiting(Instant),
    /// We have.
    Working,
}

/// The open connections.
#[derive(Default)]
struct Open {
    connections: Mutex<HashMap<u64, (State, CancellationToken)>>,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (State, CancellationToken)>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection; where there is none, that of the one that has kept us waiting longest. Nothing when all are
    /// at work. The token is cancelled when the place is needed.
    fn take(&self, number: u64, limit: usize) -> Option<CancellationToken> {
        let mut connections = self.lock();
        if connections.len() >= limit {
            let longest = connections
                .iter()
                .filter_map(|(number, (state, _))| match state {
                    State::Waiting(since) => Some((*since, *number)),
                    State::Working => None,
                })
                .min()?
                .1;
            if let Some((_, evicted)) = connections.remove(&longest) {
                evicted.cancel();
            }
        }
        let token = CancellationToken::new();
        connections.insert(number, (State::Waiting(Instant::now()), token.clone()));
        Some(token)
    }

    fn set(&self, number: u64, state: State) {
        if let Some(connection) = self.lock().get_mut(&number) {
            connection.0 = state;
        }
    }
}
