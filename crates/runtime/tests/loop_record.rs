//! What cannot be recorded does not happen (product.md §3.7, DC-3).

mod support;

use policy::Code;
use record::journal::FileOperation;
use runtime::service::RunState;
use serde_json::json;
use support::{edit_plan, plan, stage, task, write};
use testkit::{Answer, Script};

/// DC-3: without an audit log there is no effect, and the run fails for that reason.
#[tokio::test]
async fn dc_3_no_audit_no_effect() {
    let stage = stage(
        Script::new()
            .then(edit_plan())
            .then_stall(write("hello.txt", "hello")),
    );
    let submitted = stage.submit("create hello.txt").await;
    stage.model.wait_for_requests(2).await;
    stage.audit.close().unwrap();
    stage.model.release();
    let (status, _) = stage.finish(submitted).await;
    assert_eq!(status.state, RunState::Failed);
    assert_eq!(status.last_error.unwrap().0, Code::AuditUnavailable);
    assert_eq!(stage.content("hello.txt"), None);
    stage.model.assert_finished();
}

/// X-ARGS, DC-3: every call is recorded, its arguments only as a keyed hash; every record carries one trace id.
#[tokio::test]
async fn x_args_arguments_are_redacted() {
    let stage = stage(
        Script::new()
            .then(edit_plan())
            .then(write("hello.txt", "my password is 12345"))
            .then(Answer::text("done"))
            .then(Answer::text("done")),
    );
    stage.run("create hello.txt").await;
    let audited = stage.audited();
    assert!(!format!("{audited:?}").contains("12345"));
    let call = &stage.audited_as("tool.call")[0];
    assert_eq!(call["detail"]["arguments"], "redacted");
    assert!(call["detail"]["arguments_hmac"].is_string());
    assert_eq!(call["planned_task_id"], "t1");
    let own: Vec<_> = audited
        .iter()
        .filter(|line| line["run_id"].is_string())
        .map(|line| line["trace_id"].clone())
        .collect();
    assert!(own.len() >= 7 && own.iter().all(|trace| *trace == own[0]));
    stage.model.assert_finished();
}

/// DESIGN §12.3: the intent is in the journal before the effect, and the journal is gone when the run is clean.
#[tokio::test]
async fn sec_inv_10_the_journal_is_there_while_a_task_runs_and_gone_afterwards() {
    let stage = stage(
        Script::new()
            .then(plan(&[task(
                "t1",
                "make and write",
                &[],
                true,
                &["file_edit", "dir"],
            )]))
            .then(Answer::call(
                "manage_directory",
                json!({"path": "a/b", "operation": "mkdir"}),
            ))
            .then_stall(write("a/b/c.txt", "c"))
            .then(Answer::text("done"))
            .then(Answer::text("done")),
    );
    let submitted = stage.submit("make a/b/c.txt").await;
    stage.model.wait_for_requests(3).await;
    let journals = record::journal::stale_journals(&stage.instance).unwrap();
    let journal = journals[0].document.as_ref().unwrap();
    assert_eq!(journal.run_id, submitted.run_id);
    let section = &journal.tasks[0];
    assert_eq!(section.planned_task_id, "t1");
    assert!(!section.temp_paths.is_empty());
    let intent = &section.file_intents[0];
    assert_eq!(intent.operation, FileOperation::MakeDirectory);
    assert!(intent.committed);
    stage.model.release();
    let (status, _) = stage.finish(submitted).await;
    assert_eq!(status.state, RunState::Completed, "{status:?}");
    stage.assert_clean();
    stage.model.assert_finished();
}
