//! One HTTP exchange: bytes out, status and bounded bytes back.

use super::fault::{BadAnswer, FaultKind, Received};
use super::settings::{OllamaSettings, SettingsProblem};
use reqwest::{Client, Method, Response, header, redirect};
use std::error::Error;
use std::time::Duration;
use url::Url;

/// The largest answer, bytes.
pub(super) const ANSWER_BYTES: usize = 32 << 20;
/// As much of an error's body as is kept, bytes.
pub(super) const ERROR_BYTES: usize = 64 << 10;
/// A second idle connection is of no use: one call at a time.
const IDLE_CONNECTIONS: usize = 1;
/// Ollama closes idle ones later than this.
const IDLE_TIME: Duration = Duration::from_secs(20);

/// Connections to one endpoint. No proxy is asked and no redirect followed: what the configuration names is what we talk to.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    http: Client,
    endpoint: Url,
}

impl Transport {
    pub(super) fn new(settings: &OllamaSettings) -> Result<Self, SettingsProblem> {
        // Someone else may have installed it before; either way there is one afterwards.
        let _already = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .no_proxy()
            .http1_only()
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(settings.connect_timeout)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .pool_idle_timeout(IDLE_TIME);
        if settings.endpoint.scheme() == "http" {
            // Loading this machine's root certificates would cost memory for nothing.
            builder = builder.tls_certs_only([]);
        }
        let http = builder
            .build()
            .map_err(|problem| SettingsProblem::Tls(chain(&problem)))?;
        Ok(Self {
            http,
            endpoint: settings.endpoint.clone(),
        })
    }

    /// Sends one request; `body` is JSON.
    pub(super) async fn exchange(
        &self,
        method: Method,
        path: &[&str],
        body: Option<Vec<u8>>,
    ) -> Result<Vec<u8>, FaultKind> {
        let mut request = self.http.request(method, self.url(path));
        if let Some(body) = body {
            request = request
                .header(header::CONTENT_TYPE, "application/json")
                .body(body);
        }
        let response = request
            .send()
            .await
            .map_err(|problem| FaultKind::Unreachable {
                detail: chain(&problem),
            })?;
        let status = response.status().as_u16();
        let retry_after = retry_after(&response);
        let success = response.status().is_success();
        let limit = if success { ANSWER_BYTES } else { ERROR_BYTES };
        let read = read_up_to(response, limit).await;
        let received = |body: &[u8]| Received {
            status,
            body: String::from_utf8_lossy(body).into_owned(),
            retry_after,
        };
        match read {
            Ok(Body { bytes, more: true }) if success => {
                drop(bytes);
                Err(FaultKind::Bad(BadAnswer::TooLarge, received(b"")))
            }
            Ok(Body { bytes, .. }) if success => Ok(bytes),
            Err(detail) if success => Err(FaultKind::Interrupted { detail }),
            // The status says enough, even where the body broke off.
            Ok(Body { bytes, .. }) => Err(refused(received(&bytes))),
            Err(_) => Err(refused(received(b""))),
        }
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.endpoint.clone();
        url.set_query(None);
        url.set_fragment(None);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("api").extend(path);
        }
        url
    }
}

fn refused(received: Received) -> FaultKind {
    FaultKind::Refused(
        super::classify::refusal(received.status, &received.body),
        received,
    )
}

struct Body {
    bytes: Vec<u8>,
    /// There was more than the limit.
    more: bool,
}

async fn read_up_to(mut response: Response, limit: usize) -> Result<Body, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|problem| chain(&problem))? {
        let room = limit - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok(Body { bytes, more: true });
        }
    }
    Ok(Body { bytes, more: false })
}

/// Only the form in seconds; a date would need a clock.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// An error with its causes; the outermost one alone never says what happened.
fn chain(problem: &dyn Error) -> String {
    let mut text = problem.to_string();
    let mut cause = problem.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
