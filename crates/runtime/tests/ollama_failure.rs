//! What goes wrong: OLL-12, X-OLL, AT-06, and "Survive these" 8 and 9.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ollama_support;

use ollama_support::*;
use policy::{Blame, Code};
use runtime::ollama::{AnswerNote, BadAnswer, FaultKind, OllamaClient, OllamaFault, Refused};
use serde_json::json;
use std::time::Duration;
use testkit::{Answer, Reply, Script};
use tokio_util::sync::CancellationToken;

/// A failure that is repeated: once it is survived, and four times it is the fault.
#[track_caller]
fn repeated(reply: Reply, code: Code) -> impl Future<Output = OllamaFault> {
    let place = std::panic::Location::caller();
    async move {
        let bench = Bench::new(Script::new().then(reply.clone()).then(Answer::text("back")));
        let answer = bench
            .chat(&text())
            .await
            .unwrap_or_else(|fault| panic!("{place}: {fault}"));
        bench.model.assert_finished();
        assert_eq!(answer.content, "back", "{place}");
        assert!(
            matches!(answer.notes[..], [AnswerNote::Repeated { attempt: 1, code: noted, .. }] if noted == code),
            "{place}: {:?}",
            answer.notes
        );
        assert_eq!(bench.pauses.milliseconds(), [250], "{place}");

        let script = (0..4).fold(Script::new(), |script, _| script.then(reply.clone()));
        let bench = Bench::new(script);
        let fault = bench.chat(&text()).await.unwrap_err();
        bench.model.assert_finished();
        assert_eq!(
            (fault.code(), fault.attempts),
            (code, 4),
            "{place}: {fault}"
        );
        assert_eq!(
            bench.pauses.milliseconds(),
            [250, 500, 1000],
            "{place}: DESIGN §16.3"
        );
        fault
    }
}

/// A failure that is final at once.
#[track_caller]
fn is_final(reply: Reply, code: Code) -> impl Future<Output = OllamaFault> {
    let place = std::panic::Location::caller();
    async move {
        let bench = Bench::new(Script::new().then(reply));
        let fault = bench.chat(&text()).await.unwrap_err();
        bench.model.assert_finished();
        assert_eq!(
            (fault.code(), fault.attempts),
            (code, 1),
            "{place}: {fault}"
        );
        assert!(bench.pauses.milliseconds().is_empty(), "{place}");
        fault
    }
}

#[tokio::test]
async fn oll_12_x_oll_busy_answers_are_repeated_with_and_without_retry_after() {
    let full = "server busy, please try again.  maximum pending requests exceeded";
    repeated(Reply::error(503, full), Code::OllamaBusy).await;
    let fault = repeated(
        Reply::error(503, "overloaded").header("Retry-After", "7"),
        Code::OllamaBusy,
    )
    .await;
    let received = fault.kind.received().unwrap();
    assert_eq!(
        (received.status, received.retry_after),
        (503, Some(Duration::from_secs(7)))
    );
    repeated(
        Reply::error(429, "you have reached your usage limit"),
        Code::OllamaBusy,
    )
    .await;
    repeated(
        Reply::error(429, "slow down").header("Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT"),
        Code::OllamaBusy,
    )
    .await;
}

#[tokio::test]
async fn survive_8_html_from_a_proxy_is_repeated() {
    let fault = repeated(Reply::html(502), Code::OllamaUnreachable).await;
    assert!(fault.kind.received().unwrap().body.contains("Bad Gateway"));
    let fault = repeated(Reply::html(200), Code::OllamaBadAnswer).await;
    assert!(
        matches!(&fault.kind, FaultKind::Bad(BadAnswer::NotJson, received) if received.body.contains("<html>"))
    );
}

#[tokio::test]
async fn survive_8_broken_connections_are_repeated() {
    repeated(Reply::Close, Code::OllamaUnreachable).await;
    repeated(Reply::Reset(Vec::new()), Code::OllamaUnreachable).await;
    repeated(
        Reply::Bytes(b"SSH-2.0-OpenSSH\r\n".to_vec()),
        Code::OllamaUnreachable,
    )
    .await;
    repeated(
        Reply::half(Answer::text("half of it")),
        Code::OllamaBadAnswer,
    )
    .await;
    repeated(
        Reply::reset_midway(Answer::text("half of it")),
        Code::OllamaBadAnswer,
    )
    .await;
    repeated(Reply::malformed_chunk(), Code::OllamaBadAnswer).await;
}

#[tokio::test]
async fn survive_8_incomplete_answers_are_repeated_and_their_text_is_not_kept() {
    let not_done = Answer::text("x").thinking("private").not_done();
    let fault = repeated(not_done.into(), Code::OllamaBadAnswer).await;
    assert!(
        matches!(&fault.kind, FaultKind::Bad(BadAnswer::NotDone, received) if received.body.is_empty())
    );
    repeated(
        Answer::text("x").without("done").into(),
        Code::OllamaBadAnswer,
    )
    .await;
    repeated(
        Answer::text("x").without("message").into(),
        Code::OllamaBadAnswer,
    )
    .await;
    repeated(Reply::body("{\"done\":true,\"mess"), Code::OllamaBadAnswer).await;
    repeated(Reply::body(""), Code::OllamaBadAnswer).await;
    let fault = repeated(Reply::error(200, "unexpected EOF"), Code::OllamaBadAnswer).await;
    assert!(
        matches!(&fault.kind, FaultKind::Bad(BadAnswer::ErrorInside(words), _) if words == "unexpected EOF")
    );
}

#[tokio::test]
async fn survive_8_a_runner_that_died_is_repeated() {
    repeated(
        Reply::error(500, "llama runner process has terminated: exit status 2"),
        Code::OllamaBadAnswer,
    )
    .await;
    repeated(
        Reply::error(
            500,
            "an error was encountered while running the model: unexpected EOF",
        ),
        Code::OllamaBadAnswer,
    )
    .await;
}

#[tokio::test]
async fn survive_8_done_false_and_500_afterwards_ends_with_the_500() {
    let script = Script::new()
        .then(Answer::text("x").not_done())
        .then(Reply::error(500, "out of luck"));
    let fault = Bench::fault(script, &text()).await;
    assert_eq!((fault.code(), fault.attempts), (Code::OllamaRejected, 2));
}

#[tokio::test]
async fn oll_12_permanent_errors_are_final_at_once() {
    let missing = is_final(
        Reply::error(404, "model 'x' not found"),
        Code::OllamaModelMissing,
    )
    .await;
    assert_eq!(missing.to_fault().target, "scripted:latest");
    assert_eq!(missing.to_fault().blame, Blame::Configuration);
    is_final(
        Reply::error(400, "registry/x:latest does not support tools"),
        Code::OllamaToolsUnsupported,
    )
    .await;
    is_final(
        Reply::error(400, "\"x\" does not support thinking"),
        Code::OllamaThinkingUnsupported,
    )
    .await;
    is_final(Reply::error(403, "forbidden"), Code::OllamaUnauthorized).await;
    is_final(
        Reply::error(500, "json: cannot unmarshal string into Go value"),
        Code::OllamaRejected,
    )
    .await;
    is_final(
        Reply::error(500, "invalid format: expected object"),
        Code::OllamaRejected,
    )
    .await;
    is_final(
        Reply::error(400, "invalid think value"),
        Code::OllamaRejected,
    )
    .await;
    is_final(Reply::html(404), Code::OllamaRejected).await;
    is_final(Reply::html(504), Code::OllamaUnreachable).await;
    let elsewhere = Reply::html(302).header("Location", "/elsewhere");
    is_final(elsewhere, Code::OllamaRejected).await;
}

#[tokio::test]
async fn at_06_oll_09_no_vision_has_one_code_however_it_is_said() {
    let words = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj";
    is_final(Reply::error(500, words), Code::OllamaVisionUnsupported).await;
    is_final(Reply::error(400, words), Code::OllamaVisionUnsupported).await;
}

#[tokio::test]
async fn a_context_error_carries_its_numbers() {
    let inner = json!({"error": {"code": 400, "type": "exceed_context_size_error",
        "message": "the request exceeds the available context size, try increasing it",
        "n_prompt_tokens": 40000, "n_ctx": 32768}});
    let twice = Reply::json(400, &json!({"error": inner.to_string()}));
    let fault = is_final(twice, Code::OllamaContextExceeded).await;
    let numbers = Refused::ContextExceeded {
        prompt_tokens: Some(40000),
        context: Some(32768),
    };
    assert!(matches!(&fault.kind, FaultKind::Refused(refused, _) if *refused == numbers));
    assert!(fault.to_fault().detail.contains("40000 > 32768"));
    is_final(
        Reply::error(
            400,
            "prompt too long; exceeded max context length by 5 tokens",
        ),
        Code::OllamaContextExceeded,
    )
    .await;
}

#[tokio::test]
async fn an_unauthorized_answer_says_where_to_sign_in() {
    let reply = Reply::json(
        401,
        &json!({"error": "unauthorized", "signin_url": "https://example.invalid/connect"}),
    );
    let fault = is_final(reply, Code::OllamaUnauthorized).await;
    let url = Some("https://example.invalid/connect".to_owned());
    assert!(
        matches!(&fault.kind, FaultKind::Refused(Refused::Unauthorized { signin_url }, _) if *signin_url == url)
    );
}

#[tokio::test]
async fn x_oll_a_call_the_model_broke_is_repeated_once_with_another_seed() {
    let broken = || {
        Reply::error(
            500,
            "error parsing tool call: raw='{\"path\":', err=unexpected end of JSON input",
        )
    };
    let bench = Bench::new(Script::new().then(broken()).then(Answer::text("better")));
    let answer = bench.chat(&with_tools()).await.unwrap();
    bench.model.assert_finished();
    let seeds: Vec<_> = bench
        .model
        .requests()
        .iter()
        .map(|request| request.json()["options"]["seed"].clone())
        .collect();
    assert_ne!(seeds[0], seeds[1]);
    assert!(answer.notes.contains(&AnswerNote::Reseeded));
    assert!(bench.pauses.milliseconds().is_empty());

    let fault = Bench::fault(Script::new().then(broken()).then(broken()), &with_tools()).await;
    assert_eq!(
        (fault.code(), fault.attempts, fault.to_fault().blame),
        (Code::OllamaBadAnswer, 2, Blame::Model)
    );
}

#[tokio::test]
async fn an_error_body_is_kept_up_to_its_limit() {
    let huge = Reply::Http {
        status: 500,
        headers: Vec::new(),
        body: vec![b'x'; 300_000],
        content_type: "text/plain",
    };
    let fault = is_final(huge, Code::OllamaRejected).await;
    assert_eq!(fault.kind.received().unwrap().body.len(), 64 << 10);
    assert!(fault.to_string().len() < 1000, "a message is not a body");
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_for_ever() {
    let huge = Reply::body(vec![b' '; (32 << 20) + 1]);
    let fault = is_final(huge, Code::OllamaBadAnswer).await;
    assert!(matches!(fault.kind, FaultKind::Bad(BadAnswer::TooLarge, _)));
}

#[tokio::test]
async fn oll_12_no_server_at_all_is_tried_four_times() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let pauses = testkit::PauseLog::default();
    let backoff = runtime::ollama::Backoff::with_pause(pauses.pause());
    let client = OllamaClient::with_backoff(settings(&format!("http://{free}")), backoff).unwrap();
    let fault = client
        .chat(&text(), &CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!((fault.code(), fault.attempts), (Code::OllamaUnreachable, 4));
    assert_eq!(pauses.milliseconds(), [250, 500, 1000]);
    assert!(fault.to_fault().target.contains(&free.to_string()));
}

#[tokio::test]
async fn cancelling_drops_the_request_at_once() {
    let bench = Bench::new(Script::new().then_stall(Answer::text("never")));
    let cancel = CancellationToken::new();
    let request = text();
    let call = bench.client.chat(&request, &cancel);
    let stop = async {
        bench.model.wait_for_requests(1).await;
        cancel.cancel();
    };
    let (answer, ()) = tokio::join!(call, stop);
    assert_eq!(answer.unwrap_err().code(), Code::Cancelled);
    bench.model.wait_for_hangups(1).await;
    bench.model.assert_finished();
}

#[tokio::test]
async fn a_cancelled_run_asks_nothing_and_a_pause_ends_when_it_is_cancelled() {
    let bench = Bench::new(Script::new());
    let cancel = CancellationToken::new();
    cancel.cancel();
    let fault = bench.client.chat(&text(), &cancel).await.unwrap_err();
    assert_eq!((fault.code(), fault.attempts), (Code::Cancelled, 0));
    assert!(bench.model.requests().is_empty());

    let bench = Bench::new(Script::new().then(Reply::error(503, "busy")));
    let cancel = CancellationToken::new();
    let theirs = cancel.clone();
    let for_ever = runtime::ollama::Backoff::with_pause(std::sync::Arc::new(move |_| {
        theirs.cancel();
        Box::pin(std::future::pending())
    }));
    let client = OllamaClient::with_backoff(settings(&bench.model.endpoint()), for_ever).unwrap();
    let fault = client.chat(&text(), &cancel).await.unwrap_err();
    assert_eq!((fault.code(), fault.attempts), (Code::Cancelled, 1));
}

#[tokio::test]
async fn survive_9_the_deadline_ends_a_call_that_never_ends() {
    let bench = Bench::new(Script::new().then_stall(Answer::text("never")));
    let mut settings = settings(&bench.model.endpoint());
    settings.deadline = Duration::from_millis(50);
    let client = OllamaClient::new(settings).unwrap();
    let fault = client
        .chat(&text(), &CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(
        fault.kind,
        FaultKind::DeadlinePassed(Duration::from_millis(50))
    );
    assert_eq!(fault.code(), Code::OllamaBusy);
}

#[tokio::test]
async fn a_stalled_server_that_goes_on_is_waited_for() {
    let bench = Bench::new(Script::new().then_stall(Answer::text("loaded")));
    let request = text();
    let (answer, ()) = tokio::join!(bench.chat(&request), async {
        bench.model.wait_for_requests(1).await;
        bench.model.release();
    });
    assert_eq!(answer.unwrap().content, "loaded");
    bench.model.assert_finished();
}

#[tokio::test]
async fn https_without_tls_on_the_other_side_is_unreachable() {
    let script = (0..4).fold(Script::new(), |script, _| {
        script.then(Answer::text("plain"))
    });
    let bench = Bench::new(script);
    let secure = bench.model.endpoint().replace("http://", "https://");
    match OllamaClient::with_backoff(
        settings(&secure),
        runtime::ollama::Backoff::with_pause(bench.pauses.pause()),
    ) {
        Ok(client) => {
            let fault = client
                .chat(&text(), &CancellationToken::new())
                .await
                .unwrap_err();
            assert_eq!(fault.code(), Code::OllamaUnreachable, "{fault}");
            assert!(
                bench.model.requests().is_empty(),
                "nothing is said before TLS stands"
            );
        }
        // A machine without root certificates cannot check anyone: that is said, and no panic.
        Err(problem) => assert!(matches!(problem, runtime::ollama::SettingsProblem::Tls(_))),
    }
}
