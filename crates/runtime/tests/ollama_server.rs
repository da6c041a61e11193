//! The small questions: version, models, capabilities (OLL-09, DESIGN §6.4).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ollama_support;

use ollama_support::*;
use policy::Code;
use runtime::ollama::Capabilities;
use serde_json::json;
use testkit::{Reply, Script};

#[tokio::test]
async fn a_server_says_what_it_is_and_has() {
    let bench =
        Bench::new(Script::new().capabilities(&["completion", "tools", "vision", "thinking"]));
    assert_eq!(bench.client.version().await.unwrap(), "0.33.0");
    assert_eq!(
        bench.client.tags().await.unwrap()[0].name,
        "scripted:latest"
    );
    let loaded = bench.client.ps().await.unwrap();
    assert_eq!(
        (loaded[0].context_length, loaded[0].size_vram),
        (Some(32768), Some(0))
    );
    let details = bench.client.show("scripted:latest").await.unwrap();
    let all = Capabilities {
        completion: true,
        tools: true,
        vision: true,
        thinking: true,
    };
    assert_eq!(
        (details.capabilities, details.context_length),
        (Some(all), Some(32768))
    );
}

#[tokio::test]
async fn oll_07_show_asks_for_the_model_it_is_given() {
    let bench =
        Bench::new(Script::new().then_on("/api/show", Reply::error(404, "model 'y' not found")));
    let fault = bench.client.show("y").await.unwrap_err();
    assert_eq!(
        (fault.code(), fault.model.as_str()),
        (Code::OllamaModelMissing, "y")
    );
    assert_eq!(bench.model.requests()[0].json(), json!({"model": "y"}));
}

#[tokio::test]
async fn oll_12_questions_are_repeated_too() {
    let bench = Bench::new(
        Script::new()
            .then_on("/api/tags", Reply::Close)
            .then_on("/api/tags", Reply::body("[]")),
    );
    assert_eq!(
        bench.client.tags().await.unwrap().len(),
        1,
        "the standing answer comes third"
    );
    assert_eq!(bench.pauses.milliseconds(), [250, 500]);
    let odd = Bench::new(Script::new().then_on("/api/version", Reply::body("{\"version\":3}")));
    assert_eq!(
        odd.client.version().await.unwrap_err().code(),
        Code::OllamaBadAnswer
    );
}
