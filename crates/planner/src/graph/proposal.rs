//! From proposals to planned Tasks: everything that is wrong is found before anything is made.

use super::structure::{Member, Structure};
use crate::{
    PlanError, PlanRules, PlannedTask, TaskId, TaskProposal, TaskState, TokenEstimate, TokenUsage,
};

/// Joins `proposals` to the Tasks that stay. The new ones are queued, come after those that stay, and begin with the usage
/// that `used` knows for their id.
pub(super) fn accept(
    staying: &[PlannedTask],
    proposals: Vec<TaskProposal>,
    rules: &PlanRules,
    used: impl Fn(&TaskId) -> TokenUsage,
) -> Result<(Vec<PlannedTask>, Structure), Vec<PlanError>> {
    if proposals.is_empty() {
        return Err(vec![PlanError::Empty]);
    }
    let mut problems = Vec::new();
    let got = staying.len() + proposals.len();
    if got > rules.max_tasks {
        problems.push(PlanError::TooManyTasks {
            limit: rules.max_tasks,
            got,
        });
    }
    let mut estimates = Vec::with_capacity(proposals.len());
    let mut members = Vec::with_capacity(got);
    members.extend(staying.iter().map(|task| Member::planned(task, rules)));
    for proposal in &proposals {
        match check_alone(proposal, rules) {
            Ok(estimate) => estimates.push(estimate),
            Err(wrong) => problems.extend(wrong),
        }
        members.push(Member::proposed(proposal, rules));
    }
    match Structure::of(&members, rules) {
        Ok(structure) if problems.is_empty() => {
            let new = proposals
                .into_iter()
                .zip(estimates)
                .map(|(proposal, estimate)| {
                    let used = used(&proposal.id);
                    PlannedTask::queued(proposal, estimate, used)
                });
            Ok((staying.iter().cloned().chain(new).collect(), structure))
        }
        Ok(_) => Err(problems),
        Err(wrong) => {
            problems.extend(
                wrong
                    .into_iter()
                    .map(|problem| blame_completed(problem, staying)),
            );
            Err(problems)
        }
    }
}

/// What can be wrong with a Task whatever the others are.
fn check_alone(
    proposal: &TaskProposal,
    rules: &PlanRules,
) -> Result<TokenEstimate, Vec<PlanError>> {
    let id = || proposal.id.clone();
    let mut problems = Vec::new();
    if proposal.description.trim().is_empty() {
        problems.push(PlanError::DescriptionEmpty { id: id() });
    }
    if proposal.requires_external_effect && !rules.has_side_effect(&proposal.required_tools) {
        problems.push(PlanError::EffectWithoutTool { id: id() });
    }
    match TokenEstimate::new(proposal.budget_class, proposal.estimate) {
        Ok(estimate) if problems.is_empty() => return Ok(estimate),
        Ok(_) => {}
        Err(failed) => {
            let wrong = failed.into_iter();
            problems.extend(wrong.map(|error| PlanError::Estimate { id: id(), error }));
        }
    }
    Err(problems)
}

/// A second definition of a completed Task is an attempt to change it, and is called that (PLN-03).
fn blame_completed(problem: PlanError, staying: &[PlannedTask]) -> PlanError {
    match problem {
        PlanError::DuplicateId { id }
            if staying
                .iter()
                .any(|task| task.id == id && task.state == TaskState::Completed) =>
        {
            PlanError::CompletedImmutable { id }
        }
        other => other,
    }
}
