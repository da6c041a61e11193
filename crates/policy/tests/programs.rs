//! Which programs may start, and as what (DESIGN §7.4, §11.4).
#![cfg(unix)]

mod support;

use policy::PolicyDraft;
use policy::call::{ProgramFacts, ResolvedTargets, WalkedTargets};
use policy::effective::{Ceiling, FileIdentity, Origin, RehashRule, ShellRule};
use policy::path::ObjectKind;
use policy::sandbox::ProgramClass;
use policy::{EffectivePolicy, SandboxMode};
use serde_json::json;
use std::path::PathBuf;
use support::{
    alias, asking, digest, draft, every_tool, frozen, identity, pass, path, program, propose,
    verdict, walked,
};

/// Takes a program through every stage. `expected` is its class, or code and rule.
fn check(policy: &EffectivePolicy, executable: &str, facts: ProgramFacts, expected: &str) {
    let call = propose("process_run", json!({ "executable": executable }));
    let result = pass(
        call,
        &every_tool(),
        &mut asking([]),
        policy,
        program(facts.clone()),
    );
    let got = match result.map(|approved| approved.into_parts().1) {
        Ok(ResolvedTargets::Program { program, .. }) => format!("{:?}", program.class),
        Ok(other) => format!("{other:?}"),
        Err(refusal) => format!("{}: {}", refusal.code, refusal.rule),
    };
    assert_eq!(got, expected, "{executable} {facts:?}");
}

fn hashed(facts: ProgramFacts, number: u8) -> ProgramFacts {
    match facts {
        ProgramFacts::Alias {
            alias,
            resolved,
            identity,
            ..
        } => ProgramFacts::Alias {
            alias,
            resolved,
            identity,
            sha256: Some(digest(number)),
        },
        other => other,
    }
}

const PYTHON: &str = "/opt/py/bin/python3.11";

/// SEC-INV-05, ST-07, ST-08, AT-09, PRC-01, PRC-02, PRC-03, PRC-07: an alias starts the pinned path with the pinned bytes, or nothing.
#[test]
fn sec_inv_05_at_09_prc_01_prc_02_prc_03_entries_are_pinned() {
    let policy = frozen(|_| ());
    let changed = "executable.hash_changed: python";
    check(&policy, "python", alias("python", PYTHON, 1), "Entry");
    check(&policy, "Python", alias("python", PYTHON, 1), "Entry");
    // Touched, and still the same bytes.
    check(
        &policy,
        "python",
        hashed(alias("python", PYTHON, 8), 1),
        "Entry",
    );
    // Other bytes: nothing is approved again by itself, whatever the identity says.
    check(&policy, "python", alias("python", PYTHON, 8), changed);
    check(
        &policy,
        "python",
        hashed(alias("python", PYTHON, 8), 8),
        changed,
    );
    check(
        &policy,
        "python",
        hashed(alias("python", PYTHON, 1), 8),
        changed,
    );
    let moved = "executable.resolution_changed: python";
    check(
        &policy,
        "python",
        alias("python", "/opt/py/bin/python3.12", 1),
        moved,
    );
    check(
        &policy,
        "python",
        hashed(alias("python", "/w/python3.11", 1), 1),
        moved,
    );
    check(
        &policy,
        "ruby",
        alias("ruby", PYTHON, 1),
        "executable.unknown_alias: sandbox.execution.entries",
    );
    let nothing = ProgramFacts::Unknown {
        name: "ruby".to_owned(),
    };
    check(
        &policy,
        "ruby",
        nothing,
        "executable.unknown_alias: sandbox.execution.entries",
    );
    // What was walked is what was asked for.
    check(
        &policy,
        "vcs",
        alias("python", PYTHON, 1),
        "internal: stage 5",
    );
}

/// SEC-INV-05, X-HASH: with `rehash: always` the same identity is not enough.
#[test]
fn sec_inv_05_rehash_always_needs_the_bytes() {
    let policy = frozen(|draft| draft.rehash = RehashRule::Always);
    check(
        &policy,
        "python",
        alias("python", PYTHON, 1),
        "executable.approval_missing: python",
    );
    check(
        &policy,
        "python",
        hashed(alias("python", PYTHON, 1), 1),
        "Entry",
    );
    check(
        &policy,
        "python",
        hashed(alias("python", PYTHON, 1), 2),
        "executable.hash_changed: python",
    );
}

/// SEC-INV-05, PRC-01: the program that leaves stage 5 names the very file that was compared.
#[test]
fn prc_01_the_pinned_file_is_handed_on() {
    let call = propose("process_run", json!({ "executable": "python" }));
    let facts = hashed(alias("python", PYTHON, 8), 1);
    let policy = frozen(|_| ());
    let approved = pass(
        call,
        &every_tool(),
        &mut asking([]),
        &policy,
        program(facts),
    )
    .unwrap();
    let ResolvedTargets::Program { program, cwd } = approved.into_parts().1 else {
        panic!("no program");
    };
    assert_eq!(program.path, PathBuf::from(PYTHON));
    assert_eq!(program.class, ProgramClass::Entry);
    assert_eq!(program.identity, Some(identity(8)));
    assert_eq!(program.sha256, Some(digest(1)));
    assert_eq!(cwd.path(), "/w");
}

/// ST-09, PRC-04, PRC-05: a shell starts only as an entry, only pinned, and only where shells are allowed.
#[test]
fn st_09_prc_04_prc_05_shells() {
    let allow = frozen(|_| ());
    check(&allow, "sh", alias("sh", "/usr/bin/dash", 2), "Shell");
    check(
        &allow,
        "sh",
        alias("sh", "/usr/bin/dash", 8),
        "executable.hash_changed: sh",
    );
    let undeclared =
        "policy.executable_denied: a shell needs an entry in sandbox.execution.entries";
    for shell in [
        "/opt/py/bin/bash",
        "/w/busybox",
        "/w/bin/zsh-5.9",
        "/bin/sh",
    ] {
        check(&allow, shell, path(shell), undeclared);
    }
    let deny = frozen(|draft| draft.shells = ShellRule::Deny);
    let denied = "policy.shell_denied: sandbox.execution.shells";
    check(&deny, "sh", alias("sh", "/usr/bin/dash", 2), denied);
    check(
        &deny,
        "sh",
        hashed(alias("sh", "/usr/bin/dash", 2), 2),
        denied,
    );
    check(&deny, "/w/bash", path("/w/bash"), denied);
    check(&deny, "python", alias("python", PYTHON, 1), "Entry");
    check(&deny, "/w/app", path("/w/app"), "WorkspaceArtifact");
}

/// ST-20, X-EXE, PRC-07: by its path only a runtime component or an artifact of a development workspace starts.
#[test]
fn st_20_x_exe_programs_by_path() {
    let policy = frozen(|draft| draft.own_files.push(PathBuf::from("/opt/py/ours")));
    let denied = "policy.executable_denied: entries, runtime roots, workspace artifacts";
    let by_alias = "policy.executable_denied: use the entry's alias";
    for (executable, expected) in [
        ("/opt/py/bin/pip", "RuntimeComponent"),
        ("/w/target/app", "WorkspaceArtifact"),
        ("/usr/bin/true", denied),
        ("/m/tool", denied),
        ("/ro/tool", denied),
        ("/w/../usr/bin/true", denied),
        ("/opt/py/../../usr/bin/true", denied),
        ("app", denied),
        (PYTHON, by_alias),
        ("/usr/bin/git", by_alias),
        ("/w/boxes/app", "policy.path_protected: own files"),
        ("/opt/py/ours/app", "policy.path_protected: own files"),
    ] {
        check(&policy, executable, path(executable), expected);
    }
    // The entry's file under another name.
    let link = ProgramFacts::Path {
        resolved: PathBuf::from("/w/link"),
        identity: identity(1),
    };
    check(&policy, "/w/link", link, by_alias);
    // A runtime root that was not granted makes nothing executable.
    let ungranted = frozen(|draft| draft.roots.retain(|root| !root.path.ends_with("py")));
    check(
        &ungranted,
        "/opt/py/bin/pip",
        path("/opt/py/bin/pip"),
        denied,
    );
    // Nothing is built in a read-only workspace.
    let read_only = draft()
        .freeze(&Ceiling::mode(SandboxMode::ReadOnly))
        .unwrap();
    check(&read_only, "/w/target/app", path("/w/target/app"), denied);
    check(
        &read_only,
        "/opt/py/bin/pip",
        path("/opt/py/bin/pip"),
        "RuntimeComponent",
    );
}

/// X-EXE: a mount inside a workspace is no place to build programs in.
#[test]
fn x_exe_a_nested_mount_holds_no_artifacts() {
    let nested = |draft: &mut PolicyDraft| {
        draft
            .roots
            .push(support::root("/w/mount", "rwxd", Origin::Mount));
    };
    let denied = "policy.executable_denied: entries, runtime roots, workspace artifacts";
    check(
        &frozen(nested),
        "/w/mount/app",
        path("/w/mount/app"),
        denied,
    );
}

/// DESIGN §7.4: the working directory is a readable directory, and not one of ours.
#[test]
fn the_working_directory_is_judged() {
    let policy = frozen(|draft| draft.roots.push(support::root("/wo", "w", Origin::Mount)));
    for (cwd, kind, expected) in [
        ("/w/a", Some(ObjectKind::Directory), "ok"),
        ("/ro", Some(ObjectKind::Directory), "ok"),
        (
            "/wo",
            Some(ObjectKind::Directory),
            "policy.path_denied: /wo",
        ),
        ("/w/a", Some(ObjectKind::File), "file.wrong_kind: cwd"),
        ("/w/a", None, "file.wrong_kind: cwd"),
        (
            "/etc",
            Some(ObjectKind::Directory),
            "policy.path_denied: granted roots",
        ),
        (
            "/w/boxes",
            Some(ObjectKind::Directory),
            "policy.path_protected: own files",
        ),
    ] {
        let call = propose("process_run", json!({ "executable": "python", "cwd": cwd }));
        let targets = WalkedTargets::Program {
            program: alias("python", PYTHON, 1),
            cwd: walked(cwd, kind),
        };
        let result = pass(call, &every_tool(), &mut asking([]), &policy, targets);
        assert_eq!(verdict(result), expected, "{cwd} {kind:?}");
    }
}

/// X-HASH: an identity stands for the bytes that were read only if its times were old enough then; one that must not stand for
/// them never equals what is found.
#[test]
fn x_hash_when_an_identity_stands_for_its_bytes() {
    let at = |changed_ns, modified_ns| FileIdentity {
        device: 1,
        inode: 2,
        size: 3,
        modified_ns,
        changed_ns,
    };
    const SECOND: i128 = 1_000_000_000;
    for (identity, settled) in [
        (at(98 * SECOND - 1, 0), true),
        (at(98 * SECOND, 0), false),
        (at(0, 98 * SECOND), false),
        (at(101 * SECOND, 0), false),
        (at(i128::MAX, 0), false),
    ] {
        assert_eq!(
            identity.is_settled_at(100 * SECOND),
            settled,
            "{identity:?}"
        );
        let never = identity.never_the_same();
        assert_ne!(never, identity);
        assert_eq!((never.device, never.inode), (1, 2));
    }
}
