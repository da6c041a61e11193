//! Programs in a Task's sandbox. The sandbox is a fake that confines nothing; only the runtime's side is tested here.

mod support;

use policy::Code;
use policy::sandbox::{Control, Denial, Level};
use runtime::service::{RunEvent, RunState};
use serde_json::json;
use std::sync::Arc;
use support::{Setup, build, exited, plan, stage, task, write};
use testkit::{Answer, Script};

fn run_test(args: &[&str]) -> Answer {
    Answer::call(
        "process_run",
        json!({"executable": "python3", "args": args}),
    )
}

/// R4 of the ten requests: edit, run, fail, repair, run; an edit is no evidence that the test passed.
#[tokio::test]
async fn agt_04_a_failing_program_is_no_evidence() {
    let mut setup = Setup::new(
        Script::new()
            .then(plan(&[task(
                "t1",
                "fix add.py and run test_add.py",
                &[],
                true,
                &["file_edit", "process_run"],
            )]))
            .then(write("add.py", "return a * b"))
            .then(run_test(&["test_add.py"]))
            .then_if("exit status 1", Answer::text("It works now."))
            .then_if(
                "no successful result was seen from: process_run",
                write("add.py", "return a + b"),
            )
            .then(run_test(&["test_add.py"]))
            .then(Answer::text("The test passes."))
            .then(Answer::text("add.py is fixed; its test passes.")),
    );
    setup.program = Arc::new(|_, cwd| {
        let source = std::fs::read_to_string(cwd.join("add.py")).unwrap();
        exited(i32::from(!source.contains("a + b")), "ran\n")
    });
    let stage = build(setup);
    let submitted = stage.submit("fix add.py and run python3 test_add.py").await;
    let (status, events) = stage.finish(submitted).await;
    assert_eq!(status.state, RunState::Completed, "{status:?}");
    let log = stage.sandbox_log.lock().unwrap().clone();
    assert_eq!(
        log,
        [
            "prepare t1",
            "start",
            "run python3 test_add.py",
            "run python3 test_add.py",
            "end"
        ]
    );
    let enforcement = events.iter().find_map(|event| match event {
        RunEvent::TaskStarted { enforcement, .. } => enforcement.clone(),
        _ => None,
    });
    assert_eq!(enforcement.unwrap().level(), Level::Full);
    assert_eq!(stage.audited_as("enforcement.report").len(), 1);
    let exits: Vec<_> = stage
        .audited_as("process.exit")
        .iter()
        .map(|line| line["detail"]["exit_code"].clone())
        .collect();
    assert_eq!(exits, [json!(1), json!(0)]);
    let start = &stage.audited_as("process.start")[0];
    assert_eq!(start["detail"]["arguments"], "redacted", "X-ARGS");
    assert_eq!(start["detail"]["argument_count"], 1);
    assert!(start["detail"]["sha256"].is_string());
    stage.model.assert_finished();
    stage.assert_clean();
}

/// A Task without programs starts no sandbox.
#[tokio::test]
async fn agt_05_no_sandbox_without_programs() {
    let stage = stage(
        Script::new()
            .then(support::edit_plan())
            .then(write("hello.txt", "hello"))
            .then(Answer::text("done"))
            .then(Answer::text("done")),
    );
    assert_eq!(
        stage.run("create hello.txt").await.state,
        RunState::Completed
    );
    assert!(stage.sandbox_log.lock().unwrap().is_empty());
    stage.model.assert_finished();
}

/// X-PARTIAL: partial enforcement outside read-only mode runs nothing, and the missing control is named.
#[tokio::test]
async fn x_partial_partial_enforcement_is_refused() {
    let run_plan = || plan(&[task("t1", "run it", &[], true, &["process_run"])]);
    let mut setup = Setup::new(Script::new().then(run_plan()));
    setup.missing = vec![Control::Network, Control::MemoryTree];
    let stage = build(setup);
    let status = stage.run("run python3").await;
    assert_eq!(status.last_error.unwrap().0, Code::SandboxPartial);
    assert_eq!(*stage.sandbox_log.lock().unwrap(), ["prepare t1"]);
    assert_eq!(stage.audited_as("policy.deny")[0]["target"], "network");
    stage.assert_clean();

    let mut setup = Setup::new(Script::new().then(run_plan()));
    setup.unavailable = true;
    let stage = build(setup);
    let status = stage.run("run python3").await;
    assert_eq!(
        status.last_error.unwrap().0,
        Code::SandboxUnavailable,
        "no backend, nothing runs"
    );
    stage.assert_clean();
}

/// ST-20: a program that is no entry is refused by the policy and never reaches the sandbox.
#[tokio::test]
async fn st_20_an_unknown_program_is_refused() {
    let stage = stage(
        Script::new()
            .then(plan(&[task("t1", "run it", &[], true, &["process_run"])]))
            .then(Answer::call(
                "process_run",
                json!({"executable": "curl", "args": ["https://example.com"]}),
            ))
            .then_if(
                "DENIED executable.unknown_alias",
                Answer::text("not allowed"),
            )
            .then(Answer::json(&json!({"tasks": []}))),
    );
    let status = stage.run("download it").await;
    assert_eq!(status.state, RunState::Failed);
    assert_eq!(
        *stage.sandbox_log.lock().unwrap(),
        ["prepare t1", "start", "end"]
    );
    stage.model.assert_finished();
    stage.assert_clean();
}

/// DC-3: what the sandbox denied a program is in the audit.
#[tokio::test]
async fn dc_3_denials_of_the_sandbox_are_recorded() {
    let mut setup = Setup::new(
        Script::new()
            .then(plan(&[task("t1", "run it", &[], true, &["process_run"])]))
            .then(run_test(&["x.py"]))
            .then(Answer::text("done"))
            .then(Answer::text("done")),
    );
    setup.program = Arc::new(|_, _| policy::sandbox::ProcessOutcome {
        denials: vec![Denial {
            operation: "open".into(),
            target: "/etc/shadow".into(),
            rule: "filesystem_view".into(),
            count: 2,
            errno: None,
        }],
        ..exited(0, "")
    });
    let stage = build(setup);
    assert_eq!(stage.run("run x.py").await.state, RunState::Completed);
    let denial = &stage.audited_as("policy.deny")[0];
    assert_eq!(
        (&denial["code"], &denial["target"]),
        (&json!("policy.sandbox_denied"), &json!("/etc/shadow"))
    );
    stage.model.assert_finished();
}

/// SEC-INV-10: what the sandbox leaves behind fails the run, whatever the work came to, and the journal stays for recovery.
#[tokio::test]
async fn sec_inv_10_residue_fails_the_run_and_stays_in_the_journal() {
    let mut setup = Setup::new(
        Script::new()
            .then(plan(&[task("t1", "run it", &[], true, &["process_run"])]))
            .then(run_test(&["x.py"]))
            .then(Answer::text("done")),
    );
    setup.residue = true;
    let stage = build(setup);
    let status = stage.run("run x.py").await;
    assert_eq!(status.state, RunState::Failed);
    assert_eq!(status.last_error.unwrap().0, Code::SandboxResidue);
    let left = record::journal::stale_journals(&stage.instance).unwrap();
    let journal = left[0].document.as_ref().unwrap();
    assert!(!journal.is_clean());
    assert_eq!(journal.tasks[0].host_resources.len(), 1);
    // X-PROTECT: what a program planted is recorded all the same.
    let finding = &stage.audited_as("sandbox.finding")[0];
    assert_eq!(
        (&finding["target"], &finding["detail"]["kind"]),
        (&json!("/ws/new/.git"), &json!("appeared"))
    );
    stage.model.assert_finished();
}
