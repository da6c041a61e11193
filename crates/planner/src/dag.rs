//! A directed graph over dense indexes that is proved to have no cycle (PLN-01).

use std::fmt;

use serde::Serialize;
use thiserror::Error;

use crate::earliest_first::EarliestFirst;

/// A node: its place in creation order, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct NodeIndex(pub u32);

impl NodeIndex {
    /// The place in creation order, for indexing.
    #[must_use]
    pub fn place(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why nodes and edges are not a [`Dag`].
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum DagError {
    /// More nodes or edges than 32 bits count.
    #[error("{nodes} nodes and {edges} edges are too many")]
    TooLarge {
        /// How many nodes.
        nodes: usize,
        /// How many edges.
        edges: usize,
    },
    /// An edge names a node that does not exist.
    #[error("node {node} of edge {edge} does not exist")]
    OutOfRange {
        /// The edge's place in the list.
        edge: usize,
        /// The node it names.
        node: NodeIndex,
    },
    /// An edge from a node to itself.
    #[error("edge {edge} leads from node {node} to itself")]
    SelfEdge {
        /// The edge's place in the list.
        edge: usize,
        /// The node.
        node: NodeIndex,
    },
    /// Nodes that all come before each other: an edge leads from each to the next, and from the last to the first.
    /// Starts with the node created first; names no node twice.
    #[error("the nodes {nodes:?} form a cycle")]
    Cycle {
        /// The cycle, in the direction of its edges.
        nodes: Vec<NodeIndex>,
    },
}

/// A directed graph without a cycle. [`Dag::build`] is its only maker, so holding one is the proof (PLN-01).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dag {
    predecessors: Adjacency,
    order: Vec<NodeIndex>,
}

impl Dag {
    /// Checks `nodes` nodes and edges `(before, after)`, and orders them. An edge given twice counts once or twice alike.
    ///
    /// Time and memory are `O(V + E)`; nothing recurses.
    ///
    /// # Errors
    /// Never an empty list. Either [`DagError::TooLarge`]; or every [`DagError::OutOfRange`] and [`DagError::SelfEdge`];
    /// or, when the edges are sound, at least one [`DagError::Cycle`]: all that are found in one linear pass, which share no
    /// node. Breaking them may uncover others.
    pub fn build(nodes: usize, edges: &[(NodeIndex, NodeIndex)]) -> Result<Self, Vec<DagError>> {
        // One number less than 32 bits hold: `disjoint_cycles` needs one to spare.
        let limit = u32::MAX as usize;
        if nodes >= limit || edges.len() >= limit {
            return Err(vec![DagError::TooLarge {
                nodes,
                edges: edges.len(),
            }]);
        }
        let unsound = unsound_edges(nodes, edges);
        if !unsound.is_empty() {
            return Err(unsound);
        }
        let predecessors =
            Adjacency::of(nodes, edges.iter().map(|&(before, after)| (after, before)));
        let successors = Adjacency::of(nodes, edges.iter().copied());
        let order = earliest_order(nodes, &predecessors, &successors);
        if order.len() == nodes {
            Ok(Self {
                predecessors,
                order,
            })
        } else {
            Err(disjoint_cycles(nodes, &predecessors, &order))
        }
    }

    /// How many nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Every node after all its predecessors; of the nodes that could come next, the one created first does (NFR-02).
    #[must_use]
    pub fn order(&self) -> &[NodeIndex] {
        &self.order
    }

    /// The nodes with an edge to `node`, in the order the edges were given; none when there is no such node.
    #[must_use]
    pub fn predecessors(&self, node: NodeIndex) -> &[NodeIndex] {
        self.predecessors.neighbours(node)
    }
}

/// Neighbours of all nodes in one allocation: those of node `i` are `list[starts[i]..starts[i + 1]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Adjacency {
    starts: Vec<u32>,
    list: Vec<NodeIndex>,
}

impl Adjacency {
    /// Groups pairs `(node, neighbour)` by node with a counting sort; keeps the given order within a node.
    fn of(nodes: usize, pairs: impl Iterator<Item = (NodeIndex, NodeIndex)> + Clone) -> Self {
        let mut starts = vec![0_u32; nodes + 1];
        for (node, _) in pairs.clone() {
            starts[node.place() + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut list = vec![NodeIndex(0); starts[nodes] as usize];
        for (node, neighbour) in pairs {
            let free = &mut next[node.place()];
            list[*free as usize] = neighbour;
            *free += 1;
        }
        Self { starts, list }
    }

    fn neighbours(&self, node: NodeIndex) -> &[NodeIndex] {
        match (
            self.starts.get(node.place()),
            self.starts.get(node.place() + 1),
        ) {
            (Some(&start), Some(&end)) => &self.list[start as usize..end as usize],
            _ => &[],
        }
    }
}

fn unsound_edges(nodes: usize, edges: &[(NodeIndex, NodeIndex)]) -> Vec<DagError> {
    let mut unsound = Vec::new();
    for (edge, &(before, after)) in edges.iter().enumerate() {
        if before == after && before.place() < nodes {
            unsound.push(DagError::SelfEdge { edge, node: before });
            continue;
        }
        for node in [before, after] {
            if node.place() >= nodes {
                unsound.push(DagError::OutOfRange { edge, node });
            }
        }
    }
    unsound
}

/// Kahn's algorithm. Leaves out exactly the nodes that are on a cycle or behind one.
fn earliest_order(
    nodes: usize,
    predecessors: &Adjacency,
    successors: &Adjacency,
) -> Vec<NodeIndex> {
    let mut waiting_for: Vec<u32> = predecessors
        .starts
        .windows(2)
        .map(|bounds| bounds[1] - bounds[0])
        .collect();
    let mut ready = EarliestFirst::new(nodes);
    for (place, &count) in waiting_for.iter().enumerate() {
        if count == 0 {
            ready.insert(place);
        }
    }
    let mut order = Vec::with_capacity(nodes);
    while let Some(place) = ready.pop() {
        // `build` has checked that every place fits 32 bits.
        let node = NodeIndex(place as u32);
        order.push(node);
        for &after in successors.neighbours(node) {
            let count = &mut waiting_for[after.place()];
            *count -= 1;
            if *count == 0 {
                ready.insert(after.place());
            }
        }
    }
    order
}

/// Names cycles among the nodes that could not be ordered.
///
/// Each such node has a predecessor that could not be ordered either. Walking from node to predecessor therefore never
/// ends, so it meets itself: that is a cycle. Every node is walked over once.
fn disjoint_cycles(nodes: usize, predecessors: &Adjacency, ordered: &[NodeIndex]) -> Vec<DagError> {
    const UNSEEN: u32 = 0;
    const ORDERED: u32 = u32::MAX;
    let mut walk_of = vec![UNSEEN; nodes];
    for node in ordered {
        walk_of[node.place()] = ORDERED;
    }
    let mut cycles = Vec::new();
    for start in 0..nodes {
        if walk_of[start] != UNSEEN {
            continue;
        }
        let walk = start as u32 + 1;
        let mut steps = Vec::new();
        let mut node = NodeIndex(start as u32);
        while walk_of[node.place()] == UNSEEN {
            walk_of[node.place()] = walk;
            steps.push(node);
            let unordered = |before: &&NodeIndex| walk_of[before.place()] != ORDERED;
            match predecessors.neighbours(node).iter().filter(unordered).min() {
                Some(&before) => node = before,
                None => break,
            }
        }
        // Meeting an earlier walk means running into a cycle that is named already.
        if walk_of[node.place()] == walk
            && let Some(first) = steps.iter().position(|&step| step == node)
        {
            cycles.push(DagError::Cycle {
                nodes: in_edge_direction(&steps[first..]),
            });
        }
    }
    cycles
}

/// Turns a backward walk around, and starts it at the node created first, so that one cycle has one name.
fn in_edge_direction(backward: &[NodeIndex]) -> Vec<NodeIndex> {
    let mut nodes: Vec<NodeIndex> = backward.iter().rev().copied().collect();
    let earliest = nodes
        .iter()
        .enumerate()
        .min_by_key(|(_, node)| **node)
        .map_or(0, |(place, _)| place);
    nodes.rotate_left(earliest);
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(nodes: usize, edges: &[(u32, u32)]) -> Result<Vec<u32>, Vec<DagError>> {
        let edges: Vec<_> = edges
            .iter()
            .map(|&(a, b)| (NodeIndex(a), NodeIndex(b)))
            .collect();
        Dag::build(nodes, &edges).map(|dag| dag.order().iter().map(|node| node.0).collect())
    }

    fn cycle(nodes: &[u32]) -> DagError {
        DagError::Cycle {
            nodes: nodes.iter().copied().map(NodeIndex).collect(),
        }
    }

    /// NFR-02: creation order decides among nodes that could come next.
    #[test]
    fn nfr_02_order_prefers_the_node_created_first() {
        assert_eq!(build(0, &[]), Ok(vec![]));
        assert_eq!(build(3, &[]), Ok(vec![0, 1, 2]));
        assert_eq!(build(3, &[(2, 0)]), Ok(vec![1, 2, 0]));
        assert_eq!(build(4, &[(3, 1), (3, 1), (1, 0)]), Ok(vec![2, 3, 1, 0]));
    }

    /// PLN-01, AT-14: a cycle is named in the direction of its edges, from the node created first.
    #[test]
    fn at_14_cycles_are_named() {
        assert_eq!(build(2, &[(1, 0), (0, 1)]), Err(vec![cycle(&[0, 1])]));
        let tail_and_cycle = [(0, 3), (3, 1), (1, 2), (2, 3), (2, 4)];
        assert_eq!(build(5, &tail_and_cycle), Err(vec![cycle(&[1, 2, 3])]));
        let two = [(0, 1), (1, 0), (3, 2), (2, 3), (2, 1)];
        assert_eq!(build(4, &two), Err(vec![cycle(&[0, 1]), cycle(&[2, 3])]));
    }

    /// PLN-01: edges that cannot be part of any graph are all listed.
    #[test]
    fn pln_01_unsound_edges_are_listed() {
        let problems = build(2, &[(0, 0), (0, 1), (7, 9)]).unwrap_err();
        let out = |node| DagError::OutOfRange {
            edge: 2,
            node: NodeIndex(node),
        };
        let to_itself = DagError::SelfEdge {
            edge: 0,
            node: NodeIndex(0),
        };
        assert_eq!(problems, [to_itself, out(7), out(9)]);
    }

    /// PLN-01, P-7: chains and cycles of 100,000 nodes need no stack.
    #[test]
    fn pln_01_long_chains_do_not_recurse() {
        let n = 100_000_u32;
        let backward: Vec<_> = (1..n).map(|i| (i, i - 1)).collect();
        assert_eq!(build(n as usize, &backward), Ok((0..n).rev().collect()));
        let mut closed = backward;
        closed.push((0, n - 1));
        let Err(problems) = build(n as usize, &closed) else {
            panic!("a cycle was accepted");
        };
        assert!(matches!(&problems[..], [DagError::Cycle { nodes }] if nodes.len() == n as usize));
    }
}
