//! What freezing grants, narrows and refuses, and what is reachable afterwards.
#![cfg(unix)]

mod support;

use policy::Rights;
use policy::effective::{Ceiling, EntryKind, NetworkPolicy, Origin, RootKind, ShellRule};
use policy::path::{ObjectKind, judge, judge_place};
use policy::{EffectivePolicy, PolicyDraft, SandboxMode};
use std::path::{Path, PathBuf};
use support::{draft, entry, file_root, frozen, no_ceiling, rights, root, verdict, walked};

/// Freezes a changed draft. `expected` has the granted roots, or the refusals, one a line.
fn check(change: impl FnOnce(&mut PolicyDraft), ceiling: &Ceiling, expected: &[&str]) {
    let mut draft = draft();
    change(&mut draft);
    let lines: Vec<String> = match draft.freeze(ceiling) {
        Ok(policy) => policy
            .roots()
            .iter()
            .map(|root| format!("{} {}", root.path.display(), root.rights))
            .collect(),
        Err(refusals) => refusals
            .iter()
            .map(|refusal| format!("{}: {}: {}", refusal.code, refusal.rule, refusal.target))
            .collect(),
    };
    assert_eq!(lines, expected);
}

fn only(roots: Vec<policy::effective::GrantedRoot>) -> impl FnOnce(&mut PolicyDraft) {
    move |draft| {
        draft.roots = roots;
        draft.entries.clear();
    }
}

fn kept(roots: &[&str]) -> Ceiling {
    Ceiling {
        roots: Some(roots.iter().map(PathBuf::from).collect()),
        ..no_ceiling()
    }
}

const DERIVED: [&str; 4] = [
    "/opt/py read+execute",
    "/opt/py/bin/python3.11 read+execute",
    "/usr/bin/dash read+execute",
    "/usr/bin/git read+execute",
];

/// SEC-INV-03: the ceiling's mode and roots only take away; a kept root inside a granted one is a smaller root.
#[test]
fn sec_inv_03_a_ceiling_takes_away() {
    let all = [
        "/m read+write",
        "/opt/py read+execute",
        DERIVED[1],
        "/ro read",
    ];
    let all: Vec<&str> = all
        .into_iter()
        .chain([DERIVED[2], DERIVED[3], "/w read+write+execute+delete"])
        .collect();
    check(|_| (), &no_ceiling(), &all);
    let with = |last: &[&'static str]| -> Vec<&str> {
        DERIVED.into_iter().chain(last.iter().copied()).collect()
    };
    check(
        |_| (),
        &kept(&["/w"]),
        &with(&["/w read+write+execute+delete"]),
    );
    check(
        |draft| draft.workspace_root = PathBuf::from("/w/a"),
        &kept(&["/w/a", "/w/b"]),
        &with(&[
            "/w/a read+write+execute+delete",
            "/w/b read+write+execute+delete",
        ]),
    );
    // One kept root below the granted root and one around it: the whole root stays.
    check(
        |_| (),
        &kept(&["/w/a", "/w"]),
        &with(&["/w read+write+execute+delete"]),
    );
    check(
        |_| (),
        &kept(&["/else"]),
        &["policy.path_denied: X-ROOT: /w"],
    );
    let read_only = Ceiling::mode(SandboxMode::ReadOnly);
    let all: Vec<&str> = ["/m read"]
        .into_iter()
        .chain(DERIVED.into_iter().take(2))
        .chain(["/ro read", DERIVED[2], DERIVED[3], "/w read"])
        .collect();
    check(|_| (), &read_only, &all);
}

/// SEC-INV-03: what is no directory has nothing below it; what is ours to run is never ours to write.
#[test]
fn sec_inv_03_narrowing_makes_no_new_root() {
    let workspace = || root("/w", "rwxd", Origin::Workspace);
    check(
        only(vec![workspace(), file_root("/f", "rw", Origin::Mount)]),
        &kept(&["/w", "/f/below"]),
        &["/w read+write+execute+delete"],
    );
    check(
        only(vec![workspace(), root("/rt", "rwxd", Origin::RuntimeRoot)]),
        &no_ceiling(),
        &["/rt read+execute", "/w read+write+execute+delete"],
    );
    // A workspace that is also a runtime root does not pass under the ceiling by that.
    let mut both = root("/both", "rwxd", Origin::Workspace);
    both.origins.insert(Origin::RuntimeRoot);
    check(
        only(vec![workspace(), both.clone()]),
        &no_ceiling(),
        &[
            "/both read+write+execute+delete",
            "/w read+write+execute+delete",
        ],
    );
    check(
        only(vec![workspace(), both]),
        &kept(&["/w"]),
        &["/both read+execute", "/w read+write+execute+delete"],
    );
}

/// DESIGN §10.7: the same root is one root with the union of its rights and origins.
#[test]
fn the_same_root_is_merged() {
    let policy = frozen(|draft| draft.roots.push(root("/ro", "rw", Origin::Workspace)));
    let merged = policy.root_of(Path::new("/ro/x")).unwrap();
    assert_eq!(merged.rights, Rights::READ_WRITE);
    assert_eq!(merged.origins.len(), 2);
}

/// Everything that freezing refuses, and all of it at once.
#[test]
fn what_cannot_be_enforced_is_refused() {
    let w = || root("/w", "rwxd", Origin::Workspace);
    let mut cases: Vec<(Vec<_>, &[&str])> = vec![
        (
            vec![w(), root("rel", "r", Origin::Mount)],
            &["policy.path_invalid: absolute path without ..: rel"],
        ),
        (
            vec![w(), root("/w/../etc", "r", Origin::Mount)],
            &["policy.path_invalid: absolute path without ..: /w/../etc"],
        ),
        (
            vec![w(), root("/w/in", "rw", Origin::Mount)],
            &["configuration.invalid: DESIGN §10.2: narrower nested root: /w/in"],
        ),
        (
            vec![w(), file_root("/w", "r", Origin::Mount)],
            &["configuration.invalid: one path as file and directory: /w"],
        ),
        (vec![], &["policy.path_denied: X-ROOT: /w"]),
        (
            vec![file_root("/w", "r", Origin::Mount)],
            &["policy.path_denied: X-ROOT: /w"],
        ),
    ];
    for (roots, expected) in cases.drain(..) {
        check(only(roots), &no_ceiling(), expected);
    }
    check(
        |draft| {
            draft.protect = ["", "./.git", "../x", "/abs"].map(PathBuf::from).to_vec();
            draft.own_files.push(PathBuf::from("boxes"));
            draft.entries[0].runtime_root = Some(PathBuf::new());
            draft.entries.push(entry("PYTHON", "/p", "/usr/bin/p", 9));
            draft.workspace_root = PathBuf::from("/w/boxes/x");
        },
        &no_ceiling(),
        &[
            "policy.path_invalid: absolute path without ..: ",
            "policy.path_invalid: absolute path without ..: boxes",
            "configuration.invalid: sandbox.protect: ",
            "configuration.invalid: sandbox.protect: ./.git",
            "configuration.invalid: sandbox.protect: ../x",
            "configuration.invalid: sandbox.protect: /abs",
            "configuration.invalid: sandbox.execution.entries.alias: PYTHON",
            "policy.path_protected: X-ROOT: own files: /w/boxes/x",
        ],
    );
}

/// X-EXE: an entry that the sandbox could write is refused, also when its own root is narrower than the one around it.
#[test]
fn x_exe_a_writable_entry_is_refused() {
    let in_workspace = |draft: &mut PolicyDraft| {
        draft
            .entries
            .push(entry("tool", "/w/tool", "/w/bin/tool", 7));
        draft.roots.push(file_root(
            "/w/bin/tool",
            "rx",
            Origin::ApprovedEntryExecutable,
        ));
    };
    check(
        in_workspace,
        &no_ceiling(),
        &["executable.writable: /w: /w/bin/tool"],
    );
    let mut read_only = draft();
    in_workspace(&mut read_only);
    assert!(
        read_only
            .freeze(&Ceiling::mode(SandboxMode::ReadOnly))
            .is_ok()
    );
    let on_mount = |draft: &mut PolicyDraft| draft.entries.push(entry("tool", "/t", "/m/tool", 7));
    check(
        on_mount,
        &no_ceiling(),
        &["executable.writable: /m: /m/tool"],
    );
}

/// PRC-05: a shell under either name is a shell, whatever the draft says; freezing keeps the rest as it is.
#[test]
fn prc_05_shells_are_known_by_both_names() {
    let kinds = [
        ("/bin/ksh", "/usr/bin/mksh", EntryKind::Shell),
        ("/bin/x", "/usr/bin/ksh93", EntryKind::Shell),
        ("/bin/x", "/usr/bin/zsh-5.9", EntryKind::Shell),
        ("/bin/x", "/bin/bash-static", EntryKind::Shell),
        ("/bin/x", "/bin/PowerShell.EXE", EntryKind::Shell),
        ("/bin/x", "/usr/bin/python3.11", EntryKind::Program),
        ("/bin/x", "/usr/bin/fish_indent", EntryKind::Program),
        ("/bin/x", "/usr/bin/7", EntryKind::Program),
    ];
    for (logical, resolved, expected) in kinds {
        let policy = frozen(|draft| {
            let mut tool = entry("tool", logical, resolved, 9);
            tool.kind = EntryKind::Program;
            draft.entries.push(tool);
        });
        assert_eq!(
            policy.entry("TOOL").unwrap().kind,
            expected,
            "{logical} {resolved}"
        );
    }
    let policy = frozen(|draft| draft.shells = ShellRule::Deny);
    assert_eq!(policy.shells(), ShellRule::Deny);
}

/// SEC-INV-03, SEC-INV-06: the ceiling closes the network.
#[test]
fn sec_inv_03_a_ceiling_closes_the_network() {
    let mut open = draft();
    open.network = NetworkPolicy::Local {
        ports: [8080].into(),
    };
    let closed = Ceiling {
        no_network: true,
        ..no_ceiling()
    };
    assert_eq!(
        open.clone().freeze(&closed).unwrap().network(),
        &NetworkPolicy::None
    );
    assert_eq!(
        open.freeze(&no_ceiling()).unwrap().network().word(),
        "local"
    );
}

fn place(policy: &EffectivePolicy, path: &str, letters: &str, expected: &str) {
    let result = judge_place(policy, Path::new(path), rights(letters));
    assert_eq!(verdict(result), expected, "{path} {letters}");
}

/// SEC-INV-04, FS-01, FS-04, NFR-01: nothing is reachable but what a root grants, right by right; a file can be a root.
#[test]
fn sec_inv_04_only_granted_rights() {
    let policy = frozen(|draft| draft.roots.push(file_root("/one", "rw", Origin::Mount)));
    let denied = "policy.path_denied: granted roots";
    for (path, letters, expected) in [
        ("/w", "rx", "ok"),
        ("/w/a", "rwxd", "ok"),
        ("/w/a/b", "rwxd", "ok"),
        ("/wide", "r", denied),
        ("/", "r", denied),
        ("", "r", denied),
        ("w/a", "r", denied),
        ("/w/../etc/passwd", "r", denied),
        ("/w/a/../../etc", "r", denied),
        ("/W/a", "r", denied),
        ("/m/x", "rw", "ok"),
        ("/m/x", "d", "policy.path_denied: /m"),
        ("/m/x", "x", "policy.path_denied: /m"),
        ("/ro/x", "w", "policy.path_denied: /ro"),
        ("/one", "rw", "ok"),
        ("/one", "d", "policy.path_denied: /one"),
        ("/one/below", "r", denied),
        ("/opt/py/lib/x.py", "rx", "ok"),
        ("/opt/py/lib/x.py", "w", "policy.path_denied: /opt/py"),
        ("/usr/bin/gitk", "r", denied),
    ] {
        place(&policy, path, letters, expected);
    }
}

/// X-PROTECT: protected places are readable, never writable, at any depth; our own files are out of reach altogether.
#[test]
fn x_protect_protected_and_own_places() {
    let policy = frozen(|draft| draft.own_files.push(PathBuf::from("/m/state")));
    let config = "policy.path_protected: sandbox.protect: .git/config";
    let hooks = "policy.path_protected: sandbox.protect: .git/hooks";
    let own = "policy.path_protected: own files";
    for (path, letters, expected) in [
        ("/w/.git/config", "r", "ok"),
        ("/w/.git/config", "w", config),
        ("/w/.git/config", "d", config),
        ("/w/a/b/.git/config", "w", config),
        ("/w/.GIT/Config", "w", config),
        ("/w/.git/hooks", "d", hooks),
        ("/w/.git/hooks/x", "w", hooks),
        ("/w/.git/hooks/a/b", "w", hooks),
        ("/w/.git/modules/m/.git/hooks/x", "w", hooks),
        ("/w/.git/modules/a/b/config", "w", config),
        ("/w/.git/modules/a/b/config", "r", "ok"),
        ("/w/.git/modules/m/hooks/x", "w", config),
        ("/w/.git/worktrees/t/commondir", "w", config),
        ("/w/.git/worktrees/t/HEAD", "w", "ok"),
        ("/w/.git/Config.Worktree", "w", config),
        ("/w/.git/commondir", "w", config),
        ("/w/.git/refs/heads/hooks", "w", "ok"),
        ("/w/modules/config", "w", "ok"),
        ("/w/.git/config.lock", "w", "ok"),
        ("/w/.git/index", "w", "ok"),
        ("/w/x.git/config", "w", "ok"),
        ("/w/.git/config2", "w", "ok"),
        ("/w/git/hooks", "w", "ok"),
        ("/w/agent.yaml", "r", own),
        ("/w/agent.yaml", "w", own),
        ("/w/Agent.YAML", "w", own),
        ("/w/agent.yaml.bak", "w", "ok"),
        ("/w/boxes", "r", own),
        ("/w/boxes/new.yaml", "w", own),
        ("/w/boxes2", "w", "ok"),
        ("/w", "r", "ok"),
        ("/w", "d", own),
        ("/m", "w", own),
    ] {
        place(&policy, path, letters, expected);
    }
}

/// SEC-INV-04, FS-03: an unfollowed link, a device or a FIFO is not judged to be a file.
#[test]
fn sec_inv_04_only_files_and_directories() {
    let policy = frozen(|_| ());
    let unsupported = "file.kind_unsupported: file or directory";
    for (kind, expected) in [
        (None, "ok"),
        (Some(ObjectKind::File), "ok"),
        (Some(ObjectKind::Directory), "ok"),
        (Some(ObjectKind::Link), unsupported),
        (Some(ObjectKind::Other), unsupported),
    ] {
        let result = judge(&policy, walked("/w/x", kind), Rights::READ);
        assert_eq!(verdict(result), expected, "{kind:?}");
    }
    let judged = judge(&policy, walked("/m/x", None), Rights::READ).unwrap();
    assert_eq!(judged.rights(), Rights::READ_WRITE);
    assert_eq!(
        policy.root_of(Path::new("/m/x")).unwrap().kind,
        RootKind::Directory
    );
}

/// NFR-02: the same grants in another order are the same policy.
#[test]
fn nfr_02_order_does_not_matter() {
    let mut turned = draft();
    turned.roots.reverse();
    let json = |policy: EffectivePolicy| serde_json::to_value(policy).unwrap();
    assert_eq!(
        json(turned.freeze(&no_ceiling()).unwrap()),
        json(draft().freeze(&no_ceiling()).unwrap())
    );
}
