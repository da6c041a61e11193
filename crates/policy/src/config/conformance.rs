//! The schema that editors use and the reader agree: what is shipped fits, and what the reader refuses by type does not.

use super::node;
use super::report::Report;
use super::{Config, Source, TEMPLATE, json_schema, values};
use serde_json::{Value, json};

/// The file as an editor sees it.
fn as_json(text: &str) -> Value {
    let mut report = Report::new(vec!["a"]);
    match node::parse(text.as_bytes(), 0, &mut report) {
        Ok(Some(node)) => values::json(&node),
        _ => panic!("no YAML: {text}"),
    }
}

/// What does not fit, as JSON pointers; shapes of text are the reader's business alone.
fn misfits(root: &Value, schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.trim_start_matches("#/$defs/");
        misfits(root, &root["$defs"][name], value, at, out);
    }
    let mut good = true;
    let mut fails = |is: bool| good &= is;
    for (word, wanted) in schema.as_object().into_iter().flatten() {
        match word.as_str() {
            "type" => {
                let is = |kind: &Value| match kind.as_str() {
                    Some("null") => value.is_null(),
                    Some("boolean") => value.is_boolean(),
                    Some("integer") => value.is_i64() || value.is_u64(),
                    Some("number") => value.is_number(),
                    Some("string") => value.is_string(),
                    Some("array") => value.is_array(),
                    Some("object") => value.is_object(),
                    other => panic!("{other:?}"),
                };
                fails(match wanted {
                    Value::Array(kinds) => kinds.iter().any(is),
                    kind => is(kind),
                });
            }
            "enum" => fails(wanted.as_array().is_some_and(|all| all.contains(value))),
            "const" => fails(wanted == value),
            "anyOf" | "oneOf" => {
                let choices = wanted.as_array().into_iter().flatten();
                let real: Vec<&Value> = choices.filter(|c| c["type"] != json!("null")).collect();
                let fits = |choice: &Value| {
                    let mut inner = Vec::new();
                    misfits(root, choice, value, at, &mut inner);
                    inner.is_empty()
                };
                match real[..] {
                    _ if value.is_null() => {
                        fails(real.len() < wanted.as_array().map_or(0, Vec::len))
                    }
                    // What is optional is told as if it were not.
                    [only] => misfits(root, only, value, at, out),
                    _ => fails(real.into_iter().any(fits)),
                }
            }
            "minimum" => fails(value.as_f64().is_none_or(|v| Some(v) >= wanted.as_f64())),
            "maximum" => fails(value.as_f64().is_none_or(|v| Some(v) <= wanted.as_f64())),
            "minItems" => fails(
                value
                    .as_array()
                    .is_none_or(|v| Some(v.len() as u64) >= wanted.as_u64()),
            ),
            "minLength" => fails(
                value
                    .as_str()
                    .is_none_or(|v| Some(v.len() as u64) >= wanted.as_u64()),
            ),
            "required" => {
                let has = |name: &Value| !value[name.as_str().unwrap_or_default()].is_null();
                fails(!value.is_object() || wanted.as_array().into_iter().flatten().all(has));
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    misfits(root, wanted, item, &format!("{at}/{index}"), out);
                }
            }
            "properties" => {
                for (name, below) in value.as_object().into_iter().flatten() {
                    let at = format!("{at}/{name}");
                    match (&wanted[name], &schema["additionalProperties"]) {
                        (Value::Null, Value::Bool(false)) => out.push(at),
                        (Value::Null, _) => {}
                        (known, _) => misfits(root, known, below, &at, out),
                    }
                }
            }
            "additionalProperties" => {
                for (name, below) in value.as_object().into_iter().flatten() {
                    if wanted.is_object() {
                        misfits(root, wanted, below, &format!("{at}/{name}"), out);
                    }
                }
            }
            // For people and editors, or judged by the reader.
            "$schema" | "$defs" | "$ref" | "title" | "description" | "default" | "deprecated"
            | "format" | "pattern" | "propertyNames" => {}
            other => panic!("the schema has a word that nobody checks: {other}"),
        }
    }
    if !good {
        out.push(at.to_owned());
    }
}

fn fits(text: &str) -> Vec<String> {
    let schema = json_schema();
    let mut out = Vec::new();
    misfits(&schema, &schema, &as_json(text), "", &mut out);
    out
}

/// SPEC §15: the file that `init` writes, and files with every kind of key, fit the schema, and the reader takes them.
#[test]
fn spec_15_good_files_fit_the_schema() {
    let template = TEMPLATE.replace("{model}", "m");
    for text in [
        template.as_str(),
        "schema_version: 2\nollama: {model: m}\n",
        "schema_version: 2\nollama: {model: m, think: high, keep_alive: 300, extra_options: {a: [1, {b: ~}]}, options: {stop: [x], temperature: 1, num_gpu: ~}}\n\
         sandbox: {workspaces: [a], mounts: [{path: b, access: read_write_delete}], environment: {A: b}, network: {access: local, local_endpoints: [1, 65535]}, resources: {memory_mb: }}\n\
         approvals: {ask: [git_push, {name: n, argv: [a, '*']}]}\nguard: {url_allowlist: ['*.example.com'], hard_block: observe}\n",
        "schema_version: 2\nollama: {model: m}\nsandbox: {profile: readonly, max_mode: read-only, partial: deny, execution: {shells: deny, rehash: always, entries: [{alias: a, path: /b, runtime_root: /c}]}, network: {access: restricted, restricted_endpoints: [{host: h, ports: [443]}]}}\n",
    ] {
        assert_eq!(fits(text), Vec::<String>::new(), "{text}");
        let source = Source {
            name: "a",
            text: text.as_bytes(),
        };
        assert!(Config::read(&[source]).is_ok(), "{text}");
    }
}

/// The schema refuses what the reader refuses by type, range, word and name, so that an editor shows it at once.
#[test]
fn spec_15_bad_files_do_not_fit_the_schema() {
    for (rest, at) in [
        ("agent: {max_iterations: 0}", "/agent/max_iterations"),
        ("agent: {max_iterations: '5'}", "/agent/max_iterations"),
        ("agent: {bix: 1}", "/agent/bix"),
        ("sandbox: {mounts: [{path: a}]}", "/sandbox/mounts/0"),
        (
            "sandbox: {mounts: [{path: a, access: all}]}",
            "/sandbox/mounts/0/access",
        ),
        ("sandbox: {workspaces: [[]]}", "/sandbox/workspaces/0"),
        (
            "sandbox: {network: {local_endpoints: [0]}}",
            "/sandbox/network/local_endpoints/0",
        ),
        ("logging: {level: loud}", "/logging/level"),
        ("mcp: {http: {host: 0.0.0.0}}", "/mcp/http/host"),
    ] {
        let found = fits(&format!(
            "schema_version: 2\nollama: {{model: m}}\n{rest}\n"
        ));
        assert!(found.iter().any(|found| found == at), "{rest}: {found:?}");
    }
    assert!(!fits("schema_version: 1\nollama: {model: m}\n").is_empty());
    assert!(!fits("schema_version: 2\n").is_empty());
    assert_eq!(
        json_schema()["$schema"],
        json!("https://json-schema.org/draft/2020-12/schema")
    );
}
