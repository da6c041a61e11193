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
    /// `{detail}` as a message, where it is one.
    pub reason: Option<Box<Message>>,
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
            reason: None,
        }
    }

    /// Says why, in the place of `{detail}`.
    #[must_use]
    pub fn because(mut self, reason: impl Into<Message>) -> Self {
        self.reason = Some(Box::new(reason.into()));
        self
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
        message = message.with("target", &self.target);
        message = match rule_id(&self.rule) {
            Some(id) => message.with_message("rule", Message::new(id)),
            None => message.with("rule", &self.rule),
        };
        message = message.with("right", self.required.map_or("", Right::word));
        for (name, value) in &self.detail {
            message = message.with(name, value);
        }
        match &self.reason {
            Some(reason) => message.with_message("detail", (**reason).clone()),
            None => message,
        }
    }
}

/// The text of a rule that is named in words. A configuration key, a layer or a path stands for itself.
fn rule_id(rule: &str) -> Option<&'static str> {
    RULES
        .iter()
        .find(|(name, _)| *name == rule)
        .map(|(_, id)| *id)
}

/// Rules as the audit names them, and their texts.
const RULES: &[(&str, &str)] = &[
    ("own files", "rule.own_files"),
    ("granted roots", "rule.granted_roots"),
    ("tool catalogue", "rule.tool_catalogue"),
    ("box tools", "rule.box_tools"),
    ("L6 default deny", "rule.default_deny"),
    ("required_tools of the current Task", "rule.required_tools"),
    (
        "entries, runtime roots, workspace artifacts",
        "rule.programs",
    ),
    ("standard streams", "rule.standard_streams"),
    ("X-ROOT: own files", "rule.own_files"),
    ("DESIGN §10.2: narrower nested root", "rule.nested_root"),
    (
        "X-MODE: an action approval for each use",
        "rule.approval_each",
    ),
    ("use the entry's alias", "rule.use_alias"),
    ("L1 os_operations", "rule.os_operations"),
    ("L4 context", "rule.context"),
    ("L5 approvals.ask", "rule.ask"),
    ("X-ROOT: cwd", "rule.granted_roots"),
    ("X-ROOT", "rule.granted_roots"),
    ("sandbox root", "rule.granted_roots"),
    ("granted file, not directory", "rule.granted_file"),
    ("a granted root stays", "rule.root_stays"),
    ("operating system permissions", "rule.operating_system"),
    ("a granted file with other hard links", "rule.hard_links"),
    ("links in circles", "os.too_many_links"),
    ("reason.holds_home", "reason.holds_home"),
    ("reason.of_the_system", "reason.of_the_system"),
    ("reason.shared", "reason.shared"),
];

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
    /// `{detail}` for people, where it is a message.
    pub reason: Option<Box<Message>>,
}

impl Fault {
    /// A fault on `target`.
    pub fn new(blame: Blame, code: Code, target: impl Into<String>, detail: impl ToString) -> Self {
        Self {
            blame,
            code,
            target: target.into(),
            detail: detail.to_string(),
            reason: None,
        }
    }

    /// A fault on `target` whose detail has texts of its own; an `io::Error` has.
    pub fn because(
        blame: Blame,
        code: Code,
        target: impl Into<String>,
        reason: impl Into<Message>,
    ) -> Self {
        let reason = reason.into();
        Self {
            reason: Some(Box::new(reason.clone())),
            ..Self::new(blame, code, target, reason)
        }
    }

    /// The fault for people.
    pub fn message(&self) -> Message {
        self.fill(self.code.message_id())
    }

    /// What to do about it, for people.
    pub fn hint(&self) -> Message {
        self.fill(self.code.hint_id())
    }

    fn fill(&self, id: &'static str) -> Message {
        let message = Message::new(id).with("target", &self.target);
        match &self.reason {
            Some(reason) => message.with_message("detail", (**reason).clone()),
            None => message.with("detail", &self.detail),
        }
    }
}
