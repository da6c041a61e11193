//! A walk over the generated JSON Schema.
#![allow(dead_code, reason = "every test file uses its own part")]

use policy::config::json_schema;
use serde_json::{Value, json};

/// Calls back for every key without keys below it, and for every list, with its schema; `$ref` is followed.
pub fn walk(root: &Value, node: &Value, key: &str, found: &mut dyn FnMut(&str, &Value)) {
    if let Some(name) = node["$ref"]
        .as_str()
        .and_then(|name| name.strip_prefix("#/$defs/"))
    {
        walk(root, &root["$defs"][name], key, found);
    }
    for choice in node["anyOf"].as_array().into_iter().flatten() {
        walk(root, choice, key, found);
    }
    if node["items"].is_object() {
        walk(root, &node["items"], &format!("{key}[]"), found);
    }
    for (name, below) in node["properties"].as_object().into_iter().flatten() {
        assert_eq!(
            node["additionalProperties"],
            json!(false),
            "{key} takes unknown keys"
        );
        let key = if key.is_empty() {
            name.clone()
        } else {
            format!("{key}.{name}")
        };
        let mut is_section = false;
        walk(root, below, &key, &mut |inner, node| {
            is_section |= inner[key.len()..].starts_with('.');
            found(inner, node);
        });
        if !is_section {
            found(&key, below);
        }
    }
}

/// The same from the top of the configuration's schema.
pub fn every_key(mut found: impl FnMut(&str, &Value)) {
    let schema = json_schema();
    walk(&schema, &schema, "", &mut found);
}
