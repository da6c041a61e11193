//! `process_run` up to the sandbox (PRC-01…05, AT-09, ST-20, X-EXE, X-HASH), and what the model sees of a run. The sandbox
//! is a recorder here: what a real one enforces is tested where it lives.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test stops where its setting fails")]

mod tools_support;

use policy::Code;
use policy::Rights;
use policy::effective::{Origin, RehashRule, RootKind, ShellRule};
use policy::sandbox::{
    CapturedOutput, Denial, ProcessEnd, ProcessOutcome, ProcessRequest, ProgramClass, SandboxError,
    TaskSandbox,
};
use runtime::tools::{EffectEnd, EffectKind, Intent};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use tools_support::{Setting, World, assert_ok, assert_refused, entry, root};

struct Recorder {
    answer: Result<ProcessOutcome, SandboxError>,
    seen: Mutex<Vec<ProcessRequest>>,
}

impl Recorder {
    fn new(answer: Result<ProcessOutcome, SandboxError>) -> Self {
        Self {
            answer,
            seen: Mutex::new(Vec::new()),
        }
    }

    fn last(&self) -> ProcessRequest {
        self.seen.lock().unwrap().pop().unwrap()
    }
}

impl TaskSandbox for Recorder {
    fn run(&self, request: &ProcessRequest) -> Result<ProcessOutcome, SandboxError> {
        self.seen.lock().unwrap().push(request.clone());
        self.answer.clone()
    }

    fn kill(&self) {}

    fn end(&self) -> Result<(), SandboxError> {
        Ok(())
    }
}

fn outcome(end: ProcessEnd) -> ProcessOutcome {
    ProcessOutcome {
        end,
        stdout: CapturedOutput::default(),
        stderr: CapturedOutput::default(),
        elapsed: Duration::from_millis(1_500),
        denials: Vec::new(),
        leftovers: 0,
    }
}

fn all(bytes: &[u8]) -> CapturedOutput {
    CapturedOutput {
        head: bytes.to_vec(),
        total_bytes: bytes.len() as u64,
        ..CapturedOutput::default()
    }
}

fn setting() -> Setting {
    Setting {
        more_roots: |base| {
            vec![root(
                base.join("bin"),
                RootKind::Directory,
                Rights::READ_EXECUTE,
                Origin::ApprovedEntryExecutable,
            )]
        },
        entries: |base| vec![entry("prog", &base.join("bin/prog"))],
        ..Setting::default()
    }
}

fn run(world: &World, sandbox: &Recorder, arguments: Value) -> runtime::tools::ToolResult {
    world.call_with("process_run", arguments, Some(sandbox), None)
}

#[test]
fn prc_01_an_alias_runs_the_pinned_file_with_the_exact_arguments() {
    let world = World::with(&setting());
    std::fs::create_dir(world.workspace.join("sub")).unwrap();
    let sandbox = Recorder::new(Ok(outcome(ProcessEnd::Exited { status: 0 })));
    let arguments = json!({"executable": "prog", "args": ["-c", "a b; $(x) 'y'", ""], "cwd": "sub", "stdin": "in", "timeout_seconds": 7});
    let result = run(&world, &sandbox, arguments);
    assert_ok(&result);
    assert_eq!(result.effects[0].kind, EffectKind::ProgramRan);
    let request = sandbox.last();
    assert_eq!(request.program.path, world.base().join("bin/prog"));
    assert_eq!(
        (request.program.class, request.program.identity),
        (
            ProgramClass::Entry,
            Some(world.policy.entries()[0].identity)
        )
    );
    assert_eq!(request.argv, ["prog", "-c", "a b; $(x) 'y'", ""]);
    assert_eq!(request.cwd, world.workspace.join("sub"));
    assert_eq!(request.stdin.as_deref(), Some(b"in".as_slice()));
    assert_eq!(request.timeout, Duration::from_secs(7));
    assert_eq!(request.spool_directory, Some(world.temp.clone()));
    let entries = world.log.entries.lock().unwrap();
    assert!(
        matches!(&entries[0], (Intent::RunProgram { argv, .. }, Some(EffectEnd::Done)) if argv.len() == 4)
    );
}

#[test]
fn the_timeout_is_capped_by_the_policy() {
    let world = World::with(&setting());
    let sandbox = Recorder::new(Ok(outcome(ProcessEnd::Exited { status: 0 })));
    for arguments in [
        json!({"executable": "prog"}),
        json!({"executable": "PROG", "timeout_seconds": u64::MAX}),
    ] {
        assert_ok(&run(&world, &sandbox, arguments));
        assert_eq!(sandbox.last().timeout, Duration::from_secs(60));
    }
}

#[test]
fn prc_02_at_09_sec_inv_05_changed_bytes_are_refused() {
    for rehash in [RehashRule::OnChange, RehashRule::Always] {
        let world = World::with(&Setting {
            rehash,
            ..setting()
        });
        let sandbox = Recorder::new(Ok(outcome(ProcessEnd::Exited { status: 0 })));
        let program = world.base().join("bin/prog");
        assert_ok(&run(&world, &sandbox, json!({"executable": "prog"})));
        // The same bytes in another file are the approved bytes.
        let copy = std::fs::read(&program).unwrap();
        std::fs::remove_file(&program).unwrap();
        std::fs::write(&program, &copy).unwrap();
        let again = run(&world, &sandbox, json!({"executable": "prog"}));
        assert_ok(&again);
        for _ in 0..2 {
            std::fs::write(&program, "#!/bin/evil\n").unwrap();
            let refused = run(&world, &sandbox, json!({"executable": "prog"}));
            assert_refused(&refused, Code::ExecutableHashChanged);
        }
        std::fs::write(&program, &copy).unwrap();
        assert_ok(&run(&world, &sandbox, json!({"executable": "prog"})));
    }
}

/// X-HASH: the file that is handed to the sandbox is the file whose bytes were read, also while the two are swapped under us.
#[test]
fn x_hash_identity_and_bytes_are_of_one_file() {
    for rehash in [RehashRule::OnChange, RehashRule::Always] {
        let world = World::with(&Setting {
            rehash,
            ..setting()
        });
        let sandbox = Recorder::new(Ok(outcome(ProcessEnd::Exited { status: 0 })));
        let program = world.base().join("bin/prog");
        let approved = std::fs::read(&program).unwrap();
        let other = [approved.as_slice(), b"# another\n"].concat();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let mut sizes = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    for bytes in [&approved, &other] {
                        let new = program.with_extension("new");
                        std::fs::write(&new, bytes).unwrap();
                        std::fs::rename(&new, &program).unwrap();
                    }
                }
            });
            for _ in 0..3_000 {
                let result = run(&world, &sandbox, json!({"executable": "prog"}));
                if result.ok {
                    sizes.push(sandbox.last().program.identity.unwrap().size);
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let wrong = sizes
            .iter()
            .filter(|size| **size != approved.len() as u64)
            .count();
        assert!(
            !sizes.is_empty() && wrong == 0,
            "{rehash:?}: {wrong} of {}",
            sizes.len()
        );
    }
}

#[test]
fn prc_03_an_alias_that_leads_elsewhere_is_refused() {
    let world = World::with(&setting());
    let sandbox = Recorder::new(Ok(outcome(ProcessEnd::Exited { status: 0 })));
    let program = world.base().join("bin/prog");
    std::fs::rename(&program, world.base().join("bin/moved")).unwrap();
    let gone = run(&world, &sandbox, json!({"executable": "prog"}));
    assert_refused(&gone, Code::ExecutableResolutionChanged);
    std::os::unix::fs::symlink("moved", &program).unwrap();
    let elsewhere = run(&world, &sandbox, json!({"executable": "prog"}));
    assert_refused(&elsewhere, Code::ExecutableResolutionChanged);
    assert!(sandbox.seen.lock().unwrap().is_empty());
}

#[test]
fn st_20_unknown_programs_are_refused() {
    let world = World::with(&setting());
    let sandbox = Recorder::new(Ok(outcome(ProcessEnd::Exited { status: 0 })));
    let entry_path = world.base().join("bin/prog");
    assert!(std::path::Path::new("/bin/sh").exists(), "control");
    for (name, code) in [
        ("sh", Code::ExecutableUnknown),
        ("curl", Code::ExecutableUnknown),
        ("./missing", Code::ExecutableUnknown),
        ("/bin/sh", Code::ExecutableDenied),
        ("/usr/bin/missing", Code::ExecutableDenied),
        ("../outside/secret.txt", Code::ExecutableDenied),
        (entry_path.to_str().unwrap(), Code::ExecutableDenied),
        ("../bin/prog", Code::ExecutableDenied),
    ] {
        let result = run(&world, &sandbox, json!({"executable": name}));
        assert_refused(&result, code);
    }
    world.link("/bin/sh", "sh-link");
    world.link("../bin/prog", "prog-link");
    assert_refused(
        &run(&world, &sandbox, json!({"executable": "./sh-link"})),
        Code::PathEscapes,
    );
    assert!(!run(&world, &sandbox, json!({"executable": "./prog-link"})).ok);
    assert!(!run(&world, &sandbox, json!({"executable": "./own"})).ok);
    let unknown = run(&world, &sandbox, json!({"executable": "curl"}));
    assert!(
        unknown.output.contains("allowed: prog"),
        "{}",
        unknown.output
    );
    assert!(sandbox.seen.lock().unwrap().is_empty());
    assert_eq!(world.log.ends(), []);
}

#[test]
fn artifacts_of_a_development_workspace_run_relative_to_cwd() {
    let world = World::with(&setting());
    let path = world.write("target/app", "#!/bin/true\n");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    let sandbox = Recorder::new(Ok(outcome(ProcessEnd::Exited { status: 0 })));
    for arguments in [
        json!({"executable": "target/app"}),
        json!({"executable": "./app", "cwd": "target"}),
        json!({"executable": path}),
    ] {
        assert_ok(&run(&world, &sandbox, arguments));
        let request = sandbox.last();
        assert_eq!(
            (request.program.path, request.program.class),
            (path.clone(), ProgramClass::WorkspaceArtifact)
        );
    }
    assert_refused(
        &run(
            &world,
            &sandbox,
            json!({"executable": "app", "cwd": "target"}),
        ),
        Code::ExecutableUnknown,
    );
}

#[test]
fn prc_05_shells_can_be_denied() {
    let world = World::with(&Setting {
        entries: |base| {
            std::fs::write(base.join("bin/bash"), "#!\n").unwrap();
            vec![entry("bash", &base.join("bin/bash"))]
        },
        shells: ShellRule::Deny,
        ..setting()
    });
    let sandbox = Recorder::new(Ok(outcome(ProcessEnd::Exited { status: 0 })));
    assert_refused(
        &run(&world, &sandbox, json!({"executable": "bash"})),
        Code::ShellDenied,
    );
}

#[test]
fn without_a_sandbox_nothing_runs() {
    let world = World::with(&setting());
    let result = world.call("process_run", json!({"executable": "prog"}));
    assert_refused(&result, Code::SandboxUnavailable);
    assert_eq!(world.log.ends(), []);
}

#[test]
fn the_working_directory_must_be_a_granted_directory() {
    let world = World::with(&setting());
    world.write("file", "");
    let sandbox = Recorder::new(Ok(outcome(ProcessEnd::Exited { status: 0 })));
    for (cwd, code) in [
        ("..", Code::PathDenied),
        ("none", Code::FileNotFound),
        ("file", Code::FileWrongKind),
        ("own", Code::PathProtected),
    ] {
        assert!(
            !run(&world, &sandbox, json!({"executable": "prog", "cwd": cwd})).ok,
            "{cwd} {code}"
        );
    }
    assert!(sandbox.seen.lock().unwrap().is_empty());
}

#[test]
fn every_end_is_told_with_its_code() {
    for (end, code, words) in [
        (
            ProcessEnd::Exited { status: 3 },
            Code::ProcessFailed,
            "exit status 3",
        ),
        (
            ProcessEnd::Signaled { signal: 11 },
            Code::ProcessFailed,
            "signal 11",
        ),
        (
            ProcessEnd::TimedOut,
            Code::ProcessTimeout,
            "time limit of 60 s",
        ),
        (ProcessEnd::OutOfMemory, Code::ProcessMemory, "memory limit"),
        (ProcessEnd::Killed, Code::Cancelled, "Task was ended"),
    ] {
        let world = World::with(&setting());
        let result = run(
            &world,
            &Recorder::new(Ok(outcome(end))),
            json!({"executable": "prog"}),
        );
        assert_eq!((result.ok, result.code), (false, Some(code)));
        assert!(result.output.contains(words), "{}", result.output);
        assert_eq!(result.effects.len(), 1, "it ran");
        assert_eq!(world.log.ends(), [Some(EffectEnd::Done)]);
    }
}

#[test]
fn a_sandbox_that_refuses_or_fails_is_told() {
    for (error, code, end) in [
        (
            SandboxError::NotFound("/x".into()),
            Code::ProcessNotFound,
            EffectEnd::Undone,
        ),
        (
            SandboxError::NotExecutable {
                path: "/x".into(),
                errno: 13,
            },
            Code::ProcessNotExecutable,
            EffectEnd::Undone,
        ),
        (
            SandboxError::Failed {
                stage: "relay",
                reason: "gone".into(),
            },
            Code::SandboxFailed,
            EffectEnd::Unclear,
        ),
        (
            SandboxError::Unavailable {
                stage: "userns",
                reason: "no".into(),
            },
            Code::SandboxUnavailable,
            EffectEnd::Undone,
        ),
    ] {
        let world = World::with(&setting());
        let result = run(
            &world,
            &Recorder::new(Err(error)),
            json!({"executable": "prog"}),
        );
        assert_refused(&result, code);
        assert_eq!(world.log.ends(), [Some(end)]);
    }
}

#[test]
fn output_is_shown_with_what_was_left_out() {
    let world = World::with(&setting());
    let mut told = outcome(ProcessEnd::Exited { status: 1 });
    told.stdout = CapturedOutput {
        head: "first é".as_bytes()[..7].to_vec(),
        tail: "日last\n".as_bytes()[1..].to_vec(),
        total_bytes: 1_000_000,
        spooled: Some(PathBuf::from("/state/spool/1.out")),
        spooled_bytes: 1_000_000,
    };
    told.stderr = all(b"red \x1b[31mtext\r\n\tand \xFF\n");
    told.denials = vec![Denial {
        operation: "open".into(),
        target: "/etc/shadow\nok".into(),
        rule: "granted roots".into(),
        count: 2,
        errno: None,
    }];
    told.leftovers = 3;
    let result = run(
        &world,
        &Recorder::new(Ok(told)),
        json!({"executable": "prog"}),
    );
    let expected = "exit status 1, 1.500 s
stdout (1000000 bytes):
first 
[… 999986 bytes omitted, whole output at /state/spool/1.out]
last
stderr (22 bytes):
red \\u{1b}[31mtext\\r
\tand \u{FFFD}
denied by the sandbox; repeating will not help:
- open /etc/shadow\\nok: granted roots (x2)
3 processes still run; they end with the Task
";
    assert_eq!(result.output, expected);
    let mut halves = outcome(ProcessEnd::Exited { status: 0 });
    halves.stdout = CapturedOutput {
        head: "é".as_bytes()[..1].to_vec(),
        tail: "é".as_bytes()[1..].to_vec(),
        total_bytes: 2,
        spooled: None,
        spooled_bytes: 0,
    };
    let result = run(
        &world,
        &Recorder::new(Ok(halves)),
        json!({"executable": "prog"}),
    );
    assert!(result.output.contains("\né\n"), "{}", result.output);
    // A file that is only the beginning is not called the whole.
    let mut part = outcome(ProcessEnd::Exited { status: 0 });
    part.stdout = CapturedOutput {
        head: b"head".to_vec(),
        tail: b"tail".to_vec(),
        total_bytes: 5_000,
        spooled: Some(PathBuf::from("/state/spool/2.out")),
        spooled_bytes: 4_000,
    };
    let result = run(
        &world,
        &Recorder::new(Ok(part)),
        json!({"executable": "prog"}),
    );
    let said =
        "[… 4992 bytes omitted, the first 4000 bytes at /state/spool/2.out, the rest dropped]";
    assert!(result.output.contains(said), "{}", result.output);
}
