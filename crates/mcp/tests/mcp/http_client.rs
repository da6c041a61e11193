//! The server over real sockets, and a client that sends exactly the bytes it is told.

use crate::client::limits;
use crate::fake::Fake;
use crate::texts::Shipped;
use mcp::http::RequestLog;
use mcp::{HttpLimits, HttpServer, Served, ServerLimits, TaskParts};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longest wait for anything; reaching it fails the test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(
            self.header("content-type"),
            Some("application/json"),
            "{self:?}"
        );
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Status, and the code and id of the error in the body.
    pub(crate) fn error(&self) -> (u16, i64, Value) {
        let json = self.json();
        assert_eq!(json["jsonrpc"], "2.0");
        let code = json["error"]["code"].as_i64().unwrap_or_default();
        (self.status, code, json["id"].clone())
    }
}

pub(crate) struct Http {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: CancellationToken,
    server: JoinHandle<()>,
}

impl Http {
    pub(crate) fn start(fake: &Fake) -> Self {
        Self::start_with(fake, limits(), HttpLimits::default(), None)
    }

    pub(crate) fn start_with(
        fake: &Fake,
        limits: ServerLimits,
        http: HttpLimits,
        log: Option<RequestLog>,
    ) -> Self {
        Self::serve(fake, limits, http, log, None)
    }

    /// A server that offers tasks.
    pub(crate) fn with_tasks(fake: &Fake, tasks: &TaskParts) -> Self {
        let tasks = Some(tasks.clone());
        Self::serve(fake, limits(), HttpLimits::default(), None, tasks)
    }

    fn serve(
        fake: &Fake,
        limits: ServerLimits,
        http: HttpLimits,
        log: Option<RequestLog>,
        tasks: Option<TaskParts>,
    ) -> Self {
        let server = HttpServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address();
        let shutdown = CancellationToken::new();
        let localize = Arc::new(Shipped::new("en"));
        let served = Served {
            service: fake.clone(),
            localize,
            limits,
            tasks,
        };
        let server = tokio::spawn(server.serve(served, http, log, shutdown.clone()));
        Self {
            address,
            shutdown,
            server,
        }
    }

    pub(crate) async fn connect(&self) -> BufReader<TcpStream> {
        BufReader::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// Sends bytes on a connection of its own and reads one answer.
    pub(crate) async fn exchange(&self, bytes: impl AsRef<[u8]>) -> Reply {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        read_reply(&mut stream).await.expect("no answer")
    }

    pub(crate) async fn post(&self, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Reply {
        self.exchange(request(headers, body.as_ref())).await
    }

    /// A message of a client before 2026-07-28.
    pub(crate) async fn old(&self, message: Value) -> Reply {
        self.post(&[], message.to_string()).await
    }

    /// A request of a client of 2026-07-28, with the headers it needs.
    pub(crate) async fn modern(&self, method: &str, mut params: Value) -> Reply {
        if params["_meta"].is_null() {
            params["_meta"] = crate::client::modern();
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut headers = vec![
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
        ];
        if let Some(name) = params["name"].as_str().or(params["taskId"].as_str()) {
            headers.push(("Mcp-Name", name));
        }
        self.post(&headers, body.to_string()).await
    }

    /// Whether it still answers.
    pub(crate) async fn assert_alive(&self) {
        let reply = self.old(ping(1)).await;
        assert_eq!((reply.status, &reply.json()["result"]), (200, &json!({})));
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.ended().await;
    }

    pub(crate) async fn ended(self) {
        tokio::time::timeout(PATIENCE, self.server)
            .await
            .expect("still serving")
            .unwrap();
    }
}

pub(crate) fn ping(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "ping"})
}

/// The bytes of a POST with the usual headers; those given replace them, and an empty value leaves one out.
pub(crate) fn request(headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    let usual = [
        ("Host", "127.0.0.1"),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Length", length.as_str()),
    ];
    let replaced = |name: &str| {
        headers
            .iter()
            .any(|(given, _)| given.eq_ignore_ascii_case(name))
    };
    let mut head = String::from("POST /mcp HTTP/1.1\r\n");
    for (name, value) in usual
        .iter()
        .filter(|(name, _)| !replaced(name))
        .chain(headers.iter().filter(|(_, value)| !value.is_empty()))
    {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut bytes = (head + "\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// One answer; nothing when the connection ended instead.
pub(crate) async fn read_reply(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<Reply> {
    tokio::time::timeout(PATIENCE, read(stream))
        .await
        .expect("it hangs")
}

async fn read(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<Reply> {
    let mut head = String::new();
    loop {
        let start = head.len();
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
        if head[start..].trim().is_empty() {
            break;
        }
    }
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut reply = Reply {
        status,
        head,
        body: Vec::new(),
    };
    assert_eq!(
        reply.header("transfer-encoding"),
        None,
        "a stream: {reply:?}"
    );
    let length = reply.header("content-length").unwrap_or("0").parse().ok()?;
    reply.body.resize(length, 0);
    stream.read_exact(&mut reply.body).await.ok()?;
    Some(reply)
}
