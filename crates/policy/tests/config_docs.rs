//! The pages that are made from the schema. `UPDATE_DOCS=1` writes them.
#![allow(
    clippy::disallowed_methods,
    reason = "the test compares files of the repository"
)]

use policy::config::json_schema;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Behind it the guide is generated.
const MARK: &str =
    "<!-- generated from the schema: UPDATE_DOCS=1 cargo test -p policy --test config_docs -->\n";

fn docs() -> PathBuf {
    let crate_directory = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    crate_directory
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")))
        .join("../../docs")
}

#[track_caller]
fn compare(name: &str, wanted: &str) {
    let path = docs().join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, wanted).expect("written");
    }
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        is == wanted,
        "docs/{name} is old: UPDATE_DOCS=1 cargo test -p policy --test config_docs"
    );
}

/// interfaces.md §3: the schema is shipped as a file, and is the one that the program has.
#[test]
fn the_shipped_schema_is_the_programs() {
    compare("agent.schema.json", &format!("{:#}\n", json_schema()));
}

/// SPEC §15: the guide names every key with what is allowed and its default.
#[test]
fn spec_15_the_guide_names_every_key() {
    let schema = json_schema();
    let mut keys = Vec::new();
    rows(&schema, &schema, "", false, &mut keys);
    let mut page = String::new();
    for (section, node) in schema["properties"].as_object().into_iter().flatten() {
        let _ = writeln!(page, "\n### `{section}`\n");
        if let Some(text) = node["description"].as_str() {
            let _ = writeln!(page, "{text}\n");
        }
        page.push_str("| key | allowed | default | |\n|---|---|---|---|\n");
        let own = |key: &str| key == section || key.starts_with(&format!("{section}."));
        for Row {
            key,
            allowed,
            default,
            text,
        } in keys.iter().filter(|row| own(&row.key))
        {
            let _ = writeln!(page, "| `{key}` | {allowed} | {default} | {text} |");
        }
    }
    assert_eq!(keys.len(), page.matches("\n| `").count(), "each key once");
    let name = "guide/configuration.md";
    let now = std::fs::read_to_string(docs().join(name)).unwrap_or_default();
    let by_hand = now.split(MARK).next().unwrap_or_default();
    compare(name, &format!("{by_hand}{MARK}{page}"));
}

struct Row {
    key: String,
    allowed: String,
    default: String,
    text: String,
}

fn rows(root: &Value, node: &Value, key: &str, required: bool, out: &mut Vec<Row>) {
    let node_of = |node: &Value| match node["$ref"].as_str() {
        Some(name) => root["$defs"][name.trim_start_matches("#/$defs/")].clone(),
        None => node.clone(),
    };
    let full = node_of(node);
    let choices = full["anyOf"].as_array().cloned().unwrap_or_default();
    let section = std::iter::once(full.clone())
        .chain(choices.iter().map(node_of))
        .find(|choice| choice["properties"].is_object());
    let Some(section) = section else {
        let text = node["description"]
            .as_str()
            .or(full["description"].as_str());
        out.push(Row {
            key: key.to_owned(),
            allowed: allowed(root, node),
            default: match &node["default"] {
                _ if required => "required".to_owned(),
                Value::Null => "–".to_owned(),
                default => format!("`{default}`"),
            },
            text: text.unwrap_or_default().replace('|', "\\|"),
        });
        let mut items = node_of(&node["items"]);
        for choice in node_of(&items)["anyOf"].as_array().into_iter().flatten() {
            let choice = node_of(choice);
            if choice["properties"].is_object() {
                items = choice;
            }
        }
        if items["properties"].is_object() {
            rows(root, &items, &format!("{key}[]"), false, out);
        }
        return;
    };
    let needs = section["required"].as_array().cloned().unwrap_or_default();
    for (name, below) in section["properties"].as_object().into_iter().flatten() {
        let key = match key {
            "" => name.clone(),
            key => format!("{key}.{name}"),
        };
        rows(
            root,
            below,
            &key,
            needs.contains(&Value::from(name.as_str())),
            out,
        );
    }
}

/// What may stand there, in a few words.
fn allowed(root: &Value, node: &Value) -> String {
    if let Some(name) = node["$ref"].as_str() {
        return allowed(root, &root["$defs"][name.trim_start_matches("#/$defs/")]);
    }
    if node["deprecated"] == Value::Bool(true) {
        return "ignored".to_owned();
    }
    let code = |value: &Value| match value {
        Value::String(word) => format!("`{word}`"),
        other => format!("`{other}`"),
    };
    if let Some(words) = node["enum"].as_array() {
        return words
            .iter()
            .filter(|w| !w.is_null())
            .map(code)
            .collect::<Vec<_>>()
            .join(", ");
    }
    if !node["const"].is_null() {
        return code(&node["const"]);
    }
    for choices in [&node["anyOf"], &node["oneOf"]] {
        if let Some(choices) = choices.as_array() {
            let choices = choices.iter().filter(|choice| choice["type"] != "null");
            return choices
                .map(|choice| allowed(root, choice))
                .collect::<Vec<_>>()
                .join(", ");
        }
    }
    let kinds = node["type"]
        .as_array()
        .cloned()
        .unwrap_or_else(|| vec![node["type"].clone()]);
    let kinds: Vec<String> = kinds
        .iter()
        .filter_map(Value::as_str)
        .filter(|kind| *kind != "null")
        .map(|kind| match kind {
            "boolean" => "`true`, `false`".to_owned(),
            "integer" if node["minimum"].is_null() => "whole number".to_owned(),
            "integer" | "number" => format!("{} to {}", node["minimum"], node["maximum"]),
            "string" => "text".to_owned(),
            "array" => format!("list: {}", allowed(root, &node["items"])),
            "object" if node["properties"].is_object() => "keys below".to_owned(),
            "object" => "names and values".to_owned(),
            other => other.to_owned(),
        })
        .collect();
    kinds.join(" or ")
}
