//! `TaskGraph` against brute force, and what every change must keep.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use planner::{PlanError, TaskGraph, TaskId, TaskProposal, TaskState, TokenBudgetClass, Tokens};
use proptest::prelude::*;
use support::*;

/// A Task by number: `(O, M - O, P - M, dependencies as bits over the others)`.
type Drawn = (u64, u64, u64, u16);

fn drawn_tasks() -> impl Strategy<Value = Vec<Drawn>> {
    prop::collection::vec((1_u64..5, 0_u64..4, 0_u64..4, any::<u16>()), 1..8)
}

fn name(number: usize) -> String {
    // Names sort against creation order, so that a tie-break by name would be seen.
    format!("t{}", 99 - number)
}

/// Proposals whose dependencies always point from a later to an earlier place of `(place * 5) % 11`.
fn acyclic(drawn: &[Drawn]) -> Vec<TaskProposal> {
    let rank = |place: usize| (place * 5) % 11;
    let proposal = |(place, &(o, more, most, bits)): (usize, &Drawn)| {
        let on: Vec<String> = (0..drawn.len())
            .filter(|&other| rank(other) < rank(place) && bits >> other & 1 == 1)
            .map(name)
            .collect();
        let on: Vec<&str> = on.iter().map(String::as_str).collect();
        let mut proposal = task(&name(place), 1, &on);
        proposal.estimate = estimate(o, o + more, o + more + most);
        proposal
    };
    drawn.iter().enumerate().map(proposal).collect()
}

fn sixths(graph: &TaskGraph, path: &[TaskId]) -> u64 {
    let cost = |id| graph.task(id).unwrap().estimate.expected_sixths().sixths();
    path.iter().map(cost).sum()
}

/// Every dependency path that ends in `end`, by enumeration.
fn paths_to(graph: &TaskGraph, end: &TaskId) -> Vec<Vec<TaskId>> {
    let mut paths = vec![vec![end.clone()]];
    for before in &graph.task(end).unwrap().dependencies {
        for mut path in paths_to(graph, before) {
            path.push(end.clone());
            paths.push(path);
        }
    }
    paths
}

/// A change to try; places beyond the end name no Task.
#[derive(Clone, Debug)]
enum Change {
    Add(usize, Drawn),
    Depend(usize, usize),
    Estimate(usize, u64, u64, u64),
    Usage(usize, u64, u64),
    Step(usize, TaskState),
    Replace(Vec<Drawn>, usize),
}

fn changes() -> impl Strategy<Value = Change> {
    let place = 0_usize..9;
    let drawn = (0_u64..5, 0_u64..4, 0_u64..9000, any::<u16>());
    prop_oneof![
        (place.clone(), drawn).prop_map(|(at, task)| Change::Add(at, task)),
        (place.clone(), place.clone()).prop_map(|(task, on)| Change::Depend(task, on)),
        (place.clone(), 0_u64..5, 0_u64..5, 0_u64..1100)
            .prop_map(|(at, o, m, p)| Change::Estimate(at, o, m, p)),
        (
            place.clone(),
            prop_oneof![0_u64..99, Just(u64::MAX)],
            0_u64..99
        )
            .prop_map(|(at, input, output)| Change::Usage(at, input, output)),
        (place.clone(), prop::sample::select(&TaskState::ALL[..]))
            .prop_map(|(at, state)| Change::Step(at, state)),
        (drawn_tasks(), place).prop_map(|(tasks, skip)| Change::Replace(tasks, skip)),
    ]
}

fn apply(graph: &mut TaskGraph, change: Change) -> Result<(), Vec<PlanError>> {
    let at = |place: usize| id(&name(place));
    match change {
        Change::Add(place, task) => {
            let mut all = vec![task; place + 1];
            all[place] = task;
            graph.add(acyclic(&all).remove(place))
        }
        Change::Depend(task, on) => graph.add_dependency(&at(task), &at(on)),
        Change::Estimate(place, o, m, p) => {
            graph.set_estimate(&at(place), TokenBudgetClass::K1, estimate(o, m, p))
        }
        Change::Usage(place, input, output) => graph
            .record_usage(&at(place), Tokens(input), Tokens(output))
            .map_err(|error| vec![error]),
        Change::Step(place, state) => graph
            .transition(&at(place), state)
            .map_err(|error| vec![error]),
        Change::Replace(tasks, skip) => {
            graph.replace_incomplete(acyclic(&tasks).into_iter().skip(skip).collect())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// PLN-05, SPEC §8.3: the critical path is a dependency path and none is dearer; so for each Task's cumulative cost.
    #[test]
    fn pln_05_critical_path_is_the_dearest_of_all_paths(drawn in drawn_tasks()) {
        let graph = build(acyclic(&drawn));
        let path = graph.critical_path();
        let dearest_to = |id: &TaskId| {
            paths_to(&graph, id).iter().map(|path| sixths(&graph, path)).max().unwrap()
        };
        for cost in path.cumulative_token_cost() {
            prop_assert_eq!(cost.cumulative_token_cost.sixths(), dearest_to(&cost.id));
        }
        let dearest = graph.tasks().iter().map(|task| dearest_to(&task.id)).max().unwrap();
        prop_assert_eq!(path.expected_sixths().sixths(), dearest);
        prop_assert_eq!(sixths(&graph, path.tasks()), dearest);
        for pair in path.tasks().windows(2) {
            prop_assert!(graph.task(&pair[1]).unwrap().dependencies.contains(&pair[0]));
        }
        prop_assert_eq!(&graph.remaining_critical_path(), path);
    }

    /// PLN-04, PLN-05: waiting for more never makes the dearest path cheaper.
    #[test]
    fn pln_05_adding_a_dependency_never_shortens_the_critical_path(
        drawn in drawn_tasks(), task in 0_usize..8, on in 0_usize..8,
    ) {
        let mut graph = build(acyclic(&drawn));
        let before = graph.critical_path().expected_sixths();
        if graph.add_dependency(&id(&name(task)), &id(&name(on))).is_ok() {
            prop_assert!(graph.critical_path().expected_sixths() >= before);
        }
    }

    /// PLN-01…05, AT-15: whatever is tried, a refused change leaves no trace, a completed Task stays as it is, what was spent
    /// stays spent, and the graph is the one that building it anew would give.
    #[test]
    fn at_15_changes_keep_the_graph_sound(
        drawn in drawn_tasks(), tried in prop::collection::vec(changes(), 1..40),
    ) {
        let mut graph = build(acyclic(&drawn));
        for change in tried {
            let before = graph.clone();
            if apply(&mut graph, change).is_err() {
                prop_assert_eq!(&graph, &before);
                continue;
            }
            for task in before.tasks().iter().filter(|task| task.state == TaskState::Completed) {
                prop_assert_eq!(graph.task(&task.id), Some(task));
            }
            prop_assert!(graph.total_usage().total() >= before.total_usage().total());
            let again = build(graph.tasks().iter().map(|task| task.proposal()).collect());
            prop_assert_eq!(graph.critical_path(), again.critical_path());
            prop_assert!(graph.in_order().map(|task| &task.id).eq(again.in_order().map(|task| &task.id)));
            let done = |id: &TaskId| graph.task(id).is_some_and(|task| task.state == TaskState::Completed);
            for task in graph.tasks() {
                if matches!(task.state, TaskState::Running | TaskState::Completed) {
                    prop_assert!(task.dependencies.iter().all(done));
                }
            }
        }
    }

    /// AT-16, NFR-02: `6E = O + 4M + P` exactly, and `E` is the nearest floating point number.
    #[test]
    fn at_16_pert_formula_is_exact(o in 1_u64..=131_072, more in 0_u64..=131_071, most in 0_u64..=131_071) {
        let (m, p) = (o + more, o + more + most);
        let class = TokenBudgetClass::K128;
        match planner::TokenEstimate::new(class, estimate(o, m, p)) {
            Err(_) => prop_assert!(p > 131_072),
            Ok(checked) => {
                prop_assert!(p <= 131_072);
                prop_assert_eq!(checked.expected_sixths().sixths(), o + 4 * m + p);
                prop_assert_eq!(checked.expected(), (o as f64 + 4.0 * m as f64 + p as f64) / 6.0);
                prop_assert_eq!((checked.expected() * 6.0).round() as u64, o + 4 * m + p);
                prop_assert_eq!(checked.variance(), ((p - o) as f64 / 6.0).powi(2));
            }
        }
    }

    /// NFR-02: the same proposals give the same graph, and the same problems in the same order.
    #[test]
    fn nfr_02_building_twice_gives_the_same(drawn in drawn_tasks(), duplicate in any::<bool>()) {
        let mut proposals = acyclic(&drawn);
        if duplicate {
            let mut again = proposals[0].clone();
            again.dependencies.insert(id("ghost"));
            proposals.push(again);
        }
        let first = TaskGraph::build(proposals.clone(), rules());
        prop_assert_eq!(first.is_err(), duplicate);
        prop_assert_eq!(first, TaskGraph::build(proposals, rules()));
    }
}
