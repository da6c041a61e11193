//! One call of the model through every stage, in order (product.md §3), and what came of it.

use super::Run;
use super::begin::Seat;
use super::halt::Halt;
use crate::catalogue;
use crate::compose::{clip, one_line};
use crate::ledger::Event;
use crate::ollama::WireCall;
use crate::repetition::Repetition;
use crate::tools::ToolResult;
use policy::call::{ProposedCall, ValidatedCall, fingerprint};
use policy::tool::ToolArguments;
use policy::{Code, Refusal, Untrusted};
use record::EventName;
use serde_json::{Value, json};

/// A call on its way.
pub(super) struct Attempt {
    pub tool: &'static str,
    pub target: String,
    pub fingerprint: Option<[u8; 32]>,
    pub arguments: Option<ToolArguments>,
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

    pub(super) async fn denial_repeated(
        &mut self,
        seat: &Seat,
        target: &str,
    ) -> Result<Halt, Halt> {
        let event = Event::new(EventName::PolicyDeny, target)
            .of_task(seat.id.as_str())
            .denied(Code::DenialRepeated);
        self.ledger.audit(event).await?;
        Ok(Refusal::new(Code::DenialRepeated, "DESIGN §8.4", target).into())
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
