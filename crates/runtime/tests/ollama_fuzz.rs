//! Whatever a server answers, nothing panics and nothing is done twice too often ("Survive these", all).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ollama_support;

use ollama_support::*;
use proptest::prelude::*;
use runtime::ollama::{OllamaClient, extract_json};
use serde_json::{Map, Value, json};
use testkit::{Answer, Reply, Script};
use tokio_util::sync::CancellationToken;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(
            &[
                "</think>",
                "<think>",
                "```",
                "file_read",
                "dir",
                "stop",
                "{\"name\":\"dir\",\"arguments\":{}}"
            ][..]
        )
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Names that mean something, and others.
fn name() -> impl Strategy<Value = String> {
    let known = [
        "message",
        "content",
        "thinking",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "done",
        "done_reason",
        "error",
        "prompt_eval_count",
        "eval_count",
        "path",
        "start",
        "type",
        "n_ctx",
    ];
    prop_oneof![4 => prop::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => any::<String>()]
}

fn any_reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        2 => (200u16..600, prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(status, body)| Reply::Http {
            status, headers: Vec::new(), body, content_type: "application/json"
        }),
        2 => (200u16..600, any_json()).prop_map(|(status, body)| Reply::json(status, &body)),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Reply::Bytes),
        // An answer that is right but for one part.
        4 => any_json().prop_map(|value| Answer::text("").set("", "message", value).into()),
        4 => any_json().prop_map(|value| Answer::text("").set("/message", "tool_calls", json!([value])).into()),
        2 => any_json().prop_map(|value| Answer::call("file_read", value).into()),
        2 => any_json().prop_map(|value| Answer::text(value.to_string()).into()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_answer_breaks_the_client(reply in any_reply()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let script = (0..5).fold(Script::new(), |script, _| script.then(reply.clone()));
            let bench = Bench::new(script);
            match bench.chat(&with_tools()).await {
                Ok(answer) => {
                    // What came in can always go out again.
                    let mut request = with_tools();
                    request.messages.push(answer.to_message());
                    prop_assert!(bench.client.log_view(&request).is_object());
                    prop_assert!(answer.tool_calls.iter().all(|call| !call.id.is_empty() && !call.wire_name.is_empty()));
                    let _ = answer.structured();
                }
                Err(fault) => prop_assert!(!fault.to_fault().detail.contains('\n')),
            }
            prop_assert!(bench.model.requests().len() <= 4);
            Ok(())
        })?;
    }

    #[test]
    fn extraction_never_panics_and_finds_only_containers(text in ".{0,300}") {
        if let Ok(found) = extract_json(&text) {
            prop_assert!(found.value.is_object() || found.value.is_array());
        }
    }

    #[test]
    fn any_object_survives_a_fence_with_text_around_it(value in any_json(), before in "[^{`]{0,40}", after in "[^`]{0,40}") {
        let object = json!({ "value": value });
        let text = format!("{before}\n```json\n{object}\n```\n{after}");
        let found = extract_json(&text).map(|found| found.value);
        let expected: Value = serde_json::from_str(&object.to_string()).unwrap();
        prop_assert_eq!(found, Ok(expected));
    }
}

#[test]
fn very_deep_json_is_an_error_and_no_overflow() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let deep = format!("{{\"done\":true,\"message\":{}", "[".repeat(2_000_000));
        let script = (0..4).fold(Script::new(), |script, _| {
            script.then(Reply::body(deep.clone()))
        });
        let bench = Bench::new(script);
        let client: &OllamaClient = &bench.client;
        assert!(
            client
                .chat(&text(), &CancellationToken::new())
                .await
                .is_err()
        );
    });
}
