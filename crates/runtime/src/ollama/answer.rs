//! One complete answer, and everything about it that was not as it should be.

use super::extract::{ExtractProblem, Extracted, extract_json};
use super::request::ChatMessage;
use policy::{Code, Secret};
use serde_json::Value;
use std::time::Duration;

/// The text of a model's thinking. It has no `Display` and no `Serialize`, and its `Debug` shows nothing: it goes back to
/// the model while a tool call goes on and nowhere else (DESIGN §6.2).
#[derive(Clone, Debug)]
pub struct Thinking(Secret<String>);

impl Thinking {
    pub(super) fn new(text: String) -> Self {
        Self(Secret::new(text))
    }

    pub(super) fn for_the_model(&self) -> &str {
        self.0.expose()
    }

    /// Its size in bytes, for the log.
    pub fn size(&self) -> usize {
        self.0.expose().len()
    }
}

/// One call as the model wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct WireCall {
    /// The model's id, or one made here; unique within the conversation.
    pub id: String,
    /// The name as written, or the wire name where the catalogue name was written.
    pub wire_name: String,
    /// The catalogue name; nothing for a tool that was not offered.
    pub catalogue: Option<&'static str>,
    /// An object, or whatever stood there instead ([`AnswerNote::ArgumentsUnreadable`]).
    pub arguments: Value,
}

/// Why the answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoneReason {
    /// The model was done.
    Stop,
    /// `num_predict` or the context was used up. Can still hold complete JSON ("Survive these" 9).
    Length,
    /// Only loaded the model.
    Load,
    /// Only unloaded the model.
    Unload,
    /// A word unknown here.
    Other(String),
}

/// Tokens of one call (OLL-13). Nothing means unknown and never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// `prompt_eval_count`.
    pub input: Option<u64>,
    /// `eval_count`.
    pub output: Option<u64>,
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Everything.
    pub total: Option<Duration>,
    /// Loading the model.
    pub load: Option<Duration>,
    /// Reading the prompt.
    pub prompt: Option<Duration>,
    /// Writing the answer.
    pub answer: Option<Duration>,
}

/// Something that was not as it should be, and was survived. For the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerNote {
    /// An earlier attempt failed and was repeated.
    Repeated {
        /// Which attempt failed, from 1.
        attempt: u32,
        /// How.
        code: Code,
        /// HTTP status, if there was one.
        status: Option<u16>,
    },
    /// Repeated with another seed, because the model broke its own call.
    Reseeded,
    /// The call stood as JSON in the content ("Survive these" 1).
    CallInContent,
    /// A tool that was not offered ("Survive these" 4).
    UnknownTool(String),
    /// The catalogue name was written instead of the wire name.
    CatalogueNameUsed(&'static str),
    /// A call without arguments became one with an empty object ("Survive these" 3).
    ArgumentsMissing(String),
    /// The arguments were JSON inside a string.
    ArgumentsWereText(String),
    /// The arguments are no object and cannot be read as one.
    ArgumentsUnreadable(String),
    /// One value was text where the schema has a number, a boolean or a list.
    ValueWasText {
        /// Wire name.
        tool: String,
        /// Which argument.
        argument: String,
    },
    /// Identical calls in one turn; one was kept ("Survive these" 4).
    DuplicateCalls(usize),
    /// An entry of `tool_calls` without a usable name.
    UnreadableCall,
    /// Two calls with one id; the later one got its own.
    DuplicateId(String),
    /// Thinking and nothing else ("Survive these" 6).
    ThinkingOnly,
    /// Nothing at all.
    Empty,
    /// Thinking stood in the content and was taken out ("Survive these" 6).
    ThinkingInContent,
    /// Ended by `num_predict` or the context.
    CutOff,
    /// A field has another type than it should and was left out.
    FieldIgnored(&'static str),
    /// No `prompt_eval_count` or no `eval_count`.
    UsageUnknown,
    /// With a form and thinking the server counts only its second completion (X-OLL).
    UsageApproximate,
}

/// One complete answer.
#[derive(Clone, Debug)]
pub struct ChatAnswer {
    /// Text; empty where it was only a call.
    pub content: String,
    /// See [`Thinking`].
    pub thinking: Option<Thinking>,
    /// In the order they are to be done.
    pub tool_calls: Vec<WireCall>,
    /// Why it ended, if the server said so.
    pub done_reason: Option<DoneReason>,
    /// Tokens.
    pub usage: Usage,
    /// Times.
    pub durations: Durations,
    /// What was odd about it.
    pub notes: Vec<AnswerNote>,
    /// The whole answer as it came, without any thinking.
    pub raw: Value,
}

impl ChatAnswer {
    /// The answer as the next request's assistant turn. Thinking goes along only with calls (DESIGN §6.2).
    pub fn to_message(&self) -> ChatMessage {
        ChatMessage::Assistant {
            content: self.content.clone(),
            thinking: self
                .thinking
                .clone()
                .filter(|_| !self.tool_calls.is_empty()),
            calls: self.tool_calls.clone(),
        }
    }

    /// The JSON of an answer to [`Shape::Structured`](super::Shape::Structured) ("Survive these" 5, 9). It is not yet
    /// held against the schema: a server may ignore `format`.
    pub fn structured(&self) -> Result<Extracted, ExtractProblem> {
        extract_json(&self.content)
    }

    /// Whether it ended before the model was done.
    pub fn is_cut_off(&self) -> bool {
        self.done_reason == Some(DoneReason::Length)
    }
}
