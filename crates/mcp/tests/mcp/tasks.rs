//! The Tasks extension (DESIGN §5.7) on the wire of both transports.

use crate::client::{Client, modern};
use crate::fake::Fake;
use crate::http_client::Http;
use jiff::SignedDuration;
use mcp::TaskParts;
use policy::{RunId, SessionId};
use record::clock::ManualClock;
use record::{Instance, StateDirectory, TaskRecords};
use runtime::service::RunState;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Where the records are, and a clock that stands.
struct State {
    _directory: tempfile::TempDir,
    state: StateDirectory,
    clock: Arc<ManualClock>,
}

impl State {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&directory.path().join("state")).unwrap();
        let start = "2026-12-01T10:00:00Z".parse().unwrap();
        Self {
            _directory: directory,
            state,
            clock: Arc::new(ManualClock::at(start)),
        }
    }

    /// The records of one more process; it dies with the instance.
    fn process(&self) -> (Instance, TaskParts) {
        let instance = Instance::claim(&self.state).unwrap();
        let clock = self.clock.clone();
        let records = TaskRecords::open(&self.state, &instance, DAY, clock).unwrap();
        let parts = TaskParts {
            records: Arc::new(records),
            poll_interval: Duration::from_millis(1234),
        };
        (instance, parts)
    }

    fn file(&self, task: &Value) -> std::path::PathBuf {
        let name = format!("mcp-tasks/{}.json", task.as_str().unwrap());
        self.state.path().join(name)
    }
}

fn declaring() -> Value {
    let mut meta = modern();
    meta["io.modelcontextprotocol/clientCapabilities"] =
        json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    meta
}

fn run(meta: Value) -> Value {
    json!({"name": "agent_run", "arguments": {"request": "do it"}, "_meta": meta})
}

fn named(task: &Value) -> Value {
    json!({"taskId": task, "_meta": declaring()})
}

/// One of the two transports.
enum Wire {
    Stdio(Box<Client>),
    Http(Http),
}

impl Wire {
    fn both(fake: &Fake, tasks: &TaskParts) -> [Self; 2] {
        [
            Self::Stdio(Box::new(Client::with_tasks(fake, tasks))),
            Self::Http(Http::with_tasks(fake, tasks)),
        ]
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        match self {
            Self::Stdio(client) => client.ask(method, params).await,
            Self::Http(server) => server.modern(method, params).await.json(),
        }
    }

    async fn result(&mut self, method: &str, params: Value) -> Value {
        let reply = self.ask(method, params).await;
        assert!(reply["error"].is_null(), "{reply}");
        reply["result"].clone()
    }

    async fn code(&mut self, method: &str, params: Value) -> i64 {
        let reply = self.ask(method, params).await;
        reply["error"]["code"]
            .as_i64()
            .unwrap_or_else(|| panic!("no error: {reply}"))
    }

    async fn created(&mut self) -> Value {
        let task = self.result("tools/call", run(declaring())).await;
        assert_eq!(task["resultType"], "task", "{task}");
        task["taskId"].clone()
    }

    /// Asks until it is over, as a client does.
    async fn over(&mut self, task: &Value) -> Value {
        let asking = async {
            loop {
                let seen = self.result("tasks/get", named(task)).await;
                if seen["status"] != "working" {
                    return seen;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), asking)
            .await
            .expect("it is never over")
    }
}

fn id(task: &Value) -> RunId {
    task.as_str().unwrap().parse().unwrap()
}

/// DESIGN §5.7: a client that declares the extension gets a task, which is on the disk before the client knows of it, and
/// polls it to the same text that `agent_status` gives.
#[tokio::test]
async fn design_5_7_a_run_is_a_task() {
    let state = State::new();
    let (_instance, records) = state.process();
    let fake = Fake::default();
    for mut wire in Wire::both(&fake, &records) {
        let created = wire.result("tools/call", run(declaring())).await;
        let task = &created["taskId"];
        assert!(state.file(task).exists());
        assert_eq!(
            created,
            json!({
                "resultType": "task", "taskId": task, "status": "working", "ttlMs": 86_400_000, "pollIntervalMs": 1234,
                "createdAt": "2026-12-01T10:00:00.000Z", "lastUpdatedAt": "2026-12-01T10:00:00.000Z",
                "_meta": created["_meta"]
            })
        );
        assert_eq!(&created["_meta"]["task_id"], task);
        let working = wire.result("tasks/get", named(task)).await;
        assert_eq!(
            (&working["status"], &working["resultType"]),
            (&json!("working"), &json!("complete"))
        );
        assert!(working["statusMessage"].is_string(), "{working}");
        // Others can use the tool as ever.
        let text =
            json!({"name": "agent_status", "arguments": {"task_id": task}, "_meta": modern()});
        let text = wire.result("tools/call", text).await;
        assert!(
            text["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains("status: queued"),
            "{text}"
        );
        fake.end(id(task), RunState::Completed, "it is done");
        let over = wire.over(task).await;
        assert_eq!(over["status"], "completed");
        let result = &over["result"];
        let said = result["content"][0]["text"].as_str().unwrap();
        let session = result["_meta"]["session_id"].as_str().unwrap();
        assert!(
            said.starts_with(&format!(
                "task_id: {}\nsession_id: {session}\nstatus: completed",
                id(task)
            )),
            "{said}"
        );
        assert!(
            said.ends_with("result: it is done") && result["isError"] == false,
            "{result}"
        );
        assert_eq!(&result["_meta"]["task_id"], task);
    }
}

/// DESIGN §5.7: a run that fails is a completed task whose result says so; an update is taken, because nothing was asked.
#[tokio::test]
async fn design_5_7_a_failed_run_is_a_completed_task() {
    let state = State::new();
    let (_instance, records) = state.process();
    let fake = Fake::default();
    for mut wire in Wire::both(&fake, &records) {
        let task = wire.created().await;
        fake.end(id(&task), RunState::Failed, "");
        let over = wire.over(&task).await;
        assert_eq!(
            (&over["status"], &over["result"]["isError"]),
            (&json!("completed"), &json!(true))
        );
        let mut update = named(&task);
        update["inputResponses"] = json!({});
        let done = wire.result("tasks/update", update).await;
        assert_eq!(done["resultType"], "complete");
        wire.result("tasks/cancel", named(&task)).await;
        assert_eq!(wire.over(&task).await["status"], "completed");
    }
}

/// REC-05: `tasks/cancel` stops the run at once; the task says so.
#[tokio::test]
async fn rec_05_a_cancelled_task_stops_its_run() {
    let state = State::new();
    let (_instance, records) = state.process();
    let fake = Fake::default();
    for mut wire in Wire::both(&fake, &records) {
        let task = wire.created().await;
        wire.result("tasks/cancel", named(&task)).await;
        let over = wire.over(&task).await;
        assert_eq!(over["status"], "cancelled");
        assert!(
            over["result"].is_null() && over["error"].is_null(),
            "{over}"
        );
        assert_eq!(fake.with(|state| state.cancelled.pop()), Some(id(&task)));
    }
}

/// M-7: no task for who does not declare the extension, and none for an earlier revision whatever it declares.
#[tokio::test]
async fn m_7_tasks_only_for_who_can_read_them() {
    let state = State::new();
    let (_instance, records) = state.process();
    let fake = Fake::default();
    for mut wire in Wire::both(&fake, &records) {
        let reply = wire.result("tools/call", run(modern())).await;
        assert_eq!(reply["resultType"], "complete");
        assert!(
            reply["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains("status: queued")
        );
        let task = wire.created().await;
        let unnamed = json!({"taskId": task, "_meta": modern()});
        for method in ["tasks/get", "tasks/cancel"] {
            assert_eq!(wire.code(method, unnamed.clone()).await, -32021, "{method}");
        }
        let seen = wire
            .result("server/discover", json!({"_meta": modern()}))
            .await;
        assert!(
            seen["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object(),
            "{seen}"
        );
    }
    let mut old = Client::with_tasks(&fake, &records);
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}, "tasks": {"requests": {"tools": {"call": {}}}}},
        "clientInfo": {"name": "test", "version": "1"}
    });
    let hello = old.ask("initialize", params).await;
    assert!(
        hello["result"]["capabilities"]["extensions"].is_null(),
        "{hello}"
    );
    let reply = old.call("agent_run", json!({"request": "do it"})).await;
    assert!(reply["result"]["taskId"].is_null(), "{reply}");
    assert!(
        reply["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("status: queued")
    );
    let task = RunId::random().to_string();
    let reply = old.ask("tasks/get", json!({"taskId": task})).await;
    assert_eq!(reply["error"]["code"], -32601, "{reply}");
}

/// DESIGN §5.7, X-INST: after a kill the next process says that its server was restarted; a living one's is left alone, and
/// only it can stop it.
#[tokio::test]
async fn x_inst_a_restart_fails_only_the_dead_ones_tasks() {
    let state = State::new();
    let (first, records) = state.process();
    let (second, others) = state.process();
    let fake = Fake::default();
    let [mut two, _http] = Wire::both(&fake, &others);
    let run = RunId::random();
    records.records.create(run, SessionId::random()).unwrap();
    let task = json!(run.to_string());
    let seen = two.result("tasks/get", named(&task)).await;
    assert_eq!(seen["status"], "working");
    assert_eq!(two.code("tasks/cancel", named(&task)).await, -32602);
    assert_eq!(fake.with(|state| state.cancelled.len()), 0);
    // As after a kill: nobody writes anything, and the lock is free.
    drop((records, first));
    let (_third, records) = state.process();
    let [mut three, mut four] = Wire::both(&fake, &records);
    for wire in [&mut two, &mut three, &mut four] {
        let seen = wire.result("tasks/get", named(&task)).await;
        assert_eq!(
            (&seen["status"], &seen["statusMessage"]),
            (&json!("failed"), &json!("server_restarted"))
        );
        assert_eq!(
            seen["error"],
            json!({"code": -32603, "message": "server_restarted"})
        );
    }
    drop(second);
}

/// A task whose record cannot be written is not told, and its run is stopped.
#[tokio::test]
async fn design_5_7_without_a_record_there_is_no_run() {
    let state = State::new();
    let (_instance, records) = state.process();
    let fake = Fake::default();
    std::fs::remove_dir_all(state.state.path().join("mcp-tasks")).unwrap();
    for mut wire in Wire::both(&fake, &records) {
        let reply = wire.result("tools/call", run(declaring())).await;
        assert_eq!(
            (&reply["isError"], &reply["resultType"]),
            (&json!(true), &json!("complete"))
        );
        let said = reply["content"][0]["text"].as_str().unwrap();
        assert!(said.starts_with("error_code: state.unusable"), "{said}");
    }
    assert_eq!(fake.with(|state| state.cancelled.len()), 2);
}

/// Only who can name a task sees it; what is no name, expired or damaged is told apart from what is there.
#[tokio::test]
async fn design_5_7_only_what_can_be_named() {
    let state = State::new();
    let (_instance, records) = state.process();
    let fake = Fake::default();
    for mut wire in Wire::both(&fake, &records) {
        let task = wire.created().await;
        for name in [
            json!(RunId::random().to_string()),
            json!(""),
            json!("../audit"),
            json!("%2e%2e"),
            json!("x".repeat(100_000)),
            json!(format!("{}\u{0}", id(&task))),
        ] {
            for method in ["tasks/get", "tasks/cancel"] {
                // A header cannot carry some of these.
                if let Wire::Stdio(_) = wire {
                    assert_eq!(wire.code(method, named(&name)).await, -32602, "{name}");
                }
            }
        }
        for params in [
            json!({}),
            json!({"taskId": 5}),
            json!({"taskId": null}),
            json!({"taskId": []}),
        ] {
            let mut params = params;
            params["_meta"] = declaring();
            if let Wire::Stdio(_) = wire {
                for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
                    assert_eq!(
                        wire.code(method, params.clone()).await,
                        -32602,
                        "{method} {params}"
                    );
                }
            }
        }
        assert_eq!(
            wire.code("tasks/list", json!({"_meta": declaring()})).await,
            -32601
        );
        assert_eq!(wire.code("tasks/result", named(&task)).await, -32601);
        fake.end(id(&task), RunState::Completed, "");
        wire.over(&task).await;
        let damaged = wire.created().await;
        std::fs::write(state.file(&damaged), "{").unwrap();
        let reply = wire.ask("tasks/get", named(&damaged)).await;
        assert_eq!(reply["error"]["code"], -32603, "{reply}");
        assert!(!reply.to_string().contains("mcp-tasks"), "{reply}");
        state.clock.advance(SignedDuration::from_hours(24));
        let mut gone = wire.code("tasks/get", named(&task)).await;
        // The writer may still have been at it.
        for _ in 0..100 {
            if gone == -32602 {
                break;
            }
            gone = wire.code("tasks/get", named(&task)).await;
        }
        assert_eq!(gone, -32602);
        assert!(!state.file(&task).exists());
    }
}

/// REC-04, REC-05: when the client of stdio goes its runs are cancelled, and that is written down before serving ends; an
/// HTTP client that goes ends nothing.
#[tokio::test]
async fn rec_05_what_a_client_that_goes_leaves() {
    let state = State::new();
    let (_instance, records) = state.process();
    let fake = Fake::default();
    let [stdio, mut http] = Wire::both(&fake, &records);
    let Wire::Stdio(mut client) = stdio else {
        unreachable!()
    };
    let created = client.ask("tools/call", run(declaring())).await;
    let of_http = http.created().await;
    assert_eq!(
        http.result("tasks/get", named(&of_http)).await["status"],
        "working"
    );
    client.finish().await;
    let seen = http
        .result("tasks/get", named(&created["result"]["taskId"]))
        .await;
    assert_eq!(seen["status"], "cancelled");
    let Wire::Http(server) = http else {
        unreachable!()
    };
    server.stop().await;
    let text = std::fs::read_to_string(state.file(&of_http)).unwrap();
    assert!(text.contains("\"state\":\"cancelled\""), "{text}");
}
