//! What is enforced is what is reported (X-PARTIAL), and what cannot be done is refused by name.

use crate::support::world::{text, world};
use crate::support::{self, Spec, prepare, ran_of, request, shell, standing, this_program};
use crate::{Checked, Test};
use policy::Code;
use policy::sandbox::{Control, Level, ProcessEnd, SandboxBackend as _};
use sandbox_linux::LinuxSandbox;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

pub const TESTS: &[(&str, Test)] = &[
    (
        "x_partial_enforcement_is_honest",
        x_partial_enforcement_is_honest,
    ),
    (
        "x_harness_4_a_permit_starts_only_its_own_sandbox",
        a_permit_starts_only_its_own_sandbox,
    ),
    ("root_runs_as_nobodys_user", root_runs_as_nobodys_user),
    (
        "root_with_roots_of_several_owners",
        root_with_roots_of_several_owners,
    ),
    (
        "sec_inv_03_the_root_of_everything_is_never_granted",
        the_root_of_everything_is_never_granted,
    ),
    (
        "x_partial_a_sandbox_in_a_sandbox",
        a_sandbox_in_a_sandbox_is_partial,
    ),
    (
        "root_on_overlayfs_reports_what_is_missing",
        root_on_overlayfs_reports_what_is_missing,
    ),
    (
        "x_partial_root_that_can_be_nobody_else_confines_as_a_user",
        root_that_can_be_nobody_else_confines_as_a_user,
    ),
];

/// X-PARTIAL, X-HARNESS-3: what is missing is named, the level follows, and what was prepared says what is started.
fn x_partial_enforcement_is_honest() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let prepared = prepare(&spec)?;
    let enforcement = prepared.enforcement();
    assert_eq!(enforcement.level(), Level::Full);
    let missing = enforcement.missing_controls();
    let mut expected = vec![Control::WorkspaceQuota];
    if !support::is_counted() {
        expected.push(Control::MemoryTree);
    }
    if !support::is_root() {
        expected.push(Control::UidSeparation);
    }
    expected.sort_unstable();
    assert_eq!(missing, expected);
    assert_eq!(&LinuxSandbox.survey(&spec.policy())?, enforcement);
    Ok(())
}

/// X-HARNESS-4: a permit of one prepared sandbox does not start another, whatever both say.
fn a_permit_starts_only_its_own_sandbox() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "r");
    let (one, other) = (prepare(&spec)?, prepare(&spec)?);
    assert_eq!(one.enforcement(), other.enforcement());
    let permit = one.enforcement().permit(&spec.policy()).unwrap();
    let error = other.start(permit).err().unwrap();
    assert_eq!(error.code(), Code::SandboxPartial);
    let permit = one.enforcement().permit(&spec.policy()).unwrap();
    Ok(one.start(permit)?.end()?)
}

/// As the host's root, no sandboxed process holds the host's user 0, and files are still the owner's.
fn root_runs_as_nobodys_user() -> Checked {
    if !support::is_root() {
        eprintln!("skipped, needs: root");
        return Ok(());
    }
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    if prepare(&spec)?
        .enforcement()
        .missing_controls()
        .contains(&Control::UidSeparation)
    {
        eprintln!("skipped, needs: a file system with id-mapped mounts");
        return Ok(());
    }
    let sandbox = standing(&spec);
    let outcome = sandbox.run(&shell(
        &spec,
        "cat /proc/self/uid_map; id -u; echo x > made; stat -c %u made",
    ))?;
    let out = ran_of(&outcome).stdout;
    let words: Vec<&str> = out.split_whitespace().collect();
    assert_eq!(words[1..], ["2130706433", "1", "0", "0"], "{out}");
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(std::fs::metadata(world.workspace.join("made"))?.uid(), 0);
    Ok(sandbox.end()?)
}

/// Roots of different owners: each is translated by itself.
fn root_with_roots_of_several_owners() -> Checked {
    if !support::is_root() {
        eprintln!("skipped, needs: root");
        return Ok(());
    }
    let world = world();
    let foreign = world.outside.join("foreign");
    std::fs::create_dir(&foreign)?;
    std::fs::write(foreign.join("file"), "foreign")?;
    for path in [&foreign, &foreign.join("file")] {
        std::os::unix::fs::chown(path, Some(12_345), Some(12_345))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    }
    let mut spec = Spec::new(&world.workspace, "rwd");
    spec.mounts.push((foreign.clone(), "rw".into()));
    let sandbox = standing(&spec);
    let script = format!(
        "cat {0}/file; echo new > {0}/new; cat {1}/secret",
        foreign.display(),
        world.outside.display()
    );
    let outcome = sandbox.run(&shell(&spec, &script))?;
    assert_eq!(ran_of(&outcome).stdout, "foreign", "{outcome:?}");
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(std::fs::metadata(foreign.join("new"))?.uid(), 12_345);
    Ok(sandbox.end()?)
}

fn the_root_of_everything_is_never_granted() -> Checked {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "r");
    for path in ["/", "/proc", "/dev"] {
        spec.mounts = vec![(path.into(), "r".into())];
        assert_eq!(
            prepare(&spec).err().map(|error| error.code()),
            Some(Code::PathDenied),
            "{path}"
        );
    }
    Ok(())
}

/// Inside a sandbox no namespace can be made: a second one is partial, so writing is refused by name and only read-only runs.
fn a_sandbox_in_a_sandbox_is_partial() -> Checked {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "rw");
    spec.protect.clear();
    let sandbox = standing(&spec);
    let marker = text(&world.workspace.join("ran"));
    let probe = text(&this_program());
    let writing = serde_json::to_string(&spec)?;
    let outcome = sandbox.run(&request(
        &spec,
        &[&probe, "--once", &writing, "/usr/bin/touch", &marker],
    ))?;
    assert_eq!(outcome.end, ProcessEnd::Exited { status: 126 });
    let errors = ran_of(&outcome).stderr;
    assert!(errors.contains("filesystem_view"), "{errors}");
    assert!(!world.workspace.join("ran").exists(), "it ran");
    Ok(sandbox.end()?)
}

/// Where owners cannot be translated (overlayfs), root's command runs as the owner without capabilities, and both controls
/// that this costs are named.
fn root_on_overlayfs_reports_what_is_missing() -> Checked {
    if !support::is_root() {
        eprintln!("skipped, needs: root");
        return Ok(());
    }
    let world = world();
    let base = world.outside.join("overlay");
    for name in ["lower", "upper", "merged"] {
        std::fs::create_dir_all(base.join(name))?;
    }
    let spec = Spec {
        workspace: base.join("merged"),
        ..Spec::new(&base.join("merged"), "rwd")
    };
    // In a mount namespace of its own, so that the machine sees none of it.
    let script = "mount -t tmpfs none \"$1/upper\" && mkdir \"$1/upper/u\" \"$1/upper/w\" && \
        mount -t overlay none -o \"lowerdir=$1/lower,upperdir=$1/upper/u,workdir=$1/upper/w\" \"$1/merged\" || exit 99; \
        exec \"$2\" --once \"$3\" /bin/sh -c 'echo x > new; cat new; cat /proc/self/uid_map; grep CapEff /proc/self/status'";
    let output = Command::new("/usr/bin/unshare")
        .args(["-m", "/bin/sh", "-c", script, "sh"])
        .arg(&base)
        .arg(this_program())
        .arg(serde_json::to_string(&spec)?)
        .env("ONCE_REPORT", "1")
        .output()?;
    if output.status.code() == Some(99) {
        eprintln!("skipped, needs: overlayfs");
        return Ok(());
    }
    let (out, report) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        out.starts_with("x\n") && out.contains("CapEff:\t0000000000000000"),
        "{out} {report}"
    );
    assert!(
        report.contains("UidSeparation")
            && report.contains("Pids") != support::is_counted()
            && report.contains("level: Full"),
        "{report}"
    );
    Ok(())
}

/// X-PARTIAL: in `unshare -r` and in containers that map one user, root may change neither user nor groups.
fn root_that_can_be_nobody_else_confines_as_a_user() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let secret = world.outside.join("not-granted");
    std::fs::write(&secret, "secret")?;
    let script = "echo x > of-its-root; cat of-its-root /proc/self/setgroups; id -u; cat \"$1\" 2>&1; \
        grep CapEff /proc/self/status";
    let run = |confined: bool| {
        let mut command = Command::new("/usr/bin/unshare");
        command.arg("-r");
        if confined {
            command
                .arg(this_program())
                .args(["--once", &serde_json::to_string(&spec)?]);
        }
        command
            .args(["/bin/sh", "-c", script, "sh"])
            .arg(&secret)
            .current_dir(&world.workspace)
            .env("ONCE_REPORT", "1")
            .output()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let control = run(false)?;
    let seen = text(&control.stdout);
    if !control.status.success() {
        eprintln!("skipped, needs: unshare --map-root-user");
        return Ok(());
    }
    assert!(
        seen.starts_with("x\ndeny\n0\nsecret") && !seen.contains("CapEff:\t0000000000000000"),
        "control: {seen}"
    );
    let output = run(true)?;
    let (out, report) = (text(&output.stdout), text(&output.stderr));
    assert!(
        out.starts_with("x\ndeny\n0\ncat: ")
            && out.contains("No such file or directory")
            && out.contains("CapEff:\t0000000000000000"),
        "{out} {report}"
    );
    assert!(
        report.contains("UidSeparation") && report.contains("level: Full"),
        "{report}"
    );
    Ok(())
}
