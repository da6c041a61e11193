//! Proposals from short data, for tests that are about graphs.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::collections::BTreeSet;

use planner::{
    PlanRules, ProposedEstimate, TaskGraph, TaskId, TaskProposal, TaskState, TokenBudgetClass,
    Tokens, ToolId,
};

pub fn id(text: &str) -> TaskId {
    TaskId::new(text).unwrap()
}

pub fn ids(texts: &[&str]) -> Vec<TaskId> {
    texts.iter().map(|text| id(text)).collect()
}

pub fn tools(names: &[&str]) -> BTreeSet<ToolId> {
    names
        .iter()
        .map(|name| ToolId::new(name).unwrap())
        .collect()
}

pub fn rules() -> PlanRules {
    PlanRules::new(tools(&["file_edit", "process_run"]))
}

pub fn estimate(o: u64, m: u64, p: u64) -> ProposedEstimate {
    ProposedEstimate {
        optimistic: Tokens(o),
        most_likely: Tokens(m),
        pessimistic: Tokens(p),
    }
}

/// A pure Task of class 8K that costs exactly `cost` tokens.
pub fn task(name: &str, cost: u64, on: &[&str]) -> TaskProposal {
    TaskProposal {
        id: id(name),
        description: format!("explain {name}"),
        dependencies: on.iter().map(|text| id(text)).collect(),
        budget_class: TokenBudgetClass::K8,
        estimate: estimate(cost, cost, cost),
        requires_external_effect: false,
        required_tools: BTreeSet::new(),
    }
}

/// A Task with an external effect through `names`.
pub fn effect(name: &str, on: &[&str], names: &[&str]) -> TaskProposal {
    TaskProposal {
        requires_external_effect: true,
        required_tools: tools(names),
        ..task(name, 100, on)
    }
}

pub fn build(proposals: Vec<TaskProposal>) -> TaskGraph {
    TaskGraph::build(proposals, rules()).unwrap()
}

pub fn complete(graph: &mut TaskGraph, name: &str) {
    graph.transition(&id(name), TaskState::Running).unwrap();
    graph.transition(&id(name), TaskState::Completed).unwrap();
}

pub fn names<'a>(tasks: impl IntoIterator<Item = &'a TaskId>) -> Vec<&'a str> {
    tasks.into_iter().map(TaskId::as_str).collect()
}

pub fn ready(graph: &TaskGraph) -> Vec<&str> {
    names(graph.ready().into_iter().map(|task| &task.id))
}
