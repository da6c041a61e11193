//! Files and directories for this user only: X-STATE, X-KEYS. Judged by metadata, so that root passes too.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use policy::{Code, Secret};
use record::audit::{KEY_FILE, KeyError, KeyOrigin};
use record::verify::{ShowFilter, show};
use record::{AtomicFile, AuditKey, AuditLog, Instance, StateDirectory, StateError};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn x_state_the_directory_is_made_for_this_user_only() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a/b/state");
    let state = StateDirectory::open(&path).unwrap();
    for made in ["a", "a/b", "a/b/state"] {
        assert_eq!(mode(&root.path().join(made)), 0o700, "{made}");
    }
    let file = state.file("x.json").unwrap();
    file.write(b"1").unwrap();
    assert_eq!(mode(file.path()), 0o600);
    Instance::claim(&state).unwrap();
    for made in ["instances", "instances/0001"] {
        assert_eq!(mode(&path.join(made)), 0o700, "{made}");
    }
    assert_eq!(mode(&path.join("instances/0001/lock")), 0o600);
}

#[test]
fn x_state_an_unusable_directory_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let refused = |path: &Path| {
        let error = StateDirectory::open(path).unwrap_err();
        assert_eq!(error.code(), Code::StateUnusable);
        error
    };

    let real = root.path().join("real");
    StateDirectory::open(&real).unwrap();
    let link = root.path().join("link");
    symlink(&real, &link).unwrap();
    assert!(matches!(refused(&link), StateError::Symlink { .. }));

    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(refused(&file), StateError::WrongKind { .. }));

    // Empty: tightened. With content others may have put there: refused.
    set_mode(&real, 0o755);
    StateDirectory::open(&real).unwrap();
    assert_eq!(mode(&real), 0o700);
    fs::write(real.join("planted"), "").unwrap();
    for open in [0o770, 0o701, 0o740, 0o755] {
        set_mode(&real, open);
        let error = refused(&real);
        assert!(
            matches!(error, StateError::OpenToOthers { mode, .. } if mode == open),
            "{error}"
        );
    }

    // Somebody else's: for root a directory of another user, for another user one of root.
    let foreign = if is_root() {
        let foreign = root.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        set_mode(&foreign, 0o700);
        std::os::unix::fs::chown(&foreign, Some(65_534), None).unwrap();
        foreign
    } else {
        Path::new("/").to_owned()
    };
    assert!(matches!(refused(&foreign), StateError::ForeignOwner { .. }));
}

#[test]
fn x_state_a_file_is_replaced_as_a_whole_and_read_only_when_it_is_ours() {
    let place = place();
    let file = place.state.file("applied.json").unwrap();
    assert_eq!(file.read(10).unwrap(), None);
    file.write(b"old").unwrap();
    file.write(b"newer").unwrap();
    assert_eq!(file.read(5).unwrap().unwrap(), b"newer");
    let names: Vec<_> = fs::read_dir(place.state.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "no temporary file is left");

    assert!(matches!(
        file.read(4).unwrap_err(),
        StateError::TooLarge { limit: 4, .. }
    ));
    assert!(matches!(
        file.read_json::<u32>(10).unwrap_err(),
        StateError::Damaged { .. }
    ));
    set_mode(file.path(), 0o640);
    assert!(matches!(
        file.read(10).unwrap_err(),
        StateError::OpenToOthers { mode: 0o640, .. }
    ));
    let link = place.state.path().join("link");
    symlink(file.path(), &link).unwrap();
    assert!(matches!(
        AtomicFile::at(&link).read(10).unwrap_err(),
        StateError::Symlink { .. }
    ));
    for name in ["", ".", "..", "a/b", "a\\b", "c:d", "nul\0"] {
        assert!(place.state.file(name).is_err(), "{name:?}");
    }
    file.remove().unwrap();
    file.remove().unwrap();
}

fn key_error(path: &Path) -> KeyError {
    let error = AuditKey::open(path).unwrap_err();
    assert_eq!(error.code(), Code::KeyUnusable);
    error
}

#[test]
fn x_keys_a_key_file_that_is_not_only_ours_is_refused() {
    let place = place();
    let path = place.state.path().join(KEY_FILE);
    assert!(matches!(key_error(&path), KeyError::Missing { .. }));
    AuditKey::open_or_create(&place.state, &path).unwrap();
    assert_eq!(mode(&path), 0o600);
    AuditKey::open(&path).unwrap();
    for open in [0o644, 0o640, 0o604, 0o660] {
        set_mode(&path, open);
        assert!(matches!(
            key_error(&path),
            KeyError::OpenToOthers { mode, .. } if mode == open
        ));
        let again = AuditKey::open_or_create(&place.state, &path);
        assert!(again.is_err(), "never replaced silently");
    }
    set_mode(&path, 0o600);
    AuditKey::open(&path).unwrap();

    let link = place.state.path().join("link.key");
    symlink(&path, &link).unwrap();
    assert!(matches!(key_error(&link), KeyError::Symlink { .. }));
    assert!(matches!(
        key_error(place.state.path()),
        KeyError::WrongKind { .. }
    ));
    for bad in ["", "abc", &"g".repeat(64), &"a".repeat(63), &"a".repeat(66)] {
        fs::write(&path, bad).unwrap();
        assert!(
            matches!(key_error(&path), KeyError::Malformed { .. }),
            "{bad}"
        );
    }
    if is_root() {
        fs::write(&path, "a".repeat(64)).unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        assert!(matches!(key_error(&path), KeyError::ForeignOwner { .. }));
    }
}

#[test]
fn x_keys_the_given_key_has_no_fallback() {
    for bad in [
        "",
        "secret",
        &"z".repeat(64),
        &format!("{}\n", "a".repeat(64)),
    ] {
        let error = AuditKey::given(&Secret::new(bad.to_string()), "AGENT_MCP_AUDIT_KEY");
        assert!(matches!(
            error.unwrap_err(),
            KeyError::Malformed { origin } if origin == "AGENT_MCP_AUDIT_KEY"
        ));
    }
    let key = AuditKey::given(&Secret::new("Ab".repeat(32)), "TEST").unwrap();
    assert_eq!(key.origin(), KeyOrigin::Given);
    assert!(!format!("{key:?}").to_lowercase().contains("abab"));
}

#[test]
fn x_keys_a_lost_key_is_not_replaced_while_its_logs_are_there() {
    let place = place();
    let path = place.state.path().join(KEY_FILE);
    let key = AuditKey::open_or_create(&place.state, &path).unwrap();
    assert_eq!(key.origin(), KeyOrigin::Created);
    let instance = Instance::claim(&place.state).unwrap();
    let log = AuditLog::open(&instance, &key, clock()).unwrap();
    log.close().unwrap();
    let created = ShowFilter {
        event: Some("key.created".to_owned()),
        ..ShowFilter::default()
    };
    let records: Vec<_> = show(instance.directory(), created).unwrap().collect();
    assert_eq!(records.len(), 1, "a new key is recorded");
    let again = AuditKey::open_or_create(&place.state, &path).unwrap();
    assert_eq!((again.origin(), again.id()), (KeyOrigin::File, key.id()));

    fs::remove_file(&path).unwrap();
    let error = AuditKey::open_or_create(&place.state, &path).unwrap_err();
    assert!(matches!(error, KeyError::MissingWithLogs { .. }), "{error}");
    assert_eq!(error.code(), Code::KeyUnusable);
    assert!(!path.exists());
}

#[test]
fn x_keys_all_who_start_at_once_get_one_key() {
    for _ in 0..20 {
        let place = place();
        let path = place.state.path().join(KEY_FILE);
        let keys: Vec<AuditKey> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| AuditKey::open_or_create(&place.state, &path).unwrap()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let created = keys.iter().filter(|key| key.origin() == KeyOrigin::Created);
        assert_eq!(created.count(), 1);
        assert!(keys.iter().all(|key| key.id() == keys[0].id()));
        assert_eq!(fs::read_dir(place.state.path()).unwrap().count(), 1);
    }
}
