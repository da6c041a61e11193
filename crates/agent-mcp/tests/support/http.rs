//! A server over HTTP, and a client that sends exactly the bytes it is told.

use super::{PATIENCE, Place, field, text, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What a server answered.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The value of a header, if it is there.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// `agent-mcp serve --transport http`, killed when dropped.
pub struct HttpServer {
    pub child: Child,
    pub address: SocketAddr,
    pub stderr: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

/// YAML for a server on any free port.
pub const ANY_PORT: &str = "mcp:\n  transport: http\n  http: {port: 0}\n";

impl HttpServer {
    /// A place with this model, served on any free port.
    pub fn place(endpoint: &str) -> Place {
        Place::new(
            endpoint,
            &format!(
                "sandbox:\n  workspaces: [ws]\n  execution:\n    entries:\n      - {{alias: sh, path: /bin/sh}}\n{ANY_PORT}"
            ),
        )
    }

    pub fn start(command: Command) -> Self {
        Self::try_start(command).unwrap_or_else(|stderr| panic!("not ready: {stderr}"))
    }

    /// Waits until it says that it is ready; else gives what it said instead.
    pub fn try_start(mut command: Command) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            if lines.read_line(&mut line).unwrap() == 0 {
                wait_for(&mut child);
                return Err(said);
            }
            said.push_str(&line);
            if let Some(url) = line.trim().strip_prefix("ready: http://") {
                break url.strip_suffix("/mcp").unwrap().parse().unwrap();
            }
        };
        let stderr = Arc::new(Mutex::new(said));
        let more = Arc::clone(&stderr);
        let reader = std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let mut text = more.lock().unwrap();
                text.push_str(&line);
                text.push('\n');
            }
        });
        Ok(Self {
            child,
            address,
            stderr,
            reader: Some(reader),
        })
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and reads one answer.
    pub fn exchange(&self, bytes: impl AsRef<[u8]>) -> Reply {
        let mut stream = self.connect();
        stream.write_all(bytes.as_ref()).unwrap();
        read_reply(&mut BufReader::new(stream)).expect("no answer")
    }

    /// Posts a body with the usual headers and these.
    pub fn post(&self, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Reply {
        self.exchange(request(headers, body.as_ref()))
    }

    /// A request of a client before 2026-07-28.
    pub fn ask(&self, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let reply = self.post(&[], body.to_string());
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    /// A request of a client of 2026-07-28.
    pub fn ask_modern(&self, method: &str, params: Value) -> Reply {
        self.ask_with(modern_meta(), method, params)
    }

    /// A request of a client of 2026-07-28 that declares the Tasks extension; its result.
    pub fn ask_for_task(&self, method: &str, params: Value) -> Value {
        let mut meta = modern_meta();
        meta["io.modelcontextprotocol/clientCapabilities"] =
            json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        let reply = self.ask_with(meta, method, params);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["result"].clone()
    }

    fn ask_with(&self, meta: Value, method: &str, mut params: Value) -> Reply {
        params["_meta"] = meta;
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut headers = vec![
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
        ];
        if let Some(name) = params["name"].as_str().or(params["taskId"].as_str()) {
            headers.push(("Mcp-Name", name));
        }
        self.post(&headers, body.to_string())
    }

    /// Calls a tool; returns its text and whether it is an error.
    pub fn call(&self, tool: &str, arguments: Value) -> (String, bool) {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        tool_text(&answer)
    }

    /// Polls a task to its end.
    pub fn wait(&self, task: &str) -> String {
        let start = Instant::now();
        loop {
            let (text, failed) = self.call("agent_status", json!({"task_id": task}));
            assert!(!failed, "{text}");
            if ["completed", "failed", "cancelled"].contains(&field(&text, "status").as_str()) {
                return text;
            }
            assert!(start.elapsed() < PATIENCE, "{text}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal)
            .unwrap();
    }

    /// SIGTERM; returns the exit code, and checks that nothing was ever on stdout (SEC-INV-12).
    pub fn stop(mut self) -> Option<i32> {
        self.signal(rustix::process::Signal::TERM);
        let code = wait_for(&mut self.child);
        let mut out = Vec::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_end(&mut out)
            .unwrap();
        assert_eq!(text(&out), "");
        self.reader.take().unwrap().join().unwrap();
        code
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}
    })
}

/// Text and error flag of a tool result.
pub fn tool_text(answer: &Value) -> (String, bool) {
    let result = &answer["result"];
    let text = result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
        .to_owned();
    (text, result["isError"].as_bool().unwrap_or(false))
}

/// The bytes of a POST with the usual headers; those given replace them, and an empty value leaves one out.
pub fn request(headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    let usual = [
        ("Host", "127.0.0.1"),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Length", length.as_str()),
    ];
    let mut head = String::from("POST /mcp HTTP/1.1\r\n");
    let replaced = |name: &str| {
        headers
            .iter()
            .any(|(given, _)| given.eq_ignore_ascii_case(name))
    };
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
pub fn read_reply(stream: &mut impl BufRead) -> Option<Reply> {
    let mut head = String::new();
    loop {
        let start = head.len();
        if stream.read_line(&mut head).ok()? == 0 {
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
    let length = reply.header("content-length").unwrap_or("0").parse().ok()?;
    reply.body.resize(length, 0);
    stream.read_exact(&mut reply.body).ok()?;
    assert_eq!(reply.header("transfer-encoding"), None, "{reply:?}");
    Some(reply)
}
