//! The schemas of DESIGN §5.2 and §5.4, written by hand: derived ones carry `$schema`, `format: "uint32"` and lists of
//! types, which several clients reject (M-10).

use crate::tools::images::MIME_TYPES;
use rmcp::model::JsonObject;
use serde_json::{Value, json};

/// DESIGN §5.2.
pub(crate) fn run() -> JsonObject {
    object(json!({
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
                        "mime_type": { "type": "string", "enum": MIME_TYPES },
                        "data_base64": { "type": "string", "minLength": 1 }
                    },
                    "required": ["mime_type", "data_base64"],
                    "additionalProperties": false
                }
            }
        },
        "required": ["request"],
        "additionalProperties": false
    }))
}

/// DESIGN §5.4.
pub(crate) fn status() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "task_id": { "type": "string", "format": "uuid" },
            "session_id": { "type": "string", "format": "uuid" }
        },
        "required": ["task_id"],
        "additionalProperties": false
    }))
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
