//! The main job, end to end: an MCP client over stdio, a model over real HTTP, confined tools, a signed log.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use serde_json::json;
use std::time::{Duration, Instant};
use support::{Client, Place, RecordedModel, can_confine, field, text, wait_for};

const REQUEST: &str = "create hello.txt containing the word hello";

/// AT-01, UC-01, UC-02, X-TASK, NFR-07, MCP-TR-01: initialize, agent_run, agent_status until completed, with the file really there;
/// stdout is protocol only (SEC-INV-12), and the log verifies (DC-3).
#[test]
fn at_01_a_request_becomes_a_file() {
    if !can_confine() {
        return;
    }
    let model = RecordedModel::start();
    let place = Place::usual(&model.endpoint);
    let mut client = Client::start(place.command(&["serve"]));
    let status = client.run_to_end(REQUEST);
    assert_eq!(field(&status, "status"), "completed", "{status}");
    assert_eq!(field(&status, "completed_tasks"), "1/1");
    assert!(field(&status, "token_usage").contains("total="), "{status}");
    assert_ne!(field(&status, "result"), "", "{status}");
    assert!(
        std::fs::read_to_string(place.workspace.join("hello.txt"))
            .unwrap()
            .contains("hello")
    );
    let (code, rest) = client.close();
    assert_eq!((code, rest.as_str()), (Some(0), ""));

    let verified = place.output(&["audit", "verify"]);
    assert!(
        text(&verified.stdout).contains("audit: verified"),
        "{}",
        text(&verified.stdout)
    );
    let events: Vec<String> = place
        .audit()
        .iter()
        .map(|record| record["event"].as_str().unwrap().to_owned())
        .collect();
    for wanted in [
        "run.start",
        "plan.accepted",
        "task.start",
        "tool.call",
        "file.write",
        "task.end",
        "run.end",
    ] {
        assert!(
            events.iter().any(|event| event == wanted),
            "{wanted} missing: {events:?}"
        );
    }
    let runs: std::collections::BTreeSet<String> = place
        .audit()
        .iter()
        .filter(|record| record["event"] == "file.write")
        .map(|record| record["trace_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(runs.len(), 1, "every record of the run has its trace_id");
}

/// AT-04: agent_run answers at once, also while another run is at work; the second waits its turn (DESIGN §17.0).
#[test]
fn at_04_agent_run_does_not_block() {
    if !can_confine() {
        return;
    }
    let model = RecordedModel::start();
    let place = Place::usual(&model.endpoint);
    let mut client = Client::start(place.command(&["serve"]));
    let mut tasks = Vec::new();
    for name in ["a.txt", "b.txt", "c.txt"] {
        let (text, failed) = client.call(
            "agent_run",
            json!({"request": format!("create {name} containing the word hello")}),
        );
        assert!(!failed, "{text}");
        assert_eq!(field(&text, "status"), "queued", "{text}");
        tasks.push(field(&text, "task_id"));
    }
    for task in &tasks {
        let status = client.wait(task);
        assert_eq!(field(&status, "status"), "completed", "{status}");
    }
    for name in ["a.txt", "b.txt", "c.txt"] {
        assert!(place.workspace.join(name).exists());
    }
    assert_eq!(client.close().0, Some(0));
}

/// UC-04, AT-18, I18N-05, I18N-07: the chosen language is in the MCP texts.
#[test]
fn at_18_japanese_over_mcp() {
    if !can_confine() {
        return;
    }
    let place = Place::usual("http://127.0.0.1:9");
    let mut command = place.command(&["serve"]);
    command.args(["--lang", "ja"]);
    let mut client = Client::start(command);
    let (text, failed) = client.call(
        "agent_status",
        json!({"task_id": "00000000-0000-4000-8000-000000000000"}),
    );
    assert!(failed);
    assert_eq!(field(&text, "error_code"), "task.not_found");
    assert!(field(&text, "message").contains("ありません"), "{text}");
    assert_eq!(client.close().0, Some(0));
}

/// REC-01: Ollama away is a failed run with a stable code, after the retries; the server lives on.
#[test]
fn rec_01_ollama_away() {
    if !can_confine() {
        return;
    }
    let place = Place::usual("http://127.0.0.1:9");
    let mut client = Client::start(place.command(&["serve"]));
    let status = client.run_to_end(REQUEST);
    assert_eq!(
        (
            field(&status, "status").as_str(),
            field(&status, "last_error_code").as_str()
        ),
        ("failed", "ollama.unreachable"),
        "{status}"
    );
    assert!(!place.workspace.join("hello.txt").exists());
    let status = client.run_to_end(REQUEST);
    assert_eq!(field(&status, "status"), "failed");
    assert_eq!(client.close().0, Some(0));
}

/// A model that is not installed is an error at once, naming the way out.
#[test]
fn a_missing_model_is_named() {
    if !can_confine() {
        return;
    }
    let model = RecordedModel::start();
    let place = Place::usual(&model.endpoint);
    let text = std::fs::read_to_string(&place.config)
        .unwrap()
        .replace("model: recorded:latest", "model: not-there");
    std::fs::write(&place.config, text).unwrap();
    let mut client = Client::start(place.command(&["serve"]));
    let status = client.run_to_end(REQUEST);
    assert_eq!(
        (
            field(&status, "status").as_str(),
            field(&status, "last_error_code").as_str()
        ),
        ("failed", "ollama.model_missing"),
        "{status}"
    );
    assert!(
        field(&status, "last_error").contains("not-there"),
        "{status}"
    );
    assert_eq!(client.close().0, Some(0));
}

/// REC-04, M-3: the client goes while a run waits for its model; the server ends within 5 s with nothing left.
#[test]
fn rec_04_client_gone() {
    if !can_confine() {
        return;
    }
    // A listener that never answers stands for a model that thinks for a long time.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::usual(&format!("http://{}", silent.local_addr().unwrap()));
    let mut client = Client::start(place.command(&["serve"]));
    let (_, failed) = client.call("agent_run", json!({"request": REQUEST}));
    assert!(!failed);
    let start = Instant::now();
    let (code, rest) = client.close();
    assert_eq!((code, rest.as_str()), (Some(0), ""));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    let events: Vec<_> = place
        .audit()
        .into_iter()
        .filter(|record| record["event"] == "run.end")
        .collect();
    assert_eq!(events.len(), 1, "the run's end is in the log");
}

/// M-2: end of input before the first request is a clean end.
#[test]
fn m_2_end_before_the_first_request() {
    if !can_confine() {
        return;
    }
    let place = Place::usual("http://127.0.0.1:9");
    let output = place.output(&["serve"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
}

/// X-INST: two servers on one configuration do not disturb each other.
#[test]
fn x_inst_two_servers() {
    if !can_confine() {
        return;
    }
    let model = RecordedModel::start();
    let place = Place::usual(&model.endpoint);
    let mut first = Client::start(place.command(&["serve"]));
    let mut second = Client::start(place.command(&["serve"]));
    assert_eq!(
        field(
            &first.run_to_end("create a.txt containing the word hello"),
            "status"
        ),
        "completed"
    );
    assert_eq!(
        field(
            &second.run_to_end("create b.txt containing the word hello"),
            "status"
        ),
        "completed"
    );
    assert_eq!(first.close().0, Some(0));
    assert_eq!(second.close().0, Some(0));
    let verified = place.output(&["audit", "verify", "--json"]);
    assert!(verified.status.success(), "{}", text(&verified.stdout));
}

/// SEC-INV-05, X-EXE: an entry that the policy lets the sandbox write is refused at start.
#[test]
fn x_exe_a_writable_entry_is_refused() {
    let place = Place::new(
        "http://127.0.0.1:9",
        "sandbox:\n  workspaces: [ws]\n  execution:\n    entries:\n      - {alias: tool, path: ws/tool}\n",
    );
    std::fs::copy("/bin/true", place.workspace.join("tool")).unwrap();
    let output = place.output(&["serve"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("executable.writable"),
        "{}",
        text(&output.stderr)
    );
}

/// SPEC §15: every error at once, with file, line and column; nothing starts.
#[test]
fn spec_15_every_error_at_once() {
    let place = Place::new(
        "http://127.0.0.1:9",
        "sandbox:\n  workspaces: [ws]\n  profle: development\nplanner:\n  max_tasks: many\n",
    );
    for command in ["serve", "check"] {
        let output = place.output(&[command]);
        let all = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{all}");
        assert!(
            all.contains("agent.yaml:9:") && all.contains("profile"),
            "{all}"
        );
        assert!(
            all.contains("agent.yaml:11:") && all.contains("planner.max_tasks"),
            "{all}"
        );
    }
}

/// ST-22, MCP-TR-02: a host that is not loopback is a configuration error.
#[test]
fn st_22_non_loopback_host_is_refused() {
    let place = Place::new(
        "http://127.0.0.1:9",
        "sandbox: {workspaces: [ws]}\nmcp:\n  transport: http\n  http: {host: 0.0.0.0}\n",
    );
    let output = place.output(&["serve"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("mcp.http.host"),
        "{}",
        text(&output.stderr)
    );
}

/// SIGTERM is a safe stop.
#[test]
fn a_signal_is_a_safe_stop() {
    if !can_confine() {
        return;
    }
    let place = Place::usual("http://127.0.0.1:9");
    let mut client = Client::start(place.command(&["serve"]));
    let pid = rustix::process::Pid::from_raw(i32::try_from(client.child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(wait_for(&mut client.child), Some(0));
}
