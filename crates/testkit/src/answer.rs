//! Bodies of `/api/chat` as Ollama writes them, and as it should not.

use serde_json::{Value, json};

/// One chat answer. Every field can be bent with [`Answer::set`].
#[derive(Clone, Debug, PartialEq)]
pub struct Answer(Value);

impl Answer {
    /// Text and nothing else: `done`, `stop`, 100 tokens in, 20 out.
    pub fn text(content: impl Into<String>) -> Self {
        Self(json!({
            "model": "scripted:latest",
            "created_at": "2026-01-01T00:00:00Z",
            "message": {"role": "assistant", "content": content.into()},
            "done": true,
            "done_reason": "stop",
            "total_duration": 3_000_000,
            "load_duration": 1_000_000,
            "prompt_eval_count": 100,
            "prompt_eval_duration": 1_000_000,
            "eval_count": 20,
            "eval_duration": 1_000_000,
        }))
    }

    /// JSON as the content, as a server writes it that honours `format`.
    pub fn json(value: &Value) -> Self {
        Self::text(value.to_string())
    }

    /// One call and no text.
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::text("").and_call(name, arguments)
    }

    /// One more call.
    #[must_use]
    pub fn and_call(mut self, name: &str, arguments: Value) -> Self {
        let calls = &mut self.0["message"]["tool_calls"];
        let index = calls.as_array().map_or(0, Vec::len);
        let call = json!({"function": {"index": index, "name": name, "arguments": arguments}});
        match calls.as_array_mut() {
            Some(calls) => calls.push(call),
            None => *calls = json!([call]),
        }
        self
    }

    /// With thinking beside the content.
    #[must_use]
    pub fn thinking(self, text: &str) -> Self {
        self.set("/message", "thinking", json!(text))
    }

    /// With these counts.
    #[must_use]
    pub fn usage(self, input: u64, output: u64) -> Self {
        self.set("", "prompt_eval_count", json!(input))
            .set("", "eval_count", json!(output))
    }

    /// Without any count.
    #[must_use]
    pub fn without_usage(self) -> Self {
        self.without("prompt_eval_count").without("eval_count")
    }

    /// Ended for another reason.
    #[must_use]
    pub fn done_reason(self, reason: &str) -> Self {
        self.set("", "done_reason", json!(reason))
    }

    /// With `done:false`.
    #[must_use]
    pub fn not_done(self) -> Self {
        self.set("", "done", json!(false))
    }

    /// With any field set to anything; `parent` is a JSON pointer.
    ///
    /// # Panics
    /// When there is no object at `parent`.
    #[must_use]
    pub fn set(mut self, parent: &str, field: &str, value: Value) -> Self {
        let object = self.0.pointer_mut(parent).and_then(Value::as_object_mut);
        object
            .expect("an object at parent")
            .insert(field.to_owned(), value);
        self
    }

    /// Without a top-level field.
    #[must_use]
    pub fn without(mut self, field: &str) -> Self {
        if let Some(object) = self.0.as_object_mut() {
            object.remove(field);
        }
        self
    }

    /// The body.
    pub fn into_value(self) -> Value {
        self.0
    }
}
