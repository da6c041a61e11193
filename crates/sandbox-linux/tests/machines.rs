//! The same sandbox on machines that lack something (issue 3 item 7): exact level and missing list, and what runs.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test with a main of its own: it may fail, connect and print"
)]

mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use support::machine::{Machine, named};
use support::world::world;
use support::{Spec, is_counted, is_root};

type Checked = Result<(), Failed>;
type Test = fn() -> Checked;

fn survey(machine: &Machine, spec: &Spec) -> String {
    let output = machine
        .command(&["--survey", &serde_json::to_string(spec).unwrap()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", text.trim())
}

/// Controls: without them the machines below would prove nothing.
fn the_machines_lack_what_they_say() -> Checked {
    let probe = |machine: &str, what: &str| {
        let output = named(machine).command(&["--probe", what]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    for (machine, version) in [
        ("landlock-1", 1),
        ("landlock-3", 3),
        ("docker-landlock-4", 4),
    ] {
        assert_eq!(probe(machine, "landlock"), format!("OK {version}"));
    }
    assert_eq!(
        probe("landlock-absent", "landlock"),
        format!("ERRNO {}", libc::ENOSYS)
    );
    assert_eq!(probe("docker", "unshare"), format!("ERRNO {}", libc::EPERM));
    assert_eq!(probe("docker", "clone3"), format!("ERRNO {}", libc::ENOSYS));
    assert_eq!(
        probe("user-namespaces-used-up", "unshare"),
        format!("ERRNO {}", libc::ENOSPC)
    );
    assert!(probe("this", "landlock").starts_with("OK"));
    assert!(probe("this", "unshare").starts_with("OK"));
    Ok(())
}

/// What is listed on every machine.
fn with_own(missing: &[&str]) -> String {
    let mut all = missing.to_vec();
    if !is_counted() {
        all.push("memory_tree");
    }
    all.push("workspace_quota");
    if !is_root() {
        all.push("uid_separation");
    }
    all.join(",")
}

/// Landlock off or old, with namespaces: only what mounts cannot do is missing.
fn landlock_versions() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    for (name, expected) in [
        ("this", format!("Full {}", with_own(&[]))),
        (
            "landlock-absent",
            format!("Partial {}", with_own(&["filesystem_rights"])),
        ),
        (
            "landlock-off",
            format!("Partial {}", with_own(&["filesystem_rights"])),
        ),
        ("landlock-1", format!("Full {}", with_own(&[]))),
        ("landlock-2", format!("Full {}", with_own(&[]))),
        ("landlock-3", format!("Full {}", with_own(&[]))),
        ("landlock-5", format!("Full {}", with_own(&[]))),
    ] {
        assert_eq!(survey(named(name), &spec), expected, "{name}");
    }
    Ok(())
}

const TESTS: &[(&str, Test)] = &[
    (
        "the_machines_lack_what_they_say",
        the_machines_lack_what_they_say,
    ),
    ("x_partial_landlock_versions", landlock_versions),
];

fn main() -> ExitCode {
    support::take_over();
    let trials = TESTS
        .iter()
        .map(|(name, test)| Trial::test(*name, test))
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
