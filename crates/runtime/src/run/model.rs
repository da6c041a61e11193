//! One counted call to the model (OLL-13, AGT-02).

use super::Run;
use super::halt::Halt;
use crate::ledger::LlmExchange;
use crate::ollama::{ChatAnswer, ChatMessage, ChatRequest, Shape};
use crate::service::{RunEvent, TokenUsage};
use planner::{TaskId, Tokens};
use policy::config::Think;
use policy::{Code, Message, Refusal};
use record::logs::LlmPhase;
use std::time::Instant;

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Planning,
    Replanning,
    Execution,
    Answer,
    /// A summary: session maintenance, counted apart (DESIGN §8.5).
    Maintenance,
}

impl Phase {
    /// The LLM log's word. The answer belongs to no planned Task and is logged as execution.
    fn logged(self) -> LlmPhase {
        match self {
            Self::Planning => LlmPhase::Planning,
            Self::Replanning => LlmPhase::Replanning,
            Self::Execution | Self::Answer => LlmPhase::Execution,
            Self::Maintenance => LlmPhase::Summary,
        }
    }
}

impl Run {
    /// What the model can do, before anything is planned (OLL-09, AT-06). What the server does not say is tried.
    pub(super) async fn check_model(&mut self) -> Result<(), Halt> {
        let model = self.engine.parts.model.settings.model.clone();
        let shown = tokio::select! {
            biased;
            () = self.stop.token().cancelled() => return self.check_stop(),
            shown = self.engine.client.show(&model) => shown,
        };
        let details = match shown {
            Ok(details) => details,
            Err(fault) => {
                let final_answer = matches!(
                    fault.code(),
                    Code::OllamaModelMissing | Code::OllamaUnreachable | Code::OllamaUnauthorized
                );
                return if final_answer {
                    Err(Halt::of_model(&fault, &self.stop))
                } else {
                    Ok(())
                };
            }
        };
        let Some(capabilities) = details.capabilities else {
            return Ok(());
        };
        let refuse = |code: Code| {
            Err(Refusal::new(code, "ollama.model", &model)
                .with("detail", "")
                .into())
        };
        if !capabilities.tools {
            return refuse(Code::OllamaToolsUnsupported);
        }
        if !self.images.is_empty() && !capabilities.vision {
            return refuse(Code::OllamaVisionUnsupported);
        }
        Ok(())
    }

    /// How planning thinks (X-OLL).
    pub(super) fn planning_think(&self) -> Think {
        let model = &self.engine.parts.model;
        if model.plan_think {
            model.ollama.think
        } else {
            Think::Switch(false)
        }
    }

    /// One call, counted, logged and stopped at once when the run is.
    ///
    /// # Errors
    /// The run was stopped, `run.max_iterations`, and whatever the model server said for good.
    pub(super) async fn call(
        &mut self,
        phase: Phase,
        task: Option<&TaskId>,
        messages: &[ChatMessage],
        shape: Shape,
        think: Think,
    ) -> Result<ChatAnswer, Halt> {
        self.check_stop()?;
        let limit = self.engine.limits().max_iterations;
        if self.iterations >= limit {
            return Err(
                Refusal::new(Code::MaxIterations, "agent.max_iterations", "run")
                    .with("count", limit)
                    .into(),
            );
        }
        self.iterations += 1;
        let request = ChatRequest {
            messages: messages.to_vec(),
            shape,
            think,
            options: self.options.clone(),
        };
        let began = Instant::now();
        let answered = self.engine.client.chat(&request, self.stop.token()).await;
        self.ledger.model_call(&LlmExchange {
            phase: phase.logged(),
            task: task.map(TaskId::as_str),
            iteration: self.iterations,
            replan: self.replans,
            model: &self.engine.parts.model.settings.model,
            request: &request,
            answered: answered.as_ref(),
            elapsed: began.elapsed(),
        });
        let answer = answered.map_err(|fault| Halt::of_model(&fault, &self.stop))?;
        self.count(phase, task, &answer);
        // An answer that raced with a stop is not acted upon.
        self.check_stop()?;
        Ok(answer)
    }

    fn count(&mut self, phase: Phase, task: Option<&TaskId>, answer: &ChatAnswer) {
        let (input, output) = (answer.usage.input, answer.usage.output);
        if input.is_none() || output.is_none() {
            self.spent.unknown += 1;
        }
        let add = |sum: &mut TokenUsage| {
            sum.input = sum.input.saturating_add(input.unwrap_or(0));
            sum.output = sum.output.saturating_add(output.unwrap_or(0));
        };
        if phase == Phase::Maintenance {
            add(&mut self.spent.maintenance);
        } else {
            add(&mut self.spent.run);
        }
        self.board.usage(self.spent.run, self.iterations);
        if phase == Phase::Execution {
            self.last_prompt_tokens = input.or(self.last_prompt_tokens);
        }
        let (Some(task), Some(graph)) = (task, &mut self.graph) else {
            return;
        };
        let exceeded = |graph: &planner::TaskGraph| {
            graph
                .task(task)
                .is_some_and(planner::PlannedTask::exceeds_pessimistic)
        };
        let before = exceeded(graph);
        let (input, output) = (Tokens(input.unwrap_or(0)), Tokens(output.unwrap_or(0)));
        if let Err(problem) = graph.record_usage(task, input, output) {
            tracing::warn!(%problem, "usage is not recorded");
        }
        if !before && exceeded(graph) {
            // Not a failure (DESIGN §8.4): noted, and the model may set another estimate.
            let note = Message::new("notice.over_estimate").with("task", task);
            self.board.emit(RunEvent::Notice(note));
        }
    }
}
