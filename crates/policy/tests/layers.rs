//! The permission layers: the first refusal ends it, and what no layer allows is denied.
#![cfg(unix)]

mod support;

use policy::layers::{CONTEXT_BLOCKS_AT, PermissionLayers};
use policy::tool::{Operation, ToolName};
use std::collections::BTreeSet;
use support::{asking, verdict};

const READ: &[Operation] = &[Operation::FsRead];
const RUN_PUSH: &[Operation] = &[Operation::ProcessRun, Operation::GitPush];

/// One call with an own fingerprint. `expected` is what is asked, or code and rule.
fn check(
    layers: &mut PermissionLayers,
    tool: ToolName,
    operations: &[Operation],
    call: u8,
    expected: &str,
) {
    let operations = operations.iter().copied().collect();
    let got = match layers.judge(tool, &operations, [call; 32]) {
        Ok(asked) => format!(
            "asks {:?}",
            asked.iter().map(|it| it.word()).collect::<Vec<_>>()
        ),
        Err(refusal) => format!("{}: {}", refusal.code, refusal.rule),
    };
    assert_eq!(got, expected, "{tool} {operations:?}");
}

/// NFR-01, X-BOX: a box permits what it lists, and a box that lists nothing permits nothing.
#[test]
fn nfr_01_l1_only_what_the_box_lists() {
    let denied = "policy.operation_denied: L1 os_operations";
    for operation in Operation::ALL {
        let mut none = PermissionLayers::of_box(BTreeSet::new(), BTreeSet::new());
        check(&mut none, ToolName::ProcessRun, &[operation], 1, denied);
        let mut one = PermissionLayers::of_box([operation].into(), BTreeSet::new());
        check(&mut one, ToolName::ProcessRun, &[operation], 1, "asks []");
        let mut all = asking([]);
        check(&mut all, ToolName::ProcessRun, &[operation], 1, "asks []");
    }
    let mut run_only = PermissionLayers::of_box([Operation::ProcessRun].into(), BTreeSet::new());
    check(&mut run_only, ToolName::ProcessRun, RUN_PUSH, 1, denied);
}

/// L5: what is in `approvals.ask` asks, and asking does not lift L1.
#[test]
fn l5_asks_for_what_is_listed() {
    let mut layers = asking([Operation::GitPush, Operation::FsDelete]);
    check(
        &mut layers,
        ToolName::ProcessRun,
        RUN_PUSH,
        1,
        r#"asks ["git_push"]"#,
    );
    check(&mut layers, ToolName::FileRead, READ, 2, "asks []");
    let mut unlisted =
        PermissionLayers::of_box([Operation::ProcessRun].into(), [Operation::GitPush].into());
    let denied = "policy.operation_denied: L1 os_operations";
    check(&mut unlisted, ToolName::ProcessRun, RUN_PUSH, 3, denied);
}

/// NFR-01: a tool that amounts to no operation is denied; changing the TaskGraph is none of the system's operations.
#[test]
fn nfr_01_l6_denies_what_nothing_allows() {
    for tool in ToolName::ALL {
        let expected = match tool {
            ToolName::TaskUpdate => "asks []",
            _ => "policy.default_denied: L6 default deny",
        };
        check(&mut asking([]), tool, &[], 1, expected);
    }
}

/// X-LIMIT, X-REPEAT as far as L4: the fifth identical call in a row is blocked, and each after it; another call ends the row.
#[test]
fn x_limit_x_repeat_l4_blocks_the_fifth_in_a_row() {
    assert_eq!(CONTEXT_BLOCKS_AT, 5);
    let blocked = "policy.operation_repeated: L4 context";
    let mut layers = asking([]);
    for _ in 1..5 {
        check(&mut layers, ToolName::FileRead, READ, 1, "asks []");
    }
    check(&mut layers, ToolName::FileRead, READ, 1, blocked);
    check(&mut layers, ToolName::FileRead, READ, 1, blocked);
    check(&mut layers, ToolName::FileRead, READ, 2, "asks []");
    for _ in 1..5 {
        check(&mut layers, ToolName::FileRead, READ, 1, "asks []");
    }
    check(&mut layers, ToolName::FileRead, READ, 1, blocked);
    let refusal = layers.judge(ToolName::FileRead, &READ.iter().copied().collect(), [1; 32]);
    assert_eq!(refusal.unwrap_err().detail, [("count", "6".to_owned())]);
}

/// NFR-02: the answer follows from the rules and the calls before, and from nothing else.
#[test]
fn nfr_02_the_same_calls_get_the_same_answers() {
    let answers = || {
        let mut layers = asking([Operation::FsRead]);
        (0u8..40)
            .map(|step| {
                verdict(layers.judge(
                    ToolName::FileRead,
                    &READ.iter().copied().collect(),
                    [step / 7; 32],
                ))
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(answers(), answers());
    assert_eq!(
        answers().iter().filter(|answer| *answer != "ok").count(),
        16
    );
}
