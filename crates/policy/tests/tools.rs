//! What a model may send for each tool, and what it amounts to.
#![cfg(unix)]

mod support;

use policy::Rights;
use policy::call::fingerprint;
use policy::tool::{
    MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_PATH_BYTES, MAX_STDIN_BYTES, Operation, ToolArguments,
    ToolName,
};
use serde_json::{Value, json};
use support::verdict;

fn named(tool: &str) -> ToolName {
    tool.parse().expect("a tool of the catalogue")
}

/// `expected` is `ok`, or a part of the detail that the model is told.
fn check(tool: &str, arguments: Value, expected: &str) {
    let tool = named(tool);
    match ToolArguments::parse(tool, arguments.clone()) {
        Ok(_) => assert_eq!(expected, "ok", "{tool} {arguments:.200}"),
        Err(refusal) => {
            assert_eq!(refusal.code.as_str(), "tool.arguments_invalid");
            let detail = &refusal.detail[0].1;
            assert!(
                expected != "ok" && detail.contains(expected),
                "{tool} {arguments:.200}: {detail}"
            );
            assert!(detail.chars().count() <= 300);
        }
    }
}

#[test]
fn right_shapes() {
    for (tool, arguments) in [
        (
            "file_search",
            json!({"root": ".", "mode": "tail", "query": null}),
        ),
        (
            "file_search",
            json!({"root": ".", "mode": "glob", "query": "*", "max_results": 1}),
        ),
        ("file_read", json!({"path": "a"})),
        (
            "file_read",
            json!({"path": "a", "mode": "range", "start": null, "length": 1}),
        ),
        (
            "file_edit",
            json!({"path": "a", "operation": "delete", "content": null}),
        ),
        (
            "file_edit",
            json!({"path": "a", "operation": "overwrite", "content": ""}),
        ),
        (
            "file_edit",
            json!({"path": "a", "operation": "patch", "patch": {"old_text": "a", "new_text": "b"}}),
        ),
        (
            "process_run",
            json!({"executable": "x", "args": ["-l"], "cwd": null, "stdin": null}),
        ),
        ("task_update", json!({"operation": "add", "task_id": null})),
        ("dir", json!({"path": "日本語", "operation": "list"})),
    ] {
        check(tool, arguments, "ok");
    }
}

/// SEC-INV-01, SEC-INV-02: there is no argument for a right, a mode, an approval or a policy.
#[test]
fn sec_inv_01_sec_inv_02_no_argument_reaches_the_policy() {
    for extra in [
        "mode", "sandbox", "policy", "approved", "rights", "network", "env", "shell", "root",
        "Path",
    ] {
        for (tool, mut arguments) in [
            ("dir", json!({"path": "a", "operation": "list"})),
            ("file_edit", json!({"path": "a", "operation": "delete"})),
            ("process_run", json!({"executable": "x"})),
            ("task_update", json!({"operation": "add"})),
        ] {
            arguments[extra] = json!("danger-full-access");
            check(tool, arguments, "unknown field");
        }
    }
}

#[test]
fn wrong_shapes() {
    let read = |start: Value| json!({"path": "a", "mode": "range", "start": start, "length": 1});
    for (tool, arguments, expected) in [
        ("file_read", json!(null), "JSON object"),
        ("file_read", json!(["a"]), "JSON object"),
        ("file_read", json!("{\"path\":\"a\"}"), "JSON object"),
        ("file_read", json!({}), "missing field"),
        ("file_read", json!({"path": null}), "invalid type: null"),
        ("file_read", json!({"path": 1}), "invalid type"),
        ("file_read", json!({"path": ""}), "must not be empty"),
        ("file_read", json!({"path": " \n"}), "must not be empty"),
        ("file_read", json!({"path": "a\0b"}), "NUL"),
        (
            "file_read",
            json!({"path": "a", "mode": "Whole"}),
            "unknown variant",
        ),
        (
            "file_read",
            json!({"path": "a", "mode": "range"}),
            "length is required",
        ),
        (
            "file_read",
            json!({"path": "a", "mode": "range", "length": 0}),
            "length is required",
        ),
        ("file_read", read(json!("0")), "invalid type: string"),
        ("file_read", read(json!(-1)), "invalid value"),
        ("file_read", read(json!(1.5)), "floating point"),
        ("file_read", read(json!(1.0)), "floating point"),
        ("file_read", read(json!(1e300)), "floating point"),
        ("file_read", read(json!(true)), "boolean"),
        ("file_read", read(json!(u64::MAX)), "too large"),
        (
            "file_search",
            json!({"root": "a", "mode": "text"}),
            "query is required",
        ),
        (
            "file_search",
            json!({"root": "a", "mode": "name", "query": "a", "max_results": 0}),
            "at least 1",
        ),
        (
            "file_search",
            json!({"root": "a", "mode": "tail", "tail_lines": 0}),
            "at least 1",
        ),
        (
            "file_search",
            json!({"root": "a", "mode": "name", "query": "a\0"}),
            "NUL",
        ),
        (
            "file_edit",
            json!({"path": "a", "operation": "overwrite"}),
            "content is required",
        ),
        (
            "file_edit",
            json!({"path": "a", "operation": "atomic_replace", "content": null}),
            "content is required",
        ),
        (
            "file_edit",
            json!({"path": "a", "operation": "patch"}),
            "patch is required",
        ),
        (
            "file_edit",
            json!({"path": "a", "operation": "patch", "patch": 1}),
            "patch must be",
        ),
        (
            "file_edit",
            json!({"path": "a", "operation": "rename"}),
            "new_path is required",
        ),
        (
            "file_edit",
            json!({"path": "a", "operation": "rename", "new_path": " "}),
            "must not be empty",
        ),
        (
            "file_edit",
            json!({"path": "a", "operation": "chmod"}),
            "unknown variant",
        ),
        (
            "process_run",
            json!({"executable": "x", "args": "-l"}),
            "sequence",
        ),
        (
            "process_run",
            json!({"executable": "x", "args": ["a", 1]}),
            "invalid type",
        ),
        (
            "process_run",
            json!({"executable": "x", "args": ["a\0"]}),
            "NUL",
        ),
        (
            "process_run",
            json!({"executable": "x", "timeout_seconds": 0}),
            "at least 1",
        ),
        (
            "process_run",
            json!({"executable": ""}),
            "must not be empty",
        ),
        (
            "process_run",
            json!({"executable": "x", "cwd": ""}),
            "must not be empty",
        ),
        (
            "task_update",
            json!({"operation": "complete"}),
            "unknown variant",
        ),
        (
            "task_update",
            json!({"operation": "add", "state": "completed"}),
            "unknown field",
        ),
        (
            "dir",
            json!({"path": "a", "operation": "rmdir", "recursive": true}),
            "unknown field",
        ),
    ] {
        check(tool, arguments, expected);
    }
}

/// Over-long values are told to the model, at the exact limit.
#[test]
fn long_values() {
    let input = "x".repeat(MAX_STDIN_BYTES + 1);
    let text = &input[..=MAX_ARGUMENT_BYTES];
    let list = vec!["x"; MAX_ARGUMENTS + 1];
    let run = |key: &str, value: Value| {
        let mut arguments = json!({"executable": "x"});
        arguments[key] = value;
        ("process_run", arguments)
    };
    let task = |key: &str, value: Value| {
        let mut arguments = json!({"operation": "add"});
        arguments[key] = value;
        ("task_update", arguments)
    };
    let longest = [
        ("file_read", json!({"path": text[..MAX_PATH_BYTES]})),
        run("args", json!(list[..MAX_ARGUMENTS])),
        run("args", json!([text[..MAX_ARGUMENT_BYTES]])),
        run("stdin", json!(input[..MAX_STDIN_BYTES])),
        task("depends_on", json!(list[..MAX_ARGUMENTS])),
    ];
    for (tool, arguments) in longest {
        check(tool, arguments, "ok");
    }
    let longer = "is longer than";
    let more = "has more than";
    for ((tool, arguments), expected) in [
        (
            ("file_read", json!({"path": text[..=MAX_PATH_BYTES]})),
            longer,
        ),
        (("dir", json!({"path": text, "operation": "list"})), longer),
        (
            (
                "file_edit",
                json!({"path": "a", "operation": "rename", "new_path": text}),
            ),
            longer,
        ),
        (
            (
                "file_search",
                json!({"root": "a", "mode": "name", "query": text}),
            ),
            longer,
        ),
        (run("cwd", json!(text)), longer),
        (run("executable", json!(text)), longer),
        (run("args", json!(list)), more),
        (run("args", json!([text[..=MAX_ARGUMENT_BYTES]])), longer),
        (run("stdin", json!(input)), longer),
        (task("description", json!(text)), longer),
        (task("task_id", json!(text)), longer),
        (task("budget_class", json!(text)), longer),
        (task("depends_on", json!(list)), more),
        (task("required_tools", json!([text])), longer),
    ] {
        check(tool, arguments, expected);
    }
}

fn parsed(tool: &str, arguments: Value) -> ToolArguments {
    ToolArguments::parse(named(tool), arguments).expect("right shape")
}

/// FS-04, DESIGN §7: which rights each tool needs on which path.
#[test]
fn fs_04_rights_of_each_operation() {
    let edit = |operation: &str| {
        let arguments = json!({"path": "a", "operation": operation, "content": "c", "patch": "p", "new_path": "b"});
        ("file_edit", arguments)
    };
    let dir = |operation: &str| ("dir", json!({"path": "a", "operation": operation}));
    for ((tool, arguments), expected) in [
        (edit("overwrite"), "a write"),
        (edit("atomic_replace"), "a write"),
        (edit("patch"), "a read+write"),
        (edit("delete"), "a delete"),
        (edit("rename"), "a write, b write"),
        (dir("mkdir"), "a write"),
        (dir("rmdir"), "a delete"),
        (dir("list"), "a read"),
        (("file_read", json!({"path": "a"})), "a read"),
        (
            ("file_search", json!({"root": "a", "mode": "tail"})),
            "a read",
        ),
        (
            ("process_run", json!({"executable": "x", "cwd": "a"})),
            "a read",
        ),
        (("process_run", json!({"executable": "x"})), ""),
        (("task_update", json!({"operation": "add"})), ""),
    ] {
        let call = parsed(tool, arguments);
        let paths: Vec<String> = call
            .paths()
            .iter()
            .map(|(path, rights)| format!("{path} {rights}"))
            .collect();
        assert_eq!(paths.join(", "), expected, "{call:?}");
        let changes = call
            .paths()
            .iter()
            .any(|(_, rights)| *rights != Rights::READ);
        assert_eq!(call.has_side_effect(), changes || tool == "process_run");
    }
}

/// X-REPEAT, NFR-02: the fingerprint depends on the tool and on what the arguments mean, not on how they are spelled.
#[test]
fn x_repeat_fingerprints() {
    let read = fingerprint(&parsed("file_read", json!({"path": "a"})));
    let spelled = json!({"mode": "whole", "length": null, "path": "a"});
    assert_eq!(read, fingerprint(&parsed("file_read", spelled)));
    let list = fingerprint(&parsed("dir", json!({"path": "a", "operation": "list"})));
    assert_ne!(read, list);
}

/// X-REPEAT: every argument counts, so that another range or another stdin is no repetition.
#[test]
fn x_repeat_every_argument_changes_the_fingerprint() {
    for (tool, call, other) in [
        (
            "file_search",
            json!({"root": "a", "mode": "text", "query": "q", "max_results": 1, "tail_lines": 1}),
            json!({"root": "b", "mode": "regex", "query": "r", "max_results": 2, "tail_lines": 2}),
        ),
        (
            "file_read",
            json!({"path": "a", "mode": "range", "start": 1, "length": 1}),
            json!({"path": "b", "mode": "whole", "start": 2, "length": 2}),
        ),
        (
            "file_edit",
            json!({"path": "a", "operation": "rename", "content": "", "patch": "{}", "expected_sha256": "0", "new_path": "n"}),
            json!({"path": "b", "operation": "delete", "content": "c", "patch": "", "expected_sha256": "1", "new_path": "o"}),
        ),
        (
            "process_run",
            json!({"executable": "a", "args": ["x", "y"], "cwd": "c", "timeout_seconds": 1, "stdin": ""}),
            json!({"executable": "b", "args": ["x y"], "cwd": "d", "timeout_seconds": 2, "stdin": "i"}),
        ),
        (
            "task_update",
            json!({"operation": "add", "task_id": "a", "description": "d", "depends_on": [], "budget_class": "1K",
                "optimistic_tokens": 1, "most_likely_tokens": 1, "pessimistic_tokens": 1,
                "requires_external_effect": true, "required_tools": []}),
            json!({"operation": "set_estimate", "task_id": "b", "description": "e", "depends_on": ["x"],
                "budget_class": "2K", "optimistic_tokens": 2, "most_likely_tokens": 2, "pessimistic_tokens": 2,
                "requires_external_effect": false, "required_tools": ["dir"]}),
        ),
        (
            "dir",
            json!({"path": "a", "operation": "mkdir"}),
            json!({"path": "b", "operation": "rmdir"}),
        ),
    ] {
        for (name, value) in other.as_object().expect("an object") {
            let mut changed = call.clone();
            changed[name] = value.clone();
            assert_ne!(
                fingerprint(&parsed(tool, call.clone())),
                fingerprint(&parsed(tool, changed)),
                "{tool} {name}"
            );
        }
    }
}

/// L1 sees the operation of each tool.
#[test]
fn operations_of_each_tool() {
    for (tool, arguments, expected) in [
        (
            "file_edit",
            json!({"path": "a", "operation": "delete"}),
            vec![Operation::FsDelete],
        ),
        (
            "file_edit",
            json!({"path": "a", "operation": "rename", "new_path": "b"}),
            vec![Operation::FsWrite],
        ),
        (
            "dir",
            json!({"path": "a", "operation": "mkdir"}),
            vec![Operation::DirMake],
        ),
        (
            "dir",
            json!({"path": "a", "operation": "rmdir"}),
            vec![Operation::DirRemove],
        ),
        (
            "dir",
            json!({"path": "a", "operation": "list"}),
            vec![Operation::FsRead],
        ),
        (
            "file_search",
            json!({"root": "a", "mode": "tail"}),
            vec![Operation::FsRead],
        ),
        ("task_update", json!({"operation": "add"}), vec![]),
    ] {
        let operations: Vec<Operation> = parsed(tool, arguments).operations().into_iter().collect();
        assert_eq!(operations, expected, "{tool}");
    }
}

#[test]
fn unknown_tools_are_named() {
    let result = "rm_rf".repeat(1000).parse::<ToolName>();
    assert_eq!(verdict(result.clone()), "tool.unknown: tool catalogue");
    assert!(result.unwrap_err().target.len() <= 300);
}
