//! The internal tools as the model sees them (DESIGN §6.5, §7): descriptions, schemas, wire names.

use crate::ollama::{SchemaProblem, ToolDefinition, ToolSet, ToolWire, ToolWires};
use policy::tool::ToolName;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// `dir` has a distinctive wire name, because servers find names by substring (ollama.md, "Survive these" 2).
const WIRES: &[ToolWire] = &[
    wire("file_search", "file_search"),
    wire("file_read", "file_read"),
    wire("file_edit", "file_edit"),
    wire("process_run", "process_run"),
    wire("task_update", "task_update"),
    wire("dir", "manage_directory"),
];

const fn wire(catalogue: &'static str, wire: &'static str) -> ToolWire {
    ToolWire { catalogue, wire }
}

/// The name on the wire.
pub(crate) fn wire_name(tool: ToolName) -> &'static str {
    WIRES
        .iter()
        .find(|known| known.catalogue == tool.as_str())
        .map_or(tool.as_str(), |known| known.wire)
}

/// The same for a name as text; another text stays as it is.
pub(crate) fn in_wire_words(tool: &str) -> &str {
    match tool.parse::<ToolName>() {
        Ok(tool) => wire_name(tool),
        Err(_) => tool,
    }
}

/// The tools of a whitelist, as they are offered. The same set for the whole run, so that prompts keep their prefix.
pub(crate) fn tool_set(whitelist: &BTreeSet<ToolName>) -> Result<ToolSet, SchemaProblem> {
    let wires =
        ToolWires::new(WIRES).map_err(|problem| SchemaProblem::NoWireName(problem.to_string()))?;
    let described: Vec<(ToolName, &str, Value)> = whitelist
        .iter()
        .map(|tool| {
            let (description, parameters) = describe(*tool);
            (*tool, description, parameters)
        })
        .collect();
    let definitions: Vec<ToolDefinition<'_>> = described
        .iter()
        .map(|(tool, description, parameters)| ToolDefinition {
            catalogue: tool.as_str(),
            description,
            parameters,
        })
        .collect();
    ToolSet::new(&definitions, &wires)
}

fn describe(tool: ToolName) -> (&'static str, Value) {
    let text = |description: &str| json!({"type": "string", "description": description});
    let number = |description: &str| json!({"type": "integer", "description": description});
    let choice = |words: &[&str], description: &str| json!({"type": "string", "enum": words, "description": description});
    let list = |description: &str| json!({"type": "array", "items": {"type": "string"}, "description": description});
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required});
    match tool {
        ToolName::FileSearch => (
            "Find files, or find text in files. Modes: glob (paths that match a pattern such as **/*.rs), name (file names that contain the text), text (lines that contain the text), regex (lines that match), tail (last lines of one file).",
            object(
                json!({
                    "root": text("Directory or file to search; . is the workspace root"),
                    "mode": choice(&["glob", "name", "text", "regex", "tail"], "How to search"),
                    "query": text("Pattern or text to find; empty for tail"),
                    "max_results": number("At most this many results"),
                    "tail_lines": number("Lines for tail"),
                }),
                &["root", "mode", "query"],
            ),
        ),
        ToolName::FileRead => (
            "Read a text file (whole), a part of it (range, in bytes), or its size, type and hash (metadata).",
            object(
                json!({
                    "path": text("The file"),
                    "mode": choice(&["whole", "range", "metadata"], "whole unless you need something else"),
                    "start": number("First byte, for range"),
                    "length": number("Number of bytes, for range"),
                }),
                &["path"],
            ),
        ),
        ToolName::FileEdit => (
            "Change one file. overwrite: write content as the whole file, creating it if needed. patch: replace old_text, which must be in the file exactly once, by new_text. delete: remove the file. rename: move it to new_path. atomic_replace: like overwrite.",
            object(
                json!({
                    "path": text("The file"),
                    "operation": choice(&["overwrite", "patch", "atomic_replace", "delete", "rename"], "What to do"),
                    "content": text("The whole new content, for overwrite and atomic_replace"),
                    "patch": text("For patch, a JSON text: {\"old_text\":\"...\",\"new_text\":\"...\"}"),
                    "new_path": text("The new path, for rename"),
                    "expected_sha256": text("Only if you know the hash of the file as you read it"),
                }),
                &["path", "operation"],
            ),
        ),
        ToolName::ProcessRun => (
            "Run one program and wait for it. No shell line: the program and each argument are separate.",
            object(
                json!({
                    "executable": text("One of the program names of the permissions, or the path of a program in the workspace"),
                    "args": list("Arguments, one string each"),
                    "cwd": text("Working directory; the workspace root if left out"),
                    "timeout_seconds": number("Seconds after which it is ended"),
                    "stdin": text("Text for standard input"),
                }),
                &["executable", "args"],
            ),
        ),
        ToolName::TaskUpdate => (
            "Change the plan: add a task, add a dependency, or set a new estimate. It does no work and cannot finish a task.",
            object(
                json!({
                    "operation": choice(&["add", "add_dependency", "set_estimate"], "What to change"),
                    "task_id": text("The task"),
                    "description": text("What a new task has to do"),
                    "depends_on": list("Ids of tasks that come before"),
                    "budget_class": choice(&["1K", "2K", "4K", "8K", "16K", "32K", "64K", "128K"], "Token budget"),
                    "optimistic_tokens": number("Best case"),
                    "most_likely_tokens": number("Most likely"),
                    "pessimistic_tokens": number("Worst case"),
                    "requires_external_effect": json!({"type": "boolean", "description": "Whether a new task changes something"}),
                    "required_tools": list("Tools a new task needs"),
                }),
                &["operation", "task_id"],
            ),
        ),
        ToolName::Dir => (
            "Make a directory with its parents (mkdir), remove an empty one (rmdir), or show what is in one (list).",
            object(
                json!({
                    "path": text("The directory; . is the workspace root"),
                    "operation": choice(&["mkdir", "rmdir", "list"], "What to do"),
                }),
                &["path", "operation"],
            ),
        ),
    }
}

/// Optional members whose empty text means "not given".
const EMPTY_IS_ABSENT: &[&str] = &[
    "new_path",
    "cwd",
    "expected_sha256",
    "patch",
    "budget_class",
    "description",
];
/// Optional members whose zero means "not given".
const ZERO_IS_ABSENT: &[&str] = &[
    "max_results",
    "tail_lines",
    "timeout_seconds",
    "length",
    "optimistic_tokens",
    "most_likely_tokens",
    "pessimistic_tokens",
];

/// Takes out optional members that small models fill with nothing. Form only: no value is made up.
pub(crate) fn tidy(arguments: &mut Value) {
    let Some(object) = arguments.as_object_mut() else {
        return;
    };
    object.retain(|name, value| match value {
        Value::Null => false,
        Value::String(text) => !(text.is_empty() && EMPTY_IS_ABSENT.contains(&name.as_str())),
        Value::Number(number) => {
            !(number.as_u64() == Some(0) && ZERO_IS_ABSENT.contains(&name.as_str()))
        }
        _ => true,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::tool::ToolArguments;

    #[test]
    fn oll_10_the_whole_catalogue_can_be_offered() {
        let set = tool_set(&BTreeSet::from(ToolName::ALL)).unwrap();
        assert_eq!(set.tools().len(), ToolName::ALL.len());
        assert_eq!(wire_name(ToolName::Dir), "manage_directory");
    }

    /// Each schema names exactly the members that the typed arguments read.
    #[test]
    fn oll_10_schemas_and_types_agree() {
        for tool in ToolName::ALL {
            let (_, parameters) = describe(tool);
            let mut arguments = serde_json::Map::new();
            for (name, schema) in parameters["properties"].as_object().unwrap() {
                let value = match (
                    schema["enum"].get(0),
                    schema["type"].as_str().unwrap(),
                    name.as_str(),
                ) {
                    (Some(first), ..) => first.clone(),
                    (None, "integer", _) => json!(1),
                    (None, "boolean", _) => json!(true),
                    (None, "array", _) => json!(["x"]),
                    _ => json!("x"),
                };
                arguments.insert(name.clone(), value);
            }
            ToolArguments::parse(tool, Value::Object(arguments)).unwrap();
        }
    }

    #[test]
    fn empty_optional_members_are_left_out() {
        let mut arguments = json!({"path": "a", "operation": "overwrite", "content": "", "new_path": "", "patch": null, "expected_sha256": ""});
        tidy(&mut arguments);
        assert_eq!(
            arguments,
            json!({"path": "a", "operation": "overwrite", "content": ""})
        );
    }
}
