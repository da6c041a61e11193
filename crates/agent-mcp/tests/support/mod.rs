//! What the end-to-end tests share: the built binary, a workspace with a configuration, a recorded model, an MCP client.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

pub mod http;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything; reaching it fails the test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The built program. The unprivileged run of CI has its own copy.
pub fn program() -> PathBuf {
    match std::env::var_os("AGENT_MCP_TEST_TREE") {
        Some(tree) => PathBuf::from(tree).join("target/debug/agent-mcp"),
        None => PathBuf::from(env!("CARGO_BIN_EXE_agent-mcp")),
    }
}

/// A command with a clean environment: only what a reduced client gives (mcp.md), and a state directory of its own.
pub fn command(state: &Path) -> Command {
    let mut command = Command::new(program());
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", state)
        .env("XDG_STATE_HOME", state);
    command.stdin(Stdio::null());
    command
}

/// Whether this machine can confine; where it cannot, the test is skipped and says what it needs, and CI forbids that.
pub fn can_confine() -> bool {
    let (state, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let output = command(state.path())
        .current_dir(workspace.path())
        .args(["exec", "--", "/bin/true"])
        .output()
        .unwrap();
    if output.status.code() == Some(125) {
        assert!(
            std::env::var_os("AGENT_MCP_FORBID_SKIPS").is_none(),
            "needs: UserNamespaces: {}",
            text(&output.stderr)
        );
        eprintln!("skipped, needs: UserNamespaces");
        return false;
    }
    true
}

/// Output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory with a workspace, a configuration beside it, and state.
pub struct Place {
    pub directory: tempfile::TempDir,
    pub workspace: PathBuf,
    pub config: PathBuf,
    pub state: PathBuf,
}

impl Place {
    /// With a model endpoint and more YAML for the end of the file.
    pub fn new(endpoint: &str, more: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let workspace = base.join("ws");
        std::fs::create_dir(&workspace).unwrap();
        let config = base.join("agent.yaml");
        let state = base.join("state");
        std::fs::write(
            &config,
            format!(
                "schema_version: 2\nollama:\n  endpoint: {endpoint}\n  model: {MODEL}\nstate:\n  directory: {}\n{more}\n",
                state.display()
            ),
        )
        .unwrap();
        Self {
            directory,
            workspace,
            config,
            state,
        }
    }

    /// The usual one: the workspace, and sh as an entry.
    pub fn usual(endpoint: &str) -> Self {
        Self::new(
            endpoint,
            "sandbox:\n  workspaces: [ws]\n  execution:\n    entries:\n      - {alias: sh, path: /bin/sh}\n",
        )
    }

    /// A command of the program with this configuration, in the workspace.
    /// What `serve` and `run` demand is applied first.
    pub fn command(&self, words: &[&str]) -> Command {
        if matches!(words.first(), Some(&"serve" | &"run")) {
            drop(self.unapplied(&["apply", "--yes"]).output().unwrap());
        }
        self.unapplied(words)
    }

    /// The same, with whatever is applied.
    pub fn unapplied(&self, words: &[&str]) -> Command {
        let mut command = command(&self.state);
        command
            .current_dir(&self.workspace)
            .args(words)
            .arg("--config")
            .arg(&self.config);
        command
    }

    /// Runs it to its end.
    pub fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Every audit record, in order.
    pub fn audit(&self) -> Vec<Value> {
        let output = self.output(&["audit", "show", "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// The model that `demo --model-only` serves.
pub const MODEL: &str = "recorded:latest";

/// `agent-mcp demo --model-only`, ended when dropped.
pub struct RecordedModel {
    child: Child,
    pub endpoint: String,
}

impl RecordedModel {
    pub fn start() -> Self {
        let state = std::env::temp_dir();
        let mut child = command(&state)
            .args(["demo", "--model-only"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let endpoint = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                line.split_whitespace()
                    .find(|word| word.starts_with("http://127.0.0.1:"))
                    .map(str::to_owned)
            })
            .expect("demo --model-only prints its endpoint");
        Self { child, endpoint }
    }
}

impl Drop for RecordedModel {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An MCP client over stdio that checks that every line of stdout is protocol (SEC-INV-12).
pub struct Client {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Client {
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        // Standard error is drained, so that a talkative server never blocks on it.
        let mut stderr = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        let mut client = Self {
            child,
            input,
            output,
            next: 1,
        };
        let answer = client.request(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "e2e", "version": "1"}}),
        );
        assert_eq!(
            answer["result"]["serverInfo"]["name"], "agent-mcp",
            "{answer}"
        );
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    pub fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{message}").unwrap();
        input.flush().unwrap();
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(
                self.output.read_line(&mut line).unwrap() > 0,
                "the server closed its output"
            );
            let message: Value =
                serde_json::from_str(&line).unwrap_or_else(|_| panic!("not protocol: {line}"));
            assert_eq!(message["jsonrpc"], "2.0", "not protocol: {line}");
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Calls a tool; returns its text and whether it is an error.
    pub fn call(&mut self, tool: &str, arguments: Value) -> (String, bool) {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        let result = &answer["result"];
        let text = result["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned();
        (text, result["isError"].as_bool().unwrap_or(false))
    }

    /// Hands over a request and polls until it is over. Returns the last status text.
    pub fn run_to_end(&mut self, request: &str) -> String {
        let (text, failed) = self.call("agent_run", json!({"request": request}));
        assert!(!failed, "{text}");
        let task = field(&text, "task_id");
        self.wait(&task)
    }

    pub fn wait(&mut self, task: &str) -> String {
        let start = Instant::now();
        loop {
            let (text, failed) = self.call("agent_status", json!({"task_id": task}));
            assert!(!failed, "{text}");
            if ["completed", "failed", "cancelled"].contains(&field(&text, "status").as_str()) {
                return text;
            }
            assert!(start.elapsed() < PATIENCE, "{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Closes the input and waits for the end; returns the exit code and whatever was still on stdout.
    pub fn close(mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let status = wait_for(&mut self.child);
        (status, rest)
    }
}

/// Waits with patience.
pub fn wait_for(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(start.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One field of a result text.
pub fn field(text: &str, name: &str) -> String {
    let prefix = format!("{name}: ");
    text.lines()
        .find_map(|line| line.strip_prefix(&prefix))
        .unwrap_or_default()
        .to_owned()
}

/// Whether any process has this text in its command line.
pub fn anyone_runs(marker: &str) -> bool {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return false;
    };
    entries.flatten().any(|entry| {
        let mut bytes = Vec::new();
        std::fs::File::open(entry.path().join("cmdline"))
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .is_ok()
            && String::from_utf8_lossy(&bytes)
                .replace('\0', " ")
                .contains(marker)
    })
}
