//! `file_search` (DESIGN §7.1).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test stops where its setting fails")]

mod tools_support;

use policy::Code;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use tools_support::{SECRET, World, assert_ok, assert_refused};

fn search(world: &World, root: &str, mode: &str, query: &str) -> Vec<String> {
    let result = world.call(
        "file_search",
        json!({"root": root, "mode": mode, "query": query}),
    );
    assert_ok(&result);
    assert!(!result.output.contains(SECRET));
    result.output.lines().skip(1).map(str::to_owned).collect()
}

fn tree() -> World {
    let world = World::new();
    world.write("src/main.rs", "fn main() {}\n// needle (1)\n");
    world.write("src/lib.rs", "needle\nneedle again\r\nNeedle\n");
    world.write(".hidden/deep/file.rs", "needle\n");
    world.write(".gitignore", "ignored\n");
    world.write("ignored/x.txt", "needle\n");
    world.write(".git/objects/ab/cdef", "needle\n");
    world.write(".git/HEAD", "needle\n");
    world.write("binary", b"needle\n\xFF\xFE\xFD");
    world.link("../outside", "out");
    world.link("src", "inside");
    world
}

#[test]
fn text_covers_hidden_and_ignored_but_not_objects_own_files_links() {
    let world = tree();
    world.write("own/needle.txt", "needle");
    std::fs::write(world.outside.join("more.txt"), "needle").unwrap();
    let expected = [
        ".git/HEAD:1: needle",
        ".hidden/deep/file.rs:1: needle",
        "ignored/x.txt:1: needle",
        "src/lib.rs:1: needle",
        "src/lib.rs:2: needle again",
        "src/main.rs:2: // needle (1)",
        "[1 binary files skipped]",
    ];
    for _ in 0..20 {
        assert_eq!(
            search(&world, ".", "text", "needle"),
            expected,
            "the same order each time"
        );
    }
    assert_eq!(
        search(&world, "src", "text", "needle (1)"),
        ["src/main.rs:2: // needle (1)"],
        "no expression"
    );
    assert_eq!(
        search(&world, "inside", "text", "needle (1)"),
        ["src/main.rs:2: // needle (1)"]
    );
    assert_eq!(
        search(&world, "src/main.rs", "text", "needle"),
        ["src/main.rs:2: // needle (1)"]
    );
    assert_eq!(
        search(&world, ".", "text", SECRET),
        ["[1 binary files skipped]"]
    );
}

#[test]
fn regex_goes_line_by_line() {
    let world = tree();
    assert_eq!(
        search(&world, "src", "regex", "^needle( again)?$"),
        ["src/lib.rs:1: needle", "src/lib.rs:2: needle again"]
    );
    assert_eq!(
        search(&world, "src", "regex", "(?i)^NEEDLE$"),
        ["src/lib.rs:1: needle", "src/lib.rs:3: Needle"]
    );
    for broken in ["(", "a{999999999}", "\\n", "[z-a]"] {
        let result = world.call(
            "file_search",
            json!({"root": ".", "mode": "regex", "query": broken}),
        );
        assert_refused(&result, Code::ToolArgumentsInvalid);
        assert!(result.retry_allowed);
    }
}

#[test]
fn names_and_globs() {
    let world = tree();
    assert_eq!(search(&world, ".", "name", "MAIN"), ["src/main.rs"]);
    assert_eq!(
        search(&world, ".", "glob", "*.rs"),
        [".hidden/deep/file.rs", "src/lib.rs", "src/main.rs"]
    );
    assert_eq!(
        search(&world, ".", "glob", "src/*.rs"),
        ["src/lib.rs", "src/main.rs"]
    );
    assert_eq!(search(&world, ".", "glob", "**/deep"), [".hidden/deep/"]);
    assert_eq!(search(&world, ".", "glob", "*.r{s,b}").len(), 3);
    let absolute = format!("{}/src/m*", world.workspace.display());
    assert_eq!(search(&world, ".", "glob", &absolute), ["src/main.rs"]);
    assert_eq!(search(&world, ".", "glob", "secret*"), [] as [&str; 0]);
    assert_eq!(
        search(&world, ".", "name", "journal"),
        [] as [&str; 0],
        "own files"
    );
    let result = world.call(
        "file_search",
        json!({"root": ".", "mode": "glob", "query": "[a"}),
    );
    assert_refused(&result, Code::ToolArgumentsInvalid);
}

#[test]
fn results_are_cut_with_a_count() {
    let world = World::new();
    for number in 0..30 {
        world.write(&format!("f{number:02}"), "x\n".repeat(100));
    }
    let call = |most: u64| json!({"root": ".", "mode": "text", "query": "x", "max_results": most});
    let result = world.call("file_search", call(3));
    let lines: Vec<&str> = result.output.lines().collect();
    assert_eq!(
        lines[1..],
        [
            "f00:1: x",
            "f00:2: x",
            "f00:3: x",
            "[2997 more results not shown; narrow the search]"
        ]
    );
    let result = world.call("file_search", call(1_000_000));
    assert_eq!(
        result.output.lines().count(),
        1 + 1_000 + 1,
        "DESIGN §7.1: 1,000 whatever is asked"
    );
}

#[test]
fn utf16_and_strange_names_are_found() {
    let world = World::new();
    world.write(
        "wide",
        [
            b"\xFE\xFF".as_slice(),
            &"one\r\nfünf needle\r\n"
                .encode_utf16()
                .flat_map(u16::to_be_bytes)
                .collect::<Vec<_>>(),
        ]
        .concat(),
    );
    world.write("marked", "\u{FEFF}needle\n");
    let name = std::ffi::OsStr::from_bytes(b"caf\xE9\nfile:1: forged");
    std::fs::write(world.workspace.join(name), "needle\x1b[31m\n").unwrap();
    assert_eq!(
        search(&world, ".", "text", "needle"),
        [
            "caf\\xE9\\nfile:1: forged:1: needle\\u{1b}[31m",
            "marked:1: needle",
            "wide:2: fünf needle"
        ]
    );
    assert_eq!(
        search(&world, ".", "name", "caf"),
        ["caf\\xE9\\nfile:1: forged"]
    );
}

#[test]
fn large_files_and_long_lines() {
    let world = World::new();
    let mut text = "filler line\n".repeat(700_000);
    text.push_str(&"a".repeat(2_000_000));
    text.push_str("needle\n");
    world.write("large", &text);
    let lines = search(&world, ".", "text", "needle");
    assert!(
        lines[0].starts_with("large:700001: …aaa") && lines[0].ends_with("needle"),
        "{}",
        &lines[0][..60]
    );
    assert!(lines[0].len() < 500);
}

#[test]
fn tails_come_from_the_end() {
    let mut world = World::new();
    world.write("log", "1\n2\n3\r\n4");
    let tail = |world: &World, lines: u64| {
        let result = world.call(
            "file_search",
            json!({"root": "log", "mode": "tail", "tail_lines": lines}),
        );
        assert_ok(&result);
        result
            .output
            .lines()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(tail(&world, 2), ["3", "4"]);
    assert_eq!(tail(&world, 100), ["1", "2", "3", "4"]);
    world.write("log", "line\n".repeat(20_000));
    assert_eq!(tail(&world, 1_000_000).len(), 10_000, "DESIGN §7.1");
    world.limits.whole_read_bytes = 12;
    assert_eq!(
        tail(&world, 10),
        [
            "[only the last 12 bytes were looked at]",
            "e",
            "line",
            "line"
        ]
    );
    world.write("log", "");
    assert_eq!(tail(&world, 10), [] as [&str; 0]);
    assert_refused(
        &world.call("file_search", json!({"root": ".", "mode": "tail"})),
        Code::FileWrongKind,
    );
}

#[test]
fn at_08_a_directory_that_keeps_turning_into_a_link_leads_nowhere() {
    let world = World::new();
    world.write("real/file", "nothing here");
    std::fs::write(world.outside.join("file"), SECRET).unwrap();
    let (flip, real) = (world.workspace.join("flip"), world.workspace.join("real"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::os::unix::fs::symlink(&world.outside, &flip).unwrap();
                std::fs::remove_file(&flip).unwrap();
                std::fs::rename(&real, &flip).unwrap();
                std::fs::rename(&flip, &real).unwrap();
            }
        });
        for _ in 0..300 {
            for call in [
                json!({"root": ".", "mode": "text", "query": "secret outside"}),
                json!({"root": ".", "mode": "name", "query": "secret"}),
                json!({"root": "flip", "mode": "text", "query": "secret outside"}),
            ] {
                let result = world.call("file_search", call);
                assert!(!result.output.contains(SECRET), "{}", result.output);
                assert!(!result.output.contains("secret.txt"), "{}", result.output);
            }
            let read = world.call("file_read", json!({"path": "flip/secret.txt"}));
            assert!(!read.ok && !read.output.contains(SECRET));
            let write = world.call(
                "file_edit",
                json!({"path": "flip/new", "operation": "overwrite", "content": "x"}),
            );
            drop(write);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(!world.outside.join("new").exists());
}
