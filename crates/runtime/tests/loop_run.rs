//! One run from its plan to its answer, over real HTTP (AGT, OLL, AT).

mod support;

use policy::Code;
use runtime::service::{RunEvent, RunState};
use serde_json::json;
use support::{edit_plan, plan, read, stage, task, write};
use testkit::{Answer, Script};

/// AGT-01, AGT-04, AT-17: a plan, an effect with evidence, an answer; tokens add up; nothing is left.
#[tokio::test]
async fn agt_01_a_run_completes_when_every_task_is() {
    let stage = stage(
        Script::new()
            .then(edit_plan().usage(50, 10))
            .then(write("hello.txt", "hello").usage(200, 20))
            .then(Answer::text("Written.").usage(230, 5))
            .then(Answer::text("hello.txt now contains hello.").usage(80, 9)),
    );
    let submitted = stage.submit("create hello.txt with the word hello").await;
    let (status, events) = stage.finish(submitted).await;
    assert_eq!(status.state, RunState::Completed, "{status:?}");
    assert_eq!(
        status.result.as_deref(),
        Some("hello.txt now contains hello.")
    );
    assert_eq!(stage.content("hello.txt").as_deref(), Some("hello"));
    assert_eq!((status.completed_tasks, status.total_tasks), (1, 1));
    assert_eq!(status.iterations, 4);
    assert_eq!(
        (status.token_usage.input, status.token_usage.output),
        (560, 44)
    );
    assert_eq!(status.message.id(), "status.completed");
    let states: Vec<RunState> = events
        .iter()
        .filter_map(|event| match event {
            RunEvent::State(state) => Some(*state),
            _ => None,
        })
        .collect();
    use RunState::*;
    assert_eq!(states, [Queued, Planning, Running, Completed]);
    let spent = events.iter().find_map(|event| match event {
        RunEvent::TaskEnded {
            completed: true,
            spent,
            ..
        } => Some(*spent),
        _ => None,
    });
    assert_eq!(spent.unwrap().total(), 455, "AT-17: the Task's own calls");
    stage.model.assert_finished();
    stage.assert_clean();
    let names: Vec<String> = stage
        .audited()
        .iter()
        .map(|line| line["event"].as_str().unwrap().to_owned())
        .filter(|name| !name.starts_with("audit.") && !name.starts_with("key."))
        .collect();
    assert_eq!(
        names,
        [
            "run.start",
            "plan.accepted",
            "task.start",
            "tool.call",
            "file.write",
            "task.end",
            "run.end"
        ]
    );
    assert!(
        stage
            .llm_log()
            .iter()
            .all(|line| line["trace_id"] == stage.audited_as("run.start")[0]["trace_id"])
    );
}

/// AGT-04, OLL-11: saying it is done is not doing it.
#[tokio::test]
async fn agt_04_words_are_no_evidence() {
    let stage = stage(
        Script::new()
            .then(edit_plan())
            .then(Answer::text("I have written hello.txt."))
            .then_if("NOT EXECUTED", write("hello.txt", "hello"))
            .then(Answer::text("done"))
            .then(Answer::text("It is there.")),
    );
    let status = stage.run("create hello.txt").await;
    assert_eq!(status.state, RunState::Completed, "{status:?}");
    assert_eq!(stage.content("hello.txt").as_deref(), Some("hello"));
    stage.model.assert_finished();
}

/// AGT-03, OLL-11: five times the same words end the run, and nothing was done.
#[tokio::test]
async fn agt_03_five_equal_failures_in_a_row_end_the_run() {
    let mut script = Script::new().then(edit_plan());
    for _ in 0..5 {
        script = script.then(Answer::text("I have written hello.txt."));
    }
    let stage = stage(script);
    let submitted = stage.submit("create hello.txt").await;
    let (status, events) = stage.finish(submitted).await;
    assert_eq!(status.state, RunState::Failed);
    assert_eq!(status.last_error.unwrap().0, Code::SameFailure);
    assert_eq!(status.result, None);
    assert_eq!(stage.content("hello.txt"), None);
    let notices = events
        .iter()
        .filter(|event| matches!(event, RunEvent::Notice(message) if message.id() == "notice.repetition"))
        .count();
    assert_eq!(notices, 2, "X-REPEAT: told at three and at four");
    assert_eq!(stage.audited_as("guard.notice").len(), 2, "HR-5");
    stage.model.assert_finished();
    stage.assert_clean();
}

/// AGT-02: model calls of one run are limited.
#[tokio::test]
async fn agt_02_the_iteration_limit_ends_the_run() {
    let mut setup = support::Setup::new(
        Script::new()
            .then(edit_plan())
            .then(read("a.txt"))
            .then(read("b.txt")),
    );
    setup.limits = Some(Box::new(|limits| limits.max_iterations = 3));
    let stage = support::build(setup);
    stage.put("a.txt", "a");
    stage.put("b.txt", "b");
    let status = stage.run("create hello.txt").await;
    assert_eq!(status.last_error.unwrap().0, Code::MaxIterations);
    assert_eq!(status.iterations, 3);
    stage.model.assert_finished();
    stage.assert_clean();
}

/// DC-4, X-LIMIT: ten tool calls in one planned Task, then it is handed over.
#[tokio::test]
async fn dc_4_the_eleventh_tool_call_of_a_task_is_not_made() {
    let mut script = Script::new().then(edit_plan());
    for number in 0..11 {
        script = script.then(read(&format!("{number}.txt")));
    }
    let stage = stage(script);
    for number in 0..11 {
        stage.put(&format!("{number}.txt"), "x");
    }
    let submitted = stage.submit("create hello.txt").await;
    let (status, events) = stage.finish(submitted).await;
    assert_eq!(status.last_error.unwrap().0, Code::MaxToolCalls);
    let calls = events
        .iter()
        .filter(|event| matches!(event, RunEvent::ToolFinished { .. }))
        .count();
    assert_eq!(calls, 10);
    let escalation = &stage.audited_as("escalation")[0];
    assert_eq!(escalation["detail"]["limit"], 10);
    assert_eq!(escalation["detail"]["tried"].as_array().unwrap().len(), 10);
    stage.model.assert_finished();
    stage.assert_clean();
}

/// HR-5, X-REPEAT: the same call three times is told, five times ends the run; none of it is believed to be progress.
#[tokio::test]
async fn hr_5_the_same_call_again_and_again() {
    let mut script = Script::new().then(edit_plan());
    for _ in 0..3 {
        script = script.then(read("a.txt"));
    }
    script = script
        .then_if("NOTICE: this is the same call 3 times", read("a.txt"))
        .then(read("a.txt"));
    let stage = stage(script);
    stage.put("a.txt", "a");
    let status = stage.run("create hello.txt").await;
    assert_eq!(status.last_error.unwrap().0, Code::SameFailure);
    assert_eq!(stage.audited_as("guard.notice").len(), 2);
    stage.model.assert_finished();
}

/// OLL-10, "Survive these" 4: many calls in one turn are done in order, equal ones once.
#[tokio::test]
async fn oll_10_many_calls_in_one_turn() {
    let twice = json!({"path": "b.txt", "operation": "overwrite", "content": "2"});
    let many = write("a.txt", "1")
        .and_call("file_edit", twice.clone())
        .and_call("file_edit", twice)
        .and_call(
            "manage_directory",
            json!({"path": "d", "operation": "mkdir"}),
        );
    let stage = stage(
        Script::new()
            .then(plan(&[task(
                "t1",
                "write both",
                &[],
                true,
                &["file_edit", "dir"],
            )]))
            .then(many)
            .then(Answer::text("done"))
            .then(Answer::text("Both are written.")),
    );
    let status = stage.run("write a.txt and b.txt").await;
    assert_eq!(status.state, RunState::Completed, "{status:?}");
    assert_eq!(stage.content("b.txt").as_deref(), Some("2"));
    assert!(stage.path("d").is_dir());
    assert_eq!(stage.audited_as("tool.call").len(), 3);
    let results = stage.chats()[2]["messages"].as_array().unwrap().clone();
    let names: Vec<&str> = results
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["tool_name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["file_edit", "file_edit", "manage_directory"]);
    stage.model.assert_finished();
}

/// DESIGN §8.1: a tool with effects that the current Task does not need is not dispatched.
#[tokio::test]
async fn agt_05_effects_outside_the_task_are_not_dispatched() {
    let stage = stage(
        Script::new()
            .then(plan(&[
                task("t1", "read a.txt", &[], false, &["file_read"]),
                task("t2", "write b.txt", &["t1"], true, &["file_edit"]),
            ]))
            .then(write("b.txt", "too early"))
            .then_if("FAILED tool.out_of_scope", read("a.txt"))
            .then(Answer::text("read"))
            .then(write("b.txt", "in time"))
            .then(Answer::text("written"))
            .then(Answer::text("All done.")),
    );
    stage.put("a.txt", "a");
    let status = stage.run("read a.txt, then write b.txt").await;
    assert_eq!(status.state, RunState::Completed, "{status:?}");
    assert_eq!(stage.content("b.txt").as_deref(), Some("in time"));
    let second = stage.chats()[4].to_string();
    assert!(
        !second.contains("too early"),
        "results outside the scope do not reach the next Task"
    );
    let denials = stage.audited_as("policy.deny");
    assert_eq!(denials.len(), 1);
    assert_eq!(denials[0]["code"], "tool.out_of_scope");
    stage.model.assert_finished();
}

/// The critical path goes first, whatever the order of the plan (DESIGN §8.4).
#[tokio::test]
async fn pln_05_the_critical_path_goes_first() {
    let mut dear = task("dear", "the dear one", &[], false, &[]);
    dear["most_likely_tokens"] = json!(500);
    let stage = stage(
        Script::new()
            .then(plan(&[
                task("cheap", "the cheap one", &[], false, &[]),
                dear,
            ]))
            .then_if("CURRENT TASK dear", Answer::text("dear done"))
            .then_if("CURRENT TASK cheap", Answer::text("cheap done"))
            .then(Answer::text("Both.")),
    );
    let submitted = stage.submit("explain two things").await;
    let (status, events) = stage.finish(submitted).await;
    assert_eq!(status.state, RunState::Completed, "{status:?}");
    let path = events.iter().find_map(|event| match event {
        RunEvent::Planned { critical_path, .. } => Some(critical_path.clone()),
        _ => None,
    });
    assert_eq!(path.unwrap().tasks()[0].as_str(), "dear");
    stage.model.assert_finished();
}

/// The closing call may fail: the work is done, and code says so in the chosen language.
#[tokio::test]
async fn agt_01_an_answer_by_code_when_the_model_gives_none() {
    let stage = stage(
        Script::new()
            .then(edit_plan())
            .then(write("hello.txt", "hello"))
            .then(Answer::text(""))
            .then(Answer::text("  ")),
    );
    let status = stage.run("create hello.txt").await;
    assert_eq!(status.state, RunState::Completed, "{status:?}");
    assert_eq!(
        status.result.as_deref(),
        Some("result.changed {targets=hello.txt}")
    );
    stage.model.assert_finished();
}
