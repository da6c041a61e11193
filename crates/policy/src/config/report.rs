//! Collects findings instead of stopping at the first.

use super::finding::{Finding, FindingCode, Place};
use super::node::Mark;
use crate::message::Message;
use std::collections::{BTreeMap, BTreeSet};

/// Findings and places while one configuration is read.
pub(super) struct Report<'a> {
    names: Vec<&'a str>,
    findings: Vec<(Mark, Finding)>,
    mentioned: BTreeSet<String>,
    marks: BTreeMap<String, Mark>,
}

/// What a finding knows beside its place.
#[derive(Default)]
pub(super) struct Details {
    value: String,
    allowed: String,
    nearest: Option<String>,
    detail: String,
}

impl Details {
    pub(super) fn value(value: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            ..Self::default()
        }
    }

    pub(super) fn allowed(allowed: impl Into<String>) -> Self {
        Self {
            allowed: allowed.into(),
            ..Self::default()
        }
    }

    pub(super) fn detail(detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            ..Self::default()
        }
    }

    pub(super) fn with_value(self, value: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            ..self
        }
    }

    pub(super) fn with_detail(self, detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            ..self
        }
    }

    pub(super) fn with_nearest(self, nearest: Option<String>) -> Self {
        Self { nearest, ..self }
    }
}

/// `sandbox` and `network` make `sandbox.network`.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// Every message of the configuration carries the same five placeholders, empty where there is nothing to say.
pub(super) fn finding(code: FindingCode, place: Place, key: &str, details: Details) -> Finding {
    let message = Message::new(code.id())
        .with("key", key)
        .with("value", &details.value)
        .with("allowed", &details.allowed)
        .with("nearest", details.nearest.as_deref().unwrap_or_default())
        .with("detail", &details.detail);
    Finding {
        severity: code.severity(),
        file: place.file,
        line: place.line,
        column: place.column,
        key: key.to_owned(),
        code,
        allowed: details.allowed,
        nearest: details.nearest,
        message,
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(names: Vec<&'a str>) -> Self {
        Self {
            names,
            findings: Vec::new(),
            mentioned: BTreeSet::new(),
            marks: BTreeMap::new(),
        }
    }

    /// Adds a finding about `key` at `mark`.
    pub(super) fn add(&mut self, code: FindingCode, mark: Mark, key: &str, details: Details) {
        if self.is_full() {
            return;
        }
        let (code, key, details) = match self.findings.len() + 1 {
            super::MOST_FINDINGS => {
                let allowed = format!("..{}", super::MOST_FINDINGS);
                (FindingCode::TooMany, "", Details::allowed(allowed))
            }
            _ => (code, key, details),
        };
        let finding = finding(code, self.place(mark), key, details);
        self.mentioned.insert(key.to_owned());
        self.findings.push((mark, finding));
    }

    /// Whether nothing more is taken. A file with that many is told so, and is refused.
    pub(super) fn is_full(&self) -> bool {
        self.findings.len() >= super::MOST_FINDINGS
    }

    /// Remembers where a key is written.
    pub(super) fn written(&mut self, key: &str, mark: Mark) {
        self.marks.insert(key.to_owned(), mark);
    }

    /// Where a key is written.
    pub(super) fn mark_of(&self, key: &str) -> Option<Mark> {
        self.marks.get(key).copied()
    }

    /// Whether something about this key, or below it, was found already: then what follows from it is not told again.
    pub(super) fn mentions(&self, key: &str) -> bool {
        let begins = |sign: char| {
            let prefix = format!("{key}{sign}");
            let mut from = self.mentioned.range(prefix.clone()..);
            from.next().is_some_and(|next| next.starts_with(&prefix))
        };
        self.mentioned.contains(key) || begins('.') || begins('[')
    }

    /// Whether something about this very key was found already.
    pub(super) fn says(&self, key: &str) -> bool {
        self.mentioned.contains(key)
    }

    fn place(&self, mark: Mark) -> Place {
        Place {
            file: self
                .names
                .get(mark.source)
                .copied()
                .unwrap_or_default()
                .to_owned(),
            line: mark.line,
            column: mark.column,
        }
    }

    /// Whether no error was found so far.
    pub(super) fn is_clean(&self) -> bool {
        self.findings
            .iter()
            .all(|(_, finding)| finding.severity == super::Severity::Warning)
    }

    /// Everything found, in the order of the files, and the places of all keys.
    pub(super) fn finish(mut self) -> (Vec<Finding>, BTreeMap<String, Place>) {
        self.findings
            .sort_by(|(a, x), (b, y)| (a, &x.key, x.code).cmp(&(b, &y.key, y.code)));
        let places = self
            .marks
            .iter()
            .map(|(key, mark)| (key.clone(), self.place(*mark)))
            .collect();
        let findings = self.findings.into_iter().map(|(_, f)| f).collect();
        (findings, places)
    }
}
