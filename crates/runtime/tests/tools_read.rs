//! `file_read` and `dir` (DESIGN §7.2, §7.6).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test stops where its setting fails")]

mod tools_support;

use policy::Code;
use runtime::tools::{EffectEnd, EffectKind, Intent};
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use tools_support::{World, assert_ok, assert_refused, sha256};

#[test]
fn design_7_2_whole_reads_stop_at_the_limit() {
    let mut world = World::new();
    world.limits.whole_read_bytes = 8;
    world.write("fits", "12345678");
    world.write("large", "123456789");
    let result = world.call("file_read", json!({"path": "fits"}));
    assert_ok(&result);
    assert!(result.output.ends_with("\n12345678"), "{}", result.output);
    assert!(
        result.output.contains(&sha256(b"12345678").to_string()),
        "for expected_sha256"
    );
    let result = world.call("file_read", json!({"path": "large"}));
    assert_refused(&result, Code::FileTooLarge);
    assert!(
        result.output.contains("size: 9") && result.output.contains("range"),
        "{}",
        result.output
    );
    assert!(result.retry_allowed);
}

#[test]
fn ranges_count_bytes_and_keep_characters_whole() {
    let world = World::new();
    world.write("file", "aé日𝄞z");
    for (start, length, first, text) in [
        (0, 100, "bytes 0 to 11 of 11, 0 after", "aé日𝄞z"),
        (0, 2, "bytes 0 to 1 of 11, 10 after", "a"),
        (2, 4, "bytes 3 to 6 of 11, 5 after", "日"),
        (6, 5, "bytes 6 to 11 of 11, 0 after", "𝄞z"),
        (100, 5, "bytes 11 to 11 of 11, 0 after", ""),
    ] {
        let call = json!({"path": "file", "mode": "range", "start": start, "length": length});
        let result = world.call("file_read", call);
        assert_ok(&result);
        assert!(
            result.output.contains(first),
            "{start}+{length}: {}",
            result.output
        );
        assert_eq!(result.output.split_once('\n').unwrap().1, text);
    }
    let far = json!({"path": "file", "mode": "range", "start": 1u64 << 50, "length": 1u64 << 50});
    assert_ok(&world.call("file_read", far));
}

#[test]
fn design_7_1_binary_is_told_and_utf16_is_text() {
    let world = World::new();
    world.write("binary", b"\x7fELF\x00\xFF\xFE");
    world.write(
        "wide",
        [
            b"\xFF\xFE".as_slice(),
            &"hi ü"
                .encode_utf16()
                .flat_map(u16::to_le_bytes)
                .collect::<Vec<_>>(),
        ]
        .concat(),
    );
    for call in [
        json!({"path": "binary"}),
        json!({"path": "binary", "mode": "range", "start": 0, "length": 4}),
    ] {
        assert_refused(&world.call("file_read", call), Code::FileBinary);
    }
    let facts = world.call("file_read", json!({"path": "binary", "mode": "metadata"}));
    assert_ok(&facts);
    for line in ["kind: file", "size: 7 bytes", "content: binary", "sha256: "] {
        assert!(facts.output.contains(line), "{}", facts.output);
    }
    let wide = world.call("file_read", json!({"path": "wide"}));
    assert!(
        wide.output.ends_with("hi ü") && wide.output.contains("UTF-16LE"),
        "{}",
        wide.output
    );
    assert_refused(
        &world.call("file_search", json!({"root": "binary", "mode": "tail"})),
        Code::FileBinary,
    );
    // Text at the start, binary after it.
    world.write("late", [vec![b'a'; 5_000], vec![0xFF]].concat());
    assert_refused(
        &world.call("file_read", json!({"path": "late"})),
        Code::FileBinary,
    );
}

#[test]
fn a_sparse_giant_is_not_read_whole() {
    let world = World::new();
    let path = world.write("giant", "start\n");
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    assert_refused(
        &world.call("file_read", json!({"path": "giant"})),
        Code::FileTooLarge,
    );
    let range = json!({"path": "giant", "mode": "range", "start": 0, "length": 1u64 << 41});
    let result = world.call("file_read", range);
    assert_ok(&result);
    assert!(result.output.len() < 2 << 20, "a range is bounded too");
}

#[test]
fn design_7_6_directories_are_made_listed_and_removed() {
    let world = World::new();
    let made = world.call("dir", json!({"path": "a/b/c", "operation": "mkdir"}));
    assert_ok(&made);
    assert!(
        made.effects
            .iter()
            .all(|effect| effect.kind == EffectKind::DirectoryMade)
    );
    let paths: Vec<_> = made
        .effects
        .iter()
        .map(|effect| effect.path.strip_prefix(&world.workspace).unwrap())
        .collect();
    assert_eq!(
        paths,
        [std::path::Path::new("a"), "a/b".as_ref(), "a/b/c".as_ref()]
    );
    let again = world.call("dir", json!({"path": "a/b", "operation": "mkdir"}));
    assert_ok(&again);
    assert_eq!(again.effects, []);
    world.write("file", "x");
    assert_refused(
        &world.call("dir", json!({"path": "file", "operation": "mkdir"})),
        Code::FileExists,
    );
    assert_refused(
        &world.call("dir", json!({"path": "file/x", "operation": "mkdir"})),
        Code::FileWrongKind,
    );
    assert_refused(
        &world.call("dir", json!({"path": "new/../x", "operation": "mkdir"})),
        Code::FileNotFound,
    );
    assert_refused(
        &world.call("dir", json!({"path": "a", "operation": "rmdir"})),
        Code::DirectoryNotEmpty,
    );
    assert_refused(
        &world.call("dir", json!({"path": "file", "operation": "rmdir"})),
        Code::FileWrongKind,
    );
    assert_refused(
        &world.call("dir", json!({"path": "none", "operation": "rmdir"})),
        Code::FileNotFound,
    );
    let root = world.call("dir", json!({"path": ".", "operation": "rmdir"}));
    assert!(!root.ok && world.workspace.exists(), "{}", root.output);
    assert_ok(&world.call("dir", json!({"path": "a/b/c", "operation": "rmdir"})));
    assert!(!world.workspace.join("a/b/c").exists());
    assert!(
        world
            .log
            .ends()
            .iter()
            .all(|end| matches!(end, Some(EffectEnd::Done | EffectEnd::Undone)))
    );
    let entries = world.log.entries.lock().unwrap();
    assert!(
        matches!(&entries.last().unwrap().0, Intent::RemoveDirectory { mode, .. } if *mode != 0)
    );
}

#[test]
fn a_mkdir_that_fails_half_way_is_undone() {
    let world = World::new();
    let long = "n".repeat(300);
    let call = json!({"path": format!("x/y/{long}"), "operation": "mkdir"});
    assert_refused(&world.call("dir", call), Code::PathInvalid);
    assert!(!world.workspace.join("x").exists());
    assert_eq!(world.log.ends(), [Some(EffectEnd::Undone)]);
}

#[test]
fn listings_are_sorted_cut_and_cannot_be_forged() {
    let mut world = World::new();
    world.write("b.txt", "12345");
    world.write("a/x", "");
    world.link("../outside", "out");
    let forged = std::ffi::OsStr::from_bytes(b"z\nfile       passwd\xFF (1 bytes)");
    std::fs::write(world.workspace.join(forged), "").unwrap();
    let result = world.call("dir", json!({"path": ".", "operation": "list"}));
    assert_ok(&result);
    let lines: Vec<&str> = result.output.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "directory  a/",
            "file       b.txt (5 bytes)",
            "link       out -> ../outside",
            "protected  own",
            "file       z\\nfile       passwd\\xFF (1 bytes) (0 bytes)",
        ]
    );
    assert_refused(
        &world.call("dir", json!({"path": "b.txt", "operation": "list"})),
        Code::FileWrongKind,
    );
    world.limits.dir_list_entries = 2;
    let cut = world.call("dir", json!({"path": ".", "operation": "list"}));
    assert!(
        cut.output.contains(": 5 entries") && cut.output.ends_with("[3 more entries not shown]\n"),
        "{}",
        cut.output
    );
}

/// SPEC §17, "never a hang": a sparse file of terabytes is answered at once by every tool that would read it whole.
#[test]
fn rec_02_a_sparse_giant_holds_nobody() {
    let world = World::new();
    let file = std::fs::File::create(world.workspace.join("giant")).unwrap();
    // Some file systems have no room for such a length; then there is no such file either.
    if file.set_len(4 << 40).is_err() {
        return;
    }
    let facts = world.call("file_read", json!({"path": "giant", "mode": "metadata"}));
    assert!(
        facts.ok && facts.output.contains("not computed"),
        "{}",
        facts.output
    );
    for (tool, arguments) in [
        ("file_edit", json!({"path": "giant", "operation": "delete"})),
        (
            "file_edit",
            json!({"path": "giant", "operation": "rename", "new_path": "other"}),
        ),
        ("file_read", json!({"path": "giant", "mode": "whole"})),
    ] {
        let result = world.call(tool, arguments);
        assert_eq!(
            result.code,
            Some(Code::FileTooLarge),
            "{tool}: {}",
            result.output
        );
    }
    let found = world.call(
        "file_search",
        json!({"root": ".", "mode": "text", "query": "x"}),
    );
    assert!(found.ok, "{}", found.output);
}
