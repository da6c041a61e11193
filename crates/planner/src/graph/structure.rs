//! From ids to nodes: who is in the graph, who depends on whom, and the rules about that.

use std::collections::BTreeSet;

use super::places::Places;
use crate::{
    Dag, DagError, NodeIndex, PlanError, PlanRules, PlannedTask, TaskId, TaskProposal, ToolId,
};

/// What the structural rules look at, of a Task that is there or one that is proposed.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    id: &'a TaskId,
    dependencies: &'a BTreeSet<TaskId>,
    edits: bool,
    verifies_its_own_edits: bool,
}

impl<'a> Member<'a> {
    pub(super) fn planned(task: &'a PlannedTask, rules: &PlanRules) -> Self {
        Self::new(&task.id, &task.dependencies, &task.required_tools, rules)
    }

    pub(super) fn proposed(proposal: &'a TaskProposal, rules: &PlanRules) -> Self {
        Self::new(
            &proposal.id,
            &proposal.dependencies,
            &proposal.required_tools,
            rules,
        )
    }

    fn new(
        id: &'a TaskId,
        dependencies: &'a BTreeSet<TaskId>,
        required_tools: &BTreeSet<ToolId>,
        rules: &PlanRules,
    ) -> Self {
        let edits = required_tools.contains(&rules.edit_tool);
        Self {
            id,
            dependencies,
            edits,
            verifies_its_own_edits: edits && required_tools.contains(&rules.run_tool),
        }
    }
}

/// The shape of a valid graph: ids are unique, dependencies exist, there is no cycle and no split verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Structure {
    places: Places,
    pub(super) dag: Dag,
}

impl Structure {
    /// Checks the members in creation order. `O(V + E)`.
    pub(super) fn of(members: &[Member<'_>], rules: &PlanRules) -> Result<Self, Vec<PlanError>> {
        let mut problems = Vec::new();
        let places = places(members, &mut problems);
        let edges = edges(members, &places, &mut problems);
        match Dag::build(members.len(), &edges) {
            Ok(dag) => {
                problems.extend(split_verifications(members, &dag));
                if problems.is_empty() {
                    return Ok(Self { places, dag });
                }
            }
            Err(refused) => problems.extend(refused.into_iter().map(|e| in_ids(e, members, rules))),
        }
        Err(problems)
    }

    /// Where a Task is in creation order.
    pub(super) fn place(&self, id: &TaskId) -> Option<usize> {
        self.places.of(id).map(NodeIndex::place)
    }
}

/// A second Task with an id is a problem; its dependencies are still looked at.
fn places(members: &[Member<'_>], problems: &mut Vec<PlanError>) -> Places {
    let mut places = Places::for_tasks(members.len());
    for member in members {
        if !places.take_next(member.id) {
            problems.push(PlanError::DuplicateId {
                id: member.id.clone(),
            });
        }
    }
    places
}

fn edges(
    members: &[Member<'_>],
    places: &Places,
    problems: &mut Vec<PlanError>,
) -> Vec<(NodeIndex, NodeIndex)> {
    let mut edges = Vec::with_capacity(members.iter().map(|m| m.dependencies.len()).sum());
    for (node, member) in (0_u32..).map(NodeIndex).zip(members) {
        for on in member.dependencies {
            if on == member.id {
                problems.push(PlanError::SelfDependency { id: on.clone() });
                continue;
            }
            match places.of(on) {
                Some(before) => edges.push((before, node)),
                None => problems.push(PlanError::UnknownDependency {
                    task: member.id.clone(),
                    on: on.clone(),
                }),
            }
        }
    }
    edges
}

/// DESIGN §8.1: a Task that edits and verifies must not come after another Task that edits.
///
/// This also holds when the other Task is completed. The dependency is then satisfied anyway, so a replan can leave it out.
fn split_verifications(members: &[Member<'_>], dag: &Dag) -> Vec<PlanError> {
    if !members.iter().any(|member| member.verifies_its_own_edits) {
        return Vec::new();
    }
    let mut earliest_edit: Vec<Option<NodeIndex>> = vec![None; members.len()];
    for &node in dag.order() {
        let before = dag.predecessors(node).iter();
        earliest_edit[node.place()] = before
            .flat_map(|&before| {
                let edits = members[before.place()].edits;
                [edits.then_some(before), earliest_edit[before.place()]]
            })
            .flatten()
            .min();
    }
    let split = |(member, edit): (&Member<'_>, Option<NodeIndex>)| {
        let edit = edit.filter(|_| member.verifies_its_own_edits)?;
        Some(PlanError::SplitVerification {
            task: member.id.clone(),
            edit_task: members[edit.place()].id.clone(),
        })
    };
    members
        .iter()
        .zip(earliest_edit)
        .filter_map(split)
        .collect()
}

fn in_ids(refused: DagError, members: &[Member<'_>], rules: &PlanRules) -> PlanError {
    let id = |node: NodeIndex| members[node.place()].id.clone();
    match refused {
        DagError::Cycle { nodes } => {
            // Edges lead from a dependency to its dependents; people and models say it the other way round.
            let (first, rest) = (nodes.iter().take(1), nodes.iter().skip(1).rev());
            PlanError::Cycle {
                ids: first.chain(rest).map(|&node| id(node)).collect(),
            }
        }
        DagError::SelfEdge { node, .. } => PlanError::SelfDependency { id: id(node) },
        // `edges` makes only nodes that exist, so what is left is a graph that 32 bits cannot count.
        DagError::TooLarge { .. } | DagError::OutOfRange { .. } => PlanError::TooManyTasks {
            limit: rules.max_tasks,
            got: members.len(),
        },
    }
}
