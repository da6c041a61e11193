//! DESIGN §10.5: every limit of a resource profile, exactly where a cgroup counts and as well as can be elsewhere.

use crate::support::world::{eventually, text, world};
use crate::support::{
    self, Spec, WAYS, Way, confined, is_counted, once_command, prepare, ran_of, request, shell,
    standing, this_program,
};
use crate::{Checked, Test};
use policy::sandbox::{HostResource, ProcessEnd};
use std::path::PathBuf;
use std::process::Command;

pub const TESTS: &[(&str, Test)] = &[
    ("st_11_process_limit_is_exact", process_limit_is_exact),
    (
        "st_11_memory_in_no_account_is_stopped",
        memory_in_no_account_is_stopped,
    ),
    ("st_11_a_hidden_hog_is_stopped", a_hidden_hog_is_stopped),
    ("st_11_memory_of_many_is_summed", memory_of_many_is_summed),
    (
        "st_11_the_task_goes_on_after_every_end",
        the_task_goes_on_after_every_end,
    ),
    (
        "sec_inv_10_groups_are_reported_and_removed",
        groups_are_reported_and_removed,
    ),
    (
        "st_17_groups_of_the_dead_are_removed",
        groups_of_the_dead_are_removed,
    ),
];

/// `constrained`, `normal` and `extended` differ in numbers only; this is what the number means.
fn process_limit_is_exact() -> Checked {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "r");
    spec.processes = 20;
    let probe = text(&this_program());
    for way in WAYS {
        let line = confined(way, &spec, &[&probe, "--probe", "forks", "100"]).stdout;
        if is_counted() {
            // The probe is one of them.
            assert_eq!(
                line,
                format!("OK 19 then ERRNO {}\n", libc::EAGAIN),
                "{way:?}"
            );
        }
    }
    // Enough for what the limit allows.
    spec.processes = 21;
    let line = confined(Way::Standing, &spec, &[&probe, "--probe", "forks", "20"]).stdout;
    assert_eq!(line, "OK 20\n");
    Ok(())
}

/// Unmapped memory files, files in the private area and System V segments: counted, bounded or refused, never free.
fn memory_in_no_account_is_stopped() -> Checked {
    let world = world();
    // Execution is granted, so memory files are not refused for that.
    let mut spec = Spec::new(&world.workspace, "rwxd");
    spec.memory_mb = 96;
    spec.private_mb = 600;
    let probe = text(&this_program());
    for way in WAYS {
        for (hog, without_cgroup) in [
            ("hog-memfd", Some(format!("ERRNO {}\n", libc::ENOSYS))),
            ("hog-file", None),
            ("hog-segment", None),
        ] {
            let ran = confined(way, &spec, &[&probe, "--probe", hog, "400"]);
            match without_cgroup {
                Some(line) if !is_counted() => assert_eq!(ran.stdout, line, "{way:?} {hog}"),
                _ => {
                    assert_eq!(ran.code, "137", "{way:?} {hog}: {ran:?}");
                    assert_eq!(ran.stdout, "", "{way:?} {hog}");
                    if way == Way::Standing {
                        assert_eq!(ran.end, Some(ProcessEnd::OutOfMemory), "{hog}");
                    }
                }
            }
        }
        // The control: the same within the limit.
        for hog in ["hog-file", "hog-segment"] {
            let ran = confined(way, &spec, &[&probe, "--probe", hog, "40"]);
            assert_eq!(ran.stdout, "OK 40 MiB\n", "{way:?} {hog}: {ran:?}");
        }
    }
    Ok(())
}

/// A process that nobody may look into is measured all the same.
fn a_hidden_hog_is_stopped() -> Checked {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "r");
    spec.memory_mb = 96;
    let probe = text(&this_program());
    for way in WAYS {
        let ran = confined(way, &spec, &[&probe, "--probe", "hog-hidden", "1000"]);
        assert_eq!(
            (ran.code.as_str(), ran.stdout.as_str()),
            ("137", ""),
            "{way:?}: {ran:?}"
        );
    }
    Ok(())
}

/// No single process is over the limit.
fn memory_of_many_is_summed() -> Checked {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "r");
    spec.memory_mb = 128;
    let script = format!(
        "for i in 1 2 3 4 5 6; do {} --probe hog-and-stay 60 & done; wait; echo all fit",
        text(&this_program())
    );
    let sandbox = standing(&spec);
    let outcome = sandbox.run(&shell(&spec, &script))?;
    assert_eq!(outcome.end, ProcessEnd::OutOfMemory, "{outcome:?}");
    sandbox.end()?;
    let once = once_command(&spec, &["/bin/sh", "-c", &script]).output()?;
    assert_eq!(once.status.code(), Some(137));
    assert_eq!(once.stdout, b"");
    Ok(())
}

/// Out of memory, out of time, out of processes: the next program of the Task runs as if nothing had been.
fn the_task_goes_on_after_every_end() -> Checked {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "r");
    spec.memory_mb = 96;
    spec.processes = 16;
    let probe = text(&this_program());
    let sandbox = standing(&spec);
    for _ in 0..3 {
        let hog = sandbox.run(&request(&spec, &[&probe, "--probe", "hog", "1000"]))?;
        assert_eq!(hog.end, ProcessEnd::OutOfMemory);
        let mut slow = shell(&spec, "sleep 60");
        slow.timeout = std::time::Duration::from_millis(50);
        assert_eq!(sandbox.run(&slow)?.end, ProcessEnd::TimedOut);
        let own = sandbox.run(&shell(&spec, "kill -9 $$"))?;
        assert_eq!(own.end, ProcessEnd::Signaled { signal: 9 });
        sandbox.run(&request(&spec, &[&probe, "--probe", "forks", "40"]))?;
        let after = sandbox.run(&request(&spec, &[&probe, "--probe", "hog", "20"]))?;
        assert_eq!(ran_of(&after).stdout, "OK 20 MiB\n");
    }
    Ok(sandbox.end()?)
}

fn groups_of(resources: &[HostResource]) -> Vec<PathBuf> {
    resources
        .iter()
        .filter_map(|resource| match resource {
            HostResource::Cgroup { path } => Some(path.clone()),
            _ => None,
        })
        .collect()
}

/// The journal knows the group before the start; afterwards it is gone, whoever ended what.
fn groups_are_reported_and_removed() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let prepared = prepare(&spec)?;
    let groups = groups_of(&prepared.host_resources());
    assert_eq!(groups.len(), usize::from(is_counted()));
    let read = |group: &PathBuf, name: &str| std::fs::read_to_string(group.join(name)).unwrap();
    for group in &groups {
        let tree = group.join("tree");
        assert_eq!(read(&tree, "memory.max"), format!("{}\n", 512 << 20));
        assert_eq!(read(&tree, "memory.oom.group"), "1\n");
        assert_eq!(read(&tree, "pids.max"), "129\n");
        if tree.join("memory.swap.max").exists() {
            assert_eq!(read(&tree, "memory.swap.max"), "0\n");
        }
    }
    drop(prepared);
    assert!(groups.iter().all(|group| !group.exists()));
    let prepared = prepare(&spec)?;
    let groups = groups_of(&prepared.host_resources());
    let sandbox = support::started(prepared, &spec);
    sandbox.run(&shell(&spec, "(setsid sleep 600 &); exit 0"))?;
    sandbox.end()?;
    assert!(groups.iter().all(|group| !group.exists()));
    // Other tests of this process have groups of their own at the same time; a command's bear its own number.
    let mut once =
        once_command(&spec, &["/bin/sh", "-c", "(setsid sleep 600 &); exit 0"]).spawn()?;
    let owner = once.id();
    assert!(once.wait()?.success());
    assert_eq!(own_groups(owner), Vec::<PathBuf>::new());
    Ok(())
}

/// Groups of this owner anywhere above us.
fn own_groups(owner: u32) -> Vec<PathBuf> {
    let Ok(text) = std::fs::read_to_string("/proc/self/cgroup") else {
        return Vec::new();
    };
    let own = text
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .unwrap_or("");
    let prefix = format!("agent-mcp-{owner}-");
    std::path::Path::new(own)
        .ancestors()
        .filter_map(|ancestor| {
            std::fs::read_dir(std::path::Path::new("/sys/fs/cgroup").join(ancestor)).ok()
        })
        .flat_map(|entries| entries.flatten())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect()
}

/// ST-17: a server that was killed leaves its group; the next start of anybody removes it, and only it.
fn groups_of_the_dead_are_removed() -> Checked {
    if !is_counted() {
        // Nothing is made, so nothing can be left.
        let world = world();
        let spec = Spec::new(&world.workspace, "r");
        assert!(groups_of(&prepare(&spec)?.host_resources()).is_empty());
        return Ok(());
    }
    let world = world();
    let spec = Spec::new(&world.workspace, "r");
    let living = prepare(&spec)?;
    let mut server = Command::new(this_program())
        .arg("--server")
        .arg(serde_json::to_string(&spec)?)
        .arg("sleep 600")
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let owner = server.id();
    eventually("the server has a group", || !own_groups(owner).is_empty());
    server.kill()?;
    server.wait()?;
    let mut once = once_command(&spec, &["/bin/sleep", "600"]).spawn()?;
    let once_owner = once.id();
    eventually("the command has a group", || {
        !own_groups(once_owner).is_empty()
    });
    once.kill()?;
    once.wait()?;
    eventually("the next start finds nothing left", || {
        drop(prepare(&spec));
        own_groups(owner).is_empty() && own_groups(once_owner).is_empty()
    });
    let kept = groups_of(&living.host_resources());
    assert!(!kept.is_empty() && kept.iter().all(|group| group.exists()));
    Ok(())
}
