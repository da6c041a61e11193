//! The audit log from outside: DC-3, GUARD "audit signing", X-INST, SEC-INV-12.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use policy::{Code, RunId, SessionId};
use record::audit::Finding;
use record::verify::{ProblemKind, ShowFilter, ShownRecord, show, verify_instance};
use record::{AuditError, AuditLog, Decision, EventName, Instance};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;

fn shown(directory: &Path, filter: ShowFilter) -> Vec<ShownRecord> {
    show(directory, filter)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

fn invalid(result: Result<AuditLog, AuditError>) -> Finding {
    match result.unwrap_err() {
        error @ AuditError::Invalid { finding, .. } => {
            assert_eq!(error.code(), Code::AuditInvalid);
            finding
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn dc_3_a_record_says_everything_and_is_canonical() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let log = open(&instance);
    let (run, session) = (RunId::random(), SessionId::random());
    let odd = "引用 \" \\ \u{7} \u{1f600},\"mac\":\"x\",\"planned_task_id\":";
    log.append(
        event(EventName::PolicyDeny)
            .run(run)
            .session(session)
            .planned_task("T1")
            .decision(Decision::Deny)
            .code(Code::PathDenied)
            .target(odd)
            .detail("zeta", 1.5)
            .detail(
                "alpha",
                json!({"mac": "0".repeat(64), "planned_task_id": null, "b": [1, {"a": 2}]}),
            )
            .detail("large", u64::MAX),
    )
    .unwrap();
    log.close().unwrap();

    let text = fs::read_to_string(log_file(instance.directory(), 1)).unwrap();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            serde_json_canonicalizer::to_string(&value).unwrap(),
            line,
            "RFC 8785"
        );
    }
    let records = shown(instance.directory(), ShowFilter::default());
    let events: Vec<&str> = records.iter().map(|record| record.event.as_str()).collect();
    assert_eq!(events, ["audit.open", "policy.deny", "audit.close"]);
    let deny = &records[1];
    assert_eq!((deny.v, deny.seq), (1, 2));
    assert_eq!(deny.ts, "2026-01-02T03:04:05.678Z");
    assert_eq!(deny.run_id, Some(run.to_string()));
    assert_eq!(deny.session_id, Some(session.to_string()));
    assert_eq!(deny.planned_task_id.as_deref(), Some("T1"));
    assert_eq!(deny.decision, "deny");
    assert_eq!(deny.code.as_deref(), Some("policy.path_denied"));
    assert_eq!(deny.target.as_deref(), Some(odd));
    assert_eq!(deny.detail["large"], u64::MAX.to_string());
    assert!(records.iter().all(|record| !record.trace_id.is_empty()));
    assert_eq!(records[0].prev, "0".repeat(64));
    assert_eq!(records[1].prev, records[0].mac);

    let report = verify(instance.directory());
    assert_eq!(report.problem, None);
    assert_eq!((report.records, report.boots), (3, 1));
    assert!(report.closed);
    drop(log);
    let again = open(&instance);
    again.close().unwrap();
    assert_eq!(kind(instance.directory()), None);
}

#[test]
fn show_filters_by_run_trace_and_event_family() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let log = small_files(&instance);
    let (run, other) = (RunId::random(), RunId::random());
    for _ in 0..20 {
        log.append(event(EventName::ToolCall).run(run)).unwrap();
        log.append(event(EventName::ApprovalGranted).run(other))
            .unwrap();
    }
    log.append(event(EventName::ApprovalDenied).run(run))
        .unwrap();
    log.flush().unwrap();
    let count = |filter| shown(instance.directory(), filter).len();
    let of_run = ShowFilter {
        run_id: Some(run.to_string()),
        ..ShowFilter::default()
    };
    assert_eq!(count(of_run.clone()), 21);
    let family = ShowFilter {
        event: Some("approval.".to_owned()),
        ..ShowFilter::default()
    };
    assert_eq!(count(family.clone()), 21);
    assert_eq!(
        count(ShowFilter {
            run_id: of_run.run_id,
            ..family
        }),
        1
    );
    assert!(
        log_file(instance.directory(), 2).exists(),
        "over several files"
    );
}

#[test]
fn x_inst_the_chain_goes_on_over_boots_and_files() {
    let place = place();
    let mut seqs = Vec::new();
    for boot in 0..5u64 {
        let instance = Instance::claim(&place.state).unwrap();
        assert_eq!(instance.number(), 1, "the lock was released");
        let log = small_files(&instance);
        for _ in 0..10 {
            seqs.push(log.append(event(EventName::ToolCall)).unwrap().seq);
        }
        if boot % 2 == 0 {
            log.close().unwrap();
        }
    }
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]));
    let directory = place.state.path().join("instances/0001");
    let report = verify(&directory);
    assert_eq!(report.problem, None);
    assert_eq!((report.boots, report.unclean_stops), (5, 2));
    assert!(report.files > 2, "{report:?}");
    assert_eq!(report.records, 5 * 11 + 3);
    assert!(fs::metadata(log_file(&directory, 1)).unwrap().len() <= 4096);
}

#[test]
fn many_threads_share_one_chain() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let log = open(&instance);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let log = log.clone();
            let directory = instance.directory().to_owned();
            scope.spawn(move || {
                for turn in 0..200 {
                    let event = event(EventName::ToolCall).detail("thread", thread);
                    if turn % 50 == 0 {
                        let proof = log.append_durable(event).unwrap();
                        let seq = format!("\"seq\":{},", proof.value().seq);
                        let text = fs::read_to_string(log_file(&directory, 1)).unwrap();
                        assert!(text.contains(&seq), "written before the proof exists");
                    } else {
                        log.append(event).unwrap();
                    }
                }
            });
        }
    });
    log.close().unwrap();
    let report = verify(instance.directory());
    assert_eq!(report.problem, None);
    assert_eq!(report.records, 8 * 200 + 2);
    assert!(matches!(
        log.append(event(EventName::ToolCall)),
        Err(AuditError::Closed)
    ));
    assert!(matches!(log.close(), Err(AuditError::Closed)));
}

#[test]
fn a_record_is_synced_without_being_asked() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let log = open(&instance);
    let seq = log.append(event(EventName::ToolCall)).unwrap().seq;
    // 50 ms by contract; only a log that never syncs gets to the end of this loop.
    for _ in 0..1000 {
        if verify(instance.directory()).head_seq >= seq {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("no sync within 10 s");
}

#[test]
fn an_event_that_is_too_large_is_refused_and_the_log_goes_on() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let log = AuditLog::open_inline(&instance, &key(), clock()).unwrap();
    let error = log
        .append(event(EventName::ToolCall).target("x".repeat(1 << 20)))
        .unwrap_err();
    assert!(matches!(error, AuditError::RecordTooLarge { .. }));
    let large = event(EventName::ToolCall).target("x".repeat((1 << 20) - 1500));
    log.append(large).unwrap();
    log.close().unwrap();
    assert_eq!(kind(instance.directory()), None);
    let again = AuditLog::open_inline(&instance, &key(), clock());
    again.unwrap().close().unwrap();
}

#[test]
fn inline_and_grouped_continue_each_other() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    for _ in 0..3 {
        let log = AuditLog::open_inline(&instance, &key(), clock()).unwrap();
        let _proof = log.append_durable(event(EventName::ProcessStart)).unwrap();
        log.append(event(EventName::ProcessExit)).unwrap();
        log.close().unwrap();
        open(&instance).close().unwrap();
    }
    let report = verify(instance.directory());
    assert_eq!(report.problem, None);
    assert_eq!((report.boots, report.unclean_stops), (6, 0));
}

#[test]
fn a_close_in_memory_is_a_clean_stop_all_the_same() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    for boot in 1..=3 {
        let log = AuditLog::open_inline(&instance, &key(), clock()).unwrap();
        let _proof = log.append_durable(event(EventName::ProcessStart)).unwrap();
        log.append(event(EventName::ProcessExit)).unwrap();
        log.close_in_memory().unwrap();
        assert!(log.append(event(EventName::ProcessExit)).is_err());
        let report = verify(instance.directory());
        assert_eq!(report.problem, None);
        assert_eq!((report.beyond_head, report.closed), (0, true));
        assert_eq!((report.boots, report.unclean_stops), (boot, 0));
    }
}

#[test]
fn a_torn_last_line_is_set_aside_and_recorded() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let log = open(&instance);
    log.append(event(EventName::ToolCall)).unwrap();
    drop(log);
    let path = log_file(instance.directory(), 1);
    let torn = b"{\"boot_id\":\"half a rec";
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(torn).unwrap();
    assert_eq!(kind(instance.directory()), Some(ProblemKind::TornTail));

    open(&instance).close().unwrap();
    assert_eq!(
        fs::read(instance.directory().join("audit.torn-1")).unwrap(),
        torn
    );
    let report = verify(instance.directory());
    assert_eq!(report.problem, None);
    assert_eq!((report.set_aside, report.unclean_stops), (1, 1));

    fs::write(instance.directory().join("audit.torn-1"), "other").unwrap();
    assert_eq!(
        kind(instance.directory()),
        Some(ProblemKind::SetAsideInvalid)
    );
}

#[test]
fn records_behind_the_head_are_kept_when_the_process_dies() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    open(&instance).close().unwrap();
    let head = fs::read(instance.directory().join("audit.head")).unwrap();
    let log = AuditLog::open_inline(&instance, &key(), clock()).unwrap();
    for _ in 0..5 {
        log.append(event(EventName::ToolCall)).unwrap();
    }
    drop(log);
    // As after a power failure: the log has more than the head knows.
    fs::write(instance.directory().join("audit.head"), head).unwrap();
    let report = verify(instance.directory());
    assert_eq!((report.problem, report.beyond_head), (None, 6));
    open(&instance).close().unwrap();
    let report = verify(instance.directory());
    assert_eq!(report.problem, None);
    assert_eq!((report.boots, report.unclean_stops), (3, 1));
}

/// A boot is never continued on a log that does not verify.
#[test]
fn opening_refuses_a_cut_or_changed_end() {
    let check = |change: &dyn Fn(&Path), expected: Finding| {
        let place = place();
        let instance = Instance::claim(&place.state).unwrap();
        let log = open(&instance);
        log.append(event(EventName::ToolCall)).unwrap();
        log.close().unwrap();
        change(instance.directory());
        assert_eq!(
            invalid(AuditLog::open(&instance, &key(), clock())),
            expected
        );
        assert_eq!(
            invalid(AuditLog::open_inline(&instance, &key(), clock())),
            expected
        );
        assert!(!verify(instance.directory()).is_good(), "{expected:?}");
    };
    let rewrite = |directory: &Path, change: &dyn Fn(String) -> String| {
        let path = log_file(directory, 1);
        fs::write(&path, change(fs::read_to_string(&path).unwrap())).unwrap();
    };
    let head = |directory: &Path| directory.join("audit.head");
    check(
        &|directory| {
            rewrite(directory, &|text| {
                text.replace("audit.close", "audit.clasp")
            })
        },
        Finding::RecordInvalid,
    );
    check(
        &|directory| rewrite(directory, &|text| text[..text.len() - 1].to_owned()),
        Finding::Truncated,
    );
    check(
        &|directory| fs::remove_file(log_file(directory, 1)).unwrap(),
        Finding::FileMissing,
    );
    check(
        &|directory| fs::remove_file(head(directory)).unwrap(),
        Finding::HeadMissing,
    );
    check(
        &|directory| {
            let text = fs::read_to_string(head(directory)).unwrap();
            fs::write(head(directory), text.replace("\"seq\":3", "\"seq\":2")).unwrap();
        },
        Finding::HeadInvalid,
    );
    check(
        &|directory| {
            rewrite(directory, &|text| {
                let last = text.lines().last().unwrap().to_owned();
                format!("{text}{last}\n")
            });
        },
        Finding::ChainBroken,
    );
}

#[test]
fn x_keys_another_key_is_named_as_such() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    open(&instance).close().unwrap();
    let other = key_of("fedcba9876543210");
    let problem = verify_instance(instance.directory(), &other)
        .unwrap()
        .problem;
    assert_eq!(problem.unwrap().kind, ProblemKind::WrongKey);
    assert_eq!(
        invalid(AuditLog::open(&instance, &other, clock())),
        Finding::WrongKey
    );
}

#[test]
fn a_clean_stop_without_its_end_record_is_found() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let log = open(&instance);
    log.append(event(EventName::ToolCall)).unwrap();
    log.close().unwrap();
    let path = log_file(instance.directory(), 1);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    fs::write(&path, lines[..2].concat()).unwrap();
    let problem = verify(instance.directory()).problem.unwrap();
    assert_eq!(problem.kind, ProblemKind::EndRecordMissing);
    assert_eq!(problem.seq, Some(3));
    fs::write(&path, lines[..1].concat()).unwrap();
    assert_eq!(kind(instance.directory()), Some(ProblemKind::Truncated));
}

#[test]
fn a_record_from_another_chain_of_the_same_key_is_found() {
    let place = place();
    let (one, two) = (
        Instance::claim(&place.state).unwrap(),
        Instance::claim(&place.state).unwrap(),
    );
    for instance in [&one, &two] {
        let log = open(instance);
        log.append(event(EventName::ToolCall)).unwrap();
        log.close().unwrap();
    }
    let read = |instance: &Instance| fs::read_to_string(log_file(instance.directory(), 1)).unwrap();
    let mut lines: Vec<String> = read(&one)
        .split_inclusive('\n')
        .map(str::to_owned)
        .collect();
    lines[1] = read(&two).split_inclusive('\n').nth(1).unwrap().to_owned();
    fs::write(log_file(one.directory(), 1), lines.concat()).unwrap();
    let problem = verify(one.directory()).problem.unwrap();
    assert_eq!(problem.kind, ProblemKind::ChainBroken);
    assert_eq!((problem.line, problem.seq), (2, Some(2)));
    assert_eq!(problem.file, "audit.0001.jsonl");
    assert_eq!(kind(two.directory()), None);
}

/// The mac does not cover its own place in the line, so the place must be fixed.
#[test]
fn a_mac_member_that_was_moved_is_found() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    open(&instance).close().unwrap();
    let path = log_file(instance.directory(), 1);
    let text = fs::read_to_string(&path).unwrap();
    let mac = &text[text.find(",\"mac\":\"").unwrap()..][..73];
    let moved = text.replacen(mac, "", 1).replacen(
        "{\"boot_id\"",
        &format!("{{{},\"boot_id\"", &mac[1..]),
        1,
    );
    fs::write(&path, moved).unwrap();
    assert_eq!(kind(instance.directory()), Some(ProblemKind::RecordAltered));
}
