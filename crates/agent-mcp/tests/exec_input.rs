//! `agent-mcp exec` at the edges of issue 3, "Bad input": long, odd and many arguments, vanished places, floods, and nothing left.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use agent_mcp::locale::Locale;
use policy::Localize as _;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Place, can_confine, command, text};

/// What a run could leave outside its own directories: our mounts, our names in the shared temporary places.
fn around() -> BTreeSet<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut all: BTreeSet<String> = mounts.lines().map(str::to_owned).collect();
    for place in ["/dev/shm", "/tmp"] {
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        all.extend(
            entries
                .map(|entry| entry.path().display().to_string())
                .filter(|path| path.contains("agent-mcp")),
        );
    }
    all
}

fn exec(place: &Place, flags: &[&str], argv: &[&OsStr]) -> Command {
    let mut command = command(&place.state);
    command
        .current_dir(&place.workspace)
        .args(["exec", "--config"])
        .arg(&place.config)
        .args(flags)
        .arg("--")
        .args(argv);
    command
}

fn words<'a>(argv: &[&'a str]) -> Vec<&'a OsStr> {
    argv.iter().map(|word| OsStr::new(*word)).collect()
}

/// The program's status, its output, and what was said; checks that nothing is left.
fn run(command: &mut Command, place: &Place) -> (Option<i32>, Vec<u8>, String) {
    let files = |place: &Place| {
        let names = std::fs::read_dir(&place.workspace).into_iter().flatten();
        names
            .flatten()
            .map(|entry| entry.file_name())
            .collect::<BTreeSet<_>>()
    };
    let (before, names) = (around(), files(place));
    let output = command.output().unwrap();
    let left: Vec<String> = around().difference(&before).cloned().collect();
    assert!(left.is_empty(), "left: {left:?}");
    assert_eq!(files(place), names);
    (output.status.code(), output.stdout, text(&output.stderr))
}

/// Arguments are bytes: many, odd, empty and long ones arrive, and what the kernel does not take is said in words.
#[test]
fn bad_input_arguments() {
    if !can_confine() {
        return;
    }
    let place = Place::usual("http://localhost:9");
    let many: Vec<OsString> = (0..10_000).map(|n| format!("a{n}").into()).collect();
    let mut argv = words(&["sh", "-c", "echo $# ${10000}", "sh"]);
    argv.extend(many.iter().map(OsString::as_os_str));
    let (code, out, said) = run(&mut exec(&place, &[], &argv), &place);
    assert_eq!(
        (code, text(&out).as_str()),
        (Some(0), "10000 a9999\n"),
        "{said}"
    );

    let odd = OsString::from_vec(b"\xff\xfe \n'\"$(x)\x1b[31m".to_vec());
    let mut argv = words(&["printf", "%s|%s"]);
    argv.extend([odd.as_os_str(), OsStr::new("")]);
    let (code, out, said) = run(&mut exec(&place, &[], &argv), &place);
    assert_eq!(
        (code, out),
        (Some(0), [odd.as_bytes(), b"|"].concat()),
        "{said}"
    );

    // A program whose name is not UTF-8.
    let name = OsString::from_vec(b"./na\xffme".to_vec());
    let file = place.workspace.join(OsStr::from_bytes(b"na\xffme"));
    std::os::unix::fs::symlink("/bin/echo", &file).unwrap();
    let (code, out, said) = run(&mut exec(&place, &[], &[&name, OsStr::new("ran")]), &place);
    assert_eq!((code, text(&out).as_str()), (Some(0), "ran\n"), "{said}");
}

/// One argument is at most 128 KiB for the kernel, whoever starts whom: 2 MiB never arrive. What is told where the kernel says so
/// to us (a longer vector under a smaller stack limit, or a use as a library).
#[test]
fn bad_input_too_long() {
    if !can_confine() {
        return;
    }
    let place = Place::usual("http://localhost:9");
    let long = "x".repeat(2 << 20);
    // Control: the kernel refuses it for any program, so that it never arrives at `exec`.
    let refused = exec(&place, &[], &words(&["true", &long])).output();
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(7));
    // Through a library, or where our own start had a larger limit, the kernel says the same to us.
    let error = policy::sandbox::SandboxError::NotExecutable {
        path: "/bin/true".into(),
        errno: 7,
    };
    let fault = agent_mcp::compose::sandbox_fault(&error);
    assert_eq!(fault.code.as_str(), "process.not_executable");
    assert_eq!(fault.detail, "reason.arguments_too_long");
    let told = Locale::built_in("en").text(&fault.message());
    assert!(told.contains("longer than the kernel takes"), "{told}");
}

/// A working directory or a root that is not what it was: our own status and code, and nothing ran.
#[test]
fn bad_input_places() {
    if !can_confine() {
        return;
    }
    type Make = fn(&Path);
    let cases: &[(&str, Make, &str)] = &[
        (
            "vanished",
            |root| std::fs::remove_dir(root).unwrap(),
            "it does not exist",
        ),
        (
            "a file where a directory was",
            |root| {
                std::fs::remove_dir(root).unwrap();
                std::fs::write(root, "").unwrap();
            },
            "it is not a directory",
        ),
        (
            "a loop of links",
            |root| {
                std::fs::remove_dir(root).unwrap();
                std::os::unix::fs::symlink(root, root).unwrap();
            },
            "symbolic links lead in a circle",
        ),
    ];
    for (what, make, code) in cases {
        let place = Place::usual("http://localhost:9");
        let outside = tempfile::tempdir().unwrap();
        make(&place.workspace);
        let mut command = exec(&place, &[], &words(&["sh", "-c", "echo ran"]));
        command.current_dir(outside.path());
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{what}: {said}");
        assert!(
            said.starts_with("agent-mcp: configuration.invalid: ") && said.contains(code),
            "{what}: {said}"
        );
        assert!(output.stdout.is_empty(), "{what}");
    }
    // The current directory is gone.
    let place = Place::usual("http://localhost:9");
    let gone = place.directory.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let script = format!(
        "cd {gone} && rmdir {gone} && exec {program} exec --config {config} -- echo ran",
        gone = gone.display(),
        program = support::program().display(),
        config = place.config.display(),
    );
    let output = Command::new("/bin/sh")
        .env("XDG_STATE_HOME", &place.state)
        .args(["-c", &script])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(
        said.contains("agent-mcp: ") && said.contains("cwd"),
        "{said}"
    );
    assert!(output.stdout.is_empty());
}

/// 10,000 roots are a clear configuration error, not a start that takes minutes.
#[test]
fn bad_input_too_many_roots() {
    let roots: String = (0..10_000)
        .map(|n| format!("    - r{n}\n"))
        .collect::<Vec<_>>()
        .concat();
    let place = Place::new(
        "http://localhost:9",
        &format!("sandbox:\n  workspaces:\n    - ws\n{roots}"),
    );
    let output = exec(&place, &[], &words(&["true"])).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.lines().count() < 20, "{} lines", said.lines().count());
    assert!(
        said.contains("sandbox.workspaces") && said.contains("256"),
        "{said}"
    );
}

/// 100 MB of every byte pass unchanged, and a reader that goes away is SIGPIPE as anywhere.
#[test]
fn streams_are_the_callers_own() {
    if !can_confine() {
        return;
    }
    let place = Place::usual("http://localhost:9");
    let block: Vec<u8> = (0..1 << 20)
        .map(|n: u32| (n * 31 + n / 251) as u8)
        .collect();
    std::fs::write(place.workspace.join("block"), &block).unwrap();
    let script = "i=0; while [ $i -lt 100 ]; do cat block; i=$((i+1)); done";
    let mut child = exec(&place, &[], &words(&["sh", "-c", script]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stream = child.stdout.take().unwrap();
    let mut got = vec![0; block.len()];
    for round in 0..100 {
        stream.read_exact(&mut got).unwrap();
        assert!(got == block, "block {round}");
    }
    assert_eq!(stream.read(&mut got).unwrap(), 0);
    assert_eq!(support::wait_for(&mut child), Some(0));

    let mut child = exec(&place, &[], &words(&["cat", "/dev/zero"]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stream = child.stdout.take().unwrap();
    stream.read_exact(&mut got).unwrap();
    drop(stream);
    assert_eq!(support::wait_for(&mut child), Some(141));
}

/// What a command leaves behind does not keep `exec`, and is gone: a child that holds stdout, a daemon of a daemon, closed streams,
/// a stopped process, forks without end, a full private disk, memory without end, 10 GB for nobody.
#[test]
fn bad_input_programs() {
    if !can_confine() {
        return;
    }
    let place = Place::new(
        "http://localhost:9",
        "sandbox:\n  workspaces: [ws]\n  resources:\n    memory_mb: 1024\n    process_limit: 64\n",
    );
    let mark = format!("97{}", std::process::id());
    let sleep = format!("sleep {mark}");
    let cases: Vec<(&str, String, Option<i32>, &str)> = vec![
        ("a child holds stdout", format!("{sleep} & echo out"), Some(0), "out\n"),
        (
            "it daemonizes twice",
            format!("(setsid sh -c 'setsid {sleep} & exit' &) ; echo out"),
            Some(0),
            "out\n",
        ),
        (
            "it closes its streams",
            "exec <&- >&- 2>&-; exit 4".into(),
            Some(4),
            "",
        ),
        (
            "its child is stopped",
            format!("{sleep} & kill -STOP $!; echo out; exit 5"),
            Some(5),
            "out\n",
        ),
        (
            "it forks without end",
            format!("n=0; while [ $n -lt 500 ]; do {sleep} & n=$((n+1)); done; echo all"),
            None,
            "",
        ),
        (
            "it fills the private disk",
            "dd if=/dev/zero of=$TMPDIR/x bs=1M count=4096 2>/dev/null; echo $(( $(stat -c %s $TMPDIR/x) <= 536870912 ))".into(),
            Some(0),
            "1\n",
        ),
        (
            "it writes 10 GB to nobody",
            "head -c 10000000000 /dev/zero > /dev/null; echo out".into(),
            Some(0),
            "out\n",
        ),
        (
            "it allocates without end",
            "x=x; while :; do x=$x$x; done".into(),
            None,
            "",
        ),
    ];
    for (what, script, status, printed) in cases {
        let argv = ["/bin/sh", "-c", &script];
        let (code, out, said) = run(
            &mut exec(&place, &["--explain", "off"], &words(&argv)),
            &place,
        );
        match status {
            Some(status) => assert_eq!(code, Some(status), "{what}: {said}"),
            None => assert!(code.is_some(), "{what}: {said}"),
        }
        assert_eq!(text(&out), printed, "{what}: {said}");
        assert!(!support::anyone_runs(&sleep), "{what}");
    }
}
