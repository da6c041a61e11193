//! From JSON to a [`ChatAnswer`]. Everything is optional; a field of another type is left out and noted.

use super::answer::{AnswerNote, ChatAnswer, DoneReason, Durations, Thinking, Usage};
use super::fault::BadAnswer;
use super::recover;
use super::request::{ChatMessage, ChatRequest, Shape};
use super::tidy::{Split, split_thinking};
use policy::config::Think;
use serde_json::{Map, Value};
use std::time::Duration;

/// Reads a body that came with status 200.
pub(super) fn chat_answer(body: &[u8], request: &ChatRequest) -> Result<ChatAnswer, BadAnswer> {
    let Ok(Value::Object(mut raw)) = serde_json::from_slice(body) else {
        return Err(BadAnswer::NotJson);
    };
    if let Some(error) = raw.get("error").filter(|error| !error.is_null()) {
        return Err(BadAnswer::ErrorInside(
            error
                .as_str()
                .map_or_else(|| error.to_string(), str::to_owned),
        ));
    }
    if raw.get("done") != Some(&Value::Bool(true)) {
        return Err(BadAnswer::NotDone);
    }
    let Some(Value::Object(message)) = raw.get_mut("message") else {
        return Err(BadAnswer::NoMessage);
    };
    let mut notes = Vec::new();
    let (content, thinking) = content_and_thinking(message, &mut notes);
    let (content, tool_calls) = content_and_calls(content, message, request, &mut notes);
    let done_reason = done_reason(&raw, &mut notes);
    note_emptiness(
        &content,
        tool_calls.is_empty(),
        thinking.is_some(),
        &mut notes,
    );
    let usage = usage(&raw, request, &mut notes);
    Ok(ChatAnswer {
        content,
        thinking,
        tool_calls,
        done_reason,
        usage,
        durations: durations(&raw),
        notes,
        raw: Value::Object(raw),
    })
}

/// Takes the thinking out of the message, so that what is kept of it holds none.
fn content_and_thinking(
    message: &mut Map<String, Value>,
    notes: &mut Vec<AnswerNote>,
) -> (String, Option<Thinking>) {
    let apart = text(message.remove("thinking"), "message.thinking", notes);
    let Split {
        content,
        thinking: leaked,
    } = split_thinking(text(message.remove("content"), "message.content", notes));
    if leaked.is_some() {
        notes.push(AnswerNote::ThinkingInContent);
    }
    message.insert("content".to_owned(), Value::String(content.clone()));
    let thinking = if apart.is_empty() {
        leaked.unwrap_or_default()
    } else {
        apart
    };
    (
        content,
        (!thinking.is_empty()).then(|| Thinking::new(thinking)),
    )
}

fn content_and_calls(
    content: String,
    message: &Map<String, Value>,
    request: &ChatRequest,
    notes: &mut Vec<AnswerNote>,
) -> (String, Vec<super::WireCall>) {
    let tools = match &request.shape {
        Shape::Tools(tools) => Some(tools),
        Shape::Text | Shape::Structured(_) => None,
    };
    let earlier = calls_so_far(request);
    let written = match message.get("tool_calls") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(list)) => list.as_slice(),
        Some(_) => {
            notes.push(AnswerNote::FieldIgnored("message.tool_calls"));
            &[]
        }
    };
    let calls = recover::calls(written, tools, earlier, notes);
    if !calls.is_empty() {
        return (content, calls);
    }
    match tools.and_then(|tools| recover::call_in_content(&content, tools, earlier, notes)) {
        Some(call) => (String::new(), vec![call]),
        None => (content, calls),
    }
}

fn calls_so_far(request: &ChatRequest) -> usize {
    let calls = request.messages.iter().map(|message| match message {
        ChatMessage::Assistant { calls, .. } => calls.len(),
        _ => 0,
    });
    calls.sum()
}

fn done_reason(raw: &Map<String, Value>, notes: &mut Vec<AnswerNote>) -> Option<DoneReason> {
    let reason = match raw.get("done_reason")? {
        Value::Null => return None,
        Value::String(word) => match word.as_str() {
            "stop" => DoneReason::Stop,
            "length" => DoneReason::Length,
            "load" => DoneReason::Load,
            "unload" => DoneReason::Unload,
            _ => DoneReason::Other(word.clone()),
        },
        _ => {
            notes.push(AnswerNote::FieldIgnored("done_reason"));
            return None;
        }
    };
    if reason == DoneReason::Length {
        notes.push(AnswerNote::CutOff);
    }
    Some(reason)
}

fn note_emptiness(content: &str, no_calls: bool, thought: bool, notes: &mut Vec<AnswerNote>) {
    if content.trim().is_empty() && no_calls {
        notes.push(if thought {
            AnswerNote::ThinkingOnly
        } else {
            AnswerNote::Empty
        });
    }
}

fn usage(raw: &Map<String, Value>, request: &ChatRequest, notes: &mut Vec<AnswerNote>) -> Usage {
    let usage = Usage {
        input: number(raw, "prompt_eval_count").filter(|count| *count <= COUNT_LIMIT),
        output: number(raw, "eval_count").filter(|count| *count <= COUNT_LIMIT),
    };
    if usage.input.is_none() || usage.output.is_none() {
        notes.push(AnswerNote::UsageUnknown);
    }
    if matches!(request.shape, Shape::Structured(_)) && request.think != Think::Switch(false) {
        notes.push(AnswerNote::UsageApproximate);
    }
    usage
}

fn durations(raw: &Map<String, Value>) -> Durations {
    let time = |field| number(raw, field).map(Duration::from_nanos);
    Durations {
        total: time("total_duration"),
        load: time("load_duration"),
        prompt: time("prompt_eval_duration"),
        answer: time("eval_duration"),
    }
}

/// Tokens of one call that can be true; more is a wrong count, and a wrong count is unknown.
const COUNT_LIMIT: u64 = 1 << 32;

fn number(raw: &Map<String, Value>, field: &str) -> Option<u64> {
    raw.get(field)?.as_u64()
}

fn text(value: Option<Value>, field: &'static str, notes: &mut Vec<AnswerNote>) -> String {
    match value {
        Some(Value::String(text)) => text,
        None | Some(Value::Null) => String::new(),
        Some(_) => {
            notes.push(AnswerNote::FieldIgnored(field));
            String::new()
        }
    }
}
