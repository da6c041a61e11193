//! What a request contains, as a recording looks at it.

use super::pattern::Values;
use super::recording::{Exchange, Kind, Playable, RecordedModel, When};
use serde::Deserialize;
use serde_json::Value;

/// As much of `/api/chat` as a recording looks at; the rest is accepted as Ollama accepts it.
#[derive(Debug, Deserialize)]
pub(super) struct ChatBody {
    pub(super) model: String,
    #[serde(default)]
    pub(super) messages: Vec<Message>,
    #[serde(default)]
    pub(super) tools: Vec<Value>,
    #[serde(default)]
    pub(super) format: Value,
    #[serde(default)]
    pub(super) think: Value,
    #[serde(default)]
    pub(super) options: Value,
    #[serde(default)]
    pub(super) truncate: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message {
    role: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    images: Vec<String>,
    #[serde(default)]
    tool_calls: Vec<Value>,
}

impl Message {
    fn instructs(&self) -> bool {
        matches!(self.role.as_str(), "system" | "user")
    }

    fn is_result(&self) -> bool {
        self.role == "tool"
    }
}

/// The exchange that fits, with the values for its answer.
pub(super) struct Fit<'m> {
    pub(super) exchange: &'m Exchange,
    pub(super) values: Values,
}

impl ChatBody {
    /// What it is for.
    pub(super) fn kind(&self) -> Kind {
        if !self.format.is_null() {
            Kind::Plan
        } else if self.tools.is_empty() {
            Kind::Text
        } else {
            Kind::Act
        }
    }

    /// Bytes of everything a model would read.
    pub(super) fn prompt_bytes(&self) -> usize {
        let messages = self.messages.iter().map(|message| {
            message.role.len()
                + message.content.len()
                + message
                    .tool_calls
                    .iter()
                    .map(|call| call.to_string().len())
                    .sum::<usize>()
        });
        let tools = self.tools.iter().map(|tool| tool.to_string().len());
        messages.chain(tools).sum()
    }

    /// Whether a message has images.
    pub(super) fn has_images(&self) -> bool {
        self.messages
            .iter()
            .any(|message| !message.images.is_empty())
    }

    /// Calls made so far.
    pub(super) fn calls(&self) -> usize {
        self.messages
            .iter()
            .map(|message| message.tool_calls.len())
            .sum()
    }

    /// The names of the offered tools.
    pub(super) fn offered(&self) -> impl Iterator<Item = &str> {
        self.tools
            .iter()
            .filter_map(|tool| tool["function"]["name"].as_str())
    }

    /// Results in the whole conversation.
    pub(super) fn results(&self) -> usize {
        self.messages
            .iter()
            .filter(|message| message.is_result())
            .count()
    }

    /// The end of the newest instruction, for an error that names it.
    pub(super) fn newest_instruction(&self) -> &str {
        let newest = self
            .messages
            .iter()
            .rev()
            .find(|message| message.instructs());
        newest.map_or("", |message| message.content.trim())
    }

    /// The first exchange of the first recording that fits.
    pub(super) fn fit<'m>(&self, model: &'m RecordedModel) -> Option<Fit<'m>> {
        model.recordings.iter().find_map(|playable| {
            let values = self.values(playable);
            let scene = self.scene(playable);
            let mut exchanges = playable.recording.exchanges.iter();
            let exchange = exchanges.find(|exchange| self.fits(&exchange.when, &values, &scene))?;
            Some(Fit { exchange, values })
        })
    }

    fn values(&self, playable: &Playable) -> Values {
        let mut values = Values::new();
        for pattern in &playable.captures {
            if pattern.names().any(|name| values.contains_key(name)) {
                continue;
            }
            let newest_first = self
                .messages
                .iter()
                .rev()
                .filter(|message| message.instructs());
            if let Some(found) = newest_first
                .map(|message| &message.content)
                .find_map(|text| pattern.find(text))
            {
                values.extend(found);
            }
        }
        values
    }

    fn scene(&self, playable: &Playable) -> Scene<'_> {
        let tasks: Vec<&str> = playable
            .recording
            .exchanges
            .iter()
            .filter_map(|exchange| exchange.when.task.as_deref())
            .collect();
        let at = self.messages.iter().rposition(|message| {
            message.instructs() && tasks.iter().any(|task| message.content.contains(task))
        });
        let since = at.map_or(&self.messages[..], |at| &self.messages[at..]);
        let results: Vec<&Message> = since.iter().filter(|message| message.is_result()).collect();
        Scene {
            task: at.map(|at| self.messages[at].content.as_str()),
            results: results.len(),
            last_result: results.last().map(|message| message.content.as_str()),
        }
    }

    fn fits(&self, when: &When, values: &Values, scene: &Scene<'_>) -> bool {
        let said = |text: &String| {
            self.messages
                .iter()
                .any(|message| message.instructs() && message.content.contains(text.as_str()))
        };
        let holds = |wanted: &Option<String>, text: Option<&str>, test: fn(&str, &str) -> bool| {
            wanted
                .as_ref()
                .is_none_or(|wanted| text.is_some_and(|text| test(text, wanted)))
        };
        let contains: fn(&str, &str) -> bool = |text, wanted| text.contains(wanted);
        let starts: fn(&str, &str) -> bool = |text, wanted| text.trim_start().starts_with(wanted);
        when.kind == self.kind()
            && when.contains.iter().all(said)
            && holds(&when.task, scene.task, contains)
            && when.results.is_none_or(|results| results == scene.results)
            && when.results_at_least <= scene.results
            && holds(&when.last_result_contains, scene.last_result, contains)
            && holds(&when.last_result_starts_with, scene.last_result, starts)
            && when.captured.iter().all(|name| values.contains_key(name))
    }
}

/// Where a conversation stands.
struct Scene<'r> {
    /// The current Task's message.
    task: Option<&'r str>,
    /// Results since then.
    results: usize,
    last_result: Option<&'r str>,
}
