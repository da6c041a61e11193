//! What is recorded.

use policy::{Code, RunId, SessionId, TraceId};
use serde_json::{Map, Value};
use std::fmt;

macro_rules! event_names {
    ($($(#[$doc:meta])* $variant:ident = $text:literal;)*) => {
        /// What happened. The text is stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventName {
            $($(#[$doc])* $variant,)*
        }

        impl EventName {
            /// Every name there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable text.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

event_names! {
    /// The log was opened; `detail` says how the boot before it ended.
    AuditOpen = "audit.open";
    /// The log was closed in order.
    AuditClose = "audit.close";
    /// A new audit key was made.
    KeyCreated = "key.created";
    /// A configuration was applied.
    ConfigLoad = "config.load";
    /// An agent run started.
    RunStart = "run.start";
    /// An agent run ended.
    RunEnd = "run.end";
    /// A plan passed validation.
    PlanAccepted = "plan.accepted";
    /// A plan did not.
    PlanRejected = "plan.rejected";
    /// A planned Task started.
    TaskStart = "task.start";
    /// A planned Task ended.
    TaskEnd = "task.end";
    /// The model called a tool.
    ToolCall = "tool.call";
    /// A program is about to be started.
    ProcessStart = "process.start";
    /// A program ended.
    ProcessExit = "process.exit";
    /// A file is about to be written.
    FileWrite = "file.write";
    /// A file is about to be deleted.
    FileDelete = "file.delete";
    /// A file is about to be renamed.
    FileRename = "file.rename";
    /// A directory is about to be made.
    DirMake = "dir.make";
    /// A directory is about to be removed.
    DirRemove = "dir.remove";
    /// A rule said no.
    PolicyDeny = "policy.deny";
    /// A network rule was applied.
    NetworkRuleApply = "network.rule.apply";
    /// A network rule was removed.
    NetworkRuleRemove = "network.rule.remove";
    /// Recovery started.
    RecoveryStart = "recovery.start";
    /// Recovery ended.
    RecoveryEnd = "recovery.end";
    /// A human is asked.
    ApprovalRequested = "approval.requested";
    /// A human said yes.
    ApprovalGranted = "approval.granted";
    /// A human said no.
    ApprovalDenied = "approval.denied";
    /// Nobody answered in time.
    ApprovalExpired = "approval.expired";
    /// A grant was used; it cannot be used again.
    ApprovalConsumed = "approval.consumed";
    /// A session's sandbox mode changed.
    ModeChange = "mode.change";
    /// What is enforced for a Task, and what is missing.
    EnforcementReport = "enforcement.report";
    /// What a sandbox left in a workspace that a tool outside would obey (X-PROTECT).
    SandboxFinding = "sandbox.finding";
    /// A finding of the plausibility gate that does not stop.
    GuardNotice = "guard.notice";
    /// Something was handed to a human.
    Escalation = "escalation";
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What the policy said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allow,
    /// No.
    Deny,
    /// A human decides.
    Ask,
    /// Nothing was to decide.
    #[default]
    None,
}

impl Decision {
    /// The stable text.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Ask => "ask",
            Self::None => "none",
        }
    }
}

/// One event before it is numbered, chained and signed. It always has a trace id (DC-3).
#[derive(Clone, Debug)]
#[must_use = "an event that is not appended is not recorded"]
pub struct AuditEvent {
    pub(crate) name: EventName,
    pub(crate) trace_id: TraceId,
    pub(crate) session_id: Option<SessionId>,
    pub(crate) run_id: Option<RunId>,
    pub(crate) planned_task_id: Option<String>,
    pub(crate) decision: Decision,
    pub(crate) code: Option<Code>,
    pub(crate) target: Option<String>,
    pub(crate) detail: Map<String, Value>,
}

impl AuditEvent {
    /// An event of one trace.
    pub fn new(name: EventName, trace_id: TraceId) -> Self {
        Self {
            name,
            trace_id,
            session_id: None,
            run_id: None,
            planned_task_id: None,
            decision: Decision::None,
            code: None,
            target: None,
            detail: Map::new(),
        }
    }

    /// In this session.
    pub fn session(mut self, id: SessionId) -> Self {
        self.session_id = Some(id);
        self
    }

    /// In this run: the public `task_id` (X-TASK).
    pub fn run(mut self, id: RunId) -> Self {
        self.run_id = Some(id);
        self
    }

    /// In this node of the run's graph.
    pub fn planned_task(mut self, id: impl Into<String>) -> Self {
        self.planned_task_id = Some(id.into());
        self
    }

    /// What the policy said.
    pub fn decision(mut self, decision: Decision) -> Self {
        self.decision = decision;
        self
    }

    /// The code of what was refused or failed.
    pub fn code(mut self, code: Code) -> Self {
        self.code = Some(code);
        self
    }

    /// The object: a resolved path, an alias, `host:port`.
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// One more member of `detail`. Integers beyond 2^53 are recorded as decimal text, since RFC 8785 cannot hold them.
    pub fn detail(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.detail.insert(name.into(), value.into());
        self
    }

    /// All members of an object, as [`crate::Redactor`] makes them.
    pub fn details(mut self, members: Map<String, Value>) -> Self {
        self.detail.extend(members);
        self
    }
}
