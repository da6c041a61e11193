//! The chain of stages: each refuses with its own code, in the order of product.md §3, and nothing goes around it.
#![cfg(unix)]

mod support;

use policy::call::{ApprovedCall, Scope, WalkedTargets};
use policy::layers::PermissionLayers;
use policy::path::{ObjectKind, ResolvedPath};
use policy::sandbox::StartPermit;
use policy::tool::{Operation, ToolName};
use policy::{EffectivePolicy, Secret};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use support::{alias, asking, every_tool, file, frozen, pass, program, propose, verdict, walked};

/// Does not compile when the type has the trait: two `marker`s would fit then.
macro_rules! is_not {
    ($type:ty, $bound:path) => {{
        trait Ambiguous<A> {
            fn marker() {}
        }
        impl<T: ?Sized> Ambiguous<()> for T {}
        struct Both;
        impl<T: ?Sized + $bound> Ambiguous<Both> for T {}
        <$type as Ambiguous<_>>::marker();
    }};
}

/// SEC-INV-01, SEC-INV-02: a policy cannot be read from anywhere, a proof cannot be copied, a secret cannot be printed.
#[test]
fn sec_inv_02_proofs_have_no_other_maker() {
    is_not!(EffectivePolicy, serde::de::DeserializeOwned);
    is_not!(EffectivePolicy, Default);
    is_not!(StartPermit, Clone);
    is_not!(StartPermit, Default);
    is_not!(StartPermit, serde::de::DeserializeOwned);
    is_not!(ApprovedCall, Clone);
    is_not!(ApprovedCall, serde::de::DeserializeOwned);
    is_not!(ResolvedPath, Clone);
    is_not!(Secret<String>, std::fmt::Display);
    is_not!(Secret<String>, serde::Serialize);
}

fn check(
    scope: &Scope,
    layers: &mut PermissionLayers,
    call: (&str, Value),
    targets: WalkedTargets,
    expected: &str,
) {
    let (tool, arguments) = call;
    let policy = frozen(|_| ());
    let shown = format!("{tool} {arguments}");
    let result = pass(propose(tool, arguments), scope, layers, &policy, targets);
    assert_eq!(verdict(result), expected, "{shown}");
}

fn delete(path: &str) -> (&'static str, Value) {
    ("file_edit", json!({"path": path, "operation": "delete"}))
}

/// SEC-INV-01, NFR-02: the earliest stage refuses. Each row mends what the row before was refused for.
#[test]
fn sec_inv_01_the_stages_in_order() {
    let nothing = || Scope {
        whitelist: BTreeSet::new(),
        required_tools: BTreeSet::new(),
    };
    let listed = || Scope {
        whitelist: [ToolName::FileEdit].into(),
        ..nothing()
    };
    let no_operation = || PermissionLayers::of_box(BTreeSet::new(), [Operation::FsDelete].into());
    let asks = || asking([Operation::FsDelete]);
    let wrong = ("file_edit", json!({"path": "x", "operation": "shred"}));
    let rows = [
        (
            nothing(),
            no_operation(),
            ("file_shred", json!(1)),
            "/etc/x",
            "tool.unknown: tool catalogue",
        ),
        (
            nothing(),
            no_operation(),
            wrong,
            "/etc/x",
            "tool.arguments_invalid: shape",
        ),
        (
            nothing(),
            no_operation(),
            delete("x"),
            "/etc/x",
            "policy.tool_not_allowed: box tools",
        ),
        (
            listed(),
            no_operation(),
            delete("x"),
            "/etc/x",
            "tool.out_of_scope: required_tools of the current Task",
        ),
        (
            every_tool(),
            no_operation(),
            delete("x"),
            "/etc/x",
            "policy.operation_denied: L1 os_operations",
        ),
        (
            every_tool(),
            asks(),
            delete("x"),
            "/etc/x",
            "policy.path_denied: granted roots",
        ),
        (
            every_tool(),
            asks(),
            delete("x"),
            "/w/x",
            "policy.approval_required: L5 approvals.ask",
        ),
        (every_tool(), asking([]), delete("x"), "/w/x", "ok"),
    ];
    for (scope, mut layers, call, path, expected) in rows {
        check(&scope, &mut layers, call, file(path), expected);
    }
}

/// DESIGN §8.1: only what has a side effect must be among the Task's tools; the box's list binds every tool.
#[test]
fn scope_binds_side_effects() {
    let scope = Scope {
        whitelist: BTreeSet::from(ToolName::ALL),
        required_tools: BTreeSet::new(),
    };
    let out = "tool.out_of_scope: required_tools of the current Task";
    let dir = |operation: &str| ("dir", json!({"path": "x", "operation": operation}));
    check(
        &scope,
        &mut asking([]),
        ("file_read", json!({"path": "x"})),
        file("/w/x"),
        "ok",
    );
    check(&scope, &mut asking([]), dir("list"), file("/w/x"), "ok");
    check(&scope, &mut asking([]), dir("mkdir"), file("/w/x"), out);
    check(&scope, &mut asking([]), dir("rmdir"), file("/w/x"), out);
    check(
        &scope,
        &mut asking([]),
        ("task_update", json!({"operation": "add"})),
        WalkedTargets::Graph,
        "ok",
    );
    let python = program(alias("python", "/opt/py/bin/python3.11", 1));
    check(
        &scope,
        &mut asking([]),
        ("process_run", json!({"executable": "python"})),
        python,
        out,
    );
}

/// X-BROWSER: until approvals exist, every operation that asks is refused at stage 6, and what does not ask passes.
#[test]
fn x_browser_what_asks_is_refused() {
    let refused = "policy.approval_required: L5 approvals.ask";
    let push = || {
        let targets = program(alias("vcs", "/usr/bin/git", 3));
        (
            (
                "process_run",
                json!({"executable": "vcs", "args": ["push"]}),
            ),
            targets,
        )
    };
    let read = || (("file_read", json!({"path": "x"})), file("/w/x"));
    for (operation, (call, targets), expected) in [
        (Operation::FsRead, read(), refused),
        (Operation::FsWrite, read(), "ok"),
        (Operation::ProcessRun, push(), refused),
        (Operation::GitRead, push(), "ok"),
        // The alias says nothing of git; the program does.
        (Operation::GitPush, push(), refused),
        (Operation::FsDelete, (delete("x"), file("/w/x")), refused),
    ] {
        check(
            &every_tool(),
            &mut asking([operation]),
            call,
            targets,
            expected,
        );
    }
    let run_only = BTreeSet::from([Operation::ProcessRun]);
    let mut layers = PermissionLayers::of_box(run_only, BTreeSet::new());
    let (call, targets) = push();
    check(
        &every_tool(),
        &mut layers,
        call,
        targets,
        "policy.operation_denied: L1 os_operations",
    );
}

/// SEC-INV-04: what was walked has the shape of what was asked for, and every target is judged.
#[test]
fn sec_inv_04_every_target_is_judged() {
    let rename = || {
        (
            "file_edit",
            json!({"path": "a", "operation": "rename", "new_path": "b"}),
        )
    };
    let run = || ("process_run", json!({"executable": "python"}));
    let two = |one: &str, other: Option<&str>| {
        let one = walked(one, Some(ObjectKind::File));
        WalkedTargets::Paths(
            [Some(one), other.map(|path| walked(path, None))]
                .into_iter()
                .flatten()
                .collect(),
        )
    };
    let mismatch = "internal: stage 5";
    for (call, targets, expected) in [
        (rename(), two("/w/a", Some("/w/b")), "ok"),
        (
            rename(),
            two("/w/a", Some("/ro/b")),
            "policy.path_denied: /ro",
        ),
        (
            rename(),
            two("/ro/a", Some("/w/b")),
            "policy.path_denied: /ro",
        ),
        (
            rename(),
            two("/w/a", Some("/w/.git/config")),
            "policy.path_protected: sandbox.protect: .git/config",
        ),
        (rename(), two("/w/a", None), mismatch),
        (delete("a"), two("/w/a", Some("/w/b")), mismatch),
        (rename(), WalkedTargets::Paths(Vec::new()), mismatch),
        (rename(), WalkedTargets::Graph, mismatch),
        (
            rename(),
            program(alias("python", "/opt/py/bin/python3.11", 1)),
            mismatch,
        ),
        (run(), WalkedTargets::Paths(Vec::new()), mismatch),
        (run(), WalkedTargets::Graph, mismatch),
        (
            ("task_update", json!({"operation": "add"})),
            WalkedTargets::Paths(Vec::new()),
            mismatch,
        ),
    ] {
        check(&every_tool(), &mut asking([]), call, targets, expected);
    }
}

/// X-PROTECT: a directory is not edited, so that nothing protected moves with it, and no file takes its place.
#[test]
fn x_protect_nothing_leads_around_it() {
    let edit = |operation: &str| {
        (
            "file_edit",
            json!({"path": "x", "operation": operation, "content": "", "new_path": "y"}),
        )
    };
    let directory =
        |path: &str| WalkedTargets::Paths(vec![walked(path, Some(ObjectKind::Directory))]);
    let new = |path: &str| WalkedTargets::Paths(vec![walked(path, None)]);
    let moved = |from: &str, to: &str| {
        WalkedTargets::Paths(vec![walked(from, Some(ObjectKind::File)), walked(to, None)])
    };
    let mkdir = ("dir", json!({"path": "x", "operation": "mkdir"}));
    let protected = "policy.path_protected: sandbox.protect: .git/config";
    for (call, targets, expected) in [
        (
            edit("delete"),
            directory("/w/.git"),
            "file.wrong_kind: file_edit",
        ),
        (
            edit("overwrite"),
            directory("/w/a"),
            "file.wrong_kind: file_edit",
        ),
        (edit("overwrite"), new("/w/a/.git"), protected),
        (edit("overwrite"), new("/w/a/.Git"), protected),
        (edit("delete"), file("/w/a/.git"), protected),
        (edit("rename"), moved("/w/a", "/w/b/.git"), protected),
        (edit("overwrite"), new("/w/a/.gitignore"), "ok"),
        (mkdir, new("/w/a/.git"), "ok"),
    ] {
        check(&every_tool(), &mut asking([]), call, targets, expected);
    }
}

/// SEC-INV-01, X-REPEAT: the same words again and again are stopped, and asking again does not turn a refusal into a yes.
#[test]
fn sec_inv_01_insisting_changes_nothing() {
    let mut layers = asking([Operation::FsDelete]);
    for _ in 0..4 {
        let expected = "policy.approval_required: L5 approvals.ask";
        check(
            &every_tool(),
            &mut layers,
            delete("x"),
            file("/w/x"),
            expected,
        );
    }
    for _ in 0..3 {
        let expected = "policy.operation_repeated: L4 context";
        check(
            &every_tool(),
            &mut layers,
            delete("x"),
            file("/w/x"),
            expected,
        );
    }
}
