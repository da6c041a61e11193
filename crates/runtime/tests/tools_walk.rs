//! Paths are judged where they really lead (FS-02, FS-03, SEC-INV-04, AT-07, AT-08, ST-05, ST-06, ST-16). Each attack has a
//! control: the same access by path, without us, reaches the secret.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test stops where its setting fails")]

mod tools_support;

use policy::effective::{Origin, RootKind};
use policy::{Code, Rights};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tools_support::{SECRET, Setting, World, assert_ok, assert_refused, root};

/// Every way to reach one path with a tool.
fn every_access(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("file_read", json!({"path": path})),
        (
            "file_read",
            json!({"path": path, "mode": "range", "start": 0, "length": 10}),
        ),
        ("file_read", json!({"path": path, "mode": "metadata"})),
        (
            "file_search",
            json!({"root": path, "mode": "text", "query": "secret"}),
        ),
        ("file_search", json!({"root": path, "mode": "tail"})),
        (
            "file_search",
            json!({"root": path, "mode": "name", "query": "s"}),
        ),
        (
            "file_edit",
            json!({"path": path, "operation": "overwrite", "content": "x"}),
        ),
        (
            "file_edit",
            json!({"path": path, "operation": "atomic_replace", "content": "x"}),
        ),
        (
            "file_edit",
            json!({"path": path, "operation": "patch", "patch": {"old_text": "secret", "new_text": "x"}}),
        ),
        ("file_edit", json!({"path": path, "operation": "delete"})),
        (
            "file_edit",
            json!({"path": path, "operation": "rename", "new_path": "stolen"}),
        ),
        (
            "file_edit",
            json!({"path": "bait", "operation": "rename", "new_path": path}),
        ),
        ("dir", json!({"path": path, "operation": "mkdir"})),
        ("dir", json!({"path": path, "operation": "rmdir"})),
        ("dir", json!({"path": path, "operation": "list"})),
        ("process_run", json!({"executable": "x", "cwd": path})),
    ]
}

#[test]
fn sec_inv_04_at_07_nothing_outside_the_roots_is_reached_or_told() {
    let world = World::new();
    world.write("bait", "bait");
    let there = world.outside.join("secret.txt");
    let missing = world.outside.join("missing.txt");
    assert_eq!(std::fs::read_to_string(&there).unwrap(), SECRET, "control");
    let texts = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        vec![
            path.to_str().unwrap().to_owned(),
            format!("../outside/{name}"),
            format!("./own/../../outside/{name}"),
            format!("{}/../outside/{name}", world.workspace.display()),
            format!("../../../../../../../..{}", path.display()),
        ]
    };
    for (there, missing) in texts(&there).iter().zip(texts(&missing)) {
        if there.contains("own/") {
            continue; // Our own files stop it even earlier, see below.
        }
        for ((tool, arguments), (_, other)) in
            every_access(there).into_iter().zip(every_access(&missing))
        {
            let result = world.call(tool, arguments);
            assert_refused(&result, Code::PathDenied);
            let same = world
                .call(tool, other)
                .output
                .replace("missing.txt", "secret.txt");
            assert_eq!(
                result.output, same,
                "whether it exists must not show: {tool} {there}"
            );
        }
    }
    assert_eq!(std::fs::read_to_string(&there).unwrap(), SECRET);
    assert_eq!(world.log.ends(), []);
}

#[test]
fn fs_03_at_08_st_05_st_16_links_that_lead_out_are_refused() {
    let world = World::new();
    world.write("bait", "bait");
    let secret = world.outside.join("secret.txt");
    world.link("../outside/secret.txt", "relative");
    world.link(&secret, "absolute");
    world.link("relative", "chain1");
    world.link("chain1", "chain2");
    world.link("../outside", "directory");
    world.link("../outside/missing", "dangling");
    std::fs::create_dir(world.workspace.join("deep")).unwrap();
    world.link("../directory", "deep/through");
    world.link("/proc/self/root", "magic");
    let through_magic = format!("magic{}", secret.display());
    for text in [
        "relative",
        "absolute",
        "chain1",
        "chain2",
        "directory/secret.txt",
        "deep/through/secret.txt",
        &through_magic,
    ] {
        assert_eq!(
            std::fs::read_to_string(world.workspace.join(text)).unwrap(),
            SECRET,
            "control: {text}"
        );
        for (tool, arguments) in every_access(text) {
            assert_refused(&world.call(tool, arguments.clone()), Code::PathEscapes);
        }
    }
    for text in ["directory", "dangling", "directory/new", "directory/a/b/c"] {
        for (tool, arguments) in every_access(text) {
            assert_refused(&world.call(tool, arguments), Code::PathEscapes);
        }
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), SECRET);
    assert_eq!(std::fs::read_dir(&world.outside).unwrap().count(), 1);
    assert_eq!(world.log.ends(), []);
}

#[test]
fn st_06_cycles_are_refused_and_do_not_hang() {
    let world = World::new();
    world.write("bait", "bait");
    world.link("b", "a");
    world.link("a", "b");
    world.link("self/x", "self");
    world.link(".", "here");
    for text in ["a", "b/c", "self", "self/y"] {
        assert!(
            std::fs::read(world.workspace.join(text)).is_err(),
            "control: the kernel refuses it too"
        );
        assert_refused(
            &world.call("file_read", json!({"path": text})),
            Code::PathEscapes,
        );
        assert_refused(
            &world.call("dir", json!({"path": text, "operation": "mkdir"})),
            Code::PathEscapes,
        );
    }
    assert_ok(&world.call("file_read", json!({"path": "here/here/here/bait"})));
    let long = "here/".repeat(41) + "bait";
    assert_refused(
        &world.call("file_read", json!({"path": long})),
        Code::PathEscapes,
    );
}

#[test]
fn links_inside_the_roots_lead_where_the_kernel_leads() {
    let world = World::new();
    let file = world.write("a/b/file", "content");
    world.link("a/b", "short");
    world.link(&file, "absolute");
    world.link("../../a", "a/b/up");
    for text in [
        "short/file",
        "absolute",
        "short/../b/file",
        "a/b/up/b/file",
        "./a//b/./file",
        "a/b/up/../short/file",
    ] {
        assert_eq!(
            std::fs::read(world.workspace.join(text)).unwrap(),
            b"content",
            "control: {text}"
        );
        let result = world.call("file_read", json!({"path": text}));
        assert_ok(&result);
        assert_eq!(result.target_path.as_deref(), file.to_str(), "{text}");
    }
    // `..` is what the file system says, not what the text says.
    std::fs::create_dir(world.workspace.join("other")).unwrap();
    world.write("x", "the wrong one");
    world.write("a/x", "the right one");
    let result = world.call("file_read", json!({"path": "short/../x"}));
    assert!(result.output.contains("the right one"), "{}", result.output);
}

#[test]
fn a_link_itself_is_neither_deleted_nor_moved() {
    let world = World::new();
    world.write("file", "content");
    world.link("file", "link");
    world.link("nothing", "dangling");
    for text in ["link", "dangling"] {
        let delete = world.call("file_edit", json!({"path": text, "operation": "delete"}));
        assert_refused(&delete, Code::FileKindUnsupported);
        let rename = world.call(
            "file_edit",
            json!({"path": text, "operation": "rename", "new_path": "moved"}),
        );
        assert_refused(&rename, Code::FileKindUnsupported);
        let onto = world.call(
            "file_edit",
            json!({"path": "file", "operation": "rename", "new_path": text}),
        );
        assert_refused(&onto, Code::FileKindUnsupported);
    }
    assert_eq!(world.read("file"), b"content");
}

#[test]
fn unusable_texts_are_told_apart_from_denials() {
    let world = World::new();
    for text in ["", "  ", "a\0b", &"x".repeat(5_000)] {
        assert_eq!(
            world.walker.walk(text).unwrap_err().code,
            Code::PathInvalid,
            "{text:?}"
        );
    }
    let name_too_long = "n".repeat(300);
    assert_eq!(
        world.walker.walk(&name_too_long).unwrap_err().code,
        Code::PathInvalid
    );
    assert_refused(
        &world.call("file_read", json!({"path": "~/x"})),
        Code::FileNotFound,
    );
    assert_refused(
        &world.call("file_read", json!({"path": "missing/../bait"})),
        Code::FileNotFound,
    );
    world.write("file", "");
    assert_refused(
        &world.call("file_read", json!({"path": "file/below"})),
        Code::FileWrongKind,
    );
    for text in ["file/", "file/."] {
        let result = world.call("file_read", json!({"path": text}));
        assert_refused(&result, Code::FileWrongKind);
        let write =
            json!({"path": format!("new-{text}"), "operation": "overwrite", "content": "x"});
        assert_refused(&world.call("file_edit", write), Code::FileNotFound);
    }
    assert_refused(
        &world.call("file_read", json!({"path": "file/.."})),
        Code::FileWrongKind,
    );
    let deep = "d/".repeat(300);
    std::fs::create_dir_all(world.workspace.join(&deep)).unwrap();
    assert_refused(
        &world.call("dir", json!({"path": deep, "operation": "list"})),
        Code::PathInvalid,
    );
}

#[test]
fn own_files_and_protected_files_inside_a_workspace() {
    let world = World::new();
    world.write("bait", "bait");
    for text in ["own", "own/journal.json", "own/missing", "own/a/b"] {
        for (tool, arguments) in every_access(text) {
            assert_refused(&world.call(tool, arguments), Code::PathProtected);
        }
    }
    // X-PROTECT: readable, never writable, at any depth.
    for text in [".git/config", "sub/nested/.git/hooks/pre-commit"] {
        world.write(text, "original");
        assert_ok(&world.call("file_read", json!({"path": text})));
        for operation in ["overwrite", "delete"] {
            let result = world.call(
                "file_edit",
                json!({"path": text, "operation": operation, "content": "x"}),
            );
            assert_refused(&result, Code::PathProtected);
        }
        let onto = json!({"path": "bait", "operation": "rename", "new_path": format!("{text}.d")});
        let _may_be_allowed_beside = world.call("file_edit", onto);
        assert_eq!(world.read(text), b"original");
    }
    let make = world.call(
        "dir",
        json!({"path": "new/.git/hooks/x", "operation": "mkdir"}),
    );
    assert_refused(&make, Code::PathProtected);
    let rename = json!({"path": ".git", "operation": "rename", "new_path": "elsewhere"});
    assert!(
        !world.call("file_edit", rename).ok,
        "a directory would carry its protected files along"
    );
    assert!(world.workspace.join(".git/config").exists());
}

#[test]
fn fs_01_a_single_file_is_granted_without_its_directory() {
    let world = World::with(&Setting {
        more_roots: |base| {
            vec![root(
                base.join("single.txt"),
                RootKind::File,
                Rights::READ_WRITE,
                Origin::Mount,
            )]
        },
        ..Setting::default()
    });
    let file = world.base().join("single.txt");
    let path = file.to_str().unwrap();
    assert_ok(&world.call("file_read", json!({"path": path})));
    assert_ok(&world.call("file_read", json!({"path": "../single.txt"})));
    let before = std::fs::read_dir(world.base()).unwrap().count();
    let inode = tools_support::identity(&file).inode;
    assert_ok(&world.call(
        "file_edit",
        json!({"path": path, "operation": "overwrite", "content": "new"}),
    ));
    assert_eq!(std::fs::read(&file).unwrap(), b"new");
    assert_eq!(
        tools_support::identity(&file).inode,
        inode,
        "written through: the grant is for this file"
    );
    assert_eq!(std::fs::read_dir(world.base()).unwrap().count(), before);
    world.assert_clean();
    assert_refused(
        &world.call("file_edit", json!({"path": path, "operation": "delete"})),
        Code::PathDenied,
    );
    world.write("bait", "bait");
    for (from, to) in [(path, "here"), ("bait", "../beside")] {
        let rename = world.call(
            "file_edit",
            json!({"path": from, "operation": "rename", "new_path": to}),
        );
        assert_refused(&rename, Code::PathDenied);
    }
    for beside in ["../beside.txt", "../outside/secret.txt", ".."] {
        assert_refused(
            &world.call("file_read", json!({"path": beside})),
            Code::PathDenied,
        );
    }
    std::fs::hard_link(&file, world.base().join("other name")).unwrap();
    let result = world.call(
        "file_edit",
        json!({"path": path, "operation": "overwrite", "content": "x"}),
    );
    assert_refused(&result, Code::PathDenied);
}

#[test]
fn fs_04_rights_are_apart() {
    for (rights, write, delete) in [
        (Rights::READ, false, false),
        (Rights::READ_WRITE, true, false),
        (Rights::READ_WRITE_DELETE, true, true),
    ] {
        let world = World::with(&Setting {
            rights,
            ..Setting::default()
        });
        for name in ["a", "b", "c", "d"] {
            world.write(name, "x");
        }
        std::fs::create_dir(world.workspace.join("empty")).unwrap();
        let calls = [
            (
                write,
                "file_edit",
                json!({"path": "a", "operation": "overwrite", "content": "y"}),
            ),
            (
                write,
                "file_edit",
                json!({"path": "new", "operation": "overwrite", "content": "y"}),
            ),
            (
                write,
                "file_edit",
                json!({"path": "b", "operation": "rename", "new_path": "b2"}),
            ),
            (write, "dir", json!({"path": "m/n", "operation": "mkdir"})),
            (
                delete,
                "file_edit",
                json!({"path": "c", "operation": "delete"}),
            ),
            (
                delete,
                "dir",
                json!({"path": "empty", "operation": "rmdir"}),
            ),
            (true, "file_read", json!({"path": "d"})),
            (true, "dir", json!({"path": ".", "operation": "list"})),
        ];
        for (allowed, tool, arguments) in calls {
            let result = world.call(tool, arguments.clone());
            if allowed {
                assert_ok(&result);
            } else {
                assert_refused(&result, Code::PathDenied);
                assert!(
                    result.required_permission.is_some() && result.target_path.is_some(),
                    "DESIGN §7.7"
                );
            }
        }
    }
}

#[test]
fn pipes_sockets_and_devices_never_hang_a_tool() {
    let world = World::with(&Setting {
        more_roots: |_| {
            vec![root(
                "/dev",
                RootKind::Directory,
                Rights::READ_WRITE_DELETE,
                Origin::Mount,
            )]
        },
        ..Setting::default()
    });
    world.write("bait", "bait");
    let pipe = world.workspace.join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.workspace.join("socket")).unwrap();
    world.link("pipe", "to_pipe");
    for text in ["pipe", "socket", "/dev/zero", "/dev/null", "to_pipe"] {
        for (tool, arguments) in every_access(text) {
            if tool == "process_run" {
                continue; // The unknown program is refused first; see tools_process.rs for its directory.
            }
            assert_refused(&world.call(tool, arguments), Code::FileKindUnsupported);
        }
    }
    let everywhere = world.call(
        "file_search",
        json!({"root": ".", "mode": "text", "query": "bait"}),
    );
    assert!(
        everywhere.output.starts_with("1 result"),
        "{}",
        everywhere.output
    );
    assert_ok(&world.call("dir", json!({"path": ".", "operation": "list"})));
}

#[test]
fn a_root_must_be_where_the_policy_says() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    std::fs::create_dir(base.join("real")).unwrap();
    std::os::unix::fs::symlink("real", base.join("link")).unwrap();
    for (path, kind) in [
        ("link", RootKind::Directory),
        ("missing", RootKind::Directory),
        ("link/x", RootKind::File),
    ] {
        let policy = policy::PolicyDraft {
            mode: policy::SandboxMode::WorkspaceWrite,
            roots: vec![
                root(
                    base.join("real"),
                    RootKind::Directory,
                    Rights::ALL,
                    Origin::Workspace,
                ),
                root(base.join(path), kind, Rights::READ, Origin::Mount),
            ],
            entries: Vec::new(),
            network: policy::effective::NetworkPolicy::None,
            resources: World::new().policy.resources().clone(),
            environment: Default::default(),
            protect: Vec::new(),
            own_files: Vec::new(),
            shells: policy::effective::ShellRule::Allow,
            rehash: policy::effective::RehashRule::OnChange,
            partial: policy::effective::PartialRule::Deny,
            workspace_root: base.join("real"),
        }
        .freeze(&policy::effective::Ceiling::mode(
            policy::SandboxMode::WorkspaceWrite,
        ))
        .unwrap();
        assert!(runtime::tools::Walker::open(&policy).is_err(), "{path}");
    }
}

#[test]
fn a_directory_that_was_moved_while_a_call_waited_is_noticed() {
    let world = World::new();
    world.write("a/file", "content");
    let call = world
        .approve(
            "file_edit",
            json!({"path": "a/file", "operation": "overwrite", "content": "x"}),
        )
        .unwrap();
    std::fs::rename(world.workspace.join("a"), world.workspace.join("b")).unwrap();
    std::fs::create_dir(world.workspace.join("a")).unwrap();
    let context = runtime::tools::ToolContext {
        policy: &world.policy,
        walker: &world.walker,
        limits: world.limits,
        effect_log: &world.log,
        sandbox: None,
        task_temp: &world.temp,
        cancelled: None,
        fuse: None,
    };
    assert_refused(&runtime::tools::dispatch(call, &context), Code::PathEscapes);
    assert_eq!(world.read("b/file"), b"content");
}

/// A fixed tree with links of every kind, for random paths.
fn maze() -> World {
    let world = World::new();
    world.write("a/b/file", "1");
    world.write("file", "2");
    world.link("a/b", "l1");
    world.link("..", "a/up");
    world.link("../..", "out1");
    world.link(&world.outside, "out2");
    world.link("l1/../up", "mix");
    world.link("loop", "loop");
    world.link("missing", "dangling");
    world
}

/// Where the kernel says that a path leads; for a missing last name, where its directory leads.
fn kernel(path: &Path) -> Option<PathBuf> {
    path.canonicalize()
        .ok()
        .or_else(|| match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
            }
            _ => None,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn sec_inv_04_random_paths_never_resolve_outside(texts in proptest::collection::vec(
        proptest::collection::vec(prop::sample::select(vec![
            "a", "b", "file", "l1", "up", "out1", "out2", "mix", "loop", "dangling", "..", ".", "", "new", "ws", "outside", "secret.txt",
        ]), 1..8), 1..40)) {
        let world = maze();
        for parts in texts {
            let text = parts.join("/");
            if text.is_empty() { continue }
            if let Ok(walked) = world.walker.walk(&text) {
                prop_assert!(walked.resolved.starts_with(&world.workspace), "{} -> {}", text, walked.resolved.display());
                let asked = world.workspace.join(&text);
                if asked.file_name().is_some() && !parts.contains(&"dangling") {
                    prop_assert_eq!(Some(walked.resolved), kernel(&asked), "{}", text);
                }
            } else if let Ok(there) = world.workspace.join(&text).canonicalize() {
                // What we refuse leads out, or passes a place that is out.
                let passes = parts.iter().any(|part| matches!(*part, ".." | "out1" | "out2" | "up" | "mix"));
                prop_assert!(passes || !there.starts_with(&world.workspace) || text.starts_with('/'), "{}", text);
            }
        }
    }
}
