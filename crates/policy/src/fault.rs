//! Refused is not failed: a refusal is an answer, a fault names whose it is.

use crate::code::Code;
use crate::message::Message;
use crate::rights::Right;

/// A refusal by a rule: what was refused, by which rule, on which object, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Stable code.
    pub code: Code,
    /// The rule, in the policy's own words: a configuration key, a layer (`L4`), a root.
    pub rule: String,
    /// The object: a resolved path, an alias, `host:port`.
    pub target: String,
    /// The right that was missing, for files.
    pub required: Option<Right>,
    /// Placeholders for the localized message and hint; `{target}` and `{rule}` are always there.
    pub detail: Vec<(&'static str, String)>,
}

impl Refusal {
    /// A refusal of `target` by `rule`.
    pub fn new(code: Code, rule: impl Into<String>, target: impl Into<String>) -> Self {
        Self {
            code,
            rule: rule.into(),
            target: target.into(),
            required: None,
            detail: Vec::new(),
        }
    }

    /// Names the missing right.
    #[must_use]
    pub fn requiring(mut self, right: Right) -> Self {
        self.required = Some(right);
        self
    }

    /// Adds a placeholder for the texts.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.detail.push((name, value.to_string()));
        self
    }

    /// What was refused and why, for people.
    pub fn message(&self) -> Message {
        self.fill(Message::new(self.code.message_id()))
    }

    /// What to do about it, for people.
    pub fn hint(&self) -> Message {
        self.fill(Message::new(self.code.hint_id()))
    }

    fn fill(&self, mut message: Message) -> Message {
        message = message
            .with("target", &self.target)
            .with("rule", &self.rule);
        message = message.with("right", self.required.map_or("", Right::word));
        for (name, value) in &self.detail {
            message = message.with(name, value);
        }
        message
    }
}

/// What a checked operation came to, when nothing was broken.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It was done.
    Done(T),
    /// A rule said no.
    Refused(Refusal),
}

/// Whose fault a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The model's answer.
    Model,
    /// The MCP client's request.
    Client,
    /// The human's configuration.
    Configuration,
    /// The machine: disk, kernel, network.
    Machine,
    /// This program.
    Us,
}

/// Something failed. Carries data, never a formatted sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code} ({blame:?}) {target}: {detail}")]
pub struct Fault {
    /// Whose it is.
    pub blame: Blame,
    /// Stable code.
    pub code: Code,
    /// The object it happened to.
    pub target: String,
    /// Technical detail for logs and for the `{detail}` placeholder; never shown alone.
    pub detail: String,
}

impl Fault {
    /// A fault on `target`.
    pub fn new(blame: Blame, code: Code, target: impl Into<String>, detail: impl ToString) -> Self {
        Self {
            blame,
            code,
            target: target.into(),
            detail: detail.to_string(),
        }
    }

    /// The fault for people.
    pub fn message(&self) -> Message {
        Message::new(self.code.message_id())
            .with("target", &self.target)
            .with("detail", &self.detail)
    }

    /// What to do about it, for people.
    pub fn hint(&self) -> Message {
        Message::new(self.code.hint_id())
            .with("target", &self.target)
            .with("detail", &self.detail)
    }
}
