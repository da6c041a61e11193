//! The plain logs: DESIGN §15.1, X-STATE, and HARNESS's rule that a mode change always emits an event.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use policy::{RunId, SandboxMode, SessionId, TraceId};
use record::StateError;
use record::logs::{
    RollingFile, RollingLimits, SESSION_EVENTS_FILE, SessionEvent, SessionEvents, read_events,
};
use std::fs;
use std::io::Write;

#[test]
fn a_full_log_rolls_and_keeps_whole_lines() {
    for kept in [0, 1, 3] {
        let place = place();
        let limits = RollingLimits {
            max_file_bytes: 100,
            retained_files: kept,
        };
        let mut log = RollingFile::open(&place.state, "app.log", limits).unwrap();
        for number in 0..50 {
            writeln!(log, "line {number:04} {}", "x".repeat(20)).unwrap();
        }
        drop(log);
        let mut log = RollingFile::open(&place.state, "app.log", limits).unwrap();
        log.write_all(format!("{}\n", "y".repeat(300)).as_bytes())
            .unwrap();
        let mut names: Vec<String> = fs::read_dir(place.state.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let mut expected = vec!["app.log".to_owned()];
        expected.extend((1..=kept).map(|number| format!("app.log.{number}")));
        assert_eq!(names, expected);
        for name in names {
            let text = fs::read_to_string(place.state.path().join(&name)).unwrap();
            assert!(text.ends_with('\n'), "{name}");
            let whole = |line: &str| line.len() == 30 || line.len() == 300;
            assert!(text.lines().all(whole), "{name}: {text}");
            assert!(text.len() < 100 + 31 || text.lines().count() == 1, "{name}");
            #[cfg(unix)]
            {
                use std::os::unix::fs::MetadataExt;
                let seen = fs::metadata(place.state.path().join(&name)).unwrap();
                assert_eq!(seen.mode() & 0o777, 0o600, "{name}");
            }
        }
        if kept == 3 {
            let newest = fs::read_to_string(place.state.path().join("app.log.1")).unwrap();
            assert!(newest.contains("line 0049"), "{newest}");
        }
    }
}

const V1: &str = r#"{"v":1,"ts":"2026-01-02T03:04:05.678Z","session_id":"6f1c2f3e-0d7b-4c55-9a3c-1c2b3a4d5e6f","trace_id":"6f1c2f3e-0d7b-4c55-9a3c-1c2b3a4d5e61","event":{"type":"sandbox/mode","from":"read-only","to":"workspace-write","reason":"operator"}}
"#;

#[test]
fn x_state_a_replay_tells_the_mode_at_any_time() {
    let place = place();
    fs::write(place.state.path().join("other"), "").unwrap();
    let path = place.state.path().join(SESSION_EVENTS_FILE);
    let (session, trace) = (SessionId::random(), TraceId::random());
    let mode = |from, to| SessionEvent::SandboxMode {
        from,
        to,
        reason: "start".to_owned(),
    };
    let mut log = SessionEvents::open(&place.state).unwrap();
    let events = [
        mode(None, SandboxMode::ReadOnly),
        SessionEvent::Run {
            run_id: RunId::random(),
            status: "working".to_owned(),
        },
        mode(Some(SandboxMode::ReadOnly), SandboxMode::WorkspaceWrite),
    ];
    for event in &events {
        log.append(session, trace, event.clone(), &*clock())
            .unwrap();
    }
    drop(log);
    // A crash in the middle of a line; then the next start.
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&V1.as_bytes()[..60]).unwrap();
    let mut log = SessionEvents::open(&place.state).unwrap();
    let approval = SessionEvent::Approval {
        approval_id: "a1".to_owned(),
        status: "granted".to_owned(),
    };
    log.append(session, trace, approval.clone(), &*clock())
        .unwrap();
    file.write_all(V1.as_bytes()).unwrap();

    let read = read_events(place.state.path()).unwrap();
    let seen: Vec<&SessionEvent> = read.iter().map(|record| &record.event).collect();
    assert_eq!(seen.len(), 5);
    assert_eq!(seen[..3], events.iter().collect::<Vec<_>>());
    assert_eq!(seen[3], &approval);
    assert_eq!(
        seen[4],
        &SessionEvent::SandboxMode {
            from: Some(SandboxMode::ReadOnly),
            to: SandboxMode::WorkspaceWrite,
            reason: "operator".to_owned()
        },
        "version 1"
    );
    assert!(read[..4].iter().all(|record| record.session_id == session));

    for bad in [
        V1.replace("\"v\":1", "\"v\":2"),
        V1.replace("\"reason\"", "\"surprise\":1,\"reason\""),
        V1.replace("sandbox/mode", "sandbox/mood"),
    ] {
        fs::write(&path, bad).unwrap();
        assert!(matches!(
            read_events(place.state.path()).unwrap_err(),
            StateError::Damaged { .. }
        ));
    }
}
