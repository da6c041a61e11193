//! `agent-mcp exec` and issue 3, "Bad input": stopped programs, and places that cannot be read.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use support::{PATIENCE, Place, anyone_runs, can_confine, text, wait_for};

fn mounts() -> usize {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().count()
}

/// Without a configuration: one above the workspace would be found.
fn bare() -> Place {
    let place = Place::usual("http://localhost:9");
    std::fs::remove_file(&place.config).unwrap();
    place
}

/// `exec` without a configuration, in the workspace; the root is the workspace.
fn exec(place: &Place, script: &str) -> Command {
    let home = place.directory.path().join("home");
    std::fs::create_dir_all(&home).unwrap();
    let mut command = support::command(&home);
    command
        .current_dir(&place.workspace)
        .args(["exec", "--root"])
        .arg(&place.workspace)
        .args(["--", "/bin/sh", "-c", script]);
    command
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let before = mounts();
    let output = command.output().unwrap();
    assert_eq!(mounts(), before, "a mount is left");
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// How many processes with this text in their command line are stopped. A child may be so before it has executed its program.
fn stopped(marker: &str) -> usize {
    let is_stopped = |entry: &std::fs::DirEntry| {
        let read = |name| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        read("cmdline").contains(marker)
            && read("stat")
                .rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" T"))
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter(is_stopped).count()
}

/// A program that stopped itself and its child: SIGTERM continues and ends it; one that ignores SIGTERM is ended by the second;
/// SIGKILL to `exec` takes a stopped tree along.
#[test]
fn bad_input_stopped_programs_end_on_signals() {
    if !can_confine() {
        return;
    }
    let id = std::process::id();
    // What it does with SIGTERM, the signals, the status of `exec`, whether the program went on.
    let cases: &[(&str, &[Signal], Option<i32>, bool)] = &[
        ("", &[Signal::TERM], Some(143), false),
        (
            "trap '' TERM;",
            &[Signal::TERM, Signal::TERM],
            Some(143),
            true,
        ),
        ("", &[Signal::KILL], None, false),
    ];
    for (number, (trap, signals, status, goes_on)) in cases.iter().enumerate() {
        let place = bare();
        let mark = format!("95{number}{id}");
        let script = format!(
            "{trap} sleep {mark} & kill -STOP $!; kill -STOP $$; echo > on; kill -STOP $$; echo > further"
        );
        let before = mounts();
        let mut child = exec(&place, &script)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // `exec` itself has the script in its command line and is not stopped.
        until("both are stopped", || stopped(&mark) == 2);
        let on = place.workspace.join("on");
        for (n, signal) in signals.iter().enumerate() {
            if n > 0 {
                // The child was continued with the group.
                until("it went on and stopped again", || {
                    on.exists() && stopped(&mark) == 1
                });
                assert_eq!(
                    child.try_wait().unwrap(),
                    None,
                    "one SIGTERM is the program's"
                );
            }
            send(&child, *signal);
        }
        assert_eq!(wait_for(&mut child), *status, "case {number}");
        until("the tree is gone", || !anyone_runs(&mark));
        assert_eq!(on.exists(), *goes_on, "case {number}");
        assert!(!place.workspace.join("further").exists());
        assert_eq!(mounts(), before, "a mount is left");
    }
}

/// The time limit ends a tree that is stopped as a whole.
#[test]
fn bad_input_time_limit_of_a_stopped_program() {
    if !can_confine() {
        return;
    }
    let place = Place::new(
        "http://localhost:9",
        "sandbox:\n  workspaces: [ws]\n  resources:\n    execution_timeout_seconds: 1\n",
    );
    let mark = format!("96{}", std::process::id());
    let script = format!("sleep {mark} & kill -STOP $!; kill -STOP $$; echo went on");
    let mut command = support::command(&place.state);
    command
        .current_dir(&place.workspace)
        .args(["exec", "--config"])
        .arg(&place.config)
        .args(["--", "/bin/sh", "-c", &script]);
    let (code, out, said) = output(&mut command);
    assert_eq!((code, out.as_str()), (Some(124), ""), "{said}");
    assert!(!anyone_runs(&mark));
}

fn set(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A root, or a directory of ours in it, that cannot be read: an ordinary user is refused with the place and the reason, since a
/// program could open it again and what is in it was not looked at. Root reads it anyway; the program inside is not root.
#[test]
fn bad_input_unreadable_root() {
    if !can_confine() {
        return;
    }
    let root = rustix::process::geteuid().is_root();
    for mode in [0o000, 0o300] {
        for name in ["", "sub"] {
            let place = bare();
            std::fs::create_dir_all(place.workspace.join("sub/deep")).unwrap();
            let closed = match name {
                "" => place.workspace.clone(),
                name => place.workspace.join(name),
            };
            let mut command = exec(&place, "echo ran; ls sub");
            command.current_dir(place.directory.path());
            set(&closed, mode);
            let (code, out, said) = output(&mut command);
            set(&closed, 0o755);
            let what = format!("{name:?} {mode:o}: {said}");
            if !root {
                assert_eq!((code, out.as_str()), (Some(126), ""), "{what}");
                let wanted = format!(
                    "agent-mcp: policy.path_protected: {} is protected. Rule: sandbox.protect Permission denied (os error 13)\n",
                    closed.display()
                );
                assert!(said.starts_with(&wanted), "{what}");
            } else if name.is_empty() && mode == 0 {
                assert_eq!((code, out.as_str()), (Some(126), ""), "{what}");
                assert!(
                    said.starts_with("agent-mcp: policy.path_denied: "),
                    "{what}"
                );
                assert!(said.contains("Rule: working directory"), "{what}");
            } else {
                assert_eq!(out.lines().next(), Some("ran"), "{what}");
                // Below a root that may be searched `sub` is open; `sub` itself is not.
                assert_eq!(code, Some(if name.is_empty() { 0 } else { 2 }), "{what}");
            }
        }
    }
}

/// `--root` decides where a program works, not where `exec` was started; without it that is the place, also below a directory that
/// cannot be read, and not below one that cannot be searched.
#[test]
fn bad_input_working_directory() {
    if !can_confine() {
        return;
    }
    let root = rustix::process::geteuid().is_root();
    let place = bare();
    let parent = place.directory.path().canonicalize().unwrap().join("p");
    let here = parent.join("c");
    std::fs::create_dir_all(&here).unwrap();
    let home = place.directory.path().join("home");
    let pwd = |directory: &Path| format!("{}\n", directory.display());

    let (code, out, said) = output(exec(&place, "pwd; echo x > file").current_dir(&here));
    assert_eq!((code, out), (Some(0), pwd(&place.workspace)), "{said}");
    assert!(place.workspace.join("file").exists() && !here.join("file").exists());

    for mode in [0o300, 0o000] {
        // The shell goes there first: a place that cannot be searched cannot be entered.
        let script = format!(
            "cd {} && chmod {mode:o} {} && exec {} exec -- /bin/sh -c 'pwd; echo x > file'",
            here.display(),
            parent.display(),
            support::program().display()
        );
        let mut shell = Command::new("/bin/sh");
        shell
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &home)
            .env("XDG_STATE_HOME", &home)
            .args(["-c", &script]);
        let (code, out, said) = output(&mut shell);
        set(&parent, 0o755);
        if root || mode == 0o300 {
            assert_eq!((code, out), (Some(0), pwd(&here)), "{mode:o}: {said}");
            assert!(here.join("file").exists());
        } else {
            assert_eq!((code, out.as_str()), (Some(125), ""), "{mode:o}: {said}");
            let wanted = format!(
                "agent-mcp: file.permission_denied: Permission denied: {}",
                here.display()
            );
            assert!(said.starts_with(&wanted), "{mode:o}: {said}");
        }
    }
}

/// X-ROOT, interfaces.md §6: what lies behind a directory that this user may not enter is told as that, not as missing; in both
/// languages, for the working directory, `--root`, workspaces and entries.
#[test]
fn x_root_behind_a_closed_directory_is_no_missing_place() {
    use std::os::unix::process::CommandExt as _;
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    let user = match rustix::process::geteuid() {
        root if root.is_root() => 65_534,
        user => user.as_raw(),
    };
    let program = base.join("agent-mcp");
    std::fs::copy(support::program(), &program).unwrap();
    for place in ["home", "closed", "closed/in"] {
        std::fs::create_dir(base.join(place)).unwrap();
    }
    std::fs::copy("/bin/true", base.join("closed/tool")).unwrap();
    // Not found from where the commands run.
    let config = base.join("conf/agent.yaml");
    std::fs::create_dir(base.join("conf")).unwrap();
    let yaml = "schema_version: 2\nollama: {model: m, endpoint: 'http://127.0.0.1:9'}\nsandbox:\n  workspaces: [../closed/in]\n  execution: {entries: [{alias: tool, path: ../closed/tool}]}\n";
    std::fs::write(&config, yaml).unwrap();
    std::fs::set_permissions(&base, Permissions::from_mode(0o755)).unwrap();
    for place in ["home", "closed", "closed/in", "conf", "conf/agent.yaml"] {
        std::os::unix::fs::chown(base.join(place), Some(user), Some(user)).ok();
    }
    let closed = base.join("closed");
    let within = format!(
        "cd '{}/in' && chmod 000 .. && exec \"$@\"",
        closed.display()
    );
    let run = |script: &str, words: &[&str]| {
        std::fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new("/bin/sh");
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", base.join("home"))
            .current_dir(&base)
            .args(["-c", script, "sh"])
            .arg(&program)
            .args(words)
            .stdin(Stdio::null());
        if rustix::process::geteuid().is_root() {
            command.uid(user).gid(user);
        }
        let output = command.output().unwrap();
        std::fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
        (
            output.status.code(),
            text(&output.stdout) + &text(&output.stderr),
        )
    };
    let from_outside = "chmod 000 closed && exec \"$@\"";
    let root = closed.join("in").display().to_string();
    let named = config.display().to_string();
    for (lang, denied, missing) in [
        ("en", "ermission denied", "does not exist"),
        ("ja", "アクセス権がありません", "存在しません"),
    ] {
        let cases: [(&str, &[&str], i32, &str); 3] = [
            (
                &within,
                &["exec", "--lang", lang, "--", "true"],
                125,
                "file.permission_denied",
            ),
            (
                from_outside,
                &["exec", "--lang", lang, "--root", &root, "--", "true"],
                125,
                "file.permission_denied",
            ),
            (
                from_outside,
                &["check", "--lang", lang, "--config", &named],
                2,
                "configuration.invalid",
            ),
        ];
        for (script, words, status, code) in cases {
            let (ended, said) = run(script, words);
            assert_eq!(ended, Some(status), "{words:?}: {said}");
            assert!(said.contains(denied), "{words:?}: {said}");
            assert!(!said.contains(missing), "{words:?}: {said}");
            if status == 125 {
                assert!(said.contains(code), "{words:?}: {said}");
            } else {
                for key in ["sandbox.workspaces[0]", "sandbox.execution.entries[0].path"] {
                    assert!(said.contains(key), "{words:?}: {said}");
                }
            }
        }
    }
    // Control: what is missing is still told as missing.
    let (ended, said) = run("exec \"$@\"", &["exec", "--root", "nowhere", "--", "true"]);
    assert_eq!(ended, Some(125), "{said}");
    assert!(said.contains("file.not_found"), "{said}");
}
