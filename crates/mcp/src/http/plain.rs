//! One JSON answer where the SDK would stream (M-9, MCP-TR-04).

use super::answer::{self, Answer};
use ::http::StatusCode;
use ::http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use serde_json::Value;

/// The SDK streams when a handler reports progress before its result. Without a stream there is nowhere to report to, so only
/// the result is kept.
pub(super) async fn plain(from_sdk: Answer) -> Answer {
    let streams = from_sdk
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if !streams {
        return from_sdk;
    }
    let mut body = from_sdk.into_body();
    let mut events = Vec::new();
    while let Some(frame) = body.frame().await {
        // It cannot fail.
        let Ok(frame) = frame;
        if let Some(data) = frame.data_ref() {
            events.extend_from_slice(data);
        }
        while let Some(end) = events.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = events.drain(..=end).collect();
            if let Some(result) = result(&line) {
                return answer::with(StatusCode::OK, "application/json", result);
            }
        }
    }
    answer::text(StatusCode::INTERNAL_SERVER_ERROR, "there was no result")
}

/// The message of an event's line, when it is the one that answers the request.
fn result(line: &[u8]) -> Option<Vec<u8>> {
    let data = line.strip_prefix(b"data:")?.trim_ascii();
    let message: Value = serde_json::from_slice(data).ok()?;
    let answers = message.get("result").is_some() || message.get("error").is_some();
    answers.then(|| data.to_vec())
}
