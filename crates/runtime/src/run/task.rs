//! The loop of one planned Task: ask, do, look, until the evidence is complete and the model stops calling (AGT-01…05).

use super::Run;
use super::begin::Seat;
use super::halt::Halt;
use super::model::Phase;
use crate::catalogue;
use crate::compose::TaskStart;
use crate::evidence::Denied;
use crate::ledger::Event;
use crate::ollama::{ChatAnswer, ChatMessage, Shape};
use crate::repetition::{Cause, Repetition};
use crate::service::RunEvent;
use planner::{TaskId, TaskState};
use policy::{Code, Message, Refusal};
use record::EventName;
use serde_json::json;
use std::ops::ControlFlow;

/// Refusals in one Task after which it is planned anew. The first one leaves the model a chance for an allowed call; it
/// is told once and never sent again (DESIGN §7.8).
const DENIALS_UNTIL_REPLAN: u32 = 2;

/// How a turn left the Task.
type Turn = ControlFlow<TaskOutcome>;

enum TaskOutcome {
    Completed(String),
    Refused(Box<Denied>),
}

impl Run {
    /// Works on a Task to its end. `Some` means that a refusal stands in its way and it goes back to planning.
    pub(super) async fn work_on(&mut self, id: &TaskId) -> Result<Option<Box<Denied>>, Halt> {
        let mut seat = self.begin(id).await?;
        let worked = self.turns(&mut seat).await;
        let (state, code) = match &worked {
            Ok(TaskOutcome::Completed(_)) => (TaskState::Completed, None),
            Ok(TaskOutcome::Refused(denied)) => (TaskState::Planning, Some(denied.code)),
            Err(Halt::Stopped(code)) => (TaskState::Cancelled, Some(*code)),
            Err(halt) => (TaskState::Failed, Some(halt.code())),
        };
        let ended = self.end(seat, state, code).await;
        match (worked, ended) {
            // What was left behind weighs more than why the Task stopped (SEC-INV-10).
            (Err(_), Err(residue)) | (Ok(_), Err(residue)) => Err(residue),
            (Err(halt), Ok(())) => Err(halt),
            (Ok(TaskOutcome::Completed(text)), Ok(())) => {
                self.texts.push((id.to_string(), text));
                Ok(None)
            }
            (Ok(TaskOutcome::Refused(denied)), Ok(())) => Ok(Some(denied)),
        }
    }

    async fn turns(&mut self, seat: &mut Seat) -> Result<TaskOutcome, Halt> {
        let mut messages = self.start_messages(seat, None)?;
        loop {
            if let Some(shorter) = self.shortened(seat, &messages).await? {
                messages = shorter;
            }
            let think = self.engine.parts.model.ollama.think;
            let tools = Shape::Tools(self.engine.tools.clone());
            let called = self
                .call(Phase::Execution, Some(&seat.id), &messages, tools, think)
                .await;
            let answer = match called {
                Err(halt) if halt.code() == Code::OllamaContextExceeded && !seat.was_too_long => {
                    // The server counts better than we estimate: once per Task the context is summarized for its sake.
                    seat.was_too_long = true;
                    self.last_prompt_tokens = Some(u64::MAX);
                    continue;
                }
                called => called?,
            };
            self.watch(seat, &messages, &answer).await?;
            messages.push(answer.to_message());
            let turn = if answer.tool_calls.is_empty() {
                self.talked(seat, &answer, &mut messages).await?
            } else {
                self.called(seat, &answer, &mut messages).await?
            };
            if let ControlFlow::Break(outcome) = turn {
                return Ok(outcome);
            }
        }
    }

    /// The prompt that a Task starts with.
    pub(super) fn start_messages(
        &self,
        seat: &Seat,
        progress: Option<&str>,
    ) -> Result<Vec<ChatMessage>, Halt> {
        let (Some(graph), Some(task)) = (
            &self.graph,
            self.graph.as_ref().and_then(|graph| graph.task(&seat.id)),
        ) else {
            let missing = policy::Fault::new(
                policy::Blame::Us,
                Code::Internal,
                seat.id.as_str(),
                "no such task",
            );
            return Err(missing.into());
        };
        Ok(self.engine.composer.task(&TaskStart {
            graph,
            task,
            session: &self.session,
            request: &self.request,
            images: &self.images,
            progress,
            evidence: &seat.evidence,
        }))
    }

    /// An answer without a call: the end of the Task if everything was seen done, else "not executed" (OLL-11, AGT-04).
    async fn talked(
        &mut self,
        seat: &mut Seat,
        answer: &ChatAnswer,
        messages: &mut Vec<ChatMessage>,
    ) -> Result<Turn, Halt> {
        let text = answer.content.trim();
        if seat.evidence.is_complete() && !(text.is_empty() && seat.evidence.is_talk()) {
            return Ok(Turn::Break(TaskOutcome::Completed(text.to_owned())));
        }
        if seat.refusal_open
            && let Some(denied) = self.denied.last()
        {
            return Ok(Turn::Break(TaskOutcome::Refused(Box::new(denied.clone()))));
        }
        let missing: Vec<&str> = seat
            .evidence
            .missing()
            .iter()
            .map(|tool| catalogue::wire_name(*tool))
            .collect();
        let cause = Cause {
            tool: None,
            code: Code::EvidenceMissing.as_str(),
            target: missing.join(", "),
        };
        let judged = seat.failures.talked(cause.clone());
        let notice = self.judge_failure(seat, judged, &cause).await?;
        let mut observation = if seat.evidence.is_talk() {
            "The answer was empty. Answer the current task in text now.".to_owned()
        } else {
            let which = if missing.is_empty() {
                "no change outside was seen".to_owned()
            } else {
                format!("no successful result was seen from: {}", missing.join(", "))
            };
            format!(
                "NOT EXECUTED. Nothing was done by your text; {which}. Call the tool now, with complete arguments. Do not describe."
            )
        };
        if let Some(notice) = notice {
            observation.push('\n');
            observation.push_str(&notice);
        }
        messages.push(ChatMessage::user(observation));
        Ok(Turn::Continue(()))
    }

    /// The calls of one turn, in order, each through every stage.
    async fn called(
        &mut self,
        seat: &mut Seat,
        answer: &ChatAnswer,
        messages: &mut Vec<ChatMessage>,
    ) -> Result<Turn, Halt> {
        for call in &answer.tool_calls {
            self.check_stop()?;
            seat.calls += 1;
            let limit = self.engine.limits().max_tool_calls_per_task;
            if seat.calls > limit {
                return Err(self.escalate(seat, limit).await?);
            }
            let observation = self.handle(seat, call).await?;
            messages.push(ChatMessage::result_of(call, observation));
        }
        self.check_stop()?;
        if seat.denials >= DENIALS_UNTIL_REPLAN
            && !seat.evidence.is_complete()
            && let Some(denied) = self.denied.last()
        {
            return Ok(Turn::Break(TaskOutcome::Refused(Box::new(denied.clone()))));
        }
        Ok(Turn::Continue(()))
    }

    /// DC-4: the Task stops and is handed to a person. There is no operator channel yet, so the run ends (X-ESC).
    async fn escalate(&mut self, seat: &Seat, limit: u32) -> Result<Halt, Halt> {
        let tried: Vec<&str> = self.session.results[self.results_from..]
            .iter()
            .filter(|result| result.task == seat.id.as_str())
            .map(|result| result.target.as_str())
            .collect();
        let open = seat.failures.open().map(|cause| cause.code);
        let missing: Vec<&str> = seat
            .evidence
            .missing()
            .iter()
            .map(|tool| tool.as_str())
            .collect();
        let detail =
            json!({"limit": limit, "tried": tried, "open_failure": open, "missing": missing});
        let event = Event::new(EventName::Escalation, seat.id.as_str())
            .of_task(seat.id.as_str())
            .code(Some(Code::MaxToolCalls))
            .detail(detail);
        self.ledger.audit_durably(event).await?;
        let notice = Message::new("notice.escalated")
            .with("task", &seat.id)
            .with("count", limit);
        self.board.emit(RunEvent::Notice(notice));
        Ok(Refusal::new(
            Code::MaxToolCalls,
            "guard.max_tool_calls_per_task",
            seat.id.as_str(),
        )
        .with("count", limit)
        .into())
    }

    /// What one more equal failure means: nothing, words for the model, or the end of the run (X-REPEAT).
    pub(super) async fn judge_failure(
        &mut self,
        seat: &Seat,
        judged: Repetition,
        cause: &Cause,
    ) -> Result<Option<String>, Halt> {
        match judged {
            Repetition::Fine => Ok(None),
            Repetition::Notice(count) => {
                self.notice(seat, count, cause.code, &cause.target).await?;
                Ok(Some(format!(
                    "NOTICE: the same failure came {count} times in a row. Do something different now."
                )))
            }
            Repetition::TooOften(count) => {
                let detail = format!("{} {}", cause.code, cause.target);
                Err(
                    Refusal::new(Code::SameFailure, "agent.same_failure_limit", &cause.target)
                        .with("count", count)
                        .with("detail", detail.trim())
                        .into(),
                )
            }
        }
    }

    /// HR-5: recorded, and shown to the operator.
    pub(super) async fn notice(
        &mut self,
        seat: &Seat,
        count: u32,
        code: &str,
        target: &str,
    ) -> Result<(), Halt> {
        let event = Event::new(EventName::GuardNotice, target)
            .of_task(seat.id.as_str())
            .code(Some(Code::Repetition))
            .detail(json!({"guard": "HR-5", "count": count, "what": code}));
        self.ledger.audit(event).await?;
        let message = Message::new("notice.repetition")
            .with("task", &seat.id)
            .with("count", count)
            .with("target", crate::compose::one_line(target));
        self.board.emit(RunEvent::Notice(message));
        Ok(())
    }

    /// A prompt that looks shortened by the server is an alarm ("Survive these" 7).
    async fn watch(
        &mut self,
        seat: &mut Seat,
        messages: &[ChatMessage],
        answer: &ChatAnswer,
    ) -> Result<(), Halt> {
        let bytes = super::summarize::prompt_bytes(messages);
        let Some(alarm) = seat.watch.observe(bytes, answer.usage) else {
            return Ok(());
        };
        let event = Event::new(EventName::GuardNotice, seat.id.as_str())
            .of_task(seat.id.as_str())
            .detail(json!({"guard": "context", "what": format!("{alarm:?}")}));
        self.ledger.audit(event).await?;
        self.board.emit(RunEvent::Notice(
            Message::new("notice.context_cut").with("task", &seat.id),
        ));
        Ok(())
    }
}
