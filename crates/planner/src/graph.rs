//! The plan of a run: planned Tasks, their order and their critical path.

mod change;
mod places;
mod proposal;
mod structure;

use serde::{Serialize, Serializer};

use crate::{
    CriticalPath, PlanError, PlanRules, PlannedTask, TaskId, TaskProposal, TaskState, TokenSixths,
    TokenUsage, Tokens,
};
use structure::Structure;

/// A valid plan: at least one Task, no cycle, all rules kept, and the critical path of exactly these Tasks.
///
/// Every change goes through a method that checks it first and computes the critical path anew (PLN-05). When a method
/// returns an error the graph is exactly as it was. Not deserializable: plans arrive as [`TaskProposal`]s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskGraph {
    rules: PlanRules,
    /// In creation order; the place of a Task is its node in `structure`.
    tasks: Vec<PlannedTask>,
    structure: Structure,
    critical_path: CriticalPath,
    /// What all Tasks have consumed, also those that a replan has dropped: replanning does not make tokens unspent.
    usage: TokenUsage,
}

impl TaskGraph {
    /// Checks a proposed plan. Every Task starts queued. Creation order is the order of `proposals`.
    ///
    /// Time and memory are linear in Tasks and dependencies.
    ///
    /// # Errors
    /// Every problem that can be found at once, never an empty list: [`PlanError::Empty`], [`PlanError::TooManyTasks`]
    /// (PLN-02), then per Task what is wrong with it alone, then [`PlanError::Cycle`] (PLN-01) among the dependencies that
    /// are sound, then, if there is no cycle, [`PlanError::SplitVerification`].
    pub fn build(proposals: Vec<TaskProposal>, rules: PlanRules) -> Result<Self, Vec<PlanError>> {
        let (tasks, structure) =
            proposal::accept(&[], proposals, &rules, |_| TokenUsage::default())?;
        let critical_path = CriticalPath::of(&tasks, &structure.dag, |_| true);
        Ok(Self {
            rules,
            tasks,
            structure,
            critical_path,
            usage: TokenUsage::default(),
        })
    }

    /// All Tasks in creation order.
    #[must_use]
    pub fn tasks(&self) -> &[PlannedTask] {
        &self.tasks
    }

    /// One Task, or `None` when there is none with this id.
    #[must_use]
    pub fn task(&self, id: &TaskId) -> Option<&PlannedTask> {
        self.structure.place(id).map(|place| &self.tasks[place])
    }

    /// What the graph and all its changes are held to.
    #[must_use]
    pub fn rules(&self) -> &PlanRules {
        &self.rules
    }

    /// All Tasks, each after its dependencies; ties in creation order (NFR-02).
    pub fn in_order(&self) -> impl Iterator<Item = &PlannedTask> {
        let order = self.structure.dag.order().iter();
        order.map(|node| &self.tasks[node.place()])
    }

    /// The dearest dependency path of the whole graph, completed Tasks included (PLN-05).
    ///
    /// It depends on Tasks, dependencies and estimates; states and usage do not change it (SPEC §8.4: no correction by
    /// actual usage).
    #[must_use]
    pub fn critical_path(&self) -> &CriticalPath {
        &self.critical_path
    }

    /// The dearest dependency path of what is left: completed Tasks cost nothing and are not on it.
    ///
    /// A failed or cancelled Task is still counted, because its work is not done. Computed on each call, `O(V + E)`.
    #[must_use]
    pub fn remaining_critical_path(&self) -> CriticalPath {
        CriticalPath::of(&self.tasks, &self.structure.dag, |task| {
            task.state != TaskState::Completed
        })
    }

    /// The queued Tasks whose dependencies are all completed: those on [`Self::critical_path`] first, each group in creation
    /// order (DESIGN §8.4). A failed or cancelled dependency does not count as completed.
    #[must_use]
    pub fn ready(&self) -> Vec<&PlannedTask> {
        let mut on_path = vec![false; self.tasks.len()];
        for id in self.critical_path.tasks() {
            if let Some(place) = self.structure.place(id) {
                on_path[place] = true;
            }
        }
        let ready = |place: &usize| {
            self.tasks[*place].state == TaskState::Queued
                && self.first_open_dependency(*place).is_none()
        };
        let (first, second): (Vec<usize>, Vec<usize>) = (0..self.tasks.len())
            .filter(ready)
            .partition(|&place| on_path[place]);
        first
            .into_iter()
            .chain(second)
            .map(|place| &self.tasks[place])
            .collect()
    }

    /// Whether every Task is completed: the only successful end of a run (AGT-01).
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.tasks
            .iter()
            .all(|task| task.state == TaskState::Completed)
    }

    /// The expected cost of all Tasks together, which is not the critical path (SPEC §8.3).
    #[must_use]
    pub fn total_expected(&self) -> TokenSixths {
        let costs = self
            .tasks
            .iter()
            .map(|task| task.estimate.expected_sixths());
        costs.sum()
    }

    /// The budgets of all Tasks together (SPEC §8.3). Unit: tokens.
    #[must_use]
    pub fn total_budget(&self) -> Tokens {
        // Cannot overflow: a budget is below 2^18, and memory does not hold 2^46 Tasks.
        Tokens(
            self.tasks
                .iter()
                .map(|task| task.budget_class.max_tokens().0)
                .sum(),
        )
    }

    /// What the run has consumed for Tasks so far, Tasks that a replan dropped included (SPEC §8.4).
    #[must_use]
    pub fn total_usage(&self) -> TokenUsage {
        self.usage
    }

    /// The first dependency, by id, that is not completed.
    fn first_open_dependency(&self, place: usize) -> Option<&TaskId> {
        self.tasks[place].dependencies.iter().find(|id| {
            self.task(id)
                .is_none_or(|task| task.state != TaskState::Completed)
        })
    }
}

impl Serialize for TaskGraph {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            tasks: &'a [PlannedTask],
            critical_path: &'a CriticalPath,
            remaining_critical_path: CriticalPath,
            total_expected_tokens: TokenSixths,
            total_budget_tokens: Tokens,
            total_usage: TokenUsage,
            max_tasks: usize,
        }
        Shown {
            tasks: &self.tasks,
            critical_path: &self.critical_path,
            remaining_critical_path: self.remaining_critical_path(),
            total_expected_tokens: self.total_expected(),
            total_budget_tokens: self.total_budget(),
            total_usage: self.usage,
            max_tasks: self.rules.max_tasks,
        }
        .serialize(serializer)
    }
}
