//! A script that is not followed has to be noticed, else no test with it can fail.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use testkit::{Answer, Reply, Script, ScriptedModel};

/// One request by hand; what came back until the connection ended.
fn post(model: &ScriptedModel, path: &str, body: &str) -> String {
    let address = model.endpoint().replace("http://", "");
    let mut stream = TcpStream::connect(&address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut bytes = Vec::new();
    // A reset is what some scripts want.
    drop(stream.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What `assert_finished` complains about.
fn complaint(model: &ScriptedModel) -> String {
    let complaint = catch_unwind(AssertUnwindSafe(|| model.assert_finished())).unwrap_err();
    complaint.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn a_script_that_is_followed_is_finished() {
    let model = ScriptedModel::start(Script::new().then_if("goal", Answer::text("yes")));
    assert!(post(&model, "/api/chat", "{\"the\":\"goal\"}").contains("\"content\":\"yes\""));
    assert!(
        post(&model, "/api/show", "{}").contains("capabilities"),
        "standing"
    );
    model.assert_finished();
    assert_eq!(model.requests().len(), 1);
}

#[test]
fn steps_left_over_are_noticed() {
    let model = ScriptedModel::start(Script::new().then(Answer::text("never asked")));
    assert!(complaint(&model).contains("unused step: /api/chat"));
}

#[test]
fn extra_requests_are_noticed() {
    let model = ScriptedModel::start(Script::new());
    assert!(post(&model, "/api/chat", "{\"surprise\":1}").starts_with("HTTP/1.1 500"));
    assert!(complaint(&model).contains("not in the script: POST /api/chat {\"surprise\":1}"));
}

#[test]
fn a_request_without_what_it_has_to_contain_is_noticed() {
    let model = ScriptedModel::start(Script::new().then_if("goal", Answer::text("yes")));
    post(&model, "/api/chat", "{}");
    assert!(complaint(&model).contains("has no \"goal\""));
}

#[test]
fn broken_replies_are_broken_as_written() {
    let script = Script::new()
        .then(Reply::half(Answer::text("x")))
        .then(Reply::Close)
        .then(Reply::malformed_chunk())
        .then(Reply::error(503, "busy").header("Retry-After", "3"));
    let model = ScriptedModel::start(script);
    let half = post(&model, "/api/chat", "{}");
    let (head, body) = half.split_once("\r\n\r\n").unwrap();
    let announced: usize = head
        .split("Content-Length: ")
        .nth(1)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert_eq!(body.len(), announced / 2);
    assert_eq!(post(&model, "/api/chat", "{}"), "");
    assert!(post(&model, "/api/chat", "{}").contains("\r\nzz\r\n"));
    assert!(post(&model, "/api/chat", "{}").contains("Retry-After: 3"));
    model.assert_finished();
}
