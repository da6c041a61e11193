//! Values as they are written: each type knows its range or shape, reads it from a node, and describes it in the schema.

use super::finding::FindingCode;
use super::nearest::nearest;
use super::node::{Content, Mark, Node, shorten};
use super::report::{Details, Report, join};
use super::words::Word;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) mark: Mark,
}

/// Something that can be read from a node. `None` after a finding.
pub(super) trait Written: Sized {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self>;

    /// The full names of all keys from here on.
    fn keys(prefix: &str, out: &mut Vec<String>) {
        out.push(prefix.to_owned());
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Reports that another shape is wanted.
pub(super) fn wrong(
    code: FindingCode,
    allowed: &str,
    node: &Node,
    key: &str,
    report: &mut Report<'_>,
) {
    let details = Details::allowed(allowed).with_value(node.shown());
    report.add(code, node.mark, key, details);
}

/// The text of an unquoted scalar.
pub(super) fn plain(node: &Node) -> Option<&str> {
    match &node.content {
        Content::Scalar { text, plain: true } => Some(text),
        _ => None,
    }
}

/// The scalar if YAML reads it as text: quoted, or nothing else that YAML 1.2 knows.
pub(super) fn text<'a>(node: &'a Node, key: &str, report: &mut Report<'_>) -> Option<&'a str> {
    if let Content::Scalar { text, plain } = &node.content
        && (!plain || (!node.is_null() && boolean(text).is_none() && number(text).is_none()))
    {
        return Some(text);
    }
    wrong(FindingCode::ExpectedText, "", node, key, report);
    None
}

/// YAML 1.2 core schema: `true` and `false`, not `yes` or `on`.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// YAML 1.2 core schema: decimal, `0x`, `0o`.
pub(super) fn whole(text: &str) -> Option<i64> {
    let digits = |rest: &str, radix| {
        (!rest.starts_with(['+', '-'])).then(|| i64::from_str_radix(rest, radix).ok())?
    };
    match text.get(..2) {
        Some("0x") => digits(&text[2..], 16),
        Some("0o") => digits(&text[2..], 8),
        _ => text.parse().ok(),
    }
}

/// YAML 1.2 core schema: a whole or decimal number; infinite where it is larger than any.
pub(super) fn number(text: &str) -> Option<f64> {
    if let Some(whole) = whole(text) {
        return Some(whole as f64);
    }
    let shape = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    if !text.chars().all(shape) || !text.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

impl Written for bool {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let value = plain(node).and_then(boolean);
        if value.is_none() {
            wrong(FindingCode::ExpectedBool, "true, false", node, key, report);
        }
        value
    }
}

/// A whole number within its range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole<const MIN: i64, const MAX: i64>(pub(super) i64);

impl<const MIN: i64, const MAX: i64> Whole<MIN, MAX> {
    const RANGE: RangeInclusive<i64> = MIN..=MAX;
}

impl<const MIN: i64, const MAX: i64> Written for Whole<MIN, MAX> {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let allowed = format!("{MIN}..{MAX}");
        let text = plain(node).unwrap_or_default();
        match whole(text) {
            Some(value) if Self::RANGE.contains(&value) => return Some(Self(value)),
            Some(_) => wrong(FindingCode::OutOfRange, &allowed, node, key, report),
            // Digits only, but more than 64 bits hold.
            None if number(text).is_some() && !text.contains(['.', 'e', 'E']) => {
                wrong(FindingCode::OutOfRange, &allowed, node, key, report);
            }
            None => wrong(FindingCode::ExpectedWhole, &allowed, node, key, report),
        }
        None
    }
}

impl<const MIN: i64, const MAX: i64> JsonSchema for Whole<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Whole_{MIN}_{MAX}").into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A decimal number; the limits are in thousandths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal<const MIN: i64, const MAX: i64>(pub(super) f64);

impl<const MIN: i64, const MAX: i64> Decimal<MIN, MAX> {
    const RANGE: (f64, f64) = (MIN as f64 / 1000.0, MAX as f64 / 1000.0);
}

impl<const MIN: i64, const MAX: i64> Written for Decimal<MIN, MAX> {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let (min, max) = Self::RANGE;
        let allowed = format!("{min}..{max}");
        match plain(node).and_then(number) {
            Some(value) if (min..=max).contains(&value) => return Some(Self(value)),
            Some(_) => wrong(FindingCode::OutOfRange, &allowed, node, key, report),
            None => wrong(FindingCode::ExpectedNumber, &allowed, node, key, report),
        }
        None
    }
}

impl<const MIN: i64, const MAX: i64> JsonSchema for Decimal<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Decimal_{MIN}_{MAX}").into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let (min, max) = Self::RANGE;
        json_schema!({ "type": "number", "minimum": min, "maximum": max })
    }
}

impl<T: Word> Written for T {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let word = match &node.content {
            Content::Scalar { text, .. } if !node.is_null() => text.as_str(),
            _ => "",
        };
        let found = T::WORDS.iter().find(|(known, _)| *known == word);
        if found.is_none() {
            let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
            let details = Details::allowed(words.join(", "))
                .with_value(node.shown())
                .with_nearest(nearest(word, words.into_iter()).map(str::to_owned));
            report.add(FindingCode::UnknownWord, node.mark, key, details);
        }
        found.map(|(_, value)| *value)
    }
}

/// Any text, empty too.
impl Written for String {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        text(node, key, report).map(str::to_owned)
    }
}

/// An item of a list, with its number in the file also where items before it were wrong.
#[derive(Clone, Debug)]
pub(super) struct Item<T> {
    pub(super) index: usize,
    pub(super) mark: Mark,
    pub(super) value: T,
}

/// A list of the items that could be read.
#[derive(Clone, Debug)]
pub(super) struct List<T>(pub(super) Vec<Item<T>>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> List<T> {
    /// The plain values.
    pub(super) fn map<U>(self, plain: impl Fn(T) -> U) -> Vec<U> {
        self.0.into_iter().map(|item| plain(item.value)).collect()
    }
}

impl<T: Written> Written for List<T> {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let Content::List(items) = &node.content else {
            wrong(FindingCode::ExpectedList, "", node, key, report);
            return None;
        };
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let key = format!("{key}[{index}]");
            let mark = item.mark;
            report.written(&key, mark);
            if let Some(value) = T::read(item, &key, report) {
                values.push(Item { index, mark, value });
            }
        }
        Some(Self(values))
    }

    fn keys(prefix: &str, out: &mut Vec<String>) {
        out.push(prefix.to_owned());
        let mut below = Vec::new();
        T::keys(&format!("{prefix}[]"), &mut below);
        out.extend(below.into_iter().filter(|key| !key.ends_with(']')));
    }
}

impl<T: JsonSchema> JsonSchema for List<T> {
    fn inline_schema() -> bool {
        Vec::<T>::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        Vec::<T>::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        Vec::<T>::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<T>::json_schema(generator)
    }
}

/// Reads one field of a section; a key without value counts as not written.
pub(super) fn field<T: Written>(
    node: &Node,
    mark: Mark,
    key: &str,
    report: &mut Report<'_>,
) -> Option<At<T>> {
    if node.is_null() {
        return None;
    }
    report.written(key, mark);
    T::read(node, key, report).map(|value| At {
        value,
        mark: node.mark,
    })
}

/// Reports a key that its section does not have.
pub(super) fn unknown(
    key: &str,
    mark: Mark,
    section: &str,
    known: &[&'static str],
    report: &mut Report<'_>,
) {
    if report.is_full() {
        return;
    }
    let known: Vec<&str> = known.iter().map(|key| bare(key)).collect();
    let near = nearest(key, known.iter().copied())
        .map(|near| join(section, near))
        .or_else(|| elsewhere(key));
    let code = match near {
        Some(_) => FindingCode::UnknownKeyNear,
        None => FindingCode::UnknownKey,
    };
    let details = Details::allowed(known.join(", ")).with_nearest(near);
    report.add(code, mark, &join(section, &shorten(key)), details);
}

/// A known key of the same name in another section.
fn elsewhere(key: &str) -> Option<String> {
    super::known_keys()
        .iter()
        .find(|known| known.rsplit('.').next() == Some(key))
        .cloned()
}

/// `r#box` is `box`.
pub(super) fn bare(key: &'static str) -> &'static str {
    key.strip_prefix("r#").unwrap_or(key)
}
