//! P-7: validation, PERT and CPM from 1,000 to 100,000 Tasks. Growth must stay within linear × 1.3.
//!
//! `random` gives each Task up to three dependencies on earlier ones, `chain` exactly one on the Task before it. Making the
//! proposals and dropping the graph is not measured. `dag_*` measures the proof of acyclicity alone, over dense indexes.
//!
//! A thousand proposals fit into the processor's cache and have just been written there; a hundred thousand do not. The
//! groups `random` and `chain` include that difference. The groups `volume_*` plan 100,000 Tasks per sample whatever the size
//! of one graph is (100 × 1,000, 10 × 10,000, 1 × 100,000), so that every size reads equally cold proposals and asks for
//! equally much memory, and what grows is the algorithm. Both belong into a report.

use std::collections::BTreeSet;

use divan::Bencher;
use divan::counter::ItemsCount;
use planner::{
    Dag, EDIT_TOOL, NodeIndex, PlanRules, ProposedEstimate, RUN_TOOL, TaskGraph, TaskId,
    TaskProposal, TokenBudgetClass, Tokens, ToolId,
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

#[divan::bench(args = SIZES, sample_count = 30, sample_size = 1)]
fn volume_random(bencher: Bencher<'_, '_>, tasks: usize) {
    plan_volume(bencher, tasks, &random_edges(tasks));
}

#[divan::bench(args = SIZES, sample_count = 30, sample_size = 1)]
fn volume_chain(bencher: Bencher<'_, '_>, tasks: usize) {
    plan_volume(bencher, tasks, &chain_edges(tasks));
}

fn plan_volume(bencher: Bencher<'_, '_>, tasks: usize, edges: &[(usize, usize)]) {
    let mut rules = PlanRules::new(BTreeSet::new());
    rules.max_tasks = tasks;
    let graphs = SIZES[2] / tasks;
    bencher
        .counter(ItemsCount::new(SIZES[2]))
        .with_inputs(|| -> Vec<_> {
            (0..graphs)
                .map(|_| (proposals(tasks, edges), rules.clone()))
                .collect()
        })
        .bench_values(|inputs| -> Vec<TaskGraph> {
            let build = |(proposals, rules)| TaskGraph::build(proposals, rules);
            let graphs = inputs.into_iter().map(build);
            graphs
                .collect::<Result<_, _>>()
                .expect("the proposals are valid")
        });
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

/// Every id is a text of its own, as it is after parsing. The last Task edits and verifies, so no rule can be left out.
fn proposals(tasks: usize, edges: &[(usize, usize)]) -> Vec<TaskProposal> {
    let mut next = generator();
    let mut dependencies = vec![Vec::new(); tasks];
    for &(before, after) in edges {
        dependencies[after].push(before);
    }
    let tool = |name| ToolId::new(name).expect("the name is well-formed");
    let proposal = |(task, before): (usize, &Vec<usize>)| {
        let optimistic = next() as u64 % 2000 + 1;
        TaskProposal {
            id: id(task),
            description: format!("work on {task}"),
            dependencies: before.iter().copied().map(id).collect(),
            budget_class: TokenBudgetClass::K8,
            estimate: ProposedEstimate {
                optimistic: Tokens(optimistic),
                most_likely: Tokens(optimistic * 2),
                pessimistic: Tokens(optimistic * 3),
            },
            requires_external_effect: false,
            required_tools: match task + 1 == tasks {
                true => BTreeSet::from([tool(EDIT_TOOL), tool(RUN_TOOL)]),
                false => BTreeSet::from([tool("file_read")]),
            },
        }
    };
    dependencies.iter().enumerate().map(proposal).collect()
}

fn id(task: usize) -> TaskId {
    TaskId::new(&format!("task-{task}")).expect("the id is well-formed")
}
