//! Serving over Streamable HTTP (MCP-TR-02, DESIGN §5.1, §5.8).

use super::ready::{self, State};
use crate::compose::Running;
use crate::deployment::Deployment;
use crate::terminal::Terminal;
use mcp::http::{ENDPOINT, RequestEntries, RequestLog, request_log};
use mcp::{BindFault, HttpLimits, HttpServer, Served};
use policy::config::Config;
use policy::{Blame, Code, Fault, Message};
use record::AtomicFile;
use record::logs::HttpLog;
use runtime::AgentService;
use serde::Serialize;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Where a client finds this instance, in the instance's directory while it serves.
const PUBLISHED: &str = "http.json";

/// File descriptors that are kept for everything but connections.
const OTHER_FILES: u64 = 256;
/// File descriptors that are enough.
const ENOUGH_FILES: u64 = 4096;

#[derive(Serialize)]
struct Published {
    url: String,
    pid: u32,
}

/// Opens the port, says where it is, and serves until `shutdown`.
///
/// # Errors
/// `http.port_unavailable`, `state.unusable`. A client leads to none.
pub async fn serve(
    running: &Running,
    deployment: &Deployment,
    config: &Config,
    served: Served<AgentService>,
    shutdown: CancellationToken,
) -> Result<(), Fault> {
    let (log, writer) = match running.http_log(config, deployment)? {
        Some(file) => {
            let (log, entries) = request_log();
            (Some(log), Some(write(file, entries)?))
        }
        None => (None, None),
    };
    let outcome = open_and_serve(running, config, served, log, shutdown).await;
    // The last sender is gone, so the writer ends after what is waiting.
    if let Some(writer) = writer
        && writer.join().is_err()
    {
        tracing::error!("the HTTP log's writer panicked");
    }
    outcome
}

async fn open_and_serve(
    running: &Running,
    config: &Config,
    served: Served<AgentService>,
    log: Option<RequestLog>,
    shutdown: CancellationToken,
) -> Result<(), Fault> {
    let http = HttpLimits {
        connections: connections(),
        ..HttpLimits::default()
    };
    let address = SocketAddr::new(config.mcp.http.host, config.mcp.http.port);
    let server = HttpServer::bind(address).map_err(|error| unavailable(address, &error))?;
    let url = format!("http://{}{ENDPOINT}", server.address());
    let published = publish(running, &url)?;
    Terminal::new(served.localize.as_ref())
        .warn(&Message::new("serve.http_ready").with("url", &url));
    tracing::info!("ready");
    ready::notify(State::Ready);
    server.serve(served, http, log, shutdown).await;
    ready::notify(State::Stopping);
    if let Err(error) = published.remove() {
        tracing::warn!(%error, "the published address cannot be removed");
    }
    Ok(())
}

fn unavailable(address: SocketAddr, error: &BindFault) -> Fault {
    let blame = match error {
        BindFault::NotLoopback(_) => Blame::Configuration,
        BindFault::InUse(_) | BindFault::Refused(..) => Blame::Machine,
    };
    Fault::new(blame, Code::HttpPortUnavailable, address.to_string(), error)
}

fn publish(running: &Running, url: &str) -> Result<AtomicFile, Fault> {
    let published = Published {
        url: url.to_owned(),
        pid: std::process::id(),
    };
    let write = || {
        let file = running.instance().file(PUBLISHED)?;
        file.write_json(&published)?;
        Ok(file)
    };
    write().map_err(|error: record::StateError| {
        let directory = running.instance().directory().display().to_string();
        Fault::because(Blame::Machine, error.code(), directory, error)
    })
}

/// As many connections as there are file descriptors to spare, after taking more of them where we may.
fn connections() -> usize {
    let most = HttpLimits::default().connections;
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let wanted = ENOUGH_FILES.min(limit.maximum.unwrap_or(u64::MAX));
        let current = limit.current.unwrap_or(u64::MAX);
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        let files = if current < wanted && setrlimit(Resource::Nofile, raised).is_ok() {
            wanted
        } else {
            current
        };
        let spare = files.saturating_sub(OTHER_FILES).max(files / 2);
        most.min(usize::try_from(spare).unwrap_or(usize::MAX))
    }
    #[cfg(not(unix))]
    most
}

/// The only writer of the HTTP log, in a thread of its own: no request waits for a disk.
fn write(mut file: HttpLog, mut entries: RequestEntries) -> Result<JoinHandle<()>, Fault> {
    let writer = std::thread::Builder::new()
        .name("http-log".to_owned())
        .spawn(move || {
            let mut broken = false;
            while let Some((record, dropped)) = entries.wait() {
                tracing::debug!(
                    peer = %record.peer,
                    method = record.method,
                    path = record.path,
                    status = record.status,
                    "http"
                );
                if dropped > 0 {
                    tracing::warn!(
                        dropped,
                        "HTTP log entries were dropped: the disk is slower than the clients"
                    );
                }
                match file.append(&record) {
                    Ok(()) => broken = false,
                    Err(error) => {
                        // Once, not for every request.
                        if !broken {
                            tracing::warn!(%error, "the HTTP log cannot be written");
                        }
                        broken = true;
                    }
                }
            }
            let dropped = entries.dropped();
            if dropped > 0 {
                tracing::warn!(dropped, "HTTP log entries were dropped at the end");
            }
        });
    writer.map_err(|error| Fault::new(Blame::Machine, Code::Internal, "http-log", error))
}
