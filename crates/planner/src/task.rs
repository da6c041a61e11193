//! One unit of meaning in a plan: as proposed, and as planned.

use std::collections::BTreeSet;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::{
    ProposedEstimate, TaskId, TaskState, TokenBudgetClass, TokenEstimate, TokenUsage, Tokens,
    ToolId,
};

/// A Task as a planner proposes it: well-formed ids and numbers, nothing else checked.
///
/// [`crate::TaskGraph`] makes it a [`PlannedTask`] or says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskProposal {
    /// Its name in the graph.
    pub id: TaskId,
    /// What is to be done, with the user's literal values (DESIGN §8.4). Not blank.
    pub description: String,
    /// The Tasks that must be completed before.
    pub dependencies: BTreeSet<TaskId>,
    /// The size of its token budget; apart from what the Task means (PLN-06).
    pub budget_class: TokenBudgetClass,
    /// What it may cost.
    pub estimate: ProposedEstimate,
    /// Whether it is done only when something outside the model has changed.
    pub requires_external_effect: bool,
    /// The tools whose success is the evidence of completion; empty for pure explanation (DESIGN §8.1).
    pub required_tools: BTreeSet<ToolId>,
}

/// A Task of a graph, called *planned Task* to tell it from a run (X-TASK). Made and changed only by
/// [`crate::TaskGraph`], which lends it out read-only (PLN-03).
///
/// Serialized with the derived costs, so that what is printed needs no arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedTask {
    /// Its name in the graph.
    pub id: TaskId,
    /// What is to be done.
    pub description: String,
    /// The Tasks that must be completed before it runs.
    pub dependencies: BTreeSet<TaskId>,
    /// Where it stands.
    pub state: TaskState,
    /// The size of its token budget (PLN-06).
    pub budget_class: TokenBudgetClass,
    /// What it is expected to cost, checked against the class.
    pub estimate: TokenEstimate,
    /// Sum of `prompt_eval_count` of its calls so far. Unit: tokens. May exceed the budget (DESIGN §8.4).
    pub actual_input: Tokens,
    /// Sum of `eval_count` of its calls so far. Unit: tokens.
    pub actual_output: Tokens,
    /// Whether it is done only when something outside the model has changed.
    pub requires_external_effect: bool,
    /// The tools whose success is the evidence of completion.
    pub required_tools: BTreeSet<ToolId>,
}

impl PlannedTask {
    pub(crate) fn queued(
        proposal: TaskProposal,
        estimate: TokenEstimate,
        used: TokenUsage,
    ) -> Self {
        Self {
            id: proposal.id,
            description: proposal.description,
            dependencies: proposal.dependencies,
            state: TaskState::Queued,
            budget_class: proposal.budget_class,
            estimate,
            actual_input: used.input,
            actual_output: used.output,
            requires_external_effect: proposal.requires_external_effect,
            required_tools: proposal.required_tools,
        }
    }

    /// What its calls have consumed so far (SPEC §8.4).
    #[must_use]
    pub fn usage(&self) -> TokenUsage {
        TokenUsage {
            input: self.actual_input,
            output: self.actual_output,
        }
    }

    /// Whether it has consumed more than its pessimistic estimate: a reason to estimate again, not to fail (DESIGN §8.4).
    #[must_use]
    pub fn exceeds_pessimistic(&self) -> bool {
        self.usage().total() > self.estimate.pessimistic()
    }

    /// The Task as it would be proposed, without state and usage.
    #[must_use]
    pub fn proposal(&self) -> TaskProposal {
        TaskProposal {
            id: self.id.clone(),
            description: self.description.clone(),
            dependencies: self.dependencies.clone(),
            budget_class: self.budget_class,
            estimate: self.estimate.proposed(),
            requires_external_effect: self.requires_external_effect,
            required_tools: self.required_tools.clone(),
        }
    }
}

impl Serialize for PlannedTask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut task = serializer.serialize_struct("PlannedTask", 14)?;
        task.serialize_field("id", &self.id)?;
        task.serialize_field("description", &self.description)?;
        task.serialize_field("dependencies", &self.dependencies)?;
        task.serialize_field("state", &self.state)?;
        task.serialize_field("budget_class", &self.budget_class)?;
        task.serialize_field("budget_tokens", &self.budget_class.max_tokens())?;
        task.serialize_field("estimate", &self.estimate)?;
        task.serialize_field("expected_tokens", &self.estimate.expected())?;
        task.serialize_field("variance_tokens", &self.estimate.variance())?;
        task.serialize_field("actual_input_tokens", &self.actual_input)?;
        task.serialize_field("actual_output_tokens", &self.actual_output)?;
        task.serialize_field("actual_total_tokens", &self.usage().total())?;
        task.serialize_field("requires_external_effect", &self.requires_external_effect)?;
        task.serialize_field("required_tools", &self.required_tools)?;
        task.end()
    }
}
