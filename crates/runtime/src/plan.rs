//! A plan as the model writes it, made into proposals, or everything that is wrong with it (DESIGN §8.4).
//!
//! Lenient in form (a number as text, a fence around the JSON, lower case, the wire name of a tool), never in substance:
//! nothing that is missing is made up.

use planner::{
    IdError, PlanError, ProposedEstimate, TaskId, TaskProposal, TokenBudgetClass, Tokens, ToolId,
};
use policy::Code;
use policy::tool::ToolName;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The schema for `format` (structured output).
///
/// How many Tasks there may be is not in it: grammars get large with it, and the planner says it better.
pub(crate) fn schema(whitelist: &BTreeSet<ToolName>) -> Value {
    let tools: Vec<&str> = whitelist.iter().map(|tool| tool.as_str()).collect();
    let classes: Vec<&str> = TokenBudgetClass::ALL
        .iter()
        .map(|class| class.as_str())
        .collect();
    json!({
        "type": "object",
        "properties": {"tasks": {"type": "array", "items": {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "description": {"type": "string"},
                "depends_on": {"type": "array", "items": {"type": "string"}},
                "budget_class": {"type": "string", "enum": classes},
                "optimistic_tokens": {"type": "integer"},
                "most_likely_tokens": {"type": "integer"},
                "pessimistic_tokens": {"type": "integer"},
                "requires_external_effect": {"type": "boolean"},
                "required_tools": {"type": "array", "items": {"type": "string", "enum": tools}},
            },
            "required": ["id", "description", "depends_on", "budget_class", "optimistic_tokens", "most_likely_tokens",
                "pessimistic_tokens", "requires_external_effect", "required_tools"],
        }}},
        "required": ["tasks"],
    })
}

/// One reason why a plan is refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reason {
    /// Not the form.
    Form(String),
    /// A rule of the graph.
    Graph(PlanError),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Form(text) => f.write_str(text),
            Self::Graph(error) => error.fmt(f),
        }
    }
}

/// The code of a plan that was refused twice.
pub(crate) fn code_of(reasons: &[Reason]) -> Code {
    let is = |wanted: fn(&PlanError) -> bool| {
        reasons
            .iter()
            .any(|reason| matches!(reason, Reason::Graph(error) if wanted(error)))
    };
    if is(|error| {
        matches!(
            error,
            PlanError::Cycle { .. } | PlanError::SelfDependency { .. }
        )
    }) {
        Code::PlanCycle
    } else if is(|error| matches!(error, PlanError::TooManyTasks { .. })) {
        Code::PlanTooManyTasks
    } else if is(|error| matches!(error, PlanError::CompletedImmutable { .. })) {
        Code::PlanCompletedImmutable
    } else {
        Code::PlanInvalid
    }
}

/// Every proposal, or every reason at once.
pub(crate) fn read(
    value: &Value,
    whitelist: &BTreeSet<ToolName>,
) -> Result<Vec<TaskProposal>, Vec<Reason>> {
    let tasks = match value {
        Value::Array(tasks) => tasks,
        Value::Object(object) => match object.get("tasks") {
            Some(Value::Array(tasks)) => tasks,
            _ => return Err(vec![Reason::Form("there is no list \"tasks\"".into())]),
        },
        _ => return Err(vec![Reason::Form("it is not a JSON object".into())]),
    };
    let mut reasons = Vec::new();
    let mut proposals = Vec::new();
    for (index, task) in tasks.iter().enumerate() {
        match task.as_object() {
            None => reasons.push(Reason::Form(format!("tasks[{index}] is not an object"))),
            Some(task) => match (Reader {
                task,
                index,
                whitelist,
            })
            .read()
            {
                Ok(proposal) => proposals.push(proposal),
                Err(wrong) => reasons.extend(wrong),
            },
        }
    }
    if reasons.is_empty() {
        Ok(proposals)
    } else {
        Err(reasons)
    }
}

struct Reader<'a> {
    task: &'a Map<String, Value>,
    index: usize,
    whitelist: &'a BTreeSet<ToolName>,
}

impl Reader<'_> {
    fn read(&self) -> Result<TaskProposal, Vec<Reason>> {
        let mut reasons = Vec::new();
        let mut keep =
            |reason: String| reasons.push(Reason::Form(format!("{}: {reason}", self.name())));
        let id = self.id("id").map_err(&mut keep).ok();
        let description = self.text("description").map_err(&mut keep).ok();
        let dependencies = self.ids("depends_on").map_err(&mut keep).ok();
        let budget_class = self.class().map_err(&mut keep).ok();
        let optimistic = self.tokens("optimistic_tokens").map_err(&mut keep).ok();
        let most_likely = self.tokens("most_likely_tokens").map_err(&mut keep).ok();
        let pessimistic = self.tokens("pessimistic_tokens").map_err(&mut keep).ok();
        let effect = self
            .flag("requires_external_effect")
            .map_err(&mut keep)
            .ok();
        let tools = self.tools().map_err(&mut keep).ok();
        let read = || {
            Some(TaskProposal {
                id: id?,
                description: description?,
                dependencies: dependencies?,
                budget_class: budget_class?,
                estimate: ProposedEstimate {
                    optimistic: optimistic?,
                    most_likely: most_likely?,
                    pessimistic: pessimistic?,
                },
                requires_external_effect: effect?,
                required_tools: tools?,
            })
        };
        read().ok_or(reasons)
    }

    /// How a person would call the Task.
    fn name(&self) -> String {
        match self.task.get("id") {
            Some(Value::String(id)) if !id.is_empty() => {
                format!("task {:?}", id.chars().take(64).collect::<String>())
            }
            _ => format!("tasks[{}]", self.index),
        }
    }

    fn text(&self, field: &str) -> Result<String, String> {
        match self.task.get(field) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            None | Some(Value::Null) => Err(format!("{field} is missing")),
            Some(_) => Err(format!("{field} must be text")),
        }
    }

    fn id(&self, field: &str) -> Result<TaskId, String> {
        let text = self.text(field)?;
        TaskId::new(text.trim()).map_err(|problem: IdError| format!("{field}: {problem}"))
    }

    fn list(&self, field: &str) -> Result<Vec<String>, String> {
        match self.task.get(field) {
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| match item {
                    Value::String(text) => Ok(text.trim().to_owned()),
                    Value::Number(number) => Ok(number.to_string()),
                    _ => Err(format!("{field} must be a list of texts")),
                })
                .collect(),
            None | Some(Value::Null) => Err(format!("{field} is missing (write [] for none)")),
            Some(_) => Err(format!("{field} must be a list")),
        }
    }

    fn ids(&self, field: &str) -> Result<BTreeSet<TaskId>, String> {
        let texts = self.list(field)?;
        texts
            .iter()
            .map(|text| TaskId::new(text).map_err(|problem| format!("{field}: {problem}")))
            .collect()
    }

    fn class(&self) -> Result<TokenBudgetClass, String> {
        let text = self.text("budget_class")?;
        text.trim()
            .to_uppercase()
            .parse()
            .map_err(|problem: planner::UnknownBudgetClass| problem.to_string())
    }

    fn tokens(&self, field: &str) -> Result<Tokens, String> {
        let whole = || format!("{field} must be a whole number of tokens");
        match self.task.get(field) {
            None | Some(Value::Null) => Err(format!("{field} is missing")),
            Some(Value::Number(number)) => {
                let float = number
                    .as_f64()
                    .filter(|float| float.fract() == 0.0 && *float >= 0.0 && *float < 1e12);
                number
                    .as_u64()
                    .or(float.map(|float| float as u64))
                    .map(Tokens)
                    .ok_or_else(whole)
            }
            Some(Value::String(text)) => text.trim().parse().map(Tokens).map_err(|_| whole()),
            Some(_) => Err(whole()),
        }
    }

    fn flag(&self, field: &str) -> Result<bool, String> {
        match self.task.get(field) {
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
            None | Some(Value::Null) => Err(format!("{field} is missing (true or false)")),
            Some(_) => Err(format!("{field} must be true or false")),
        }
    }

    fn tools(&self) -> Result<BTreeSet<ToolId>, String> {
        let names = self.list("required_tools")?;
        let known = || {
            self.whitelist
                .iter()
                .map(|tool| tool.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        names
            .iter()
            .map(|name| {
                let tool = ToolName::ALL
                    .into_iter()
                    .find(|tool| {
                        tool.as_str() == name || crate::catalogue::wire_name(*tool) == name
                    })
                    .filter(|tool| self.whitelist.contains(tool));
                let tool = tool.ok_or_else(|| {
                    format!("required_tools: {name:?} is no tool; use only {}", known())
                })?;
                ToolId::new(tool.as_str()).map_err(|problem| problem.to_string())
            })
            .collect()
    }
}

/// What the model is told about a refused plan; it may correct it once.
pub(crate) fn correction(reasons: &[Reason]) -> String {
    let mut text = String::from("This plan cannot be used:\n");
    for reason in reasons.iter().take(20) {
        text.push_str(&format!(
            "- {}\n",
            crate::compose::clip(&reason.to_string(), 400)
        ));
    }
    text.push_str("Write the whole plan again with every one of these points corrected. Answer with the JSON object only.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> BTreeSet<ToolName> {
        BTreeSet::from(ToolName::ALL)
    }

    fn task() -> Value {
        json!({"id": "t1", "description": "d", "depends_on": [], "budget_class": "4K", "optimistic_tokens": 1,
            "most_likely_tokens": 2, "pessimistic_tokens": 3, "requires_external_effect": true, "required_tools": ["file_edit"]})
    }

    #[test]
    fn a_plan_is_read_leniently_in_form() {
        let mut odd = task();
        odd["id"] = json!(7);
        odd["budget_class"] = json!("4k");
        odd["optimistic_tokens"] = json!("1");
        odd["pessimistic_tokens"] = json!(3.0);
        odd["requires_external_effect"] = json!("true");
        odd["required_tools"] = json!(["manage_directory"]);
        let read = read(&json!([odd]), &all()).unwrap();
        assert_eq!(read[0].id.as_str(), "7");
        assert_eq!(
            read[0]
                .required_tools
                .iter()
                .map(|tool| tool.as_str())
                .collect::<Vec<_>>(),
            ["dir"]
        );
    }

    #[test]
    fn nothing_missing_is_made_up_and_every_reason_is_given() {
        let mut bad = task();
        for field in [
            "pessimistic_tokens",
            "requires_external_effect",
            "depends_on",
        ] {
            bad.as_object_mut().unwrap().remove(field);
        }
        bad["required_tools"] = json!(["browser"]);
        let reasons = read(&json!({"tasks": [bad, 5]}), &all()).unwrap_err();
        let text = correction(&reasons);
        for words in [
            "pessimistic_tokens is missing",
            "requires_external_effect is missing",
            "depends_on is missing",
            "\"browser\" is no tool",
            "tasks[1] is not an object",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn tools_outside_the_whitelist_are_no_tools() {
        let only_reading = BTreeSet::from([ToolName::FileRead]);
        assert!(read(&json!({"tasks": [task()]}), &only_reading).is_err());
    }
}
