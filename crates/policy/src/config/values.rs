//! Values that are more than one word or number: several forms, or keys of the human's own choice.

use super::finding::FindingCode as Code;
use super::node::{Content, Node, shorten};
use super::report::{Details, Report, join};
use super::scalar::{Written, boolean, number, plain, whole, wrong};
use super::settings::{KeepAlive, Think};
use super::words::{ThinkLevel, Word};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

impl Written for Think {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        if let Some(switch) = plain(node).and_then(boolean) {
            return Some(Self::Switch(switch));
        }
        let level = ThinkLevel::WORDS.iter().find(
            |(word, _)| matches!(&node.content, Content::Scalar { text, .. } if text == word),
        );
        if level.is_none() {
            let allowed = "true, false, low, medium, high, max";
            wrong(Code::UnknownWord, allowed, node, key, report);
        }
        level.map(|(_, level)| Self::Level(*level))
    }
}

impl JsonSchema for Think {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Think".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words = ThinkLevel::WORDS.iter().map(|(word, _)| *word);
        let allowed: Vec<Value> = [true, false]
            .map(Value::from)
            .into_iter()
            .chain(words.map(Value::from))
            .collect();
        json_schema!({ "enum": allowed })
    }
}

impl Written for KeepAlive {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        if let Some(seconds) = plain(node).and_then(whole) {
            return Some(Self::Seconds(seconds));
        }
        match &node.content {
            Content::Scalar { text, .. } if is_duration(text) => Some(Self::Duration(text.clone())),
            _ => {
                wrong(
                    Code::BadKeepAlive,
                    "5m, 1h30m, 300, 0, -1",
                    node,
                    key,
                    report,
                );
                None
            }
        }
    }
}

impl JsonSchema for KeepAlive {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "KeepAlive".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"] })
    }
}

/// Numbers with units, as Go's `time.ParseDuration` reads them.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = 0;
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let digits = &rest[..rest.len() - unit.len()];
        if digits.matches('.').count() > 1 || !digits.contains(|c: char| c.is_ascii_digit()) {
            return false;
        }
        let Some(after) = ["ns", "us", "µs", "ms", "s", "m", "h"]
            .iter()
            .find_map(|known| {
                unit.strip_prefix(known)
                    .filter(|after| !after.starts_with(|c: char| c.is_alphabetic()))
            })
        else {
            return false;
        };
        rest = after;
        parts += 1;
    }
    (1..=16).contains(&parts)
}

/// `sandbox.environment`.
#[derive(Clone, Debug)]
pub(super) struct Variables(pub(super) BTreeMap<String, String>);

impl Written for Variables {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let Content::Map(entries) = &node.content else {
            wrong(Code::ExpectedMap, "", node, key, report);
            return None;
        };
        let mut variables = BTreeMap::new();
        for entry in entries {
            let key = join(key, &shorten(&entry.key));
            report.written(&key, entry.mark);
            let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let good =
                entry.key.chars().all(name) && !entry.key.starts_with(|c: char| c.is_ascii_digit());
            if entry.key.is_empty() || !good {
                report.add(
                    Code::BadVariable,
                    entry.mark,
                    &key,
                    Details::allowed("A-Z a-z 0-9 _"),
                );
                continue;
            }
            if looks_secret(&entry.key) {
                report.add(Code::SecretVariable, entry.mark, &key, Details::default());
            }
            // The value may be a secret after all, so no finding repeats it.
            match &entry.value.content {
                Content::Scalar { text, plain }
                    if !plain
                        || (!entry.value.is_null()
                            && boolean(text).is_none()
                            && number(text).is_none()) =>
                {
                    if text.contains('\0') {
                        report.add(
                            Code::ControlCharacter,
                            entry.value.mark,
                            &key,
                            Details::default(),
                        );
                    }
                    variables.insert(entry.key.clone(), text.clone());
                }
                _ => report.add(
                    Code::ExpectedText,
                    entry.value.mark,
                    &key,
                    Details::value("…"),
                ),
            }
        }
        Some(Self(variables))
    }
}

fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    [
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "API_KEY",
        "APIKEY",
        "PRIVATE_KEY",
        "CREDENTIAL",
    ]
    .iter()
    .any(|mark| name.contains(mark))
}

impl JsonSchema for Variables {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Variables".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
            "additionalProperties": { "type": "string" }
        })
    }
}

/// `ollama.extra_options`: any YAML, as JSON.
#[derive(Clone, Debug, Default)]
pub(super) struct Extra(pub(super) Map<String, Value>);

impl Written for Extra {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let Content::Map(entries) = &node.content else {
            wrong(Code::ExpectedMap, "", node, key, report);
            return None;
        };
        for entry in entries {
            report.written(&join(key, &shorten(&entry.key)), entry.mark);
        }
        match json(node) {
            Value::Object(map) => Some(Self(map)),
            _ => None,
        }
    }
}

impl JsonSchema for Extra {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Extra".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": true })
    }
}

pub(super) fn json(node: &Node) -> Value {
    match &node.content {
        Content::List(items) => Value::Array(items.iter().map(json).collect()),
        Content::Map(entries) => entries
            .iter()
            .map(|e| (e.key.clone(), json(&e.value)))
            .collect(),
        Content::Scalar { .. } if node.is_null() => Value::Null,
        Content::Scalar { text, plain: false } => Value::from(text.as_str()),
        Content::Scalar { text, .. } => {
            if let Some(switch) = boolean(text) {
                Value::from(switch)
            } else if let Some(whole) = whole(text) {
                Value::from(whole)
            } else if let Some(number) = number(text).and_then(Number::from_f64) {
                Value::from(number)
            } else {
                Value::from(text.as_str())
            }
        }
    }
}

/// An option that Ollama no longer reads: accepted with any value, with a warning, never sent.
#[derive(Clone, Debug)]
pub(super) struct Gone;

impl Written for Gone {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        report.add(
            Code::GoneOption,
            node.mark,
            key,
            Details::value(node.shown()),
        );
        Some(Self)
    }
}

impl JsonSchema for Gone {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Gone".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "deprecated": true })
    }
}

/// `schema_version`: this program reads 2 and nothing else (X-SCHEMA).
#[derive(Clone, Debug)]
pub(super) struct Version;

impl Written for Version {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let code = match plain(node).and_then(whole) {
            Some(2) => return Some(Self),
            Some(1) => Code::VersionOne,
            Some(_) => Code::VersionUnknown,
            None => Code::ExpectedWhole,
        };
        wrong(code, "2", node, key, report);
        None
    }
}

impl JsonSchema for Version {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Version".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "const": 2 })
    }
}
