//! `file_edit` as a transaction (SPEC §12, DESIGN §7.3 and §13).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test stops where its setting fails")]

mod tools_support;

use policy::effective::Sha256Digest;
use policy::{Code, Right};
use proptest::prelude::*;
use runtime::tools::{EffectEnd, EffectKind, Fuse, Intent};
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use tools_support::{World, assert_ok, assert_refused, identity, is_root, sha256};

fn overwrite(path: &str, content: &str) -> Value {
    json!({"path": path, "operation": "overwrite", "content": content})
}

fn patch(path: &str, old: &str, new: &str) -> Value {
    json!({"path": path, "operation": "patch", "patch": json!({"old_text": old, "new_text": new}).to_string()})
}

#[test]
fn spec_12_overwrite_replaces_atomically_and_reports_both_hashes() {
    let world = World::new();
    let path = world.write("file", "old");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let inode = identity(&path).inode;
    let result = world.call("file_edit", overwrite("file", "new\r\n"));
    assert_ok(&result);
    assert_eq!(world.read("file"), b"new\r\n", "bytes as given");
    assert_ne!(identity(&path).inode, inode, "never seen half written");
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    let effect = &result.effects[0];
    assert_eq!(effect.kind, EffectKind::Replaced);
    assert_eq!(
        (effect.before_sha256, effect.after_sha256),
        (Some(sha256(b"old")), Some(sha256(b"new\r\n")))
    );
    assert_eq!(result.evidence, sha256(result.output.as_bytes()));
    assert_eq!(world.log.ends(), [Some(EffectEnd::Done)]);
    let entries = world.log.entries.lock().unwrap();
    let Intent::Replace {
        temporary: Some(temporary),
        before: Some(before),
        ..
    } = &entries[0].0
    else {
        panic!("{entries:?}")
    };
    assert!(
        temporary.starts_with(&world.workspace),
        "recovery knows what to remove"
    );
    assert_eq!(before.mode, 0o640);
    world.assert_clean();
}

#[test]
fn overwrite_and_atomic_replace_create_with_the_umask() {
    let world = World::new();
    for (name, operation) in [("one", "overwrite"), ("two", "atomic_replace")] {
        let call = json!({"path": name, "operation": operation, "content": ""});
        let result = world.call("file_edit", call);
        assert_ok(&result);
        assert_eq!(result.effects[0].kind, EffectKind::Created);
        let mode = std::fs::metadata(world.workspace.join(name))
            .unwrap()
            .mode()
            & 0o7777;
        assert_eq!(mode & !0o644, 0, "{mode:o}");
    }
    std::fs::create_dir(world.workspace.join("sub")).unwrap();
    assert_refused(
        &world.call("file_edit", overwrite("missing/file", "x")),
        Code::FileNotFound,
    );
    assert_refused(
        &world.call("file_edit", overwrite("sub", "x")),
        Code::FileWrongKind,
    );
}

#[test]
fn expected_sha256_guards_every_operation() {
    let world = World::new();
    let (right, wrong) = (sha256(b"content").to_string(), sha256(b"other").to_string());
    for operation in ["overwrite", "patch", "atomic_replace", "delete", "rename"] {
        world.write("file", "content");
        let call = |expected: &str| {
            json!({"path": "file", "operation": operation, "content": "new", "new_path": format!("moved-{operation}"),
                "patch": {"old_text": "cont", "new_text": "c"}, "expected_sha256": expected})
        };
        let refused = world.call("file_edit", call(&wrong));
        assert_refused(&refused, Code::FileHashMismatch);
        assert!(
            refused.output.contains(&right),
            "the model learns the hash it should have had"
        );
        assert_refused(
            &world.call("file_edit", call("123")),
            Code::ToolArgumentsInvalid,
        );
        assert_eq!(world.read("file"), b"content");
        assert_ok(&world.call("file_edit", call(&right)));
    }
    let missing =
        json!({"path": "none", "operation": "overwrite", "content": "x", "expected_sha256": right});
    assert_refused(&world.call("file_edit", missing), Code::FileNotFound);
}

#[test]
fn design_13_3_ambiguous_patches_change_nothing() {
    let world = World::new();
    world.write("file", "one two one");
    for (old, count) in [("three", "matches: 0"), ("one", "matches: 2")] {
        let result = world.call("file_edit", patch("file", old, "x"));
        assert_refused(&result, Code::PatchMismatch);
        assert!(
            result.output.contains(count) && result.retry_allowed,
            "{}",
            result.output
        );
    }
    let diff = json!({"path": "file", "operation": "patch", "patch": "--- a\n+++ b\n"});
    assert_refused(&world.call("file_edit", diff), Code::ToolArgumentsInvalid);
    assert_eq!(world.log.ends(), []);
    assert_ok(&world.call("file_edit", patch("file", "two", "2")));
    assert_eq!(world.read("file"), b"one 2 one");
    assert_refused(
        &world.call("file_edit", patch("none", "a", "b")),
        Code::FileNotFound,
    );
    world.write("binary", b"\xFF\x00\x80");
    assert_refused(
        &world.call("file_edit", patch("binary", "a", "b")),
        Code::FileBinary,
    );
}

#[test]
fn limits_edit_bytes_hold_for_old_and_new_content() {
    let mut world = World::new();
    world.limits.edit_bytes = 10;
    world.write("file", "12345678901");
    assert_refused(
        &world.call("file_edit", overwrite("file", "x")),
        Code::FileTooLarge,
    );
    assert_refused(
        &world.call("file_edit", overwrite("new", "12345678901")),
        Code::FileTooLarge,
    );
    assert_ok(&world.call("file_edit", overwrite("new", "1234567890")));
    assert!(!world.log.ends().contains(&None));
}

#[test]
fn a_hard_link_is_broken_and_the_outside_file_stays() {
    let world = World::new();
    let outside = world.outside.join("linked");
    std::fs::write(&outside, "shared").unwrap();
    std::fs::hard_link(&outside, world.workspace.join("file")).unwrap();
    assert_eq!(world.read("file"), b"shared", "control");
    let result = world.call("file_edit", overwrite("file", "mine"));
    assert_ok(&result);
    assert!(result.output.contains("hard links"), "{}", result.output);
    assert_eq!(std::fs::read(outside).unwrap(), b"shared");
}

#[test]
fn delete_takes_files_only() {
    let world = World::new();
    world.write("file", "content");
    world.write("directory/file", "x");
    assert_refused(
        &world.call(
            "file_edit",
            json!({"path": "directory", "operation": "delete"}),
        ),
        Code::FileWrongKind,
    );
    assert_refused(
        &world.call("file_edit", json!({"path": "none", "operation": "delete"})),
        Code::FileNotFound,
    );
    let result = world.call("file_edit", json!({"path": "file", "operation": "delete"}));
    assert_ok(&result);
    assert_eq!(result.effects[0].before_sha256, Some(sha256(b"content")));
    assert!(!world.workspace.join("file").exists());
}

#[test]
fn x_rename_design_7_3_never_overwrites() {
    let world = World::new();
    world.write("a", "A");
    world.write("b", "B");
    std::fs::create_dir(world.workspace.join("d")).unwrap();
    let rename =
        |from: &str, to: &str| json!({"path": from, "operation": "rename", "new_path": to});
    for to in ["b", "a"] {
        assert_refused(&world.call("file_edit", rename("a", to)), Code::FileExists);
    }
    assert!(!world.call("file_edit", rename("a", "d")).ok);
    assert!(
        !world.call("file_edit", rename("d", "e")).ok,
        "directories are not renamed"
    );
    assert_refused(
        &world.call("file_edit", rename("a", "none/a")),
        Code::FileNotFound,
    );
    let result = world.call("file_edit", rename("a", "d/c"));
    assert_ok(&result);
    assert_eq!(
        (world.read("d/c"), world.read("b")),
        (b"A".to_vec(), b"B".to_vec())
    );
    assert!(!world.workspace.join("a").exists());
}

#[test]
fn a_name_taken_at_the_last_moment_is_not_overwritten() {
    let world = World::new();
    world.write("a", "A");
    for call in [
        json!({"path": "a", "operation": "rename", "new_path": "late"}),
        overwrite("late", "mine"),
    ] {
        let late = world.workspace.join("late");
        let fuse = |point: Fuse| {
            if point == Fuse::Recorded {
                std::fs::write(&late, "theirs").unwrap();
            }
        };
        let result = world.call_with("file_edit", call, None, Some(&fuse));
        assert_refused(&result, Code::FileExists);
        assert_eq!(std::fs::read(&late).unwrap(), b"theirs");
        assert_eq!(world.read("a"), b"A");
        std::fs::remove_file(&late).unwrap();
    }
    assert_eq!(world.log.ends(), [Some(EffectEnd::Undone); 2]);
    world.assert_clean();
}

#[test]
fn a_change_between_read_and_write_is_noticed() {
    for (operation, point) in [
        ("overwrite", Fuse::Recorded),
        ("overwrite", Fuse::Written),
        ("delete", Fuse::Recorded),
        ("rename", Fuse::Recorded),
    ] {
        let world = World::new();
        let path = world.write("file", "old");
        let fuse = |now: Fuse| {
            if now == point {
                std::fs::write(&path, "their change").unwrap();
            }
        };
        let call =
            json!({"path": "file", "operation": operation, "content": "mine", "new_path": "moved"});
        assert_refused(
            &world.call_with("file_edit", call, None, Some(&fuse)),
            Code::FileHashMismatch,
        );
        assert_eq!(world.read("file"), b"their change");
        assert_eq!(world.log.ends(), [Some(EffectEnd::Undone)]);
        world.assert_clean();
    }
}

#[test]
fn design_13_1_what_does_not_read_back_is_rolled_back() {
    for backup_bytes in [1 << 20, 0] {
        let mut world = World::new();
        world.limits.memory_backup_bytes = backup_bytes;
        let path = world.write("file", "the old bytes");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let backups = Mutex::new(Vec::new());
        let fuse = |point: Fuse| match point {
            Fuse::Written => backups.lock().unwrap().extend(
                std::fs::read_dir(&world.temp)
                    .unwrap()
                    .map(|entry| std::fs::read(entry.unwrap().path()).unwrap()),
            ),
            Fuse::Synced => std::fs::write(&path, "bit rot").unwrap(),
            _ => {}
        };
        let result = world.call_with(
            "file_edit",
            overwrite("file", "the new bytes"),
            None,
            Some(&fuse),
        );
        assert_refused(&result, Code::FileVerifyFailed);
        assert_eq!(world.read("file"), b"the old bytes");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(world.log.ends(), [Some(EffectEnd::Undone)]);
        let expected: &[&[u8]] = if backup_bytes == 0 {
            &[b"the old bytes"]
        } else {
            &[]
        };
        assert_eq!(*backups.lock().unwrap(), expected, "DESIGN §13.2");
        world.assert_clean();
    }
    let world = World::new();
    let path = world.workspace.join("new");
    let fuse = |point: Fuse| {
        if point == Fuse::Synced {
            std::fs::write(&path, "bit rot").unwrap();
        }
    };
    assert_refused(
        &world.call_with("file_edit", overwrite("new", "x"), None, Some(&fuse)),
        Code::FileVerifyFailed,
    );
    assert!(!path.exists(), "a new file goes away again");
    world.assert_clean();
}

#[test]
fn another_file_put_over_ours_is_not_undone() {
    let world = World::new();
    let path = world.write("file", "old");
    let theirs = world.write("theirs", "their file");
    let fuse = |point: Fuse| {
        if point == Fuse::Synced {
            std::fs::rename(&theirs, &path).unwrap();
        }
    };
    assert_refused(
        &world.call_with("file_edit", overwrite("file", "x"), None, Some(&fuse)),
        Code::FileVerifyFailed,
    );
    assert_eq!(world.read("file"), b"their file");
}

#[test]
fn dc_3_without_a_record_there_is_no_effect() {
    let world = World::new();
    world.write("file", "old");
    std::fs::create_dir(world.workspace.join("empty")).unwrap();
    world.log.refuses.store(true, Ordering::Relaxed);
    for (tool, arguments) in [
        ("file_edit", overwrite("file", "new")),
        ("file_edit", overwrite("other", "new")),
        ("file_edit", patch("file", "old", "new")),
        ("file_edit", json!({"path": "file", "operation": "delete"})),
        (
            "file_edit",
            json!({"path": "file", "operation": "rename", "new_path": "moved"}),
        ),
        ("dir", json!({"path": "made/below", "operation": "mkdir"})),
        ("dir", json!({"path": "empty", "operation": "rmdir"})),
    ] {
        let result = world.call(tool, arguments);
        assert_refused(&result, Code::AuditUnavailable);
        assert!(!result.retry_allowed);
    }
    let mut names: Vec<_> = std::fs::read_dir(&world.workspace)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["empty", "file", "own"]);
    assert_eq!(world.read("file"), b"old");
}

#[test]
fn a_read_only_directory_or_file_is_refused_and_left_clean() {
    if is_root() {
        return; // Needs: a user whom permissions bind. The run as an unprivileged user covers it.
    }
    let world = World::new();
    let path = world.write("locked/file", "old");
    let directory = path.parent().unwrap();
    std::fs::set_permissions(directory, PermissionsExt::from_mode(0o555)).unwrap();
    assert!(
        std::fs::write(directory.join("control"), "x").is_err(),
        "control"
    );
    for call in [
        overwrite("locked/file", "new"),
        overwrite("locked/other", "new"),
        json!({"path": "locked/file", "operation": "delete"}),
        json!({"path": "locked/file", "operation": "rename", "new_path": "moved"}),
    ] {
        let result = world.call("file_edit", call);
        assert_refused(&result, Code::PathDenied);
        assert!(matches!(
            result.required_permission,
            Some(Right::Write | Right::Delete)
        ));
    }
    std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
    assert_refused(
        &world.call("file_edit", overwrite("locked/file", "new")),
        Code::PathDenied,
    );
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o000)).unwrap();
    assert_refused(
        &world.call("file_read", json!({"path": "locked/file"})),
        Code::PathDenied,
    );
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(world.read("locked/file"), b"old");
    assert!(
        world
            .log
            .ends()
            .iter()
            .all(|end| *end == Some(EffectEnd::Undone))
    );
    world.assert_clean();
}

#[test]
fn an_immutable_place_leaves_no_temporary_file() {
    // A directory that goes away between the record and the write fails for root too.
    let world = World::new();
    world.write("d/file", "old");
    let directory = world.workspace.join("d");
    let fuse = |point: Fuse| {
        if point == Fuse::Recorded {
            std::fs::remove_file(directory.join("file")).unwrap();
            std::fs::remove_dir(&directory).unwrap();
        }
    };
    let result = world.call_with("file_edit", overwrite("d/file", "new"), None, Some(&fuse));
    assert_refused(&result, Code::FileNotFound);
    assert_eq!(world.log.ends(), [Some(EffectEnd::Undone)]);
    world.assert_clean();
}

#[test]
fn attributes_of_users_are_kept() {
    let world = World::new();
    let path = world.write("file", "old");
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, "user.note", b"kept", flags).is_err() {
        return; // Needs: a file system with user attributes.
    }
    assert_ok(&world.call("file_edit", overwrite("file", "new")));
    let mut value = [0u8; 16];
    let length = rustix::fs::getxattr(&path, "user.note", &mut value).unwrap();
    assert_eq!(&value[..length], b"kept");
}

fn hash_of(world: &World, name: &str) -> Sha256Digest {
    sha256(&world.read(name))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_patch_that_is_rolled_back_leaves_every_byte(before in "[a-y\r\n日]{0,60}", after in "[a-y\r\n]{0,60}", new in "[a-z𝄞]{0,20}", mark in any::<bool>()) {
        let world = World::new();
        let mark = if mark { "\u{FEFF}" } else { "" };
        let path = world.write("file", format!("{mark}{before}Z{after}"));
        let old = hash_of(&world, "file");
        let fuse = |point: Fuse| if point == Fuse::Synced { std::fs::write(&path, "rot").unwrap() };
        let failed = world.call_with("file_edit", patch("file", "Z", &new), None, Some(&fuse));
        prop_assert_eq!(failed.code, Some(Code::FileVerifyFailed));
        prop_assert_eq!(hash_of(&world, "file"), old);
        let done = world.call("file_edit", patch("file", "Z", &format!("Q{new}")));
        prop_assert!(done.ok);
        let back = world.call("file_edit", patch("file", &format!("Q{new}"), "Z"));
        prop_assert!(back.ok);
        prop_assert_eq!(hash_of(&world, "file"), old);
    }
}

/// Gives this thread mounts of its own. Needs: CAP_SYS_ADMIN.
#[cfg(target_os = "linux")]
fn own_mounts() -> bool {
    use rustix::mount::{MountPropagationFlags, mount_change};
    // SAFETY: only this thread's view of mounts changes; no descriptor table or memory is unshared.
    let alone = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) };
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    alone.is_ok() && mount_change("/", private).is_ok()
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_the_old_file_and_nothing_else() {
    if !own_mounts() {
        return; // Needs: CAP_SYS_ADMIN. The run as root covers it.
    }
    let world = World::new();
    let place = world.workspace.join("small");
    std::fs::create_dir(&place).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", &place, "tmpfs", flags, Some(c"size=64k")).unwrap();
    world.write("small/file", "old");
    let large = "x".repeat(1 << 20);
    assert!(
        std::fs::write(place.join("control"), &large).is_err(),
        "control"
    );
    std::fs::remove_file(place.join("control")).unwrap();
    for name in ["small/file", "small/new"] {
        let result = world.call("file_edit", overwrite(name, &large));
        assert_refused(&result, Code::ToolFailed);
    }
    assert_eq!(world.read("small/file"), b"old");
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1);
    // DESIGN §7.3: no rename across file systems.
    let across = json!({"path": "small/file", "operation": "rename", "new_path": "here"});
    assert_refused(&world.call("file_edit", across), Code::RenameCrossDevice);
    assert_eq!(world.read("small/file"), b"old");
    assert!(!world.workspace.join("here").exists());
    assert_eq!(world.log.ends(), [Some(EffectEnd::Undone); 3]);
    rustix::mount::unmount(&place, rustix::mount::UnmountFlags::DETACH).unwrap();
    world.assert_clean();
}
