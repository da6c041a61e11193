//! Exact level and missing list for every machine.

use crate::support::machine::{MACHINES, Machine, named};
use crate::support::matrix::{first_line, probe_argv};
use crate::support::world::{text, world};
use crate::support::{Spec, machine};
use crate::support::{is_counted, is_root};
use crate::{Checked, Test, read_only, run};

pub const TESTS: &[(&str, Test)] = &[
    (
        "the_machines_lack_what_they_say",
        the_machines_lack_what_they_say,
    ),
    ("x_partial_every_machine_exactly", every_machine_exactly),
    (
        "x_partial_writing_needs_full_enforcement",
        writing_needs_full_enforcement,
    ),
    (
        "x_net_private_needs_a_network_namespace",
        private_needs_a_network_namespace,
    ),
    (
        "st_01_deleting_is_not_emptying_under_an_older_landlock",
        deleting_is_not_emptying,
    ),
];

/// Controls: without them the machines below would prove nothing.
fn the_machines_lack_what_they_say() -> Checked {
    let probe = |machine: &Machine, words: &[&str]| {
        let mut arguments = vec!["--probe"];
        arguments.extend(words);
        let output = machine.command(&arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    for machine in MACHINES.iter().filter(|machine| machine.is_possible()) {
        if let Some(version) = machine.played.landlock {
            assert_eq!(probe(machine, &["landlock"]), format!("OK {version}"));
        }
    }
    let refused = |name: &str, words: &[&str], errno: i32| {
        assert_eq!(
            probe(named(name), words),
            format!("ERRNO {errno}"),
            "{name} {words:?}"
        );
        assert!(
            probe(named("this"), words).starts_with("OK"),
            "control {words:?}"
        );
    };
    refused("landlock-absent", &["landlock"], libc::ENOSYS);
    refused("landlock-off", &["landlock"], libc::EOPNOTSUPP);
    refused("docker", &["unshare"], libc::EPERM);
    refused("unknown-calls", &["unshare"], libc::ENOSYS);
    refused("user-namespaces-used-up", &["unshare"], libc::ENOSPC);
    refused("no-notification", &["seccomp-listener"], libc::EINVAL);
    if is_root() {
        refused("no-mounts", &["fsopen"], libc::EPERM);
        assert!(probe(named("no-proc"), &["fsopen"]).starts_with("OK"));
    }
    Ok(())
}

fn survey(machine: &Machine, spec: &Spec) -> String {
    let (_, out, errors) = run(machine, "--survey", spec, &[]);
    format!("{}{errors}", out.trim())
}

/// What is listed although nothing is wrong with the machine.
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

/// Without namespaces; in the order of the controls.
fn bare(signals: bool, metadata: bool) -> String {
    let mut all = vec!["filesystem_view"];
    if !metadata {
        all.push("filesystem_metadata");
    }
    all.push("execution");
    if !signals {
        all.push("signal_scope");
    }
    all.extend([
        "process_tree",
        "process_view",
        "memory_tree",
        "pids",
        "workspace_quota",
        "private_quota",
        "uid_separation",
    ]);
    all.join(",")
}

fn expected(machine: &Machine, read_only: bool) -> String {
    let full = format!("Full {}", with_own(&[]));
    let without_rights = format!("Partial {}", with_own(&["filesystem_rights"]));
    let alone = |signals| format!("Partial {}", bare(signals, read_only));
    let unavailable = |why: &str| format!("SANDBOX_UNAVAILABLE at {why}");
    match machine.name {
        // Old Landlock: truncation and metadata are covered by read-only mounts, devices by nodev, signals and abstract
        // sockets by namespaces; moving between directories is refused below version 2, which is stricter.
        "this" | "landlock-1" | "landlock-2" | "landlock-3" | "landlock-5" => full,
        // Without a listener every connection is refused, which is stricter.
        "no-notification" => full,
        "landlock-absent" | "landlock-off" => without_rights,
        "docker"
        | "unknown-calls"
        | "user-namespaces-used-up"
        | "no-mounts"
        | "no-proc"
        | "docker-no-notification" => alone(real_landlock() >= 6),
        "docker-landlock-1" | "docker-landlock-2" | "docker-landlock-4" => alone(false),
        "docker-landlock-off" => {
            unavailable("landlock: neither namespaces nor Landlock: files cannot be confined")
        }
        "no-filter" => unavailable("system call filter: Function not implemented (os error 38)"),
        "no-pidfd" => unavailable("parent death signal: Function not implemented (os error 38)"),
        other => panic!("no expectation for {other}"),
    }
}

fn real_landlock() -> u32 {
    (0..64)
        .rev()
        .find(|version| {
            let played = machine::Machine {
                played: crate::support::tracer::Played {
                    landlock: Some(*version),
                    ..crate::support::tracer::Played::NOTHING
                },
                ..*named("this")
            };
            played.is_possible()
        })
        .unwrap()
}

fn every_machine_exactly() -> Checked {
    let world = world();
    let mut wrong = Vec::new();
    for machine in MACHINES.iter().filter(|machine| machine.is_possible()) {
        for read_only in [true, false] {
            let spec = Spec {
                read_only,
                ..Spec::new(&world.workspace, "r")
            };
            let (got, wanted) = (survey(machine, &spec), expected(machine, read_only));
            if got.trim() != wanted {
                wrong.push(format!("{} {read_only}: {got} not {wanted}", machine.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// Where enforcement is partial, workspace-write is refused with what is missing, and nothing runs; read-only runs, unless
/// the deployment says `deny`.
fn writing_needs_full_enforcement() -> Checked {
    let world = world();
    let ran = world.workspace.join("ran");
    let touch = format!("echo x > {}", ran.display());
    for name in ["docker", "landlock-off", "no-mounts"] {
        for way in ["--once", "--standing"] {
            let spec = Spec::new(&world.workspace, "rwd");
            let (code, _, errors) = run(named(name), way, &spec, &["/bin/sh", "-c", &touch]);
            assert_eq!(code, Some(126), "{name} {way}: {errors}");
            assert!(errors.contains("sandbox.partial"), "{errors}");
            let missing = if name == "landlock-off" {
                "filesystem_rights"
            } else {
                "filesystem_view, filesystem_metadata, execution"
            };
            assert!(errors.contains(missing), "{errors}");
            assert!(!ran.exists(), "it ran");
            let accepted = read_only(&world.workspace);
            let (code, out, errors) = run(named(name), way, &accepted, &["/bin/echo", "ran"]);
            assert_eq!(
                (code, out.as_str()),
                (Some(0), "ran\n"),
                "{name} {way}: {errors}"
            );
            let denied = Spec {
                deny_partial: true,
                ..accepted
            };
            let (code, out, _) = run(named(name), way, &denied, &["/bin/echo", "ran"]);
            assert_eq!((code, out.as_str()), (Some(126), ""), "{name} {way}");
        }
    }
    Ok(())
}

/// Never a weaker network silently.
fn private_needs_a_network_namespace() -> Checked {
    let world = world();
    let spec = Spec {
        private_network: true,
        ..read_only(&world.workspace)
    };
    for way in ["--once", "--standing"] {
        let (code, out, errors) = run(named("docker"), way, &spec, &["/bin/echo", "ran"]);
        assert_eq!((code, out.as_str()), (Some(126), ""), "{errors}");
        assert!(
            errors.contains("SandboxPartial") && errors.contains("\"network\""),
            "{errors}"
        );
    }
    assert!(survey(named("docker"), &spec).contains("network namespace"));
    Ok(())
}

/// A root that may be deleted from cannot be mounted read-only, and Landlock tells truncation from writing only from its third
/// version on. The control is a newer Landlock, and a root that may be written.
fn deleting_is_not_emptying() -> Checked {
    for (machine, rights, wanted) in [
        ("landlock-2", "d", format!("ERRNO {}", libc::EACCES)),
        ("landlock-3", "d", format!("ERRNO {}", libc::EACCES)),
        ("landlock-2", "w", "OK 0".to_owned()),
    ] {
        if !named(machine).is_possible() {
            continue;
        }
        for verb in ["truncate", "truncate-by-open"] {
            let world = world();
            let root = world.outside.join("granted");
            std::fs::create_dir(&root).unwrap();
            let file = root.join("file");
            std::fs::write(&file, "content").unwrap();
            let mut spec = Spec::new(&world.workspace, "r");
            // Opening for truncation alone needs the right to read as well.
            spec.mounts.push((root, format!("r{rights}")));
            let argv = probe_argv(&[verb.to_owned(), text(&file)]);
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            let (_, out, errors) = run(named(machine), "--once", &spec, &argv);
            let line = first_line(&out);
            let fine = line == wanted || (rights == "w" && line.starts_with("OK"));
            assert!(
                fine,
                "{verb} under {rights} on {machine}: {line:?} {errors}"
            );
            let emptied = std::fs::read(&file).unwrap().is_empty();
            assert_eq!(emptied, rights == "w", "{verb} under {rights} on {machine}");
        }
    }
    Ok(())
}
