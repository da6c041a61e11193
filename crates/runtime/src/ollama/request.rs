//! One chat request, typed.

use super::answer::{Thinking, WireCall};
use super::schema::ToolSet;
use policy::config::{Ollama, OllamaOptions, Think};
use serde_json::{Map, Value};

/// One chat call. What it does not carry (model, keep_alive, endpoint) is the client's own (OLL-07).
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The conversation, oldest first. Appending to it keeps the server's key/value cache (X-CACHE).
    pub messages: Vec<ChatMessage>,
    /// Whether tools are offered or a form is asked for.
    pub shape: Shape,
    /// Always sent: absent would mean "on" for capable models.
    pub think: Think,
    /// For this call only (OLL-06).
    pub options: RequestOptions,
}

/// Tools or a form, never both: a server given both ignores one of them.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Free text.
    Text,
    /// The model may call these (OLL-10).
    Tools(ToolSet),
    /// The answer has to be JSON of this schema (structured output).
    Structured(Value),
}

/// One message of the conversation.
#[derive(Clone, Debug)]
pub enum ChatMessage {
    /// From the prompt composer (OLL-08).
    System(String),
    /// The request and observations.
    User {
        /// Text.
        content: String,
        /// Raw base64 without a `data:` prefix (OLL-09).
        images: Vec<String>,
    },
    /// What the model said before; made by [`ChatAnswer::to_message`](super::ChatAnswer::to_message).
    Assistant {
        /// Text.
        content: String,
        /// Given back only while a tool call goes on (DESIGN §6.2).
        thinking: Option<Thinking>,
        /// The calls it made, in order.
        calls: Vec<WireCall>,
    },
    /// The result of one call; results follow the assistant turn in call order.
    Tool {
        /// Text.
        content: String,
        /// The called tool's wire name.
        wire_name: String,
        /// The id of the call.
        call_id: String,
    },
}

impl ChatMessage {
    /// A user message without images.
    pub fn user(content: impl Into<String>) -> Self {
        Self::User {
            content: content.into(),
            images: Vec::new(),
        }
    }

    /// The result of `call`.
    pub fn result_of(call: &WireCall, content: impl Into<String>) -> Self {
        Self::Tool {
            content: content.into(),
            wire_name: call.wire_name.clone(),
            call_id: call.id.clone(),
        }
    }
}

/// Generation options of one call (OLL-03, OLL-04).
#[derive(Clone, Debug, PartialEq)]
pub struct RequestOptions {
    /// Known to be read by Ollama; `num_ctx` and `num_predict` are always sent.
    pub known: OllamaOptions,
    /// Sent as they are, except those that carry a known option's name (OLL-05).
    pub extra: Map<String, Value>,
}

impl RequestOptions {
    /// The configured options; `temperature` is this run's own and changes nothing else (OLL-06, AT-05).
    pub fn from_config(ollama: &Ollama, temperature: Option<f64>) -> Self {
        let mut known = ollama.options.clone();
        known.temperature = temperature.or(known.temperature);
        Self {
            known,
            extra: ollama.extra_options.clone(),
        }
    }

    /// The same with another seed, for a call that the model itself broke.
    pub(super) fn reseeded(&self) -> Self {
        let mut other = self.clone();
        other.known.seed = Some(self.known.seed.map_or(1, |seed| seed.wrapping_add(1)));
        other
    }

    /// The `options` object. A known name in `extra` is left out even where the known option is not set (OLL-05).
    pub(super) fn to_object(&self) -> Map<String, Value> {
        let mut object: Map<String, Value> = self
            .extra
            .iter()
            .filter(|(name, _)| !KNOWN_OPTIONS.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if let Ok(Value::Object(known)) = serde_json::to_value(&self.known) {
            object.extend(known);
        }
        object
    }
}

/// Names that [`OllamaOptions`] owns.
const KNOWN_OPTIONS: [&str; 20] = [
    "num_ctx",
    "num_predict",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "use_mmap",
    "num_thread",
    "draft_num_predict",
    "num_keep",
    "seed",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_last_n",
    "temperature",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "stop",
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// Options with everything set.
    fn full() -> OllamaOptions {
        OllamaOptions {
            num_ctx: 8192,
            num_predict: 4096,
            num_batch: Some(512),
            num_gpu: Some(-1),
            main_gpu: Some(0),
            use_mmap: Some(true),
            num_thread: Some(2),
            draft_num_predict: Some(4),
            num_keep: Some(-1),
            seed: Some(7),
            top_k: Some(40),
            top_p: Some(0.9),
            min_p: Some(0.1),
            typical_p: Some(1.0),
            repeat_last_n: Some(64),
            temperature: Some(0.4),
            repeat_penalty: Some(1.1),
            presence_penalty: Some(0.0),
            frequency_penalty: Some(0.0),
            stop: Some(vec!["END".into()]),
        }
    }

    #[test]
    fn oll_04_the_list_of_known_names_is_the_typed_one() {
        let Value::Object(object) = serde_json::to_value(full()).unwrap() else {
            panic!()
        };
        let mut typed: Vec<&str> = object.keys().map(String::as_str).collect();
        let mut listed = KNOWN_OPTIONS.to_vec();
        typed.sort_unstable();
        listed.sort_unstable();
        assert_eq!(typed, listed);
    }

    #[test]
    fn oll_05_a_known_name_in_extra_options_never_wins() {
        let mut known = full();
        known.top_k = None;
        let extra = json!({"temperature": 2.0, "top_k": 1, "future_option": {"a": 1}});
        let Value::Object(extra) = extra else {
            panic!()
        };
        let object = RequestOptions { known, extra }.to_object();
        assert_eq!(object["temperature"], json!(0.4));
        assert_eq!(object.get("top_k"), None);
        assert_eq!(object["future_option"], json!({"a": 1}));
    }

    #[test]
    fn another_seed_is_another_seed() {
        let mut options = RequestOptions {
            known: full(),
            extra: Map::new(),
        };
        assert_eq!(options.reseeded().known.seed, Some(8));
        options.known.seed = None;
        assert!(options.reseeded().known.seed.is_some());
    }
}
