//! From a line or an HTTP body to a message of the SDK, and what to answer when it is none (M-4, M-5, M-6).

use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use serde_json::Value;

/// More values than this in one message are refused before they are parsed: each takes some 50 times its two bytes in memory.
/// What our tools take has fewer than 100.
const MOST_VALUES: usize = 100_000;

/// What it was.
pub(crate) enum Reading {
    /// A message for the SDK.
    Message(Box<ClientJsonRpcMessage>),
    /// Nothing the SDK can read; the client is told.
    Refused(Box<ServerJsonRpcMessage>),
    /// Nothing to answer on stdio: an empty line, or a broken notification or response, which JSON-RPC leaves without reply.
    Nothing,
}

pub(crate) fn read(line: &[u8]) -> Reading {
    // Some editors and shells put a byte order mark first; RFC 8259 lets us skip it.
    let line = line
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(line)
        .trim_ascii();
    if line.is_empty() {
        return Reading::Nothing;
    }
    let Ok(text) = std::str::from_utf8(line) else {
        return refused(
            ErrorData::parse_error("the message is not UTF-8", None),
            None,
        );
    };
    if holds_too_many_values(line) {
        let message = format!("the message holds more than {MOST_VALUES} values");
        return refused(ErrorData::invalid_request(message, None), None);
    }
    match serde_json::from_str(text) {
        Ok(message) => Reading::Message(Box::new(message)),
        Err(_) => no_message(text),
    }
}

/// A line beyond the limit (M-4).
pub(crate) fn too_long(limit: u64) -> ServerJsonRpcMessage {
    let error = ErrorData::invalid_request(format!("the line is longer than {limit} bytes"), None);
    ServerJsonRpcMessage::error(error, None)
}

/// Whether there are too many commas and opening brackets outside of strings.
fn holds_too_many_values(text: &[u8]) -> bool {
    if text.len() <= MOST_VALUES {
        return false;
    }
    let (mut values, mut quoted, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => values += 1,
            _ => {}
        }
    }
    values > MOST_VALUES
}

fn no_message(text: &str) -> Reading {
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        // Where it broke, not what it said: the text may be private.
        Err(error) => {
            let message = format!("the message is not JSON, at byte {}", error.column());
            return refused(ErrorData::parse_error(message, None), None);
        }
    };
    let has = |key: &str| value.get(key).is_some();
    let notification = has("method") && !has("id");
    let response = !has("method") && (has("result") || has("error"));
    if notification || response {
        tracing::debug!("ignored a broken notification or response");
        return Reading::Nothing;
    }
    let id = if has("method") {
        usable_id(&value)
    } else {
        None
    };
    // With all else right it is the parameters: by position, which MCP does not know, or with a broken `_meta` (M-5).
    let all_else_right = id.is_some()
        && value["jsonrpc"] == "2.0"
        && value["method"].is_string()
        && !has("result")
        && !has("error");
    let error = if all_else_right && has("params") {
        ErrorData::invalid_params("params: they do not have the shape MCP needs", None)
    } else {
        ErrorData::invalid_request("this is not a JSON-RPC 2.0 request", None)
    };
    refused(error, id)
}

fn usable_id(value: &Value) -> Option<RequestId> {
    match value.get("id")? {
        Value::String(text) => Some(RequestId::String(text.as_str().into())),
        Value::Number(number) => number.as_i64().map(RequestId::Number),
        _ => None,
    }
}

fn refused(error: ErrorData, id: Option<RequestId>) -> Reading {
    Reading::Refused(Box::new(ServerJsonRpcMessage::error(error, id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(line: impl AsRef<[u8]>, expected: Value) {
        let line = line.as_ref();
        let found = match read(line) {
            Reading::Message(message) => {
                json!({"message": serde_json::to_value(message).unwrap()["method"]})
            }
            Reading::Refused(reply) => {
                let reply = serde_json::to_value(reply).unwrap();
                json!({"code": reply["error"]["code"], "id": reply.get("id")})
            }
            Reading::Nothing => Value::Null,
        };
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(line));
    }

    #[test]
    fn m_4_what_is_no_message_is_answered_by_its_kind() {
        let parse_error = json!({"code": -32700, "id": null});
        let invalid = json!({"code": -32600, "id": null});
        for line in [
            "{",
            "nonsense",
            "{\"a\":1}}",
            "{\"a\":NaN}",
            "\"open",
            "[1,",
            &"[".repeat(10_000),
        ] {
            check(line, parse_error.clone());
        }
        check(
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\xff\"}",
            parse_error.clone(),
        );
        check(b"\xff\xfe{\0}\0", parse_error);
        for line in [
            "{}",
            "[]",
            "1",
            "\"text\"",
            "null",
            r#"{"foo":"bar"}"#,
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
        ] {
            check(line, invalid.clone());
        }
        for line in [
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        ] {
            check(line, invalid.clone());
        }
    }

    #[test]
    fn a_broken_request_is_answered_under_its_id() {
        check(
            r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#,
            json!({"code": -32600, "id": 7}),
        );
        check(
            r#"{"id":"a","method":"ping"}"#,
            json!({"code": -32600, "id": "a"}),
        );
        check(
            r#"{"jsonrpc":"2.0","id":7,"method":5}"#,
            json!({"code": -32600, "id": 7}),
        );
    }

    #[test]
    fn m_5_parameters_that_are_no_object_are_invalid_parameters() {
        for params in ["[]", "5", "\"text\"", "true"] {
            let line =
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
            check(line, json!({"code": -32602, "id": 7}));
        }
    }

    #[test]
    fn a_broken_notification_or_response_is_never_answered() {
        check(r#"{"method":"notifications/initialized"}"#, Value::Null);
        check(r#"{"jsonrpc":"2.0","id":[],"result":{}}"#, Value::Null);
        check(r#"{"jsonrpc":"2.0","id":1,"error":"text"}"#, Value::Null);
        check("", Value::Null);
        check(" \t\r", Value::Null);
    }

    #[test]
    fn m_4_a_message_of_too_many_values_is_refused_unparsed() {
        let call = |arguments: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a","arguments":{arguments}}}}}"#
            )
        };
        let many = "0,".repeat(MOST_VALUES);
        check(
            call(&format!(r#"{{"a":[{many}0]}}"#)),
            json!({"code": -32600, "id": null}),
        );
        // The same in a string is one value.
        check(
            call(&format!(r#"{{"a":"\\\"{many}"}}"#)),
            json!({"message": "tools/call"}),
        );
    }

    #[test]
    fn byte_order_mark_and_carriage_return_are_skipped() {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        check(format!("\u{feff}{ping}\r"), json!({"message": "ping"}));
    }
}
