//! Both eras on one transport: handshake and self-describing requests.

use crate::client::{Client, modern, text_of};
use crate::fake::Fake;
use serde_json::{Value, json};

fn hello(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
}

/// AT-01, MCP-TR-01, AT-04: initialize, agent_run, agent_status.
#[tokio::test]
async fn at_01_initialize_run_status() {
    let fake = Fake::default();
    let mut client = Client::handshaken(&fake).await;
    let text = client
        .text("agent_run", json!({"request": "tidy up"}))
        .await;
    let task_id = text
        .lines()
        .next()
        .unwrap()
        .strip_prefix("task_id: ")
        .unwrap()
        .to_owned();
    let status = client
        .text("agent_status", json!({"task_id": task_id}))
        .await;
    assert!(
        status.starts_with(&format!("task_id: {task_id}\nsession_id: ")),
        "{status}"
    );
    assert!(status.contains("\nstatus: queued\n"), "{status}");
}

/// A version that nobody knows gets the latest one with a handshake, never an echo.
#[tokio::test]
async fn an_unknown_version_gets_the_latest_with_a_handshake() {
    for (asked, given) in [
        ("2099-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1.0", "2025-11-25"),
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2024-11-05", "2024-11-05"),
    ] {
        let mut client = Client::start(&Fake::default());
        let reply = client.ask("initialize", hello(asked)).await;
        assert_eq!(reply["result"]["protocolVersion"], given, "{asked}");
    }
}

/// Clients do not wait for `notifications/initialized` to be processed; some never send it.
#[tokio::test]
async fn tools_list_works_right_after_initialize() {
    let mut client = Client::start(&Fake::default());
    client.ask("initialize", hello("2025-11-25")).await;
    assert_eq!(
        client.ask("tools/list", json!({})).await["result"]["tools"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn ping_works_before_and_after_the_handshake() {
    let mut client = Client::start(&Fake::default());
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
    client.initialize().await;
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
}

/// A probe of 2026-07-28 is answered, and either era can follow it.
#[tokio::test]
async fn a_discover_probe_leaves_both_eras_open() {
    let mut legacy = Client::start(&Fake::default());
    let reply = legacy
        .ask("server/discover", json!({"_meta": modern()}))
        .await;
    let versions = reply["result"]["supportedVersions"].as_array().unwrap();
    assert!(
        versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2025-11-25")),
        "{reply}"
    );
    assert_eq!(
        reply["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "agent-mcp"
    );
    legacy.initialize().await;
    assert_eq!(legacy.ask("ping", json!({})).await["result"], json!({}));

    let mut current = Client::start(&Fake::default());
    current
        .ask("server/discover", json!({"_meta": modern()}))
        .await;
    let call = json!({"name": "agent_run", "arguments": {"request": "a"}, "_meta": modern()});
    let reply = current.ask("tools/call", call).await;
    assert_eq!(reply["result"]["resultType"], "complete");
    assert!(text_of(&reply).contains("status: queued"));
}

/// A probe without `_meta`, and a probe of an old client that the server does not know, are refused and nothing dies.
#[tokio::test]
async fn a_broken_probe_is_refused_and_the_handshake_still_works() {
    let mut client = Client::start(&Fake::default());
    assert_eq!(
        client.ask("server/discover", json!({})).await["error"]["code"],
        -32602
    );
    let mut meta = modern();
    meta["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
    let reply = client.ask("tools/list", json!({"_meta": meta})).await;
    assert_eq!(reply["error"]["code"], -32022, "{reply}");
    assert_eq!(reply["error"]["data"]["requested"], "2099-01-01");
    client.initialize().await;
    assert!(client.ask("tools/list", json!({})).await["result"]["tools"].is_array());
}

/// M-1: what comes before the first request and needs no answer is ignored.
#[tokio::test]
async fn m_1_notifications_and_responses_before_the_lifecycle_are_ignored() {
    let mut client = Client::start(&Fake::default());
    for message in [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
        json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}),
        json!({"jsonrpc": "2.0", "method": "$/setTrace", "params": {"value": "off"}}),
        json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
        json!({"jsonrpc": "2.0", "id": 5, "error": {"code": 1, "message": "m"}}),
        json!({"jsonrpc": "2.0", "error": {"code": 1, "message": "m"}}),
    ] {
        client.send(&message).await;
    }
    client.initialize().await;
    assert!(client.ask("tools/list", json!({})).await["result"]["tools"].is_array());
}

/// M-11: after a request of 2026-07-28 a handshake is refused clearly, and the era goes on.
#[tokio::test]
async fn m_11_a_handshake_after_a_modern_request_is_refused() {
    let mut client = Client::start(&Fake::default());
    client.ask("tools/list", json!({"_meta": modern()})).await;
    let reply = client.ask("initialize", hello("2025-11-25")).await;
    assert_eq!(reply["error"]["code"], -32601, "{reply}");
    assert_eq!(
        client.ask("ping", json!({"_meta": modern()})).await["error"]["code"],
        -32601
    );
    assert_eq!(
        client.ask("tools/list", json!({})).await["error"]["code"],
        -32602,
        "no _meta"
    );
    assert!(
        client.ask("tools/list", json!({"_meta": modern()})).await["result"]["tools"].is_array()
    );
}

/// A second handshake works, and a request that describes itself works in a handshaken session too.
#[tokio::test]
async fn a_handshaken_session_takes_both() {
    let mut client = Client::handshaken(&Fake::default()).await;
    assert_eq!(
        client.initialize().await["result"]["protocolVersion"],
        "2025-11-25"
    );
    assert!(
        client.ask("tools/list", json!({"_meta": modern()})).await["result"]["tools"].is_array()
    );
    assert!(client.ask("tools/list", json!({})).await["result"]["tools"].is_array());
}

/// M-5: parameters of the wrong shape are -32602, and so is a tool that does not exist.
#[tokio::test]
async fn m_5_wrong_parameter_shapes_are_invalid_params() {
    let mut client = Client::handshaken(&Fake::default()).await;
    for params in [
        json!([]),
        json!("agent_run"),
        json!(null),
        json!({}),
        json!({"name": 5}),
        json!({"name": "agent_run", "arguments": []}),
        json!({"name": "agent_run", "arguments": "request"}),
        json!({"name": "agent_run", "arguments": 1}),
        json!({"name": "agent_run", "arguments": {"request": "a"}, "_meta": 7}),
        json!({"name": "file_read", "arguments": {"path": "/etc/passwd"}}),
        json!({"name": "Agent_Run", "arguments": {"request": "a"}}),
    ] {
        let reply = client.ask("tools/call", params.clone()).await;
        assert_eq!(reply["error"]["code"], -32602, "{params}: {reply}");
    }
    client
        .bytes("{\"jsonrpc\":\"2.0\",\"id\":\"bare\",\"method\":\"tools/call\"}\n")
        .await;
    let reply = client.line().await;
    assert_eq!(
        (&reply["id"], &reply["error"]["code"]),
        (&json!("bare"), &json!(-32602))
    );
    assert_eq!(
        client.ask("tools/list", json!([1])).await["error"]["code"],
        -32602
    );
}

/// M-7: a client of 2025-11-25 that wants a task gets a plain result.
#[tokio::test]
async fn m_7_an_old_client_never_gets_a_task() {
    let mut client = Client::handshaken(&Fake::default()).await;
    let call = json!({"name": "agent_run", "arguments": {"request": "a"}, "task": {"ttl": 60000}});
    let reply = client.ask("tools/call", call).await;
    assert_eq!(reply["result"].get("resultType"), None, "{reply}");
    assert!(text_of(&reply).contains("status: queued"));
}
