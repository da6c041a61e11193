//! What the sandbox says about what it refused: operation, object and rule, for both ways to run, and that saying it
//! changes nothing about what is refused.
//!
//! DC-3, SEC-INV-06; users.md 12.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test with a main of its own: it may fail, connect and print"
)]

mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use support::{Spec, WAYS, Way, once_command, request, standing, temporary};

type Checked = Result<(), Failed>;
type Test = fn() -> Checked;

/// One denial as (operation, target, rule, count, errno).
type Told = (String, String, String, u64, Option<i64>);

struct Report {
    explanation: String,
    told: Vec<Told>,
    omitted: u64,
    stdout: String,
    code: String,
}

fn told(denial: &Value) -> Told {
    let text = |key: &str| denial[key].as_str().unwrap().to_owned();
    (
        text("operation"),
        text("target"),
        text("rule"),
        denial["count"].as_u64().unwrap(),
        denial["errno"].as_i64(),
    )
}

fn once(spec: &Spec, explain: &str, argv: &[&str]) -> Report {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = once_command(spec, argv)
        .env("ONCE_EXPLAIN", explain)
        .env("ONCE_DENIALS", file.path())
        .output()
        .unwrap();
    let text = std::fs::read_to_string(file.path()).unwrap();
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    Report {
        explanation: report[0].as_str().unwrap().into(),
        told: report[1].as_array().unwrap().iter().map(told).collect(),
        omitted: report[2].as_u64().unwrap(),
        stdout: String::from_utf8_lossy(&output.stdout).into(),
        code: format!("{:?}", output.status.code()),
    }
}

fn run(way: Way, spec: &Spec, argv: &[&str]) -> Vec<Told> {
    match way {
        Way::Once => once(spec, "on", argv).told,
        Way::Standing => {
            let sandbox = standing(spec);
            let outcome = sandbox.run(&request(spec, argv)).unwrap();
            sandbox.end().unwrap();
            outcome
                .denials
                .iter()
                .map(|denial| told(&serde_json::to_value(denial).unwrap()))
                .collect()
        }
    }
}

fn shell(way: Way, spec: &Spec, script: &str) -> Vec<Told> {
    run(way, spec, &["/bin/sh", "-c", script])
}

fn has(told: &[Told], operation: &str, target: &str, rule: &str) -> Checked {
    let found = told.iter().any(|line| {
        (line.0.as_str(), line.1.as_str(), line.2.as_str()) == (operation, target, rule)
    });
    if found {
        Ok(())
    } else {
        Err(format!("no {operation} {target} by {rule} in {told:?}").into())
    }
}

fn none_of(told: &[Told], operations: &[&str]) -> Checked {
    match told
        .iter()
        .find(|line| operations.contains(&line.0.as_str()))
    {
        None => Ok(()),
        Some(line) => Err(format!("{line:?}").into()),
    }
}

const CHANGES: &[&str] = &["write", "create", "delete", "rename", "link", "change"];

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Each operation that changes something, on each kind of place, with its rule.
fn changes_are_explained_by_the_policy() -> Checked {
    for way in WAYS {
        let workspace = temporary();
        let outside = temporary();
        let mounted = temporary();
        let own = workspace.path().join("own");
        std::fs::write(&own, "x").unwrap();
        std::fs::write(outside.path().join("file"), "x").unwrap();
        std::fs::write(mounted.path().join("file"), "x").unwrap();
        std::fs::create_dir_all(workspace.path().join(".git")).unwrap();
        std::fs::write(workspace.path().join(".git/config"), "x").unwrap();
        let mut spec = Spec::new(workspace.path(), "rwd");
        spec.mounts = vec![(mounted.path().into(), "r".into())];
        spec.own_files = vec![own.clone()];
        let (w, o, m) = (
            text(workspace.path()),
            text(outside.path()),
            text(mounted.path()),
        );
        let told = shell(
            way,
            &spec,
            &format!(
                "cd {w}; echo > /usr/bin/new; mkdir {o}/d; rm -f {m}/file; mv {m}/file {w}/y; \
                 ln -s a /etc/link; chmod 600 {m}/file; echo > .git/config; echo > own; touch {o}/file; \
                 cd {m}; mkdir sub; mkdir ../{o_name}/e; cp /bin/true {w}/t; {w}/t; true > /bin/new",
                o_name = outside.path().file_name().unwrap().to_str().unwrap(),
            ),
        );
        has(&told, "write", "/usr/bin/new", "runtime")?;
        has(&told, "create", &format!("{o}/d"), "granted roots")?;
        has(&told, "create", &format!("{o}/e"), "granted roots")?;
        has(&told, "delete", &format!("{m}/file"), "sandbox.mounts")?;
        has(&told, "rename", &format!("{m}/file"), "sandbox.mounts")?;
        has(&told, "create", &format!("{m}/sub"), "sandbox.mounts")?;
        has(&told, "create", "/etc/link", "granted roots")?;
        has(&told, "change", &format!("{m}/file"), "sandbox.mounts")?;
        has(
            &told,
            "write",
            &format!("{w}/.git/config"),
            "sandbox.protect",
        )?;
        has(&told, "write", &format!("{w}/own"), "own files")?;
        has(&told, "write", &format!("{o}/file"), "granted roots")?;
        has(&told, "execute", &format!("{w}/t"), "executable")?;
    }
    Ok(())
}

/// What works is not in the list, nor what any directory would have answered.
fn what_works_is_not_told() -> Checked {
    for way in WAYS {
        let workspace = temporary();
        let spec = Spec::new(workspace.path(), "rwxd");
        let w = text(workspace.path());
        let told = shell(
            way,
            &spec,
            &format!(
                "set -e; mkdir -p {w}/a/b; echo x > {w}/a/f; mv {w}/a/f {w}/a/g; ln -s g {w}/a/l; chmod 700 {w}/a/g; \
                 touch {w}/a/g; cp /bin/true {w}/t; {w}/t; rm -r {w}/a; echo y > /tmp/x; rm /tmp/x; echo > /dev/null; \
                 echo z > /dev/shm/z; echo > /dev/stdout; mkdir -p /usr/bin /etc {w}; cat /usr/bin/none 2>/dev/null || \
                 rm -f /usr/bin/none"
            ),
        );
        none_of(&told, CHANGES)?;
        none_of(&told, &["execute", "socket", "connect", "call"])?;
    }
    Ok(())
}

/// SEC-INV-06: the network level is named, with the error number that the program got.
fn the_network_is_explained() -> Checked {
    for way in WAYS {
        let workspace = temporary();
        let spec = Spec::new(workspace.path(), "rwd");
        let probe = text(&support::this_program());
        let told = run(way, &spec, &[&probe, "--probe", "socket", "2", "1", "0"]);
        has(&told, "socket", "inet stream", "sandbox.network.access")?;
        assert_eq!(told[0].4, Some(libc::EACCES.into()), "{told:?}");
        let mut private = spec.clone();
        private.private_network = true;
        let told = run(way, &private, &[&probe, "--probe", "tcp", "192.0.2.1:80"]);
        has(&told, "connect", "192.0.2.1:80", "sandbox.network.access")?;
        let told = run(way, &private, &[&probe, "--probe", "tcp", "127.0.0.1:1"]);
        has(&told, "connect", "127.0.0.1:1", "sandbox.network.access")?;
    }
    Ok(())
}

/// Calls that the filter refuses are told by name, with the same error number as without explaining.
fn refused_calls_are_explained() -> Checked {
    for way in WAYS {
        let workspace = temporary();
        let spec = Spec::new(workspace.path(), "rwd");
        let told = run(way, &spec, &["/usr/bin/unshare", "-n", "true"]);
        has(&told, "call", "unshare", "seccomp")?;
        assert_eq!(told[0].4, Some(libc::EPERM.into()), "{told:?}");
    }
    Ok(())
}

/// The same command gives the same output and status whatever is explained.
fn explaining_changes_no_answer() -> Checked {
    let workspace = temporary();
    let spec = Spec::new(workspace.path(), "rwd");
    let script = "exec 2>&1; echo > /usr/x; mkdir /not-there/x; rm /etc/passwd; cat /root/x; unshare -n true; ln -s a /b; \
                  chmod u+s own; > made; chmod u+s made; ls -l made | cut -c1-10; /nonexistent; exit 3";
    let argv = ["/bin/sh", "-c", script];
    let plain = once(&spec, "off", &argv);
    assert!(plain.stdout.len() > 200, "{}", plain.stdout);
    assert_eq!((plain.told.len(), plain.explanation.as_str()), (0, "off"));
    for explain in ["on", "opens"] {
        let explained = once(&spec, explain, &argv);
        assert_eq!(explained.stdout, plain.stdout, "{explain}");
        assert_eq!(explained.code, plain.code);
        assert!(explained.told.len() > 4, "{:?}", explained.told);
    }
    Ok(())
}

/// A flood of different names is counted and kept within bounds.
fn floods_are_bounded() -> Checked {
    let workspace = temporary();
    let spec = Spec::new(workspace.path(), "rwd");
    let script = "i=0; while [ $i -lt 2000 ]; do true > /usr/x$i; i=$((i+1)); done";
    let report = once(
        &spec,
        "on",
        &["/bin/sh", "-c", &format!("( {script} ) 2>/dev/null")],
    );
    let writes = report.told.iter().filter(|line| line.0 == "write").count();
    assert_eq!((writes, report.omitted), (320, 2000 - 320));
    Ok(())
}

/// With `opens` a file that is outside the grants is named when it is read.
fn opens_are_explained_when_asked_for() -> Checked {
    let workspace = temporary();
    let outside = temporary();
    std::fs::write(outside.path().join("secret"), "x").unwrap();
    let spec = Spec::new(workspace.path(), "rwd");
    let secret = text(&outside.path().join("secret"));
    let report = once(&spec, "opens", &["/bin/cat", &secret]);
    has(&report.told, "open", &secret, "granted roots")
}

/// Whether this machine lets us have the device of the tripwire.
fn has_tripwire() -> bool {
    let options = || {
        std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
    };
    options().is_ok()
}

/// Without `opens` too: names that are not there are seen with their whole path, whether the host has them or not, also beside
/// the workspace and through links of the program's own; and it is said when they cannot be seen.
fn missing_names_are_seen() -> Checked {
    let is_older_kernel = || std::env::var_os("AGENT_MCP_TEST_VM").is_some();
    let workspace = temporary();
    let outside = temporary();
    std::fs::write(outside.path().join("secret"), "x").unwrap();
    let spec = Spec::new(workspace.path(), "rwd");
    let secret = text(&outside.path().join("secret"));
    let script = format!(
        "cat {secret}; cat /root/.ssh/id_rsa; test -f /home/nobody/x; cd /opt/a/b; ln -s {secret} l; cat l; \
         ls / /home /var >/dev/null || echo no; cat {}",
        "/srv/x".repeat(600),
    );
    for way in WAYS {
        let told = shell(way, &spec, &script);
        if !has_tripwire() {
            let report = once(&spec, "on", &["/bin/true"]);
            assert_eq!(report.explanation, "partial");
            return none_of(&told, &["look", "open"]);
        }
        // What the program waits in is not always told on older kernels: then only a part of the name is known.
        let is_told = |name: &str, kinds: &[&str]| {
            told.iter().any(|line| {
                let is_part = line.1.len() > "/root".len() && name.starts_with(line.1.as_str());
                kinds.contains(&line.0.as_str()) && (line.1 == name || is_older_kernel() && is_part)
            })
        };
        for name in [secret.as_str(), "/root/.ssh/id_rsa"] {
            let kinds: &[&str] = if is_older_kernel() {
                &["open", "look"]
            } else {
                &["open"]
            };
            assert!(is_told(name, kinds), "{name}: {told:?}");
        }
        for name in ["/home/nobody/x", "/opt/a/b"] {
            assert!(is_told(name, &["look"]), "{name}: {told:?}");
        }
        let through_link = told.iter().find(|line| line.1 == text(outside.path()));
        assert!(through_link.is_some(), "{told:?}");
        assert!(
            is_older_kernel() || told.iter().any(|line| line.1.len() > 3000),
            "{told:?}"
        );
        std::fs::remove_file(workspace.path().join("l")).unwrap();
    }
    assert_eq!(once(&spec, "on", &["/bin/true"]).explanation, "on");
    Ok(())
}

/// Init is the tripwire's server and connects for programs: a socket's path that leads there must not make it wait for
/// itself, whichever way it leads.
fn sockets_outside_do_not_stop_init() -> Checked {
    for way in WAYS {
        let workspace = temporary();
        let spec = Spec::new(workspace.path(), "rwd");
        let link = workspace.path().join("link");
        std::os::unix::fs::symlink("/root/none/socket", &link).unwrap();
        let probe = text(&support::this_program());
        for path in ["/root/socket", "/var/run/none/socket", &text(&link)] {
            let ran = support::confined(way, &spec, &[&probe, "--probe", "unix", path]);
            assert_eq!(
                ran.stdout.trim(),
                format!("ERRNO {}", libc::ENOENT),
                "{path}"
            );
        }
    }
    Ok(())
}

/// Many threads that look for many names leave init time for its other work: the time limit still ends them.
fn a_flood_of_looks_starves_nothing() -> Checked {
    let workspace = temporary();
    let spec = Spec::new(workspace.path(), "rwd");
    let flood =
        "for t in 1 2 3 4; do (i=0; while :; do test -f /root/$t$i; i=$((i+1)); done) & done; wait";
    let output = once_command(&spec, &["/bin/sh", "-c", flood])
        .env("ONCE_TIMEOUT_MS", "700")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    let sandbox = standing(&spec);
    let mut request = support::shell(&spec, flood);
    request.timeout = std::time::Duration::from_millis(700);
    let outcome = sandbox.run(&request).unwrap();
    assert_eq!(outcome.end, policy::sandbox::ProcessEnd::TimedOut);
    assert!(outcome.denials.len() <= 512);
    let after = sandbox.run(&support::shell(&spec, "exit 3")).unwrap();
    assert_eq!(after.end.exit_code(), 3);
    sandbox.end().unwrap();
    Ok(())
}

/// A program's own filter on top of ours, and programs that are stopped while init has their call.
fn programs_with_filters_and_stopped_ones_go_on() -> Checked {
    let workspace = temporary();
    let spec = Spec::new(workspace.path(), "rwd");
    let script = "(while :; do > f; rm f; done) & p=$!; for i in 1 2 3 4 5 6 7 8; do kill -STOP $p; kill -CONT $p; done; \
                  kill -STOP $p; mkdir d && rmdir d && kill -KILL $p && echo fine";
    for way in WAYS {
        let ran = support::confined(way, &spec, &["/bin/sh", "-c", script]);
        assert!(ran.stdout.contains("fine"), "{ran:?}");
    }
    Ok(())
}

fn main() -> ExitCode {
    support::take_over();
    let tests: &[(&str, Test)] = &[
        (
            "dc_3_changes_are_explained_by_the_policy",
            changes_are_explained_by_the_policy,
        ),
        ("what_works_is_not_told", what_works_is_not_told),
        (
            "sec_inv_06_the_network_is_explained",
            the_network_is_explained,
        ),
        ("refused_calls_are_explained", refused_calls_are_explained),
        ("explaining_changes_no_answer", explaining_changes_no_answer),
        ("floods_are_bounded", floods_are_bounded),
        ("missing_names_are_seen", missing_names_are_seen),
        (
            "sockets_outside_do_not_stop_init",
            sockets_outside_do_not_stop_init,
        ),
        (
            "a_flood_of_looks_starves_nothing",
            a_flood_of_looks_starves_nothing,
        ),
        (
            "programs_with_filters_and_stopped_ones_go_on",
            programs_with_filters_and_stopped_ones_go_on,
        ),
        (
            "opens_are_explained_when_asked_for",
            opens_are_explained_when_asked_for,
        ),
    ];
    let trials = tests
        .iter()
        .map(|(name, test)| Trial::test(*name, test))
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
