//! Queue, sessions, cancellation, and what is known about runs (SES, REC, AT-04…06, DESIGN §16, §17).

mod support;

use base64::Engine;
use jiff::SignedDuration;
use policy::{Code, RunId, SessionId};
use runtime::service::{ClientId, Image, RunEvent, RunState};
use serde_json::json;
use support::{Setup, build, edit_plan, plan, read, request, stage, task, write};
use testkit::{Answer, Reply, Script};

/// A plan of pure explanation and its answer: three calls.
fn talk(script: Script, words: &str) -> Script {
    script
        .then(plan(&[task("t1", "explain", &[], false, &[])]))
        .then(Answer::text(words))
        .then(Answer::text(words))
}

/// AT-04: `agent_run` does not wait for the model.
#[tokio::test]
async fn at_04_submit_returns_at_once() {
    let stage = stage(
        Script::new()
            .then_stall(plan(&[task("t1", "explain", &[], false, &[])]))
            .then(Answer::text("words"))
            .then(Answer::text("words")),
    );
    let submitted = stage.submit("explain").await;
    stage.model.wait_for_requests(1).await;
    let status = stage.service.status(submitted.run_id, None).await.unwrap();
    assert_eq!(status.state, RunState::Planning);
    assert_eq!(status.result, None);
    stage.model.release();
    let (status, _) = stage.finish(submitted).await;
    assert_eq!(status.state, RunState::Completed);
    stage.model.assert_finished();
}

/// DESIGN §17.0: one at a time, in arrival order; a full queue refuses.
#[tokio::test]
async fn design_17_0_one_run_at_a_time_in_arrival_order() {
    let script = Script::new().then_stall(plan(&[task("t1", "explain", &[], false, &[])]));
    let script = script
        .then(Answer::text("first"))
        .then(Answer::text("first"));
    let mut setup = Setup::new(talk(talk(script, "second"), "third"));
    setup.limits = Some(Box::new(|limits| limits.queue = 2));
    let stage = build(setup);
    let first = stage.submit("explain").await;
    stage.model.wait_for_requests(1).await;
    let second = stage.submit("explain").await;
    let third = stage.submit("explain").await;
    let full = stage.service.submit(request("explain")).await.unwrap_err();
    assert_eq!(full.code, Code::QueueFull);
    let waiting = stage.service.status(third.run_id, None).await.unwrap();
    assert_eq!(
        (waiting.state, waiting.message.id()),
        (RunState::Queued, "status.queued")
    );
    stage.model.release();
    for (submitted, words) in [(first, "first"), (second, "second"), (third, "third")] {
        let (status, _) = stage.finish(submitted).await;
        assert_eq!(status.result.as_deref(), Some(words));
    }
    stage.model.assert_finished();
}

/// DESIGN §17.0: waiting requests are bounded in bytes, too, and what no longer waits takes nothing.
#[tokio::test]
async fn design_17_0_waiting_requests_are_bounded_in_bytes() {
    let script = Script::new().then_stall(plan(&[task("t1", "explain", &[], false, &[])]));
    let mut setup = Setup::new(script);
    setup.limits = Some(Box::new(|limits| limits.queue_bytes = 20));
    let stage = build(setup);
    stage.submit("explain").await;
    stage.model.wait_for_requests(1).await;
    for _ in 0..3 {
        let waiting = stage.submit("a text of 15 b.").await;
        let full = stage.service.submit(request("six b.")).await.unwrap_err();
        assert_eq!(full.code, Code::QueueFull);
        let short = stage.submit("5 by.").await;
        for run in [waiting, short] {
            stage.service.cancel(run.run_id).await.unwrap();
        }
    }
    // Alone, a request is never too long for the queue.
    stage.submit(&"long ".repeat(10)).await;
    stage.service.shutdown().await;
}

/// DESIGN §16.1: a stop drops the model call at once and ends as cancelled.
#[tokio::test]
async fn rec_04_cancel_drops_the_model_call() {
    let stage = stage(
        Script::new()
            .then(edit_plan())
            .then_stall(write("hello.txt", "hello")),
    );
    let submitted = stage.submit("create hello.txt").await;
    stage.model.wait_for_requests(2).await;
    stage.service.cancel(submitted.run_id).await.unwrap();
    stage.model.wait_for_hangups(1).await;
    let status = stage.service.status(submitted.run_id, None).await.unwrap();
    assert_eq!(status.state, RunState::Cancelled);
    assert_eq!(status.last_error.unwrap().0, Code::Cancelled);
    assert_eq!(stage.content("hello.txt"), None);
    stage.assert_clean();
    assert_eq!(
        stage.audited_as("run.end")[0]["detail"]["state"],
        "cancelled"
    );
    assert_eq!(
        stage.audited_as("task.end")[0]["detail"]["state"],
        "cancelled"
    );
    stage.service.cancel(submitted.run_id).await.unwrap();
    let unknown = stage.service.cancel(RunId::random()).await.unwrap_err();
    assert_eq!(unknown.code, Code::TaskNotFound);
    stage.model.assert_finished();
}

/// REC-02, REC-03: a stop kills what runs in the Task's sandbox and waits for it.
#[tokio::test]
async fn rec_03_cancel_kills_the_sandbox() {
    let stage = stage(
        Script::new()
            .then(plan(&[task("t1", "run it", &[], true, &["process_run"])]))
            .then(Answer::call(
                "process_run",
                json!({"executable": "python3", "args": ["hang"]}),
            )),
    );
    let submitted = stage.submit("run python3").await;
    let log = stage.sandbox_log.clone();
    while !log
        .lock()
        .unwrap()
        .iter()
        .any(|line| line == "run python3 hang")
    {
        tokio::task::yield_now().await;
    }
    stage.service.cancel(submitted.run_id).await.unwrap();
    let status = stage.service.status(submitted.run_id, None).await.unwrap();
    assert_eq!(status.state, RunState::Cancelled, "{status:?}");
    assert_eq!(
        *log.lock().unwrap(),
        ["prepare t1", "start", "run python3 hang", "kill", "end"]
    );
    stage.assert_clean();
    stage.model.assert_finished();
}

/// REC-04: a client that goes takes its own runs with it, waiting ones too, and no others.
#[tokio::test]
async fn rec_04_a_client_that_goes_takes_only_its_own_runs() {
    let script = Script::new().then_stall(edit_plan());
    let stage = stage(talk(script, "the other one"));
    let mine = stage.submit("create hello.txt").await;
    stage.model.wait_for_requests(1).await;
    let other = stage
        .service
        .submit(runtime::service::RunRequest {
            client: ClientId(2),
            ..request("explain")
        })
        .await
        .unwrap();
    let waiting = stage.submit("create hello.txt").await;
    stage.service.client_gone(ClientId(1)).await;
    for run in [mine, waiting] {
        let status = stage.service.status(run.run_id, None).await.unwrap();
        assert_eq!(status.state, RunState::Cancelled);
        assert_eq!(status.last_error.unwrap().0, Code::ClientGone);
    }
    let (status, _) = stage.finish(other).await;
    assert_eq!(status.result.as_deref(), Some("the other one"));
    stage.model.assert_finished();
    stage.assert_clean();
}

/// DESIGN §16.1: a stopping server takes no runs, stops those it has, and says when it is clean.
#[tokio::test]
async fn design_16_1_shutdown_is_clean() {
    let stage = stage(Script::new().then_stall(edit_plan()));
    let running = stage.submit("create hello.txt").await;
    stage.model.wait_for_requests(1).await;
    let waiting = stage.submit("create hello.txt").await;
    stage.service.shutdown().await;
    for run in [running, waiting] {
        let status = stage.service.status(run.run_id, None).await.unwrap();
        assert_eq!(status.last_error.unwrap().0, Code::ServerStopping);
    }
    let refused = stage.service.submit(request("more")).await.unwrap_err();
    assert_eq!(refused.code, Code::ServerStopping);
    stage.assert_clean();
}

/// REC-01, OLL-12: three repetitions with the fixed pauses, then the run fails.
#[tokio::test]
async fn rec_01_an_unavailable_model_fails_the_run_after_three_repetitions() {
    let mut script = Script::new();
    for _ in 0..4 {
        script = script.then(Reply::error(503, "server busy"));
    }
    let stage = stage(script);
    let status = stage.run("create hello.txt").await;
    assert_eq!(status.state, RunState::Failed);
    assert_eq!(status.last_error.unwrap().0, Code::OllamaBusy);
    assert_eq!(stage.pauses.milliseconds(), [250, 500, 1000]);
    let log = stage.llm_log();
    assert_eq!(
        (&log[0]["error"], &log[0]["request"]["attempts"]),
        (&json!("ollama.busy"), &json!(4))
    );
    stage.model.assert_finished();
}

/// REC-01: a server that is not there is found before anything is planned, after the same repetitions.
#[tokio::test]
async fn rec_01_a_server_that_is_not_there() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let mut setup = Setup::new(Script::new());
    setup.config = Some(Box::new(move |config| {
        config.ollama.endpoint = nobody.parse().unwrap();
    }));
    let stage = build(setup);
    let status = stage.run("create hello.txt").await;
    assert_eq!(status.state, RunState::Failed);
    assert_eq!(status.last_error.unwrap().0, Code::OllamaUnreachable);
    assert_eq!(stage.pauses.milliseconds(), [250, 500, 1000]);
    stage.assert_clean();
}

/// OLL-10, DESIGN §20: what the server says for good is not repeated, and found before anything is planned.
#[tokio::test]
async fn oll_10_a_missing_model_and_one_without_tools_are_found_first() {
    let missing = Reply::error(404, "model 'scripted' not found");
    let stage_of = |script: Script| stage(script);
    let missing = stage_of(Script::new().standing("/api/show", missing));
    assert_eq!(
        missing.run("x").await.last_error.unwrap().0,
        Code::OllamaModelMissing
    );
    let toolless = stage_of(Script::new().capabilities(&["completion"]));
    assert_eq!(
        toolless.run("x").await.last_error.unwrap().0,
        Code::OllamaToolsUnsupported
    );
    let silent = Reply::json(200, &json!({"model_info": {}}));
    let silent = stage_of(talk(Script::new().standing("/api/show", silent), "fine"));
    assert_eq!(
        silent.run("x").await.state,
        RunState::Completed,
        "unknown is tried"
    );
    silent.model.assert_finished();
}

fn png() -> Image {
    let data = base64::engine::general_purpose::STANDARD.encode(b"\x89PNG\r\n\x1a\n....");
    Image {
        mime_type: "image/png".into(),
        data_base64: data,
    }
}

/// AT-06, OLL-09: an image for a model that cannot see is refused before the model is asked.
#[tokio::test]
async fn at_06_an_image_for_a_blind_model_is_refused() {
    let stage = stage(Script::new());
    let mut with_image = request("what is this?");
    with_image.images = vec![png()];
    let status = stage.run_request(with_image).await;
    assert_eq!(status.last_error.unwrap().0, Code::OllamaVisionUnsupported);
    assert_eq!(stage.chats().len(), 0);
    let mut wrong = request("what is this?");
    wrong.images = vec![Image {
        mime_type: "image/jpeg".into(),
        ..png()
    }];
    let refusal = stage.service.submit(wrong).await.unwrap_err();
    assert_eq!(refusal.code, Code::ImageInvalid);
}

/// UC-03, OLL-09: images go to planning and to the Task.
#[tokio::test]
async fn oll_09_images_reach_planning_and_execution() {
    let stage = stage(talk(
        Script::new().capabilities(&["completion", "tools", "vision"]),
        "a picture",
    ));
    let mut with_image = request("what is this?");
    with_image.images = vec![png()];
    assert_eq!(
        stage.run_request(with_image).await.state,
        RunState::Completed
    );
    for chat in &stage.chats()[..2] {
        let last = chat["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["images"], json!([png().data_base64]));
    }
    let log = stage.llm_log();
    assert!(
        !format!("{log:?}").contains(&png().data_base64),
        "counted, not kept"
    );
    stage.model.assert_finished();
}

/// AT-05, MCP-RUN-03: a temperature is one run's own.
#[tokio::test]
async fn at_05_a_temperature_is_not_inherited() {
    let stage = stage(talk(talk(Script::new(), "warm"), "cold"));
    let mut warm = request("explain");
    warm.temperature = Some(1.5);
    let first = stage.service.submit(warm).await.unwrap();
    stage.finish(first).await;
    let mut cold = request("explain");
    cold.session_id = Some(first.session_id);
    stage.run_request(cold).await;
    let temperatures: Vec<_> = stage
        .chats()
        .iter()
        .map(|chat| chat["options"].get("temperature").cloned())
        .collect();
    assert_eq!(
        temperatures[..3],
        [Some(json!(1.5)), Some(json!(1.5)), Some(json!(1.5))]
    );
    assert_eq!(temperatures[3..], [None, None, None]);
    for wrong in [-0.1, 2.1, f64::NAN] {
        let mut hot = request("explain");
        hot.temperature = Some(wrong);
        assert_eq!(
            stage.service.submit(hot).await.unwrap_err().code,
            Code::RequestInvalid
        );
    }
    stage.model.assert_finished();
}

/// SES-01, SES-02, SES-04: a session remembers what was asked, answered and found.
#[tokio::test]
async fn ses_04_the_next_run_of_a_session_knows_the_last() {
    let script = Script::new()
        .then(plan(&[task(
            "t1",
            "read a.txt",
            &[],
            false,
            &["file_read"],
        )]))
        .then(read("a.txt"))
        .then(Answer::text("read"))
        .then(Answer::text("It says: forty-two."));
    let stage = stage(talk(script, "as before"));
    stage.put("a.txt", "forty-two");
    let first = stage.submit("what is in a.txt?").await;
    stage.finish(first).await;
    let mut again = request("and again?");
    again.session_id = Some(first.session_id);
    let second = stage.service.submit(again).await.unwrap();
    assert_eq!(second.session_id, first.session_id);
    stage.finish(second).await;
    let execution = stage.chats()[5]["messages"].to_string();
    for words in [
        "what is in a.txt?",
        "It says: forty-two.",
        "VERIFIED RESULTS SO FAR",
    ] {
        assert!(execution.contains(words), "{words}: {execution}");
    }
    stage.model.assert_finished();
}

/// SES-02, SES-03, MCP-STS-02: unknown, closed and mismatching ids.
#[tokio::test]
async fn ses_03_ids_are_checked() {
    let stage = stage(talk(talk(Script::new(), "one"), "two"));
    let first = stage.submit("explain").await;
    stage.finish(first).await;
    let second = stage.submit("explain").await;
    stage.finish(second).await;
    let status = |run, session| stage.service.status(run, session);
    assert!(status(first.run_id, Some(first.session_id)).await.is_ok());
    let code = status(first.run_id, Some(second.session_id))
        .await
        .unwrap_err()
        .code;
    assert_eq!(code, Code::TaskSessionMismatch);
    let code = status(first.run_id, Some(SessionId::random()))
        .await
        .unwrap_err()
        .code;
    assert_eq!(code, Code::SessionNotFound);
    assert_eq!(
        status(RunId::random(), None).await.unwrap_err().code,
        Code::TaskNotFound
    );
    let mut unknown = request("explain");
    unknown.session_id = Some(SessionId::random());
    assert_eq!(
        stage.service.submit(unknown).await.unwrap_err().code,
        Code::SessionNotFound
    );
    stage.clock.advance(SignedDuration::from_hours(25));
    let mut late = request("explain");
    late.session_id = Some(first.session_id);
    assert_eq!(
        stage.service.submit(late).await.unwrap_err().code,
        Code::SessionClosed
    );
    assert_eq!(
        stage
            .service
            .status(first.run_id, None)
            .await
            .unwrap_err()
            .code,
        Code::TaskNotFound,
        "statuses are kept for a day"
    );
    stage.model.assert_finished();
}

/// Nothing is lost for who comes late: the whole history, then the end.
#[tokio::test]
async fn subscribers_get_every_event_from_the_start() {
    let stage = stage(talk(Script::new(), "words"));
    let submitted = stage.submit("explain").await;
    let (_, live) = stage.finish(submitted).await;
    let (_, late) = stage.finish(submitted).await;
    assert_eq!(format!("{live:?}"), format!("{late:?}"));
    assert!(matches!(late[0], RunEvent::State(RunState::Queued)));
    let mut nobody = stage.service.subscribe(RunId::random()).await;
    assert!(nobody.recv().await.is_none());
}

/// SPEC §5.3, X-ROOT: what a request must be.
#[tokio::test]
async fn requests_are_checked() {
    let stage = stage(Script::new());
    assert_eq!(
        stage.service.submit(request(" \n")).await.unwrap_err().code,
        Code::RequestInvalid
    );
    let mut elsewhere = request("x");
    elsewhere.cwd = Some("/etc".into());
    assert_eq!(
        stage.service.submit(elsewhere).await.unwrap_err().code,
        Code::PathDenied
    );
}
