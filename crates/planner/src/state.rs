//! The life of a planned Task: one `match` says which steps are legal.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a planned Task stands (DESIGN §8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// In the plan, not begun.
    Queued,
    /// Taken back to be planned again (DESIGN §8.4).
    Planning,
    /// Being worked on.
    Running,
    /// Done, with evidence. Immutable from here on (PLN-03).
    Completed,
    /// Given up. Does not satisfy a dependency (DESIGN §8.4).
    Failed,
    /// Stopped from outside. Does not satisfy a dependency.
    Cancelled,
}

impl TaskState {
    /// Every state.
    pub const ALL: [Self; 6] = [
        Self::Queued,
        Self::Planning,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Whether `self → next` is a legal step: the union of both documents' tables (X-STATES). Staying is not a step.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Queued => matches!(
                next,
                Self::Planning | Self::Running | Self::Failed | Self::Cancelled
            ),
            Self::Planning => matches!(next, Self::Running | Self::Failed | Self::Cancelled),
            Self::Running => matches!(
                next,
                Self::Planning | Self::Completed | Self::Failed | Self::Cancelled
            ),
            Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }

    /// Whether no step leads out of it.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The stable word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Planning => "planning",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PLN-03, X-STATES: the whole table, row by row; completed leads nowhere.
    #[test]
    fn pln_03_the_table_of_legal_steps() {
        // Columns in the order of `ALL`: queued planning running completed failed cancelled.
        let table = [
            (TaskState::Queued, [0, 1, 1, 0, 1, 1]),
            (TaskState::Planning, [0, 0, 1, 0, 1, 1]),
            (TaskState::Running, [0, 1, 0, 1, 1, 1]),
            (TaskState::Completed, [0; 6]),
            (TaskState::Failed, [0; 6]),
            (TaskState::Cancelled, [0; 6]),
        ];
        for (from, row) in table {
            for (to, legal) in TaskState::ALL.into_iter().zip(row) {
                assert_eq!(from.may_become(to), legal == 1, "{from} -> {to}");
            }
            assert_eq!(from.is_terminal(), row == [0; 6], "{from}");
        }
    }
}
