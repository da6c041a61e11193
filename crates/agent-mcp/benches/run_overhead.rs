//! P-4: what the server itself costs in a run of 20 tool calls, fsyncs included: the run's wall time minus the time of the
//! same number of bare requests to the same recorded model. Target: at most 5 ms a tool call.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(clippy::disallowed_macros, reason = "a bench prints its figures")]

use agent_mcp::compose::compose;
use agent_mcp::deployment::{Deployment, Narrowing, read_configuration};
use agent_mcp::locale::Locale;
use agent_mcp::recorded::{RecordedModel, serve};
use runtime::service::{ClientId, RunEvent, RunRequest, RunState};
use std::time::{Duration, Instant};

const CALLS: usize = 20;
const ROUNDS: usize = 15;

fn recording() -> String {
    let mut exchanges = vec![serde_json::json!({
        "name": "plan", "when": {"kind": "plan"},
        "answer": {"json": {"tasks": [{
            "id": "t1", "description": "bench step", "depends_on": [], "budget_class": "128K",
            "optimistic_tokens": 300, "most_likely_tokens": 800, "pessimistic_tokens": 2000,
            "requires_external_effect": true, "required_tools": ["file_edit"],
        }]}},
    })];
    for call in 0..CALLS {
        // Half edits (journal, fsync, audit), half reads.
        let call_json = if call % 2 == 0 {
            serde_json::json!({"name": "file_edit", "arguments": {"path": format!("f{call}.txt"), "operation": "overwrite", "content": "x\n"}})
        } else {
            serde_json::json!({"name": "file_read", "arguments": {"path": format!("f{}.txt", call - 1), "mode": "whole"}})
        };
        exchanges.push(serde_json::json!({
            "name": format!("call {call}"), "when": {"kind": "act", "results": call}, "answer": {"calls": [call_json]},
        }));
    }
    exchanges.push(serde_json::json!({
        "name": "done", "when": {"kind": "act", "results_at_least": CALLS}, "answer": {"content": "done"},
    }));
    exchanges.push(serde_json::json!({"name": "answer", "when": {"kind": "text"}, "answer": {"content": "done"}}));
    serde_json::json!({"model": "bench:latest", "exchanges": exchanges}).to_string()
}

fn main() {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let model = tokio
        .block_on(serve(
            RecordedModel::load(&recording()).unwrap(),
            "127.0.0.1:0".parse().unwrap(),
        ))
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    std::fs::create_dir(base.join("ws")).unwrap();
    std::fs::write(
        base.join("agent.yaml"),
        format!(
            "schema_version: 2\nollama: {{ endpoint: \"{}\", model: \"bench:latest\" }}\nsandbox: {{ workspaces: [ws] }}\nstate: {{ directory: state }}\nguard: {{ max_tool_calls_per_task: 100 }}\n",
            model.endpoint
        ),
    )
    .unwrap();
    let deployment = Deployment::of(
        read_configuration(&base.join("agent.yaml")).unwrap(),
        &Narrowing::default(),
    )
    .unwrap();
    let running = tokio.block_on(async {
        compose(
            &deployment,
            &Locale::built_in("en"),
            std::sync::Arc::new(policy::NothingApplied),
        )
        .unwrap()
        .start()
        .unwrap()
    });
    let service = running.service();
    let mut runs = Vec::new();
    let mut model_calls = 0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let status = tokio.block_on(async {
            let submitted = service
                .submit(RunRequest {
                    request: "bench".to_owned(),
                    session_id: None,
                    temperature: None,
                    images: Vec::new(),
                    client: ClientId(0),
                    cwd: None,
                })
                .await
                .unwrap();
            let mut events = service.subscribe(submitted.run_id).await;
            loop {
                match events.recv().await {
                    Some(RunEvent::Finished(status)) => return status,
                    Some(_) => {}
                    None => panic!("no end"),
                }
            }
        });
        assert_eq!(status.state, RunState::Completed, "{status:?}");
        model_calls = status.iterations;
        runs.push(start.elapsed());
    }
    // The same number of exchanges without the server around them.
    let mut bare = Vec::new();
    let client = runtime::ollama::OllamaClient::new(runtime::ollama::OllamaSettings::from_config(
        &deployment.config.as_ref().unwrap().ollama,
    ))
    .unwrap();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        tokio.block_on(async {
            for _ in 0..model_calls {
                client.version().await.unwrap();
            }
        });
        bare.push(start.elapsed());
    }
    tokio.block_on(running.stop()).unwrap();
    runs.sort();
    bare.sort();
    let median = |values: &[Duration]| values[values.len() / 2];
    let overhead = median(&runs).saturating_sub(median(&bare)).as_secs_f64() * 1e3 / CALLS as f64;
    println!(
        "run of {CALLS} tool calls, {model_calls} model calls: median {:?}, min {:?}",
        median(&runs),
        runs[0]
    );
    println!(
        "the same number of bare round trips: median {:?}",
        median(&bare)
    );
    println!("overhead per tool call: {overhead:.2} ms (target 5)");
}
