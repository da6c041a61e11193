//! `agent-mcp serve`: the MCP server. Stdout is for the protocol and nothing else (SEC-INV-12).

mod http;
mod ready;

use super::opening::{Opened, open_applied};
use crate::cli::{ServeArgs, Transport};
use crate::compose::compose;
use crate::deployment::Narrowing;
use crate::exit;
use crate::terminal::Terminal;
use mcp::Served;
use policy::config::Transport as Configured;
use policy::{Blame, Code, Fault};
use ready::State;
use runtime::AgentService;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often a dead parent is looked for; end of input normally comes first.
const PARENT_INTERVAL: Duration = Duration::from_millis(500);

/// Does it.
pub fn run(arguments: &ServeArgs) -> u8 {
    let (Opened { deployment, locale }, watch) =
        match open_applied(&arguments.common, &Narrowing::default()) {
            Ok(opened) => opened,
            Err(code) => return code,
        };
    let locale: Arc<crate::locale::Locale> = Arc::new(locale);
    let terminal = Terminal::new(locale.as_ref());
    let http = match arguments.transport {
        Some(transport) => transport == Transport::Http,
        None => deployment
            .config
            .as_ref()
            .is_some_and(|config| config.mcp.transport == Configured::Http),
    };
    let limits = deployment
        .config
        .as_ref()
        .map(mcp_limits)
        .unwrap_or_default();
    // Preflight first: what cannot be confined is not served (DESIGN §5.8).
    let backend = crate::compose::backend();
    match backend
        .survey(&deployment.policy)
        .map_err(|error| crate::compose::sandbox_fault(&error))
    {
        Err(fault) => {
            terminal.fault(&fault);
            return exit::SANDBOX;
        }
        Ok(enforcement) => {
            if let Err(refusal) = enforcement.permit(&deployment.policy) {
                terminal.refusal(&refusal);
                return exit::SANDBOX;
            }
        }
    }
    let composed = match compose(&deployment, locale.as_ref(), Arc::new(watch)) {
        Ok(composed) => composed,
        Err(fault) => {
            terminal.fault(&fault);
            return exit::of(fault.code);
        }
    };
    let tokio = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(tokio) => tokio,
        Err(error) => {
            terminal.fault(&Fault::new(Blame::Machine, Code::Internal, "tokio", error));
            return exit::FAILED;
        }
    };
    let code = tokio.block_on(async {
        let running = match composed.start() {
            Ok(running) => running,
            Err(fault) => {
                terminal.fault(&fault);
                return exit::of(fault.code);
            }
        };
        let shutdown = CancellationToken::new();
        tokio::spawn(stop_on_signal(shutdown.clone()));
        let tasks = deployment
            .config
            .as_ref()
            .map(|config| running.tasks(&config.mcp.tasks));
        let served = match tasks.transpose() {
            Ok(tasks) => {
                let served = Served {
                    service: running.service(),
                    localize: locale.clone(),
                    limits,
                    tasks,
                };
                match (&deployment.config, http) {
                    (Some(config), true) => {
                        http::serve(&running, &deployment, config, served, shutdown).await
                    }
                    _ => serve_stdio(served, shutdown).await,
                }
            }
            Err(fault) => Err(fault),
        };
        let stopped = running.stop().await;
        match served.and(stopped) {
            Ok(()) => exit::OK,
            Err(fault) => {
                terminal.fault(&fault);
                exit::of(fault.code)
            }
        }
    });
    // A read of standard input may still be blocked in its thread; it must not hold the process.
    tokio.shutdown_background();
    code
}

/// Serves the one client of standard input and output until it is gone or `shutdown`.
async fn serve_stdio(
    served: Served<AgentService>,
    shutdown: CancellationToken,
) -> Result<(), Fault> {
    // Only here: whoever started an HTTP server may go, because its clients are others.
    tokio::spawn(stop_without_parent(shutdown.clone()));
    tracing::info!("ready");
    ready::notify(State::Ready);
    let served = mcp::serve_stdio(served, tokio::io::stdin(), tokio::io::stdout(), shutdown).await;
    ready::notify(State::Stopping);
    served
        .map(drop)
        .map_err(|error| Fault::new(Blame::Client, Code::RequestInvalid, "stdio", error))
}

/// `agent_status` answers at once: how often to ask is the client's business (P-5).
fn mcp_limits(config: &policy::config::Config) -> mcp::ServerLimits {
    mcp::ServerLimits {
        status_wait: Duration::ZERO,
        ..mcp::ServerLimits::from_images(&config.mcp.images)
    }
}

async fn stop_on_signal(shutdown: CancellationToken) {
    crate::interrupt::asked_to_stop().await;
    shutdown.cancel();
}

/// A client that died without closing our input leaves us with another parent (REC-04).
async fn stop_without_parent(shutdown: CancellationToken) {
    #[cfg(unix)]
    {
        let parent = std::os::unix::process::parent_id();
        let mut interval = tokio::time::interval(PARENT_INTERVAL);
        loop {
            interval.tick().await;
            if std::os::unix::process::parent_id() != parent {
                shutdown.cancel();
                return;
            }
        }
    }
    #[cfg(not(unix))]
    drop(shutdown);
}
