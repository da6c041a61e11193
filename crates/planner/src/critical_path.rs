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
        let mut reached: Vec<Option<Reached>> = vec![None; tasks.len()];
        for &node in dag.order() {
            let task = &tasks[node.place()];
            if !counts(task) {
                continue;
            }
            let dearest = dag
                .predecessors(node)
                .iter()
                .filter_map(|&before| reached[before.place()].map(|r| (before, r.cost)))
                .reduce(dearer_or_earlier);
            let before_it = dearest.map_or(TokenSixths::ZERO, |(_, cost)| cost);
            reached[node.place()] = Some(Reached {
                cost: before_it.plus(task.estimate.expected_sixths()),
                from: dearest.map(|(before, _)| before),
            });
        }
        Self::walk_back(tasks, &reached)
    }

    fn walk_back(tasks: &[PlannedTask], reached: &[Option<Reached>]) -> Self {
        let mut cumulative = Vec::with_capacity(tasks.len());
        let mut end: Option<(NodeIndex, TokenSixths)> = None;
        for (place, (task, reached)) in tasks.iter().zip(reached).enumerate() {
            let Some(Reached { cost, .. }) = *reached else {
                continue;
            };
            cumulative.push(CumulativeTokenCost {
                id: task.id.clone(),
                cumulative_token_cost: cost,
            });
            // `Dag::build` has checked that every place fits 32 bits.
            let here = (NodeIndex(place as u32), cost);
            end = Some(end.map_or(here, |best| dearer_or_earlier(best, here)));
        }
        let mut backward = Vec::new();
        let mut next = end.map(|(node, _)| node);
        while let Some(node) = next {
            backward.push(tasks[node.place()].id.clone());
            next = reached[node.place()].and_then(|r| r.from);
        }
        backward.reverse();
        Self {
            tasks: backward,
            expected: end.map_or(TokenSixths::ZERO, |(_, cost)| cost),
            cumulative,
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

#[derive(Clone, Copy)]
struct Reached {
    cost: TokenSixths,
    from: Option<NodeIndex>,
}

type Candidate = (NodeIndex, TokenSixths);

fn dearer_or_earlier(a: Candidate, b: Candidate) -> Candidate {
    if b.1 > a.1 || (b.1 == a.1 && b.0 < a.0) {
        b
    } else {
        a
    }
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
