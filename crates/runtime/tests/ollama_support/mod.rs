//! Shared by the Ollama tests: one client of one script.
#![allow(dead_code, reason = "each test file uses its part")]

use policy::config::{KeepAlive, OllamaOptions, Think};
use runtime::ollama::{
    Backoff, ChatAnswer, ChatMessage, ChatRequest, OllamaClient, OllamaFault, OllamaSettings,
    RequestOptions, Shape, ToolDefinition, ToolSet, ToolWire, ToolWires,
};
use serde_json::{Map, json};
use std::time::Duration;
use testkit::{PauseLog, Script, ScriptedModel};
use tokio_util::sync::CancellationToken;

/// A script, its server, a client of it, and the pauses the client took.
pub struct Bench {
    pub model: ScriptedModel,
    pub client: OllamaClient,
    pub pauses: PauseLog,
}

pub fn settings(endpoint: &str) -> OllamaSettings {
    OllamaSettings {
        endpoint: endpoint.parse().unwrap(),
        model: "scripted:latest".into(),
        keep_alive: KeepAlive::Duration("5m".into()),
        connect_timeout: Duration::from_secs(5),
        deadline: Duration::from_secs(60),
    }
}

impl Bench {
    pub fn new(script: Script) -> Self {
        let model = ScriptedModel::start(script);
        let pauses = PauseLog::default();
        let client = OllamaClient::with_backoff(
            settings(&model.endpoint()),
            Backoff::with_pause(pauses.pause()),
        )
        .unwrap();
        Self {
            model,
            client,
            pauses,
        }
    }

    pub async fn chat(&self, request: &ChatRequest) -> Result<ChatAnswer, OllamaFault> {
        self.client.chat(request, &CancellationToken::new()).await
    }

    /// The one answer to a script of one or more steps, all of which it used.
    pub async fn answer(script: Script, request: &ChatRequest) -> ChatAnswer {
        let bench = Self::new(script);
        let answer = bench.chat(request).await.unwrap();
        bench.model.assert_finished();
        answer
    }

    /// The fault of a script, all of which it used.
    pub async fn fault(script: Script, request: &ChatRequest) -> OllamaFault {
        let bench = Self::new(script);
        let fault = bench.chat(request).await.unwrap_err();
        bench.model.assert_finished();
        fault
    }
}

pub fn options() -> RequestOptions {
    let known = OllamaOptions {
        num_ctx: 32_768,
        num_predict: 4096,
        num_batch: None,
        num_gpu: None,
        main_gpu: None,
        use_mmap: None,
        num_thread: None,
        draft_num_predict: None,
        num_keep: None,
        seed: None,
        top_k: None,
        top_p: None,
        min_p: None,
        typical_p: None,
        repeat_last_n: None,
        temperature: None,
        repeat_penalty: None,
        presence_penalty: None,
        frequency_penalty: None,
        stop: None,
    };
    RequestOptions {
        known,
        extra: Map::new(),
    }
}

pub fn tools() -> ToolSet {
    let dir = json!({"type": "object", "required": ["path", "operation"], "properties": {
        "path": {"type": "string"}, "operation": {"type": "string", "enum": ["mkdir", "rmdir", "list"]}}});
    let read = json!({"type": "object", "required": ["path"], "properties": {
        "path": {"type": "string"}, "start": {"type": "integer"}, "whole": {"type": "boolean"},
        "lines": {"type": "array", "items": {"type": "string"}}, "note": {"type": ["string", "null"]},
        "end": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}});
    let wires = ToolWires::new(&[
        ToolWire {
            catalogue: "dir",
            wire: "manage_directory",
        },
        ToolWire {
            catalogue: "file_read",
            wire: "file_read",
        },
    ])
    .unwrap();
    ToolSet::new(
        &[
            ToolDefinition {
                catalogue: "dir",
                description: "directories",
                parameters: &dir,
            },
            ToolDefinition {
                catalogue: "file_read",
                description: "read",
                parameters: &read,
            },
        ],
        &wires,
    )
    .unwrap()
}

pub fn with_shape(shape: Shape) -> ChatRequest {
    ChatRequest {
        messages: vec![
            ChatMessage::System("be brief".into()),
            ChatMessage::user("list src"),
        ],
        shape,
        think: Think::Switch(false),
        options: options(),
    }
}

pub fn with_tools() -> ChatRequest {
    with_shape(Shape::Tools(tools()))
}

pub fn text() -> ChatRequest {
    with_shape(Shape::Text)
}

pub fn structured() -> ChatRequest {
    with_shape(Shape::Structured(json!({"type": "object"})))
}
