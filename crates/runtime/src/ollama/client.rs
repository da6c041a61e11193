//! The client itself: one call, its repetitions, its end.

use super::answer::{AnswerNote, ChatAnswer};
use super::fault::{BadAnswer, FaultKind, OllamaFault, Received, Repeat};
use super::info::{self, InstalledModel, LoadedModel, ModelDetails};
use super::payload::{Reader, chat_payload};
use super::read::chat_answer;
use super::request::{ChatRequest, RequestOptions};
use super::retry::Backoff;
use super::settings::{OllamaSettings, SettingsProblem};
use super::transport::Transport;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long the small questions (`show`, `tags`, `version`, `ps`) may take, each.
const QUESTION_DEADLINE: Duration = Duration::from_secs(30);

/// A client of one Ollama server and one model (OLL-01, OLL-07). Cheap to clone.
#[derive(Clone, Debug)]
pub struct OllamaClient {
    settings: OllamaSettings,
    transport: Transport,
    backoff: Backoff,
}

impl OllamaClient {
    /// A client that pauses for real. Opens no connection yet.
    pub fn new(settings: OllamaSettings) -> Result<Self, SettingsProblem> {
        Self::with_backoff(settings, Backoff::standard())
    }

    /// A client with other pauses.
    pub fn with_backoff(
        settings: OllamaSettings,
        backoff: Backoff,
    ) -> Result<Self, SettingsProblem> {
        settings.check()?;
        let transport = Transport::new(&settings)?;
        Ok(Self {
            settings,
            transport,
            backoff,
        })
    }

    /// What it was made from.
    pub fn settings(&self) -> &OllamaSettings {
        &self.settings
    }

    /// `POST /api/chat`, repeated as OLL-12 says. When `cancel` fires the request is dropped at once, which also ends it
    /// at the server.
    pub async fn chat(
        &self,
        request: &ChatRequest,
        cancel: &CancellationToken,
    ) -> Result<ChatAnswer, OllamaFault> {
        let mut progress = Progress::default();
        let ended = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(FaultKind::Cancelled),
            () = tokio::time::sleep(self.settings.deadline) => Err(FaultKind::DeadlinePassed(self.settings.deadline)),
            answer = self.attempts(request, &mut progress) => answer,
        };
        match ended {
            Ok(mut answer) => {
                progress.notes.append(&mut answer.notes);
                answer.notes = progress.notes;
                Ok(answer)
            }
            Err(kind) => Err(self.fault(kind, &self.settings.model, progress.attempts)),
        }
    }

    /// The request as it would be sent, for the LLM log: without thinking (DESIGN §6.2) and with sizes instead of images.
    pub fn log_view(&self, request: &ChatRequest) -> Value {
        let bytes = chat_payload(
            &self.settings.model,
            &self.settings.keep_alive,
            request,
            &request.options,
            Reader::Log,
        );
        bytes
            .and_then(|bytes| serde_json::from_slice(&bytes))
            .unwrap_or(Value::Null)
    }

    /// `POST /api/show`: what a model can do.
    pub async fn show(&self, model: &str) -> Result<ModelDetails, OllamaFault> {
        let question = json!({ "model": model }).to_string().into_bytes();
        self.question(Method::POST, "show", Some(question), model)
            .await
            .map(ModelDetails::read)
    }

    /// `GET /api/version`.
    pub async fn version(&self) -> Result<String, OllamaFault> {
        let answer = self
            .question(Method::GET, "version", None, &self.settings.model)
            .await?;
        match answer.get("version").and_then(Value::as_str) {
            Some(version) => Ok(version.to_owned()),
            None => {
                let received = Received {
                    status: 200,
                    body: answer.to_string(),
                    retry_after: None,
                };
                Err(self.fault(
                    FaultKind::Bad(BadAnswer::NoMessage, received),
                    &self.settings.model,
                    1,
                ))
            }
        }
    }

    /// `GET /api/tags`: the installed models.
    pub async fn tags(&self) -> Result<Vec<InstalledModel>, OllamaFault> {
        let answer = self
            .question(Method::GET, "tags", None, &self.settings.model)
            .await?;
        Ok(info::installed(&answer))
    }

    /// `GET /api/ps`: the loaded models with the context really allocated.
    pub async fn ps(&self) -> Result<Vec<LoadedModel>, OllamaFault> {
        let answer = self
            .question(Method::GET, "ps", None, &self.settings.model)
            .await?;
        Ok(info::loaded(&answer))
    }

    async fn attempts(
        &self,
        request: &ChatRequest,
        progress: &mut Progress,
    ) -> Result<ChatAnswer, FaultKind> {
        let mut options = request.options.clone();
        let mut reseeded = false;
        loop {
            progress.attempts += 1;
            let kind = match self.attempt(request, &options).await {
                Ok(answer) => return Ok(answer),
                Err(kind) => kind,
            };
            match kind.repeat() {
                Repeat::Never => return Err(kind),
                Repeat::OtherSeed if reseeded => return Err(kind),
                Repeat::OtherSeed => {
                    reseeded = true;
                    options = options.reseeded();
                    progress.note(&kind);
                    progress.notes.push(AnswerNote::Reseeded);
                }
                Repeat::Again => {
                    let Some(pause) = self.backoff.after(progress.pauses) else {
                        return Err(kind);
                    };
                    progress.pauses += 1;
                    progress.note(&kind);
                    pause.await;
                }
            }
        }
    }

    async fn attempt(
        &self,
        request: &ChatRequest,
        options: &RequestOptions,
    ) -> Result<ChatAnswer, FaultKind> {
        let OllamaSettings {
            model, keep_alive, ..
        } = &self.settings;
        let body = chat_payload(model, keep_alive, request, options, Reader::Server).map_err(
            |problem| FaultKind::Unwritable {
                detail: problem.to_string(),
            },
        )?;
        let answer = self
            .transport
            .exchange(Method::POST, &["chat"], Some(body))
            .await?;
        chat_answer(&answer, request).map_err(|bad| FaultKind::Bad(bad, shown(&answer)))
    }

    /// One small question; it is repeated like a chat.
    async fn question(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        model: &str,
    ) -> Result<Value, OllamaFault> {
        let deadline = QUESTION_DEADLINE.min(self.settings.deadline);
        let mut attempts = 0;
        let asked = tokio::time::timeout(deadline, async {
            loop {
                attempts += 1;
                let exchanged = self
                    .transport
                    .exchange(method.clone(), &[path], body.clone())
                    .await;
                let kind = match exchanged {
                    Ok(bytes) => match serde_json::from_slice::<Value>(&bytes) {
                        Ok(object @ Value::Object(_)) => return Ok(object),
                        _ => FaultKind::Bad(BadAnswer::NotJson, shown(&bytes)),
                    },
                    Err(kind) => kind,
                };
                match (kind.repeat(), self.backoff.after(attempts - 1)) {
                    (Repeat::Again, Some(pause)) => pause.await,
                    _ => return Err(kind),
                }
            }
        });
        let ended = asked
            .await
            .unwrap_or(Err(FaultKind::DeadlinePassed(deadline)));
        ended.map_err(|kind| self.fault(kind, model, u32::try_from(attempts).unwrap_or(u32::MAX)))
    }

    fn fault(&self, kind: FaultKind, model: &str, attempts: u32) -> OllamaFault {
        OllamaFault {
            kind,
            endpoint: self.settings.endpoint.to_string(),
            model: model.to_owned(),
            attempts,
        }
    }
}

/// What a chat did so far; it outlives the attempts when they are dropped.
#[derive(Default)]
struct Progress {
    attempts: u32,
    pauses: usize,
    notes: Vec<AnswerNote>,
}

impl Progress {
    fn note(&mut self, kind: &FaultKind) {
        self.notes.push(AnswerNote::Repeated {
            attempt: self.attempts,
            code: kind.code(),
            status: kind.status(),
        });
    }
}

/// A bad 200 for the fault: its start, unless it looks like an answer, which could hold thinking (DESIGN §6.2).
fn shown(body: &[u8]) -> Received {
    let looks_like_an_answer = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let shown = if looks_like_an_answer {
        &[]
    } else {
        &body[..body.len().min(super::transport::ERROR_BYTES)]
    };
    Received {
        status: 200,
        body: String::from_utf8_lossy(shown).into_owned(),
        retry_after: None,
    }
}
