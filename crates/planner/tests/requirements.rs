//! The planner's requirements one by one, on small graphs that can be checked by hand.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::slice::from_ref;

use planner::{
    DEFAULT_MAX_TASKS, EstimateError, PlanError, TaskGraph, TaskState, TokenBudgetClass,
    TokenUsage, Tokens,
};
use support::*;

fn refused(proposals: Vec<planner::TaskProposal>) -> Vec<PlanError> {
    TaskGraph::build(proposals, rules()).unwrap_err()
}

/// Tries a change and shows that the graph is exactly as before when it is refused.
fn unchanged<E: std::fmt::Debug>(
    graph: &mut TaskGraph,
    change: impl FnOnce(&mut TaskGraph) -> Result<(), E>,
) -> E {
    let before = graph.clone();
    let error = change(graph).unwrap_err();
    assert_eq!(*graph, before, "after {error:?}");
    error
}

/// PLN-01, AT-14: a cycle is refused at the start, on adding a dependency and on a replan, and is named.
#[test]
fn at_14_cycles_are_refused() {
    let cycle = |names| PlanError::Cycle { ids: ids(names) };
    let proposed = vec![
        task("a", 1, &["b"]),
        task("b", 1, &["c"]),
        task("c", 1, &["a"]),
    ];
    assert_eq!(refused(proposed.clone()), [cycle(&["a", "b", "c"])]);

    let mut graph = build(vec![
        task("a", 1, &[]),
        task("b", 1, &["a"]),
        task("c", 1, &["b"]),
    ]);
    let errors = unchanged(&mut graph, |g| g.add_dependency(&id("a"), &id("c")));
    assert_eq!(errors, [cycle(&["a", "c", "b"])]);
    let errors = unchanged(&mut graph, |g| g.add_dependency(&id("a"), &id("a")));
    assert_eq!(errors, [PlanError::SelfDependency { id: id("a") }]);
    let errors = unchanged(&mut graph, |g| g.replace_incomplete(proposed));
    assert_eq!(errors, [cycle(&["a", "b", "c"])]);
}

/// PLN-02: 32 Tasks by default, completed ones included; another limit is kept on every change.
#[test]
fn pln_02_max_tasks() {
    let many = |n: usize| {
        (0..n)
            .map(|i| task(&format!("t{i}"), 1, &[]))
            .collect::<Vec<_>>()
    };
    let too_many = PlanError::TooManyTasks { limit: 32, got: 33 };
    assert_eq!(refused(many(DEFAULT_MAX_TASKS + 1)), from_ref(&too_many));
    let mut graph = build(many(DEFAULT_MAX_TASKS));
    let errors = unchanged(&mut graph, |g| g.add(task("more", 1, &[])));
    assert_eq!(errors, from_ref(&too_many));
    complete(&mut graph, "t0");
    let errors = unchanged(&mut graph, |g| {
        g.replace_incomplete((0..32).map(|i| task(&format!("n{i}"), 1, &[])).collect())
    });
    assert_eq!(errors, [too_many]);

    let mut raised = rules();
    raised.max_tasks = 40;
    assert!(TaskGraph::build(many(40), raised).is_ok());
}

/// PLN-03, AT-15: nothing about a completed Task changes, whichever way one tries.
#[test]
fn at_15_completed_tasks_are_immutable() {
    let mut graph = build(vec![
        task("a", 1, &[]),
        task("b", 1, &["a"]),
        task("c", 1, &[]),
    ]);
    graph.record_usage(&id("a"), Tokens(5), Tokens(7)).unwrap();
    complete(&mut graph, "a");
    let immutable = PlanError::CompletedImmutable { id: id("a") };
    let a = id("a");

    let e = unchanged(&mut graph, |g| g.add_dependency(&a, &id("c")));
    assert_eq!(e, from_ref(&immutable));
    let e = unchanged(&mut graph, |g| {
        g.set_estimate(&a, TokenBudgetClass::K1, estimate(1, 1, 1))
    });
    assert_eq!(e, from_ref(&immutable));
    let e = unchanged(&mut graph, |g| g.add(task("a", 9, &[])));
    assert_eq!(e, from_ref(&immutable));
    let e = unchanged(&mut graph, |g| {
        g.replace_incomplete(vec![task("a", 1, &[])])
    });
    assert_eq!(e, from_ref(&immutable));
    let e = unchanged(&mut graph, |g| g.record_usage(&a, Tokens(1), Tokens(1)));
    assert_eq!(e, immutable);
    for state in TaskState::ALL {
        let e = unchanged(&mut graph, |g| g.transition(&a, state));
        assert_eq!(e, immutable);
    }

    let completed = graph.task(&a).unwrap().clone();
    graph
        .replace_incomplete(vec![task("d", 1, &["a"])])
        .unwrap();
    assert_eq!(graph.task(&a), Some(&completed));
    assert_eq!(graph.task(&id("b")), None);
    assert_eq!(ready(&graph), ["d"]);
}

/// PLN-04: Tasks and dependencies can be added to what is not completed; a known dependency is no change.
#[test]
fn pln_04_additions() {
    let mut graph = build(vec![task("a", 1, &[]), task("b", 1, &[])]);
    graph.add(task("c", 1, &["a"])).unwrap();
    graph.add_dependency(&id("a"), &id("b")).unwrap();
    let once = graph.clone();
    graph.add_dependency(&id("a"), &id("b")).unwrap();
    assert_eq!(graph, once);
    assert_eq!(
        names(graph.in_order().map(|task| &task.id)),
        ["b", "a", "c"]
    );

    let errors = unchanged(&mut graph, |g| g.add_dependency(&id("x"), &id("a")));
    assert_eq!(errors, [PlanError::UnknownTask { id: id("x") }]);
    let errors = unchanged(&mut graph, |g| g.add_dependency(&id("a"), &id("x")));
    let unknown = PlanError::UnknownDependency {
        task: id("a"),
        on: id("x"),
    };
    assert_eq!(errors, [unknown]);
    let errors = unchanged(&mut graph, |g| g.add(task("c", 1, &[])));
    assert_eq!(errors, [PlanError::DuplicateId { id: id("c") }]);

    graph.transition(&id("b"), TaskState::Failed).unwrap();
    let errors = unchanged(&mut graph, |g| g.add_dependency(&id("b"), &id("c")));
    assert_eq!(
        errors,
        [PlanError::TaskClosed {
            id: id("b"),
            state: TaskState::Failed
        }]
    );
}

/// PLN-05: the critical path follows every change of Tasks, dependencies and estimates.
#[test]
fn pln_05_critical_path_is_recomputed() {
    let mut graph = build(vec![
        task("a", 10, &[]),
        task("b", 20, &["a"]),
        task("c", 25, &[]),
    ]);
    let path = |graph: &TaskGraph| {
        let path = graph.critical_path();
        let names: Vec<String> = path.tasks().iter().map(ToString::to_string).collect();
        (names.join(" "), path.expected_tokens())
    };
    assert_eq!(path(&graph), ("a b".into(), 30.0));
    graph.add(task("d", 6, &["c"])).unwrap();
    assert_eq!(path(&graph), ("c d".into(), 31.0));
    graph.add_dependency(&id("c"), &id("b")).unwrap();
    assert_eq!(path(&graph), ("a b c d".into(), 61.0));
    graph
        .set_estimate(&id("a"), TokenBudgetClass::K1, estimate(1, 2, 9))
        .unwrap();
    assert_eq!(path(&graph), ("a b c d".into(), 54.0));
    graph.replace_incomplete(vec![task("z", 3, &[])]).unwrap();
    assert_eq!(path(&graph), ("z".into(), 3.0));
}

/// NFR-02: of equally dear paths the Tasks created first win, whatever their names are.
#[test]
fn nfr_02_ties_go_to_the_task_created_first() {
    let tied = |first: &str, second: &str| {
        let graph = build(vec![
            task(first, 5, &[]),
            task(second, 5, &[]),
            task("end", 1, &[first, second]),
            task("other-end", 1, &[second]),
        ]);
        names(graph.critical_path().tasks()).join(" ")
    };
    assert_eq!(tied("a", "z"), "a end");
    assert_eq!(tied("z", "a"), "z end");
}

/// PLN-05, DESIGN §8.3: cumulative costs per Task; what is left leaves out what is completed.
#[test]
fn pln_05_cumulative_and_remaining_costs() {
    let mut graph = build(vec![
        task("a", 10, &[]),
        task("b", 20, &["a"]),
        task("c", 25, &[]),
    ]);
    let costs = |path: &planner::CriticalPath| -> Vec<(String, f64)> {
        let each = path.cumulative_token_cost().iter();
        each.map(|c| (c.id.to_string(), c.cumulative_token_cost.as_tokens()))
            .collect()
    };
    let all = [("a".into(), 10.0), ("b".into(), 30.0), ("c".into(), 25.0)];
    assert_eq!(costs(graph.critical_path()), all);
    complete(&mut graph, "a");
    assert_eq!(costs(graph.critical_path()), all);
    let remaining = graph.remaining_critical_path();
    assert_eq!(names(remaining.tasks()), ["c"]);
    assert_eq!(costs(&remaining), [("b".into(), 20.0), ("c".into(), 25.0)]);
    complete(&mut graph, "b");
    complete(&mut graph, "c");
    assert!(graph.remaining_critical_path().tasks().is_empty());
    assert_eq!(graph.remaining_critical_path().expected_tokens(), 0.0);
    assert!(graph.is_completed());
}

/// PLN-06: a budget class is a size. Changing it changes nothing else, and Tasks of one class stay apart.
#[test]
fn pln_06_meaning_is_separate_from_the_budget_class() {
    let mut graph = build(vec![task("a", 10, &[]), task("b", 10, &["a"])]);
    let before = graph.task(&id("b")).unwrap().clone();
    graph
        .set_estimate(
            &id("b"),
            TokenBudgetClass::K64,
            estimate(9_000, 9_000, 9_000),
        )
        .unwrap();
    let after = graph.task(&id("b")).unwrap();
    assert_eq!(after.budget_class, TokenBudgetClass::K64);
    assert_eq!(
        (&after.id, &after.description),
        (&before.id, &before.description)
    );
    assert_eq!(
        (&after.dependencies, after.state),
        (&before.dependencies, before.state)
    );
    assert_eq!(graph.total_budget(), Tokens(8_192 + 65_536));
    assert_eq!(graph.total_expected().as_tokens(), 9_010.0);

    let errors = unchanged(&mut graph, |g| {
        g.set_estimate(&id("b"), TokenBudgetClass::K1, estimate(3, 2, 1025))
    });
    assert_eq!(errors.len(), 2);
}

/// AT-16, DESIGN §8.4: a model gets one correction, so one answer says everything that is wrong.
#[test]
fn at_16_all_problems_are_reported_at_once() {
    let mut nameless = effect("b", &["ghost", "b"], &["file_read"]);
    nameless.description = " \n".into();
    let mut costly = task("c", 1, &["d"]);
    costly.estimate = estimate(0, 1, 9_000);
    let proposals = vec![
        task("a", 1, &[]),
        nameless,
        costly,
        task("d", 1, &["c"]),
        task("a", 1, &[]),
    ];
    let estimate = |error| PlanError::Estimate { id: id("c"), error };
    let too_dear = EstimateError::PessimisticAboveBudget {
        pessimistic: Tokens(9_000),
        class: TokenBudgetClass::K8,
        budget: Tokens(8_192),
    };
    let expected = [
        PlanError::DescriptionEmpty { id: id("b") },
        PlanError::EffectWithoutTool { id: id("b") },
        estimate(EstimateError::OptimisticZero),
        estimate(too_dear),
        PlanError::DuplicateId { id: id("a") },
        PlanError::SelfDependency { id: id("b") },
        PlanError::UnknownDependency {
            task: id("b"),
            on: id("ghost"),
        },
        PlanError::Cycle {
            ids: ids(&["c", "d"]),
        },
    ];
    assert_eq!(refused(proposals), expected);
    assert_eq!(refused(vec![]), [PlanError::Empty]);
}

/// DESIGN §8.1: editing, verifying and repairing are one Task; splitting them is refused, directly and at a distance.
#[test]
fn design_8_1_split_verification_is_refused() {
    let both = ["file_edit", "process_run"];
    let split = |task, edit_task| PlanError::SplitVerification {
        task: id(task),
        edit_task: id(edit_task),
    };
    let edit = effect("edit", &[], &["file_edit"]);
    let direct = vec![edit.clone(), effect("verify", &["edit"], &both)];
    assert_eq!(refused(direct), [split("verify", "edit")]);
    let distant = vec![
        edit.clone(),
        task("think", 1, &["edit"]),
        effect("verify", &["think"], &both),
    ];
    assert_eq!(refused(distant), [split("verify", "edit")]);
    let chained = vec![effect("one", &[], &both), effect("two", &["one"], &both)];
    assert_eq!(refused(chained), [split("two", "one")]);

    // Controls: no dependency between them; a verification that does not edit; an edit after the verification.
    build(vec![edit.clone(), effect("verify", &[], &both)]);
    build(vec![
        edit.clone(),
        effect("run", &["edit"], &["process_run"]),
    ]);
    let mut graph = build(vec![
        effect("verify", &[], &both),
        effect("edit", &["verify"], &["file_edit"]),
    ]);

    graph.add(effect("second", &[], &both)).unwrap();
    let errors = unchanged(&mut graph, |g| g.add_dependency(&id("second"), &id("edit")));
    assert_eq!(errors, [split("second", "verify")]);
}

/// DESIGN §8.1: an external effect needs a tool that has one; which tools do is given, not known here.
#[test]
fn design_8_1_an_effect_needs_a_tool_that_has_one() {
    let proposal = effect("a", &[], &["file_read", "dir"]);
    let without = PlanError::EffectWithoutTool { id: id("a") };
    assert_eq!(refused(vec![proposal.clone()]), [without]);
    let mut wider = rules();
    wider.side_effect_tools.extend(tools(&["dir"]));
    assert!(TaskGraph::build(vec![proposal], wider).is_ok());
}

/// DESIGN §8.4: ready Tasks on the critical path come first, then creation order; a failed dependency is not done.
#[test]
fn design_8_4_ready_order() {
    let mut graph = build(vec![
        task("cheap", 1, &[]),
        task("dear", 50, &[]),
        task("end", 50, &["dear"]),
        task("after-cheap", 1, &["cheap"]),
    ]);
    assert_eq!(ready(&graph), ["dear", "cheap"]);
    let early = unchanged(&mut graph, |g| g.transition(&id("end"), TaskState::Running));
    assert_eq!(
        early,
        PlanError::DependencyNotCompleted {
            task: id("end"),
            on: id("dear")
        }
    );
    complete(&mut graph, "dear");
    assert_eq!(ready(&graph), ["end", "cheap"]);
    graph.transition(&id("cheap"), TaskState::Failed).unwrap();
    assert_eq!(ready(&graph), ["end"]);
    complete(&mut graph, "end");
    assert!(ready(&graph).is_empty());
    assert!(!graph.is_completed());
}

/// DESIGN §8.4: a Task that runs keeps its dependencies completed, and is not replaced under way.
#[test]
fn design_8_4_running_tasks_go_back_to_planning_first() {
    let mut graph = build(vec![task("a", 1, &[]), task("b", 1, &[])]);
    graph.transition(&id("a"), TaskState::Running).unwrap();
    let errors = unchanged(&mut graph, |g| g.add_dependency(&id("a"), &id("b")));
    assert_eq!(
        errors,
        [PlanError::DependencyNotCompleted {
            task: id("a"),
            on: id("b")
        }]
    );
    let errors = unchanged(&mut graph, |g| {
        g.replace_incomplete(vec![task("c", 1, &[])])
    });
    assert_eq!(errors, [PlanError::ReplacesRunning { id: id("a") }]);
    let illegal = unchanged(&mut graph, |g| g.transition(&id("a"), TaskState::Queued));
    let (from, to) = (TaskState::Running, TaskState::Queued);
    assert_eq!(
        illegal,
        PlanError::IllegalTransition {
            id: id("a"),
            from,
            to
        }
    );

    graph.transition(&id("a"), TaskState::Planning).unwrap();
    graph.add_dependency(&id("a"), &id("b")).unwrap();
    let early = unchanged(&mut graph, |g| g.transition(&id("a"), TaskState::Running));
    assert_eq!(
        early,
        PlanError::DependencyNotCompleted {
            task: id("a"),
            on: id("b")
        }
    );
    complete(&mut graph, "b");
    graph.transition(&id("a"), TaskState::Running).unwrap();
}

/// SPEC §8.4: usage adds up per Task and for the run; a replan keeps what was spent; an overflow is refused.
#[test]
fn spec_8_4_usage() {
    let used = |input, output| TokenUsage {
        input: Tokens(input),
        output: Tokens(output),
    };
    let mut graph = build(vec![task("a", 10, &[]), task("b", 10, &[])]);
    graph.record_usage(&id("a"), Tokens(3), Tokens(4)).unwrap();
    graph
        .record_usage(&id("a"), Tokens(30), Tokens(40))
        .unwrap();
    graph.record_usage(&id("b"), Tokens(1), Tokens(1)).unwrap();
    let a = graph.task(&id("a")).unwrap();
    assert_eq!((a.usage(), a.usage().total()), (used(33, 44), Tokens(77)));
    assert!(a.exceeds_pessimistic());
    assert!(!graph.task(&id("b")).unwrap().exceeds_pessimistic());

    graph
        .replace_incomplete(vec![task("b", 5, &[]), task("c", 5, &[])])
        .unwrap();
    assert_eq!(graph.task(&id("b")).unwrap().usage(), used(1, 1));
    assert_eq!(graph.task(&id("c")).unwrap().usage(), used(0, 0));
    assert_eq!(graph.total_usage(), used(34, 45));

    let error = unchanged(&mut graph, |g| {
        g.record_usage(&id("c"), Tokens(u64::MAX), Tokens(0))
    });
    assert_eq!(error, PlanError::UsageOverflow { id: id("c") });
}

/// DESIGN §8.4: a replan that proposes what is planned already is recognized, in any order.
#[test]
fn design_8_4_an_unchanged_replan_is_recognized() {
    let (a, b, c) = (
        task("a", 1, &[]),
        task("b", 2, &["a"]),
        task("c", 3, &["a"]),
    );
    let mut graph = build(vec![a.clone(), b.clone(), c.clone()]);
    complete(&mut graph, "a");
    assert!(graph.is_unchanged_by(&[c.clone(), b.clone()]));
    assert!(!graph.is_unchanged_by(from_ref(&b)));
    assert!(!graph.is_unchanged_by(&[b.clone(), b.clone()]));
    assert!(!graph.is_unchanged_by(&[b, task("c", 4, &["a"])]));
    assert!(!graph.is_unchanged_by(&[a, c.clone(), c]));
}
