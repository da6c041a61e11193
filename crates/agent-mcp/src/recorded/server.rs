//! Ollama's routes on loopback.

use super::answer::{body, done, filled, tokens};
use super::conversation::ChatBody;
use super::recording::{Kind, RecordedModel};
use super::transcript::{Served, Transcript};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

/// The largest request, bytes: images of 20 MiB in base64 and a conversation.
const REQUEST_BYTES: usize = 64 << 20;

/// The version it speaks like, with a mark that it is not that.
const VERSION: &str = "0.33.0-recorded";

/// As much of a prompt as an error repeats, characters.
const PROMPT_CHARACTERS: usize = 400;

/// A recorded model that serves. Dropping it stops it.
#[derive(Debug)]
pub struct RunningModel {
    /// For `ollama.endpoint`.
    pub endpoint: Url,
    /// For `ollama.model`.
    pub model: String,
    /// Cancel it to stop serving; requests that are being answered are finished.
    pub shutdown: CancellationToken,
    /// What was asked.
    pub transcript: Transcript,
    served: JoinHandle<io::Result<()>>,
}

impl RunningModel {
    /// Stops and waits until it has stopped.
    pub async fn stop(mut self) -> io::Result<()> {
        self.shutdown.cancel();
        (&mut self.served).await.map_err(io::Error::other)?
    }

    /// Waits until somebody cancels [`shutdown`](Self::shutdown), for `demo --model-only`.
    pub async fn wait(mut self) -> io::Result<()> {
        (&mut self.served).await.map_err(io::Error::other)?
    }
}

impl Drop for RunningModel {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Serves `model` on `address`; port 0 takes a free one. Any address but loopback is refused.
pub async fn serve(model: RecordedModel, address: SocketAddr) -> io::Result<RunningModel> {
    if !address.ip().is_loopback() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the recorded model listens on loopback only",
        ));
    }
    let listener = TcpListener::bind(address).await?;
    let endpoint =
        Url::parse(&format!("http://{}", listener.local_addr()?)).map_err(io::Error::other)?;
    let (name, transcript, shutdown) = (
        model.name().to_owned(),
        Transcript::default(),
        CancellationToken::new(),
    );
    let stage = Arc::new(Stage {
        model,
        transcript: transcript.clone(),
    });
    let routes = Router::new()
        .route("/", get(async || "Ollama is running (recorded)"))
        .route("/api/chat", post(chat))
        .route("/api/show", post(show))
        .route("/api/tags", get(tags))
        .route("/api/ps", get(ps))
        .route(
            "/api/version",
            get(async || Json(json!({ "version": VERSION }))),
        )
        .layer(DefaultBodyLimit::max(REQUEST_BYTES))
        .with_state(stage);
    let stopped = shutdown.clone().cancelled_owned();
    let served = tokio::spawn(async move {
        axum::serve(listener, routes)
            .with_graceful_shutdown(stopped)
            .await
    });
    Ok(RunningModel {
        endpoint,
        model: name,
        shutdown,
        transcript,
        served,
    })
}

struct Stage {
    model: RecordedModel,
    transcript: Transcript,
}

type Reply = (StatusCode, Json<Value>);

fn error(status: StatusCode, text: impl Into<String>) -> Reply {
    (status, Json(json!({ "error": text.into() })))
}

fn missing(name: &str) -> Reply {
    error(StatusCode::NOT_FOUND, format!("model '{name}' not found"))
}

impl Stage {
    /// Whether a name means this model; `:latest` is understood.
    fn is(&self, name: &str) -> bool {
        let full = |name: &str| {
            if name.contains(':') {
                name.to_owned()
            } else {
                format!("{name}:latest")
            }
        };
        full(name) == full(self.model.name())
    }

    fn can(&self, word: &str) -> bool {
        let first = self.model.recordings.first();
        first.is_some_and(|first| first.recording.capabilities.iter().any(|one| one == word))
    }

    fn line(&self) -> Value {
        let name = self.model.name();
        json!({"name": name, "model": name, "size": 0, "digest": "", "modified_at": "1970-01-01T00:00:00Z",
            "details": {"family": "recorded", "format": "recorded"}})
    }

    fn context_length(&self) -> u64 {
        self.model
            .recordings
            .first()
            .map_or(0, |first| first.recording.context_length)
    }

    /// What Ollama refuses before a model sees it.
    fn refusal(&self, chat: &ChatBody, prompt_tokens: u64) -> Option<Reply> {
        let name = self.model.name();
        if !self.is(&chat.model) {
            return Some(missing(&chat.model));
        }
        if chat.has_images() && !self.can("vision") {
            return Some(error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "image input is not supported by the recorded model",
            ));
        }
        if !chat.tools.is_empty() && !self.can("tools") {
            return Some(error(
                StatusCode::BAD_REQUEST,
                format!("{name} does not support tools"),
            ));
        }
        if !matches!(chat.think, Value::Null | Value::Bool(false)) && !self.can("thinking") {
            return Some(error(
                StatusCode::BAD_REQUEST,
                format!("\"{name}\" does not support thinking"),
            ));
        }
        let context = chat.options["num_ctx"]
            .as_u64()
            .unwrap_or(u64::MAX)
            .min(self.context_length());
        (chat.truncate == Some(false) && prompt_tokens > context)
            .then(|| context_exceeded(prompt_tokens, context))
    }

    /// The answer, and the exchange it comes from.
    fn answer(&self, chat: &ChatBody, prompt_tokens: u64) -> (Option<String>, Reply) {
        if chat.messages.is_empty() {
            return (
                None,
                (StatusCode::OK, Json(done(self.model.name(), "load"))),
            );
        }
        let Some(fit) = chat.fit(&self.model) else {
            return (None, unknown(chat));
        };
        let exchange = Some(fit.exchange.name.clone());
        let answer = filled(&fit.exchange.answer, &fit.values);
        let stranger = answer
            .calls
            .iter()
            .find(|call| !chat.offered().any(|name| name == call.name));
        if let Some(call) = stranger {
            let offered: Vec<&str> = chat.offered().collect();
            let text = format!(
                "recorded model: exchange {:?} calls {:?}, but the request offers only {offered:?}",
                fit.exchange.name, call.name
            );
            return (exchange, error(StatusCode::INTERNAL_SERVER_ERROR, text));
        }
        let body = body(self.model.name(), &answer, prompt_tokens, chat.calls());
        (exchange, (StatusCode::OK, Json(body)))
    }
}

/// A prompt that no recording knows. It says everything a recording could look at.
fn unknown(chat: &ChatBody) -> Reply {
    let prompt = chat.newest_instruction();
    let skipped = prompt.chars().count().saturating_sub(PROMPT_CHARACTERS);
    let end: String = prompt.chars().skip(skipped).collect();
    let text = format!(
        "recorded model: no exchange fits this {} request with {} messages and {} tool results; its newest instruction ends: {end}",
        chat.kind().word(),
        chat.messages.len(),
        chat.results(),
    );
    error(StatusCode::INTERNAL_SERVER_ERROR, text)
}

/// As the server under Ollama says it, a JSON text inside the error text.
fn context_exceeded(prompt_tokens: u64, context: u64) -> Reply {
    let inner = json!({"error": {
        "code": 400,
        "message": "the request exceeds the available context size, try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": prompt_tokens,
        "n_ctx": context,
    }});
    error(StatusCode::BAD_REQUEST, inner.to_string())
}

async fn chat(State(stage): State<Arc<Stage>>, bytes: Bytes) -> Reply {
    let chat: ChatBody = match serde_json::from_slice(&bytes) {
        Ok(chat) => chat,
        Err(problem) => {
            let reply = error(StatusCode::BAD_REQUEST, problem.to_string());
            stage.note(None, None, 0, &reply);
            return reply;
        }
    };
    let prompt_tokens = tokens(chat.prompt_bytes());
    let (exchange, reply) = match stage.refusal(&chat, prompt_tokens) {
        Some(refusal) => (None, refusal),
        None => stage.answer(&chat, prompt_tokens),
    };
    stage.note(Some(chat.kind()), exchange, prompt_tokens, &reply);
    reply
}

impl Stage {
    fn note(
        &self,
        kind: Option<Kind>,
        exchange: Option<String>,
        prompt_tokens: u64,
        (status, Json(body)): &Reply,
    ) {
        let answer_tokens = body["eval_count"].as_u64().unwrap_or(0);
        self.transcript.add(Served {
            kind,
            exchange,
            status: status.as_u16(),
            prompt_tokens,
            answer_tokens,
        });
    }
}

async fn show(State(stage): State<Arc<Stage>>, bytes: Bytes) -> Reply {
    let asked: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let name = asked["model"]
        .as_str()
        .or_else(|| asked["name"].as_str())
        .unwrap_or("");
    if !stage.is(name) {
        return missing(name);
    }
    let capabilities = stage
        .model
        .recordings
        .first()
        .map(|first| &first.recording.capabilities);
    let body = json!({
        "capabilities": capabilities,
        "details": {"family": "recorded", "format": "recorded"},
        "model_info": {"general.architecture": "recorded", "recorded.context_length": stage.context_length()},
    });
    (StatusCode::OK, Json(body))
}

async fn tags(State(stage): State<Arc<Stage>>) -> Json<Value> {
    Json(json!({ "models": [stage.line()] }))
}

async fn ps(State(stage): State<Arc<Stage>>) -> Json<Value> {
    let mut line = stage.line();
    line["context_length"] = json!(stage.context_length());
    line["size_vram"] = json!(0);
    Json(json!({ "models": [line] }))
}
