//! One call of the model through every stage, in order (product.md §3), and what came of it.

use super::Run;
use super::begin::Seat;
use super::halt::Halt;
use crate::catalogue;
use crate::compose::{clip, one_line};
use crate::evidence::{Denied, VerifiedResult};
use crate::ledger::Event;
use crate::ollama::WireCall;
use crate::repetition::{Cause, Repetition};
use crate::service::RunEvent;
use crate::tools::ToolResult;
use policy::call::{ProposedCall, ValidatedCall, fingerprint};
use policy::tool::ToolArguments;
use policy::{Category, Code, Message, Refusal, Untrusted};
use record::EventName;
use serde_json::{Value, json};
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

/// A call on its way.
struct Attempt {
    tool: &'static str,
    target: String,
    fingerprint: Option<[u8; 32]>,
    arguments: Option<ToolArguments>,
}

impl Run {
    /// Handles one call and returns what the model is told.
    pub(super) async fn handle(
        &mut self,
        seat: &mut Seat,
        call: &WireCall,
    ) -> Result<String, Halt> {
        let mut notes = Vec::new();
        let (attempt, result) = match shape(call) {
            Err(refusal) => {
                let attempt = Attempt {
                    tool: call.catalogue.unwrap_or("unknown"),
                    target: one_line(&clip(&call.wire_name, 64)),
                    fingerprint: None,
                    arguments: None,
                };
                self.record_call(seat, &attempt, &call.arguments).await?;
                (attempt, ToolResult::from(refusal))
            }
            Ok(valid) => {
                let arguments = valid.arguments().clone();
                let attempt = Attempt {
                    tool: arguments.tool().as_str(),
                    target: target_of(&arguments),
                    fingerprint: Some(fingerprint(&arguments)),
                    arguments: Some(arguments),
                };
                self.record_call(seat, &attempt, &call.arguments).await?;
                notes.extend(self.look_for_repetition(seat, &attempt).await?);
                let result = self.stages(seat, valid).await?;
                (attempt, result)
            }
        };
        notes.extend(self.settle(seat, &attempt, &result).await?);
        self.ledger
            .tool_result(seat.id.as_str(), self.iterations, call, &result);
        let room = self.observation_bytes();
        let mut observation = if result.ok {
            format!("OK\n{}", clip(&result.output, room))
        } else {
            clip(&result.output, room)
        };
        if result.output.len() > room {
            notes.push("The result was too long. Read or search smaller parts.".to_owned());
        }
        for note in notes {
            observation.push('\n');
            observation.push_str(&note);
        }
        Ok(observation)
    }

    /// One result takes at most about a quarter of the context.
    fn observation_bytes(&self) -> usize {
        self.engine.parts.model.ollama.options.num_ctx as usize
    }

    /// Stages 2 to 8. A refusal is a result; only what ends the run is an error.
    async fn stages(&mut self, seat: &Seat, call: ValidatedCall) -> Result<ToolResult, Halt> {
        let permitted = call
            .scope(&seat.scope)
            .and_then(|scoped| scoped.plausible())
            .and_then(|plausible| plausible.permit(&mut self.layers));
        let permitted = match permitted {
            Ok(permitted) => permitted,
            Err(refusal) => return Ok(in_wire_words(refusal).into()),
        };
        if let ToolArguments::TaskUpdate(update) = permitted.arguments() {
            let update = update.clone();
            return self.update_graph(seat, &update).await;
        }
        let resolved = self.resolve(seat, permitted).await?;
        match resolved.and_then(|resolved| resolved.approve()) {
            Ok(approved) => self.perform(seat, approved).await,
            Err(refusal) => Ok(refusal.into()),
        }
    }

    /// DC-3: every call, its arguments redacted (X-ARGS).
    async fn record_call(
        &self,
        seat: &Seat,
        attempt: &Attempt,
        arguments: &Value,
    ) -> Result<(), Halt> {
        let event = Event::new(EventName::ToolCall, attempt.tool)
            .of_task(seat.id.as_str())
            .detail(self.ledger.redact(arguments))
            .detail(json!({"number": seat.calls}));
        Ok(self.ledger.audit(event).await?)
    }

    /// A refused call that comes again ends the run (DESIGN §8.4); an equal call in a row is noticed, then ends it.
    async fn look_for_repetition(
        &mut self,
        seat: &mut Seat,
        attempt: &Attempt,
    ) -> Result<Option<String>, Halt> {
        let Some(fingerprint) = attempt.fingerprint else {
            return Ok(None);
        };
        if self
            .denied
            .iter()
            .any(|denied| denied.fingerprint == fingerprint)
        {
            return Err(self.denial_repeated(seat, &attempt.target).await?);
        }
        match seat.same_calls.seen(fingerprint) {
            Repetition::Fine => Ok(None),
            Repetition::Notice(count) => {
                self.notice(seat, count, attempt.tool, &attempt.target)
                    .await?;
                Ok(Some(format!(
                    "NOTICE: this is the same call {count} times in a row. Use its result, or do something different."
                )))
            }
            Repetition::TooOften(count) => {
                let detail = format!("{} {}", attempt.tool, attempt.target);
                Err(Refusal::new(Code::SameFailure, "X-REPEAT", &attempt.target)
                    .with("count", count)
                    .with("detail", detail)
                    .into())
            }
        }
    }

    async fn denial_repeated(&mut self, seat: &Seat, target: &str) -> Result<Halt, Halt> {
        let event = Event::new(EventName::PolicyDeny, target)
            .of_task(seat.id.as_str())
            .denied(Code::DenialRepeated);
        self.ledger.audit(event).await?;
        Ok(Refusal::new(Code::DenialRepeated, "DESIGN §8.4", target).into())
    }

    /// What a result means: evidence, a failure that counts, a refusal, or the end of the run.
    async fn settle(
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
                self.judge_failure(seat, judged, &cause).await
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

/// Stage 1, with what small models get wrong in form put right.
fn shape(call: &WireCall) -> Result<ValidatedCall, Refusal> {
    let mut arguments = call.arguments.clone();
    catalogue::tidy(&mut arguments);
    let tool = call.catalogue.unwrap_or(&call.wire_name).to_owned();
    ProposedCall {
        tool: Untrusted::new(tool),
        arguments: Untrusted::new(arguments),
    }
    .validate()
    .map_err(in_wire_words)
}

/// The model knows tools by their wire names.
fn in_wire_words(mut refusal: Refusal) -> Refusal {
    if !matches!(refusal.code, Code::ToolUnknown | Code::ToolOutOfScope) {
        return refusal;
    }
    for (name, value) in &mut refusal.detail {
        if *name == "allowed" {
            let wires: Vec<&str> = value.split(", ").map(catalogue::in_wire_words).collect();
            *value = wires.join(", ");
        }
    }
    refusal
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

/// What a call is about, for people: a path, a command line.
fn target_of(arguments: &ToolArguments) -> String {
    let text = match arguments {
        ToolArguments::FileSearch(call) if call.query.is_empty() => call.root.clone(),
        ToolArguments::FileSearch(call) => format!("{} ({})", call.query, call.root),
        ToolArguments::FileRead(call) => call.path.clone(),
        ToolArguments::FileEdit(call) => match &call.new_path {
            Some(new_path) => format!("{} → {new_path}", call.path),
            None => call.path.clone(),
        },
        ToolArguments::ProcessRun(call) => {
            let words: Vec<&str> = std::iter::once(call.executable.as_str())
                .chain(call.args.iter().map(String::as_str))
                .collect();
            words.join(" ")
        }
        ToolArguments::TaskUpdate(call) => call.task_id.clone().unwrap_or_default(),
        ToolArguments::Dir(call) => call.path.clone(),
    };
    one_line(&clip(&text, 300))
}

fn excerpt(output: &str) -> String {
    let lines: Vec<&str> = output.lines().take(EXCERPT_LINES).collect();
    clip(&lines.join("\n"), EXCERPT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::tool::ToolName;

    #[test]
    fn survive_4_an_unknown_tool_is_answered_with_the_valid_wire_names() {
        let call = WireCall {
            id: "1".into(),
            wire_name: "list_directory".into(),
            catalogue: None,
            arguments: json!({"path": "."}),
        };
        let refusal = shape(&call).unwrap_err();
        assert_eq!(refusal.code, Code::ToolUnknown);
        let (_, allowed) = &refusal.detail[0];
        assert!(allowed.contains("manage_directory"), "{allowed}");
        assert!(ToolName::ALL.len() == allowed.split(", ").count());
    }
}
