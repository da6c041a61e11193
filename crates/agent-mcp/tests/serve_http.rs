//! The MCP server over Streamable HTTP, through the real binary and raw sockets.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use serde_json::json;
use support::http::{HttpServer, tool_text};
use support::{RecordedModel, can_confine, field, text};

const REQUEST: &str = "create hello.txt containing the word hello";

/// AT-02, MCP-TR-02, REC-05, X-HTTP: both eras hand over work and poll; a finished answer, with its connection closed, ends
/// nothing.
#[test]
fn at_02_both_eras_over_http() {
    if !can_confine() {
        return;
    }
    let model = RecordedModel::start();
    let place = HttpServer::place(&model.endpoint);
    let server = HttpServer::start(place.command(&["serve"]));
    let hello = server.ask(
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "e2e", "version": "1"}}),
    );
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
    let (answer, failed) = server.call("agent_run", json!({"request": REQUEST}));
    assert!(!failed, "{answer}");
    let status = server.wait(&field(&answer, "task_id"));
    assert_eq!(field(&status, "status"), "completed", "{status}");
    assert!(place.workspace.join("hello.txt").exists());

    let reply = server.ask_modern(
        "tools/call",
        json!({"name": "agent_run", "arguments": {"request": "create b.txt containing the word hello"}}),
    );
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json()["result"]["resultType"], "complete");
    let (answer, failed) = tool_text(&reply.json());
    assert!(!failed, "{answer}");
    let status = server.wait(&field(&answer, "task_id"));
    assert_eq!(field(&status, "status"), "completed", "{status}");
    assert_eq!(server.stop(), Some(0));
    let verified = place.output(&["audit", "verify"]);
    assert!(text(&verified.stdout).contains("audit: verified"));
}
