//! The other end of the pipes.

use crate::fake::Fake;
use crate::texts::Shipped;
use mcp::{McpFault, ServeEnd, Served, ServerLimits, TaskParts, serve_stdio};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// `_meta` of a client of 2026-07-28.
pub(crate) fn modern() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}
    })
}

pub(crate) struct Client {
    /// Nothing after the client closed it.
    input: Option<DuplexStream>,
    output: BufReader<DuplexStream>,
    pub(crate) shutdown: CancellationToken,
    server: JoinHandle<Result<ServeEnd, McpFault>>,
    next_id: i64,
}

pub(crate) fn limits() -> ServerLimits {
    ServerLimits::default()
}

impl Client {
    pub(crate) fn start(fake: &Fake) -> Self {
        Self::start_with(fake, "en", limits())
    }

    pub(crate) fn start_with(fake: &Fake, language: &'static str, limits: ServerLimits) -> Self {
        Self::serve(fake, language, limits, None)
    }

    /// A server that offers tasks.
    pub(crate) fn with_tasks(fake: &Fake, tasks: &TaskParts) -> Self {
        Self::serve(fake, "en", limits(), Some(tasks.clone()))
    }

    fn serve(
        fake: &Fake,
        language: &'static str,
        limits: ServerLimits,
        tasks: Option<TaskParts>,
    ) -> Self {
        let (input, server_input) = tokio::io::duplex(1 << 20);
        let (server_output, output) = tokio::io::duplex(1 << 20);
        let shutdown = CancellationToken::new();
        let localize = Arc::new(Shipped::new(language));
        let server = tokio::spawn(serve_stdio(
            Served {
                service: fake.clone(),
                localize,
                limits,
                tasks,
            },
            server_input,
            server_output,
            shutdown.clone(),
        ));
        Self {
            input: Some(input),
            output: BufReader::new(output),
            shutdown,
            server,
            next_id: 1,
        }
    }

    /// A client that has done the handshake of 2025-11-25.
    pub(crate) async fn handshaken(fake: &Fake) -> Self {
        let mut client = Self::start(fake);
        client.initialize().await;
        client
    }

    pub(crate) async fn initialize(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}
        });
        let reply = self.ask("initialize", params).await;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        reply
    }

    pub(crate) async fn bytes(&mut self, bytes: impl AsRef<[u8]>) {
        self.input
            .as_mut()
            .unwrap()
            .write_all(bytes.as_ref())
            .await
            .unwrap();
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.bytes(format!("{message}\n")).await;
    }

    /// The next line. Waiting longer than any deadline of the server fails the test.
    pub(crate) async fn line(&mut self) -> Value {
        let mut line = String::new();
        let read = tokio::time::timeout(Duration::from_secs(60), self.output.read_line(&mut line));
        assert_ne!(
            read.await.expect("no reply").unwrap(),
            0,
            "the output ended"
        );
        serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("not a protocol line ({error}): {line:?}"))
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        id
    }

    /// Asks and reads the next line, which must be the reply.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        let reply = self.line().await;
        assert_eq!(reply["id"], id, "{reply}");
        reply
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }

    /// The text of a call that worked.
    pub(crate) async fn text(&mut self, tool: &str, arguments: Value) -> String {
        let reply = self.call(tool, arguments).await;
        assert_eq!(reply["result"]["isError"], false, "{reply}");
        text_of(&reply)
    }

    /// Code and message of a call that failed.
    pub(crate) async fn failure(&mut self, tool: &str, arguments: Value) -> (String, String) {
        let reply = self.call(tool, arguments).await;
        assert_eq!(reply["result"]["isError"], true, "{reply}");
        let text = text_of(&reply);
        let lines: Vec<&str> = text.split('\n').collect();
        let [code, message] = lines[..] else {
            panic!("not two lines: {text:?}")
        };
        (
            code.strip_prefix("error_code: ").unwrap().to_owned(),
            message.strip_prefix("message: ").unwrap().to_owned(),
        )
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Stops reading, as a client that died does.
    pub(crate) fn drop_output(&mut self) {
        let (_, unread) = tokio::io::duplex(1);
        self.output = BufReader::new(unread);
    }

    /// Closes the input and collects what still comes and how serving ended.
    pub(crate) async fn finish(mut self) -> (ServeEnd, Vec<Value>) {
        self.close_input();
        self.collect().await
    }

    pub(crate) async fn collect(mut self) -> (ServeEnd, Vec<Value>) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).await.unwrap();
        let lines = rest
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        (self.end().await, lines)
    }

    pub(crate) async fn end(self) -> ServeEnd {
        tokio::time::timeout(Duration::from_secs(60), self.server)
            .await
            .expect("still serving")
            .unwrap()
            .unwrap()
    }
}

/// The one text content of a result; there is nothing else in it.
pub(crate) fn text_of(reply: &Value) -> String {
    let result = reply["result"]
        .as_object()
        .unwrap_or_else(|| panic!("no result: {reply}"));
    assert!(!result.contains_key("structuredContent"), "{reply}");
    let content = result["content"].as_array().unwrap();
    assert_eq!(content.len(), 1, "{reply}");
    assert_eq!(content[0]["type"], "text");
    content[0]["text"].as_str().unwrap().to_owned()
}
