//! The first plan (DESIGN §8.4): structured output, checked by the planner and the policy, one correction.

use super::Run;
use super::halt::Halt;
use super::model::Phase;
use crate::ledger::Event;
use crate::ollama::{ChatMessage, ExtractProblem, Shape};
use crate::plan::{self, Reason};
use planner::{PlanRules, TaskGraph, TaskProposal, ToolId};
use policy::tool::ToolName;
use policy::{Blame, Code, Fault, Refusal};
use record::EventName;
use serde_json::{Value, json};

impl Run {
    /// Makes the graph of this run.
    ///
    /// # Errors
    /// `plan.invalid`, `plan.cycle`, `plan.too_many_tasks` after one correction; what [`Run::call`] says.
    pub(super) async fn plan(&mut self) -> Result<(), Halt> {
        let rules = self.rules()?;
        let messages = self
            .engine
            .composer
            .planning(&self.request, "", &self.images);
        let graph = self
            .proposed(Phase::Planning, messages, |proposals| {
                TaskGraph::build(proposals, rules.clone())
            })
            .await?;
        self.accept(graph).await
    }

    fn rules(&self) -> Result<PlanRules, Halt> {
        let mut side_effects = std::collections::BTreeSet::new();
        for tool in ToolName::ALL {
            if tool.can_have_side_effect() {
                let id = ToolId::new(tool.as_str()).map_err(|problem| {
                    Fault::new(Blame::Us, Code::Internal, tool.as_str(), problem)
                })?;
                side_effects.insert(id);
            }
        }
        let mut rules = PlanRules::new(side_effects);
        rules.max_tasks = self.engine.limits().max_tasks;
        Ok(rules)
    }

    /// Takes a graph as the plan from now on.
    pub(super) async fn accept(&mut self, graph: TaskGraph) -> Result<(), Halt> {
        let detail = json!({
            "tasks": graph.tasks().len(), "critical_path": graph.critical_path().tasks(),
            "expected_tokens": graph.critical_path().expected_tokens(),
        });
        self.ledger
            .audit(Event::new(EventName::PlanAccepted, "plan").detail(detail))
            .await?;
        self.board.planned(&graph);
        self.graph = Some(graph);
        Ok(())
    }

    /// Asks for a plan and checks it with `check`; a plan that is refused may be corrected once, with every reason.
    pub(super) async fn proposed<T>(
        &mut self,
        phase: Phase,
        mut messages: Vec<ChatMessage>,
        check: impl Fn(Vec<TaskProposal>) -> Result<T, Vec<planner::PlanError>>,
    ) -> Result<T, Halt> {
        let mut corrected = false;
        loop {
            let schema = plan::schema(&self.engine.whitelist);
            let think = self.planning_think();
            let answer = self
                .call(phase, None, &messages, Shape::Structured(schema), think)
                .await?;
            let reasons = match self.read_plan(answer.structured().map(|found| found.value), phase)
            {
                Ok(proposals) => match check(proposals) {
                    Ok(accepted) => return Ok(accepted),
                    Err(problems) => problems.into_iter().map(Reason::Graph).collect(),
                },
                Err(reasons) => reasons,
            };
            let code = plan::code_of(&reasons);
            let texts: Vec<String> = reasons.iter().map(ToString::to_string).collect();
            let detail = json!({"reasons": texts, "correction": corrected});
            self.ledger
                .audit(
                    Event::new(EventName::PlanRejected, "plan")
                        .denied(code)
                        .detail(detail),
                )
                .await?;
            if corrected {
                let detail = crate::compose::clip(&texts.join("; "), 1000);
                return Err(Refusal::new(code, "DESIGN §8.4", "plan")
                    .with("detail", detail)
                    .into());
            }
            corrected = true;
            messages.push(answer.to_message());
            messages.push(ChatMessage::user(plan::correction(&reasons)));
        }
    }

    fn read_plan(
        &self,
        found: Result<Value, ExtractProblem>,
        phase: Phase,
    ) -> Result<Vec<TaskProposal>, Vec<Reason>> {
        let value = found.map_err(|problem| {
            let words = match problem {
                ExtractProblem::NoJson => "there is no JSON object in the answer",
                ExtractProblem::CutOff => "the JSON object is cut off; write a shorter plan",
            };
            vec![Reason::Form(words.to_owned())]
        })?;
        let proposals = plan::read(&value, &self.engine.whitelist)?;
        if proposals.is_empty() && phase == Phase::Planning {
            return Err(vec![Reason::Form("the plan has no task".into())]);
        }
        Ok(proposals)
    }
}
