//! What was seen done. A model's word is no evidence (AGT-04).

use policy::tool::{ToolArguments, ToolName};
use policy::{Code, Message, Right};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// One successful call, as code saw it (DESIGN §9.2, part 8).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifiedResult {
    /// The planned Task.
    pub task: String,
    /// Catalogue name.
    pub tool: &'static str,
    /// A path, a command line.
    pub target: String,
    /// What came back, shortened for later Tasks.
    pub result: Value,
    /// Whether something outside changed.
    pub changed: bool,
}

/// One refused call (SES-06).
#[derive(Clone, Debug, PartialEq)]
pub struct Denied {
    /// Catalogue name.
    pub tool: String,
    /// What was refused.
    pub target: String,
    /// Why.
    pub code: Code,
    /// The right that was missing, for files.
    pub right: Option<Right>,
    /// For people.
    pub message: Message,
    /// The normalised call, so that it is recognized when it comes again.
    pub fingerprint: [u8; 32],
}

/// What one planned Task still needs before its end is believed (DESIGN §8.1, §7.8).
#[derive(Clone, Debug)]
pub struct Evidence {
    missing: BTreeSet<ToolName>,
    required: BTreeSet<ToolName>,
    needs_effect: bool,
    effect_seen: bool,
}

impl Evidence {
    /// Nothing seen yet.
    pub fn new(required: BTreeSet<ToolName>, requires_external_effect: bool) -> Self {
        Self {
            missing: required.clone(),
            required,
            needs_effect: requires_external_effect,
            effect_seen: false,
        }
    }

    /// A call succeeded.
    pub fn succeeded(&mut self, arguments: &ToolArguments) {
        let tool = arguments.tool();
        let effect = arguments.has_side_effect();
        if self.required.contains(&tool) && effect {
            self.effect_seen = true;
        }
        // Where an effect is wanted from this very tool, looking (`dir list`) is not doing.
        let only_looked = self.needs_effect && tool.can_have_side_effect() && !effect;
        if !only_looked {
            self.missing.remove(&tool);
        }
    }

    /// Whether everything needed was seen.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && (!self.needs_effect || self.effect_seen)
    }

    /// The tools whose success was not seen.
    pub fn missing(&self) -> &BTreeSet<ToolName> {
        &self.missing
    }

    /// Whether the Task needs no tool at all: pure explanation.
    pub fn is_talk(&self) -> bool {
        self.required.is_empty() && !self.needs_effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(tool: ToolName, arguments: Value) -> ToolArguments {
        ToolArguments::parse(tool, arguments).unwrap()
    }

    #[test]
    fn agt_04_every_required_tool_has_to_succeed() {
        let both = BTreeSet::from([ToolName::FileEdit, ToolName::ProcessRun]);
        let mut evidence = Evidence::new(both, true);
        assert!(!evidence.is_complete());
        evidence.succeeded(&call(
            ToolName::FileEdit,
            json!({"path": "a", "operation": "delete"}),
        ));
        assert_eq!(
            evidence.missing(),
            &BTreeSet::from([ToolName::ProcessRun]),
            "an edit is no evidence of a run"
        );
        evidence.succeeded(&call(
            ToolName::ProcessRun,
            json!({"executable": "python3"}),
        ));
        assert!(evidence.is_complete());
    }

    #[test]
    fn agt_04_listing_is_no_effect() {
        let mut evidence = Evidence::new(BTreeSet::from([ToolName::Dir]), true);
        evidence.succeeded(&call(
            ToolName::Dir,
            json!({"path": "a", "operation": "list"}),
        ));
        assert!(!evidence.is_complete());
        evidence.succeeded(&call(
            ToolName::Dir,
            json!({"path": "a", "operation": "mkdir"}),
        ));
        assert!(evidence.is_complete());
        let mut looking = Evidence::new(BTreeSet::from([ToolName::Dir]), false);
        looking.succeeded(&call(
            ToolName::Dir,
            json!({"path": "a", "operation": "list"}),
        ));
        assert!(looking.is_complete());
    }

    #[test]
    fn agt_04_talk_needs_nothing() {
        assert!(Evidence::new(BTreeSet::new(), false).is_talk());
        assert!(Evidence::new(BTreeSet::new(), false).is_complete());
    }
}
