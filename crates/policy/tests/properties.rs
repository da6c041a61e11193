//! What holds for every policy, every path and every call.
#![cfg(unix)]

mod support;

use policy::call::fingerprint;
use policy::effective::{Ceiling, GrantedRoot, NetworkPolicy, Origin, RootKind};
use policy::path::judge_place;
use policy::tool::{ToolArguments, ToolName};
use policy::{EffectivePolicy, PolicyDraft, Rights, SandboxMode};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use support::{draft, entry, rights};

/// Few names, so that paths meet.
fn path() -> impl Strategy<Value = PathBuf> {
    let names = vec!["w", "a", "b", ".git", "config", "hooks", "Config"];
    proptest::collection::vec(select(names), 0..5)
        .prop_map(|names| Path::new("/").join(names.join("/")))
}

/// Paths as nobody should bring them.
fn any_path() -> impl Strategy<Value = PathBuf> {
    let pieces = vec!["/", "..", ".", "w", "", "\0", "日本", "//", "C:", "\\"];
    let pieces = proptest::collection::vec(select(pieces), 0..6).prop_map(|pieces| pieces.concat());
    prop_oneof![pieces, any::<String>()].prop_map(PathBuf::from)
}

fn any_rights() -> impl Strategy<Value = Rights> {
    subsequence(vec!['r', 'w', 'x', 'd'], 0..=4)
        .prop_map(|letters| rights(&String::from_iter(letters)))
}

fn any_root(path: impl Strategy<Value = PathBuf>) -> impl Strategy<Value = GrantedRoot> {
    let origins = vec![
        Origin::Workspace,
        Origin::Mount,
        Origin::RuntimeRoot,
        Origin::ApprovedEntryExecutable,
    ];
    let kind = select(vec![
        RootKind::Directory,
        RootKind::Directory,
        RootKind::File,
    ]);
    (path, kind, any_rights(), subsequence(origins, 0..3)).prop_map(
        |(path, kind, rights, origins)| GrantedRoot {
            path,
            kind,
            rights,
            origins: origins.into_iter().collect(),
        },
    )
}

fn mode() -> impl Strategy<Value = SandboxMode> {
    select(vec![
        SandboxMode::ReadOnly,
        SandboxMode::WorkspaceWrite,
        SandboxMode::DangerFullAccess,
    ])
}

fn ceiling(path: impl Strategy<Value = PathBuf>) -> impl Strategy<Value = Ceiling> {
    let roots = proptest::option::of(proptest::collection::vec(path, 0..4));
    (mode(), roots, any::<bool>()).prop_map(|(mode, roots, no_network)| Ceiling {
        mode,
        roots,
        no_network,
    })
}

/// Drafts that mostly freeze: their working directory is granted whatever the rest says.
fn any_draft() -> impl Strategy<Value = PolicyDraft> {
    let roots = proptest::collection::vec(any_root(path()), 0..5);
    let lists = proptest::collection::vec(path(), 0..2);
    (mode(), roots, lists).prop_map(|(mode, mut roots, own_files)| {
        roots.push(support::root("/base", "r", Origin::RuntimeRoot));
        let mut draft = draft();
        draft.entries.clear();
        draft.network = NetworkPolicy::Private;
        draft.own_files = own_files
            .into_iter()
            .filter(|own| own != Path::new("/"))
            .collect();
        draft.workspace_root = PathBuf::from("/base");
        PolicyDraft {
            mode,
            roots,
            ..draft
        }
    })
}

/// The rights that a policy really gives: each one asked for alone.
fn given(policy: &EffectivePolicy, path: &Path) -> Rights {
    ["r", "w", "x", "d"]
        .map(rights)
        .into_iter()
        .filter(|right| judge_place(policy, path, *right).is_ok())
        .fold(Rights::NONE, |sum, right| sum | right)
}

/// A value of any shape, under names that the tools know.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        select(vec![
            "whole", "range", "tail", "list", "delete", "rename", "patch", "add", "push", "git",
            "-C"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 40, 6, |inner| {
        let key = prop_oneof![select(field_names()), any::<String>()];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..6)
                .prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

fn field_names() -> Vec<String> {
    let names = "root mode query max_results tail_lines path start length operation content patch expected_sha256 \
        new_path executable args cwd timeout_seconds stdin task_id description depends_on budget_class \
        optimistic_tokens requires_external_effect required_tools";
    names.split_whitespace().map(str::to_owned).collect()
}

/// A right call with some fields replaced or added.
fn nearly_right() -> impl Strategy<Value = (ToolName, Value)> {
    let right = vec![
        (ToolName::FileSearch, json!({"root": "a", "mode": "tail"})),
        (ToolName::FileRead, json!({"path": "a"})),
        (
            ToolName::FileEdit,
            json!({"path": "a", "operation": "delete"}),
        ),
        (
            ToolName::ProcessRun,
            json!({"executable": "git", "args": ["-C", "x", "push"]}),
        ),
        (ToolName::TaskUpdate, json!({"operation": "add"})),
        (ToolName::Dir, json!({"path": "a", "operation": "list"})),
    ];
    // Often of the right kind, so that the call is right as well.
    let value = prop_oneof![
        any_json(),
        (1u64..9).prop_map(Value::from),
        "[a-z]{1,3}".prop_map(Value::from),
    ];
    let changes = proptest::collection::vec((select(field_names()), value), 0..4);
    (select(right), changes).prop_map(|((tool, mut arguments), changes)| {
        for (name, value) in changes {
            arguments[name] = value;
        }
        (tool, arguments)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// SEC-INV-03: freezing never gives a right that the draft did not, nor a mode above draft or ceiling.
    #[test]
    fn sec_inv_03_freeze_only_narrows(draft in any_draft(), ceiling in ceiling(path()), at in path()) {
        if let Ok(policy) = draft.clone().freeze(&ceiling) {
            let granted = draft
                .roots
                .iter()
                .filter(|root| root.covers(&at))
                .fold(Rights::NONE, |sum, root| sum | root.rights);
            prop_assert!(granted.contains(policy.rights_at(&at)));
            prop_assert!(policy.mode() <= draft.mode && policy.mode() <= ceiling.mode);
            let changes = Rights::READ_WRITE_DELETE.intersect(policy.rights_at(&at));
            prop_assert!(policy.mode() != SandboxMode::ReadOnly || Rights::READ.contains(changes));
        }
    }

    /// SEC-INV-03: adding a ceiling never permits more.
    #[test]
    fn sec_inv_03_a_ceiling_never_permits_more(draft in any_draft(), ceiling in ceiling(path()), at in path()) {
        let free = draft.clone().freeze(&support::no_ceiling());
        if let (Ok(free), Ok(narrowed)) = (free, draft.freeze(&ceiling)) {
            prop_assert!(given(&free, &at).contains(given(&narrowed, &at)));
            prop_assert!(!ceiling.no_network || narrowed.network() == &NetworkPolicy::None);
            if let Some(kept) = &ceiling.roots && !kept.iter().any(|keep| at.starts_with(keep)) {
                prop_assert!(!given(&narrowed, &at).allows(policy::Right::Write));
            }
        }
    }

    /// X-PROTECT: adding a protect pattern or one of our own files never permits more.
    #[test]
    fn x_protect_more_protection_never_permits_more(
        draft in any_draft(),
        pattern in path(),
        own in path(),
        at in path(),
    ) {
        let mut protected = draft.clone();
        protected.protect.extend(pattern.strip_prefix("/").map(Path::to_owned));
        let mut owned = draft.clone();
        owned.own_files.push(own.clone());
        if let Ok(before) = draft.freeze(&support::no_ceiling()) {
            if let Ok(after) = protected.freeze(&support::no_ceiling()) {
                prop_assert!(given(&before, &at).contains(given(&after, &at)));
                let below = Path::new("/w").join(pattern.strip_prefix("/").unwrap()).join("x");
                prop_assert!(!given(&after, &below).allows(policy::Right::Write));
            }
            if let Ok(after) = owned.freeze(&support::no_ceiling()) {
                prop_assert!(given(&before, &at).contains(given(&after, &at)));
                prop_assert_eq!(given(&after, &own.join("x")), Rights::NONE);
            }
        }
    }

    /// SEC-INV-04: no path with `..` and no relative path is reachable, whatever is granted.
    #[test]
    fn freeze_and_judge_never_panic(
        roots in proptest::collection::vec(any_root(any_path()), 0..5),
        ceiling in ceiling(any_path()),
        paths in proptest::collection::vec(any_path(), 6),
    ) {
        let mut draft = draft();
        draft.roots.extend(roots);
        draft.protect.extend(paths.get(..1).unwrap().to_vec());
        draft.own_files.extend(paths.get(1..2).unwrap().to_vec());
        let mut tool = entry("tool", "/t", "/t", 7);
        tool.resolved.clone_from(&paths[2]);
        tool.runtime_root = Some(paths[3].clone());
        draft.entries.push(tool);
        let plain = support::draft().freeze(&support::no_ceiling()).unwrap();
        for policy in draft.freeze(&ceiling).into_iter().chain([plain]) {
            for at in &paths {
                let given = given(&policy, at);
                let parents = at.components().any(|part| part == std::path::Component::ParentDir);
                prop_assert!(given == Rights::NONE || (at.is_absolute() && !parents));
                prop_assert!(policy.rights_at(at).contains(given));
                prop_assert!(policy.protects_below(at).is_none_or(|pattern| pattern.components().count() > 1));
            }
        }
    }

    /// Shape: any JSON is either refused or a call that means the same when it is written out and read again.
    #[test]
    fn parse_never_panics(any in any_json(), (tool, near) in nearly_right()) {
        let everything = ToolName::ALL.into_iter().map(|tool| (tool, any.clone())).chain([(tool, near)]);
        for (tool, arguments) in everything {
            if let Ok(call) = ToolArguments::parse(tool, arguments) {
                prop_assert_eq!(call.tool(), tool);
                let again = ToolArguments::parse(tool, serde_json::to_value(&call).unwrap()).unwrap();
                prop_assert_eq!(fingerprint(&again), fingerprint(&call));
                prop_assert_eq!(again.operations(), call.operations());
                prop_assert!(tool == ToolName::TaskUpdate || !call.operations().is_empty());
                prop_assert_eq!(again, call);
            }
        }
    }
}
