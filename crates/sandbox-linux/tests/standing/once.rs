//! `Confined::run` as a person's or a script's command: signals, streams, records.

use crate::support::world::world;
use crate::support::{Spec, once_command};
use crate::{Checked, Test};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Stdio;
use std::time::Duration;

pub const TESTS: &[(&str, Test)] = &[
    ("once_forwards_signals", once_forwards_signals),
    ("once_with_closed_streams", once_with_closed_streams),
    (
        "once_without_its_record_starts_nothing",
        once_without_its_record_starts_nothing,
    ),
    ("streams_open_again_by_name", streams_open_again_by_name),
    (
        "once_ends_with_the_second_sigterm",
        once_ends_with_the_second_sigterm,
    ),
    (
        "once_under_an_ignored_sigchld",
        once_under_an_ignored_sigchld,
    ),
    (
        "sec_inv_03_once_refuses_directories_as_streams",
        once_refuses_directories_as_streams,
    ),
];

/// Signals to `exec` reach the command, and its end is ours.
fn once_forwards_signals() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    for (signal, wanted) in [(libc::SIGTERM, 15), (libc::SIGINT, 2), (libc::SIGHUP, 1)] {
        let script =
            format!("trap 'exit 4{wanted}' {wanted}; echo ready; while :; do sleep 0.05; done");
        let mut command = once_command(&spec, &["/bin/sh", "-c", &script]);
        // SAFETY: only sets signals' actions in the child. A shell cannot trap what its caller ignores, as nohup does.
        unsafe {
            command.pre_exec(|| {
                for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                    libc::signal(number, libc::SIG_DFL);
                }
                Ok(())
            });
        }
        let mut once = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(once.stdout.take().unwrap()).read_line(&mut line)?;
        assert_eq!(line, "ready\n");
        // SAFETY: a signal to our own child.
        assert_eq!(unsafe { libc::kill(once.id() as i32, signal) }, 0);
        let expected = format!("4{wanted}").parse::<i32>().unwrap() & 0xff;
        assert_eq!(once.wait()?.code(), Some(expected));
    }
    Ok(())
}

/// Closed standard streams do not become some other file.
fn once_with_closed_streams() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let mut command = once_command(&spec, &["/bin/sh", "-c", "cat; exit 5"]);
    // SAFETY: only closes descriptors in the child.
    unsafe {
        command.pre_exec(|| {
            libc::close(0);
            libc::close(1);
            libc::close(2);
            Ok(())
        });
    }
    let status = command.status()?;
    assert_eq!((status.code(), status.signal()), (Some(5), None));
    Ok(())
}

/// DESIGN §12.3, SEC-INV-10: a record that cannot be written stops the command before it starts. Control: with the record it runs.
fn once_without_its_record_starts_nothing() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    for (unrecorded, expected) in [(true, Some(125)), (false, Some(0))] {
        let mut command = once_command(&spec, &["/bin/sh", "-c", "echo x > ran"]);
        if unrecorded {
            command.env("ONCE_UNRECORDED", "1");
        }
        assert_eq!(command.status()?.code(), expected);
        assert_eq!(world.workspace.join("ran").exists(), !unrecorded);
    }
    Ok(())
}

/// A script opens its own streams again by name, also where root's pipes meet another user inside.
fn streams_open_again_by_name() -> Checked {
    use std::io::Write as _;
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let mut child = once_command(
        &spec,
        &["/bin/sh", "-c", "cat /dev/stdin; echo err > /dev/stderr"],
    )
    .stdin(std::process::Stdio::piped())
    .stdout(std::process::Stdio::piped())
    .stderr(std::process::Stdio::piped())
    .spawn()?;
    child.stdin.take().unwrap().write_all(b"in")?;
    let output = child.wait_with_output()?;
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"in"[..], &b"err\n"[..])
    );
    Ok(())
}

/// REC-02, REC-03: a command that ignores SIGTERM ends with the second one.
fn once_ends_with_the_second_sigterm() -> Checked {
    use std::io::Read as _;
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let mut child = once_command(
        &spec,
        &[
            "/bin/sh",
            "-c",
            "trap '' TERM; echo ready; while :; do sleep 0.05; done",
        ],
    )
    .stdout(std::process::Stdio::piped())
    .spawn()?;
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready)?;
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    let give = || rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    give()?;
    // Two pending signals of one number are one, so the second waits until the first was taken.
    let status = loop {
        std::thread::sleep(Duration::from_millis(50));
        match child.try_wait()? {
            Some(status) => break status,
            None => give()?,
        }
    };
    // One more may come when it no longer listens.
    use std::os::unix::process::ExitStatusExt as _;
    assert!(
        status.code() == Some(128 + 15) || status.signal() == Some(15),
        "{status:?}"
    );
    Ok(())
}

/// A caller that ignores SIGCHLD does not make us wait for ever.
fn once_under_an_ignored_sigchld() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let mut command = once_command(&spec, &["/bin/sh", "-c", "exit 3"]);
    // SAFETY: only sets a signal's action in the child.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            Ok(())
        });
    }
    assert_eq!(command.status()?.code(), Some(3));
    Ok(())
}

/// SEC-INV-03: a directory as a standard stream leads out of any view.
fn once_refuses_directories_as_streams() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "r");
    let output = once_command(&spec, &["/bin/true"])
        .stdin(std::fs::File::open("/")?)
        .output()?;
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    Ok(())
}
