//! Ordinary use: exact ends, what is missing, streams, many at once.

use crate::support::world::{text, world};
use crate::support::{
    Spec, identity_of, once_command, ran_of, request, shell, standing, temporary,
};
use crate::{Checked, Test};
use policy::Code;
use policy::sandbox::{ProcessEnd, ProcessRequest, SandboxError};
use std::os::unix::fs::PermissionsExt as _;

pub const TESTS: &[(&str, Test)] = &[
    ("statuses_are_exact", statuses_are_exact),
    (
        "missing_programs_are_told_apart",
        missing_programs_are_told_apart,
    ),
    (
        "x_hash_another_file_is_refused",
        x_hash_another_file_is_refused,
    ),
    (
        "background_child_does_not_hang_the_caller",
        background_child_does_not_hang_the_caller,
    ),
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
    ("ordinary_programs_work", ordinary_programs_work),
    (
        "nul_in_an_argument_is_refused",
        nul_in_an_argument_is_refused,
    ),
];

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

/// A background child that holds stdout does not hold the caller.
fn background_child_does_not_hang_the_caller() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let sandbox = standing(&spec);
    let outcome = sandbox.run(&shell(&spec, "sleep 300 & echo done"))?;
    assert_eq!(
        (outcome.end, outcome.stdout.head.as_slice()),
        (ProcessEnd::Exited { status: 0 }, &b"done\n"[..])
    );
    Ok(sandbox.end()?)
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
