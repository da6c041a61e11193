//! Permission layers L1 to L6 (GUARD 5): the first refusal ends it, and what no layer allows is denied.

use crate::code::Code;
use crate::fault::Refusal;
use crate::tool::{Operation, ToolName};
use std::collections::BTreeSet;

/// Identical operations in a row at which L4 blocks (interfaces.md §3).
pub const CONTEXT_BLOCKS_AT: u32 = 5;

/// The layers' configuration, frozen when the run starts (GUARD 3), and L4's memory of this run.
#[derive(Clone, Debug)]
pub struct PermissionLayers {
    operations: BTreeSet<Operation>,
    asks: BTreeSet<Operation>,
    last: Option<[u8; 32]>,
    in_a_row: u32,
}

impl PermissionLayers {
    /// The default box (X-BOX): every operation is listed; those in `approvals.ask` ask.
    pub fn default_box(asks: BTreeSet<Operation>) -> Self {
        Self {
            operations: BTreeSet::from(Operation::ALL),
            asks,
            last: None,
            in_a_row: 0,
        }
    }

    /// A box with its own `os_operations`.
    pub fn of_box(operations: BTreeSet<Operation>, asks: BTreeSet<Operation>) -> Self {
        Self {
            operations,
            asks,
            last: None,
            in_a_row: 0,
        }
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
        if let Some(operation) = operations
            .iter()
            .find(|operation| !self.operations.contains(operation))
        {
            return Err(Refusal::new(
                Code::OperationDenied,
                "L1 os_operations",
                operation.word(),
            ));
        }
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
        let asked: BTreeSet<Operation> = operations.intersection(&self.asks).copied().collect();
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
