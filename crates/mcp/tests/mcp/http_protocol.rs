//! The protocol over HTTP, both eras, as bytes on a socket.

use crate::fake::Fake;
use crate::http_client::{Http, ping, request};
use serde_json::{Value, json};

fn initialize(version: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
        {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}})
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

/// M-1: nothing has to come first, and what nobody waits for an answer to is taken.
#[tokio::test]
async fn m_1_http_a_notification_or_response_first_harms_nothing() {
    let server = Http::start(&Fake::default());
    let reply = server
        .old(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
    assert_eq!((reply.status, reply.body.len()), (202, 0));
    let reply = server
        .old(json!({"jsonrpc": "2.0", "id": 5, "result": {}}))
        .await;
    assert_eq!(reply.error(), (400, -32600, Value::Null));
    server.assert_alive().await;
}

/// M-2, M-3: a stop with nobody there is immediate, and the server's runs are stopped before it returns.
#[tokio::test]
async fn m_3_http_a_stop_stops_the_runs() {
    let fake = Fake::default();
    let server = Http::start(&fake);
    server.old(call("agent_run", json!({"request": "a"}))).await;
    assert_eq!(fake.with(|state| state.gone.clone()), []);
    server.stop().await;
    assert_eq!(fake.with(|state| state.gone.clone()), [mcp::HTTP_CLIENT]);
}

/// M-5: wrong parameter shapes are invalid parameters in both eras; what the modern era dropped is not found there.
#[tokio::test]
async fn m_5_http_wrong_shapes() {
    let server = Http::start(&Fake::default());
    for params in [
        json!([]),
        json!("text"),
        json!(5),
        json!({"name": 5}),
        json!({}),
        json!({"name": "agent_run", "arguments": []}),
        json!({"name": "agent_run", "arguments": "text"}),
        json!({"name": "agent_run", "arguments": 5}),
        json!({"name": "agent_run", "arguments": true}),
        json!({"name": "unknown"}),
    ] {
        let reply = server
            .old(json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}))
            .await;
        let (_, code, id) = reply.error();
        assert_eq!((code, id), (-32602, json!(3)), "{params} {reply:?}");
    }
    let reply = server
        .modern(
            "tools/call",
            json!({"name": "agent_run", "arguments": "text"}),
        )
        .await;
    assert_eq!(reply.error().1, -32602, "{reply:?}");
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/list",
        "no/such",
    ] {
        let reply = server.modern(method, json!({})).await;
        assert_eq!(reply.error(), (404, -32601, json!(1)), "{method} {reply:?}");
    }
    server.assert_alive().await;
}

/// M-6: what is no message is a JSON-RPC error with 400, not a text.
#[tokio::test]
async fn m_6_what_is_no_message() {
    let server = Http::start(&Fake::default());
    let nested = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"agent_run","arguments":{}}}}}"#,
        "[".repeat(50_000)
    );
    let many = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":[{}0]}}}}"#,
        "0,".repeat(200_000)
    );
    for (body, code, id) in [
        (&b""[..], -32600, Value::Null),
        (b"{", -32700, Value::Null),
        (b"nonsense", -32700, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\xff\"}", -32700, Value::Null),
        (b"\xff\xfe", -32700, Value::Null),
        (nested.as_bytes(), -32700, Value::Null),
        (many.as_bytes(), -32600, Value::Null),
        (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"agent_run","arguments":{"request":"a","temperature":NaN}}}"#, -32700, Value::Null),
        (b"[]", -32600, Value::Null),
        (br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600, Value::Null),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, Value::Null),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600, Value::Null),
        (br#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, -32600, Value::Null),
        (br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600, Value::Null),
        (br#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, -32600, Value::Null),
        (br#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"ping"}"#, -32600, Value::Null),
        (br#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, -32600, json!(7)),
        (br#"{"id":7,"method":"ping"}"#, -32600, json!(7)),
        (b"{}", -32600, Value::Null),
        (b"null", -32600, Value::Null),
        (br#"{"jsonrpc":"2.0","method":5}"#, -32600, Value::Null),
    ] {
        let reply = server.post(&[], body).await;
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        assert_eq!(reply.error(), (400, code, id), "{shown}");
    }
    server.assert_alive().await;
}

/// Ids of the types that JSON-RPC knows come back as they are; the same id twice at a time is two requests.
#[tokio::test]
async fn ids_come_back_as_they_are() {
    let server = Http::start(&Fake::default());
    for id in [
        json!(0),
        json!(-1),
        json!(i64::MAX),
        json!(""),
        json!("a"),
        json!("日本語\n"),
    ] {
        let reply = server.old(ping(id.clone())).await;
        assert_eq!((reply.status, &reply.json()["id"]), (200, &id));
    }
    let (a, b) = tokio::join!(server.old(ping(7)), server.old(ping(7)));
    assert_eq!((a.json(), b.json()), (a.json(), a.json()));
}

/// M-7, MCP-TR-04: a client of 2025-11-25 that declares tasks gets a plain result, and nothing is ever a stream.
#[tokio::test]
async fn m_7_http_an_old_client_never_gets_a_task() {
    let server = Http::start(&Fake::default());
    let mut hello = initialize("2025-11-25");
    hello["params"]["capabilities"] = json!({"tasks": {"requests": {"tools": {"call": {}}}}});
    server.old(hello).await;
    let mut message = call("agent_run", json!({"request": "a"}));
    message["params"]["task"] = json!({"ttl": 1000});
    message["params"]["_meta"] = json!({"progressToken": 1});
    let reply = server
        .post(
            &[("MCP-Protocol-Version", "2025-11-25")],
            message.to_string(),
        )
        .await;
    let result = &reply.json()["result"];
    assert_eq!(result.get("resultType"), None, "{result}");
    assert_eq!(result["isError"], false, "{result}");
}

/// M-8, AT-02: a page of somebody else's in a browser gets nowhere, whatever it asks.
#[tokio::test]
async fn m_8_http_foreign_hosts_and_origins_are_forbidden() {
    let server = Http::start(&Fake::default());
    let body = ping(1).to_string();
    for header in [
        ("Host", "evil"),
        ("Host", "evil:80"),
        ("Host", "localhost.evil"),
        ("Origin", "http://evil"),
        ("Origin", "null"),
        ("Origin", "http://localhost.evil"),
        ("Origin", "https://127.0.0.1.evil"),
    ] {
        let reply = server.post(&[header], &body).await;
        assert_eq!(reply.status, 403, "{header:?} {reply:?}");
        for method in ["GET", "OPTIONS", "DELETE"] {
            let head = format!("{method} /mcp HTTP/1.1\r\n");
            let bytes = String::from_utf8(request(&[header], b"")).unwrap();
            let bytes = bytes.replace("POST /mcp HTTP/1.1\r\n", &head);
            assert_eq!(server.exchange(bytes).await.status, 403, "{method}");
        }
    }
    for header in [("Host", "localhost:1"), ("Origin", "http://localhost:3000")] {
        let reply = server.post(&[header], &body).await;
        assert_eq!(reply.status, 200, "{header:?}");
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
}

/// M-10, AGT-06: two tools over HTTP in both eras, with schemas every client can read.
#[tokio::test]
async fn m_10_http_schemas_are_portable() {
    fn walk(value: &Value) {
        match value {
            Value::Object(object) => {
                for forbidden in ["$schema", "$ref", "$defs", "anyOf", "oneOf"] {
                    assert!(!object.contains_key(forbidden), "{value}");
                }
                assert!(
                    object.get("type").is_none_or(|kind| !kind.is_array()),
                    "{value}"
                );
                let format = object.get("format").and_then(Value::as_str);
                assert!(format.is_none_or(|format| format == "uuid"), "{value}");
                object.values().for_each(walk);
            }
            Value::Array(items) => items.iter().for_each(walk),
            _ => {}
        }
    }
    let server = Http::start(&Fake::default());
    let old = server
        .old(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))
        .await
        .json();
    let modern = server.modern("tools/list", json!({})).await.json();
    for list in [&old, &modern] {
        let tools = list["result"]["tools"].as_array().unwrap();
        let names: Vec<_> = tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["agent_run", "agent_status"]);
        for tool in tools {
            walk(&tool["inputSchema"]);
        }
    }
    assert_eq!(old["result"]["tools"], modern["result"]["tools"]);
    let modern = modern["result"].as_object().unwrap();
    assert!(modern.contains_key("ttlMs") && modern.contains_key("cacheScope"));
}

/// M-11: every request stands alone, so a handshake after a modern request works, and modern requests after it too.
#[tokio::test]
async fn m_11_http_both_eras_side_by_side() {
    let server = Http::start(&Fake::default());
    for _ in 0..2 {
        let reply = server
            .modern(
                "tools/call",
                json!({"name": "agent_run", "arguments": {"request": "a"}}),
            )
            .await;
        assert_eq!(
            reply.json()["result"]["resultType"],
            "complete",
            "{reply:?}"
        );
        let reply = server.old(initialize("2025-11-25")).await;
        assert_eq!(reply.json()["result"]["protocolVersion"], "2025-11-25");
        let reply = server.old(call("agent_run", json!({"request": "a"}))).await;
        assert_eq!(reply.json()["result"]["isError"], false, "{reply:?}");
    }
}

/// A revision that is not known is answered with the latest that has a handshake; a modern one is refused by name.
#[tokio::test]
async fn unknown_revisions() {
    let server = Http::start(&Fake::default());
    for version in ["2099-01-01", "2026-07-28", "1", ""] {
        let reply = server.old(initialize(version)).await;
        assert_eq!(
            reply.json()["result"]["protocolVersion"],
            "2025-11-25",
            "{version}"
        );
    }
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let reply = server.old(initialize(version)).await;
        assert_eq!(reply.json()["result"]["protocolVersion"], version);
    }
    let mut meta = crate::client::modern();
    meta["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}});
    let reply = server
        .post(
            &[
                ("MCP-Protocol-Version", "2099-01-01"),
                ("Mcp-Method", "tools/list"),
            ],
            body.to_string(),
        )
        .await;
    assert_eq!(reply.error(), (400, -32022, json!(1)), "{reply:?}");
    let data = &reply.json()["error"]["data"];
    assert_eq!(data["requested"], "2099-01-01");
    assert!(
        data["supported"]
            .as_array()
            .unwrap()
            .contains(&json!("2026-07-28")),
        "{data}"
    );
    // A client before 2026-07-28 names it in the header alone.
    let reply = server
        .post(
            &[("MCP-Protocol-Version", "2099-01-01")],
            ping(1).to_string(),
        )
        .await;
    assert_eq!(reply.status, 400);
}

/// 2026-07-28: the headers say what the body says, and the body says what it must.
#[tokio::test]
async fn the_headers_of_the_modern_era_must_match() {
    let server = Http::start(&Fake::default());
    let body = |meta: Value| {
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
            {"name": "agent_run", "arguments": {"request": "a"}, "_meta": meta}})
        .to_string()
    };
    let whole = body(crate::client::modern());
    let version = ("MCP-Protocol-Version", "2026-07-28");
    let (method, name) = (("Mcp-Method", "tools/call"), ("Mcp-Name", "agent_run"));
    for headers in [
        &[("MCP-Protocol-Version", "2025-11-25"), method, name][..],
        &[method, name],
        &[version, ("Mcp-Method", "tools/list"), name],
        &[version, name],
        &[version, method, ("Mcp-Name", "agent_status")],
        &[version, method],
    ] {
        let reply = server.post(headers, &whole).await;
        assert_eq!(
            reply.error(),
            (400, -32020, json!(1)),
            "{headers:?} {reply:?}"
        );
    }
    for missing in [
        json!({}),
        json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"}),
        json!({"io.modelcontextprotocol/clientCapabilities": {}}),
    ] {
        let reply = server
            .post(&[version, method, name], body(missing.clone()))
            .await;
        assert_eq!(
            reply.error(),
            (400, -32602, json!(1)),
            "{missing} {reply:?}"
        );
    }
    assert_eq!(
        server.post(&[version, method, name], &whole).await.status,
        200
    );
}

/// MCP-TR-03, MCP-TR-04, AT-03: no event stream, no transport session, no second endpoint.
#[tokio::test]
async fn mcp_tr_03_mcp_tr_04_only_post_to_one_endpoint() {
    let server = Http::start(&Fake::default());
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "FOO"] {
        let reply = server
            .exchange(format!(
                "{method} /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: a\r\nConnection: close\r\n\r\n"
            ))
            .await;
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, Some("POST")),
            "{method}"
        );
    }
    for path in [
        "/",
        "/sse",
        "/messages",
        "/mcp/",
        "/mcp/sse",
        "//mcp",
        "/MCP",
        "/.well-known/oauth-protected-resource",
        "*",
    ] {
        let bytes = String::from_utf8(request(&[], ping(1).to_string().as_bytes())).unwrap();
        let bytes = bytes.replace("POST /mcp", &format!("POST {path}"));
        assert_eq!(server.exchange(bytes).await.status, 404, "{path}");
    }
    let reply = server.old(initialize("2025-11-25")).await;
    assert_eq!(reply.header("mcp-session-id"), None);
    // One that a client made up changes nothing.
    let reply = server
        .post(&[("Mcp-Session-Id", "unknown")], ping(1).to_string())
        .await;
    assert_eq!(reply.status, 200);
}

/// Wrong media types are named by their statuses.
#[tokio::test]
async fn media_types() {
    let server = Http::start(&Fake::default());
    let body = ping(1).to_string();
    for (header, status) in [
        (("Content-Type", "text/plain"), 415),
        (("Content-Type", ""), 415),
        (("Accept", "text/html"), 406),
        (("Accept", "text/event-stream"), 406),
        (("Accept", "application/json"), 200),
        (("Accept", ""), 200),
        (("Accept", "*/*"), 200),
    ] {
        assert_eq!(
            server.post(&[header], &body).await.status,
            status,
            "{header:?}"
        );
    }
}
