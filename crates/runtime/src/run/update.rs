//! `task_update` (DESIGN §7.5): the model may add Tasks, dependencies and estimates; states are ours.

use super::Run;
use super::begin::Seat;
use super::halt::Halt;
use crate::ledger::Event;
use crate::plan::{self, Reason};
use crate::tools::ToolResult;
use planner::{ProposedEstimate, TaskId, Tokens};
use policy::Refusal;
use policy::tool::{TaskOperation, TaskUpdate};
use record::EventName;
use serde_json::{Map, Value, json};

impl Run {
    /// Checks and applies one change; the graph stays as it was when the planner refuses (PLN-01…05).
    pub(super) async fn update_graph(
        &mut self,
        seat: &Seat,
        update: &TaskUpdate,
    ) -> Result<ToolResult, Halt> {
        let whitelist = self.engine.whitelist.clone();
        let graph = self.graph()?;
        let changed = match update.operation {
            TaskOperation::Add => {
                let id = update.task_id.clone().unwrap_or_else(|| fresh_id(graph));
                plan::read(&json!([wire_form(update, &id)]), &whitelist)
                    .and_then(|mut proposals| match proposals.pop() {
                        Some(proposal) => graph.add(proposal).map_err(of_graph),
                        None => Err(Vec::new()),
                    })
                    .map(|()| format!("Task {id} was added."))
            }
            TaskOperation::AddDependency => named(update).and_then(|id| {
                let ids: Result<Vec<TaskId>, _> =
                    update.depends_on.iter().map(|id| TaskId::new(id)).collect();
                let ids =
                    ids.map_err(|problem| vec![Reason::Form(format!("depends_on: {problem}"))])?;
                if ids.is_empty() {
                    return Err(vec![Reason::Form("depends_on is missing".into())]);
                }
                // All or nothing.
                let mut changed = graph.clone();
                for on in &ids {
                    changed.add_dependency(&id, on).map_err(of_graph)?;
                }
                *graph = changed;
                Ok(format!(
                    "Task {id} now comes after {}.",
                    update.depends_on.join(", ")
                ))
            }),
            TaskOperation::SetEstimate => named(update).and_then(|id| {
                let current = graph.task(&id).map(|task| task.budget_class);
                let class = match (&update.budget_class, current) {
                    (Some(text), _) => text.trim().to_uppercase().parse().map_err(
                        |problem: planner::UnknownBudgetClass| {
                            vec![Reason::Form(problem.to_string())]
                        },
                    )?,
                    (None, Some(class)) => class,
                    (None, None) => {
                        return Err(vec![Reason::Graph(planner::PlanError::UnknownTask { id })]);
                    }
                };
                let estimate = estimate(update)?;
                graph.set_estimate(&id, class, estimate).map_err(of_graph)?;
                Ok(format!("The estimate of task {id} was set."))
            }),
        };
        let target = update.task_id.clone().unwrap_or_default();
        match changed {
            Ok(text) => {
                let detail = json!({"operation": update.operation, "critical_path": graph.critical_path().tasks()});
                let event = Event::new(EventName::PlanAccepted, &target)
                    .of_task(seat.id.as_str())
                    .detail(detail);
                self.ledger.audit(event).await?;
                if let Some(graph) = &self.graph {
                    self.board.planned(graph);
                }
                Ok(ToolResult::success(text, Some(target), Vec::new()))
            }
            Err(reasons) => {
                let texts: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                let refusal = Refusal::new(plan::code_of(&reasons), "PLN", &target)
                    .with("detail", texts.join("; "));
                let event = Event::new(EventName::PlanRejected, &target)
                    .of_task(seat.id.as_str())
                    .denied(refusal.code)
                    .detail(json!({"operation": update.operation, "reasons": texts}));
                self.ledger.audit(event).await?;
                Ok(refusal.into())
            }
        }
    }
}

fn of_graph(problems: Vec<planner::PlanError>) -> Vec<Reason> {
    problems.into_iter().map(Reason::Graph).collect()
}

fn named(update: &TaskUpdate) -> Result<TaskId, Vec<Reason>> {
    let text = update.task_id.as_deref().unwrap_or("");
    TaskId::new(text).map_err(|problem| vec![Reason::Form(format!("task_id: {problem}"))])
}

/// The first of t1, t2, … that is free.
fn fresh_id(graph: &planner::TaskGraph) -> String {
    let taken = |id: &String| graph.tasks().iter().any(|task| task.id.as_str() == id);
    (1..)
        .map(|number: usize| format!("t{number}"))
        .find(|id| !taken(id))
        .unwrap_or_default()
}

/// The same form that a plan has, so that both are read by one reader.
fn wire_form(update: &TaskUpdate, id: &str) -> Value {
    let mut task = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            task.insert(name.to_owned(), value);
        }
    };
    put("id", Some(json!(id)));
    put(
        "description",
        update.description.as_ref().map(|text| json!(text)),
    );
    put("depends_on", Some(json!(update.depends_on)));
    put(
        "budget_class",
        update.budget_class.as_ref().map(|text| json!(text)),
    );
    put(
        "optimistic_tokens",
        update.optimistic_tokens.map(|tokens| json!(tokens)),
    );
    put(
        "most_likely_tokens",
        update.most_likely_tokens.map(|tokens| json!(tokens)),
    );
    put(
        "pessimistic_tokens",
        update.pessimistic_tokens.map(|tokens| json!(tokens)),
    );
    put(
        "requires_external_effect",
        update.requires_external_effect.map(|flag| json!(flag)),
    );
    put("required_tools", Some(json!(update.required_tools)));
    Value::Object(task)
}

fn estimate(update: &TaskUpdate) -> Result<ProposedEstimate, Vec<Reason>> {
    let mut reasons = Vec::new();
    let mut need = |name: &str, value: Option<u64>| match value {
        Some(value) => Tokens(value),
        None => {
            reasons.push(Reason::Form(format!("{name} is missing")));
            Tokens::ZERO
        }
    };
    let estimate = ProposedEstimate {
        optimistic: need("optimistic_tokens", update.optimistic_tokens),
        most_likely: need("most_likely_tokens", update.most_likely_tokens),
        pessimistic: need("pessimistic_tokens", update.pessimistic_tokens),
    };
    if reasons.is_empty() {
        Ok(estimate)
    } else {
        Err(reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::Code;

    #[test]
    fn pln_estimates_are_never_made_up() {
        let update: TaskUpdate = serde_json::from_value(
            json!({"operation": "set_estimate", "task_id": "t1", "optimistic_tokens": 5}),
        )
        .unwrap();
        let reasons = estimate(&update).unwrap_err();
        assert_eq!(reasons.len(), 2);
        assert_eq!(plan::code_of(&reasons), Code::PlanInvalid);
    }
}
