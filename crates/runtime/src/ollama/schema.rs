//! Tool schemas that survive Ollama.
//!
//! It keeps `type, description, enum, items, properties, required, anyOf` and drops the rest without a word, so what is
//! dropped is decided here: keywords whose loss only widens what we check ourselves are taken out, keywords whose loss
//! changes the meaning are refused.

use super::wire::ToolWires;
use serde_json::{Map, Value, json};

/// One tool as the catalogue describes it.
#[derive(Clone, Copy, Debug)]
pub struct ToolDefinition<'a> {
    /// Catalogue name.
    pub catalogue: &'a str,
    /// For the model: what it does and when to use it.
    pub description: &'a str,
    /// JSON Schema of its arguments: an object with at least one required property.
    pub parameters: &'a Value,
}

/// Tools as they go over the wire, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSet {
    tools: Vec<Value>,
    wires: ToolWires,
}

/// A tool that would not arrive at the model as it was meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaProblem {
    /// No wire name for it.
    #[error("no wire name for {0}")]
    NoWireName(String),
    /// A keyword whose loss changes the meaning.
    #[error("{tool}: {keyword} at {place} would be lost")]
    Keyword {
        /// Catalogue name.
        tool: String,
        /// JSON pointer.
        place: String,
        /// The keyword.
        keyword: String,
    },
    /// Not the shape a schema has there.
    #[error("{tool}: unusable schema at {place}")]
    Shape {
        /// Catalogue name.
        tool: String,
        /// JSON pointer.
        place: String,
    },
    /// Calls without arguments are missed by the server ("Survive these" 3).
    #[error("{0} has no required parameter")]
    NothingRequired(String),
}

/// What happens to a keyword, and why. A keyword that is not listed is refused.
const KEYWORDS: &[(&str, Fate, &str)] = &[
    ("type", Fate::Keep, "survives"),
    ("description", Fate::Keep, "survives"),
    ("enum", Fate::Keep, "survives"),
    ("items", Fate::Descend, "survives"),
    ("anyOf", Fate::DescendList, "survives"),
    ("properties", Fate::DescendMap, "survives"),
    ("required", Fate::Keep, "survives"),
    ("$schema", Fate::Strip, "says only which dialect it is"),
    ("title", Fate::Strip, "repeats the name"),
    ("examples", Fate::Strip, "belongs into the description"),
    ("default", Fate::Strip, "our parser fills it in"),
    ("format", Fate::Strip, "our parser checks it"),
    ("minimum", Fate::Strip, "our parser checks it"),
    ("maximum", Fate::Strip, "our parser checks it"),
    ("minLength", Fate::Strip, "our parser checks it"),
    ("maxLength", Fate::Strip, "our parser checks it"),
    ("minItems", Fate::Strip, "our parser checks it"),
    ("maxItems", Fate::Strip, "our parser checks it"),
    (
        "additionalProperties",
        Fate::Strip,
        "our parser refuses unknown fields",
    ),
];

#[derive(Clone, Copy)]
enum Fate {
    Keep,
    Strip,
    Descend,
    DescendList,
    DescendMap,
}

impl ToolSet {
    /// Checks every tool and gives it its wire name.
    pub fn new(
        definitions: &[ToolDefinition<'_>],
        wires: &ToolWires,
    ) -> Result<Self, SchemaProblem> {
        let mut tools = Vec::with_capacity(definitions.len());
        for definition in definitions {
            let wire = wires
                .wire_of(definition.catalogue)
                .ok_or_else(|| SchemaProblem::NoWireName(definition.catalogue.to_owned()))?;
            let parameters = cleaned(definition.catalogue, definition.parameters, "")?;
            check_root(definition.catalogue, &parameters)?;
            tools.push(json!({
                "type": "function",
                "function": {"name": wire, "description": definition.description, "parameters": parameters},
            }));
        }
        Ok(Self {
            tools,
            wires: wires.clone(),
        })
    }

    /// The names, both ways.
    pub fn wires(&self) -> &ToolWires {
        &self.wires
    }

    /// As they are sent.
    pub fn tools(&self) -> &[Value] {
        &self.tools
    }

    /// The catalogue name of an offered tool that the model wrote; nothing for one that was not offered.
    pub(super) fn catalogue_of(&self, written: &str) -> Option<&'static str> {
        let catalogue = self.wires.catalogue_of(written)?;
        self.parameters_of(self.wires.wire_of(catalogue)?)
            .map(|_| catalogue)
    }

    /// The schema of an offered tool's arguments.
    pub(super) fn parameters_of(&self, wire: &str) -> Option<&Value> {
        self.tools
            .iter()
            .map(|tool| &tool["function"])
            .find(|function| function["name"] == wire)
            .map(|f| &f["parameters"])
    }
}

fn check_root(tool: &str, parameters: &Map<String, Value>) -> Result<(), SchemaProblem> {
    let shape = || SchemaProblem::Shape {
        tool: tool.to_owned(),
        place: String::new(),
    };
    let properties = parameters
        .get("properties")
        .and_then(Value::as_object)
        .ok_or_else(shape)?;
    if parameters.get("type").and_then(Value::as_str) != Some("object") {
        return Err(shape());
    }
    let required = parameters
        .get("required")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    if required.is_empty() {
        return Err(SchemaProblem::NothingRequired(tool.to_owned()));
    }
    if required.iter().all(|name| {
        name.as_str()
            .is_some_and(|name| properties.contains_key(name))
    }) {
        Ok(())
    } else {
        Err(SchemaProblem::Shape {
            tool: tool.to_owned(),
            place: "/required".to_owned(),
        })
    }
}

fn cleaned(tool: &str, schema: &Value, place: &str) -> Result<Map<String, Value>, SchemaProblem> {
    let shape = |place: String| SchemaProblem::Shape {
        tool: tool.to_owned(),
        place,
    };
    let object = schema.as_object().ok_or_else(|| shape(place.to_owned()))?;
    let mut kept = Map::new();
    for (keyword, value) in object {
        let here = format!("{place}/{keyword}");
        let Some((_, fate, _)) = KEYWORDS.iter().find(|(known, ..)| known == keyword) else {
            return Err(SchemaProblem::Keyword {
                tool: tool.to_owned(),
                place: if place.is_empty() {
                    "/".to_owned()
                } else {
                    place.to_owned()
                },
                keyword: keyword.clone(),
            });
        };
        let value = match fate {
            Fate::Strip => continue,
            Fate::Keep => value.clone(),
            Fate::Descend => Value::Object(cleaned(tool, value, &here)?),
            Fate::DescendList => {
                let list = value.as_array().ok_or_else(|| shape(here.clone()))?;
                let inner = list.iter().enumerate().map(|(index, item)| {
                    cleaned(tool, item, &format!("{here}/{index}")).map(Value::Object)
                });
                Value::Array(inner.collect::<Result<_, _>>()?)
            }
            Fate::DescendMap => {
                let map = value.as_object().ok_or_else(|| shape(here.clone()))?;
                let inner = map.iter().map(|(name, item)| {
                    Ok((
                        name.clone(),
                        Value::Object(cleaned(tool, item, &format!("{here}/{name}"))?),
                    ))
                });
                Value::Object(inner.collect::<Result<_, _>>()?)
            }
        };
        kept.insert(keyword.clone(), value);
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::super::wire::ToolWire;
    use super::*;

    fn set(parameters: Value) -> Result<ToolSet, SchemaProblem> {
        let wires = ToolWires::new(&[ToolWire {
            catalogue: "dir",
            wire: "manage_directory",
        }])
        .unwrap();
        let definition = ToolDefinition {
            catalogue: "dir",
            description: "d",
            parameters: &parameters,
        };
        ToolSet::new(&[definition], &wires)
    }

    #[test]
    fn oll_10_only_what_survives_is_sent() {
        let tools = set(json!({
            "$schema": "x", "title": "Dir", "type": "object", "additionalProperties": false,
            "properties": {
                "path": {"type": "string", "description": "p", "maxLength": 9},
                "n": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
                "l": {"type": "array", "items": {"type": "string", "format": "uri"}},
                "title": {"type": "string", "enum": ["a"]}
            },
            "required": ["path"]
        }))
        .unwrap();
        assert_eq!(
            tools.tools()[0],
            json!({"type": "function", "function": {"name": "manage_directory", "description": "d", "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "p"},
                    "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "l": {"type": "array", "items": {"type": "string"}},
                    "title": {"type": "string", "enum": ["a"]}
                },
                "required": ["path"]
            }}})
        );
        assert_eq!(tools.catalogue_of("dir"), Some("dir"));
        assert_eq!(tools.catalogue_of("list_directory"), None);
    }

    #[test]
    fn a_schema_that_would_lose_its_meaning_is_refused() {
        for keyword in [
            "$ref",
            "oneOf",
            "allOf",
            "not",
            "const",
            "$defs",
            "patternProperties",
            "if",
        ] {
            let mut path = Map::new();
            path.insert(keyword.to_owned(), json!("x"));
            let problem =
                set(json!({"type": "object", "properties": {"path": path}, "required": ["path"]}));
            let place = "/properties/path".to_owned();
            assert_eq!(
                problem,
                Err(SchemaProblem::Keyword {
                    tool: "dir".into(),
                    place,
                    keyword: keyword.into()
                })
            );
        }
    }

    #[test]
    fn survive_3_every_tool_has_a_required_parameter() {
        let nothing = Err(SchemaProblem::NothingRequired("dir".into()));
        assert_eq!(
            set(json!({"type": "object", "properties": {"a": {}}})),
            nothing
        );
        assert_eq!(
            set(json!({"type": "object", "properties": {"a": {}}, "required": []})),
            nothing
        );
        assert!(matches!(
            set(json!({"type": "object", "properties": {"a": {}}, "required": ["b"]})),
            Err(SchemaProblem::Shape { .. })
        ));
        assert!(matches!(
            set(json!({"type": "string"})),
            Err(SchemaProblem::Shape { .. })
        ));
        assert!(matches!(set(json!([])), Err(SchemaProblem::Shape { .. })));
    }
}
