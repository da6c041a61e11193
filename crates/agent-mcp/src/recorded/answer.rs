//! Filling placeholders, and the answer as Ollama writes it.

use super::pattern::Values;
use super::recording::{Answer, Call};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The names between `{{` and `}}` anywhere in an answer.
pub(super) fn placeholders(answer: &Answer) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut note = |text: &str| {
        for part in text.split("{{").skip(1) {
            if let Some((name, _)) = part.split_once("}}") {
                names.insert(name.to_owned());
            }
        }
        text.to_owned()
    };
    each_text(answer, &mut note);
    names
}

/// The answer with every placeholder replaced by its value.
pub(super) fn filled(answer: &Answer, values: &Values) -> Answer {
    each_text(answer, &mut |text: &str| fill(text, values))
}

/// One pass: a value that looks like a placeholder is only a value.
fn fill(text: &str, values: &Values) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        match after
            .split_once("}}")
            .and_then(|(name, after)| Some((values.get(name)?, after)))
        {
            Some((value, after)) => {
                filled.push_str(value);
                rest = after;
            }
            None => {
                filled.push_str("{{");
                rest = after;
            }
        }
    }
    filled + rest
}

/// The answer with every text of it changed; keys stay as they are.
fn each_text(answer: &Answer, change: &mut impl FnMut(&str) -> String) -> Answer {
    Answer {
        content: answer.content.as_deref().map(&mut *change),
        json: answer.json.as_ref().map(|json| each_leaf(json, change)),
        thinking: answer.thinking.as_deref().map(&mut *change),
        calls: answer
            .calls
            .iter()
            .map(|call| Call {
                name: call.name.clone(),
                arguments: each_leaf(&call.arguments, change),
            })
            .collect(),
    }
}

fn each_leaf(value: &Value, change: &mut impl FnMut(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(list) => list.iter().map(|item| each_leaf(item, change)).collect(),
        Value::Object(map) => {
            let fields: Map<_, _> = map
                .iter()
                .map(|(name, item)| (name.clone(), each_leaf(item, change)))
                .collect();
            Value::Object(fields)
        }
        other => other.clone(),
    }
}

/// Bytes of one token, about.
const TOKEN_BYTES: usize = 4;

/// About how many tokens a text is; never 0.
pub(super) fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(TOKEN_BYTES).max(1)).unwrap_or(u64::MAX)
}

/// The body of `/api/chat`. `asked` is how many results and calls the conversation has: it makes call ids unique.
pub(super) fn body(model: &str, answer: &Answer, prompt_tokens: u64, asked: usize) -> Value {
    let content = match (&answer.content, &answer.json) {
        (Some(text), _) => text.clone(),
        (None, Some(json)) => json.to_string(),
        (None, None) => String::new(),
    };
    let mut message = json!({"role": "assistant", "content": content});
    let mut written = content.len();
    if let Some(thinking) = &answer.thinking {
        written += thinking.len();
        message["thinking"] = json!(thinking);
    }
    if !answer.calls.is_empty() {
        let calls: Vec<Value> = answer
            .calls
            .iter()
            .enumerate()
            .map(|(index, call)| {
                json!({"id": format!("call_{:04}", asked + index),
                "function": {"index": index, "name": call.name, "arguments": call.arguments}})
            })
            .collect();
        written += calls
            .iter()
            .map(|call| call["function"].to_string().len())
            .sum::<usize>();
        message["tool_calls"] = Value::Array(calls);
    }
    let mut body = done(model, "stop");
    body["message"] = message;
    body["prompt_eval_count"] = json!(prompt_tokens);
    body["eval_count"] = json!(tokens(written));
    // Nothing is computed, so no time is claimed.
    for field in [
        "total_duration",
        "load_duration",
        "prompt_eval_duration",
        "eval_duration",
    ] {
        body[field] = json!(0);
    }
    body
}

/// The body of an answer that says nothing.
pub(super) fn done(model: &str, reason: &str) -> Value {
    json!({
        "model": model,
        "created_at": "1970-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": ""},
        "done": true,
        "done_reason": reason,
    })
}
