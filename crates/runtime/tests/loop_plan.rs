//! Planning: one correction with every reason, then a stable code; changes of the graph on the way (PLN, AT-14, AT-15).

mod support;

use policy::Code;
use runtime::service::{RunEvent, RunState};
use serde_json::{Value, json};
use support::{edit_plan, plan, stage, task, write};
use testkit::{Answer, Script};

fn finish(script: Script) -> Script {
    script
        .then(write("hello.txt", "hello"))
        .then(Answer::text("done"))
        .then(Answer::text("The file is there."))
}

/// "Survive these" 5: a plan in a fence with words around it is a plan.
#[tokio::test]
async fn survive_5_a_fenced_plan_is_read() {
    let fenced = format!(
        "Here it is:\n```json\n{}\n```",
        json!({"tasks": [task("t1", "write", &[], true, &["file_edit"])]})
    );
    let stage = stage(finish(Script::new().then(Answer::text(fenced))));
    assert_eq!(
        stage.run("create hello.txt").await.state,
        RunState::Completed
    );
    let request = &stage.chats()[0];
    assert_eq!(request["think"], json!(false), "X-OLL");
    assert_eq!(request["format"]["required"], json!(["tasks"]));
    assert!(
        request.get("tools").is_none(),
        "tools or a form, never both"
    );
    stage.model.assert_finished();
}

/// PLN-01, AT-14: one correction with every concrete reason at once.
#[tokio::test]
async fn at_14_a_cycle_gets_one_correction() {
    let cycle = plan(&[
        task("a", "one", &["b"], true, &["file_edit"]),
        task("b", "two", &["a"], true, &["file_edit"]),
    ]);
    let stage = stage(finish(
        Script::new().then(cycle).then_if("in a cycle", edit_plan()),
    ));
    assert_eq!(
        stage.run("create hello.txt").await.state,
        RunState::Completed
    );
    assert_eq!(stage.audited_as("plan.rejected").len(), 1);
    let chats = stage.chats();
    let (first, second) = (&chats[0]["messages"], &chats[1]["messages"]);
    assert_eq!(second.as_array().unwrap().len(), 4);
    assert_eq!(
        (&first[0], &first[1]),
        (&second[0], &second[1]),
        "the correction extends the prompt"
    );
    stage.model.assert_finished();
}

async fn refused_twice(bad: Value, code: Code, words: &str) {
    let answer = || Answer::json(&json!({"tasks": bad}));
    let stage = stage(Script::new().then(answer()).then_if(words, answer()));
    let status = stage.run("create hello.txt").await;
    assert_eq!(status.state, RunState::Failed);
    assert_eq!(status.last_error.map(|error| error.0), Some(code), "{bad}");
    assert_eq!(stage.audited_as("plan.rejected").len(), 2);
    stage.model.assert_finished();
    stage.assert_clean();
}

/// PLN-01, PLN-02, DESIGN §8.1, §8.2, §8.4: what is wrong twice ends the run with its code.
#[tokio::test]
async fn pln_a_plan_that_stays_wrong_is_refused() {
    let edit = |id: &str, after: &[&str]| task(id, "x", after, true, &["file_edit"]);
    refused_twice(
        json!([edit("a", &["b"]), edit("b", &["a"])]),
        Code::PlanCycle,
        "cycle",
    )
    .await;
    let many: Vec<Value> = (0..33)
        .map(|number| edit(&format!("t{number}"), &[]))
        .collect();
    refused_twice(json!(many), Code::PlanTooManyTasks, "at most 32").await;
    refused_twice(json!([]), Code::PlanInvalid, "no task").await;
    refused_twice(
        json!([task("t1", "x", &["t9"], true, &["file_edit"])]),
        Code::PlanInvalid,
        "t9",
    )
    .await;
    refused_twice(
        json!([task("t1", "x", &[], true, &["file_read"])]),
        Code::PlanInvalid,
        "external effect",
    )
    .await;
    refused_twice(
        json!([task("t1", "x", &[], true, &["sudo"])]),
        Code::PlanInvalid,
        "is no tool",
    )
    .await;
    let split = [
        edit("t1", &[]),
        task("t2", "test", &["t1"], true, &["file_edit", "process_run"]),
    ];
    refused_twice(json!(split), Code::PlanInvalid, "merge").await;
    let mut over = edit("t1", &[]);
    over["pessimistic_tokens"] = json!(9000);
    refused_twice(
        json!([over]),
        Code::PlanInvalid,
        "must not exceed the 8K budget",
    )
    .await;
    let mut without = edit("t1", &[]);
    without.as_object_mut().unwrap().remove("optimistic_tokens");
    refused_twice(
        json!([without]),
        Code::PlanInvalid,
        "optimistic_tokens is missing",
    )
    .await;
}

/// "Survive these" 5, 9: no JSON at all, or a plan that was cut off.
#[tokio::test]
async fn survive_9_no_plan_is_no_plan() {
    let stage = stage(
        Script::new()
            .then(Answer::text("{\"tasks\":[{\"id\":\"t1\"").done_reason("length"))
            .then_if("cut off", Answer::text("I will write the file.")),
    );
    let status = stage.run("create hello.txt").await;
    assert_eq!(status.last_error.unwrap().0, Code::PlanInvalid);
    stage.model.assert_finished();
}

/// UC-07, PLN-04, PLN-05, AGT-01: the model adds a Task on the way; the path is computed anew, and the run ends only with it.
#[tokio::test]
async fn pln_04_a_task_added_on_the_way_is_done_too() {
    let mut added = task("t2", "write b.txt", &["t1"], true, &["file_edit"]);
    added["operation"] = json!("add");
    added["task_id"] = added["id"].take();
    added.as_object_mut().unwrap().remove("id");
    let stage = stage(
        Script::new()
            .then(edit_plan())
            .then(Answer::call("task_update", added))
            .then_if("Task t2 was added", write("a.txt", "a"))
            .then(Answer::text("a"))
            .then_if("CURRENT TASK t2", write("b.txt", "b"))
            .then(Answer::text("b"))
            .then(Answer::text("Both.")),
    );
    let submitted = stage.submit("write a.txt").await;
    let (status, events) = stage.finish(submitted).await;
    assert_eq!(status.state, RunState::Completed, "{status:?}");
    assert_eq!((status.completed_tasks, status.total_tasks), (2, 2));
    let paths: Vec<usize> = events
        .iter()
        .filter_map(|event| match event {
            RunEvent::Planned { critical_path, .. } => Some(critical_path.tasks().len()),
            _ => None,
        })
        .collect();
    assert_eq!(paths, [1, 2], "PLN-05");
    stage.model.assert_finished();
}

/// PLN-01, PLN-03, AT-15: changes that the planner refuses leave the graph alone, and the model is told why.
#[tokio::test]
async fn at_15_a_completed_task_cannot_be_changed() {
    let update = |value: Value| Answer::call("task_update", value);
    let estimate = json!({"operation": "set_estimate", "task_id": "t1", "budget_class": "1K",
        "optimistic_tokens": 1, "most_likely_tokens": 2, "pessimistic_tokens": 3});
    let cycle = json!({"operation": "add_dependency", "task_id": "t2", "depends_on": ["t2"]});
    let stage = stage(
        Script::new()
            .then(plan(&[
                task("t1", "write a.txt", &[], true, &["file_edit"]),
                task("t2", "write b.txt", &["t1"], true, &["file_edit"]),
            ]))
            .then(write("a.txt", "a"))
            .then(Answer::text("a"))
            .then(update(estimate))
            .then_if("FAILED plan.completed_immutable", update(cycle))
            .then_if("FAILED plan.cycle", write("b.txt", "b"))
            .then(Answer::text("b"))
            .then(Answer::text("Both.")),
    );
    let status = stage.run("write a.txt and b.txt").await;
    assert_eq!(status.state, RunState::Completed, "{status:?}");
    assert_eq!(stage.audited_as("plan.rejected").len(), 2);
    stage.model.assert_finished();
}

/// DESIGN §7.5: there is no way to set a state from outside.
#[tokio::test]
async fn agt_04_the_model_cannot_complete_a_task_by_an_update() {
    let stage = stage(finish(
        Script::new()
            .then(edit_plan())
            .then(Answer::call(
                "task_update",
                json!({"operation": "complete", "task_id": "t1"}),
            ))
            .then_if(
                "FAILED tool.arguments_invalid",
                Answer::call(
                    "task_update",
                    json!({"operation": "set_estimate", "task_id": "t1", "state": "completed"}),
                ),
            ),
    ));
    assert_eq!(
        stage.run("create hello.txt").await.state,
        RunState::Completed
    );
    assert_eq!(stage.content("hello.txt").as_deref(), Some("hello"));
    stage.model.assert_finished();
}
