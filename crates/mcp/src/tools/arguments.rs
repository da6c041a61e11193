//! From what a client sent to a typed request. Every field is checked, and a field that is not in the schema is refused by
//! name: none of them can carry a setting of the model or the policy (MCP-RUN-05, SEC-INV-02, ST-15).

use crate::tools::images;
use policy::config::Images;
use policy::{Code, Message, RunId, SessionId};
use rmcp::model::JsonObject;
use runtime::service::Image;
use serde_json::Value;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// MCP-RUN-03.
const TEMPERATURES: RangeInclusive<f64> = 0.0..=2.0;

/// A UUID with its hyphens.
const UUID_CHARACTERS: usize = 36;

/// One wrong field: where it is, and what is wrong with it.
#[derive(Debug, PartialEq)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    /// The field's path, as in `images[1].mime_type`.
    pub(crate) field: String,
    pub(crate) detail: Message,
}

impl Problem {
    fn request(field: impl Into<String>, detail: Message) -> Self {
        Self {
            code: Code::RequestInvalid,
            field: field.into(),
            detail,
        }
    }
}

/// Arguments of `agent_run` (SPEC §5.3).
#[derive(Debug)]
pub(crate) struct RunArguments {
    pub(crate) request: String,
    pub(crate) session_id: Option<SessionId>,
    pub(crate) temperature: Option<f64>,
    pub(crate) images: Vec<Image>,
}

/// Arguments of `agent_status` (SPEC §5.4).
#[derive(Debug)]
pub(crate) struct StatusArguments {
    pub(crate) task_id: RunId,
    pub(crate) session_id: Option<SessionId>,
}

impl RunArguments {
    pub(crate) fn parse(arguments: JsonObject, limits: &Images) -> Result<Self, Problem> {
        let mut fields = Fields::new(
            arguments,
            "",
            &["request", "session_id", "temperature", "images"],
        )?;
        let request = fields.required_text("request")?;
        if request.trim().is_empty() {
            return Err(Problem::request("request", Message::new("mcp.field_empty")));
        }
        let session_id = fields.identifier("session_id")?;
        let temperature = fields.temperature()?;
        let images = fields.images()?;
        images::check(&images, limits)?;
        Ok(Self {
            request,
            session_id,
            temperature,
            images,
        })
    }
}

impl StatusArguments {
    pub(crate) fn parse(arguments: JsonObject) -> Result<Self, Problem> {
        let mut fields = Fields::new(arguments, "", &["task_id", "session_id"])?;
        let task_id = fields
            .identifier("task_id")?
            .ok_or_else(|| missing("task_id"))?;
        Ok(Self {
            task_id,
            session_id: fields.identifier("session_id")?,
        })
    }
}

/// An object whose fields are taken out one by one. It holds only fields that the schema knows.
struct Fields {
    object: JsonObject,
    /// Path of the object itself, with its dot.
    prefix: String,
}

impl Fields {
    fn new(object: JsonObject, prefix: &str, known: &[&str]) -> Result<Self, Problem> {
        if let Some(extra) = object.keys().find(|key| !known.contains(&key.as_str())) {
            let detail = Message::new("mcp.field_unknown").with("allowed", known.join(", "));
            return Err(Problem::request(format!("{prefix}{extra}"), detail));
        }
        Ok(Self {
            object,
            prefix: prefix.to_owned(),
        })
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match self.object.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(self.path(name), "string", &other)),
        }
    }

    fn required_text(&mut self, name: &str) -> Result<String, Problem> {
        let path = self.path(name);
        match self.text(name)? {
            None => Err(missing(path)),
            Some(text) if text.is_empty() => {
                Err(Problem::request(path, Message::new("mcp.field_empty")))
            }
            Some(text) => Ok(text),
        }
    }

    fn identifier<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        // The parser also reads braces, URNs and bare digits, which are not the schema's format.
        let parsed = (text.len() == UUID_CHARACTERS)
            .then(|| text.parse().ok())
            .flatten();
        match parsed {
            Some(identifier) => Ok(Some(identifier)),
            None => Err(Problem::request(
                self.path(name),
                Message::new("mcp.field_uuid"),
            )),
        }
    }

    fn temperature(&mut self) -> Result<Option<f64>, Problem> {
        const NAME: &str = "temperature";
        let Some(value) = self.object.remove(NAME) else {
            return Ok(None);
        };
        let number = value
            .as_f64()
            .ok_or_else(|| wrong_type(self.path(NAME), "number", &value))?;
        // NaN is in no range.
        if !TEMPERATURES.contains(&number) {
            let detail = Message::new("mcp.field_range")
                .with("minimum", TEMPERATURES.start())
                .with("maximum", TEMPERATURES.end());
            return Err(Problem::request(self.path(NAME), detail));
        }
        Ok(Some(number))
    }

    fn images(&mut self) -> Result<Vec<Image>, Problem> {
        const NAME: &str = "images";
        match self.object.remove(NAME) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items.into_iter().enumerate().map(image).collect(),
            Some(other) => Err(wrong_type(self.path(NAME), "array", &other)),
        }
    }
}

fn image((index, value): (usize, Value)) -> Result<Image, Problem> {
    let path = images::path(index);
    let Value::Object(object) = value else {
        return Err(wrong_type(path, "object", &value));
    };
    let mut fields = Fields::new(object, &format!("{path}."), &["mime_type", "data_base64"])?;
    Ok(Image {
        mime_type: fields.required_text("mime_type")?,
        data_base64: fields.required_text("data_base64")?,
    })
}

fn missing(path: impl Into<String>) -> Problem {
    Problem::request(path, Message::new("mcp.field_missing"))
}

fn wrong_type(path: impl Into<String>, expected: &'static str, found: &Value) -> Problem {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    Problem::request(
        path,
        Message::new("mcp.field_type")
            .with("expected", expected)
            .with("found", found),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LIMITS: Images = Images {
        max_count: 4,
        max_bytes_each: 1 << 20,
        max_total_bytes: 2 << 20,
    };

    fn run(value: Value) -> Result<RunArguments, Problem> {
        RunArguments::parse(value.as_object().cloned().unwrap(), &LIMITS)
    }

    fn refused(value: Value, field: &str, id: &str) {
        let problem = run(value.clone()).unwrap_err();
        assert_eq!(
            (problem.code, problem.field.as_str(), problem.detail.id()),
            (Code::RequestInvalid, field, id),
            "{value}"
        );
    }

    #[test]
    fn mcp_run_01_request_is_text_that_says_something() {
        refused(json!({}), "request", "mcp.field_missing");
        refused(json!({"request": ""}), "request", "mcp.field_empty");
        refused(
            json!({"request": " \t\n\u{3000}"}),
            "request",
            "mcp.field_empty",
        );
        for wrong in [
            json!(null),
            json!(1),
            json!(true),
            json!(["a"]),
            json!({"a": 1}),
        ] {
            refused(json!({"request": wrong}), "request", "mcp.field_type");
        }
        assert_eq!(
            run(json!({"request": " 整理して\n"})).unwrap().request,
            " 整理して\n"
        );
    }

    #[test]
    fn mcp_run_02_session_id_is_a_uuid_in_its_usual_form() {
        let id = "0d9bd1f6-0e3c-4a6f-8d52-4f1f8a2f7c11";
        let parsed = run(json!({"request": "a", "session_id": id})).unwrap();
        assert_eq!(parsed.session_id.unwrap().to_string(), id);
        let bare = id.replace('-', "");
        for wrong in [
            "",
            "nonsense",
            &bare,
            &format!("{{{id}}}"),
            &format!("urn:uuid:{id}"),
            &format!("{id}0"),
        ] {
            refused(
                json!({"request": "a", "session_id": wrong}),
                "session_id",
                "mcp.field_uuid",
            );
        }
        refused(
            json!({"request": "a", "session_id": null}),
            "session_id",
            "mcp.field_type",
        );
    }

    #[test]
    fn mcp_run_03_temperature_has_a_range() {
        for (given, parsed) in [(json!(0), 0.0), (json!(0.7), 0.7), (json!(2), 2.0)] {
            assert_eq!(
                run(json!({"request": "a", "temperature": given}))
                    .unwrap()
                    .temperature,
                Some(parsed)
            );
        }
        for wrong in [json!(-0.1), json!(2.0001), json!(1e300), json!(-1)] {
            refused(
                json!({"request": "a", "temperature": wrong}),
                "temperature",
                "mcp.field_range",
            );
        }
        for wrong in [json!("0.5"), json!(null), json!("NaN"), json!([1])] {
            refused(
                json!({"request": "a", "temperature": wrong}),
                "temperature",
                "mcp.field_type",
            );
        }
        assert_eq!(run(json!({"request": "a"})).unwrap().temperature, None);
    }

    #[test]
    fn mcp_run_04_images_have_two_fields_each() {
        let ok = json!({"mime_type": "image/png", "data_base64": "AAAA"});
        assert_eq!(
            run(json!({"request": "a", "images": [ok]}))
                .unwrap()
                .images
                .len(),
            1
        );
        assert!(
            run(json!({"request": "a", "images": []}))
                .unwrap()
                .images
                .is_empty()
        );
        let with = |image: Value| json!({"request": "a", "images": [ok, image]});
        refused(
            with(json!({"data_base64": "AAAA"})),
            "images[1].mime_type",
            "mcp.field_missing",
        );
        refused(
            with(json!({"mime_type": "image/png"})),
            "images[1].data_base64",
            "mcp.field_missing",
        );
        refused(
            with(json!({"mime_type": "image/png", "data_base64": ""})),
            "images[1].data_base64",
            "mcp.field_empty",
        );
        refused(
            with(json!({"mime_type": "image/png", "data_base64": "AAAA", "path": "/etc/passwd"})),
            "images[1].path",
            "mcp.field_unknown",
        );
        refused(with(json!("AAAA")), "images[1]", "mcp.field_type");
        refused(
            json!({"request": "a", "images": {}}),
            "images",
            "mcp.field_type",
        );
    }

    #[test]
    fn st_15_every_extra_field_is_refused_by_name() {
        for extra in [
            "model", "system", "num_ctx", "sandbox", "policy", "cwd", "mode", "max_mode",
            "approve", "", "Request",
        ] {
            let mut object = json!({"request": "a"});
            object[extra] = json!("danger-full-access");
            refused(object, extra, "mcp.field_unknown");
        }
    }

    #[test]
    fn mcp_sts_01_and_02_identifiers() {
        let id = "0d9bd1f6-0e3c-4a6f-8d52-4f1f8a2f7c11";
        let parse = |value: Value| StatusArguments::parse(value.as_object().cloned().unwrap());
        let parsed = parse(json!({"task_id": id, "session_id": id})).unwrap();
        assert_eq!(parsed.task_id.to_string(), id);
        assert_eq!(parsed.session_id.unwrap().to_string(), id);
        for (value, field, message) in [
            (json!({}), "task_id", "mcp.field_missing"),
            (json!({"task_id": 4}), "task_id", "mcp.field_type"),
            (json!({"task_id": "4"}), "task_id", "mcp.field_uuid"),
            (
                json!({"task_id": id, "session_id": "x"}),
                "session_id",
                "mcp.field_uuid",
            ),
            (
                json!({"task_id": id, "verbose": true}),
                "verbose",
                "mcp.field_unknown",
            ),
        ] {
            let problem = parse(value.clone()).unwrap_err();
            assert_eq!(
                (problem.field.as_str(), problem.detail.id()),
                (field, message),
                "{value}"
            );
        }
    }
}
