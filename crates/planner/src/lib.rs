//! What a run is going to do, and what that is expected to cost in tokens.
//!
//! A plan is proposed by a model, so nothing in it is believed: [`TaskGraph::build`] turns [`TaskProposal`]s into a graph
//! of [`PlannedTask`]s or says everything that is wrong with them at once, because the model gets one correction. After
//! that the graph checks itself on every change, and a refused change leaves it exactly as it was.
//!
//! Absent here: nothing reads a clock, opens a file or a socket, starts a process, draws a random number, waits, or asks a
//! model. The same input gives the same answer on every machine (NFR-02): comparisons use whole numbers ([`TokenSixths`]),
//! ties go to the Task that was created first, and no result depends on the order of a hash map. Nothing recurses, so the
//! length of a dependency chain is bounded by memory and not by the stack. Nothing here knows what a tool does; tools are
//! names ([`ToolId`]) that [`PlanRules`] sorts. Token costs are not times: no function here predicts how long a run takes.
#![forbid(unsafe_code)]

mod budget;
mod critical_path;
mod dag;
mod earliest_first;
mod error;
mod estimate;
mod graph;
mod id;
mod rules;
mod state;
mod task;
mod tokens;

pub use budget::{TokenBudgetClass, UnknownBudgetClass};
pub use critical_path::{CriticalPath, CumulativeTokenCost};
pub use dag::{Dag, DagError, NodeIndex};
pub use error::PlanError;
pub use estimate::{EstimateError, ProposedEstimate, TokenEstimate};
pub use graph::TaskGraph;
pub use id::{IdError, MAX_ID_BYTES, TaskId, ToolId};
pub use rules::{DEFAULT_MAX_TASKS, EDIT_TOOL, PlanRules, RUN_TOOL};
pub use state::TaskState;
pub use task::{PlannedTask, TaskProposal};
pub use tokens::{TokenSixths, TokenUsage, Tokens};
