//! Another plan after a refusal (DESIGN §8.4): at most three times, never the same again, and never words instead of the
//! work that was refused.

use super::Run;
use super::halt::Halt;
use super::model::Phase;
use crate::compose::{data, one_line};
use crate::evidence::Denied;
use crate::service::RunState;
use planner::{PlannedTask, TaskProposal, TaskState};
use policy::{Code, Message, Refusal};
use std::fmt::Write;

impl Run {
    /// Goes back to planning, because `denied` stands in the way.
    ///
    /// # Errors
    /// `plan.replan_failed`: no replan is left, the model sees no other way, proposes the same again, or proposes only
    /// words where something was to be done.
    pub(super) async fn replan(&mut self, denied: &Denied) -> Result<(), Halt> {
        if self.replans >= self.engine.limits().max_replans {
            return Err(no_other_way(denied, "reason.no_replan_left"));
        }
        self.replans += 1;
        self.board.replans(self.replans);
        self.board.step(
            RunState::Planning,
            Message::new("status.replanning").with("count", self.replans),
        );
        let history = self.history(denied)?;
        let messages = self
            .engine
            .composer
            .planning(&self.request, &history, &self.images);
        let current = self.graph()?.clone();
        let proposal = self
            .proposed(Phase::Replanning, messages, |proposals| {
                if proposals.is_empty() {
                    return Ok(Replan::NoOtherWay);
                }
                if current.is_unchanged_by(&proposals) || same_work(&current, &proposals) {
                    return Ok(Replan::Unchanged);
                }
                if only_words(current.tasks(), &proposals) {
                    return Ok(Replan::OnlyWords);
                }
                let mut graph = current.clone();
                graph.replace_incomplete(proposals)?;
                Ok(Replan::Other(Box::new(graph)))
            })
            .await;
        match proposal {
            Ok(Replan::Other(graph)) => self.accept(*graph).await?,
            Ok(Replan::NoOtherWay) => return Err(no_other_way(denied, "reason.none_allowed")),
            Ok(Replan::Unchanged) => return Err(no_other_way(denied, "reason.plan_unchanged")),
            Ok(Replan::OnlyWords) => {
                return Err(no_other_way(denied, "reason.only_words"));
            }
            Err(Halt::Refused(refusal)) if refusal.code.message_id().starts_with("error.plan.") => {
                return Err(no_other_way(denied, refusal.code.as_str()));
            }
            Err(halt) => return Err(halt),
        }
        self.board
            .step(RunState::Running, Message::new("status.running"));
        Ok(())
    }

    fn history(&mut self, denied: &Denied) -> Result<String, Halt> {
        let denials = self.denied.clone();
        let graph = self.graph()?;
        let mut text = String::from("THE PLAN SO FAR\n");
        // Writing to a String cannot fail.
        for task in graph.tasks() {
            let state = if task.state == TaskState::Completed {
                "completed, keep it out of the new plan; others may depend on it"
            } else {
                "not completed"
            };
            let _ = writeln!(
                text,
                "- {} [{state}]: {}",
                task.id,
                one_line(&task.description)
            );
        }
        text.push_str("\nREFUSED FOR GOOD\n");
        for denial in &denials {
            let _ = writeln!(text, "- {} ({})", one_line(&denial.target), denial.code);
        }
        let _ = writeln!(
            text,
            "\nThe last refusal was about:\n{}",
            data(&denied.target)
        );
        text.push_str(
            "Make a new plan for what is not completed, in another way that the permissions allow and that still does what \
             the request asks. Do not plan what was refused. If there is no such way, answer {\"tasks\":[]}.\n",
        );
        Ok(text)
    }
}

enum Replan {
    Other(Box<planner::TaskGraph>),
    NoOtherWay,
    Unchanged,
    OnlyWords,
}

fn open(tasks: &[PlannedTask]) -> impl Iterator<Item = &PlannedTask> {
    tasks
        .iter()
        .filter(|task| task.state != TaskState::Completed)
}

/// The same descriptions and tools with other ids or estimates are the same plan.
fn same_work(graph: &planner::TaskGraph, proposals: &[TaskProposal]) -> bool {
    let planned: Vec<_> = open(graph.tasks())
        .map(|task| (task.description.trim(), &task.required_tools))
        .collect();
    let proposed: Vec<_> = proposals
        .iter()
        .map(|task| (task.description.trim(), &task.required_tools))
        .collect();
    planned == proposed
}

/// Whether work was planned, and now nothing is left of it but talk: that is a refusal, not another way (AGT-04).
fn only_words(tasks: &[PlannedTask], proposals: &[TaskProposal]) -> bool {
    let wanted_effect = open(tasks).any(|task| task.requires_external_effect);
    let wanted_tools = open(tasks).any(|task| !task.required_tools.is_empty());
    (wanted_effect && !proposals.iter().any(|task| task.requires_external_effect))
        || (wanted_tools && proposals.iter().all(|task| task.required_tools.is_empty()))
}

fn no_other_way(denied: &Denied, why: &'static str) -> Halt {
    let why = Message::new("reason.no_other_way")
        .with("code", denied.code)
        .with("target", one_line(&denied.target))
        .with_message("reason", Message::new(why));
    Refusal::new(Code::ReplanFailed, "DESIGN §8.4", &denied.target)
        .because(why)
        .into()
}
