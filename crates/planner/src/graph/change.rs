//! Every way a graph can change. Each works on copies or checks first, so that a refused change leaves no trace.

use std::collections::BTreeMap;

use super::TaskGraph;
use super::proposal;
use super::structure::{Member, Structure};
use crate::{
    CriticalPath, PlanError, PlannedTask, ProposedEstimate, TaskId, TaskProposal, TaskState,
    TokenBudgetClass, TokenEstimate, TokenUsage, Tokens,
};

impl TaskGraph {
    /// Adds a queued Task as the one created last (PLN-04).
    ///
    /// # Errors
    /// As [`TaskGraph::build`]; [`PlanError::CompletedImmutable`] when the id is that of a completed Task (PLN-03).
    pub fn add(&mut self, proposal: TaskProposal) -> Result<(), Vec<PlanError>> {
        let accepted = proposal::accept(&self.tasks, vec![proposal], &self.rules, |_| {
            TokenUsage::default()
        })?;
        self.commit(accepted);
        Ok(())
    }

    /// Lets `task` depend on `on` as well (PLN-04). A dependency that is there already is no change and no error.
    ///
    /// # Errors
    /// [`PlanError::UnknownTask`], [`PlanError::UnknownDependency`], [`PlanError::CompletedImmutable`] (PLN-03),
    /// [`PlanError::TaskClosed`], [`PlanError::DependencyNotCompleted`] when `task` is running and `on` is not completed,
    /// [`PlanError::SelfDependency`] and [`PlanError::Cycle`] (PLN-01), [`PlanError::SplitVerification`].
    pub fn add_dependency(&mut self, task: &TaskId, on: &TaskId) -> Result<(), Vec<PlanError>> {
        let place = self.open_place(task).map_err(|problem| vec![problem])?;
        if self.tasks[place].dependencies.contains(on) {
            return Ok(());
        }
        let open = self
            .task(on)
            .is_some_and(|on| on.state != TaskState::Completed);
        if self.tasks[place].state == TaskState::Running && open && task != on {
            return Err(vec![PlanError::DependencyNotCompleted {
                task: task.clone(),
                on: on.clone(),
            }]);
        }
        let mut tasks = self.tasks.clone();
        tasks[place].dependencies.insert(on.clone());
        let members: Vec<Member<'_>> = tasks
            .iter()
            .map(|task| Member::planned(task, &self.rules))
            .collect();
        let structure = Structure::of(&members, &self.rules)?;
        self.commit((tasks, structure));
        Ok(())
    }

    /// Estimates a Task anew, with the same or another budget class: the Task stays what it means (PLN-06, DESIGN §8.4).
    ///
    /// # Errors
    /// [`PlanError::UnknownTask`], [`PlanError::CompletedImmutable`] (PLN-03), [`PlanError::TaskClosed`], or one
    /// [`PlanError::Estimate`] per inequality that does not hold.
    pub fn set_estimate(
        &mut self,
        id: &TaskId,
        class: TokenBudgetClass,
        estimate: ProposedEstimate,
    ) -> Result<(), Vec<PlanError>> {
        let place = self.open_place(id).map_err(|problem| vec![problem])?;
        let checked = TokenEstimate::new(class, estimate).map_err(|failed| {
            let wrong = failed.into_iter();
            wrong
                .map(|error| PlanError::Estimate {
                    id: id.clone(),
                    error,
                })
                .collect::<Vec<_>>()
        })?;
        let task = &mut self.tasks[place];
        task.budget_class = class;
        task.estimate = checked;
        self.critical_path = CriticalPath::of(&self.tasks, &self.structure.dag, |_| true);
        Ok(())
    }

    /// Adds what one model call consumed (SPEC §8.4). Unit: tokens. Exceeding the budget is recorded, not refused.
    ///
    /// A failed or cancelled Task takes it too: the answer that came too late was paid for. The critical path is made of
    /// estimates and stays.
    ///
    /// # Errors
    /// [`PlanError::UnknownTask`], [`PlanError::CompletedImmutable`] (PLN-03), [`PlanError::UsageOverflow`].
    pub fn record_usage(
        &mut self,
        id: &TaskId,
        input: Tokens,
        output: Tokens,
    ) -> Result<(), PlanError> {
        let place = self.uncompleted_place(id)?;
        let more = TokenUsage { input, output };
        // The total includes the Task, so if the total fits then the Task's own sum does too.
        let (Some(total), Some(own)) = (
            self.usage.checked_add(more),
            self.tasks[place].usage().checked_add(more),
        ) else {
            return Err(PlanError::UsageOverflow { id: id.clone() });
        };
        self.usage = total;
        let task = &mut self.tasks[place];
        task.actual_input = own.input;
        task.actual_output = own.output;
        Ok(())
    }

    /// Moves a Task to another state. The critical path of the whole graph does not depend on states and stays.
    ///
    /// # Errors
    /// [`PlanError::UnknownTask`]; [`PlanError::CompletedImmutable`] for any step out of completed (PLN-03);
    /// [`PlanError::IllegalTransition`]; [`PlanError::DependencyNotCompleted`] when it would run before a dependency is
    /// completed (DESIGN §8.4).
    pub fn transition(&mut self, id: &TaskId, to: TaskState) -> Result<(), PlanError> {
        let place = self.uncompleted_place(id)?;
        let from = self.tasks[place].state;
        if !from.may_become(to) {
            return Err(PlanError::IllegalTransition {
                id: id.clone(),
                from,
                to,
            });
        }
        if to == TaskState::Running
            && let Some(on) = self.first_open_dependency(place)
        {
            return Err(PlanError::DependencyNotCompleted {
                task: id.clone(),
                on: on.clone(),
            });
        }
        self.tasks[place].state = to;
        Ok(())
    }

    /// Replans: drops every Task that is not completed and plans `proposals` instead (DESIGN §8.4).
    ///
    /// Completed Tasks keep id, state, usage and their place before the new ones, and may be depended on. A new Task with
    /// the id of a dropped one continues its usage; usage of the others stays in [`TaskGraph::total_usage`].
    ///
    /// # Errors
    /// [`PlanError::ReplacesRunning`] while a Task runs; otherwise as [`TaskGraph::build`] for the completed and the new
    /// Tasks together; [`PlanError::CompletedImmutable`] when a proposal has the id of a completed Task (PLN-03).
    pub fn replace_incomplete(
        &mut self,
        proposals: Vec<TaskProposal>,
    ) -> Result<(), Vec<PlanError>> {
        let (completed, dropped): (Vec<&PlannedTask>, Vec<&PlannedTask>) = self
            .tasks
            .iter()
            .partition(|task| task.state == TaskState::Completed);
        let running: Vec<PlanError> = dropped
            .iter()
            .filter(|task| task.state == TaskState::Running)
            .map(|task| PlanError::ReplacesRunning {
                id: task.id.clone(),
            })
            .collect();
        if !running.is_empty() {
            return Err(running);
        }
        let used: BTreeMap<&TaskId, TokenUsage> = dropped
            .iter()
            .map(|task| (&task.id, task.usage()))
            .collect();
        let staying: Vec<PlannedTask> = completed.into_iter().cloned().collect();
        let accepted = proposal::accept(&staying, proposals, &self.rules, |id| {
            used.get(id).copied().unwrap_or_default()
        })?;
        self.commit(accepted);
        Ok(())
    }

    /// Whether a replan proposes exactly what is planned already for the Tasks that are not completed, in any order. Such a
    /// replan gets a run nowhere (DESIGN §8.4: an unchanged plan is a failure).
    #[must_use]
    pub fn is_unchanged_by(&self, proposals: &[TaskProposal]) -> bool {
        let incomplete = self
            .tasks
            .iter()
            .filter(|task| task.state != TaskState::Completed);
        incomplete.clone().count() == proposals.len()
            && incomplete
                .map(PlannedTask::proposal)
                .all(|planned| proposals.contains(&planned))
    }

    fn commit(&mut self, (tasks, structure): (Vec<PlannedTask>, Structure)) {
        self.critical_path = CriticalPath::of(&tasks, &structure.dag, |_| true);
        self.tasks = tasks;
        self.structure = structure;
    }

    /// The place of a Task that may still change (PLN-03).
    fn uncompleted_place(&self, id: &TaskId) -> Result<usize, PlanError> {
        let Some(place) = self.structure.place(id) else {
            return Err(PlanError::UnknownTask { id: id.clone() });
        };
        if self.tasks[place].state == TaskState::Completed {
            return Err(PlanError::CompletedImmutable { id: id.clone() });
        }
        Ok(place)
    }

    /// The place of a Task whose plan may still change.
    fn open_place(&self, id: &TaskId) -> Result<usize, PlanError> {
        let place = self.uncompleted_place(id)?;
        let state = self.tasks[place].state;
        if state.is_terminal() {
            return Err(PlanError::TaskClosed {
                id: id.clone(),
                state,
            });
        }
        Ok(place)
    }
}
