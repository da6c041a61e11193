//! The bytes of a chat request.

use super::answer::WireCall;
use super::request::{ChatMessage, ChatRequest, RequestOptions, Shape};
use policy::config::{KeepAlive, Think};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Who may read the payload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// The model server: everything.
    Server,
    /// The LLM log: no thinking (DESIGN §6.2), and sizes instead of images.
    Log,
}

/// `POST /api/chat`. Its field order is the order here, so that equal requests are equal bytes (X-CACHE).
#[derive(Serialize)]
struct Payload<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a [Value]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a Value>,
    options: Map<String, Value>,
    think: Think,
    keep_alive: &'a KeepAlive,
    /// One complete answer per call (DESIGN §6.1).
    stream: bool,
    /// Off: a prompt that is too long is an error and never a conversation without its goal ("Survive these" 7).
    truncate: bool,
    /// Off, for the same reason while generating.
    shift: bool,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    images: Cow<'a, [String]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

/// The JSON of one chat call.
pub(super) fn chat_payload(
    model: &str,
    keep_alive: &KeepAlive,
    request: &ChatRequest,
    options: &RequestOptions,
    reader: Reader,
) -> serde_json::Result<Vec<u8>> {
    let (tools, format) = match &request.shape {
        Shape::Text => (None, None),
        Shape::Tools(set) => (Some(set.tools()), None),
        Shape::Structured(schema) => (None, Some(schema)),
    };
    serde_json::to_vec(&Payload {
        model,
        messages: request
            .messages
            .iter()
            .map(|message| wire_message(message, reader))
            .collect(),
        tools,
        format,
        options: options.to_object(),
        think: request.think,
        keep_alive,
        stream: false,
        truncate: false,
        shift: false,
    })
}

fn wire_message(message: &ChatMessage, reader: Reader) -> WireMessage<'_> {
    let plain = |role, content| WireMessage {
        role,
        content,
        thinking: None,
        images: Cow::Borrowed(&[]),
        tool_calls: Vec::new(),
        tool_name: None,
        tool_call_id: None,
    };
    match message {
        ChatMessage::System(content) => plain("system", content),
        ChatMessage::User { content, images } => WireMessage {
            images: match reader {
                Reader::Server => Cow::Borrowed(images),
                Reader::Log => images
                    .iter()
                    .map(|image| format!("{} base64 characters", image.len()))
                    .collect(),
            },
            ..plain("user", content)
        },
        ChatMessage::Assistant {
            content,
            thinking,
            calls,
        } => WireMessage {
            thinking: thinking
                .as_ref()
                .filter(|_| reader == Reader::Server && !calls.is_empty())
                .map(|thinking| thinking.for_the_model()),
            tool_calls: calls.iter().enumerate().map(wire_call).collect(),
            ..plain("assistant", content)
        },
        ChatMessage::Tool {
            content,
            wire_name,
            call_id,
        } => WireMessage {
            tool_name: Some(wire_name),
            tool_call_id: Some(call_id),
            ..plain("tool", content)
        },
    }
}

/// `arguments` has to be an object: the server refuses the whole conversation otherwise.
fn wire_call((index, call): (usize, &WireCall)) -> Value {
    let arguments = match &call.arguments {
        object @ Value::Object(_) => object.clone(),
        other => json!({ "unreadable": other }),
    };
    json!({"id": call.id, "function": {"index": index, "name": call.wire_name, "arguments": arguments}})
}
