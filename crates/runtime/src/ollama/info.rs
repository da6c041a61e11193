//! What the server says about itself and its models.

use serde_json::Value;

/// What a model can do. A word that is not known here is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Chat.
    pub completion: bool,
    /// Tool calls (OLL-10).
    pub tools: bool,
    /// Images (OLL-09).
    pub vision: bool,
    /// Thinking.
    pub thinking: bool,
}

/// `/api/show`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelDetails {
    /// Nothing where the server does not say: then the call is made and its refusal is read (DESIGN §6.4).
    pub capabilities: Option<Capabilities>,
    /// The longest context the model was made for, tokens.
    pub context_length: Option<u64>,
    /// The answer as it came.
    pub raw: Value,
}

/// One line of `/api/tags`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledModel {
    /// Its name, as `ollama.model` wants it.
    pub name: String,
    /// Bytes on the disk.
    pub size: Option<u64>,
}

/// One line of `/api/ps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedModel {
    /// Its name.
    pub name: String,
    /// The context really allocated, tokens.
    pub context_length: Option<u64>,
    /// Bytes in memory.
    pub size: Option<u64>,
    /// Bytes of them on the GPU.
    pub size_vram: Option<u64>,
}

impl ModelDetails {
    pub(super) fn read(raw: Value) -> Self {
        let capabilities = raw
            .get("capabilities")
            .and_then(Value::as_array)
            .map(|words| {
                let has = |word: &str| words.iter().any(|one| one == word);
                Capabilities {
                    completion: has("completion"),
                    tools: has("tools"),
                    vision: has("vision"),
                    thinking: has("thinking"),
                }
            });
        Self {
            capabilities,
            context_length: context_length(&raw),
            raw,
        }
    }
}

/// `model_info["<architecture>.context_length"]`; without an architecture the only such key there is.
fn context_length(raw: &Value) -> Option<u64> {
    let info = raw.get("model_info")?.as_object()?;
    if let Some(architecture) = info.get("general.architecture").and_then(Value::as_str)
        && let Some(length) = info.get(&format!("{architecture}.context_length"))
    {
        return length.as_u64();
    }
    let mut lengths = info
        .iter()
        .filter(|(key, _)| key.ends_with(".context_length"));
    match (lengths.next(), lengths.next()) {
        (Some((_, only)), None) => only.as_u64(),
        _ => None,
    }
}

pub(super) fn installed(raw: &Value) -> Vec<InstalledModel> {
    let line = |model: &Value| {
        Some(InstalledModel {
            name: name(model)?,
            size: model.get("size").and_then(Value::as_u64),
        })
    };
    models(raw).filter_map(line).collect()
}

pub(super) fn loaded(raw: &Value) -> Vec<LoadedModel> {
    let number = |model: &Value, field: &str| model.get(field).and_then(Value::as_u64);
    let line = |model: &Value| {
        Some(LoadedModel {
            name: name(model)?,
            context_length: number(model, "context_length"),
            size: number(model, "size"),
            size_vram: number(model, "size_vram"),
        })
    };
    models(raw).filter_map(line).collect()
}

fn models(raw: &Value) -> impl Iterator<Item = &Value> {
    raw.get("models")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn name(model: &Value) -> Option<String> {
    let name = model.get("name").or_else(|| model.get("model"))?.as_str()?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn show_says_what_a_model_can_do_or_that_it_does_not_say() {
        let details = ModelDetails::read(json!({
            "capabilities": ["completion", "tools", "telepathy"],
            "model_info": {"general.architecture": "qwen2", "qwen2.context_length": 32768, "clip.context_length": 77}
        }));
        let capabilities = Capabilities {
            completion: true,
            tools: true,
            ..Capabilities::default()
        };
        assert_eq!(details.capabilities, Some(capabilities));
        assert_eq!(details.context_length, Some(32768));
        let silent = ModelDetails::read(json!({"model_info": {"llama.context_length": 8192}}));
        assert_eq!(
            (silent.capabilities, silent.context_length),
            (None, Some(8192))
        );
        let odd = ModelDetails::read(json!({"capabilities": "tools", "model_info": [1]}));
        assert_eq!((odd.capabilities, odd.context_length), (None, None));
    }
}
