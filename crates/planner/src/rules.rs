//! What a plan is held to, and the only place that names tools.

use std::collections::BTreeSet;

use crate::ToolId;

/// How many Tasks a graph may have unless configured otherwise (PLN-02). Unit: Tasks, completed ones included.
pub const DEFAULT_MAX_TASKS: usize = 32;

/// The tool that changes files, for the split-plan rule (DESIGN §8.1).
pub const EDIT_TOOL: &str = "file_edit";

/// The tool that runs programs, for the split-plan rule (DESIGN §8.1).
pub const RUN_TOOL: &str = "process_run";

/// What a plan is held to. Kept by the graph, so that every later change is held to the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRules {
    /// Most Tasks a graph may have (PLN-02). Unit: Tasks, completed ones included.
    pub max_tasks: usize,
    /// The tools whose success is an external effect; `requires_external_effect` needs one of them (DESIGN §8.1).
    pub side_effect_tools: BTreeSet<ToolId>,
    /// The tool that edits: a Task that needs it and [`Self::run_tool`] verifies its own edits.
    pub edit_tool: ToolId,
    /// The tool that runs the verification.
    pub run_tool: ToolId,
}

impl PlanRules {
    /// [`DEFAULT_MAX_TASKS`], [`EDIT_TOOL`], [`RUN_TOOL`] and the side-effect tools that the runtime has.
    #[must_use]
    pub fn new(side_effect_tools: BTreeSet<ToolId>) -> Self {
        Self {
            max_tasks: DEFAULT_MAX_TASKS,
            side_effect_tools,
            edit_tool: ToolId::known(EDIT_TOOL),
            run_tool: ToolId::known(RUN_TOOL),
        }
    }

    pub(crate) fn has_side_effect(&self, tools: &BTreeSet<ToolId>) -> bool {
        !tools.is_disjoint(&self.side_effect_tools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PLN-02: the default limit; and the constants of this module are tool names.
    #[test]
    fn pln_02_defaults() {
        let rules = PlanRules::new(BTreeSet::new());
        assert_eq!(rules.max_tasks, 32);
        assert_eq!(ToolId::new(EDIT_TOOL), Ok(rules.edit_tool));
        assert_eq!(ToolId::new(RUN_TOOL), Ok(rules.run_tool));
    }
}
