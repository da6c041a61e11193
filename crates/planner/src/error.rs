//! Everything a plan, or a change to one, can be refused for.

use serde::Serialize;
use thiserror::Error;

use crate::{EstimateError, TaskId, TaskState};

/// One reason why a plan or a change was refused. Whose fault: the planner that proposed it (a model), except where said.
///
/// Data, never text to be parsed: the runtime turns it into the correction it sends to the model and into messages.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlanError {
    /// There is no Task in the proposal (DESIGN §8.4).
    #[error("the plan has no task")]
    Empty,
    /// More Tasks than allowed (PLN-02).
    #[error("the plan has {got} tasks, at most {limit} are allowed; merge tasks")]
    TooManyTasks {
        /// The limit. Unit: Tasks.
        limit: usize,
        /// How many there would be, completed ones included.
        got: usize,
    },
    /// Two Tasks have one id.
    #[error("task {id} is defined twice")]
    DuplicateId {
        /// The id.
        id: TaskId,
    },
    /// A Task says nothing about what is to be done.
    #[error("task {id} has no description")]
    DescriptionEmpty {
        /// The Task.
        id: TaskId,
    },
    /// An inequality of the three-point estimate does not hold (SPEC §8.3).
    #[error("estimate of task {id}: {error}")]
    Estimate {
        /// The Task.
        id: TaskId,
        /// Which inequality, with its values.
        error: EstimateError,
    },
    /// `requires_external_effect` without a tool that has one (DESIGN §8.1).
    #[error("task {id} requires an external effect, but none of its required tools has one")]
    EffectWithoutTool {
        /// The Task.
        id: TaskId,
    },
    /// A dependency on a Task that is not in the graph.
    #[error("task {task} depends on {on}, which is not in the plan")]
    UnknownDependency {
        /// The dependent Task.
        task: TaskId,
        /// What it names.
        on: TaskId,
    },
    /// A dependency of a Task on itself (PLN-01).
    #[error("task {id} depends on itself")]
    SelfDependency {
        /// The Task.
        id: TaskId,
    },
    /// Tasks that wait for each other (PLN-01).
    #[error("the tasks {ids:?} depend on each other in a cycle")]
    Cycle {
        /// Each depends on the next, and the last on the first. Starts with the Task created first.
        ids: Vec<TaskId>,
    },
    /// A Task that edits and verifies, but comes after another Task that edits (DESIGN §8.1): editing, verifying and
    /// repairing belong into one Task.
    #[error(
        "task {task} verifies its own edits but comes after {edit_task}, which edits; merge them"
    )]
    SplitVerification {
        /// The Task that requires both tools.
        task: TaskId,
        /// The Task that edits and that it depends on, directly or not; of several, the one created first.
        edit_task: TaskId,
    },
    /// A change to a Task that is completed, its dependencies included (PLN-03).
    #[error("task {id} is completed and cannot be changed")]
    CompletedImmutable {
        /// The Task.
        id: TaskId,
    },
    /// A change of plan for a Task that has failed or was cancelled.
    #[error("task {id} is {state}; its plan cannot be changed")]
    TaskClosed {
        /// The Task.
        id: TaskId,
        /// Its state.
        state: TaskState,
    },
    /// A change to a Task that is not in the graph. Whose fault: the caller.
    #[error("there is no task {id}")]
    UnknownTask {
        /// The id.
        id: TaskId,
    },
    /// A step that the table of states does not have. Whose fault: the caller.
    #[error("task {id} cannot go from {from} to {to}")]
    IllegalTransition {
        /// The Task.
        id: TaskId,
        /// Its state.
        from: TaskState,
        /// The state it was to have.
        to: TaskState,
    },
    /// A running Task would have a dependency that is not completed (DESIGN §8.4). Whose fault: the caller.
    #[error("task {task} cannot run before {on} is completed")]
    DependencyNotCompleted {
        /// The Task that runs or was to run.
        task: TaskId,
        /// Its first dependency, by id, that is not completed.
        on: TaskId,
    },
    /// A replan while a Task still runs; it goes back to planning, or ends, first (DESIGN §8.4). Whose fault: the caller.
    #[error("task {id} is running and cannot be replaced")]
    ReplacesRunning {
        /// The Task.
        id: TaskId,
    },
    /// The model server reported counts that do not fit into 64 bits. Whose fault: the model server.
    #[error("the token usage of task {id} does not fit")]
    UsageOverflow {
        /// The Task.
        id: TaskId,
    },
}
