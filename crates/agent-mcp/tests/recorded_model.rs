//! The recorded model through the product's own Ollama client, over real HTTP (X-MODEL).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use agent_mcp::recorded::{Kind, RecordedModel, RunningModel, Served, serve};
use policy::Code;
use policy::config::{KeepAlive, OllamaOptions, Think};
use runtime::ollama::{
    ChatMessage, ChatRequest, OllamaClient, OllamaSettings, RequestOptions, Shape, ToolDefinition,
    ToolSet, ToolWire, ToolWires,
};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

async fn running(model: RecordedModel) -> RunningModel {
    serve(model, "127.0.0.1:0".parse().unwrap()).await.unwrap()
}

async fn general() -> RunningModel {
    running(RecordedModel::general().unwrap()).await
}

fn client(model: &RunningModel, name: &str) -> OllamaClient {
    OllamaClient::new(OllamaSettings {
        endpoint: model.endpoint.clone(),
        model: name.to_owned(),
        keep_alive: KeepAlive::Seconds(60),
        connect_timeout: Duration::from_secs(5),
        deadline: Duration::from_secs(30),
    })
    .unwrap()
}

fn request(shape: Shape, messages: Vec<ChatMessage>) -> ChatRequest {
    let known = OllamaOptions {
        num_ctx: 8192,
        num_predict: 4096,
        num_batch: None,
        num_gpu: None,
        main_gpu: None,
        use_mmap: None,
        num_thread: None,
        draft_num_predict: None,
        num_keep: None,
        seed: None,
        top_k: None,
        top_p: None,
        min_p: None,
        typical_p: None,
        repeat_last_n: None,
        temperature: None,
        repeat_penalty: None,
        presence_penalty: None,
        frequency_penalty: None,
        stop: None,
    };
    let options = RequestOptions {
        known,
        extra: Map::new(),
    };
    ChatRequest {
        messages,
        shape,
        think: Think::Switch(false),
        options,
    }
}

fn tools(wire: &'static str) -> Shape {
    let parameters = json!({"type": "object", "required": ["path", "operation"], "properties": {
        "path": {"type": "string"}, "operation": {"type": "string"}, "content": {"type": "string"}}});
    let wires = ToolWires::new(&[ToolWire {
        catalogue: "file_edit",
        wire,
    }])
    .unwrap();
    let definition = ToolDefinition {
        catalogue: "file_edit",
        description: "edit",
        parameters: &parameters,
    };
    Shape::Tools(ToolSet::new(&[definition], &wires).unwrap())
}

fn plan_shape() -> Shape {
    Shape::Structured(json!({"type": "object"}))
}

fn system() -> ChatMessage {
    ChatMessage::System("You create files with tools, you never create risk.".into())
}

async fn ask(
    client: &OllamaClient,
    request: &ChatRequest,
) -> Result<runtime::ollama::ChatAnswer, Code> {
    client
        .chat(request, &CancellationToken::new())
        .await
        .map_err(|fault| fault.code())
}

/// A whole run by hand; gives the path and the content that the model wants written, and its last words.
async fn run(client: &OllamaClient, goal: &str, result: &str) -> (Value, String) {
    let planned = ask(
        client,
        &request(plan_shape(), vec![system(), ChatMessage::user(goal)]),
    )
    .await
    .unwrap();
    let plan = planned.structured().unwrap().value;
    assert_eq!(plan["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(plan["tasks"][0]["required_tools"], json!(["file_edit"]));
    let task = plan["tasks"][0]["description"].as_str().unwrap();

    let closing = ChatMessage::user(format!("Current Task t1: {task}"));
    let mut acting = request(
        tools("file_edit"),
        vec![system(), ChatMessage::user(goal), closing],
    );
    let call = ask(client, &acting).await.unwrap();
    assert!(
        call.usage.input.unwrap() > 20 && call.usage.output.unwrap() > 5,
        "real counts"
    );
    acting.messages.push(call.to_message());
    acting
        .messages
        .push(ChatMessage::result_of(&call.tool_calls[0], result));
    let said = ask(client, &acting).await.unwrap();
    assert!(said.tool_calls.is_empty());
    (call.tool_calls[0].arguments.clone(), said.content)
}

#[tokio::test]
async fn x_model_any_number_of_runs_create_their_own_file() {
    let model = general().await;
    let client = client(&model, &model.model);
    for (goal, path, content) in [
        (
            "Create hello.txt containing the word hello.",
            "hello.txt",
            "hello\n",
        ),
        (
            "please create the file \"my notes/a b.md\" containing the word 'ok'",
            "my notes/a b.md",
            "ok\n",
        ),
        (
            "Create a file named /tmp/w/x.txt with the word Grüße!",
            "/tmp/w/x.txt",
            "Grüße\n",
        ),
        ("write the word {{file}} into y.txt", "y.txt", "{{file}}\n"),
        ("write the word z into {{word}}", "{{word}}", "z\n"),
    ] {
        let (arguments, said) = run(&client, goal, "wrote 6 bytes; nothing FAILED").await;
        assert_eq!(
            arguments,
            json!({"path": path, "operation": "overwrite", "content": content}),
            "{goal}"
        );
        assert!(said.contains("contains the word"), "{said}");
    }
    let (_, said) = run(
        &client,
        "Create a.txt containing the word b",
        "DENIED policy.path_denied\ntarget: a.txt",
    )
    .await;
    assert!(
        said.contains("could not be created"),
        "a refusal is not reported as success"
    );
    let entries = model.transcript.entries();
    assert_eq!(entries.len(), 18);
    assert_eq!(
        (entries[0].kind, entries[0].exchange.as_deref()),
        (Some(Kind::Plan), Some("plan one Task"))
    );
    model.stop().await.unwrap();
}

#[tokio::test]
async fn an_unknown_prompt_is_an_error_that_names_it() {
    let model = general().await;
    let client = client(&model, "recorded");
    let unknown = request(
        plan_shape(),
        vec![system(), ChatMessage::user("Prove P = NP.")],
    );
    let fault = client
        .chat(&unknown, &CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(fault.code(), Code::OllamaRejected);
    let body = &fault.kind.received().unwrap().body;
    assert!(
        body.contains("plan request") && body.contains("Prove P = NP."),
        "{body}"
    );
    let entry = Served {
        kind: Some(Kind::Plan),
        exchange: None,
        status: 500,
        prompt_tokens: 18,
        answer_tokens: 0,
    };
    let served = model.transcript.entries().remove(0);
    assert_eq!(
        Served {
            prompt_tokens: 18,
            ..served
        },
        entry
    );
}

#[tokio::test]
async fn it_refuses_what_ollama_refuses() {
    let model = general().await;
    let hello = || vec![ChatMessage::user("hello")];
    let here = client(&model, "recorded:latest");
    assert_eq!(
        ask(&client(&model, "llama3"), &request(Shape::Text, hello()))
            .await
            .unwrap_err(),
        Code::OllamaModelMissing
    );
    let mut thinking = request(Shape::Text, hello());
    thinking.think = Think::Switch(true);
    assert_eq!(
        ask(&here, &thinking).await.unwrap_err(),
        Code::OllamaThinkingUnsupported
    );
    let image = ChatMessage::User {
        content: "look".into(),
        images: vec!["QUJD".into()],
    };
    assert_eq!(
        ask(&here, &request(Shape::Text, vec![image]))
            .await
            .unwrap_err(),
        Code::OllamaVisionUnsupported
    );
    let long = vec![ChatMessage::user("word ".repeat(10_000))];
    assert_eq!(
        ask(&here, &request(Shape::Text, long)).await.unwrap_err(),
        Code::OllamaContextExceeded
    );
    let load = ask(&here, &request(Shape::Text, Vec::new())).await.unwrap();
    assert_eq!(load.done_reason, Some(runtime::ollama::DoneReason::Load));
}

#[tokio::test]
async fn a_call_that_is_not_offered_is_an_error_of_the_recording() {
    let model = general().await;
    let goal = ChatMessage::user("Create a.txt containing the word b");
    let acting = request(tools("edit_some_file"), vec![goal]);
    let fault = client(&model, "recorded")
        .chat(&acting, &CancellationToken::new())
        .await
        .unwrap_err();
    assert!(fault.kind.received().unwrap().body.contains("offers only"));
}

#[tokio::test]
async fn it_says_what_it_is() {
    let model = general().await;
    let client = client(&model, "recorded");
    assert!(client.version().await.unwrap().contains("recorded"));
    assert_eq!(client.tags().await.unwrap()[0].name, "recorded:latest");
    assert_eq!(client.ps().await.unwrap()[0].context_length, Some(32_768));
    let details = client.show("recorded:latest").await.unwrap();
    let capabilities = details.capabilities.unwrap();
    assert!(capabilities.tools && !capabilities.vision);
    assert_eq!(details.context_length, Some(32_768));
    assert_eq!(
        client.show("other").await.unwrap_err().code(),
        Code::OllamaModelMissing
    );
}

#[tokio::test]
async fn answers_follow_the_current_task_and_its_own_results() {
    let recording = r#"{
        "model": "two", "captures": ["Workspace: {workspace*}"],
        "exchanges": [
            {"name": "a0", "when": {"kind": "act", "task": "do A", "results": 0, "captured": ["workspace"]},
             "answer": {"content": "looking", "calls": [{"name": "file_edit", "arguments": {"path": "{{workspace}}/a"}}]}},
            {"name": "a1", "when": {"kind": "act", "task": "do A", "last_result_contains": "fine"}, "answer": {"content": "A done"}},
            {"name": "b0", "when": {"kind": "act", "task": "do B", "results": 0}, "answer": {"content": "B at once"}},
            {"name": "t", "when": {"kind": "text", "contains": ["summary", "please"]}, "answer": {"content": "short"}}
        ]}"#;
    let model = running(
        RecordedModel::load(recording)
            .unwrap()
            .or(RecordedModel::general().unwrap()),
    )
    .await;
    let client = client(&model, "two");
    let overview = ChatMessage::System("Workspace: /tmp/my box\nTasks: do A, do B".into());
    let mut acting = request(
        tools("file_edit"),
        vec![overview, ChatMessage::user("Current Task: do A")],
    );
    let first = ask(&client, &acting).await.unwrap();
    assert_eq!(first.content, "looking");
    assert_eq!(
        first.tool_calls[0].arguments,
        json!({"path": "/tmp/my box/a"})
    );
    acting.messages.push(first.to_message());
    acting
        .messages
        .push(ChatMessage::result_of(&first.tool_calls[0], "fine"));
    acting
        .messages
        .push(ChatMessage::System("Observation: keep going".into()));
    assert_eq!(ask(&client, &acting).await.unwrap().content, "A done");
    acting
        .messages
        .push(ChatMessage::user("Current Task: do B"));
    assert_eq!(
        ask(&client, &acting).await.unwrap().content,
        "B at once",
        "results of A do not count"
    );
    let summary = request(Shape::Text, vec![ChatMessage::user("a summary, please")]);
    assert_eq!(ask(&client, &summary).await.unwrap().content, "short");
    let (arguments, _) = run(&client, "Create c.txt containing the word d", "ok").await;
    assert_eq!(arguments["path"], "c.txt", "the fallback answers the rest");
}

#[tokio::test]
async fn only_loopback_is_listened_on_and_stopping_frees_the_port() {
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let refused = serve(RecordedModel::general().unwrap(), everywhere)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    let model = general().await;
    let address = *model
        .endpoint
        .socket_addrs(|| None)
        .unwrap()
        .first()
        .unwrap();
    model.stop().await.unwrap();
    drop(std::net::TcpListener::bind(address).unwrap());
}
