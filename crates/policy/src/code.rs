//! Stable codes of everything that can be refused or fail (DESIGN §20). `docs/errors.md` lists them; a test keeps it true.

use std::fmt;

/// What a failure means for the run (DESIGN §20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Configuration, schema or tool arguments are wrong.
    Validation,
    /// The policy said no; the model may only replan (DESIGN §8.4).
    PolicyDenied,
    /// The model server could not be reached or is busy; retried (OLL-12).
    OllamaTransient,
    /// The model server said no for good.
    OllamaPermanent,
    /// A tool could not do it; the model may try again differently.
    ToolFailure,
    /// A limit was reached.
    ResourceLimit,
    /// Clean-up failed; the server does not start (REC-07).
    RecoveryFailure,
    /// The machine or our own program failed.
    Internal,
}

impl Category {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::PolicyDenied => "policy_denied",
            Self::OllamaTransient => "ollama_transient",
            Self::OllamaPermanent => "ollama_permanent",
            Self::ToolFailure => "tool_failure",
            Self::ResourceLimit => "resource_limit",
            Self::RecoveryFailure => "recovery_failure",
            Self::Internal => "internal",
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $category:ident;)*) => {
        /// A stable code. Its text never changes once released; its message is `error.<code>` in the locale files.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[$doc])* $variant,)*
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable text.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The key of its message in the locale files.
            pub fn message_id(self) -> &'static str {
                match self { $(Self::$variant => concat!("error.", $text),)* }
            }

            /// The key of the hint that says what to do about it.
            pub fn hint_id(self) -> &'static str {
                match self { $(Self::$variant => concat!("hint.", $text),)* }
            }

            /// What it means for the run.
            pub fn category(self) -> Category {
                match self { $(Self::$variant => Category::$category,)* }
            }
        }
    };
}

codes! {
    /// The configuration file is wrong.
    ConfigurationInvalid = "configuration.invalid", Validation;
    /// A locale file is broken (I18N-11).
    LocaleInvalid = "locale.invalid", Validation;
    /// A request field is missing or wrong.
    RequestInvalid = "request.invalid", Validation;
    /// No session with this id (SES-03).
    SessionNotFound = "session.not_found", Validation;
    /// The session is closed.
    SessionClosed = "session.closed", Validation;
    /// No run with this task id.
    TaskNotFound = "task.not_found", Validation;
    /// The task belongs to another session (MCP-STS-02).
    TaskSessionMismatch = "task.session_mismatch", Validation;
    /// An image is not what it claims, or over a limit.
    ImageInvalid = "image.invalid", Validation;
    /// Tool arguments do not have the right shape.
    ToolArgumentsInvalid = "tool.arguments_invalid", ToolFailure;
    /// There is no such tool.
    ToolUnknown = "tool.unknown", ToolFailure;
    /// The tool is not in the box's list.
    ToolNotAllowed = "policy.tool_not_allowed", PolicyDenied;
    /// The tool is outside the current planned Task (DESIGN §8.1).
    ToolOutOfScope = "tool.out_of_scope", ToolFailure;
    /// A tool failed while working.
    ToolFailed = "tool.failed", ToolFailure;
    /// The file or directory does not exist.
    FileNotFound = "file.not_found", ToolFailure;
    /// The system does not let this user there: a directory on the way, or the thing itself.
    PermissionDenied = "file.permission_denied", ToolFailure;
    /// The file or directory exists already.
    FileExists = "file.exists", ToolFailure;
    /// It is not a regular file or directory: a FIFO, socket or device.
    FileKindUnsupported = "file.kind_unsupported", ToolFailure;
    /// A directory where a file is needed, or the other way round.
    FileWrongKind = "file.wrong_kind", ToolFailure;
    /// The file is larger than the limit; read a range.
    FileTooLarge = "file.too_large", ToolFailure;
    /// The file is not text.
    FileBinary = "file.binary", ToolFailure;
    /// The file is not what the caller believed (`expected_sha256`).
    FileHashMismatch = "file.hash_mismatch", ToolFailure;
    /// The old text was not found exactly once.
    PatchMismatch = "file.patch_mismatch", ToolFailure;
    /// The written file did not read back as written; the old content is back.
    FileVerifyFailed = "file.verify_failed", ToolFailure;
    /// A rename across file systems.
    RenameCrossDevice = "file.rename_cross_device", ToolFailure;
    /// The directory is not empty.
    DirectoryNotEmpty = "directory.not_empty", ToolFailure;
    /// The path is not granted, or not with this right (SEC-INV-04).
    PathDenied = "policy.path_denied", PolicyDenied;
    /// The path leads out of its root by a link (FS-03).
    PathEscapes = "policy.path_escapes", PolicyDenied;
    /// The path is protected: configuration, state, logs, boxes, `.git/config`, hooks.
    PathProtected = "policy.path_protected", PolicyDenied;
    /// The path text itself is unusable (NUL, not UTF-8, too long).
    PathInvalid = "policy.path_invalid", ToolFailure;
    /// The program is no entry, runtime component or workspace artifact (ST-20).
    ExecutableDenied = "policy.executable_denied", PolicyDenied;
    /// The alias is not configured.
    ExecutableUnknown = "executable.unknown_alias", PolicyDenied;
    /// No record of this program's hash.
    ExecutableApprovalMissing = "executable.approval_missing", PolicyDenied;
    /// The program's bytes changed since it was pinned (SEC-INV-05).
    ExecutableHashChanged = "executable.hash_changed", PolicyDenied;
    /// The alias now leads to another file (PRC-03).
    ExecutableResolutionChanged = "executable.resolution_changed", PolicyDenied;
    /// The sandbox itself could write this entry (X-EXE).
    ExecutableWritable = "executable.writable", PolicyDenied;
    /// Shells are denied by the configuration (PRC-05).
    ShellDenied = "policy.shell_denied", PolicyDenied;
    /// The operation is not in the box's list (L1).
    OperationDenied = "policy.operation_denied", PolicyDenied;
    /// The same operation too many times in a row (L4).
    OperationRepeated = "policy.operation_repeated", PolicyDenied;
    /// No rule allows it (L6).
    DefaultDenied = "policy.default_denied", PolicyDenied;
    /// It needs a human decision, and nobody can be asked (L5, X-ESC).
    ApprovalRequired = "policy.approval_required", PolicyDenied;
    /// A destructive command (stage 3).
    PlausibilityBlocked = "policy.plausibility_blocked", PolicyDenied;
    /// The same denied call came again.
    DenialRepeated = "policy.denial_repeated", PolicyDenied;
    /// The network is closed for this.
    NetworkDenied = "policy.network_denied", PolicyDenied;
    /// The sandbox denied an operation of a program.
    SandboxDenied = "policy.sandbox_denied", PolicyDenied;
    /// No confinement is possible here; nothing runs.
    SandboxUnavailable = "SANDBOX_UNAVAILABLE", PolicyDenied;
    /// Confinement would be partial where full is required (X-PARTIAL).
    SandboxPartial = "sandbox.partial", PolicyDenied;
    /// Nobody has applied this configuration (DESIGN §10.3).
    SandboxNotApplied = "sandbox.not_applied", PolicyDenied;
    /// It does not resolve to what was applied (ST-24).
    SandboxResolutionChanged = "sandbox.resolution_changed", PolicyDenied;
    /// The sandbox failed while it ran.
    SandboxFailed = "sandbox.failed", Internal;
    /// Something was left after the Task ended (SEC-INV-10).
    SandboxResidue = "sandbox.residue", RecoveryFailure;
    /// The program did not end in time.
    ProcessTimeout = "process.timeout", ResourceLimit;
    /// The program used more memory than allowed.
    ProcessMemory = "process.memory_limit", ResourceLimit;
    /// The program was started but ended with a failure.
    ProcessFailed = "process.failed", ToolFailure;
    /// The program was not found.
    ProcessNotFound = "process.not_found", ToolFailure;
    /// The program is there and cannot be executed.
    ProcessNotExecutable = "process.not_executable", ToolFailure;
    /// The model server cannot be reached.
    OllamaUnreachable = "ollama.unreachable", OllamaTransient;
    /// The model server is busy.
    OllamaBusy = "ollama.busy", OllamaTransient;
    /// The answer was not a complete answer.
    OllamaBadAnswer = "ollama.bad_answer", OllamaTransient;
    /// No such model on the server.
    OllamaModelMissing = "ollama.model_missing", OllamaPermanent;
    /// The model cannot call tools.
    OllamaToolsUnsupported = "ollama.tools_unsupported", OllamaPermanent;
    /// The model cannot think.
    OllamaThinkingUnsupported = "ollama.thinking_unsupported", OllamaPermanent;
    /// The model cannot see images (OLL-09).
    OllamaVisionUnsupported = "ollama.vision_unsupported", OllamaPermanent;
    /// The prompt is longer than the context.
    OllamaContextExceeded = "ollama.context_exceeded", OllamaPermanent;
    /// The server wants a sign-in or refuses the account.
    OllamaUnauthorized = "ollama.unauthorized", OllamaPermanent;
    /// The server refused the request for another reason.
    OllamaRejected = "ollama.rejected", OllamaPermanent;
    /// The model gave no valid plan, also not after one correction.
    PlanInvalid = "plan.invalid", ToolFailure;
    /// The graph would have a cycle (PLN-01).
    PlanCycle = "plan.cycle", ToolFailure;
    /// More than `planner.max_tasks` (PLN-02).
    PlanTooManyTasks = "plan.too_many_tasks", ToolFailure;
    /// A completed Task may not change (PLN-03).
    PlanCompletedImmutable = "plan.completed_immutable", ToolFailure;
    /// A new plan after a denial changed nothing, or three were used up.
    ReplanFailed = "plan.replan_failed", PolicyDenied;
    /// The Task says done, but the needed tools did not succeed (AGT-04).
    EvidenceMissing = "task.evidence_missing", ToolFailure;
    /// Same tool and arguments, or same error, noticed (X-REPEAT).
    Repetition = "task.repetition", ToolFailure;
    /// The same failure too often in a row (AGT-03).
    SameFailure = "run.same_failure", ResourceLimit;
    /// `agent.max_iterations` reached (AGT-02).
    MaxIterations = "run.max_iterations", ResourceLimit;
    /// DC-4: ten tool calls in one planned Task.
    MaxToolCalls = "task.max_tool_calls", ResourceLimit;
    /// The run was cancelled.
    Cancelled = "run.cancelled", Validation;
    /// The client went away (REC-04).
    ClientGone = "run.client_gone", Validation;
    /// The server is stopping.
    ServerStopping = "server.stopping", Validation;
    /// The HTTP port cannot be listened on.
    HttpPortUnavailable = "http.port_unavailable", Validation;
    /// The queue is full.
    QueueFull = "run.queue_full", ResourceLimit;
    /// The audit log could not be written; the effect did not happen.
    AuditUnavailable = "audit.unavailable", Internal;
    /// The audit log does not verify.
    AuditInvalid = "audit.invalid", Internal;
    /// A key file is missing, unreadable or open to others.
    KeyUnusable = "audit.key_unusable", Internal;
    /// The state directory cannot be used.
    StateUnusable = "state.unusable", Internal;
    /// What a crashed run left could not be cleaned (REC-07).
    RecoveryFailed = "recovery.failed", RecoveryFailure;
    /// Our own fault.
    Internal = "internal", Internal;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
