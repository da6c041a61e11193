//! What the integration tests share: a state directory with its first instance and a fixed key.
#![allow(dead_code, reason = "each test file uses its part")]

use policy::{Secret, TraceId};
use record::audit::AuditOptions;
use record::clock::ManualClock;
use record::verify::{ProblemKind, VerifyReport, verify_instance};
use record::{AuditEvent, AuditKey, AuditLog, Clock, EventName, Instance, StateDirectory};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub struct Place {
    pub root: tempfile::TempDir,
    pub state: StateDirectory,
}

pub fn place() -> Place {
    let root = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(&root.path().join("state")).unwrap();
    Place { root, state }
}

pub fn key() -> AuditKey {
    key_of("0123456789abcdef")
}

pub fn key_of(quarter: &str) -> AuditKey {
    AuditKey::given(&Secret::new(quarter.repeat(4)), "TEST").unwrap()
}

pub fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::at("2026-01-02T03:04:05.678Z".parse().unwrap()))
}

pub fn event(name: EventName) -> AuditEvent {
    AuditEvent::new(name, TraceId::random())
}

pub fn open(instance: &Instance) -> AuditLog {
    AuditLog::open(instance, &key(), clock()).unwrap()
}

pub fn small_files(instance: &Instance) -> AuditLog {
    let options = AuditOptions {
        max_file_bytes: 4096,
        ..AuditOptions::default()
    };
    AuditLog::open_with(instance, &key(), clock(), options).unwrap()
}

pub fn log_file(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("audit.{number:04}.jsonl"))
}

pub fn verify(directory: &Path) -> VerifyReport {
    verify_instance(directory, &key()).unwrap()
}

pub fn kind(directory: &Path) -> Option<ProblemKind> {
    verify(directory).problem.map(|problem| problem.kind)
}
