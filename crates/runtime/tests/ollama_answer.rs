//! What comes back: OLL-10, OLL-13, AT-17, and "Survive these" 1 to 6 and 9.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ollama_support;

use ollama_support::*;
use runtime::ollama::{AnswerNote, ChatAnswer, ChatRequest, DoneReason, ExtractProblem, Usage};
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{Answer, Reply, Script};

async fn answer(reply: impl Into<Reply>, request: &ChatRequest) -> ChatAnswer {
    Bench::answer(Script::new().then(reply), request).await
}

/// Names and arguments of the calls, in order.
fn calls(answer: &ChatAnswer) -> Vec<(&str, Value)> {
    answer
        .tool_calls
        .iter()
        .map(|call| (call.wire_name.as_str(), call.arguments.clone()))
        .collect()
}

#[tokio::test]
async fn at_17_oll_13_counts_and_times_are_reported() {
    let answer = answer(Answer::text("hello").usage(321, 45), &text()).await;
    assert_eq!(
        answer.usage,
        Usage {
            input: Some(321),
            output: Some(45)
        }
    );
    assert_eq!(answer.durations.total, Some(Duration::from_millis(3)));
    assert_eq!(answer.done_reason, Some(DoneReason::Stop));
    assert_eq!((answer.content.as_str(), answer.notes.len()), ("hello", 0));
    assert_eq!(answer.raw["model"], "scripted:latest");
}

#[tokio::test]
async fn at_17_a_missing_count_is_unknown_and_not_zero() {
    let missing = answer(Answer::text("x").without_usage(), &text()).await;
    assert_eq!(
        missing.usage,
        Usage {
            input: None,
            output: None
        }
    );
    assert_eq!(missing.notes, [AnswerNote::UsageUnknown]);
    let half = answer(Answer::text("x").without("prompt_eval_count"), &text()).await;
    assert_eq!(
        half.usage,
        Usage {
            input: None,
            output: Some(20)
        }
    );
    let odd = answer(Answer::text("x").set("", "eval_count", json!(-5)), &text()).await;
    assert_eq!(odd.usage.output, None);
    let zero = answer(Answer::text("x").usage(0, 0), &text()).await;
    assert_eq!(
        zero.usage,
        Usage {
            input: Some(0),
            output: Some(0)
        }
    );
}

#[tokio::test]
async fn oll_10_a_call_comes_with_its_catalogue_name() {
    let reply = Answer::call(
        "manage_directory",
        json!({"path": "a", "operation": "list"}),
    );
    let answer = answer(
        reply.set("/message/tool_calls/0", "id", json!("call_x")),
        &with_tools(),
    )
    .await;
    assert_eq!(answer.tool_calls[0].catalogue, Some("dir"));
    assert_eq!(answer.tool_calls[0].id, "call_x");
    assert!(answer.notes.is_empty());
}

#[tokio::test]
async fn content_and_calls_can_come_together() {
    let reply = Answer::text("I will look.").and_call("file_read", json!({"path": "a"}));
    let answer = answer(reply, &with_tools()).await;
    assert_eq!(
        (answer.content.as_str(), answer.tool_calls.len()),
        ("I will look.", 1)
    );
}

#[tokio::test]
async fn survive_1_a_call_in_the_content_is_recovered() {
    let expected = [("file_read", json!({"path": "a.rs"}))];
    for content in [
        r#"{"name": "file_read", "arguments": {"path": "a.rs"}}"#,
        "```json\n{\"name\": \"file_read\", \"arguments\": {\"path\": \"a.rs\"}}\n```",
        "\n```\n{\"arguments\": {\"path\": \"a.rs\"}, \"name\": \"file_read\"}\n```\n",
        r#"{"name": "file_read", "arguments": "{\"path\": \"a.rs\"}"}"#,
    ] {
        let answer = answer(Answer::text(content), &with_tools()).await;
        assert_eq!(calls(&answer), expected, "{content}");
        assert_eq!(answer.content, "");
        assert_eq!(answer.notes[0], AnswerNote::CallInContent);
    }
    let by_catalogue = r#"{"name": "dir", "arguments": {"path": "a", "operation": "list"}}"#;
    let answer = answer(Answer::text(by_catalogue), &with_tools()).await;
    assert_eq!(answer.tool_calls[0].wire_name, "manage_directory");
    assert!(answer.notes.contains(&AnswerNote::CatalogueNameUsed("dir")));
}

#[tokio::test]
async fn survive_1_what_only_looks_like_a_call_stays_text() {
    for content in [
        r#"I call {"name": "file_read", "arguments": {"path": "a.rs"}}"#,
        r#"{"name": "launch_rocket", "arguments": {"path": "a.rs"}}"#,
        r#"{"name": "file_read", "arguments": {"path": "a.rs"}, "version": 1}"#,
        r#"{"name": "file_read"}"#,
        r#"[{"name": "file_read", "arguments": {}}]"#,
        "```\n{\"name\": \"file_read\", \"arguments\": {}}\n```\nand\n```\nmore\n```",
        r#"{"name": "file_read", "arguments": {"path": "a.rs"}"#,
    ] {
        let answer = answer(Answer::text(content), &with_tools()).await;
        assert_eq!(
            (answer.content.as_str(), answer.tool_calls.len()),
            (content, 0)
        );
    }
    let call = r#"{"name": "file_read", "arguments": {"path": "a.rs"}}"#;
    assert!(
        answer(Answer::text(call), &text())
            .await
            .tool_calls
            .is_empty(),
        "no tools were offered"
    );
}

#[tokio::test]
async fn survive_3_a_call_without_arguments_is_an_empty_object() {
    let mut body = Answer::call("file_read", json!({})).into_value();
    body["message"]["tool_calls"][0]["function"]
        .as_object_mut()
        .unwrap()
        .remove("arguments");
    let answer = answer(Reply::json(200, &body), &with_tools()).await;
    assert_eq!(calls(&answer), [("file_read", json!({}))]);
    assert_eq!(
        answer.notes,
        [AnswerNote::ArgumentsMissing("file_read".into())]
    );
}

#[tokio::test]
async fn survive_4_arguments_as_text_and_numbers_as_text_are_read() {
    let as_text = answer(
        Answer::call("file_read", json!("{\"path\":\"a\"}")),
        &with_tools(),
    )
    .await;
    assert_eq!(calls(&as_text), [("file_read", json!({"path": "a"}))]);
    assert_eq!(
        as_text.notes,
        [AnswerNote::ArgumentsWereText("file_read".into())]
    );

    let arguments = json!({"path": "5", "start": "12", "whole": "true", "lines": "[\"a\"]", "note": "7", "end": "3"});
    let numbers = answer(Answer::call("file_read", arguments), &with_tools()).await;
    let read =
        json!({"path": "5", "start": 12, "whole": true, "lines": ["a"], "note": "7", "end": 3});
    assert_eq!(calls(&numbers), [("file_read", read)]);
    assert_eq!(numbers.notes.len(), 4);

    let hopeless = answer(
        Answer::call("file_read", json!({"path": "a", "start": "a dozen"})),
        &with_tools(),
    )
    .await;
    assert_eq!(
        calls(&hopeless),
        [("file_read", json!({"path": "a", "start": "a dozen"}))],
        "our parser refuses it"
    );
}

#[tokio::test]
async fn survive_2_4_an_unknown_tool_stays_unknown() {
    let answer = answer(
        Answer::call("list_directory", json!({"path": "a"})),
        &with_tools(),
    )
    .await;
    assert_eq!(answer.tool_calls[0].catalogue, None);
    assert_eq!(
        answer.notes,
        [AnswerNote::UnknownTool("list_directory".into())]
    );
    let valid: Vec<&str> = tools().wires().wire_names().collect();
    assert_eq!(
        valid,
        ["manage_directory", "file_read"],
        "for the answer to the model"
    );
}

#[tokio::test]
async fn survive_4_many_calls_keep_their_array_order_and_identical_ones_are_one() {
    let mut reply =
        Answer::call("file_read", json!({"path": "b"})).and_call("file_read", json!({"path": "a"}));
    for _ in 0..8 {
        reply = reply.and_call("file_read", json!({"path": "b"}));
    }
    // A server may number them as it likes; only the position counts.
    let reply = reply.set("/message/tool_calls/0/function", "index", json!(9));
    let answer = answer(reply, &with_tools()).await;
    assert_eq!(
        calls(&answer),
        [
            ("file_read", json!({"path": "b"})),
            ("file_read", json!({"path": "a"}))
        ]
    );
    assert_eq!(answer.notes, [AnswerNote::DuplicateCalls(8)]);
    let ids: Vec<&str> = answer
        .tool_calls
        .iter()
        .map(|call| call.id.as_str())
        .collect();
    assert_eq!(ids, ["call_0", "call_1"]);
}

#[tokio::test]
async fn ids_are_unique_in_the_whole_conversation() {
    let bench = Bench::new(
        Script::new()
            .then(Answer::call("file_read", json!({"path": "a"})))
            .then(
                Answer::call("file_read", json!({"path": "b"}))
                    .and_call("file_read", json!({"path": "c"}))
                    .set("/message/tool_calls/0", "id", json!("same"))
                    .set("/message/tool_calls/1", "id", json!("same")),
            ),
    );
    let mut request = with_tools();
    let first = bench.chat(&request).await.unwrap();
    request.messages.push(first.to_message());
    let second = bench.chat(&request).await.unwrap();
    bench.model.assert_finished();
    let ids = |answer: &ChatAnswer| {
        answer
            .tool_calls
            .iter()
            .map(|call| call.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (ids(&first), ids(&second)),
        (vec!["call_0".into()], vec!["same".into(), "call_2".into()])
    );
}

#[tokio::test]
async fn survive_5_structured_output_is_extracted() {
    let fenced = answer(
        Answer::text("Here:\n```json\n{\"tasks\": []}\n```"),
        &structured(),
    )
    .await;
    assert_eq!(fenced.structured().unwrap().value, json!({"tasks": []}));
    let none = answer(Answer::text("I cannot plan that."), &structured()).await;
    assert_eq!(none.structured(), Err(ExtractProblem::NoJson));
}

#[tokio::test]
async fn survive_6_thinking_only_and_cut_off_is_an_answer_that_says_so() {
    let reply = Answer::text("").thinking("on and on").done_reason("length");
    let answer = answer(reply, &with_tools()).await;
    assert!(answer.is_cut_off() && answer.content.is_empty() && answer.tool_calls.is_empty());
    assert_eq!(answer.notes, [AnswerNote::CutOff, AnswerNote::ThinkingOnly]);
}

#[tokio::test]
async fn survive_6_leaked_thinking_is_no_content() {
    let answer = answer(
        Answer::text("let me see\n</think>\n\n{\"tasks\": []}"),
        &structured(),
    )
    .await;
    assert_eq!(answer.content, "{\"tasks\": []}");
    assert_eq!(answer.notes, [AnswerNote::ThinkingInContent]);
    assert!(
        !answer.raw.to_string().contains("let me see"),
        "DESIGN §6.2"
    );
    assert_eq!(answer.structured().unwrap().value, json!({"tasks": []}));
}

#[tokio::test]
async fn survive_9_complete_json_of_a_cut_answer_counts() {
    let complete = answer(
        Answer::text("{\"tasks\": []}\n\n\n\n").done_reason("length"),
        &structured(),
    )
    .await;
    assert_eq!(complete.structured().unwrap().value, json!({"tasks": []}));
    let cut = answer(
        Answer::text("{\"tasks\": [{\"id\": \"t1\"},").done_reason("length"),
        &structured(),
    )
    .await;
    assert_eq!(cut.structured(), Err(ExtractProblem::CutOff));
}

#[tokio::test]
async fn fields_of_another_type_are_left_out_and_noted() {
    let reply = Answer::text("")
        .set("/message", "content", json!(["a"]))
        .set("/message", "thinking", json!(1))
        .set("/message", "tool_calls", json!("none"))
        .set("", "done_reason", json!({}))
        .set("", "total_duration", json!("long"));
    let answer = answer(reply, &with_tools()).await;
    let ignored = [
        "message.thinking",
        "message.content",
        "message.tool_calls",
        "done_reason",
    ];
    let expected = ignored
        .map(AnswerNote::FieldIgnored)
        .into_iter()
        .chain([AnswerNote::Empty]);
    assert_eq!(answer.notes, expected.collect::<Vec<_>>());
    let nameless = Answer::text("")
        .and_call("", json!({}))
        .and_call("file_read", json!({"path": "a"}));
    let nameless = Bench::answer(Script::new().then(nameless), &with_tools()).await;
    assert_eq!(
        (nameless.tool_calls.len(), nameless.notes),
        (1, vec![AnswerNote::UnreadableCall])
    );
}

#[tokio::test]
async fn an_unknown_done_reason_is_kept() {
    let answer = answer(Answer::text("x").done_reason("moderation"), &text()).await;
    assert_eq!(
        answer.done_reason,
        Some(DoneReason::Other("moderation".into()))
    );
}
