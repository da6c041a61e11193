//! Lives and deaths: exact ends, limits, output, residue, and what a Task's sandbox must survive.
//!
//! SEC-INV-10; PRC-06; ST-11, ST-17; AT-08, AT-12; X-HASH, X-PARTIAL; P-1 and P-2 are measured in the examples and benches.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test with a main of its own: it may fail, connect and print"
)]

mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use policy::Code;
use policy::effective::NetworkPolicy;
use policy::sandbox::{
    Control, HostResource, Level, ProcessEnd, ProcessRequest, SandboxBackend as _, SandboxError,
};
use sandbox_linux::LinuxSandbox;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use support::world::{eventually, is_alive, text, world};
use support::{
    Spec, confined, identity_of, once_command, prepare, ran_of, request, shell, standing,
    temporary, this_program,
};

type Checked = Result<(), Failed>;

fn within(limit: u64, what: impl FnOnce() -> Checked) -> Checked {
    let started = Instant::now();
    what()?;
    let took = started.elapsed();
    assert!(took < Duration::from_millis(limit), "took {took:?}");
    Ok(())
}

fn statuses_are_exact() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let sandbox = standing(&spec);
    for (script, end) in [
        ("exit 0", ProcessEnd::Exited { status: 0 }),
        ("exit 7", ProcessEnd::Exited { status: 7 }),
        ("exit 255", ProcessEnd::Exited { status: 255 }),
        ("kill -TERM $$", ProcessEnd::Signaled { signal: 15 }),
        ("kill -SEGV $$", ProcessEnd::Signaled { signal: 11 }),
        ("kill -KILL $$", ProcessEnd::Signaled { signal: 9 }),
        // As in a pipe whose reader has gone: not ignored.
        ("kill -PIPE $$", ProcessEnd::Signaled { signal: 13 }),
    ] {
        assert_eq!(sandbox.run(&shell(&spec, script))?.end, end, "{script}");
        let once = once_command(&spec, &["/bin/sh", "-c", script]).status()?;
        assert_eq!(once.code(), Some(end.exit_code()), "{script}");
    }
    Ok(sandbox.end()?)
}

fn missing_programs_are_told_apart() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwdx");
    std::fs::write(world.workspace.join("plain"), "x")?;
    std::fs::write(world.workspace.join("lost"), "#!/nonexistent/interpreter\n")?;
    std::fs::set_permissions(
        world.workspace.join("lost"),
        std::fs::Permissions::from_mode(0o755),
    )?;
    let sandbox = standing(&spec);
    let (plain, lost) = (
        text(&world.workspace.join("plain")),
        text(&world.workspace.join("lost")),
    );
    let code = |program: &str| sandbox.run(&request(&spec, &[program])).unwrap_err().code();
    assert_eq!(code("/usr/bin/no-such-program"), Code::ProcessNotFound);
    assert_eq!(code(&plain), Code::ProcessNotExecutable);
    assert_eq!(code(&lost), Code::ProcessNotExecutable);
    let once = |program: &str| {
        once_command(&spec, &[program])
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!(once("no-such-program"), Some(127));
    assert_eq!(once(&plain), Some(126));
    assert_eq!(once(&lost), Some(126));
    assert_eq!(once("true"), Some(0));
    let mut elsewhere = shell(&spec, "pwd");
    elsewhere.cwd = world.outside.clone();
    assert_eq!(
        sandbox.run(&elsewhere).unwrap_err().code(),
        Code::FileNotFound
    );
    Ok(sandbox.end()?)
}

/// X-HASH: another file at the approved path does not start; the approved one does, script or not.
fn x_hash_another_file_is_refused() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rx");
    let sandbox = standing(&spec);
    for name in ["program", "script"] {
        let path = world.workspace.join(name);
        let mut exact = request(&spec, &[&text(&path)]);
        exact.program.identity = Some(identity_of(&path));
        assert_eq!(
            sandbox.run(&exact)?.end,
            ProcessEnd::Exited { status: 0 },
            "{name}"
        );
        let replacement = world.workspace.join("replacement");
        std::fs::copy(&path, &replacement)?;
        std::fs::rename(&replacement, &path)?;
        let error = sandbox.run(&exact).unwrap_err();
        assert_eq!(error.code(), Code::ExecutableHashChanged, "{name}");
    }
    let once = |identity: &std::path::Path| {
        let program = text(&world.workspace.join("program"));
        once_command(&spec, &[&program])
            .env("ONCE_IDENTITY", identity)
            .status()
            .unwrap()
            .code()
    };
    assert_eq!(once(&world.workspace.join("program")), Some(0));
    assert_eq!(once(&world.workspace.join("script")), Some(126));
    Ok(sandbox.end()?)
}

/// ST-11, AT-08: SIGTERM ignored, own session, stopped: the time limit ends all of it, and the sandbox goes on.
fn st_11_timeout_ends_the_tree() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let sandbox = standing(&spec);
    let marker = format!("77{:06}", std::process::id() % 1_000_000);
    let script = format!(
        "setsid sleep {marker} & (setsid sh -c 'kill -STOP $$; sleep {marker}' &) ; exec {} --probe keep-going",
        text(&this_program())
    );
    let mut endless = shell(&spec, &script);
    endless.timeout = Duration::from_millis(300);
    within(5000, || {
        assert_eq!(sandbox.run(&endless)?.end, ProcessEnd::TimedOut);
        Ok(())
    })?;
    eventually("the tree is gone", || !is_alive(&marker));
    assert!(sandbox.run(&shell(&spec, "exit 0"))?.end.is_success());
    sandbox.end()?;
    let started = Instant::now();
    let once = once_command(&spec, &["/bin/sh", "-c", &script])
        .env("ONCE_TIMEOUT_MS", "300")
        .status()?;
    assert_eq!(once.code(), Some(124));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(!is_alive(&marker), "one-shot: something outlived it");
    Ok(())
}

/// PRC-06, SEC-INV-10: daemons are counted, and dead after the end.
fn sec_inv_10_daemons_die_with_the_task() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let marker = format!("78{:06}", std::process::id() % 1_000_000);
    let script = format!("(setsid sleep {marker} </dev/null >/dev/null 2>&1 &) ; exit 0");
    let sandbox = standing(&spec);
    let outcome = sandbox.run(&shell(&spec, &script))?;
    assert_eq!(outcome.leftovers, 1);
    // While it executes its program a process shows no command line.
    eventually("the daemon runs", || is_alive(&marker));
    sandbox.end()?;
    assert!(!is_alive(&marker), "a daemon outlived the Task");
    // A second call is fine, and nothing runs any more.
    sandbox.end()?;
    assert!(sandbox.run(&shell(&spec, "exit 0")).is_err());
    let output = once_command(&spec, &["/bin/sh", "-c", &script])
        .env("ONCE_REPORT", "1")
        .output()?;
    assert!(!is_alive(&marker), "a daemon outlived the command");
    assert!(String::from_utf8_lossy(&output.stderr).contains("leftovers: 1"));
    Ok(())
}

/// A background child that holds stdout does not hold the caller.
fn background_child_does_not_hang_the_caller() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let sandbox = standing(&spec);
    within(3000, || {
        let outcome = sandbox.run(&shell(&spec, "sleep 30 & echo done"))?;
        assert_eq!(
            (outcome.end, outcome.stdout.head.as_slice()),
            (ProcessEnd::Exited { status: 0 }, &b"done\n"[..])
        );
        Ok(())
    })?;
    Ok(sandbox.end()?)
}

/// ST-17: the server dies; helper, init and every program follow.
fn st_17_server_killed_takes_everything_along() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let marker = format!("79{:06}", std::process::id() % 1_000_000);
    let mut server = Command::new(this_program())
        .arg("--server")
        .arg(serde_json::to_string(&spec)?)
        .arg(format!("setsid sleep {marker} & sleep {marker}"))
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line)?;
    let pids: Vec<i32> = line
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    eventually("the programs run", || is_alive(&marker));
    server.kill()?;
    server.wait()?;
    eventually("the programs are gone", || !is_alive(&marker));
    for pid in pids {
        eventually("helper and init are gone", || is_gone(pid));
    }
    // The same for a killed one-shot.
    let mut once = once_command(
        &spec,
        &[
            "/bin/sh",
            "-c",
            &format!("setsid sleep {marker} & sleep {marker}"),
        ],
    )
    .spawn()?;
    eventually("the programs run", || is_alive(&format!("sleep\0{marker}")));
    once.kill()?;
    once.wait()?;
    eventually("the programs are gone", || {
        !is_alive(&format!("sleep\0{marker}"))
    });
    Ok(())
}

/// Not there, or dead and not yet reaped by the machine's init.
fn is_gone(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" Z"))
    })
}

/// What the runtime does: a running program in a server that is then killed.
fn server_main(spec: &str, script: &str) -> ! {
    let spec: Spec = serde_json::from_str(spec).unwrap();
    let prepared = prepare(&spec).unwrap();
    let pids: Vec<String> = prepared
        .host_resources()
        .iter()
        .map(|resource| match resource {
            HostResource::Process { pid, .. } => pid.to_string(),
            other => panic!("unexpected {other:?}"),
        })
        .collect();
    let permit = prepared.enforcement().permit(&spec.policy()).unwrap();
    let sandbox = prepared.start(permit).unwrap();
    println!("{}", pids.join(" "));
    let outcome = sandbox.run(&shell(&spec, script));
    panic!("the program ended: {outcome:?}")
}

/// A program that kills all it can reach, or stops its own zygote, harms only itself.
fn zygote_is_replaced() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let sandbox = standing(&spec);
    let attacks = [
        "kill -9 -1; sleep 5",
        "kill -STOP -1; sleep 5",
        "kill -TERM -1; exit 0",
        "for p in $(seq 2 60); do [ $p = $$ ] || kill -9 $p; done 2>/dev/null; exit 0",
        "for p in $(seq 2 90); do [ $p = $$ ] || kill -STOP $p; done 2>/dev/null; exit 0",
    ];
    for attack in attacks {
        within(4000, || {
            // How the attacker ends is its own business.
            let _end = sandbox.run(&shell(&spec, attack));
            let after = sandbox.run(&shell(&spec, "echo alive"))?;
            assert_eq!(after.stdout.head, b"alive\n", "{attack}: {after:?}");
            Ok(())
        })?;
    }
    Ok(sandbox.end()?)
}

fn fork_bomb_is_bounded() -> Checked {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "r");
    spec.processes = 50;
    if prepare(&spec)?
        .enforcement()
        .missing_controls()
        .contains(&Control::Pids)
    {
        eprintln!("skipped, needs: a kernel user of its own");
        return Ok(());
    }
    let probe = text(&this_program());
    for way in support::WAYS {
        let line = confined(way, &spec, &[&probe, "--probe", "forks", "300"]).stdout;
        let made: u32 = line
            .split_whitespace()
            .nth(1)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        assert!(
            line.contains(&format!("ERRNO {}", libc::EAGAIN)),
            "{way:?}: {line}"
        );
        assert!((40..=52).contains(&made), "{way:?}: {line}");
    }
    Ok(())
}

fn memory_hog_is_stopped() -> Checked {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "r");
    spec.memory_mb = 128;
    let probe = text(&this_program());
    let sandbox = standing(&spec);
    let fits = sandbox.run(&request(&spec, &[&probe, "--probe", "hog", "64"]))?;
    assert_eq!(ran_of(&fits).stdout, "OK 64 MiB\n");
    within(10_000, || {
        let outcome = sandbox.run(&request(&spec, &[&probe, "--probe", "hog", "4000"]))?;
        assert_eq!(outcome.end, ProcessEnd::OutOfMemory);
        Ok(())
    })?;
    assert!(sandbox.run(&shell(&spec, "exit 0"))?.end.is_success());
    sandbox.end()?;
    let once = once_command(&spec, &[&probe, "--probe", "hog", "4000"]).status()?;
    assert_eq!(once.code(), Some(137));
    Ok(())
}

/// 100 MB of output: head and tail kept, the rest intact in a file only the user can read, memory flat.
fn output_is_bounded_and_spooled() -> Checked {
    let world = world();
    let spool = temporary();
    let spec = Spec::new(&world.workspace, "r");
    let sandbox = standing(&spec);
    let mut much = shell(
        &spec,
        "echo first; head -c 104857600 /dev/zero; echo last; echo error >&2",
    );
    much.spool_directory = Some(spool.path().to_path_buf());
    let before = peak_memory();
    let outcome = sandbox.run(&much)?;
    let grown = peak_memory() - before;
    assert!(outcome.end.is_success(), "{:?}", outcome.end);
    let out = &outcome.stdout;
    assert_eq!(out.total_bytes, 104_857_600 + 11);
    assert_eq!(out.omitted_bytes(), out.total_bytes - (64 << 10));
    assert!(out.head.starts_with(b"first\n\0") && out.tail.ends_with(b"\0last\n"));
    let file = out.spooled.as_ref().unwrap();
    let metadata = std::fs::metadata(file)?;
    assert_eq!(
        (metadata.len(), metadata.permissions().mode() & 0o777),
        (out.total_bytes, 0o600)
    );
    assert_eq!(outcome.stderr.head, b"error\n");
    assert_eq!(outcome.stderr.spooled, None);
    assert!(grown < 32 << 10, "grew by {grown} KiB");
    // Without a place for it the rest is counted and dropped.
    let dropped = sandbox.run(&shell(&spec, "head -c 1000000 /dev/zero"))?;
    assert_eq!(
        (dropped.stdout.total_bytes, dropped.stdout.spooled),
        (1_000_000, None)
    );
    Ok(sandbox.end()?)
}

/// Peak resident KiB of this process.
fn peak_memory() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn stdin_and_long_arguments_arrive() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "r");
    let sandbox = standing(&spec);
    let mut cat = request(&spec, &["/bin/cat"]);
    let bytes: Vec<u8> = (0..=255u8).cycle().take(50_000).collect();
    cat.stdin = Some(bytes.clone());
    let outcome = sandbox.run(&cat)?;
    assert_eq!([outcome.stdout.head, outcome.stdout.tail].concat(), bytes);
    let long = "y".repeat(120_000);
    let echoed = sandbox.run(&request(
        &spec,
        &["/bin/sh", "-c", "printf %s \"$1\" | wc -c", "sh", &long],
    ))?;
    assert_eq!(ran_of(&echoed).stdout.trim(), "120000");
    let many: Vec<String> = (0..5000).map(|n| n.to_string()).collect();
    let mut argv = vec!["/bin/sh", "-c", "echo $#", "sh"];
    argv.extend(many.iter().map(String::as_str));
    assert_eq!(
        ran_of(&sandbox.run(&request(&spec, &argv))?).stdout,
        "5000\n"
    );
    // Input nobody reads does not hang.
    let mut unread = shell(&spec, "exit 3");
    unread.stdin = Some(vec![0; 1 << 20]);
    assert_eq!(sandbox.run(&unread)?.end, ProcessEnd::Exited { status: 3 });
    Ok(sandbox.end()?)
}

fn twenty_sandboxes_on_one_workspace() -> Checked {
    let world = world();
    std::fs::create_dir_all(world.workspace.join(".git/hooks"))?;
    std::fs::write(world.workspace.join(".git/config"), "x")?;
    let spec = Spec::new(&world.workspace, "rwd");
    let results: Vec<Checked> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..20)
            .map(|number| {
                let spec = &spec;
                scope.spawn(move || -> Checked {
                    let sandbox = standing(spec);
                    let script = format!("echo {number} > f{number}; cat f{number}; rm f{number}");
                    let outcome = sandbox.run(&shell(spec, &script))?;
                    assert_eq!(
                        ran_of(&outcome).stdout,
                        format!("{number}\n"),
                        "{outcome:?}"
                    );
                    Ok(sandbox.end()?)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    results.into_iter().collect()
}

fn concurrent_programs_in_one_sandbox() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let sandbox = standing(&spec);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (sandbox, spec) = (&sandbox, &spec);
            scope.spawn(move || {
                for _ in 0..10 {
                    let outcome = sandbox
                        .run(&shell(spec, &format!("exit {number}")))
                        .unwrap();
                    assert_eq!(outcome.end, ProcessEnd::Exited { status: number });
                }
            });
        }
    });
    Ok(sandbox.end()?)
}

/// `kill` from another thread ends a running program.
fn kill_ends_a_running_program() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let sandbox = standing(&spec);
    let other = std::sync::Arc::clone(&sandbox);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        other.kill();
    });
    within(5000, || {
        assert_eq!(
            sandbox.run(&shell(&spec, "sleep 100"))?.end,
            ProcessEnd::Killed
        );
        Ok(())
    })?;
    killer.join().unwrap();
    Ok(sandbox.end()?)
}

/// X-PARTIAL, X-HARNESS-3: what is missing is named, the level follows, and what was prepared says what is started.
fn x_partial_enforcement_is_honest() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let prepared = prepare(&spec)?;
    let enforcement = prepared.enforcement();
    assert_eq!(enforcement.level(), Level::Full);
    let missing = enforcement.missing_controls();
    assert!(missing.contains(&Control::WorkspaceQuota) && missing.contains(&Control::MemoryTree));
    if !support::is_root() {
        assert!(missing.contains(&Control::UidSeparation));
    }
    assert_eq!(&LinuxSandbox.survey(&spec.policy())?, enforcement);
    Ok(())
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

/// Neither silently narrower nor wider: what this version cannot do is refused by name.
fn network_levels_of_later_issues_are_refused() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "r");
    let policy = spec.policy();
    let mut draft = support::draft_of(&spec);
    draft.network = NetworkPolicy::Local { ports: [80].into() };
    let narrowed = draft
        .freeze(&policy::effective::Ceiling::mode(policy.mode()))
        .unwrap();
    let error = LinuxSandbox.survey(&narrowed).unwrap_err();
    assert_eq!(error.code(), Code::NetworkDenied);
    Ok(())
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
    assert_eq!(status.code(), Some(128 + 15));
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

/// Python's asyncio and multiprocessing, where there is a Python.
fn ordinary_programs_work() -> Checked {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        eprintln!("skipped, needs: /usr/bin/python3");
        return Ok(());
    }
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let sandbox = standing(&spec);
    let script = "import asyncio, multiprocessing, tempfile, subprocess, pty\n\
        async def main():\n    p = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)\n    return (await p.communicate(b'via asyncio'))[0]\n\
        print(asyncio.run(main()))\n\
        print(multiprocessing.get_context('fork').Pool(2).map(abs, [-1, -2]))\n\
        tempfile.mkstemp()\npty.openpty()\nprint(subprocess.run(['sh','-c','echo sub'],capture_output=True).stdout)\n";
    let outcome = sandbox.run(&request(&spec, &["/usr/bin/python3", "-c", script]))?;
    assert_eq!(
        ran_of(&outcome).stdout,
        "b'via asyncio'\n[1, 2]\nb'sub\\n'\n",
        "{outcome:?}"
    );
    Ok(sandbox.end()?)
}

fn a_dropped_sandbox_leaves_nothing() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "r");
    let prepared = prepare(&spec)?;
    let resources = prepared.host_resources();
    assert_eq!(resources.len(), 2);
    drop(prepared);
    for resource in resources {
        let HostResource::Process { pid, start_ticks } = resource else {
            return Err("unexpected resource".into());
        };
        assert!(start_ticks > 0);
        assert!(is_gone(pid), "{pid} is left");
    }
    Ok(())
}

fn nul_in_an_argument_is_refused() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "r");
    let sandbox = standing(&spec);
    let bad = ProcessRequest {
        argv: vec!["sh".into(), "a\0b".into()],
        ..shell(&spec, "exit 0")
    };
    assert!(matches!(
        sandbox.run(&bad),
        Err(SandboxError::Failed {
            stage: "request",
            ..
        })
    ));
    Ok(sandbox.end()?)
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

/// SANDBOX_UNAVAILABLE where no namespace can be made: shown inside a sandbox, where none can.
fn no_namespaces_fails_closed() -> Checked {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "rw");
    spec.protect.clear();
    let inner = serde_json::to_string(&spec)?;
    let sandbox = standing(&spec);
    let marker = text(&world.workspace.join("ran"));
    let outcome = sandbox.run(&request(
        &spec,
        &[
            &text(&this_program()),
            "--once",
            &inner,
            "/usr/bin/touch",
            &marker,
        ],
    ))?;
    assert_eq!(outcome.end, ProcessEnd::Exited { status: 125 });
    assert!(
        ran_of(&outcome)
            .stderr
            .contains("SANDBOX_UNAVAILABLE at namespaces"),
        "{outcome:?}"
    );
    assert!(!world.workspace.join("ran").exists(), "it ran unconfined");
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
            && report.contains("Pids")
            && report.contains("level: Full"),
        "{report}"
    );
    Ok(())
}

type Test = fn() -> Checked;

const TESTS: &[(&str, Test)] = &[
    ("statuses_are_exact", statuses_are_exact),
    (
        "missing_programs_are_told_apart",
        missing_programs_are_told_apart,
    ),
    (
        "x_hash_another_file_is_refused",
        x_hash_another_file_is_refused,
    ),
    ("st_11_timeout_ends_the_tree", st_11_timeout_ends_the_tree),
    (
        "sec_inv_10_prc_06_daemons_die_with_the_task",
        sec_inv_10_daemons_die_with_the_task,
    ),
    (
        "background_child_does_not_hang_the_caller",
        background_child_does_not_hang_the_caller,
    ),
    (
        "st_17_server_killed_takes_everything_along",
        st_17_server_killed_takes_everything_along,
    ),
    ("st_11_zygote_is_replaced", zygote_is_replaced),
    ("st_11_fork_bomb_is_bounded", fork_bomb_is_bounded),
    ("st_11_memory_hog_is_stopped", memory_hog_is_stopped),
    (
        "output_is_bounded_and_spooled",
        output_is_bounded_and_spooled,
    ),
    (
        "stdin_and_long_arguments_arrive",
        stdin_and_long_arguments_arrive,
    ),
    (
        "at_12_twenty_sandboxes_on_one_workspace",
        twenty_sandboxes_on_one_workspace,
    ),
    (
        "concurrent_programs_in_one_sandbox",
        concurrent_programs_in_one_sandbox,
    ),
    (
        "sec_inv_10_kill_ends_a_running_program",
        kill_ends_a_running_program,
    ),
    (
        "x_partial_enforcement_is_honest",
        x_partial_enforcement_is_honest,
    ),
    ("root_runs_as_nobodys_user", root_runs_as_nobodys_user),
    (
        "root_with_roots_of_several_owners",
        root_with_roots_of_several_owners,
    ),
    (
        "x_net_levels_of_later_issues_are_refused",
        network_levels_of_later_issues_are_refused,
    ),
    (
        "sec_inv_03_the_root_of_everything_is_never_granted",
        the_root_of_everything_is_never_granted,
    ),
    ("once_forwards_signals", once_forwards_signals),
    ("once_with_closed_streams", once_with_closed_streams),
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
        "once_without_its_record_starts_nothing",
        once_without_its_record_starts_nothing,
    ),
    ("ordinary_programs_work", ordinary_programs_work),
    (
        "sec_inv_10_a_dropped_sandbox_leaves_nothing",
        a_dropped_sandbox_leaves_nothing,
    ),
    (
        "sec_inv_03_once_refuses_directories_as_streams",
        once_refuses_directories_as_streams,
    ),
    ("no_namespaces_fails_closed", no_namespaces_fails_closed),
    (
        "root_on_overlayfs_reports_what_is_missing",
        root_on_overlayfs_reports_what_is_missing,
    ),
    (
        "nul_in_an_argument_is_refused",
        nul_in_an_argument_is_refused,
    ),
];

fn main() -> ExitCode {
    support::take_over();
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|word| word == "--server") {
        server_main(&arguments[2], &arguments[3]);
    }
    let trials = TESTS
        .iter()
        .map(|(name, test)| Trial::test(*name, test))
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
