//! Permission layers L1 to L6 (GUARD 5): the first refusal ends it, and what no layer allows is denied.

use crate::code::Code;
use crate::fault::Refusal;
use crate::tool::{Operation, ToolName};
use std::collections::BTreeSet;

/// Identical operations in a row at which L4 blocks (interfaces.md §3).
pub const CONTEXT_BLOCKS_AT: u32 = 5;

/// L1 and L5, which depend on nothing but the operations.
#[derive(Clone, Debug)]
pub(crate) struct OperationRules {
    operations: BTreeSet<Operation>,
    asks: BTreeSet<Operation>,
}

impl OperationRules {
    /// The operations that must be asked for.
    pub(crate) fn judge(
        &self,
        operations: &BTreeSet<Operation>,
    ) -> Result<BTreeSet<Operation>, Refusal> {
        match operations.difference(&self.operations).next() {
            Some(operation) => Err(Refusal::new(
                Code::OperationDenied,
                "L1 os_operations",
                operation.word(),
            )),
            None => Ok(operations.intersection(&self.asks).copied().collect()),
        }
    }
}

/// The layers' configuration, frozen when the run starts (GUARD 3), and L4's memory of this run.
#[derive(Clone, Debug)]
pub struct PermissionLayers {
    rules: OperationRules,
    last: Option<[u8; 32]>,
    in_a_row: u32,
}

impl PermissionLayers {
    /// The default box (X-BOX): every operation is listed; those in `approvals.ask` ask.
    pub fn default_box(asks: BTreeSet<Operation>) -> Self {
        Self::of_box(BTreeSet::from(Operation::ALL), asks)
    }

    /// A box with its own `os_operations`.
    pub fn of_box(operations: BTreeSet<Operation>, asks: BTreeSet<Operation>) -> Self {
        Self {
            rules: OperationRules { operations, asks },
            last: None,
            in_a_row: 0,
        }
    }

    /// L1 and L5 alone, for what only shows when the targets are resolved.
    pub(crate) fn rules(&self) -> &OperationRules {
        &self.rules
    }

    /// Judges one call. Returns the operations that must be asked for (L5); empty means permitted.
    ///
    /// `fingerprint` identifies tool and canonical arguments.
    ///
    /// # Errors
    /// The refusal of the first layer that says no, with the layer in its rule.
    pub fn judge(
        &mut self,
        tool: ToolName,
        operations: &BTreeSet<Operation>,
        fingerprint: [u8; 32],
    ) -> Result<BTreeSet<Operation>, Refusal> {
        let asked = self.rules.judge(operations)?;
        if self.last == Some(fingerprint) {
            self.in_a_row += 1;
        } else {
            self.last = Some(fingerprint);
            self.in_a_row = 1;
        }
        if self.in_a_row >= CONTEXT_BLOCKS_AT {
            return Err(
                Refusal::new(Code::OperationRepeated, "L4 context", tool.as_str())
                    .with("count", self.in_a_row),
            );
        }
        if operations.is_empty() && tool != ToolName::TaskUpdate {
            return Err(Refusal::new(
                Code::DefaultDenied,
                "L6 default deny",
                tool.as_str(),
            ));
        }
        Ok(asked)
    }
}
