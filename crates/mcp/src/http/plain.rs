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

#[cfg(test)]
mod tests {
    use crate::ending::Ending;
    use crate::http::{HttpLimits, HttpServer};
    use crate::limits::ServerLimits;
    use rmcp::model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, NumberOrString,
        ProgressNotificationParam, ProgressToken, ServerCapabilities, ServerConfig,
    };
    use rmcp::service::RequestContext;
    use rmcp::{ErrorData, RoleServer, ServerHandler};
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_util::sync::CancellationToken;

    /// Reports progress before each answer. Our own tools never do.
    #[derive(Clone)]
    struct Talkative;

    impl ServerHandler for Talkative {
        fn get_info(&self) -> ServerConfig {
            ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
        }

        async fn call_tool(
            &self,
            request: CallToolRequestParams,
            context: RequestContext<RoleServer>,
        ) -> Result<CallToolResponse, ErrorData> {
            for step in 0..3 {
                let token = ProgressToken(NumberOrString::Number(1));
                let progress = ProgressNotificationParam::new(token, f64::from(step));
                // Nobody may be there to hear it.
                drop(context.peer.notify_progress(progress).await);
            }
            if request.name == "fails" {
                return Err(ErrorData::invalid_params("as asked", None));
            }
            let text = ContentBlock::text("result\n\ndata: {\"result\":{}}");
            Ok(CallToolResult::success(vec![text]).into())
        }
    }

    async fn answer(version: &str, tool: &str) -> (String, Value) {
        let server = HttpServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(server.serve_handler(
            Talkative,
            ServerLimits::default(),
            HttpLimits::default(),
            None,
            Ending::default(),
            shutdown.clone(),
        ));
        let mut meta = json!({"progressToken": 1});
        if version == "2026-07-28" {
            meta["io.modelcontextprotocol/protocolVersion"] = json!(version);
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let body = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
            "params": {"name": tool, "arguments": {}, "_meta": meta}})
        .to_string();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {version}\r\nMcp-Method: tools/call\r\n\
             Mcp-Name: {tool}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        shutdown.cancel();
        serving.await.unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        (
            head.to_ascii_lowercase(),
            serde_json::from_str(body).unwrap(),
        )
    }

    #[tokio::test]
    async fn m_9_progress_makes_no_stream() {
        for version in ["2025-11-25", "2026-07-28"] {
            let (head, body) = answer(version, "works").await;
            assert!(head.contains("content-type: application/json"), "{head}");
            assert_eq!(body["id"], 9, "{version} {body}");
            let text = body["result"]["content"][0]["text"].as_str().unwrap();
            assert!(text.starts_with("result"), "{version} {body}");
            let (head, body) = answer(version, "fails").await;
            assert!(head.contains("content-type: application/json"), "{head}");
            assert_eq!(body["error"]["code"], -32602, "{version} {body}");
        }
    }
}
