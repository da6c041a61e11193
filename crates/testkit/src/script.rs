//! What a scripted model answers, step by step.

use crate::answer::Answer;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One reply on the wire.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A proper HTTP answer.
    Http {
        /// Status.
        status: u16,
        /// Besides `Content-Type`, `Content-Length` and `Connection`.
        headers: Vec<(String, String)>,
        /// Body.
        body: Vec<u8>,
        /// `application/json` unless it is something else.
        content_type: &'static str,
    },
    /// Exactly these bytes, then the connection closes: malformed chunks, half a body.
    Bytes(Vec<u8>),
    /// The connection closes without a byte.
    Close,
    /// These bytes, then the connection is reset.
    Reset(Vec<u8>),
    /// Nothing until [`ScriptedModel::release`](crate::ScriptedModel::release), then that reply.
    Stall(Box<Reply>),
}

impl Reply {
    /// JSON with a status.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::Http {
            status,
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
            content_type: "application/json",
        }
    }

    /// Ollama's error form.
    pub fn error(status: u16, text: &str) -> Self {
        Self::json(status, &json!({ "error": text }))
    }

    /// A page from a proxy.
    pub fn html(status: u16) -> Self {
        Self::Http {
            status,
            headers: Vec::new(),
            body: b"<html><body><h1>Bad Gateway</h1></body></html>".to_vec(),
            content_type: "text/html",
        }
    }

    /// Any body with status 200.
    pub fn body(body: impl Into<Vec<u8>>) -> Self {
        Self::Http {
            status: 200,
            headers: Vec::new(),
            body: body.into(),
            content_type: "application/json",
        }
    }

    /// With one more header; nothing changes where there are no headers.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Self::Http { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// The head announces the whole answer, half of the body comes, the connection closes.
    pub fn half(answer: Answer) -> Self {
        let body = answer.into_value().to_string();
        let mut bytes = head(
            200,
            "application/json",
            &[("Content-Length", &body.len().to_string())],
        );
        bytes.extend_from_slice(&body.as_bytes()[..body.len() / 2]);
        Self::Bytes(bytes)
    }

    /// A chunked answer whose second chunk has no readable size.
    pub fn malformed_chunk() -> Self {
        let mut bytes = head(200, "application/json", &[("Transfer-Encoding", "chunked")]);
        bytes.extend_from_slice(b"5\r\n{\"mod\r\nzz\r\nel\":1}\r\n0\r\n\r\n");
        Self::Bytes(bytes)
    }

    /// Half of an answer, then a reset.
    pub fn reset_midway(answer: Answer) -> Self {
        match Self::half(answer) {
            Self::Bytes(bytes) => Self::Reset(bytes),
            other => other,
        }
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self::json(200, &answer.into_value())
    }
}

/// A status line and headers, with the empty line.
pub(crate) fn head(status: u16, content_type: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Scripted\r\nContent-Type: {content_type}\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// One step: which request it waits for and what it replies.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) path: String,
    pub(crate) contains: Option<String>,
    pub(crate) reply: Reply,
}

/// Steps in order, and standing answers that do not belong to the order.
#[derive(Clone, Debug)]
pub struct Script {
    pub(crate) steps: Vec<Step>,
    pub(crate) standing: BTreeMap<String, Reply>,
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl Script {
    /// No steps yet. `/api/show`, `/api/tags`, `/api/version` and `/api/ps` have standing answers about one model with
    /// `completion` and `tools`.
    pub fn new() -> Self {
        let model = json!({"name": "scripted:latest", "model": "scripted:latest", "size": 1000});
        let loaded = json!({"name": "scripted:latest", "model": "scripted:latest", "size": 1000, "size_vram": 0, "context_length": 32768});
        Self {
            steps: Vec::new(),
            standing: BTreeMap::new(),
        }
        .standing(
            "/api/version",
            Reply::json(200, &json!({"version": "0.33.0"})),
        )
        .standing("/api/tags", Reply::json(200, &json!({ "models": [model] })))
        .standing("/api/ps", Reply::json(200, &json!({ "models": [loaded] })))
        .capabilities(&["completion", "tools"])
    }

    /// The next chat call is replied to with this.
    #[must_use]
    pub fn then(self, reply: impl Into<Reply>) -> Self {
        self.then_on("/api/chat", reply)
    }

    /// The next chat call is replied to with this, and its body has to contain `text`.
    #[must_use]
    pub fn then_if(mut self, text: &str, reply: impl Into<Reply>) -> Self {
        self = self.then(reply);
        if let Some(step) = self.steps.last_mut() {
            step.contains = Some(text.to_owned());
        }
        self
    }

    /// The next call is to another path.
    #[must_use]
    pub fn then_on(mut self, path: &str, reply: impl Into<Reply>) -> Self {
        self.steps.push(Step {
            path: path.to_owned(),
            contains: None,
            reply: reply.into(),
        });
        self
    }

    /// The next chat call is replied to with this once the test says so.
    #[must_use]
    pub fn then_stall(self, reply: impl Into<Reply>) -> Self {
        self.then(Reply::Stall(Box::new(reply.into())))
    }

    /// A path that is always answered alike and never uses up a step.
    #[must_use]
    pub fn standing(mut self, path: &str, reply: Reply) -> Self {
        self.standing.insert(path.to_owned(), reply);
        self
    }

    /// What `/api/show` says that the model can do.
    #[must_use]
    pub fn capabilities(self, words: &[&str]) -> Self {
        let show = json!({
            "capabilities": words,
            "details": {"family": "scripted"},
            "model_info": {"general.architecture": "scripted", "scripted.context_length": 32768},
        });
        self.standing("/api/show", Reply::json(200, &show))
    }
}
