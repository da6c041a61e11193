//! What a short `exec` leaves to the kernel's memory: a cut is seen under the same kernel, a loss is legal after it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use record::audit::{AuditError, AuditOptions, Finding};
use record::verify::{ProblemKind, VerifyReport, verify_instance_under};
use record::{AuditLog, EventName, Instance, KernelBoot};
use std::fs::OpenOptions;
use std::path::Path;

const THIS: &str = "0a0a0a0a-1111-4222-8333-444444444444";
const THIRD: &str = "0c0c0c0c-1111-4222-8333-444444444444";
const NEXT: &str = "0b0b0b0b-1111-4222-8333-444444444444";

fn options(kernel: &str) -> AuditOptions {
    AuditOptions {
        kernel_boot: Some(KernelBoot::named(kernel).unwrap()),
        ..AuditOptions::default()
    }
}

fn verified(directory: &Path, kernel: &str) -> VerifyReport {
    verify_instance_under(directory, &key(), KernelBoot::named(kernel).as_ref()).unwrap()
}

/// One short run: open, start (synced), exit and close (in memory). Returns where each record ends.
fn run(instance: &Instance, kernel: &str) -> Vec<u64> {
    let log = AuditLog::open_inline_with(instance, &key(), clock(), options(kernel)).unwrap();
    let _proof = log.append_durable(event(EventName::ProcessStart)).unwrap();
    log.append(event(EventName::ProcessExit)).unwrap();
    log.close_in_memory().unwrap();
    let text = std::fs::read(log_file(instance.directory(), 1)).unwrap();
    (1u64..)
        .zip(&text)
        .filter_map(|(end, byte)| (*byte == b'\n').then_some(end))
        .collect()
}

fn cut(instance: &Instance, bytes: u64) {
    let file = OpenOptions::new()
        .write(true)
        .open(log_file(instance.directory(), 1))
        .unwrap();
    file.set_len(bytes).unwrap();
}

fn reopened(instance: &Instance, kernel: &str) -> Result<AuditLog, Finding> {
    AuditLog::open_inline_with(instance, &key(), clock(), options(kernel)).map_err(|error| {
        match error {
            AuditError::Invalid { finding, .. } => finding,
            other => panic!("{other:?}"),
        }
    })
}

/// DC-3: a cut end is seen, to the last record.
#[test]
fn dc_3_a_cut_is_seen_while_the_kernel_runs() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let ends = run(&instance, THIS);
    assert_eq!(ends.len(), 4, "open, start, exit, close");
    let report = verified(instance.directory(), THIS);
    assert_eq!((report.problem, report.head_seq), (None, 4));
    for (left, expected) in [
        (3, ProblemKind::EndRecordMissing),
        (2, ProblemKind::Truncated),
        (1, ProblemKind::Truncated),
    ] {
        cut(&instance, ends[left - 1]);
        let problem = verified(instance.directory(), THIS).problem.unwrap();
        assert_eq!(problem.kind, expected, "{left} records left");
        let refused = reopened(&instance, THIS).unwrap_err();
        assert_eq!(refused, Finding::Truncated, "{left} records left");
    }
}

/// After a power failure what was in memory only is gone; what was on the disk must be there.
#[test]
fn what_the_kernel_held_may_be_lost_with_it() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let ends = run(&instance, THIS);
    let report = verified(instance.directory(), NEXT);
    assert_eq!((report.problem, report.lost_with_kernel), (None, 0));
    cut(&instance, ends[2]);
    let report = verified(instance.directory(), NEXT);
    assert_eq!((report.problem, report.lost_with_kernel), (None, 1));
    // Cut inside a record, as a disk may leave it.
    cut(&instance, ends[2] - 5);
    let problem = verified(instance.directory(), NEXT).problem.unwrap();
    assert_eq!(problem.kind, ProblemKind::TornTail);

    reopened(&instance, NEXT).unwrap().close().unwrap();
    let report = verified(instance.directory(), NEXT);
    assert_eq!((report.problem, report.lost_with_kernel), (None, 0));
    assert_eq!((report.unclean_stops, report.set_aside), (1, 1));
}

#[test]
fn what_was_on_the_disk_must_be_there_under_any_kernel() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let ends = run(&instance, THIS);
    cut(&instance, ends[0]);
    let problem = verified(instance.directory(), NEXT).problem.unwrap();
    assert_eq!(problem.kind, ProblemKind::Truncated);
    let refused = reopened(&instance, NEXT).unwrap_err();
    assert_eq!(refused, Finding::Truncated);
}

/// The next run's first sync covers what the one before it left to memory.
#[test]
fn the_next_sync_covers_the_rest() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    run(&instance, THIS);
    let ends = run(&instance, NEXT);
    assert_eq!(ends.len(), 8);
    // The second run's start was synced: everything before it must be there while its kernel runs.
    cut(&instance, ends[4]);
    let problem = verified(instance.directory(), NEXT).problem.unwrap();
    assert_eq!(problem.kind, ProblemKind::Truncated);
    // Under another kernel it is found ahead of the log, and the next start puts it back.
    let report = verified(instance.directory(), THIRD);
    assert_eq!(
        (
            report.problem,
            report.ahead,
            report.last_seq,
            report.lost_with_kernel
        ),
        (None, 1, 6, 2)
    );
    cut(&instance, ends[2] - 7);
    let torn = reopened(&instance, THIRD).unwrap();
    torn.close().unwrap();
    let report = verified(instance.directory(), THIRD);
    assert_eq!(
        (report.problem, report.ahead, report.set_aside),
        (None, 0, 1)
    );
    let log = std::fs::read_to_string(log_file(instance.directory(), 1)).unwrap();
    assert!(log.contains("\"restored\":4"), "records 3 to 6: {log}");
    assert_eq!(log.matches("\"process.start\"").count(), 2);
}

/// The proof of an intent is on the disk ahead of the log, and nobody can take it away unseen.
#[test]
fn dc_3_what_is_ahead_of_the_log_must_be_there() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    run(&instance, THIS);
    let ends = run(&instance, THIS);
    let ahead = instance.directory().join("audit.ahead");
    let whole = std::fs::read(&ahead).unwrap();
    // The second run's intent is record 6; what the log had synced ends with record 2.
    let refused = || {
        let report = verified(instance.directory(), NEXT);
        let problem = report
            .problem
            .clone()
            .unwrap_or_else(|| panic!("{report:?}"));
        (problem.kind, reopened(&instance, NEXT).unwrap_err())
    };
    cut(&instance, ends[4]);
    std::fs::remove_file(&ahead).unwrap();
    assert_eq!(refused(), (ProblemKind::Truncated, Finding::Truncated));
    for at in [3, 40, 200, 900] {
        let mut altered = whole.clone();
        altered[at] ^= 1;
        std::fs::write(&ahead, &altered).unwrap();
        assert_eq!(
            refused(),
            (ProblemKind::Truncated, Finding::Truncated),
            "byte {at}"
        );
    }
    std::fs::write(&ahead, &whole[..whole.len() / 3]).unwrap();
    assert_eq!(refused(), (ProblemKind::Truncated, Finding::Truncated));
    std::fs::write(&ahead, &whole).unwrap();
    assert_eq!(verified(instance.directory(), NEXT).problem, None);
    reopened(&instance, NEXT).unwrap().close().unwrap();
    assert!(verified(instance.directory(), NEXT).is_good());
    // What it began with is gone from the log.
    cut(&instance, ends[0]);
    assert_eq!(refused(), (ProblemKind::Truncated, Finding::Truncated));
}

/// A half that a power failure tore takes nothing of the one before along.
#[test]
fn a_torn_half_leaves_the_other() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let head = instance.directory().join("audit.head");
    let ahead = instance.directory().join("audit.ahead");
    run(&instance, THIS);
    run(&instance, THIS);
    let (second_head, before) = (
        std::fs::read(&head).unwrap(),
        std::fs::read(&ahead).unwrap(),
    );
    let ends = run(&instance, THIS);
    let after = std::fs::read(&ahead).unwrap();
    // The power fails while the third run's half is written; its head never was, and of the log only the first sync is left.
    let written = before.iter().zip(&after).position(|(a, b)| a != b).unwrap();
    let mut torn = after.clone();
    torn[written + 700..written + 1400].fill(0);
    std::fs::write(&ahead, &torn).unwrap();
    std::fs::write(&head, &second_head).unwrap();
    cut(&instance, ends[1]);
    let report = verified(instance.directory(), NEXT);
    assert_eq!(
        (report.problem, report.ahead, report.last_seq),
        (None, 4, 6),
        "the second run's intent"
    );
    reopened(&instance, NEXT).unwrap().close().unwrap();
    assert!(verified(instance.directory(), NEXT).is_good());
}

/// The end that is written ahead is bounded: then the log itself is synced, and it begins again.
#[test]
fn many_runs_without_a_power_failure() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    for _ in 0..60 {
        run(&instance, THIS);
    }
    let ends = run(&instance, THIS);
    let length = std::fs::metadata(instance.directory().join("audit.ahead"))
        .unwrap()
        .len();
    assert_eq!(length, 64 << 10);
    assert!(ends.last() > Some(&(100 << 10)), "it went around: {ends:?}");
    assert!(verified(instance.directory(), THIS).is_good());
    // A clean stop and a power failure after each of the last records.
    for left in 1..=4 {
        cut(&instance, ends[ends.len() - left]);
        let report = verified(instance.directory(), NEXT);
        assert_eq!(report.problem, None, "{left}");
        assert!(
            report.last_seq >= (ends.len() - 2) as u64,
            "{left}: {report:?}"
        );
    }
}

/// A system without such a name waits for the disk.
#[test]
fn without_a_kernel_name_nothing_is_left_to_memory() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let nameless = AuditOptions {
        kernel_boot: None,
        ..AuditOptions::default()
    };
    let log = AuditLog::open_inline_with(&instance, &key(), clock(), nameless).unwrap();
    let _proof = log.append_durable(event(EventName::ProcessStart)).unwrap();
    log.close_in_memory().unwrap();
    let head = std::fs::read_to_string(instance.directory().join("audit.head")).unwrap();
    assert!(!head.contains("unsynced"), "{head}");
    assert!(KernelBoot::named("not a name").is_none());
}

/// A head of version 2, as it was written when that was the newest: read, continued, and still strict about its end.
#[test]
fn a_head_of_version_2_is_read_and_goes_on() {
    const LOG: &str = include_str!("fixtures/v2/audit.0001.jsonl");
    const HEAD: &str = include_str!("fixtures/v2/audit.head");
    let restored = |log: &str| {
        let place = place();
        let instance = Instance::claim(&place.state).unwrap();
        std::fs::write(log_file(instance.directory(), 1), log).unwrap();
        std::fs::write(instance.directory().join("audit.head"), HEAD).unwrap();
        (place, instance)
    };
    let (_place, instance) = restored(LOG);
    let report = verified(instance.directory(), THIS);
    assert_eq!((report.problem, report.records), (None, 5));
    reopened(&instance, THIS).unwrap().close().unwrap();
    let report = verified(instance.directory(), THIS);
    assert_eq!((report.problem, report.records, report.boots), (None, 7, 2));
    // Its last record on the disk is the third; version 2 promised no more.
    let lines: Vec<&str> = LOG.split_inclusive('\n').collect();
    let (_place, instance) = restored(&lines[..3].concat());
    let report = verified(instance.directory(), THIS);
    assert_eq!((report.problem, report.lost_with_kernel), (None, 2));
    let (_place, instance) = restored(&lines[..2].concat());
    assert_eq!(reopened(&instance, THIS).unwrap_err(), Finding::Truncated);
}
