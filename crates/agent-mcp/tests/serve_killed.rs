//! The client of a stdio server is killed while a program of its run is at work: nothing of it stays (REC-04).
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{PATIENCE, Place, anyone_runs, can_confine};
use testkit::{Answer, Script, ScriptedModel};

/// Issue 5: so long may it take until nothing is left.
const LIMIT: Duration = Duration::from_secs(5);

/// Owns the only writing end of the server's input: when it is killed, the input ends.
const OWNER: &str = "mkfifo \"$0\"; \"$@\" < \"$0\" & exec 5> \"$0\"; exec cat >&5";
/// Hands its own input on: when it is killed, the input stays open, because the test holds it.
const STARTER: &str = "exec 6<&0; \"$@\" <&6 & wait";

/// A model that lets one program run: two sleeps, one of them in a session of its own.
fn model(marker: &str) -> ScriptedModel {
    let plan = json!({"tasks": [{
        "id": "t1", "description": "run the program", "depends_on": [], "budget_class": "4K",
        "optimistic_tokens": 300, "most_likely_tokens": 800, "pessimistic_tokens": 2000,
        "requires_external_effect": true, "required_tools": ["process_run"],
    }]});
    let program = format!("setsid sleep {marker}1 & sleep {marker}2");
    let call = json!({"executable": "sh", "args": ["-c", program]});
    ScriptedModel::start(
        Script::new()
            .then(Answer::json(&plan))
            .then(Answer::call("process_run", call)),
    )
}

/// Every file below, by its path from there.
fn files(below: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![below.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path.clone());
            }
            found.insert(path.strip_prefix(below).unwrap().display().to_string());
        }
    }
    found
}

fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap()
}

fn killed(client: &str, marker: &str) {
    if !can_confine() {
        return;
    }
    let model = model(marker);
    let place = Place::usual(&model.endpoint());
    let config = std::fs::read_to_string(&place.config).unwrap();
    let config = config.replace(support::MODEL, "scripted:latest");
    std::fs::write(&place.config, config).unwrap();
    let server = place.command(&["serve"]);
    let (mounted, temporary) = (mounts(), place.directory.path().join("tmp"));
    std::fs::create_dir(&temporary).unwrap();
    let mut shell = std::process::Command::new("/bin/sh");
    shell
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", &place.state)
        .env("XDG_STATE_HOME", &place.state)
        .env("TMPDIR", &temporary)
        .current_dir(&place.workspace)
        .args(["-c", client])
        .arg(place.directory.path().join("input"))
        .arg(server.get_program())
        .args(server.get_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut shell = shell.spawn().unwrap();
    let mut input = shell.stdin.take().unwrap();
    let messages: [Value; 2] = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "e2e", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params":
            {"name": "agent_run", "arguments": {"request": "run the program"}}}),
    ];
    for message in messages {
        writeln!(input, "{message}").unwrap();
    }
    input.flush().unwrap();

    // The control: both are seen while they run.
    let start = Instant::now();
    while !(anyone_runs(&format!("sleep {marker}1")) && anyone_runs(&format!("sleep {marker}2"))) {
        assert!(start.elapsed() < PATIENCE, "the program does not run");
        std::thread::sleep(Duration::from_millis(20));
    }
    shell.kill().unwrap();
    let start = Instant::now();
    shell.wait().unwrap();
    // The server's command line names the configuration of this test alone.
    let ours = [
        format!("sleep {marker}"),
        place.config.display().to_string(),
    ];
    while ours.iter().any(|words| anyone_runs(words)) {
        let left: Vec<&String> = ours.iter().filter(|words| anyone_runs(words)).collect();
        assert!(start.elapsed() < LIMIT, "left after {LIMIT:?}: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(input);
    assert_eq!(mounts(), mounted, "a mount is left");
    assert_eq!(files(&place.workspace), BTreeSet::new());
    assert_eq!(files(&temporary), BTreeSet::new());
    assert_eq!(files(&place.state.join("tmp")), BTreeSet::new());
    // The instance keeps its logs, and nothing that would have to be undone.
    let instances = files(&place.state.join("instances"));
    let journaled = |path: &&String| path.contains("/journal/");
    assert_eq!(instances.iter().find(journaled), None);
    let ends: Vec<Value> = place
        .audit()
        .into_iter()
        .filter(|record| record["event"] == "run.end")
        .collect();
    assert_eq!(ends.len(), 1, "the run's end is in the log: {ends:?}");
}

/// REC-04, M-3: the killed client took the server's input with it.
#[test]
fn rec_04_a_killed_client_leaves_nothing() {
    killed(OWNER, "71077");
}

/// REC-04: another process still holds the server's input, so that it never ends; the parent's death is noticed.
#[test]
fn rec_04_a_killed_client_leaves_nothing_without_the_end_of_input() {
    killed(STARTER, "71078");
}
