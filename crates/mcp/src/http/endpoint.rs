//! One request, from its head to its answer.

use super::answer::{self, Answer};
use super::body::{self, BodyFault, BodyLimits, LARGE_BODIES};
use super::requests::{RequestLog, cut};
use super::{HttpLimits, head, plain};
use crate::message::{self, Reading};
use ::http::header::{ACCEPT, EXPECT, HeaderValue};
use ::http::{Request, StatusCode, request};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use record::logs::HttpRecord;
use rmcp::ServerHandler;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetMeta, JsonRpcMessage};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokio::sync::Semaphore;

/// What the SDK asks of `Accept`. We judged the client's own.
const ACCEPTED: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Everything the connections share.
pub(super) struct Endpoint<H: ServerHandler> {
    sdk: StreamableHttpService<H, NeverSessionManager>,
    body: BodyLimits,
    large: Semaphore,
    log: Option<RequestLog>,
    local: SocketAddr,
}

/// What the log tells of a request beside its head.
#[derive(Default)]
struct Told {
    bytes: u64,
    method: Option<String>,
    name: Option<String>,
    revision: Option<String>,
}

impl<H: ServerHandler + Clone> Endpoint<H> {
    pub(super) fn new(
        handler: H,
        max_body_bytes: u64,
        limits: HttpLimits,
        log: Option<RequestLog>,
        local: SocketAddr,
    ) -> Self {
        let any_port = |scheme: &str, host: &str| format!("{scheme}://{host}:*");
        let origins = ["localhost", "127.0.0.1", "[::1]"]
            .iter()
            .flat_map(|host| [any_port("http", host), any_port("https", host)]);
        // `head` judged both headers already, more strictly; the SDK looks again.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_allowed_origins(origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(usize::try_from(max_body_bytes).unwrap_or(usize::MAX));
        Self {
            sdk: StreamableHttpService::new(
                move || Ok(handler.clone()),
                Arc::new(NeverSessionManager::default()),
                config,
            ),
            body: BodyLimits {
                bytes: max_body_bytes,
                time: limits.body,
            },
            large: Semaphore::new(LARGE_BODIES),
            log,
            local,
        }
    }

    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
        work: impl FnOnce(),
    ) -> Answer {
        let (at, start) = (SystemTime::now(), Instant::now());
        let (head, body) = request.into_parts();
        let mut told = Told::default();
        let logged = self
            .log
            .as_ref()
            .map(|log| (log, cut(head.method.as_str()), cut(head.uri.path())));
        let answer = self.judge_and_serve(head, body, &mut told, work).await;
        if let Some((log, method, path)) = logged {
            log.note(HttpRecord {
                at,
                peer,
                local: self.local,
                method,
                path,
                status: answer.status().as_u16(),
                duration: start.elapsed(),
                request_bytes: told.bytes,
                response_bytes: answer.body().size_hint().exact().unwrap_or(0),
                mcp_method: told.method,
                mcp_name: told.name,
                mcp_revision: told.revision,
            });
        }
        answer
    }

    /// `work` is called when the client has sent everything and waits for us.
    async fn judge_and_serve(
        &self,
        mut head: request::Parts,
        body: Incoming,
        told: &mut Told,
        work: impl FnOnce(),
    ) -> Answer {
        if let Err(rejected) = head::judge(&head) {
            return answer::rejected(&rejected);
        }
        let waits = head.headers.contains_key(EXPECT);
        let whole = match body::read(body, waits, self.body, &self.large).await {
            Ok(whole) => whole,
            Err(fault) => return refused(&fault),
        };
        work();
        told.bytes = whole.bytes.len() as u64;
        match message::read(&whole.bytes) {
            Reading::Message(message) => told.note(&message, &head),
            Reading::Refused(reply) => return answer::message(StatusCode::BAD_REQUEST, &reply),
            Reading::Nothing => {
                return answer::invalid(
                    StatusCode::BAD_REQUEST,
                    "this is not a JSON-RPC 2.0 message",
                );
            }
        }
        head.headers.insert(ACCEPT, ACCEPTED);
        let permit = whole.permit;
        let request = Request::from_parts(head, Full::new(Bytes::from(whole.bytes)));
        let answer = plain::plain(self.sdk.handle(request).await).await;
        drop(permit);
        answer
    }
}

impl Told {
    fn note(&mut self, message: &ClientJsonRpcMessage, head: &request::Parts) {
        let in_header = || {
            let value = head.headers.get("mcp-protocol-version")?;
            Some(cut(value.to_str().ok()?))
        };
        match message {
            JsonRpcMessage::Request(request) => {
                self.method = Some(cut(request.request.method()));
                self.revision = request
                    .request
                    .get_meta()
                    .protocol_version()
                    .map(|revision| cut(revision.as_str()))
                    .or_else(in_header);
                match &request.request {
                    ClientRequest::CallToolRequest(call) => {
                        self.name = Some(cut(&call.params.name));
                    }
                    ClientRequest::InitializeRequest(hello) => {
                        self.revision = Some(cut(hello.params.protocol_version.as_str()));
                    }
                    _ => {}
                }
            }
            JsonRpcMessage::Notification(_) => {
                self.method = Some("notification".to_owned());
                self.revision = in_header();
            }
            _ => {}
        }
    }
}

fn refused(fault: &BodyFault) -> Answer {
    match fault {
        BodyFault::TooLarge => answer::last(answer::invalid(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is larger than this server takes (mcp.images.max_total_bytes)",
        )),
        BodyFault::TooSlow => answer::last(answer::text(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not come in time",
        )),
        BodyFault::Busy => answer::last(answer::text(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many large requests at a time; try again",
        )),
        BodyFault::Broken => answer::last(answer::text(
            StatusCode::BAD_REQUEST,
            "the body cannot be read",
        )),
    }
}
