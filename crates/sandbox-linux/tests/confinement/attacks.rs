//! Attacks that take more than one probe (SEC-INV-03, SEC-INV-04, SEC-INV-08, X-PROTECT).

use crate::support::matrix::{first_line, unconfined};
use crate::support::rows::at;
use crate::support::world::{text, world};
use crate::support::{Spec, Way, confined, once_command, this_program};
use libc::{EACCES, EBADF, EBUSY, EROFS, EXDEV};
use libtest_mimic::Failed;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::Command;

/// Descriptors that a careless parent leaves open (SEC-INV-03): a file, a high number, an `O_PATH` of `/`.
fn inherited_descriptors(way: Way) -> Result<(), Failed> {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let secret = std::fs::File::open(world.outside.join("secret"))?;
    let root = rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())?;
    // High numbers that nobody else takes meanwhile.
    let top = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(1024) as i32;
    let numbers = [top - 9, top - 5, top - 7];
    let leak = |fd: i32, number: i32| {
        // SAFETY: the numbers are nobody's; without close-on-exec on purpose.
        let made = unsafe { libc::dup2(fd, number) };
        assert_eq!(made, number, "{}", std::io::Error::last_os_error());
    };
    let _lock = LEAK
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    leak(secret.as_raw_fd(), numbers[0]);
    leak(secret.as_raw_fd(), numbers[1]);
    leak(root.as_raw_fd(), numbers[2]);
    let names = numbers.map(|number| number.to_string());
    let probe = text(&this_program());
    let control = unconfined(&["fd-open".into(), names[2].clone()]);
    let lines: Vec<String> = [
        ["fd", &names[0]],
        ["fd", &names[1]],
        ["fd-open", &names[2]],
        ["fds", ""],
    ]
    .iter()
    .map(|words| first_line(&confined(way, &spec, &[&probe, "--probe", words[0], words[1]]).stdout))
    .collect();
    for number in numbers {
        // SAFETY: our own numbers from above.
        drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) });
    }
    assert!(control.starts_with("OK"), "control: {control}");
    let closed = format!("ERRNO {EBADF}");
    assert_eq!(
        lines,
        [closed.clone(), closed.clone(), closed, "OK []".into()]
    );
    Ok(())
}

static LEAK: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// SEC-INV-08: only the table and the policy's own variables.
fn environment_is_a_table(way: Way) -> Result<(), Failed> {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "r");
    spec.environment.push(("GIVEN".into(), "yes".into()));
    let probe = text(&this_program());
    let line = match way {
        Way::Once => {
            let output = once_command(&spec, &[&probe, "--probe", "environment"])
                .env("SECRET_TOKEN", "s3cret")
                .env("LD_PRELOAD_LIKE", "x")
                .env("TZ", "$(bad)")
                .env("LANG", "ja_JP.UTF-8")
                .output()?;
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Way::Standing => confined(way, &spec, &[&probe, "--probe", "environment"]).stdout,
    };
    let names: Vec<&str> = line
        .trim()
        .trim_start_matches("OK ")
        .split(';')
        .filter_map(|pair| Some(pair.split_once('=')?.0))
        .collect();
    let known = [
        "GIVEN", "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TERM", "TMPDIR", "TZ", "USER",
    ];
    assert!(names.iter().all(|name| known.contains(name)), "{line}");
    assert!(
        line.contains("GIVEN=yes") && line.contains("HOME=/tmp/.home"),
        "{line}"
    );
    if way == Way::Once {
        assert!(
            line.contains("LANG=ja_JP.UTF-8") && !line.contains("bad"),
            "{line}"
        );
    }
    Ok(())
}

/// SEC-INV-04: our own files inside a granted root can be neither read, changed, replaced nor moved away.
fn own_files_are_masked(way: Way) -> Result<(), Failed> {
    let world = world();
    let own = world.workspace.join("conf/deep");
    std::fs::create_dir_all(own.join("state"))?;
    std::fs::write(own.join("agent.yaml"), "secret: 1")?;
    std::fs::write(own.join("state/key"), "k")?;
    let mut spec = Spec::new(&world.workspace, "rwd");
    spec.own_files = vec![own.join("agent.yaml"), own.join("state")];
    let yaml = text(&own.join("agent.yaml"));
    let key = text(&own.join("state/key"));
    let (conf, moved) = (at(&world.workspace, "conf"), at(&world.workspace, "moved"));
    let probe = text(&this_program());
    for (words, wanted) in [
        (vec!["read", &yaml], EACCES),
        (vec!["append", &yaml], EROFS),
        (vec!["chmod", &yaml], EROFS),
        (vec!["unlink", &yaml], EBUSY),
        (vec!["read", &key], EACCES),
        (vec!["rename", &conf, &moved], EBUSY),
        (vec!["exchange", &conf, &at(&world.workspace, "sub")], EBUSY),
    ] {
        let mut argv = vec![probe.as_str(), "--probe"];
        argv.extend(words.iter().copied());
        let line = first_line(&confined(way, &spec, &argv).stdout);
        let also = if wanted == EROFS { EACCES } else { wanted };
        assert!(
            line == format!("ERRNO {wanted}") || line == format!("ERRNO {also}"),
            "{words:?}: {line}"
        );
    }
    assert_eq!(
        std::fs::read_to_string(own.join("agent.yaml"))?,
        "secret: 1"
    );
    Ok(())
}

/// X-PROTECT: hooks and configuration of every repository, at any depth, and no way around by renaming.
fn repositories_are_protected(way: Way) -> Result<(), Failed> {
    let world = world();
    for repository in ["", "sub/nested"] {
        let git = world.workspace.join(repository).join(".git");
        std::fs::create_dir_all(git.join("hooks"))?;
        std::fs::create_dir_all(git.join("objects"))?;
        std::fs::write(git.join("config"), "[core]\n")?;
    }
    let before = listing(&world.workspace);
    let spec = Spec::new(&world.workspace, "rwd");
    let ws = |rest: &str| at(&world.workspace, rest);
    let probe = text(&this_program());
    for (words, wanted) in [
        (vec!["read".to_owned(), ws(".git/config")], None),
        (
            vec!["append".to_owned(), ws(".git/config")],
            Some(vec![EROFS]),
        ),
        (
            vec!["create".to_owned(), ws(".git/hooks/pre-commit")],
            Some(vec![EROFS]),
        ),
        (
            vec!["append".to_owned(), ws("sub/nested/.git/config")],
            Some(vec![EROFS]),
        ),
        (
            vec!["create".to_owned(), ws("sub/nested/.git/hooks/x")],
            Some(vec![EROFS]),
        ),
        (
            vec!["rename".to_owned(), ws(".git"), ws("elsewhere")],
            Some(vec![EBUSY]),
        ),
        (
            vec!["rename".to_owned(), ws("sub"), ws("elsewhere")],
            Some(vec![EBUSY]),
        ),
        (
            vec!["exchange".to_owned(), ws(".git"), ws("sub")],
            Some(vec![EBUSY]),
        ),
        (
            vec!["rename".to_owned(), ws("keep"), ws(".git/config")],
            Some(vec![EBUSY, EXDEV]),
        ),
        (
            vec!["unlink".to_owned(), ws(".git/config")],
            Some(vec![EBUSY]),
        ),
        (vec!["create".to_owned(), ws(".git/objects/new")], None),
    ] {
        let mut argv = vec![probe.clone(), "--probe".into()];
        argv.extend(words.iter().cloned());
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let line = first_line(&confined(way, &spec, &argv).stdout);
        let fine = match &wanted {
            None => line.starts_with("OK"),
            Some(list) => list.iter().any(|errno| line == format!("ERRNO {errno}")),
        };
        assert!(fine, "{words:?}: {line}");
    }
    std::fs::remove_file(world.workspace.join(".git/objects/new"))?;
    assert_eq!(
        listing(&world.workspace),
        before,
        "something was left in the workspace"
    );
    Ok(())
}

fn listing(directory: &Path) -> Vec<String> {
    let output = Command::new("find").arg(directory).output().unwrap();
    let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(Into::into)
        .collect();
    lines.sort();
    lines
}

/// A workspace below `/tmp` moves the private area, because Landlock's grants add up along a path.
fn workspace_below_tmp(way: Way) -> Result<(), Failed> {
    let directory = tempfile::Builder::new()
        .prefix("sandbox-test-")
        .tempdir_in("/tmp")?;
    let workspace = directory.path().canonicalize()?;
    std::fs::write(workspace.join("keep"), "kept")?;
    let spec = Spec::new(&workspace, "rw");
    let probe = text(&this_program());
    let keep = at(&workspace, "keep");
    let unlink = confined(way, &spec, &[&probe, "--probe", "unlink", &keep]);
    assert_eq!(first_line(&unlink.stdout), format!("ERRNO {EACCES}"));
    let environment = confined(way, &spec, &[&probe, "--probe", "environment"]).stdout;
    assert!(environment.contains("TMPDIR=/run/private"), "{environment}");
    let made = confined(way, &spec, &[&probe, "--probe", "create", "/run/private/x"]);
    assert_eq!(first_line(&made.stdout), "OK ");
    Ok(())
}

/// The network of the host is invisible, init's included.
fn no_host_connections_in_proc(way: Way) -> Result<(), Failed> {
    let world = world();
    let spec = Spec::new(&world.workspace, "r");
    let probe = text(&this_program());
    let port = format!(":{:04X} ", world.tcp);
    for path in ["/proc/net/tcp", "/proc/1/net/tcp", "/proc/2/net/tcp"] {
        let line = confined(way, &spec, &[&probe, "--probe", "read", path]).stdout;
        assert!(!line.contains(&port), "{path}: {line}");
    }
    let control = std::fs::read_to_string("/proc/net/tcp")?;
    assert!(control.contains(&port));
    Ok(())
}

/// DESIGN §10.5: the private area is limited, also in the number of files.
fn private_area_is_limited(way: Way) -> Result<(), Failed> {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "r");
    spec.private_mb = 4;
    let script = "head -c 10000000 /dev/zero > /tmp/big; stat -c %s /tmp/big; rm /tmp/big; \
        i=0; while echo > /tmp/f$i; do i=$((i+1)); [ $i -gt 3000 ] && break; done 2>/dev/null; echo $i";
    let out = confined(way, &spec, &["/bin/sh", "-c", script]).stdout;
    let numbers: Vec<u64> = out.lines().map(|line| line.parse().unwrap()).collect();
    assert!(numbers[0] <= 4 << 20 && numbers[1] <= 1024, "{out}");
    Ok(())
}

type Test = fn(Way) -> Result<(), Failed>;

pub const TESTS: &[(&str, Test)] = &[
    ("sec_inv_03_inherited_descriptors", inherited_descriptors),
    ("sec_inv_08_environment_is_a_table", environment_is_a_table),
    ("sec_inv_04_own_files_are_masked", own_files_are_masked),
    ("x_protect_repositories", repositories_are_protected),
    ("workspace_below_tmp", workspace_below_tmp),
    (
        "sec_inv_06_no_host_connections_in_proc",
        no_host_connections_in_proc,
    ),
    ("private_area_is_limited", private_area_is_limited),
];
