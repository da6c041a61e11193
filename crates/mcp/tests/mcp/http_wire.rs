//! What is not MCP: HTTP as hostile, slow and careless clients send it.

use crate::client::limits;
use crate::fake::Fake;
use crate::http_client::{Http, PATIENCE, ping, read_reply, request};
use mcp::{BindFault, HttpLimits, HttpServer, ServerLimits};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SHORT: Duration = Duration::from_millis(200);

fn impatient() -> HttpLimits {
    HttpLimits {
        head: SHORT,
        body: SHORT,
        stall: SHORT,
        ..HttpLimits::default()
    }
}

/// Whether the other end closes without a word.
async fn closes(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let mut rest = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    // A reset is an end, too.
    drop(read.expect("it stays open"));
    rest
}

/// ST-22, MCP-TR-02: whatever a configuration lets pass, only loopback is bound.
#[tokio::test]
async fn st_22_only_loopback_is_bound() {
    for address in [
        "0.0.0.0:0",
        "[::]:0",
        "127.0.0.2:0",
        "192.0.2.1:0",
        "[::ffff:127.0.0.1]:0",
    ] {
        let refused = HttpServer::bind(address.parse().unwrap()).unwrap_err();
        assert!(matches!(refused, BindFault::NotLoopback(_)), "{refused}");
    }
    let first = HttpServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let second = HttpServer::bind(first.address()).unwrap_err();
    assert!(matches!(second, BindFault::InUse(_)), "{second}");
}

/// M-4: the limit is inclusive, with and without a length, and the server lives on.
#[tokio::test]
async fn m_4_http_a_body_beyond_the_limit_is_413() {
    let small = ServerLimits {
        max_line_bytes: 200_000,
        ..limits()
    };
    let server = Http::start_with(&Fake::default(), small, HttpLimits::default(), None);
    let body = |bytes: usize| {
        let ping = ping(1).to_string();
        ping.clone() + &" ".repeat(bytes - ping.len())
    };
    assert_eq!(server.post(&[], body(200_000)).await.status, 200);
    let reply = server.post(&[], body(200_001)).await;
    assert_eq!(reply.error().0, 413);
    assert_eq!(reply.header("connection"), Some("close"));
    let chunked = |body: String| {
        let mut bytes = request(
            &[("Content-Length", ""), ("Transfer-Encoding", "chunked")],
            b"",
        );
        for chunk in body.as_bytes().chunks(1000) {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes
    };
    assert_eq!(server.exchange(chunked(body(200_000))).await.status, 200);
    assert_eq!(server.exchange(chunked(body(200_001))).await.status, 413);
    // Who asks first is told before it sends.
    let asks = request(
        &[("Content-Length", "100000000"), ("Expect", "100-continue")],
        b"",
    );
    assert_eq!(server.exchange(asks).await.status, 413);
    server.assert_alive().await;
}

/// 100 MB sent to the usual limit: the sender gets to read 413.
#[tokio::test]
async fn a_hundred_megabytes_are_413() {
    let server = Http::start(&Fake::default());
    let body = vec![b' '; 100_000_000];
    assert_eq!(server.post(&[], body).await.error().0, 413);
    server.assert_alive().await;
}

/// Heads that are too large or no HTTP are answered by their statuses and closed.
#[tokio::test]
async fn bad_heads() {
    let server = Http::start(&Fake::default());
    let many = "X-A: b\r\n".repeat(200);
    let long = format!("X-A: {}\r\n", "b".repeat(100_000));
    let target = "a".repeat(100_000);
    for (bytes, status) in [
        (format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"), 431),
        (format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\n{long}\r\n"), 431),
        (format!("POST /{target} HTTP/1.1\r\nHost: localhost\r\n\r\n"), 431),
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("POST /mcp HTTP/9.9\r\n\r\n".to_owned(), 400),
        ("POST /mcp HTTP/1.1\r\nHost : localhost\r\n\r\n".to_owned(), 400),
        ("POST /mcp HTTP/1.1\r\nHost: local\0host\r\n\r\n".to_owned(), 400),
        ("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n".to_owned(), 400),
        ("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(), 400),
        ("POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(), 400),
        ("POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\n\r\n".to_owned(), 400),
        ("POST /mcp HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("POST http://evil/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 403),
        ("CONNECT evil:80 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 403),
    ] {
        let shown = bytes.chars().take(80).collect::<String>();
        let mut stream = server.connect().await;
        // The server may close before it has read all.
        drop(stream.write_all(bytes.as_bytes()).await);
        let reply = read_reply(&mut stream).await;
        let found = reply.map_or(0, |reply| reply.status);
        assert_eq!(found, status, "{shown}");
    }
    server.assert_alive().await;
}

/// A TLS hello or an HTTP/2 preface gets no service and harms nobody.
#[tokio::test]
async fn other_protocols_are_closed() {
    let server = Http::start(&Fake::default());
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0",
    ] {
        let mut stream = server.connect().await;
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let rest = closes(&mut stream).await;
        assert!(
            !rest.windows(6).any(|window| window == b" 200 O"),
            "{rest:?}"
        );
    }
    server.assert_alive().await;
}

/// HTTP/1.0 and the absolute form of a target are served to loopback names.
#[tokio::test]
async fn old_and_absolute_forms() {
    let server = Http::start(&Fake::default());
    let bytes = String::from_utf8(request(&[], ping(1).to_string().as_bytes())).unwrap();
    let old = bytes.replace("HTTP/1.1", "HTTP/1.0");
    let mut stream = server.connect().await;
    stream.write_all(old.as_bytes()).await.unwrap();
    assert_eq!(read_reply(&mut stream).await.unwrap().status, 200);
    assert_eq!(closes(&mut stream).await, b"");
    let absolute = bytes.replace("POST /mcp", "POST http://127.0.0.1:1/mcp");
    assert_eq!(server.exchange(absolute).await.status, 200);
}

/// Two lengths for one body: the coding counts, and what follows it is never served: the connection ends.
#[tokio::test]
async fn a_smuggled_request_is_not_served() {
    let server = Http::start(&Fake::default());
    let body = ping(1).to_string();
    let smuggled = "GET /other HTTP/1.1\r\nHost: evil\r\n\r\n";
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n{smuggled}", body.len());
    let length = chunks.len().to_string();
    let bytes = request(
        &[
            ("Content-Length", &length),
            ("Transfer-Encoding", "chunked"),
        ],
        chunks.as_bytes(),
    );
    let mut stream = server.connect().await;
    stream.write_all(&bytes).await.unwrap();
    assert_eq!(read_reply(&mut stream).await.unwrap().status, 200);
    assert!(read_reply(&mut stream).await.is_none());
    // The other way round, as HTTP/1.0 must not code at all.
    let old = String::from_utf8(bytes)
        .unwrap()
        .replace("HTTP/1.1\r\nHost: 127", "HTTP/1.0\r\nHost: 127");
    let mut stream = server.connect().await;
    stream.write_all(old.as_bytes()).await.unwrap();
    assert_eq!(read_reply(&mut stream).await.unwrap().status, 400);
}

/// Pipelined requests are answered in order on one connection.
#[tokio::test]
async fn pipelining() {
    let server = Http::start(&Fake::default());
    let mut stream = server.connect().await;
    let bytes: Vec<u8> = (0..50)
        .flat_map(|id| request(&[], ping(id).to_string().as_bytes()))
        .collect();
    stream.write_all(&bytes).await.unwrap();
    for id in 0..50 {
        let reply = read_reply(&mut stream).await.unwrap();
        assert_eq!(reply.json()["id"], id);
    }
}

/// A head that never ends, a body that never comes, and a connection that says nothing end by themselves.
#[tokio::test]
async fn slow_clients_time_out() {
    let server = Http::start_with(&Fake::default(), limits(), impatient(), None);
    let mut silent = server.connect().await;
    let mut loris = server.connect().await;
    loris
        .write_all(b"POST /mcp HTTP/1.1\r\nHost: loc")
        .await
        .unwrap();
    let mut body = server.connect().await;
    let head = request(&[("Content-Length", "100")], b"{");
    body.write_all(&head).await.unwrap();
    let reply = read_reply(&mut body).await.unwrap();
    assert_eq!(
        (reply.status, reply.header("connection")),
        (408, Some("close"))
    );
    assert_eq!(closes(&mut silent).await, b"");
    assert_eq!(closes(&mut loris).await, b"");
    assert_eq!(closes(&mut body).await, b"");
    server.assert_alive().await;
}

/// A client that never reads its answers is closed, however many it asked for.
#[tokio::test]
async fn a_sleeping_reader_is_closed() {
    let server = Http::start_with(&Fake::default(), limits(), impatient(), None);
    let mut stream = server.connect().await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let bytes = request(&[], list.as_bytes());
    let asking = async { while stream.write_all(&bytes).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, asking)
        .await
        .expect("it is served for ever");
    server.assert_alive().await;
}

/// More connections than there is room for: those that keep us waiting go, others are served.
#[tokio::test]
async fn a_flood_of_idle_connections_costs_others_nothing() {
    let few = HttpLimits {
        connections: 10,
        ..HttpLimits::default()
    };
    let server = Http::start_with(&Fake::default(), limits(), few, None);
    let mut idle = Vec::new();
    for _ in 0..50 {
        let mut stream = server.connect().await;
        stream.write_all(b"POST /mcp HTTP/1.1\r\n").await.unwrap();
        idle.push(stream);
        server.assert_alive().await;
    }
    assert_eq!(closes(&mut idle[0]).await, b"");
}

/// Large bodies that stay away hold up large ones for their time at most, and small ones not at all.
#[tokio::test]
async fn large_bodies_are_few_at_a_time() {
    let times = HttpLimits {
        body: SHORT,
        ..HttpLimits::default()
    };
    let small = ServerLimits {
        max_line_bytes: 200_000,
        ..limits()
    };
    let server = Http::start_with(&Fake::default(), small, times, None);
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let mut stream = server.connect().await;
        let head = request(&[("Content-Length", "200000")], &[b' '; 150_000]);
        stream.write_all(&head).await.unwrap();
        waiting.push(stream);
    }
    server.assert_alive().await;
    let mut statuses = Vec::new();
    for mut stream in waiting {
        statuses.push(read_reply(&mut stream).await.unwrap().status);
    }
    assert!(
        statuses.iter().all(|status| [408, 503].contains(status)),
        "{statuses:?}"
    );
    let body = ping(1).to_string() + &" ".repeat(150_000);
    assert_eq!(server.post(&[], body).await.status, 200);
}

/// REC-05, X-HTTP: a client that leaves, before or after its answer, ends no run.
#[tokio::test]
async fn rec_05_a_disconnect_ends_nothing() {
    let fake = Fake::default();
    let server = Http::start(&fake);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
        {"name": "agent_run", "arguments": {"request": "a"}}});
    assert_eq!(server.old(call.clone()).await.status, 200);
    fake.with(|state| state.delay = Duration::from_millis(50));
    let mut stream = server.connect().await;
    stream
        .write_all(&request(&[], call.to_string().as_bytes()))
        .await
        .unwrap();
    drop(stream);
    server.assert_alive().await;
    assert_eq!(fake.with(|state| state.gone.len()), 0);
}

/// A stop answers what came in, takes nothing new, and does not wait for idle connections.
#[tokio::test]
async fn a_stop_answers_what_came_in() {
    let fake = Fake::default();
    let server = Http::start(&fake);
    let mut idle = server.connect().await;
    idle.write_all(b"POST ").await.unwrap();
    fake.with(|state| state.delay = Duration::from_millis(300));
    let mut asking = server.connect().await;
    let status = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
        {"name": "agent_run", "arguments": {"request": "a"}}});
    asking
        .write_all(&request(&[], status.to_string().as_bytes()))
        .await
        .unwrap();
    // The request is with the runtime before the stop.
    while fake.with(|state| state.began) == 0 {
        tokio::task::yield_now().await;
    }
    server.shutdown.cancel();
    let reply = read_reply(&mut asking).await.unwrap();
    assert_eq!(reply.status, 200);
    let address = server.address;
    server.ended().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert_eq!(fake.with(|state| state.gone.len()), 1);
}
