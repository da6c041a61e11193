//! Every key of the schema, with everything that may not stand there (SPEC §15, issue 4 "Bad input"): the keys come from
//! the schema, so that a new one is tried without anybody thinking of it.

mod schema;

use policy::config::{Config, Finding, Severity, Source, json_schema, known_keys};
use schema::every_key;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn findings(text: impl AsRef<[u8]>) -> Vec<Finding> {
    let source = Source {
        name: "agent.yaml",
        text: text.as_ref(),
    };
    match Config::read(&[source]) {
        Ok(loaded) => loaded.warnings,
        Err(findings) => findings,
    }
}

/// A file in which `value` stands at `key`, the key as findings name it, and line and column of the value.
struct File {
    text: String,
    key: String,
    line: usize,
    column: usize,
}

fn file(key: &str, value: &str) -> File {
    let mut text = String::new();
    let mut indent = String::new();
    let mut lead = String::new();
    let parts: Vec<&str> = key.split('.').collect();
    for (index, part) in parts.iter().enumerate() {
        let name = part.trim_end_matches("[]");
        text.push_str(&format!("{lead}{name}:"));
        indent.push_str("  ");
        lead = match part.ends_with("[]") {
            true => {
                let lead = format!("{indent}- ");
                indent.push_str("  ");
                lead
            }
            false => indent.clone(),
        };
        if index + 1 < parts.len() {
            text.push('\n');
        }
    }
    let last = text.lines().last().map_or(0, |line| line.chars().count());
    let line = text.lines().count();
    text.push_str(&format!(" {value}\n"));
    File {
        text,
        key: key.replace("[]", "[0]"),
        line,
        column: last + 2,
    }
}

/// One value of each kind that YAML knows, by the name that JSON Schema has for it.
const KINDS: [(&str, &str); 7] = [
    ("null", "~"),
    ("boolean", "true"),
    ("integer", "7"),
    ("number", "7.5"),
    ("string", "some text"),
    ("array", "[[nonsense]]"),
    ("object", "{nonsense: 1}"),
];

/// The kinds that a schema takes.
fn kinds(root: &Value, node: &Value, found: &mut BTreeSet<String>) {
    let name = |value: &Value| match value {
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        _ => "string",
    };
    if let Some(reference) = node["$ref"].as_str() {
        let name = reference.trim_start_matches("#/$defs/");
        kinds(root, &root["$defs"][name], found);
    }
    match &node["type"] {
        Value::String(kind) => {
            found.insert(kind.clone());
        }
        Value::Array(all) => found.extend(all.iter().filter_map(|k| k.as_str()).map(str::to_owned)),
        _ => {}
    }
    found.extend(
        node["enum"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|v| name(v).to_owned()),
    );
    if !node["const"].is_null() {
        found.insert(name(&node["const"]).to_owned());
    }
    for choices in [&node["anyOf"], &node["oneOf"]] {
        for choice in choices.as_array().into_iter().flatten() {
            kinds(root, choice, found);
        }
    }
    if found.contains("number") {
        found.insert("integer".to_owned());
    }
}

/// Every key with its schema, and every section.
fn keys() -> BTreeMap<String, Value> {
    let mut keys = BTreeMap::new();
    every_key(|key, node| {
        keys.insert(key.to_owned(), node.clone());
    });
    assert_eq!(keys.len(), known_keys().len());
    for key in known_keys() {
        let mut at = key.as_str();
        while let Some((section, _)) = at.rsplit_once('.') {
            if !section.ends_with("[]") {
                keys.insert(section.to_owned(), json!({ "type": "object" }));
            }
            at = section;
        }
    }
    keys
}

/// Ollama's dropped options take anything, with a warning.
fn is_gone(node: &Value) -> bool {
    node["deprecated"] == json!(true)
}

/// The only error at the key, at the place of its value.
#[track_caller]
fn one(file: &File) -> Finding {
    let found: Vec<Finding> = findings(&file.text)
        .into_iter()
        .filter(|f| f.severity == Severity::Error && f.key == file.key)
        .collect();
    assert_eq!(found.len(), 1, "{}\n{found:#?}", file.text);
    let found = found.into_iter().next().expect("one");
    assert_eq!(
        (found.file.as_str(), found.line, found.column),
        ("agent.yaml", file.line, file.column),
        "{}\n{found:#?}",
        file.text
    );
    found
}

/// SPEC §15: every key refuses every kind of value that its schema does not take: one finding, at the value, that says what
/// is allowed.
#[test]
fn spec_15_every_key_refuses_every_wrong_kind() {
    let root = json_schema();
    let mut refused = 0;
    for (key, node) in keys() {
        if is_gone(&node) {
            continue;
        }
        let mut taken = BTreeSet::new();
        kinds(&root, &node, &mut taken);
        assert!(!taken.is_empty(), "{key} has no type: {node}");
        for (kind, value) in KINDS {
            // Nothing counts as not written.
            if taken.contains(kind) || kind == "null" {
                continue;
            }
            let found = one(&file(&key, value));
            refused += 1;
            let code = found.code.id();
            let wants = match code {
                "config.expected_map" | "config.expected_list" | "config.expected_text" => false,
                "config.expected_bool"
                | "config.expected_whole"
                | "config.expected_number"
                | "config.unknown_word"
                | "config.bad_keep_alive" => true,
                _ => panic!("{key}: {value}: {code}"),
            };
            assert_eq!(
                wants,
                !found.allowed.is_empty(),
                "{key}: {value}: {found:?}"
            );
        }
    }
    assert!(refused > 500, "{refused}");
}

/// DESIGN §10.1: a key without value is as if it were not written: its default applies, and only one without default is
/// missing.
#[test]
fn a_key_without_value_is_not_written() {
    for (key, node) in keys() {
        for value in ["~", "null", ""] {
            let file = file(&key, value);
            let found: Vec<&'static str> = findings(&file.text)
                .iter()
                .filter(|f| f.key == file.key)
                .map(|f| f.code.id())
                .collect();
            assert!(
                found
                    .iter()
                    .all(|code| ["config.missing_key", "config.version_missing"].contains(code)),
                "{key}: {found:?} {node}"
            );
        }
    }
}

/// SPEC §15: every number has limits, and what lies beyond them is refused with both named.
#[test]
fn spec_15_every_number_has_limits() {
    let mut tried = 0;
    let mut numbers = Vec::new();
    for (key, node) in keys() {
        if node["minimum"].is_number() {
            numbers.push((key, node, false));
        } else if node["items"]["minimum"].is_number() {
            let items = node["items"].clone();
            numbers.push((key, items, true));
        }
    }
    for (key, node, in_list) in numbers {
        let limit = |name: &str| {
            let limit = node[name].as_f64();
            limit.unwrap_or_else(|| panic!("{key} has no {name}"))
        };
        let is_whole = node["type"].to_string().contains("integer");
        let step = if is_whole { 1.0 } else { 0.001 };
        let huge = "9".repeat(400);
        for value in [
            format!("{}", limit("minimum") - step),
            format!("{}", limit("maximum") + step),
            huge.clone(),
            format!("-{huge}"),
        ] {
            let mut file = file(&key, &if in_list { format!("[{value}]") } else { value });
            if in_list {
                file.key.push_str("[0]");
                file.column += 1;
            }
            let found = one(&file);
            tried += 1;
            assert_eq!(found.code.id(), "config.out_of_range", "{}", file.text);
            assert_eq!(
                found.allowed,
                format!("{}..{}", limit("minimum"), limit("maximum")),
                "{key}"
            );
        }
    }
    assert!(tried > 100, "{tried}");
}

/// SPEC §15: text of a shape refuses what is empty or holds a control character; words refuse any other word.
#[test]
fn spec_15_every_text_refuses_nonsense() {
    let root = json_schema();
    let mut tried = 0;
    for (key, node) in keys() {
        let mut taken = BTreeSet::new();
        kinds(&root, &node, &mut taken);
        if !taken.contains("string") || is_gone(&node) {
            continue;
        }
        let found = one(&file(&key, "\"a\\u0001b\""));
        tried += 1;
        let words = [
            "config.unknown_word",
            "config.bad_keep_alive",
            "config.control_character",
        ];
        assert!(words.contains(&found.code.id()), "{key}: {found:?}");
        let is_shown = found
            .message
            .arguments()
            .iter()
            .any(|(_, text)| text.contains('\u{1}'));
        assert!(!is_shown, "{key}: {found:?}");
    }
    assert!(tried > 20, "{tried}");
}

/// Issue 4: a byte that is not UTF-8 is refused at its place, whatever the key.
#[test]
fn spec_15_every_key_refuses_another_encoding() {
    for key in keys().keys() {
        let file = file(key, "a");
        let at = file.text.trim_end().len() - 1;
        let mut bytes = file.text.clone().into_bytes();
        bytes[at] = 0xe9;
        let found = findings(&bytes);
        assert_eq!(found.len(), 1, "{key}: {found:?}");
        assert_eq!(
            (found[0].code.id(), found[0].line, found[0].column),
            ("config.not_utf8", file.line, file.column),
            "{key}"
        );
    }
}

/// SPEC §15: in every section, also in items of lists, a mistyped key is told with the key that was meant.
#[test]
fn spec_15_every_mistyped_key_has_a_hint() {
    for key in known_keys() {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        if name.len() < 4 {
            continue;
        }
        let mistyped = format!("{name}{}", &name[name.len() - 1..]);
        if known_keys().iter().any(|known| known.ends_with(&mistyped)) {
            continue;
        }
        let full = match section {
            "" => mistyped.clone(),
            section => format!("{section}.{mistyped}"),
        };
        let file = file(&full, "1");
        let found: Vec<Finding> = findings(&file.text)
            .into_iter()
            .filter(|f| f.key == file.key)
            .collect();
        assert_eq!(found.len(), 1, "{}: {found:?}", file.text);
        assert_eq!(found[0].code.id(), "config.unknown_key_near", "{found:?}");
        let near = found[0].nearest.clone().unwrap_or_default();
        assert_eq!(near, key.replace("[]", "[0]"), "{}", file.text);
        assert_eq!(found[0].line, file.line, "{}", file.text);
        assert!(
            found[0].allowed.split(", ").any(|known| known == name),
            "{found:?}"
        );
    }
}
