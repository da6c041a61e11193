//! `Dag` against brute force on small graphs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use planner::{Dag, DagError, NodeIndex};
use proptest::prelude::*;

fn graphs() -> impl Strategy<Value = (usize, Vec<(usize, usize)>)> {
    (1_usize..9).prop_flat_map(|nodes| {
        let edges = prop::collection::vec((0..nodes, 0..nodes), 0..14);
        let without_loops =
            edges.prop_map(|edges| edges.into_iter().filter(|(a, b)| a != b).collect());
        (Just(nodes), without_loops)
    })
}

fn build(nodes: usize, edges: &[(usize, usize)]) -> Result<Dag, Vec<DagError>> {
    let node = |place: usize| NodeIndex(u32::try_from(place).unwrap());
    let edges: Vec<_> = edges.iter().map(|&(a, b)| (node(a), node(b))).collect();
    Dag::build(nodes, &edges)
}

/// Floyd-Warshall: which node reaches which over at least one edge.
fn reachability(nodes: usize, edges: &[(usize, usize)]) -> Vec<Vec<bool>> {
    let mut reaches = vec![vec![false; nodes]; nodes];
    for &(a, b) in edges {
        reaches[a][b] = true;
    }
    for via in 0..nodes {
        for a in 0..nodes {
            for b in 0..nodes {
                reaches[a][b] |= reaches[a][via] && reaches[via][b];
            }
        }
    }
    reaches
}

/// The definition: of the nodes whose predecessors are all listed, the smallest comes next.
fn order_by_definition(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    while order.len() < nodes {
        let comes_next = |node: &usize| {
            let mut before = edges.iter().filter(|(_, after)| after == node);
            !order.contains(node) && before.all(|(before, _)| order.contains(before))
        };
        let next = (0..nodes).find(comes_next).unwrap();
        order.push(next);
    }
    order
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// PLN-01, AT-14: a graph is refused exactly when a node reaches itself, and what is named are cycles.
    #[test]
    fn at_14_cycles_are_found_exactly((nodes, edges) in graphs()) {
        let reaches = reachability(nodes, &edges);
        let cyclic = (0..nodes).any(|node| reaches[node][node]);
        match build(nodes, &edges) {
            Ok(_) => prop_assert!(!cyclic),
            Err(problems) => {
                prop_assert!(cyclic);
                prop_assert!(!problems.is_empty());
                let mut named = Vec::new();
                for problem in problems {
                    let DagError::Cycle { nodes: cycle } = problem else {
                        return Err(TestCaseError::fail(format!("not a cycle: {problem:?}")));
                    };
                    let cycle: Vec<usize> = cycle.iter().map(|node| node.place()).collect();
                    for (at, &node) in cycle.iter().enumerate() {
                        let next = cycle[(at + 1) % cycle.len()];
                        prop_assert!(edges.contains(&(node, next)), "{node} -> {next} in {cycle:?}");
                        prop_assert!(!named.contains(&node), "{node} named twice");
                        named.push(node);
                    }
                    prop_assert_eq!(cycle.iter().min(), cycle.first());
                }
            }
        }
    }

    /// NFR-02: the order is valid and is the one that the definition gives.
    #[test]
    fn nfr_02_topological_order_is_the_defined_one((nodes, edges) in graphs()) {
        let forward: Vec<_> = edges.iter().filter(|(a, b)| (a * 5) % 9 < (b * 5) % 9).copied().collect();
        let dag = build(nodes, &forward).unwrap();
        let order: Vec<usize> = dag.order().iter().map(|node| node.place()).collect();
        for (before, after) in &forward {
            let place = |node| order.iter().position(|n| n == node);
            prop_assert!(place(before) < place(after));
        }
        prop_assert_eq!(order, order_by_definition(nodes, &forward));
    }
}
