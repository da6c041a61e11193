//! The file format, and what has to hold in it.

use super::pattern::Pattern;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// One recording: exchanges that are tried from the first to the last.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// The model's name; other names do not exist on this server.
    pub model: String,
    /// As `/api/show` says them.
    #[serde(default = "capabilities")]
    pub capabilities: Vec<String>,
    /// Tokens.
    #[serde(default = "context_length")]
    pub context_length: u64,
    /// Sentences with holes, read from the newest system or user message that has one. Earlier ones go first: a later one
    /// is not read when one of its names has a value already.
    #[serde(default)]
    pub captures: Vec<String>,
    /// First fit wins.
    pub exchanges: Vec<Exchange>,
}

fn capabilities() -> Vec<String> {
    ["completion", "tools"].map(str::to_owned).to_vec()
}

fn context_length() -> u64 {
    32_768
}

/// One request that is known, and its answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// For the transcript; unique in its recording.
    pub name: String,
    /// All of it has to hold.
    pub when: When,
    /// What is answered.
    pub answer: Answer,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It carries a `format`.
    Plan,
    /// It carries `tools`.
    Act,
    /// Neither.
    Text,
}

impl Kind {
    /// The word in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Act => "act",
            Self::Text => "text",
        }
    }
}

/// What a conversation contains.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// What the request is for.
    pub kind: Kind,
    /// Each stands in some system or user message.
    #[serde(default)]
    pub contains: Vec<String>,
    /// Stands in the current Task's message: the newest system or user message with any `task` text of this recording.
    #[serde(default)]
    pub task: Option<String>,
    /// Exactly that many tool results since the current Task's message (or in all, where the recording has no `task`).
    #[serde(default)]
    pub results: Option<usize>,
    /// At least that many.
    #[serde(default)]
    pub results_at_least: usize,
    /// Stands in the newest of those results.
    #[serde(default)]
    pub last_result_contains: Option<String>,
    /// The newest of those results starts like this: `DENIED`, `FAILED`.
    #[serde(default)]
    pub last_result_starts_with: Option<String>,
    /// Values that were captured.
    #[serde(default)]
    pub captured: Vec<String>,
}

/// What is answered. `{{name}}` in any text is a captured value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Text.
    #[serde(default)]
    pub content: Option<String>,
    /// JSON that becomes the text: a plan.
    #[serde(default)]
    pub json: Option<Value>,
    /// Thinking beside the text.
    #[serde(default)]
    pub thinking: Option<String>,
    /// Calls in order.
    #[serde(default)]
    pub calls: Vec<Call>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The tool's name on the wire; it has to be offered by the request.
    pub name: String,
    /// An object.
    pub arguments: Value,
}

/// A recording that cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum RecordingProblem {
    /// Not the format.
    #[error("not a recording: {0}")]
    Format(#[from] serde_json::Error),
    /// No sentence with holes.
    #[error("unusable capture {0:?}")]
    Capture(String),
    /// The same name twice.
    #[error("two exchanges are called {0:?}")]
    NameTwice(String),
    /// Neither content nor json nor calls, or content and json.
    #[error("exchange {0:?} needs content, json or calls, and not both content and json")]
    Answer(String),
    /// A placeholder that the exchange does not require as captured.
    #[error("exchange {exchange:?} uses {{{{{placeholder}}}}}, which its `captured` does not list")]
    Placeholder {
        /// The exchange.
        exchange: String,
        /// The name.
        placeholder: String,
    },
    /// A required value that no capture yields.
    #[error("exchange {exchange:?} needs {name:?}, which nothing captures")]
    NeverCaptured {
        /// The exchange.
        exchange: String,
        /// The name.
        name: String,
    },
}

/// One or more recordings behind one model name.
#[derive(Clone, Debug)]
pub struct RecordedModel {
    pub(super) recordings: Vec<Playable>,
}

/// A checked recording.
#[derive(Clone, Debug)]
pub(super) struct Playable {
    pub(super) recording: Recording,
    pub(super) captures: Vec<Pattern>,
}

/// Requests of the kind "create FILE containing the word X".
const GENERAL: &str = include_str!("general.json");

impl RecordedModel {
    /// Reads and checks a recording.
    pub fn load(json: &str) -> Result<Self, RecordingProblem> {
        let recording: Recording = serde_json::from_str(json)?;
        Ok(Self {
            recordings: vec![Playable::check(recording)?],
        })
    }

    /// The built-in recording for any request of the kind "create FILE containing the word X".
    pub fn general() -> Result<Self, RecordingProblem> {
        Self::load(GENERAL)
    }

    /// Asks `other` where nothing here fits. The name and the capabilities stay these.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.recordings.extend(other.recordings);
        self
    }

    /// The model's name; empty only for a model without a recording, which cannot be made.
    pub fn name(&self) -> &str {
        self.recordings
            .first()
            .map_or("", |first| &first.recording.model)
    }
}

impl Playable {
    fn check(recording: Recording) -> Result<Self, RecordingProblem> {
        let pattern = |text: &String| {
            Pattern::parse(text).ok_or_else(|| RecordingProblem::Capture(text.clone()))
        };
        let captures: Vec<Pattern> = recording
            .captures
            .iter()
            .map(pattern)
            .collect::<Result<_, _>>()?;
        let known: BTreeSet<&str> = captures.iter().flat_map(Pattern::names).collect();
        let mut names = BTreeSet::new();
        for exchange in &recording.exchanges {
            if !names.insert(&exchange.name) {
                return Err(RecordingProblem::NameTwice(exchange.name.clone()));
            }
            check_exchange(exchange, &known)?;
        }
        Ok(Self {
            recording,
            captures,
        })
    }
}

fn check_exchange(exchange: &Exchange, known: &BTreeSet<&str>) -> Result<(), RecordingProblem> {
    let Answer {
        content,
        json,
        calls,
        ..
    } = &exchange.answer;
    let texts = usize::from(content.is_some()) + usize::from(json.is_some());
    let objects = calls.iter().all(|call| call.arguments.is_object());
    if texts > 1 || (texts == 0 && calls.is_empty()) || !objects {
        return Err(RecordingProblem::Answer(exchange.name.clone()));
    }
    if let Some(name) = exchange
        .when
        .captured
        .iter()
        .find(|name| !known.contains(name.as_str()))
    {
        return Err(RecordingProblem::NeverCaptured {
            exchange: exchange.name.clone(),
            name: name.clone(),
        });
    }
    let unlisted = super::answer::placeholders(&exchange.answer)
        .into_iter()
        .find(|placeholder| !exchange.when.captured.contains(placeholder));
    match unlisted {
        Some(placeholder) => Err(RecordingProblem::Placeholder {
            exchange: exchange.name.clone(),
            placeholder,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_recording_holds() {
        assert_eq!(RecordedModel::general().unwrap().name(), "recorded:latest");
    }

    #[track_caller]
    fn refused(exchanges: &str, captures: &str) -> String {
        let text = format!(r#"{{"model":"m","captures":{captures},"exchanges":{exchanges}}}"#);
        RecordedModel::load(&text).unwrap_err().to_string()
    }

    #[test]
    fn recordings_that_cannot_be_played_are_refused_when_they_are_loaded() {
        let text = r#"{"name":"a","when":{"kind":"text"},"answer":{"content":"x"}}"#;
        assert!(refused(&format!("[{text},{text}]"), "[]").contains("two exchanges"));
        assert!(refused(&format!("[{text}]"), r#"["{a}"]"#).contains("unusable capture"));
        let nothing = r#"[{"name":"a","when":{"kind":"text"},"answer":{}}]"#;
        assert!(refused(nothing, "[]").contains("needs content, json or calls"));
        let both = r#"[{"name":"a","when":{"kind":"text"},"answer":{"content":"x","json":{}}}]"#;
        assert!(refused(both, "[]").contains("not both"));
        let hole = r#"[{"name":"a","when":{"kind":"text"},"answer":{"json":{"k":["{{file}}"]}}}]"#;
        assert!(refused(hole, r#"["make {file}"]"#).contains("uses {{file}}"));
        let never =
            r#"[{"name":"a","when":{"kind":"text","captured":["x"]},"answer":{"content":"x"}}]"#;
        assert!(refused(never, "[]").contains("nothing captures"));
        let misspelt =
            r#"[{"name":"a","when":{"kind":"text","resluts":1},"answer":{"content":"x"}}]"#;
        assert!(refused(misspelt, "[]").contains("unknown field"));
    }
}
