//! Token CPM: the chain of dependencies that is expected to cost most (SPEC §8.3, DESIGN §8.3).

use serde::{Serialize, Serializer};

use crate::{Dag, NodeIndex, PlannedTask, TaskId, TokenSixths};

/// The dependency path with the largest sum of expected costs (PLN-05).
///
/// It shows cost and priority, not time. Of several such paths it is the one whose last Task was created first, and
/// backwards from there, of predecessors that cost the same, the one created first (NFR-02).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CriticalPath {
    tasks: Vec<TaskId>,
    expected: TokenSixths,
    cumulative: Vec<CumulativeTokenCost>,
}

/// What it is expected to cost until a Task is completed, along the dearest path that ends in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CumulativeTokenCost {
    /// The Task.
    pub id: TaskId,
    /// Its own expected cost and that of the dearest path before it. Serialized in tokens.
    pub cumulative_token_cost: TokenSixths,
}

impl CriticalPath {
    /// Goes forward over the Tasks that `counts` accepts; `tasks` and the nodes of `dag` are in the same order. `O(V + E)`.
    pub(crate) fn of(
        tasks: &[PlannedTask],
        dag: &Dag,
        counts: impl Fn(&PlannedTask) -> bool,
    ) -> Self {
        // Zero says "not counted": a Task that counts costs at least six sixths, because `0 < O`. Predecessors are not
        // remembered but found again for the few Tasks on the path: the less this pass touches, the nearer it stays to linear
        // once it has outgrown the caches (P-7).
        let mut costs = vec![TokenSixths::ZERO; tasks.len()];
        for &node in dag.order() {
            let task = &tasks[node.place()];
            if counts(task) {
                let before = dearest_before(dag, node, &costs);
                let cost_before = before.map_or(TokenSixths::ZERO, |(_, cost)| cost);
                costs[node.place()] = cost_before.plus(task.estimate.expected_sixths());
            }
        }
        Self::walk_back(tasks, dag, &costs)
    }

    fn walk_back(tasks: &[PlannedTask], dag: &Dag, costs: &[TokenSixths]) -> Self {
        let end = dearest((0_u32..).map(NodeIndex).zip(costs.iter().copied()));
        let mut backward = Vec::new();
        let mut next = end;
        while let Some((node, _)) = next {
            backward.push(tasks[node.place()].id.clone());
            next = dearest_before(dag, node, costs);
        }
        backward.reverse();
        let counted = tasks
            .iter()
            .zip(costs)
            .filter(|(_, cost)| **cost != TokenSixths::ZERO);
        Self {
            tasks: backward,
            expected: end.map_or(TokenSixths::ZERO, |(_, cost)| cost),
            cumulative: counted
                .map(|(task, &cumulative_token_cost)| CumulativeTokenCost {
                    id: task.id.clone(),
                    cumulative_token_cost,
                })
                .collect(),
        }
    }

    /// The Tasks of the path, each before those that depend on it.
    #[must_use]
    pub fn tasks(&self) -> &[TaskId] {
        &self.tasks
    }

    /// The exact expected cost of the path. Unit: sixths of a token (NFR-02).
    #[must_use]
    pub fn expected_sixths(&self) -> TokenSixths {
        self.expected
    }

    /// The expected cost of the path. Unit: tokens.
    #[must_use]
    pub fn expected_tokens(&self) -> f64 {
        self.expected.as_tokens()
    }

    /// What each Task costs with all that comes before it, in creation order.
    #[must_use]
    pub fn cumulative_token_cost(&self) -> &[CumulativeTokenCost] {
        &self.cumulative
    }
}

type Candidate = (NodeIndex, TokenSixths);

/// The dearest of those that count; of equally dear ones, the one created first.
fn dearest(candidates: impl Iterator<Item = Candidate>) -> Option<Candidate> {
    candidates
        .filter(|(_, cost)| *cost != TokenSixths::ZERO)
        .reduce(|a, b| if (b.1, a.0) > (a.1, b.0) { b } else { a })
}

fn dearest_before(dag: &Dag, node: NodeIndex, costs: &[TokenSixths]) -> Option<Candidate> {
    let before = dag.predecessors(node).iter();
    dearest(before.map(|&before| (before, costs[before.place()])))
}

impl Serialize for CriticalPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            tasks: &'a [TaskId],
            expected_tokens: f64,
            expected_sixths: u64,
            cumulative_token_cost: &'a [CumulativeTokenCost],
        }
        Shown {
            tasks: &self.tasks,
            expected_tokens: self.expected_tokens(),
            expected_sixths: self.expected.sixths(),
            cumulative_token_cost: &self.cumulative,
        }
        .serialize(serializer)
    }
}
