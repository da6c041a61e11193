//! The same thing again (X-REPEAT, HR-5, AGT-03): noticed at three, ended at five.

use policy::tool::ToolName;

/// What one more repetition means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// Nothing special.
    Fine,
    /// The model, the operator and the audit are told.
    Notice(u32),
    /// The run fails.
    TooOften(u32),
}

/// The limits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From here on it is told.
    pub notice: u32,
    /// Here it ends.
    pub limit: u32,
}

impl Patience {
    fn judge(self, count: u32) -> Repetition {
        if count >= self.limit {
            Repetition::TooOften(count)
        } else if count >= self.notice {
            Repetition::Notice(count)
        } else {
            Repetition::Fine
        }
    }
}

/// Equal calls in a row, whatever came of them.
#[derive(Clone, Debug)]
pub struct SameCalls {
    patience: Patience,
    last: Option<[u8; 32]>,
    count: u32,
}

impl SameCalls {
    /// No call yet.
    pub fn new(patience: Patience) -> Self {
        Self {
            patience,
            last: None,
            count: 0,
        }
    }

    /// One more call.
    pub fn seen(&mut self, fingerprint: [u8; 32]) -> Repetition {
        if self.last == Some(fingerprint) {
            self.count += 1;
        } else {
            self.last = Some(fingerprint);
            self.count = 1;
        }
        self.patience.judge(self.count)
    }
}

/// What failed: equal causes are one failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The tool; nothing where no tool was called.
    pub tool: Option<ToolName>,
    /// A stable code.
    pub code: &'static str,
    /// What it was about.
    pub target: String,
}

/// Equal failures in a row (AGT-03). A success of another tool in between does not solve the failure.
#[derive(Clone, Debug)]
pub struct SameFailures {
    patience: Patience,
    last: Option<Cause>,
    count: u32,
}

impl SameFailures {
    /// No failure yet.
    pub fn new(patience: Patience) -> Self {
        Self {
            patience,
            last: None,
            count: 0,
        }
    }

    /// One more failure.
    pub fn failed(&mut self, cause: Cause) -> Repetition {
        if self.last.as_ref() == Some(&cause) {
            self.count += 1;
        } else {
            self.last = Some(cause);
            self.count = 1;
        }
        self.patience.judge(self.count)
    }

    /// A text where a call was needed: it counts with the failure that is still open (DESIGN §9.2), else as `cause`.
    pub fn talked(&mut self, cause: Cause) -> Repetition {
        let open = self.last.clone().unwrap_or(cause);
        self.failed(open)
    }

    /// A tool succeeded: its own failure is solved, and so is talking instead of calling.
    pub fn succeeded(&mut self, tool: ToolName) {
        if self
            .last
            .as_ref()
            .is_some_and(|cause| cause.tool.is_none_or(|failed| failed == tool))
        {
            self.last = None;
            self.count = 0;
        }
    }

    /// The failure that is still open.
    pub fn open(&self) -> Option<&Cause> {
        self.last.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        notice: 3,
        limit: 5,
    };

    fn cause(target: &str) -> Cause {
        Cause {
            tool: Some(ToolName::FileEdit),
            code: "file.patch_mismatch",
            target: target.into(),
        }
    }

    #[test]
    fn hr_5_noticed_at_three_ended_at_five() {
        let mut calls = SameCalls::new(PATIENCE);
        let judged: Vec<Repetition> = (0..5).map(|_| calls.seen([1; 32])).collect();
        use Repetition::*;
        assert_eq!(judged, [Fine, Fine, Notice(3), Notice(4), TooOften(5)]);
        assert_eq!(calls.seen([2; 32]), Fine, "another call begins anew");
    }

    #[test]
    fn agt_03_only_equal_failures_in_a_row_count() {
        let mut failures = SameFailures::new(PATIENCE);
        for _ in 0..4 {
            failures.failed(cause("a"));
        }
        assert_eq!(failures.failed(cause("b")), Repetition::Fine);
        for _ in 0..3 {
            failures.failed(cause("b"));
        }
        failures.succeeded(ToolName::FileRead);
        assert_eq!(
            failures.failed(cause("b")),
            Repetition::TooOften(5),
            "a read solves no failed edit"
        );
        failures.succeeded(ToolName::FileEdit);
        assert_eq!(failures.failed(cause("b")), Repetition::Fine);
    }

    #[test]
    fn agt_03_talking_counts_with_the_open_failure() {
        let mut failures = SameFailures::new(PATIENCE);
        let nothing = Cause {
            tool: None,
            code: "task.evidence_missing",
            target: String::new(),
        };
        failures.failed(cause("a"));
        failures.failed(cause("a"));
        assert_eq!(failures.talked(nothing.clone()), Repetition::Notice(3));
        assert_eq!(failures.open(), Some(&cause("a")));
    }
}
