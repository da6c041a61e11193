//! Load on the HTTP transport while a run is active: 1,000 connections that ask `agent_status` at the same time, with and
//! without slow clients beside them; then 10,000 waiting runs: what they cost in memory, and that they keep their order.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed bench")]
#![allow(clippy::disallowed_macros, reason = "a bench prints its figures")]
#![allow(
    clippy::disallowed_types,
    reason = "it starts the product as its users do"
)]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const CONNECTIONS: usize = 1000;
const REQUESTS_EACH: usize = 20;
const SLOW: usize = 200;
const RUNS: usize = 10_000;
const RUN_CONNECTIONS: usize = 4;

/// A connection that stays open, as real clients keep theirs.
struct Connection(tokio::io::BufReader<TcpStream>);

impl Connection {
    async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(tokio::io::BufReader::with_capacity(1024, stream))
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> String {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}})
        .to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.write_all((head + &body).as_bytes()).await.unwrap();
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).await.unwrap() > 0, "closed");
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

fn field(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().to_owned()
}

/// The server, ended with the bench.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Server {
    fn resident_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            / 1024
    }
}

fn start(base: &std::path::Path, model: SocketAddr) -> (Server, SocketAddr) {
    std::fs::create_dir(base.join("ws")).unwrap();
    let config = base.join("agent.yaml");
    let yaml = format!(
        "schema_version: 2\nollama: {{endpoint: \"http://{model}\", model: m}}\nstate: {{directory: {}}}\n\
         mcp: {{transport: http, http: {{port: 0}}}}\nsandbox: {{workspaces: [ws]}}\n",
        base.join("state").display()
    );
    std::fs::write(&config, yaml).unwrap();
    let program =
        std::env::var_os("AGENT_MCP").unwrap_or_else(|| env!("CARGO_BIN_EXE_agent-mcp").into());
    // The user's store is a place of the bench's own.
    let command = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).arg("--config").arg(&config);
        command.env("XDG_STATE_HOME", base.join("user"));
        command
    };
    let applied = command(&["apply", "--yes"]).output().unwrap();
    assert!(applied.status.success(), "{applied:?}");
    let mut child = command(&["serve"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| {
            let url = line.strip_prefix("ready: http://")?;
            url.strip_suffix("/mcp")?.parse().ok()
        })
        .expect("not ready");
    std::thread::spawn(move || lines.for_each(drop));
    (Server(child), address)
}

/// Every connection asks at the same time, again and again; every answer's time.
async fn ask_all(address: SocketAddr, task: &str) -> (Vec<Duration>, Duration) {
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        open.push(Connection::open(address).await);
    }
    let start = Instant::now();
    let mut asking = JoinSet::new();
    for mut connection in open {
        let arguments = json!({"task_id": task});
        asking.spawn(async move {
            let mut times = Vec::with_capacity(REQUESTS_EACH);
            for _ in 0..REQUESTS_EACH {
                let start = Instant::now();
                connection.call("agent_status", arguments.clone()).await;
                times.push(start.elapsed());
            }
            times
        });
    }
    let mut times: Vec<Duration> = asking.join_all().await.into_iter().flatten().collect();
    let wall = start.elapsed();
    times.sort();
    (times, wall)
}

fn print(what: &str, (times, wall): &(Vec<Duration>, Duration)) {
    let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1000.0;
    println!(
        "{what}: {} answers, {:.0}/s, p50 {:.1} ms, p99 {:.1} ms",
        times.len(),
        times.len() as f64 / wall.as_secs_f64(),
        at(50),
        at(99)
    );
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    // A model that thinks for ever keeps the first run active.
    let model = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = start(directory.path(), model.local_addr().unwrap());
    let mut one = Connection::open(address).await;
    let first = one.call("agent_run", json!({"request": "work"})).await;
    let task = field(&first, "task_id: ");

    let mut alone = Vec::new();
    let start = Instant::now();
    for _ in 0..2000 {
        let start = Instant::now();
        one.call("agent_status", json!({"task_id": task})).await;
        alone.push(start.elapsed());
    }
    let wall = start.elapsed();
    alone.sort();
    print("one client", &(alone, wall));
    print("1,000 clients", &ask_all(address, &task).await);
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"POST /mcp HTTP/1.1\r\nHost: local")
            .await
            .unwrap();
        slow.push(stream);
    }
    print(
        "1,000 clients beside 200 slow ones",
        &ask_all(address, &task).await,
    );
    drop(slow);

    let before = server.resident_mib();
    let mut handing = JoinSet::new();
    let start = Instant::now();
    for _ in 0..RUN_CONNECTIONS {
        handing.spawn(async move {
            let mut connection = Connection::open(address).await;
            let mut tasks = Vec::new();
            for _ in 0..RUNS / RUN_CONNECTIONS {
                let text = connection
                    .call("agent_run", json!({"request": "wait"}))
                    .await;
                tasks.push(field(&text, "task_id: "));
            }
            tasks
        });
    }
    let chains = handing.join_all().await;
    let wall = start.elapsed();
    // The first connection was idle for longer than the server keeps one.
    let mut one = Connection::open(address).await;
    // What one client handed over first stands before what it handed over later.
    for tasks in &chains {
        let mut last = 0;
        for task in tasks.iter().step_by(100) {
            let text = one.call("agent_status", json!({"task_id": task})).await;
            let digits: String = field(&text, "message: ")
                .chars()
                .filter(char::is_ascii_digit)
                .collect();
            let place: usize = digits.parse().unwrap();
            assert!(place > last, "arrival order: {place} after {last}");
            last = place;
        }
    }
    println!(
        "{RUNS} waiting runs: {:.0}/s handed over, {} MiB before, {} MiB after, in arrival order",
        RUNS as f64 / wall.as_secs_f64(),
        before,
        server.resident_mib()
    );
}
