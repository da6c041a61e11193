//! What is sent: OLL-02 to OLL-10, AT-05, X-CACHE, X-OLL.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ollama_support;

use ollama_support::*;
use policy::config::{KeepAlive, Think, ThinkLevel};
use runtime::ollama::{AnswerNote, ChatMessage, OllamaClient, SettingsProblem, Shape};
use serde_json::{Value, json};
use testkit::{Answer, Script};

/// The payload of one call.
async fn payload(request: &runtime::ollama::ChatRequest) -> Value {
    let bench = Bench::new(Script::new().then(Answer::text("ok")));
    bench.chat(request).await.unwrap();
    bench.model.assert_finished();
    let mut requests = bench.model.requests();
    assert_eq!(
        (requests[0].method.as_str(), requests[0].path.as_str()),
        ("POST", "/api/chat"),
        "OLL-02"
    );
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
    requests.remove(0).json()
}

#[tokio::test]
async fn oll_02_the_whole_payload_is_as_specified() {
    let payload = payload(&text()).await;
    assert_eq!(
        payload,
        json!({
            "model": "scripted:latest",
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "list src"}],
            "options": {"num_ctx": 32768, "num_predict": 4096},
            "think": false,
            "keep_alive": "5m",
            "stream": false,
            "truncate": false,
            "shift": false
        })
    );
}

#[tokio::test]
async fn oll_03_options_and_oll_05_extra_options_reach_the_server() {
    let mut request = text();
    request.options.known.top_p = Some(0.9);
    request.options.known.stop = Some(vec!["END".into()]);
    request.options.extra.insert("future".into(), json!([1]));
    request.options.extra.insert("top_p".into(), json!(0.1));
    request.options.extra.insert("temperature".into(), json!(2));
    let payload = payload(&request).await;
    assert_eq!(
        payload["options"],
        json!({"num_ctx": 32768, "num_predict": 4096, "top_p": 0.9, "stop": ["END"], "future": [1]})
    );
}

#[tokio::test]
async fn at_05_oll_06_a_temperature_reaches_only_its_own_request() {
    let bench = Bench::new(
        Script::new()
            .then(Answer::text("1"))
            .then(Answer::text("2"))
            .then(Answer::text("3")),
    );
    let configured = {
        let mut request = text();
        request.options.known.temperature = Some(0.4);
        request
    };
    let mut own = configured.clone();
    own.options.known.temperature = Some(1.5);
    for request in [&configured, &own, &configured] {
        bench.chat(request).await.unwrap();
    }
    bench.model.assert_finished();
    let sent: Vec<Value> = bench
        .model
        .requests()
        .iter()
        .map(|request| request.json()["options"]["temperature"].clone())
        .collect();
    assert_eq!(sent, [json!(0.4), json!(1.5), json!(0.4)]);
}

#[tokio::test]
async fn x_oll_think_is_always_sent() {
    for (think, sent) in [
        (Think::Switch(false), json!(false)),
        (Think::Switch(true), json!(true)),
        (Think::Level(ThinkLevel::High), json!("high")),
    ] {
        let mut request = text();
        request.think = think;
        assert_eq!(payload(&request).await["think"], sent);
    }
}

#[tokio::test]
async fn oll_10_tools_or_format_and_never_both() {
    let tools = payload(&with_tools()).await;
    assert_eq!(
        tools["tools"][0]["function"]["name"], "manage_directory",
        "survive 2: never plain `dir`"
    );
    assert_eq!(tools.get("format"), None);
    let planned = payload(&structured()).await;
    assert_eq!(planned["format"], json!({"type": "object"}));
    assert_eq!(planned.get("tools"), None);
}

#[tokio::test]
async fn oll_09_images_go_as_raw_base64_and_the_log_sees_only_their_size() {
    let mut request = text();
    request.messages.push(ChatMessage::User {
        content: "look".into(),
        images: vec!["QUJD".into()],
    });
    let sent = payload(&request).await;
    assert_eq!(
        sent["messages"][2],
        json!({"role": "user", "content": "look", "images": ["QUJD"]})
    );
    let bench = Bench::new(Script::new());
    assert_eq!(
        bench.client.log_view(&request)["messages"][2]["images"],
        json!(["4 base64 characters"])
    );
}

#[tokio::test]
async fn x_cache_each_prompt_extends_the_one_before_byte_for_byte() {
    let bench = Bench::new(
        Script::new()
            .then(
                Answer::call(
                    "manage_directory",
                    json!({"path": "src", "operation": "list"}),
                )
                .thinking("secret idea"),
            )
            .then_if("lib.rs", Answer::text("done")),
    );
    let mut request = with_tools();
    let first = bench.chat(&request).await.unwrap();
    request.messages.push(first.to_message());
    request
        .messages
        .push(ChatMessage::result_of(&first.tool_calls[0], "lib.rs"));
    let second = bench.chat(&request).await.unwrap();
    bench.model.assert_finished();

    let requests = bench.model.requests();
    let messages = requests[1].json()["messages"].clone();
    assert_eq!(
        messages[2],
        json!({
            "role": "assistant", "content": "", "thinking": "secret idea",
            "tool_calls": [{"id": "call_0", "function": {
                "index": 0, "name": "manage_directory", "arguments": {"path": "src", "operation": "list"}}}]
        })
    );
    assert_eq!(
        messages[3],
        json!({"role": "tool", "content": "lib.rs", "tool_name": "manage_directory", "tool_call_id": "call_0"})
    );
    let upto_messages = requests[0]
        .body
        .windows(2)
        .position(|two| two == b"}]")
        .unwrap();
    assert!(
        requests[1]
            .body
            .starts_with(&requests[0].body[..=upto_messages])
    );

    // DESIGN §6.2: thinking goes back only with calls, and is seen nowhere else.
    request.messages.push(second.to_message());
    let log = bench.client.log_view(&request).to_string();
    assert!(!log.contains("secret idea"));
    assert!(!format!("{first:?} {:?} {}", first.to_message(), first.raw).contains("secret idea"));
    assert_eq!(first.thinking.map(|thinking| thinking.size()), Some(11));
}

#[tokio::test]
async fn unreadable_arguments_still_go_back_as_an_object() {
    let bench = Bench::new(
        Script::new()
            .then(Answer::call("file_read", json!("no json")))
            .then(Answer::text("ok")),
    );
    let mut request = with_tools();
    let answer = bench.chat(&request).await.unwrap();
    assert!(
        answer
            .notes
            .contains(&AnswerNote::ArgumentsUnreadable("file_read".into()))
    );
    request.messages.push(answer.to_message());
    bench.chat(&request).await.unwrap();
    let sent = bench.model.requests()[1].json();
    assert_eq!(
        sent["messages"][2]["tool_calls"][0]["function"]["arguments"],
        json!({"unreadable": "no json"})
    );
}

#[tokio::test]
async fn keep_alive_has_every_form_and_a_bare_number_in_text_is_refused() {
    for (form, sent) in [
        (KeepAlive::Seconds(-1), json!(-1)),
        (KeepAlive::Seconds(0), json!(0)),
        (KeepAlive::Duration("1h30m".into()), json!("1h30m")),
    ] {
        let bench = Bench::new(Script::new().then(Answer::text("ok")));
        let mut settings = settings(&bench.model.endpoint());
        settings.keep_alive = form;
        let client = OllamaClient::new(settings).unwrap();
        client
            .chat(&text(), &tokio_util::sync::CancellationToken::new())
            .await
            .unwrap();
        assert_eq!(bench.model.requests()[0].json()["keep_alive"], sent);
    }
    let mut bare = settings("http://127.0.0.1:1");
    bare.keep_alive = KeepAlive::Duration("5".into());
    assert_eq!(
        OllamaClient::new(bare).unwrap_err(),
        SettingsProblem::KeepAlive("5".into())
    );
}

#[tokio::test]
async fn unusable_settings_make_no_client() {
    let mut unnamed = settings("http://127.0.0.1:1");
    unnamed.model = " ".into();
    assert_eq!(
        OllamaClient::new(unnamed).unwrap_err(),
        SettingsProblem::Model
    );
    assert!(matches!(
        OllamaClient::new(settings("ftp://127.0.0.1/")),
        Err(SettingsProblem::Endpoint(_))
    ));
}

#[tokio::test]
async fn a_path_in_front_of_the_api_is_kept() {
    let bench = Bench::new(Script::new().then_on("/behind/api/chat", Answer::text("ok")));
    let endpoint = format!("{}/behind/", bench.model.endpoint());
    let client = OllamaClient::new(settings(&endpoint)).unwrap();
    client
        .chat(&text(), &tokio_util::sync::CancellationToken::new())
        .await
        .unwrap();
    bench.model.assert_finished();
}

#[tokio::test]
async fn a_plan_with_thinking_has_approximate_counts() {
    let mut request = with_shape(Shape::Structured(json!({})));
    request.think = Think::Switch(true);
    let answer = Bench::answer(Script::new().then(Answer::text("{}")), &request).await;
    assert_eq!(answer.notes, [AnswerNote::UsageApproximate], "X-OLL");
}
