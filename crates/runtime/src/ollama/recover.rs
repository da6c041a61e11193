//! Calls as models write them, made into calls as they should be ("Survive these" 1, 3, 4).

use super::answer::{AnswerNote, WireCall};
use super::extract::whole_fence;
use super::schema::ToolSet;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The calls of one answer, in array order, without duplicates. `earlier` is how many calls the conversation holds
/// already: it makes the ids made here unique.
pub(super) fn calls(
    tool_calls: &[Value],
    tools: Option<&ToolSet>,
    earlier: usize,
    notes: &mut Vec<AnswerNote>,
) -> Vec<WireCall> {
    let mut calls: Vec<WireCall> = Vec::with_capacity(tool_calls.len());
    let mut duplicates = 0;
    for written in tool_calls {
        let function = written.get("function").unwrap_or(written);
        let Some(name) = function
            .get("name")
            .and_then(Value::as_str)
            .filter(|name| !name.trim().is_empty())
        else {
            notes.push(AnswerNote::UnreadableCall);
            continue;
        };
        let id = written
            .get("id")
            .and_then(Value::as_str)
            .filter(|id| !id.is_empty());
        let call = call(name, function.get("arguments"), id, tools, notes);
        if calls
            .iter()
            .any(|kept| kept.wire_name == call.wire_name && kept.arguments == call.arguments)
        {
            duplicates += 1;
        } else {
            calls.push(call);
        }
    }
    if duplicates > 0 {
        notes.push(AnswerNote::DuplicateCalls(duplicates));
    }
    give_ids(&mut calls, earlier, notes);
    calls
}

/// The one call that a content is, if the whole content or one whole fence is `{name, arguments}` with an offered name.
pub(super) fn call_in_content(
    content: &str,
    tools: &ToolSet,
    earlier: usize,
    notes: &mut Vec<AnswerNote>,
) -> Option<WireCall> {
    let text = whole_fence(content).unwrap_or(content).trim();
    if !text.starts_with('{') {
        return None;
    }
    let object: Map<String, Value> = serde_json::from_str(text).ok()?;
    let (Some(Value::String(name)), Some(arguments), 2) =
        (object.get("name"), object.get("arguments"), object.len())
    else {
        return None;
    };
    tools.catalogue_of(name)?;
    notes.push(AnswerNote::CallInContent);
    let mut calls = vec![call(name, Some(arguments), None, Some(tools), notes)];
    give_ids(&mut calls, earlier, notes);
    calls.pop()
}

/// One call. Its id stays empty where the model gave none.
fn call(
    name: &str,
    arguments: Option<&Value>,
    id: Option<&str>,
    tools: Option<&ToolSet>,
    notes: &mut Vec<AnswerNote>,
) -> WireCall {
    let catalogue = tools.and_then(|tools| tools.catalogue_of(name));
    let wire_name = match catalogue
        .and_then(|catalogue| Some((catalogue, tools?.wires().wire_of(catalogue)?)))
    {
        Some((_, wire)) if wire == name => name.to_owned(),
        Some((catalogue, wire)) => {
            notes.push(AnswerNote::CatalogueNameUsed(catalogue));
            wire.to_owned()
        }
        None => {
            notes.push(AnswerNote::UnknownTool(name.to_owned()));
            name.to_owned()
        }
    };
    let mut arguments = read_arguments(&wire_name, arguments, notes);
    if let (Value::Object(arguments), Some(schema)) = (
        &mut arguments,
        tools.and_then(|tools| tools.parameters_of(&wire_name)),
    ) {
        read_text_values(&wire_name, arguments, schema, notes);
    }
    WireCall {
        id: id.unwrap_or_default().to_owned(),
        wire_name,
        catalogue,
        arguments,
    }
}

fn read_arguments(tool: &str, arguments: Option<&Value>, notes: &mut Vec<AnswerNote>) -> Value {
    match arguments {
        None | Some(Value::Null) => {
            notes.push(AnswerNote::ArgumentsMissing(tool.to_owned()));
            Value::Object(Map::new())
        }
        Some(object @ Value::Object(_)) => object.clone(),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(object @ Value::Object(_)) => {
                notes.push(AnswerNote::ArgumentsWereText(tool.to_owned()));
                object
            }
            _ => {
                notes.push(AnswerNote::ArgumentsUnreadable(tool.to_owned()));
                Value::String(text.clone())
            }
        },
        Some(other) => {
            notes.push(AnswerNote::ArgumentsUnreadable(tool.to_owned()));
            other.clone()
        }
    }
}

/// `"5"` where the schema has only a number, and the like. Text stays text wherever text is allowed.
fn read_text_values(
    tool: &str,
    arguments: &mut Map<String, Value>,
    schema: &Value,
    notes: &mut Vec<AnswerNote>,
) {
    for (name, value) in arguments {
        let Value::String(text) = &*value else {
            continue;
        };
        let wanted = types(&schema["properties"][name.as_str()]);
        if wanted.is_empty() || wanted.contains("string") {
            continue;
        }
        let Ok(read) = serde_json::from_str::<Value>(text.trim()) else {
            continue;
        };
        let fits = match &read {
            Value::Number(number) => {
                wanted.contains("number") || (wanted.contains("integer") && !number.is_f64())
            }
            Value::Bool(_) => wanted.contains("boolean"),
            Value::Array(_) => wanted.contains("array"),
            Value::Null => wanted.contains("null"),
            Value::Object(_) => wanted.contains("object"),
            Value::String(_) => false,
        };
        if fits {
            *value = read;
            notes.push(AnswerNote::ValueWasText {
                tool: tool.to_owned(),
                argument: name.clone(),
            });
        }
    }
}

/// The types a property may have: its `type` (one or several) and those of its `anyOf`.
fn types(property: &Value) -> BTreeSet<&str> {
    let own = property
        .get("type")
        .into_iter()
        .flat_map(|types| match types {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect::<Vec<_>>(),
        });
    let any_of = property
        .get("anyOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .flat_map(types);
    own.chain(any_of).collect()
}

fn give_ids(calls: &mut [WireCall], earlier: usize, notes: &mut Vec<AnswerNote>) {
    let mut seen = BTreeSet::new();
    for (index, call) in calls.iter_mut().enumerate() {
        let fresh = format!("call_{}", earlier + index);
        if call.id.is_empty() {
            call.id = fresh;
        } else if seen.contains(&call.id) {
            notes.push(AnswerNote::DuplicateId(std::mem::replace(
                &mut call.id,
                fresh,
            )));
        }
        seen.insert(call.id.clone());
    }
}
