//! What needs a broken disk: the log's file is replaced by one that is always full.
#![cfg(target_os = "linux")]

use super::*;
use crate::clock::SystemClock;
use crate::state::StateDirectory;
use policy::{Code, Secret};
use std::fs::{File, OpenOptions};

struct Bench {
    _directory: tempfile::TempDir,
    instance: Instance,
    key: AuditKey,
}

fn bench() -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(&directory.path().join("state")).unwrap();
    Bench {
        instance: Instance::claim(&state).unwrap(),
        key: AuditKey::given(&Secret::new("a".repeat(64)), "TEST").unwrap(),
        _directory: directory,
    }
}

fn full_disk() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn event() -> AuditEvent {
    AuditEvent::new(EventName::ToolCall, TraceId::random())
}

fn assert_unavailable<T: std::fmt::Debug>(result: Result<T, AuditError>) {
    let error = result.unwrap_err();
    assert_eq!(error.code(), Code::AuditUnavailable);
    assert!(matches!(error, AuditError::Unwritable(_)), "{error:?}");
}

/// DC-3, SEC-INV-12: what cannot be recorded must not happen.
#[test]
fn dc_3_after_a_failed_group_every_append_fails() {
    let bench = bench();
    let boot_id = new_boot_id();
    let (mut chain, opening) = Chain::open(
        bench.instance.directory(),
        &bench.key,
        &boot_id,
        1 << 20,
        None,
    )
    .unwrap();
    chain.log = full_disk();
    let worker = Worker::start(chain, opening.last_seq).unwrap();
    let log = AuditLog::begin(
        &bench.instance,
        &bench.key,
        Arc::new(SystemClock),
        boot_id,
        opening,
        Mode::Grouped(worker),
    )
    .unwrap();
    let other_handle = log.clone();
    assert_unavailable(log.append_durable(event()));
    assert_unavailable(log.append(event()));
    assert_unavailable(other_handle.append(event()));
    assert_unavailable(other_handle.flush());
    assert_unavailable(log.close());
}

#[test]
fn dc_3_an_inline_failure_stays_when_the_disk_comes_back() {
    let bench = bench();
    let log = AuditLog::open_inline(&bench.instance, &bench.key, Arc::new(SystemClock)).unwrap();
    let Mode::Inline(inline) = &log.inner.mode else {
        panic!("inline")
    };
    let disk = std::mem::replace(&mut lock(inline).chain.log, full_disk());
    assert_unavailable(log.append(event()));
    lock(inline).chain.log = disk;
    assert_unavailable(log.append(event()));
    assert_unavailable(log.append_durable(event()));
    assert_unavailable(log.flush());
    assert_unavailable(log.close());
    let path = bench.instance.directory().join("audit.0001.jsonl");
    let lines = std::fs::read_to_string(path).unwrap().lines().count();
    assert_eq!(lines, 1, "only audit.open");
}
