//! Deaths and limits: whatever happens, the tree is gone and nothing is left (SEC-INV-10, ST-11, ST-17, PRC-06).

use crate::support::world::{eventually, is_alive, text, world};
use crate::support::{
    self, Spec, confined, once_command, prepare, ran_of, request, shell, standing, this_program,
};
use crate::{Checked, Test};
use policy::sandbox::{Control, HostResource, ProcessEnd};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

pub const TESTS: &[(&str, Test)] = &[
    ("st_11_timeout_ends_the_tree", st_11_timeout_ends_the_tree),
    (
        "sec_inv_10_prc_06_daemons_die_with_the_task",
        sec_inv_10_daemons_die_with_the_task,
    ),
    (
        "st_17_server_killed_takes_everything_along",
        st_17_server_killed_takes_everything_along,
    ),
    ("st_11_zygote_is_replaced", zygote_is_replaced),
    ("st_11_fork_bomb_is_bounded", fork_bomb_is_bounded),
    ("st_11_memory_hog_is_stopped", memory_hog_is_stopped),
    (
        "sec_inv_10_kill_ends_a_running_program",
        kill_ends_a_running_program,
    ),
    (
        "sec_inv_10_a_dropped_sandbox_leaves_nothing",
        a_dropped_sandbox_leaves_nothing,
    ),
];

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
    assert_eq!(sandbox.run(&endless)?.end, ProcessEnd::TimedOut);
    eventually("the tree is gone", || !is_alive(&marker));
    assert!(sandbox.run(&shell(&spec, "exit 0"))?.end.is_success());
    sandbox.end()?;
    let once = once_command(&spec, &["/bin/sh", "-c", &script])
        .env("ONCE_TIMEOUT_MS", "300")
        .status()?;
    assert_eq!(once.code(), Some(124));
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
pub fn server_main(spec: &str, script: &str) -> ! {
    let spec: Spec = serde_json::from_str(spec).unwrap();
    let prepared = prepare(&spec).unwrap();
    let pids: Vec<String> = prepared
        .host_resources()
        .iter()
        .filter_map(|resource| match resource {
            HostResource::Process { pid, .. } => Some(pid.to_string()),
            _ => None,
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
        // How the attacker ends is its own business.
        let _end = sandbox.run(&shell(&spec, attack));
        let after = sandbox.run(&shell(&spec, "echo alive"))?;
        assert_eq!(after.stdout.head, b"alive\n", "{attack}: {after:?}");
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
    let outcome = sandbox.run(&request(&spec, &[&probe, "--probe", "hog", "4000"]))?;
    assert_eq!(outcome.end, ProcessEnd::OutOfMemory);
    assert!(sandbox.run(&shell(&spec, "exit 0"))?.end.is_success());
    sandbox.end()?;
    let once = once_command(&spec, &[&probe, "--probe", "hog", "4000"]).status()?;
    assert_eq!(once.code(), Some(137));
    Ok(())
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
    assert_eq!(
        sandbox.run(&shell(&spec, "sleep 100"))?.end,
        ProcessEnd::Killed
    );
    killer.join().unwrap();
    Ok(sandbox.end()?)
}

fn a_dropped_sandbox_leaves_nothing() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "r");
    let prepared = prepare(&spec)?;
    let resources = prepared.host_resources();
    assert_eq!(resources.len(), 2 + usize::from(support::is_counted()));
    drop(prepared);
    for resource in resources {
        match resource {
            HostResource::Process { pid, start_ticks } => {
                assert!(start_ticks > 0);
                assert!(is_gone(pid), "{pid} is left");
            }
            HostResource::Cgroup { path } => assert!(!path.exists(), "{path:?} is left"),
            HostResource::Temporary { path } => return Err(format!("unexpected {path:?}").into()),
        }
    }
    Ok(())
}
