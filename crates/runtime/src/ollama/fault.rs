//! What can go wrong with a call, with everything known about it.

use policy::{Blame, Code, Fault, Message};
use std::fmt;
use std::time::Duration;

/// A call that gave no answer.
#[derive(Clone, Debug, PartialEq)]
pub struct OllamaFault {
    /// What went wrong.
    pub kind: FaultKind,
    /// The endpoint.
    pub endpoint: String,
    /// The model that was asked for.
    pub model: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// No connection, or it ended before an answer began.
    Unreachable {
        /// For logs.
        detail: String,
    },
    /// The answer began and broke off: a reset, half a body, a malformed chunk.
    Interrupted {
        /// For logs.
        detail: String,
    },
    /// An answer with status 200 that is no complete answer.
    Bad(BadAnswer, Received),
    /// The server said no.
    Refused(Refused, Received),
    /// [`deadline`](super::OllamaSettings::deadline) passed.
    DeadlinePassed(Duration),
    /// The run was cancelled; the request was dropped at once.
    Cancelled,
    /// The request cannot be written: our own fault.
    Unwritable {
        /// For logs.
        detail: String,
    },
}

/// How an answer was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// HTTP status.
    pub status: u16,
    /// The body as text, at most 64 KiB. Empty where it could hold a model's thinking.
    pub body: String,
    /// `Retry-After`, where it is given in seconds.
    pub retry_after: Option<Duration>,
}

/// A 200 that is no complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadAnswer {
    /// Not JSON: HTML from a proxy, several values, nothing.
    NotJson,
    /// JSON without a `message` object (or without what was asked for).
    NoMessage,
    /// `done` is not true ("Survive these" 8).
    NotDone,
    /// An `error` inside a 200.
    ErrorInside(String),
    /// More than 32 MiB.
    TooLarge,
}

/// How the server said no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// 429, 503, a full queue.
    Busy,
    /// 502: something between us and the model.
    BadGateway,
    /// 504: waited long already, so it is not repeated.
    GatewayTimeout,
    /// The runner under the server died; the server starts another one.
    RunnerDied,
    /// The model wrote a call that the server could not read.
    BrokenCall,
    /// No such model.
    ModelMissing,
    /// The model cannot call tools.
    ToolsUnsupported,
    /// The model cannot think.
    ThinkingUnsupported,
    /// The model cannot see images (OLL-09, AT-06).
    VisionUnsupported,
    /// The prompt is longer than the context.
    ContextExceeded {
        /// `n_prompt_tokens`.
        prompt_tokens: Option<u64>,
        /// `n_ctx`.
        context: Option<u64>,
    },
    /// 401, 403.
    Unauthorized {
        /// Where a person can sign in.
        signin_url: Option<String>,
    },
    /// Anything else, with the server's own words.
    Other(String),
}

/// Whether and how a call is repeated. `/api/chat` has no side effect ("Survive these" 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    Never,
    /// After the next pause, as it was.
    Again,
    /// At once, once, with another seed.
    OtherSeed,
}

impl FaultKind {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::Unreachable { .. } => Code::OllamaUnreachable,
            Self::Interrupted { .. } | Self::Bad(..) => Code::OllamaBadAnswer,
            Self::DeadlinePassed(_) => Code::OllamaBusy,
            Self::Cancelled => Code::Cancelled,
            Self::Unwritable { .. } => Code::Internal,
            Self::Refused(refused, _) => match refused {
                Refused::Busy => Code::OllamaBusy,
                Refused::BadGateway | Refused::GatewayTimeout => Code::OllamaUnreachable,
                Refused::RunnerDied | Refused::BrokenCall => Code::OllamaBadAnswer,
                Refused::ModelMissing => Code::OllamaModelMissing,
                Refused::ToolsUnsupported => Code::OllamaToolsUnsupported,
                Refused::ThinkingUnsupported => Code::OllamaThinkingUnsupported,
                Refused::VisionUnsupported => Code::OllamaVisionUnsupported,
                Refused::ContextExceeded { .. } => Code::OllamaContextExceeded,
                Refused::Unauthorized { .. } => Code::OllamaUnauthorized,
                Refused::Other(_) => Code::OllamaRejected,
            },
        }
    }

    /// X-OLL: transport errors, 429, 502, 503. A runner that died and an incomplete answer are transport errors one step
    /// further away.
    pub(super) fn repeat(&self) -> Repeat {
        match self {
            // 32 MiB once is enough.
            Self::Bad(BadAnswer::TooLarge, _) => Repeat::Never,
            Self::Unreachable { .. } | Self::Interrupted { .. } | Self::Bad(..) => Repeat::Again,
            Self::Refused(Refused::Busy | Refused::BadGateway | Refused::RunnerDied, _) => {
                Repeat::Again
            }
            Self::Refused(Refused::BrokenCall, _) => Repeat::OtherSeed,
            Self::Refused(..)
            | Self::DeadlinePassed(_)
            | Self::Cancelled
            | Self::Unwritable { .. } => Repeat::Never,
        }
    }

    /// HTTP status, if an answer began.
    pub fn status(&self) -> Option<u16> {
        self.received().map(|received| received.status)
    }

    /// What was received, if an answer began.
    pub fn received(&self) -> Option<&Received> {
        match self {
            Self::Bad(_, received) | Self::Refused(_, received) => Some(received),
            _ => None,
        }
    }

    fn blame(&self) -> Blame {
        match self {
            Self::Unwritable { .. } => Blame::Us,
            Self::Cancelled => Blame::Client,
            Self::Refused(Refused::BrokenCall, _) => Blame::Model,
            Self::Refused(refused, _) => match refused {
                Refused::Busy
                | Refused::BadGateway
                | Refused::GatewayTimeout
                | Refused::RunnerDied => Blame::Machine,
                Refused::VisionUnsupported => Blame::Client,
                _ => Blame::Configuration,
            },
            Self::Unreachable { .. }
            | Self::Interrupted { .. }
            | Self::Bad(..)
            | Self::DeadlinePassed(_) => Blame::Machine,
        }
    }
}

impl OllamaFault {
    /// The stable code.
    pub fn code(&self) -> Code {
        self.kind.code()
    }

    /// The fault as everyone else carries it. Its target is the model where the model is the problem, else the endpoint.
    pub fn to_fault(&self) -> Fault {
        let target = match &self.kind {
            FaultKind::Refused(
                Refused::ModelMissing
                | Refused::ToolsUnsupported
                | Refused::ThinkingUnsupported
                | Refused::VisionUnsupported
                | Refused::ContextExceeded { .. },
                _,
            ) => &self.model,
            _ => &self.endpoint,
        };
        let reason = match &self.kind {
            FaultKind::Unreachable { detail }
            | FaultKind::Interrupted { detail }
            | FaultKind::Unwritable { detail } => {
                Some(Message::new("os.other").with("error", detail))
            }
            FaultKind::DeadlinePassed(deadline) => {
                Some(Message::new("reason.deadline").with("seconds", deadline.as_secs_f64()))
            }
            _ => None,
        };
        Fault {
            reason: reason.map(Box::new),
            ..Fault::new(self.kind.blame(), self.code(), target, &self.kind)
        }
    }
}

impl From<OllamaFault> for Fault {
    fn from(fault: OllamaFault) -> Self {
        fault.to_fault()
    }
}

/// Technical detail for logs and `{detail}`.
impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { detail }
            | Self::Interrupted { detail }
            | Self::Unwritable { detail } => f.write_str(detail),
            Self::DeadlinePassed(deadline) => write!(f, "deadline {} s", deadline.as_secs_f64()),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Bad(bad, received) => {
                write!(f, "HTTP {} {bad:?}", received.status)?;
                excerpt(f, &received.body)
            }
            Self::Refused(refused, received) => {
                write!(f, "HTTP {}", received.status)?;
                match refused {
                    Refused::ContextExceeded {
                        prompt_tokens: Some(prompt),
                        context: Some(context),
                    } => {
                        write!(f, " {prompt} > {context}")
                    }
                    Refused::Other(words) => excerpt(f, words),
                    _ => excerpt(f, &received.body),
                }
            }
        }
    }
}

/// The first characters of what the server wrote, on one line.
fn excerpt(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let start: String = line.by_ref().take(200).collect();
    if !start.trim().is_empty() {
        write!(
            f,
            ": {}{}",
            start.trim(),
            if line.next().is_some() { "…" } else { "" }
        )?;
    }
    Ok(())
}

impl fmt::Display for OllamaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} ({}×): {}",
            self.code(),
            self.endpoint,
            self.attempts,
            self.kind
        )
    }
}

impl std::error::Error for OllamaFault {}
