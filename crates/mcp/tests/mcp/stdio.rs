//! How a server on a pipe lives and ends.

use crate::client::{Client, limits, modern};
use crate::fake::Fake;
use mcp::{STDIO_CLIENT, ServeEnd, ServerLimits};
use runtime::service::RunState;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

fn gone(fake: &Fake) -> bool {
    fake.with(|state| state.gone == [STDIO_CLIENT])
}

fn ids(replies: &[Value]) -> Vec<Value> {
    let mut ids: Vec<Value> = replies.iter().map(|reply| reply["id"].clone()).collect();
    ids.sort_by_key(Value::to_string);
    ids
}

/// Requests piped in one go, then the end of the input: all answered, then the client's runs are stopped, then it returns.
#[tokio::test(start_paused = true)]
async fn m_3_piped_requests_are_all_answered_before_the_end() {
    let fake = Fake::default();
    let run = fake.add(|run| run.state = RunState::Running);
    let mut client = Client::start(&fake);
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    client.request("initialize", hello).await;
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
    client.request("tools/list", json!({})).await;
    client
        .request(
            "tools/call",
            json!({"name": "agent_run", "arguments": {"request": "a"}}),
        )
        .await;
    for _ in 0..100 {
        client
            .request(
                "tools/call",
                json!({"name": "agent_status", "arguments": {"task_id": run.run_id}}),
            )
            .await;
    }
    // The last line has no line feed.
    client
        .bytes(r#"{"jsonrpc":"2.0","id":104,"method":"ping"}"#)
        .await;
    let begin = Instant::now();
    let (end, replies) = client.finish().await;
    assert_eq!(end, ServeEnd::ClientGone);
    let mut expected: Vec<Value> = (1..=104).map(Value::from).collect();
    expected.sort_by_key(Value::to_string);
    assert_eq!(ids(&replies), expected);
    assert!(replies.iter().all(|reply| reply.get("result").is_some()));
    assert!(gone(&fake));
    assert!(
        begin.elapsed() < Duration::from_millis(500),
        "nobody waits for news after the end: {:?}",
        begin.elapsed()
    );
}

/// The same in the era without a handshake.
#[tokio::test(start_paused = true)]
async fn m_3_piped_modern_requests_are_all_answered() {
    let fake = Fake::default();
    let mut client = Client::start(&fake);
    client
        .request("server/discover", json!({"_meta": modern()}))
        .await;
    client
        .request("tools/list", json!({"_meta": modern()}))
        .await;
    let call = json!({"name": "agent_run", "arguments": {"request": "a"}, "_meta": modern()});
    client.request("tools/call", call).await;
    let (end, replies) = client.finish().await;
    assert_eq!(
        (end, ids(&replies)),
        (ServeEnd::ClientGone, vec![json!(1), json!(2), json!(3)])
    );
    assert!(gone(&fake));
}

/// M-2: a disposable probe that closes at once is no failure, and nothing is written.
#[tokio::test(start_paused = true)]
async fn m_2_the_end_before_the_first_request_is_clean_and_immediate() {
    for noise in [
        &b""[..],
        b"\n\n",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n",
    ] {
        let fake = Fake::default();
        let mut client = Client::start(&fake);
        client.bytes(noise).await;
        let begin = Instant::now();
        assert_eq!(client.finish().await, (ServeEnd::ClientGone, vec![]));
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert!(gone(&fake));
    }
}

/// M-3: a runtime that does not answer cannot hold up the end; the client is told, and the runs are stopped.
#[tokio::test(start_paused = true)]
async fn m_3_a_blocked_handler_is_answered_within_a_second() {
    let fake = Fake::default();
    let mut client = Client::handshaken(&fake).await;
    fake.with(|state| state.delay = Duration::from_secs(3600));
    client
        .request(
            "tools/call",
            json!({"name": "agent_run", "arguments": {"request": "a"}}),
        )
        .await;
    let begin = Instant::now();
    let (end, replies) = client.finish().await;
    assert_eq!(end, ServeEnd::ClientGone);
    let text = replies[0]["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("error_code: server.stopping\n"), "{text}");
    assert!(
        begin.elapsed() <= Duration::from_millis(1100),
        "{:?}",
        begin.elapsed()
    );
    assert!(gone(&fake));
}

/// A client that closes its input but never reads cannot keep its runs alive.
#[tokio::test(start_paused = true)]
async fn m_3_unread_replies_do_not_hold_up_the_end() {
    let fake = Fake::default();
    let run = fake.add(|run| {
        run.state = RunState::Completed;
        run.result = Some("x".repeat(600 << 10));
    });
    let mut client = Client::handshaken(&fake).await;
    for _ in 0..4 {
        client
            .request(
                "tools/call",
                json!({"name": "agent_status", "arguments": {"task_id": run.run_id}}),
            )
            .await;
    }
    let begin = Instant::now();
    client.close_input();
    assert_eq!(client.end().await, ServeEnd::ClientGone);
    assert!(
        begin.elapsed() <= Duration::from_secs(4),
        "{:?}",
        begin.elapsed()
    );
    assert!(gone(&fake));
}

/// A client that died: writing fails, its runs are stopped although its input is still open.
#[tokio::test(start_paused = true)]
async fn a_closed_output_ends_the_client() {
    let fake = Fake::default();
    let mut client = Client::handshaken(&fake).await;
    client.drop_output();
    client.request("ping", json!({})).await;
    assert_eq!(client.end().await, ServeEnd::ClientGone);
    assert!(gone(&fake));
}

/// DESIGN §16.2: a dead parent arrives as a shutdown: before, during and after the lifecycle is chosen.
#[tokio::test(start_paused = true)]
async fn a_shutdown_stops_the_clients_runs_and_returns() {
    for handshake in [false, true] {
        let fake = Fake::default();
        let mut client = Client::start(&fake);
        if handshake {
            client.initialize().await;
            fake.with(|state| state.delay = Duration::from_secs(3600));
            client
                .request(
                    "tools/call",
                    json!({"name": "agent_run", "arguments": {"request": "a"}}),
                )
                .await;
            tokio::task::yield_now().await;
        }
        let begin = Instant::now();
        client.shutdown.cancel();
        let (end, _) = client.collect().await;
        assert_eq!(end, ServeEnd::Shutdown);
        assert!(
            begin.elapsed() < Duration::from_secs(3),
            "{:?}",
            begin.elapsed()
        );
        assert!(gone(&fake));
    }
}

/// The caller's token is the caller's: it is not cancelled when a client goes.
#[tokio::test(start_paused = true)]
async fn the_shutdown_token_stays_the_callers() {
    let client = Client::handshaken(&Fake::default()).await;
    let shutdown = client.shutdown.clone();
    client.finish().await;
    assert!(!shutdown.is_cancelled());
}

/// M-4: a line beyond the limit is refused without id, not kept, and the next request works. Also before the lifecycle.
#[tokio::test]
async fn m_4_an_over_long_line_is_refused_and_the_server_lives() {
    let small = ServerLimits {
        max_line_bytes: 1000,
        ..limits()
    };
    let mut client = Client::start_with(&Fake::default(), "en", small);
    for _ in 0..2 {
        // 32 MiB without a line feed: the refusal comes before the line ends.
        for _ in 0..32 {
            client.bytes(vec![b'x'; 1 << 20]).await;
        }
        let reply = client.line().await;
        assert_eq!(
            (reply.get("id"), &reply["error"]["code"]),
            (None, &json!(-32600)),
            "{reply}"
        );
        assert!(reply["error"]["message"].as_str().unwrap().contains("1000"));
        client.bytes("\n").await;
        assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
        if client.shutdown.is_cancelled() {
            break;
        }
        client.initialize().await;
    }
}

/// M-4: the limit is ⌈4/3 × max_total_bytes⌉ + 1 MiB.
#[test]
fn m_4_the_limit_follows_from_the_images() {
    assert_eq!(
        limits().max_line_bytes,
        (20 << 20) * 4_u64 / 3 + 1 + (1 << 20)
    );
}

/// M-4: what is no JSON, no UTF-8 or no message is answered without id, and the server lives. Also before the lifecycle.
#[tokio::test]
async fn m_4_bad_json_and_bad_utf8_are_answered_and_the_server_lives() {
    let mut client = Client::start(&Fake::default());
    for round in 0..2 {
        for (line, code) in [
            (&b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\"\n"[..], -32700),
            (b"\xff\xfe\xfd\n", -32700),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi\xc3ng\"}\n",
                -32700,
            ),
            (b"Content-Length: 52\n", -32700),
            (b"{\"foo\":\"bar\"}\n", -32600),
            (
                b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n",
                -32600,
            ),
        ] {
            client.bytes(line).await;
            let reply = client.line().await;
            assert_eq!(
                (reply.get("id"), &reply["error"]["code"]),
                (None, &json!(code)),
                "{reply}"
            );
        }
        assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
        if round == 0 {
            client.initialize().await;
        }
    }
}

/// SEC-INV-12: whatever comes in, what goes out is JSON-RPC, one message a line.
#[tokio::test]
async fn sec_inv_12_only_protocol_on_the_output() {
    let fake = Fake::default();
    let run = fake.add(|run| {
        run.state = RunState::Completed;
        run.result = Some("line\u{2028}separated\u{2029}text\nand \u{85} more".to_owned());
    });
    let mut client = Client::handshaken(&fake).await;
    client.bytes("garbage\n\n{}\n").await;
    client
        .request(
            "tools/call",
            json!({"name": "agent_status", "arguments": {"task_id": run.run_id}}),
        )
        .await;
    client
        .request(
            "tools/call",
            json!({"name": "agent_run", "arguments": {"request": "println"}}),
        )
        .await;
    let (_, replies) = client.finish().await;
    assert_eq!(replies.len(), 4);
    for reply in replies {
        assert_eq!(reply["jsonrpc"], "2.0");
        assert!(
            reply.get("result").is_some() != reply.get("error").is_some(),
            "{reply}"
        );
    }
}

/// A slow call does not hold up another, and a cancelled one is never answered.
#[tokio::test(start_paused = true)]
async fn a_cancelled_request_is_not_answered_and_blocks_nothing() {
    let fake = Fake::default();
    let mut client = Client::handshaken(&fake).await;
    fake.with(|state| state.delay = Duration::from_secs(30));
    let slow = client
        .request(
            "tools/call",
            json!({"name": "agent_run", "arguments": {"request": "a"}}),
        )
        .await;
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": slow, "reason": "enough"}});
    client.send(&cancelled).await;
    client.ask("ping", json!({})).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    fake.with(|state| state.delay = Duration::ZERO);
    client.ask("ping", json!({})).await;
    let (_, rest) = client.finish().await;
    assert_eq!(rest, Vec::<Value>::new());
}

/// No progress, no log, no request of ours: a client gets replies only, with a progress token or without.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_that_was_not_asked_for() {
    let fake = Fake::default();
    let mut client = Client::handshaken(&fake).await;
    let call = json!({"name": "agent_run", "arguments": {"request": "a"}, "_meta": {"progressToken": "p1"}});
    client.ask("tools/call", call).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let (_, rest) = client.finish().await;
    assert_eq!(rest, Vec::<Value>::new());
}

/// users.md 14: the first question is answered at once; the same again waits for news, but never as long as clients do.
#[tokio::test(start_paused = true)]
async fn agent_status_waits_for_news_but_not_long() {
    let fake = Fake::default();
    let run = fake.add(|run| run.state = RunState::Running);
    let mut client = Client::handshaken(&fake).await;
    let question = json!({"task_id": run.run_id});
    let begin = Instant::now();
    client.text("agent_status", question.clone()).await;
    assert_eq!(begin.elapsed(), Duration::ZERO);
    client.text("agent_status", question.clone()).await;
    assert!(
        (Duration::from_secs(10)..Duration::from_secs(25)).contains(&begin.elapsed()),
        "{:?}",
        begin.elapsed()
    );

    let begin = Instant::now();
    let later = fake.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        later.with(|state| {
            state
                .runs
                .values_mut()
                .for_each(|run| run.state = RunState::Completed)
        });
    });
    assert!(
        client
            .text("agent_status", question.clone())
            .await
            .contains("status: completed")
    );
    assert!(
        (Duration::from_secs(3)..Duration::from_secs(4)).contains(&begin.elapsed()),
        "{:?}",
        begin.elapsed()
    );

    let begin = Instant::now();
    client.text("agent_status", question.clone()).await;
    client.text("agent_status", question).await;
    assert_eq!(
        begin.elapsed(),
        Duration::ZERO,
        "a run that is over has no news"
    );
}
