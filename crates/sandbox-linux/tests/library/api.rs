//! The door: what it refuses before anything is built, and that nothing passes beside it.

use crate::support::world::world;
use crate::support::{Spec, draft_of, temporary};
use crate::{Checked, Test};
use policy::effective::Ceiling;
use policy::sandbox::{Control, Enforcement, ProcessEnd, SandboxError};
use policy::{Code, SandboxMode};
use sandbox_linux::confine;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

pub const TESTS: &[(&str, Test)] = &[
    ("argv_is_judged_first", argv_is_judged_first),
    ("x_mode_danger_is_no_sandbox", danger_is_no_sandbox),
    ("x_harness_1_partial_is_the_callers_to_judge", partial),
    ("output_from_many_threads", output_from_many_threads),
    ("run_wants_one_thread", run_wants_one_thread),
    ("not_found_is_told_apart", not_found),
];

fn detail(error: &SandboxError) -> (Code, String) {
    let SandboxError::Refused(refusal) = error else {
        panic!("{error}");
    };
    let reason = refusal.reason.as_ref().unwrap();
    (
        refusal.code,
        format!("{} {:?}", reason.id(), reason.arguments()),
    )
}

/// Empty, and with a NUL: refused with what is wrong, before anything is built.
fn argv_is_judged_first() -> Checked {
    let directory = temporary();
    let policy = Spec::new(&directory.path().canonicalize()?, "rw").policy();
    let none: [&str; 0] = [];
    for (argv, wrong) in [
        (Vec::from(none.map(OsString::from)), "mcp.field_empty []"),
        (
            vec!["a".into(), OsString::from_vec(b"b\0c".into())],
            r#"reason.nul_in_argument [("index", "1")]"#,
        ),
        (
            vec![OsString::from_vec(b"\0".into())],
            r#"reason.nul_in_argument [("index", "0")]"#,
        ),
    ] {
        let error = confine(argv, &policy).err().unwrap();
        assert_eq!(
            detail(&error),
            (Code::ToolArgumentsInvalid, wrong.to_owned())
        );
    }
    Ok(())
}

/// X-MODE, HARNESS: what is not confined does not pass through the sandbox's door.
fn danger_is_no_sandbox() -> Checked {
    let directory = temporary();
    let mut draft = draft_of(&Spec::new(&directory.path().canonicalize()?, "rw"));
    draft.mode = SandboxMode::DangerFullAccess;
    let policy = draft
        .freeze(&Ceiling::mode(SandboxMode::DangerFullAccess))
        .unwrap();
    let error = confine(["true"], &policy).err().unwrap();
    assert_eq!(error.code(), Code::ApprovalRequired);
    Ok(())
}

/// X-HARNESS-1, X-PARTIAL: `confine` reports and does not judge; a permit from elsewhere is not enough for a start.
fn partial() -> Checked {
    let directory = temporary();
    let policy = Spec::new(&directory.path().canonicalize()?, "rw").policy();
    let confined = confine(["true"], &policy)?;
    let other = confine(["true"], &policy)?;
    let foreign = other.enforcement().permit(&policy).unwrap();
    let error = confined.output(foreign, None).err().unwrap();
    assert_eq!(error.code(), Code::SandboxPartial);
    let partial = Enforcement::missing([Control::FilesystemRights]);
    assert_eq!(
        partial.permit(&policy).err().map(|refusal| refusal.code),
        Some(Code::SandboxPartial)
    );
    Ok(())
}

/// Sandboxes of their own, at the same time, with input and output. They cannot change what is not theirs.
fn output_from_many_threads() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let policy = spec.policy();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (policy, outside) = (&policy, &world.outside);
            scope.spawn(move || {
                let script = format!(
                    "cat; echo {number} > {number}; cat {}/secret",
                    outside.display()
                );
                let confined = confine(["sh", "-c", &script], policy).unwrap();
                let permit = confined.enforcement().permit(policy).unwrap();
                let outcome = confined.output(permit, Some(b"given".to_vec())).unwrap();
                assert_eq!(outcome.end, ProcessEnd::Exited { status: 1 });
                assert_eq!(outcome.stdout.head, b"given");
                let said = String::from_utf8_lossy(&outcome.stderr.head).into_owned();
                assert!(said.contains("No such file or directory"), "{said}");
            });
        }
    });
    for number in 0..4 {
        assert!(world.workspace.join(number.to_string()).exists());
    }
    Ok(())
}

/// The launcher of `run` shares its memory; with other threads that is refused, and nothing starts.
fn run_wants_one_thread() -> Checked {
    let world = world();
    let policy = Spec::new(&world.workspace, "rwd").policy();
    let confined = confine(["sh", "-c", "echo x > ran"], &policy)?;
    let permit = confined.enforcement().permit(&policy).unwrap();
    let run = || confined.run(permit, |_| Ok(())).err().unwrap();
    let error = std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    assert!(
        matches!(
            error,
            SandboxError::Unavailable {
                stage: "threads",
                ..
            }
        ),
        "{error}"
    );
    assert!(!world.workspace.join("ran").exists());
    Ok(())
}

fn not_found() -> Checked {
    let world = world();
    let policy = Spec::new(&world.workspace, "rwd").policy();
    for name in ["no-such-command-here", "", "/no/such/file"] {
        let confined = confine([name], &policy)?;
        assert_eq!(confined.program(), None);
        let permit = confined.enforcement().permit(&policy).unwrap();
        let error = confined.output(permit, None).err().unwrap();
        assert_eq!(error, SandboxError::NotFound(name.into()));
    }
    Ok(())
}
