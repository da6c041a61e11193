//! `tools/list` and what the server says of itself.

use crate::client::{Client, limits, modern};
use crate::fake::Fake;
use serde_json::{Value, json};

/// DESIGN §5.2, letter by letter.
const DESIGN_5_2: &str = r#"{
  "type": "object",
  "properties": {
    "request": { "type": "string", "minLength": 1 },
    "session_id": { "type": "string", "format": "uuid" },
    "temperature": { "type": "number", "minimum": 0.0, "maximum": 2.0 },
    "images": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {
          "mime_type": { "type": "string", "enum": ["image/png", "image/jpeg", "image/webp"] },
          "data_base64": { "type": "string", "minLength": 1 }
        },
        "required": ["mime_type", "data_base64"],
        "additionalProperties": false
      }
    }
  },
  "required": ["request"],
  "additionalProperties": false
}"#;

/// DESIGN §5.4, letter by letter.
const DESIGN_5_4: &str = r#"{
  "type": "object",
  "properties": {
    "task_id": { "type": "string", "format": "uuid" },
    "session_id": { "type": "string", "format": "uuid" }
  },
  "required": ["task_id"],
  "additionalProperties": false
}"#;

fn design(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// DESIGN §5.2, §5.4, AGT-06: exactly two tools, with exactly these schemas; no internal tool is listed.
#[tokio::test]
async fn agt_06_two_tools_with_the_schemas_of_the_design() {
    let mut client = Client::handshaken(&Fake::default()).await;
    let reply = client.ask("tools/list", json!({})).await;
    let tools = reply["result"]["tools"].as_array().unwrap();
    let names: Vec<&Value> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["agent_run", "agent_status"]);
    assert_eq!(tools[0]["inputSchema"], design(DESIGN_5_2));
    assert_eq!(tools[1]["inputSchema"], design(DESIGN_5_4));
    assert_eq!(reply["result"].get("nextCursor"), None);
    for tool in tools {
        let keys: Vec<&str> = tool
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            keys.len(),
            4,
            "name, description, inputSchema, annotations: {keys:?}"
        );
    }
    assert_eq!(tools[1]["annotations"]["readOnlyHint"], true);
    assert_eq!(tools[0]["annotations"]["destructiveHint"], true);
}

/// M-10: nothing that clients reject: no dialect, no integer formats, no lists of types.
#[tokio::test]
async fn m_10_schemas_are_portable() {
    fn walk(value: &Value) {
        match value {
            Value::Object(object) => {
                assert!(
                    !object.contains_key("$schema")
                        && !object.contains_key("$ref")
                        && !object.contains_key("$defs")
                );
                assert!(!object.get("type").is_some_and(Value::is_array), "{value}");
                if let Some(Value::String(format)) = object.get("format") {
                    assert_eq!(format, "uuid");
                }
                object.values().for_each(walk);
            }
            Value::Array(items) => items.iter().for_each(walk),
            _ => {}
        }
    }
    let mut client = Client::handshaken(&Fake::default()).await;
    walk(&client.ask("tools/list", json!({})).await["result"]);
}

/// AT-18: descriptions and instructions in the chosen language.
#[tokio::test]
async fn at_18_descriptions_are_in_the_chosen_language() {
    for (language, word) in [("en", "Hands work"), ("ja", "エージェントに任せます")] {
        let mut client = Client::start_with(&Fake::default(), language, limits());
        let hello = client.initialize().await;
        let reply = client.ask("tools/list", json!({})).await;
        let description = reply["result"]["tools"][0]["description"].as_str().unwrap();
        assert!(description.contains(word), "{description}");
        let instructions = hello["result"]["instructions"].as_str().unwrap();
        assert!(instructions.contains("agent_status"), "{instructions}");
        assert_eq!(instructions.is_ascii(), language == "en");
    }
}

/// AGT-06, MCP-TR-03: tools, and nothing else: no prompts, resources, logging, completions, tasks, subscriptions.
#[tokio::test]
async fn only_tools_are_offered() {
    let mut client = Client::start(&Fake::default());
    let hello = client.initialize().await;
    assert_eq!(hello["result"]["capabilities"], json!({"tools": {}}));
    assert_eq!(hello["result"]["serverInfo"]["name"], "agent-mcp");
    assert_eq!(
        hello["result"]["serverInfo"]["version"],
        env!("CARGO_PKG_VERSION")
    );
    for method in [
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/subscribe",
        "logging/setLevel",
        "completion/complete",
        "tasks/get",
        "subscriptions/listen",
        "roots/list",
        "no/such/method",
    ] {
        let params = json!({"uri": "file:///etc/passwd", "level": "debug", "taskId": "x", "notifications": {},
            "ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "a", "value": "b"}});
        let reply = client.ask(method, params).await;
        assert_eq!(reply["error"]["code"], -32601, "{method}: {reply}");
    }
}

/// A cursor is never ours; an empty one is what some clients send for the first page.
#[tokio::test]
async fn a_foreign_cursor_is_refused() {
    let mut client = Client::handshaken(&Fake::default()).await;
    assert_eq!(
        client.ask("tools/list", json!({"cursor": "page2"})).await["error"]["code"],
        -32602
    );
    assert!(client.ask("tools/list", json!({"cursor": ""})).await["result"]["tools"].is_array());
}

/// 2026-07-28: a list says how long it may be kept.
#[tokio::test]
async fn a_modern_list_has_its_cache_hints() {
    let mut client = Client::start(&Fake::default());
    let reply = client.ask("tools/list", json!({"_meta": modern()})).await;
    assert_eq!(reply["result"]["resultType"], "complete");
    assert!(
        reply["result"]["ttlMs"].is_u64() && reply["result"]["cacheScope"].is_string(),
        "{reply}"
    );
    assert_eq!(
        reply["result"]["tools"][0]["inputSchema"],
        design(DESIGN_5_2)
    );
}
