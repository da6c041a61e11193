//! The fixture server of the conformance suite: its tools, prompts and resources on our own HTTP stack, so that the stack
//! is judged by the scenarios that the product's two tools cannot reach. Never part of the product.
//!
//! It prints its address like `agent-mcp serve` and ends with its standard input.
#![allow(clippy::unwrap_used, reason = "a fixture that cannot go on has failed")]
#![expect(
    deprecated,
    reason = "clients of earlier revisions still set a level, subscribe and read logs"
)]
#![allow(
    clippy::print_stderr,
    reason = "the suite's driver reads the address there"
)]

use mcp::{HttpLimits, HttpServer, ServerLimits};
use policy::RunId;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities,
    CompleteRequestParams, CompleteResult, CompletionInfo, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, Implementation, InputRequiredResult, InputResponses,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams,
    ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, Tool,
    UnsubscribeRequestParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

type Context = RequestContext<RoleServer>;

#[derive(Clone)]
struct Fixture {
    data: Arc<Value>,
    /// Request states that were handed out, and the round each one leads to. Any other is refused.
    states: Arc<Mutex<HashMap<String, usize>>>,
}

impl Fixture {
    fn part<T: serde::de::DeserializeOwned>(&self, path: &[&str]) -> Option<T> {
        let found = path
            .iter()
            .try_fold(&*self.data, |value, name| value.get(name))?;
        Some(serde_json::from_value(found.clone()).unwrap())
    }

    /// What must still be asked before `name` can be answered; `None` when everything was.
    fn ask(
        &self,
        name: &str,
        responses: Option<&InputResponses>,
        state: Option<&str>,
        capabilities: &ClientCapabilities,
    ) -> Result<Option<InputRequiredResult>, ErrorData> {
        let Some(rounds) = self.part::<Vec<Map<String, Value>>>(&["questions", name]) else {
            return Ok(None);
        };
        let mut states = self.states.lock().unwrap();
        let round = match state {
            None => 0,
            Some(state) => *states
                .get(state)
                .ok_or_else(|| invalid("requestState", state))?,
        };
        // Only what the client can be asked.
        let asked: Map<String, Value> = rounds[round]
            .iter()
            .filter(|(_, request)| {
                name != "test_input_required_result_capabilities"
                    || match request["method"].as_str().unwrap() {
                        "elicitation/create" => capabilities.elicitation.is_some(),
                        _ => true,
                    }
            })
            .map(|(key, request)| (key.clone(), request.clone()))
            .collect();
        let answered = responses.is_some_and(|responses| {
            asked
                .keys()
                .all(|key| responses.get(key).is_some_and(Value::is_object))
        });
        let next = if answered { round + 1 } else { round };
        let Some(mut questions) = rounds.get(next).cloned() else {
            return Ok(None);
        };
        if next == round {
            questions = asked;
        }
        let state = RunId::random().to_string();
        states.insert(state.clone(), next);
        let requests = serde_json::from_value(Value::Object(questions)).unwrap();
        Ok(Some(InputRequiredResult::new(Some(requests), Some(state))))
    }
}

fn invalid(field: &str, value: &str) -> ErrorData {
    ErrorData::invalid_params(
        format!("{field}: not one of this server"),
        Some(json!({field: value})),
    )
}

/// Puts the arguments into a template, the JSON escaping kept.
fn filled(template: &Value, arguments: &Map<String, Value>) -> Value {
    let mut text = template.to_string();
    for (name, value) in arguments {
        let quoted = Value::from(value.as_str().unwrap_or_default()).to_string();
        text = text.replace(&format!("{{{name}}}"), quoted.trim_matches('"'));
    }
    serde_json::from_str(&text).unwrap()
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_resources()
            .enable_completions()
            .enable_logging()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("conformance-fixture", "1"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(
            self.part(&["tools"]).unwrap(),
        ))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.part::<Vec<Tool>>(&["tools"])?
            .into_iter()
            .find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        let capabilities = context.client_capabilities().unwrap_or_default();
        if name == "test_missing_capability" && capabilities.sampling.is_none() {
            let needed = ClientCapabilities::builder().enable_sampling().build();
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        // Both are tried on every client: that nothing of it reaches one that cannot read it is the stack's work (M-9).
        if name.contains("logging") {
            let message =
                LoggingMessageNotificationParam::new(LoggingLevel::Info, json!("working"));
            drop(context.peer.notify_logging_message(message).await);
        }
        if let (true, Some(token)) = (name.contains("progress"), context.meta.get_progress_token())
        {
            for done in [0.0, 50.0, 100.0] {
                let progress =
                    ProgressNotificationParam::new(token.clone(), done).with_total(100.0);
                drop(context.peer.notify_progress(progress).await);
            }
        }
        let (responses, state) = (
            request.input_responses.as_ref(),
            request.request_state.as_deref(),
        );
        if let Some(question) = self.ask(name, responses, state, &capabilities)? {
            return Ok(question.into());
        }
        let result = self.data["results"].get(name).cloned();
        let result = result.or_else(|| {
            self.get_tool(name)?;
            let heard = serde_json::to_string(&responses).unwrap();
            Some(json!({"content": [{"type": "text", "text": format!("state-ok: {heard}")}]}))
        });
        let result = result.ok_or_else(|| invalid("name", name))?;
        let content = serde_json::from_value(result["content"].clone()).unwrap();
        let result = match result["isError"].as_bool() {
            Some(true) => CallToolResult::error(content),
            _ => CallToolResult::success(content),
        };
        Ok(result.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(
            self.part(&["prompts"]).unwrap(),
        ))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let name = request.name.as_str();
        let template = self.data["messages"]
            .get(name)
            .ok_or_else(|| invalid("name", name))?;
        let capabilities = context.client_capabilities().unwrap_or_default();
        let (responses, state) = (
            request.input_responses.as_ref(),
            request.request_state.as_deref(),
        );
        if let Some(question) = self.ask(name, responses, state, &capabilities)? {
            return Ok(question.into());
        }
        let messages = filled(template, &request.arguments.unwrap_or_default());
        Ok(GetPromptResult::new(serde_json::from_value(messages).unwrap()).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(
            self.part(&["resources"]).unwrap(),
        ))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(
            self.part(&["templates"]).unwrap(),
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let id = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let contents = match id {
            Some(id) => json!({
                "uri": uri, "mimeType": "application/json",
                "text": json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")}).to_string(),
            }),
            None => self.data["contents"]
                .get(uri)
                .cloned()
                .ok_or_else(|| invalid("uri", uri))?,
        };
        Ok(ReadResourceResult::new(serde_json::from_value(json!([contents])).unwrap()).into())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let values = ["paris", "park", "party"].map(str::to_owned).to_vec();
        Ok(CompleteResult::new(
            CompletionInfo::with_all_values(values).unwrap(),
        ))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: Context,
    ) -> Result<(), ErrorData> {
        self.data["contents"]
            .get(&request.uri)
            .map(|_| ())
            .ok_or_else(|| invalid("uri", &request.uri))
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = HttpServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    eprintln!("ready: http://{}/mcp", server.address());
    let fixture = Fixture {
        data: Arc::new(serde_json::from_str(include_str!("fixture.json")).unwrap()),
        states: Arc::default(),
    };
    let stop = CancellationToken::new();
    let serving = server.serve_other(
        fixture,
        ServerLimits::default(),
        HttpLimits::default(),
        stop.clone(),
    );
    let input = async {
        drop(tokio::io::stdin().read_to_end(&mut Vec::new()).await);
        stop.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serving => {}
        () = input => {}
    }
}
