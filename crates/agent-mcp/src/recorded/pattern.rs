//! Reading values out of a sentence without regular expressions.
//!
//! `create {file} containing the word {word}` is literal text with holes. Letters of literal text match in either case.
//! `{name}` is one word, or the inside of quotes; `{name*}` is everything up to the next literal text, or the end of the line.

use std::collections::BTreeMap;

/// Values by name.
pub(super) type Values = BTreeMap<String, String>;

/// A sentence with holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Word(String),
    Rest(String),
}

/// What opens and closes a quoted value.
const QUOTES: [(char, char); 5] = [
    ('"', '"'),
    ('\'', '\''),
    ('`', '`'),
    ('“', '”'),
    ('「', '」'),
];

/// What ends a sentence and not a value.
const ENDS: [char; 8] = ['.', ',', ';', '!', '?', ':', '。', '、'];

impl Pattern {
    /// Nothing when a hole is not closed, has no name, or nothing is literal.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('{') {
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_lowercase()));
            }
            let (hole, after) = after.split_once('}')?;
            let name = hole.trim_end_matches('*');
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
                return None;
            }
            parts.push(if hole == name {
                Part::Word(name.to_owned())
            } else {
                Part::Rest(name.to_owned())
            });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_lowercase()));
        }
        parts
            .iter()
            .any(|part| matches!(part, Part::Literal(_)))
            .then_some(Self(parts))
    }

    /// The names of its holes.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Word(name) | Part::Rest(name) => Some(name.as_str()),
            Part::Literal(_) => None,
        })
    }

    /// The values of the first line it fits.
    pub(super) fn find(&self, text: &str) -> Option<Values> {
        text.lines().find_map(|line| {
            line.char_indices()
                .find_map(|(start, _)| fit(&self.0, &line[start..]))
        })
    }
}

/// Fits `parts` to the start of `text`.
fn fit(parts: &[Part], text: &str) -> Option<Values> {
    let Some((part, parts)) = parts.split_first() else {
        return Some(Values::new());
    };
    match part {
        Part::Literal(literal) => fit(parts, without_prefix(text, literal)?),
        Part::Word(name) => {
            let (value, rest) = word(text)?;
            with(name, value, fit(parts, rest)?)
        }
        Part::Rest(name) => match parts.first() {
            None => with(name, bare(text), Values::new()),
            Some(_) => text.char_indices().find_map(|(end, _)| {
                let values = fit(parts, &text[end..])?;
                with(name, bare(&text[..end]), values)
            }),
        },
    }
}

fn with(name: &str, value: &str, mut values: Values) -> Option<Values> {
    if value.is_empty() {
        return None;
    }
    values.insert(name.to_owned(), value.to_owned());
    Some(values)
}

fn without_prefix<'t>(text: &'t str, lower: &str) -> Option<&'t str> {
    let mut rest = text.chars();
    for wanted in lower.chars() {
        if !rest.next()?.to_lowercase().eq(std::iter::once(wanted)) {
            return None;
        }
    }
    Some(rest.as_str())
}

/// One word or one quoted value, and what follows it.
fn word(text: &str) -> Option<(&str, &str)> {
    for (open, close) in QUOTES {
        if let Some(inside) = text.strip_prefix(open) {
            return inside.split_once(close);
        }
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let value = text[..end].trim_end_matches(ENDS);
    Some((value, &text[value.len()..]))
}

/// A value without the quotes, spaces and full stops around it.
fn bare(text: &str) -> &str {
    let text = text.trim().trim_end_matches(ENDS);
    for (open, close) in QUOTES {
        if let Some(inside) = text
            .strip_prefix(open)
            .and_then(|text| text.strip_suffix(close))
        {
            return inside;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, text: &str, expected: &[(&str, &str)]) {
        let found = Pattern::parse(pattern).unwrap().find(text);
        let expected: Values = expected
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        assert_eq!(found.unwrap_or_default(), expected, "{text}");
    }

    #[test]
    fn values_are_read_out_of_sentences() {
        let create = "create {file} containing the word {word}";
        check(
            create,
            "Please create notes/a.txt containing the word Hello.",
            &[("file", "notes/a.txt"), ("word", "Hello")],
        );
        check(
            create,
            "x\nCREATE \"my file.txt\" containing the word `ok`, now",
            &[("file", "my file.txt"), ("word", "ok")],
        );
        check(create, "create \"a b\" and more", &[]);
        check(create, "create a\ncontaining the word b", &[]);
        check(
            "workspace: {root*}",
            "Workspace: /tmp/my box ",
            &[("root", "/tmp/my box")],
        );
        check(
            "in {root*} write {word}",
            "in /tmp/a b write x",
            &[("root", "/tmp/a b"), ("word", "x")],
        );
        check("「{word}」と書", "「こんにちは」と書いて", &[]);
        check(
            "{file} に {word} と書",
            "メモ.txt に 「こんにちは」 と書いて",
            &[("file", "メモ.txt"), ("word", "こんにちは")],
        );
    }

    #[test]
    fn patterns_without_sense_are_refused() {
        for text in ["", "{a}", "x {a", "x {}", "x {A}", "x {*}"] {
            assert_eq!(Pattern::parse(text), None, "{text}");
        }
    }
}
