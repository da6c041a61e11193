//! What holds without namespaces: lives and deaths, own files, signals, metadata, the private area.

use crate::support::machine::named;
use crate::support::world::{eventually, is_alive, text, world};
use crate::support::{Spec, prepare, shell, this_program};
use crate::{Checked, Test, read_only, run};
use policy::sandbox::HostResource;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

pub const TESTS: &[(&str, Test)] = &[
    ("bare_statuses_are_exact", statuses_are_exact),
    (
        "sec_inv_10_bare_daemons_die_and_nothing_is_left",
        daemons_die_and_nothing_is_left,
    ),
    ("st_11_bare_timeout_ends_the_tree", timeout_ends_the_tree),
    (
        "st_17_bare_killed_launcher_and_server_take_the_tree_along",
        killed_launcher_and_server_take_the_tree_along,
    ),
    ("sec_inv_04_bare_own_files_are_closed", own_files_are_closed),
    (
        "sec_inv_03_bare_other_processes_are_closed",
        other_processes_are_closed,
    ),
    ("bare_metadata_is_refused", metadata_is_refused),
    ("bare_directory_must_be_granted", directory_must_be_granted),
    ("at_12_bare_ordinary_programs_work", ordinary_programs_work),
];

const WAYS: [&str; 2] = ["--once", "--standing"];

fn sh(script: &str) -> [&str; 3] {
    ["/bin/sh", "-c", script]
}

fn statuses_are_exact() -> Checked {
    let world = world();
    let spec = read_only(&world.workspace);
    for way in WAYS {
        for (script, wanted) in [
            ("exit 0", 0),
            ("exit 255", 255),
            ("kill -SEGV $$", 128 + 11),
            ("kill -KILL $$", 128 + 9),
            ("kill -PIPE $$", 128 + 13),
        ] {
            let (code, _, errors) = run(named("docker"), way, &spec, &sh(script));
            assert_eq!(code, Some(wanted), "{way} {script}: {errors}");
        }
        for (program, wanted) in [("/usr/bin/no-such-program", 127), ("/etc/passwd", 126)] {
            let (code, _, errors) = run(named("docker"), way, &spec, &[program]);
            assert_eq!(code, Some(wanted), "{way} {program}: {errors}");
        }
    }
    Ok(())
}

fn daemons_die_and_nothing_is_left() -> Checked {
    let world = world();
    let spec = read_only(&world.workspace);
    let marker = format!("71{:06}", std::process::id() % 1_000_000);
    let script = format!(
        "mkdir -p $TMPDIR/a/b; echo x > $TMPDIR/a/b/c; echo $TMPDIR; \
         (setsid sh -c 'setsid sleep {marker} & sleep {marker}' </dev/null >/dev/null 2>&1 &); exit 3"
    );
    for way in WAYS {
        let (code, out, errors) = run(named("docker"), way, &spec, &sh(&script));
        assert_eq!(code, Some(3), "{errors}");
        assert!(!is_alive(&marker), "{way}: a daemon outlived its sandbox");
        let area = out.trim();
        assert!(area.starts_with("/dev/shm/agent-mcp-private-"), "{out}");
        assert!(
            !std::path::Path::new(area).exists(),
            "{way}: {area} is left"
        );
    }
    Ok(())
}

/// SIGTERM ignored, own session, stopped.
fn timeout_ends_the_tree() -> Checked {
    let world = world();
    let spec = read_only(&world.workspace);
    let marker = format!("72{:06}", std::process::id() % 1_000_000);
    let script = format!(
        "setsid sleep {marker} & (setsid sh -c 'kill -STOP $$; sleep {marker}' &) ; exec {} --probe keep-going",
        text(&this_program())
    );
    let json = serde_json::to_string(&spec)?;
    let mut arguments = vec!["--once", json.as_str()];
    arguments.extend(sh(&script));
    let once = named("docker")
        .command(&arguments)
        .env("ONCE_TIMEOUT_MS", "300")
        .status()?;
    assert_eq!(once.code(), Some(124));
    assert!(!is_alive(&marker), "something outlived it");
    Ok(())
}

/// A running program in a server that is then killed.
pub fn server_main(spec: &str, script: &str) -> ! {
    let spec: Spec = serde_json::from_str(spec).unwrap();
    let prepared = prepare(&spec).unwrap();
    let directory = prepared
        .host_resources()
        .into_iter()
        .find_map(|resource| match resource {
            HostResource::Temporary { path } => Some(path),
            _ => None,
        });
    let permit = prepared.enforcement().permit(&spec.policy()).unwrap();
    let sandbox = prepared.start(permit).unwrap();
    println!("{}", directory.unwrap().display());
    let outcome = sandbox.run(&shell(&spec, script));
    panic!("the program ended: {outcome:?}")
}

fn killed_launcher_and_server_take_the_tree_along() -> Checked {
    let world = world();
    let json = serde_json::to_string(&read_only(&world.workspace))?;
    for (number, way) in ["--once", "--server"].into_iter().enumerate() {
        let marker = format!("7{}{:06}", number + 3, std::process::id() % 1_000_000);
        let script = format!("echo $TMPDIR; (setsid sleep {marker} &); exec sleep {marker}");
        let mut arguments = vec![way, json.as_str()];
        if way == "--once" {
            arguments.extend(["/bin/sh", "-c"]);
        }
        arguments.push(&script);
        let mut server = named("docker")
            .command(&arguments)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line)?;
        let area = std::path::PathBuf::from(line.trim());
        assert!(area.exists(), "{way}: {line}");
        eventually("the programs run", || is_alive(&format!("sleep\0{marker}")));
        server.kill()?;
        server.wait()?;
        eventually("the programs are gone", || {
            !is_alive(&format!("sleep\0{marker}"))
        });
        eventually("the private area is gone", || !area.exists());
    }
    Ok(())
}

/// Read-only roots are readable around our own files, and these are closed, at every Landlock version.
fn own_files_are_closed() -> Checked {
    let world = world();
    let own = world.workspace.join("conf/deep");
    std::fs::create_dir_all(own.join("state"))?;
    for (file, content) in [
        ("agent.yaml", "secret: 1"),
        ("state/key", "k"),
        ("other", "open"),
    ] {
        std::fs::write(own.join(file), content)?;
    }
    let mut spec = read_only(&world.workspace);
    spec.own_files = vec![own.join("agent.yaml"), own.join("state")];
    let at = |path: &str| text(&own.join(path));
    let denied = format!("ERRNO {}", libc::EACCES);
    let control = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        crate::support::matrix::unconfined(&words)
    };
    for machine in ["docker", "docker-landlock-1"] {
        for way in WAYS {
            for (what, path, wanted) in [
                ("read", at("agent.yaml"), denied.as_str()),
                ("read", at("state/key"), denied.as_str()),
                ("list", at("state"), denied.as_str()),
                ("read", at("other"), "OK open"),
                ("read", text(&world.workspace.join("keep")), "OK kept"),
            ] {
                let probe = text(&this_program());
                let (_, out, errors) = run(
                    named(machine),
                    way,
                    &spec,
                    &[&probe, "--probe", what, &path],
                );
                assert_eq!(
                    out.trim(),
                    wanted,
                    "{machine} {way} {what} {path}: {errors}"
                );
                assert!(control(&[what, &path]).starts_with("OK"));
            }
        }
    }
    Ok(())
}

fn other_processes_are_closed() -> Checked {
    let world = world();
    let spec = read_only(&world.workspace);
    let canary = world.canary.id().to_string();
    let probe = text(&this_program());
    for machine in ["docker", "docker-landlock-2"] {
        for (what, argument, errno) in [
            ("read", format!("/proc/{canary}/cmdline"), libc::EACCES),
            ("read", format!("/proc/{canary}/status"), libc::EACCES),
            ("list", "/proc".to_owned(), libc::EACCES),
            ("read", "/proc/self/mountinfo".to_owned(), libc::EACCES),
            ("kill-0", canary.clone(), libc::EPERM),
            ("limit-of", canary.clone(), libc::EPERM),
            ("affinity-of", canary.clone(), libc::EPERM),
        ] {
            let words = [what.to_owned(), argument.clone()];
            for way in WAYS {
                let (_, out, errors) = run(
                    named(machine),
                    way,
                    &spec,
                    &[&probe, "--probe", what, &argument],
                );
                let wanted = format!("ERRNO {errno}");
                assert_eq!(out.trim(), wanted, "{machine} {way} {words:?}: {errors}");
            }
            let control = crate::support::matrix::unconfined(&words);
            assert!(control.starts_with("OK"), "control {words:?}: {control}");
        }
    }
    Ok(())
}

fn metadata_is_refused() -> Checked {
    let world = world();
    let spec = read_only(&world.workspace);
    let outside = text(&world.outside.join("secret"));
    let keep = text(&world.workspace.join("keep"));
    let probe = text(&this_program());
    for machine in ["docker", "docker-landlock-2"] {
        for (what, path, errno) in [
            ("chmod", &outside, libc::EPERM),
            ("chmod", &keep, libc::EPERM),
            ("truncate", &keep, libc::EACCES),
            ("truncate-by-open", &keep, libc::EACCES),
        ] {
            for way in WAYS {
                let (_, out, errors) =
                    run(named(machine), way, &spec, &[&probe, "--probe", what, path]);
                let wanted = format!("ERRNO {errno}");
                assert_eq!(out.trim(), wanted, "{machine} {way} {what}: {errors}");
            }
        }
    }
    assert_eq!(std::fs::read_to_string(&keep)?, "kept");
    for (what, path) in [("chmod", outside), ("truncate-by-open", keep)] {
        let control = crate::support::matrix::unconfined(&[what.into(), path]);
        assert!(control.starts_with("OK"), "control {what}: {control}");
    }
    Ok(())
}

fn directory_must_be_granted() -> Checked {
    let world = world();
    let mut spec = read_only(&world.workspace);
    spec.cwd = Some(world.outside.clone());
    for way in WAYS {
        let (code, out, errors) = run(named("docker"), way, &spec, &["/bin/pwd"]);
        assert_eq!((code, out.as_str()), (Some(126), ""), "{way}: {errors}");
        assert!(errors.contains("FileNotFound"), "{errors}");
    }
    Ok(())
}

/// Python's asyncio, and multiprocessing over pipes, where there is a Python.
fn ordinary_programs_work() -> Checked {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        eprintln!("skipped, needs: /usr/bin/python3");
        return Ok(());
    }
    let world = world();
    let spec = read_only(&world.workspace);
    let script = "import asyncio, multiprocessing, tempfile, subprocess\n\
        async def main():\n    p = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)\n    return (await p.communicate(b'via asyncio'))[0]\n\
        print(asyncio.run(main()))\n\
        here, there = multiprocessing.Pipe()\n\
        p = multiprocessing.get_context('fork').Process(target=there.send, args=(7,))\n\
        p.start(); print(here.recv()); p.join()\n\
        tempfile.mkstemp()\nprint(subprocess.run(['sh','-c','echo sub'],capture_output=True).stdout)\n";
    for machine in ["docker", "docker-landlock-2"] {
        for way in WAYS {
            let (code, out, errors) = run(
                named(machine),
                way,
                &spec,
                &["/usr/bin/python3", "-c", script],
            );
            assert_eq!(
                (code, out.as_str()),
                (Some(0), "b'via asyncio'\n7\nb'sub\\n'\n"),
                "{machine} {way}: {errors}"
            );
        }
    }
    Ok(())
}
