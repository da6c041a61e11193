//! What came of a call: evidence, a failure that counts, a refusal, or the end of the run.

use super::Run;
use super::begin::Seat;
use super::halt::Halt;
use super::stages::Attempt;
use crate::compose::clip;
use crate::evidence::{Denied, VerifiedResult};
use crate::ledger::Event;
use crate::repetition::Cause;
use crate::service::RunEvent;
use crate::tools::ToolResult;
use policy::tool::ToolArguments;
use policy::{Category, Code, Message, Refusal};
use record::EventName;
use serde_json::json;
use std::path::{Component, Path, PathBuf};
use std::sync::PoisonError;

/// Bytes of a result that are kept for later Tasks and for the answer.
const KEPT_BYTES: usize = 4 * 1024;
/// Lines and bytes of a result that a person sees.
const EXCERPT_LINES: usize = 5;
const EXCERPT_BYTES: usize = 600;

/// Small models go on and on; they are told when the evidence is complete.
const ENOUGH: &str = "Every tool that the current task needs has succeeded. If the task is done, call no more tools and \
                      answer in one sentence.";

/// What the model is told about a tool that belongs to another Task (DESIGN §8.1).
const OUT_OF_SCOPE: &str = "This was not run: it does not belong to the current task. Do only the current task; the \
                            others have their own turn.";

impl Run {
    /// What a result means: evidence, a failure that counts, a refusal, or the end of the run.
    pub(super) async fn settle(
        &mut self,
        seat: &mut Seat,
        attempt: &Attempt,
        result: &ToolResult,
    ) -> Result<Option<String>, Halt> {
        self.record_program(seat, attempt, result).await?;
        let problem = self.problem(result);
        self.board.emit(RunEvent::ToolFinished {
            task: seat.id.to_string(),
            tool: attempt.tool,
            target: attempt.target.clone(),
            problem: problem.clone(),
            excerpt: excerpt(&result.output),
        });
        if !result.effects.is_empty() || result.ok {
            self.remember(seat, attempt, result);
        }
        let Some((code, message)) = problem else {
            if let Some(arguments) = &attempt.arguments {
                seat.evidence.succeeded(arguments);
                seat.failures.succeeded(arguments.tool());
            }
            seat.refusal_open = false;
            let enough = seat.evidence.is_complete() && !seat.evidence.is_talk();
            return Ok(enough.then(|| ENOUGH.to_owned()));
        };
        self.board.problem(code, message.clone());
        self.check_stop()?;
        if refused_by_a_stage(code) {
            let target = result.target_path.clone().unwrap_or_default();
            let rule = result
                .refusal
                .as_ref()
                .map_or("", |refusal| refusal.rule.as_str());
            let event = Event::new(EventName::PolicyDeny, &target)
                .of_task(seat.id.as_str())
                .denied(code)
                .detail(json!({"rule": rule, "tool": attempt.tool}));
            self.ledger.audit(event).await?;
        }
        match code.category() {
            Category::PolicyDenied => self.deny(seat, attempt, result, code, message).await,
            // The machine, the log or our own code: not the model's to repair.
            Category::Internal | Category::RecoveryFailure => Err(result
                .refusal
                .clone()
                .unwrap_or_else(|| Refusal::new(code, "tool", &attempt.target))
                .into()),
            _ => {
                let cause = Cause {
                    tool: attempt.arguments.as_ref().map(ToolArguments::tool),
                    code: code.as_str(),
                    target: attempt.target.clone(),
                };
                let judged = seat.failures.failed(cause.clone());
                let notice = self.judge_failure(seat, judged, &cause).await?;
                let scope = (code == Code::ToolOutOfScope).then(|| OUT_OF_SCOPE.to_owned());
                Ok(match (scope, notice) {
                    (Some(scope), Some(notice)) => Some(format!("{scope}\n{notice}")),
                    (scope, notice) => scope.or(notice),
                })
            }
        }
    }

    /// A refusal is told once. The same effect by another spelling is the same refusal.
    async fn deny(
        &mut self,
        seat: &mut Seat,
        attempt: &Attempt,
        result: &ToolResult,
        code: Code,
        message: Message,
    ) -> Result<Option<String>, Halt> {
        let target = result
            .target_path
            .clone()
            .unwrap_or_else(|| attempt.target.clone());
        let base = self.engine.policy().workspace_root();
        let place = |target: &str| normalised(base, target);
        let again = names_its_object(code)
            && self.denied.iter().any(|denied| {
                denied.code == code
                    && denied.right == result.required_permission
                    && place(&denied.target) == place(&target)
            });
        if again {
            return Err(self.denial_repeated(seat, &target).await?);
        }
        let denied = Denied {
            tool: attempt.tool.to_owned(),
            target,
            code,
            right: result.required_permission,
            message,
            fingerprint: attempt.fingerprint.unwrap_or_default(),
        };
        self.session.denials.push(denied.clone());
        self.denied.push(denied);
        seat.denials += 1;
        seat.refusal_open = true;
        Ok(Some(
            "This is refused for good. Use only what the PERMISSIONS allow, or say in one sentence that it is not allowed."
                .to_owned(),
        ))
    }

    fn problem(&self, result: &ToolResult) -> Option<(Code, Message)> {
        if result.ok {
            return None;
        }
        let code = result.code.unwrap_or(Code::ToolFailed);
        let message = match &result.refusal {
            Some(refusal) => refusal.message(),
            None => Message::new(code.message_id())
                .with("target", result.target_path.as_deref().unwrap_or(""))
                .with("detail", ""),
        };
        Some((code, message))
    }

    fn remember(&mut self, seat: &Seat, attempt: &Attempt, result: &ToolResult) {
        let changes: Vec<String> = result
            .effects
            .iter()
            .map(|effect| {
                let hash = effect
                    .after_sha256
                    .map_or(String::new(), |hash| format!(" sha256 {hash}"));
                format!("{:?} {}{hash}", effect.kind, effect.path.display())
            })
            .collect();
        let result = json!({"changes": changes, "output": clip(&result.output, KEPT_BYTES)});
        self.session.results.push(VerifiedResult {
            task: seat.id.to_string(),
            tool: attempt.tool,
            target: attempt.target.clone(),
            changed: !changes.is_empty(),
            result,
        });
    }

    /// How a program ended, and what its sandbox denied it.
    async fn record_program(
        &self,
        seat: &Seat,
        attempt: &Attempt,
        result: &ToolResult,
    ) -> Result<(), Halt> {
        let Some(sandbox) = &seat.hands.sandbox else {
            return Ok(());
        };
        let seen = sandbox
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(outcome) = seen else {
            return Ok(());
        };
        let detail = json!({
            "end": outcome.end, "exit_code": outcome.end.exit_code(), "elapsed_ms": outcome.elapsed.as_millis() as u64,
            "stdout_bytes": outcome.stdout.total_bytes, "stderr_bytes": outcome.stderr.total_bytes,
            "leftovers": outcome.leftovers,
        });
        let target = result
            .target_path
            .clone()
            .unwrap_or_else(|| attempt.target.clone());
        let event = Event::new(EventName::ProcessExit, target)
            .of_task(seat.id.as_str())
            .code(result.code)
            .detail(detail);
        self.ledger.audit(event).await?;
        for denial in outcome.denials {
            let event = Event::new(EventName::PolicyDeny, &denial.target)
                .of_task(seat.id.as_str())
                .denied(Code::SandboxDenied)
                .detail(json!({"operation": denial.operation, "rule": denial.rule, "count": denial.count}));
            self.ledger.audit(event).await?;
        }
        Ok(())
    }
}

/// Refusals of stages 2 to 6 and later denials; the shape of stage 1 is only the model's mistake.
fn refused_by_a_stage(code: Code) -> bool {
    code.category() == Category::PolicyDenied || code == Code::ToolOutOfScope
}

/// Refusals whose target is the refused object itself, so that an equal target is an equal intent.
fn names_its_object(code: Code) -> bool {
    matches!(
        code,
        Code::PathDenied
            | Code::PathEscapes
            | Code::PathProtected
            | Code::ExecutableDenied
            | Code::ExecutableUnknown
            | Code::ShellDenied
    )
}

/// A path text without its detours. Only compared, never opened: outside every root nothing is looked at.
fn normalised(base: &Path, target: &str) -> PathBuf {
    let mut place = PathBuf::new();
    for component in base.join(target).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                place.pop();
            }
            other => place.push(other),
        }
    }
    place
}

fn excerpt(output: &str) -> String {
    let lines: Vec<&str> = output.lines().take(EXCERPT_LINES).collect();
    clip(&lines.join("\n"), EXCERPT_BYTES)
}
