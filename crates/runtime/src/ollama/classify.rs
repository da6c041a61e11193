//! From a status and a body to a [`Refused`].
//!
//! The status and fields of the body decide where they can. Ollama tells many refusals apart only by an English sentence
//! that is not localized; those sentences stand in one table.

use super::fault::Refused;
use serde_json::Value;

/// A refusal that is known by its words. All of `words` have to be in the error text, compared in lower case.
struct Row {
    /// The statuses it comes with; empty = any.
    statuses: &'static [u16],
    words: &'static [&'static str],
    refused: fn() -> Refused,
    /// Where the sentence comes from, and why it means that.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "read by the reader and by the test that wants one per row"
        )
    )]
    reason: &'static str,
}

fn context_exceeded() -> Refused {
    Refused::ContextExceeded {
        prompt_tokens: None,
        context: None,
    }
}

const ROWS: &[Row] = &[
    Row {
        statuses: &[404],
        words: &["model", "not found"],
        refused: || Refused::ModelMissing,
        reason: "api/chat: model 'x' not found; a 404 without these words is a wrong path",
    },
    Row {
        statuses: &[400],
        words: &["does not support tools"],
        refused: || Refused::ToolsUnsupported,
        reason: "capability check of the server before it loads the model",
    },
    Row {
        statuses: &[400],
        words: &["does not support thinking"],
        refused: || Refused::ThinkingUnsupported,
        reason: "capability check: think was true or a level",
    },
    Row {
        statuses: &[400, 500],
        words: &["image input is not supported"],
        refused: || Refused::VisionUnsupported,
        reason: "llama.cpp's server: 500 locally, 400 in the cloud",
    },
    Row {
        statuses: &[400, 500],
        words: &["does not support", "image"],
        refused: || Refused::VisionUnsupported,
        reason: "capability check of models without a projector",
    },
    Row {
        statuses: &[400, 500],
        words: &["missing data required for image input"],
        refused: || Refused::VisionUnsupported,
        reason: "Ollama's own runner: the model has no vision part",
    },
    Row {
        statuses: &[400],
        words: &["exceeds the available context size"],
        refused: context_exceeded,
        reason: "llama.cpp's server with truncate:false; n_prompt_tokens and n_ctx stand beside it",
    },
    Row {
        statuses: &[400],
        words: &["exceeds", "context length"],
        refused: context_exceeded,
        reason: "Ollama's own check: input length exceeds the context length",
    },
    Row {
        statuses: &[400],
        words: &["prompt too long"],
        refused: context_exceeded,
        reason: "the cloud: prompt too long; exceeded max context length",
    },
    Row {
        statuses: &[500],
        words: &["error parsing tool call"],
        refused: || Refused::BrokenCall,
        reason: "harmony parser: the model's own call is not JSON",
    },
    Row {
        statuses: &[500],
        words: &["xml syntax error"],
        refused: || Refused::BrokenCall,
        reason: "qwen3-coder's parser: the model's own call is not XML",
    },
    Row {
        statuses: &[500],
        words: &["failed to parse", "tool call"],
        refused: || Refused::BrokenCall,
        reason: "the other call parsers",
    },
    Row {
        statuses: &[500],
        words: &["unexpected end of json input"],
        refused: || Refused::BrokenCall,
        reason: "Go's JSON reader on the arguments that the model wrote; our own request is complete JSON",
    },
    Row {
        statuses: &[500],
        words: &["invalid character", "looking for"],
        refused: || Refused::BrokenCall,
        reason: "the same reader on wrong JSON",
    },
    Row {
        statuses: &[500],
        words: &["runner process", "terminated"],
        refused: || Refused::RunnerDied,
        reason: "llama runner process has terminated: out of memory, a signal",
    },
    Row {
        statuses: &[500],
        words: &["runner process no longer running"],
        refused: || Refused::RunnerDied,
        reason: "the server noticed before it asked",
    },
    Row {
        statuses: &[500],
        words: &["error was encountered while running the model"],
        refused: || Refused::RunnerDied,
        reason: "the server lost its connection to the runner",
    },
    Row {
        statuses: &[],
        words: &["maximum pending requests exceeded"],
        refused: || Refused::Busy,
        reason: "server busy, please try again: the local queue is full (503)",
    },
];

/// What an answer with an error status means.
pub(super) fn refusal(status: u16, body: &str) -> Refused {
    let error = ErrorBody::read(body);
    if let Some(exceeded) = error.context_exceeded() {
        return exceeded;
    }
    let words = error.text.to_lowercase();
    let row = ROWS.iter().find(|row| {
        (row.statuses.is_empty() || row.statuses.contains(&status))
            && row.words.iter().all(|word| words.contains(word))
    });
    match (row.map(|row| (row.refused)()), status) {
        (Some(Refused::ContextExceeded { .. }), _) => Refused::ContextExceeded {
            prompt_tokens: error.number("n_prompt_tokens"),
            context: error.number("n_ctx"),
        },
        (Some(refused), _) => refused,
        (None, 401 | 403) => Refused::Unauthorized {
            signin_url: error.word("signin_url"),
        },
        (None, 429 | 503) => Refused::Busy,
        (None, 502) => Refused::BadGateway,
        (None, 504) => Refused::GatewayTimeout,
        (None, _) => Refused::Other(error.text),
    }
}

/// The `error` of a body, whichever of its forms it has.
struct ErrorBody {
    text: String,
    /// Objects that may hold fields, the innermost last.
    objects: Vec<Value>,
}

/// `{"error":"{\"error\":{…}}"}` is two layers; more are not followed.
const LAYERS: usize = 4;

impl ErrorBody {
    fn read(body: &str) -> Self {
        let mut text = body.trim().to_owned();
        let mut objects = Vec::new();
        for _ in 0..LAYERS {
            // An error text can start with words of its own before the JSON inside it.
            let Some(start) = text.find('{') else { break };
            let Ok(mut value) = serde_json::from_str::<Value>(&text[start..]) else {
                break;
            };
            let mut next = value.get_mut("error").map(Value::take);
            objects.push(value);
            if let Some(inner @ Value::Object(_)) = next {
                next = inner.get("message").cloned();
                objects.push(inner);
            } else if next.is_none() {
                next = objects
                    .last()
                    .and_then(|object| object.get("message"))
                    .cloned();
            }
            match next {
                Some(Value::String(inner)) => text = inner,
                _ => break,
            }
        }
        Self { text, objects }
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.objects
            .iter()
            .rev()
            .find_map(|object| object.get(field)?.as_u64())
    }

    fn word(&self, field: &str) -> Option<String> {
        self.objects
            .iter()
            .rev()
            .find_map(|object| Some(object.get(field)?.as_str()?.to_owned()))
    }

    /// llama.cpp's server names this one in a field of its own.
    fn context_exceeded(&self) -> Option<Refused> {
        (self.word("type")? == "exceed_context_size_error").then(|| Refused::ContextExceeded {
            prompt_tokens: self.number("n_prompt_tokens"),
            context: self.number("n_ctx"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_row_says_why_and_can_be_reached() {
        for row in ROWS {
            assert!(row.reason.len() > 10);
            let text = row.words.join(" … ");
            let status = row.statuses.first().copied().unwrap_or(503);
            assert_eq!(
                refusal(status, &json!({ "error": text }).to_string()),
                (row.refused)(),
                "{text}"
            );
        }
    }

    #[test]
    fn a_context_error_is_read_through_both_layers() {
        let inner = json!({"error": {
            "code": 400, "message": "the request exceeds the available context size", "type": "exceed_context_size_error",
            "n_prompt_tokens": 9000, "n_ctx": 4096
        }});
        let exceeded = Refused::ContextExceeded {
            prompt_tokens: Some(9000),
            context: Some(4096),
        };
        for body in [
            inner.to_string(),
            json!({"error": inner.to_string()}).to_string(),
            json!({"error": format!("llama: {inner}")}).to_string(),
            json!({"error": inner["error"].to_string()}).to_string(),
        ] {
            assert_eq!(refusal(400, &body), exceeded, "{body}");
        }
        let mut without_type = inner;
        without_type["error"]["type"] = json!("invalid_request_error");
        assert_eq!(
            refusal(400, &json!({"error": without_type.to_string()}).to_string()),
            exceeded
        );
    }

    #[test]
    fn words_count_only_with_their_status() {
        let tools = json!({"error": "registry says x does not support tools"}).to_string();
        assert!(matches!(refusal(404, &tools), Refused::Other(_)));
        assert!(matches!(
            refusal(404, "404 page not found"),
            Refused::Other(_)
        ));
        assert_eq!(
            refusal(502, "<html>Bad Gateway</html>"),
            Refused::BadGateway
        );
        assert_eq!(refusal(503, ""), Refused::Busy);
        assert_eq!(
            refusal(
                401,
                &json!({"error": "unauthorized", "signin_url": "s"}).to_string()
            ),
            Refused::Unauthorized {
                signin_url: Some("s".into())
            }
        );
    }
}
