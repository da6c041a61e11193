//! P-7: validation, PERT and CPM from 1,000 to 100,000 Tasks. Growth must stay within linear × 1.3.
//!
//! `random` gives each Task up to three dependencies on earlier ones, `chain` exactly one on the Task before it. Making the
//! proposals and dropping the graph is not measured. `dag_*` measures the proof of acyclicity alone, over dense indexes.

use std::collections::BTreeSet;

use divan::Bencher;
use divan::counter::ItemsCount;
use planner::{
    Dag, NodeIndex, PlanRules, ProposedEstimate, TaskGraph, TaskId, TaskProposal, TokenBudgetClass,
    Tokens,
};

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];

fn main() {
    divan::main();
}

#[divan::bench(args = SIZES, sample_count = 50, sample_size = 1)]
fn random(bencher: Bencher<'_, '_>, tasks: usize) {
    plan(bencher, tasks, &random_edges(tasks));
}

#[divan::bench(args = SIZES, sample_count = 50, sample_size = 1)]
fn chain(bencher: Bencher<'_, '_>, tasks: usize) {
    plan(bencher, tasks, &chain_edges(tasks));
}

#[divan::bench(args = SIZES, sample_count = 50, sample_size = 1)]
fn dag_random(bencher: Bencher<'_, '_>, nodes: usize) {
    prove(bencher, nodes, &random_edges(nodes));
}

#[divan::bench(args = SIZES, sample_count = 50, sample_size = 1)]
fn dag_chain(bencher: Bencher<'_, '_>, nodes: usize) {
    prove(bencher, nodes, &chain_edges(nodes));
}

fn plan(bencher: Bencher<'_, '_>, tasks: usize, edges: &[(usize, usize)]) {
    let mut rules = PlanRules::new(BTreeSet::new());
    rules.max_tasks = tasks;
    bencher
        .counter(ItemsCount::new(tasks))
        .with_inputs(|| (proposals(tasks, edges), rules.clone()))
        .bench_values(|(proposals, rules)| {
            let graph = TaskGraph::build(proposals, rules).expect("the proposals are valid");
            assert!(!graph.critical_path().tasks().is_empty());
            graph
        });
}

fn prove(bencher: Bencher<'_, '_>, nodes: usize, edges: &[(usize, usize)]) {
    let node = |place: usize| NodeIndex(u32::try_from(place).expect("sizes are small"));
    let edges: Vec<_> = edges.iter().map(|&(a, b)| (node(a), node(b))).collect();
    bencher
        .counter(ItemsCount::new(nodes))
        .bench_local(|| Dag::build(nodes, &edges).expect("the edges are valid"));
}

fn chain_edges(tasks: usize) -> Vec<(usize, usize)> {
    (1..tasks).map(|task| (task - 1, task)).collect()
}

fn random_edges(tasks: usize) -> Vec<(usize, usize)> {
    let mut next = generator();
    let mut edges = Vec::new();
    for task in 1..tasks {
        for _ in 0..3 {
            edges.push((next() % task, task));
        }
    }
    edges
}

/// Xorshift with a fixed seed: the same graph on every machine.
fn generator() -> impl FnMut() -> usize {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize
    }
}

fn proposals(tasks: usize, edges: &[(usize, usize)]) -> Vec<TaskProposal> {
    let mut next = generator();
    let ids: Vec<TaskId> = (0..tasks)
        .map(|task| TaskId::new(&format!("task-{task}")).expect("the id is well-formed"))
        .collect();
    let mut proposals: Vec<TaskProposal> = ids
        .iter()
        .map(|id| TaskProposal {
            id: id.clone(),
            description: format!("work on {id}"),
            dependencies: BTreeSet::new(),
            budget_class: TokenBudgetClass::K8,
            estimate: {
                let optimistic = next() as u64 % 2000 + 1;
                ProposedEstimate {
                    optimistic: Tokens(optimistic),
                    most_likely: Tokens(optimistic * 2),
                    pessimistic: Tokens(optimistic * 3),
                }
            },
            requires_external_effect: false,
            required_tools: BTreeSet::new(),
        })
        .collect();
    for &(before, after) in edges {
        proposals[after].dependencies.insert(ids[before].clone());
    }
    proposals
}
