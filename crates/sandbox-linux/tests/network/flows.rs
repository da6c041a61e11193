//! What is granted works as TCP does.

use crate::support::world::{eventually, is_alive, text};
use crate::support::{self, Spec, Way, once_command, request, standing, temporary, this_program};
use crate::{Checked, PUBLIC, PUBLIC_6, Test, servers};
use policy::sandbox::Relayed;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

pub const TESTS: &[(&str, Test)] = &[
    ("st_13_local_reaches_the_port_on_both_loopbacks", local_both),
    (
        "st_13_restricted_reaches_the_listed_address",
        restricted_both,
    ),
    ("half_close_and_ten_megabytes_each_way", ten_megabytes),
    ("receives_to_the_end_and_sends_before_its_end", one_way),
    ("two_thousand_connections", two_thousand),
    (
        "at_the_limit_of_descriptors_one_more_is_reset",
        at_the_limit,
    ),
    ("an_endpoint_that_refuses_resets", refuses),
    (
        "an_endpoint_that_resets_passes_it_on_after_its_bytes",
        resets,
    ),
    ("an_endpoint_that_stalls_holds_little", stalls),
    ("an_endpoint_that_never_answers_is_given_up", never_answers),
    ("bytes_and_connections_are_counted", counted),
    ("st_18_a_killed_server_leaves_no_listener", killed),
    (
        "a_full_descriptor_table_inside_hurts_only_itself",
        own_table,
    ),
];

pub fn client(words: &[&str]) -> Vec<String> {
    let mut argv = vec![text(&this_program()), "--client".into()];
    argv.extend(words.iter().map(|word| (*word).to_owned()));
    argv
}

fn first_line(stdout: &[u8]) -> String {
    let text = String::from_utf8_lossy(stdout);
    text.lines().next().unwrap_or("").to_owned()
}

/// Confined.
pub fn inside(way: Way, spec: &Spec, words: &[&str]) -> String {
    let argv = client(words);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let ran = support::confined(way, spec, &argv);
    let line = first_line(ran.stdout.as_bytes());
    if line.is_empty() {
        return format!("{ran:?}");
    }
    line
}

/// The control.
pub fn outside(words: &[&str]) -> String {
    let argv = client(words);
    let output = Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
    first_line(&output.stdout)
}

pub fn spec(directory: &tempfile::TempDir) -> Spec {
    let mut spec = Spec::new(&directory.path().canonicalize().unwrap(), "rwd");
    spec.processes = 512;
    spec
}

pub fn allow(spec: &mut Spec, addresses: &[SocketAddr]) {
    spec.restricted = addresses
        .iter()
        .map(|address| (address.ip().to_string(), address.port()))
        .collect();
}

fn local_both(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let port = servers::echo_on_both_loopbacks();
    spec.local = vec![port];
    for host in ["127.0.0.1", "[::1]", "localhost"] {
        let address = format!("{host}:{port}");
        let line = inside(way, &spec, &["echo-by-name", &address, "1000"]);
        assert_eq!(line, "OK 1003 true", "{address}");
    }
    Ok(())
}

fn restricted_both(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let (four, six) = (servers::echo(PUBLIC), servers::echo(PUBLIC_6));
    allow(&mut spec, &[four, six]);
    for address in [four, six] {
        let line = inside(way, &spec, &["echo", &address.to_string(), "1000"]);
        assert_eq!(line, "OK 1003 true", "{address}");
    }
    Ok(())
}

fn ten_megabytes(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let address = servers::echo(PUBLIC);
    allow(&mut spec, &[address]);
    let line = inside(way, &spec, &["echo", &address.to_string(), "10000000"]);
    assert_eq!(line, "OK 10000003 true");
    Ok(())
}

fn one_way(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let sender = servers::sender(PUBLIC, 3_000_000);
    let (collector, collected) = servers::collector(PUBLIC);
    allow(&mut spec, &[sender, collector]);
    let line = inside(way, &spec, &["receive", &sender.to_string()]);
    assert_eq!(line, "OK 3000000 true");
    // The program is gone before the last byte is delivered.
    for bytes in [1, 3_000_000] {
        let line = inside(
            way,
            &spec,
            &["send", &collector.to_string(), &bytes.to_string()],
        );
        assert_eq!(line, "OK ");
        let arrived = collected.recv_timeout(std::time::Duration::from_secs(20))?;
        assert!(
            arrived == servers::pattern(bytes),
            "{} of {bytes}",
            arrived.len()
        );
    }
    Ok(())
}

fn two_thousand(way: Way) -> Checked {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.current.is_some_and(|limit| limit < 8192) {
        eprintln!("skipped, needs: 8192 open files");
        assert!(std::env::var_os("AGENT_MCP_FORBID_SKIPS").is_none());
        return Ok(());
    }
    let directory = temporary();
    let mut spec = spec(&directory);
    let address = servers::echo(PUBLIC);
    allow(&mut spec, &[address]);
    let line = inside(way, &spec, &["many", &address.to_string(), "2000"]);
    assert_eq!(line, "OK 2000");
    Ok(())
}

/// With 400 descriptors there is room for 142 connections; what comes then is reset at once, and the rest goes on.
fn at_the_limit(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let address = servers::echo(PUBLIC);
    allow(&mut spec, &[address]);
    let argv = client(&["crowd", &address.to_string(), "200"]);
    let runner = match way {
        Way::Once => "--once",
        Way::Standing => "--standing",
    };
    let output = Command::new("/bin/sh")
        .args(["-c", "ulimit -n 400; exec \"$@\"", "sh"])
        .arg(this_program())
        .arg(runner)
        .arg(serde_json::to_string(&spec).unwrap())
        .args(argv)
        .output()?;
    assert_eq!(
        first_line(&output.stdout),
        "OK true true true",
        "{output:?}"
    );
    Ok(())
}

/// The limit of the program itself is none of the relay's.
fn own_table(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let address = servers::echo(PUBLIC);
    allow(&mut spec, &[address]);
    let words = client(&["crowd", &address.to_string(), "200"]).join(" ");
    let script = format!(
        "ulimit -n 64; {words}; ulimit -Hn 256; {}",
        client(&["echo", &address.to_string(), "9"]).join(" ")
    );
    let ran = support::confined(way, &spec, &["/bin/sh", "-c", &script]);
    assert!(ran.stdout.ends_with("OK 12 true\n"), "{ran:?}");
    Ok(())
}

fn refuses(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    for host in [PUBLIC, PUBLIC_6, "127.0.0.1"] {
        let address = servers::closed(host);
        allow(&mut spec, &[address]);
        let line = inside(way, &spec, &["talk", &address.to_string()]);
        assert_eq!(line, format!("ERRNO {}", libc::ECONNRESET), "{host}");
        let control = outside(&["talk", &address.to_string()]);
        assert_eq!(control, format!("ERRNO {}", libc::ECONNREFUSED), "{host}");
    }
    Ok(())
}

fn resets(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let address = servers::resetting(PUBLIC);
    allow(&mut spec, &[address]);
    let expected = format!("OK FIRST then ERRNO {}", libc::ECONNRESET);
    assert_eq!(outside(&["talk", &address.to_string()]), expected);
    assert_eq!(
        inside(way, &spec, &["talk", &address.to_string()]),
        expected
    );
    Ok(())
}

/// Back-pressure: what the endpoint does not take stays with the program. Two kernels' queues and one pipe are between.
fn stalls(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let address = servers::stalled(PUBLIC);
    allow(&mut spec, &[address]);
    let sent = |line: String| {
        line.strip_prefix("OK ")
            .and_then(|text| text.parse::<u64>().ok())
    };
    let control = sent(outside(&["stuff", &address.to_string()])).ok_or("the control failed")?;
    let line = inside(way, &spec, &["stuff", &address.to_string()]);
    let confined = sent(line.clone()).ok_or(line)?;
    assert!(
        confined <= 2 * control + (1 << 20),
        "{confined} against {control}"
    );
    Ok(())
}

fn never_answers(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let address = servers::unanswering(PUBLIC);
    let other = servers::echo(PUBLIC);
    allow(&mut spec, &[address, other]);
    let script = format!(
        "{} & {}; wait",
        client(&["talk", &address.to_string()]).join(" "),
        client(&["echo", &other.to_string(), "5"]).join(" ")
    );
    let ran = support::confined(way, &spec, &["/bin/sh", "-c", &script]);
    // The other endpoint was not kept waiting.
    let expected = format!("OK 8 true\nERRNO {}\n", libc::ECONNRESET);
    assert_eq!(ran.stdout, expected, "{ran:?}");
    Ok(())
}

/// P-1's report and the Task's end say what went where.
fn counted(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let (used, unused, dead) = (
        servers::echo(PUBLIC),
        servers::echo(PUBLIC),
        servers::closed(PUBLIC),
    );
    allow(&mut spec, &[used, unused, dead]);
    let script = [
        client(&["echo", &used.to_string(), "1000"]),
        client(&["echo", &used.to_string(), "2000"]),
        client(&["talk", &dead.to_string()]),
    ]
    .map(|words| words.join(" "))
    .join(";");
    let argv = ["/bin/sh", "-c", &script];
    let line = |address: SocketAddr, connections, refused, bytes_out, bytes_in| Relayed {
        endpoint: address.to_string(),
        address,
        routed: true,
        connections,
        refused,
        bytes_out,
        bytes_in,
    };
    let mut expected = [
        line(used, 2, 0, 3000, 3006),
        line(unused, 0, 0, 0, 0),
        line(dead, 0, 1, 0, 0),
    ];
    expected.sort_by_key(|line| line.address);
    match way {
        Way::Standing => {
            let sandbox = standing(&spec);
            let outcome = sandbox.run(&request(&spec, &argv))?;
            assert!(outcome.end.is_success(), "{outcome:?}");
            sandbox.end()?;
            let mut relayed = sandbox.relayed();
            relayed.sort_by_key(|line| line.address);
            assert_eq!(relayed, expected);
            assert!(!relayed.iter().all(Relayed::is_notable));
        }
        Way::Once => {
            let output = once_command(&spec, &argv)
                .env("ONCE_REPORT", "1")
                .output()?;
            let report = String::from_utf8_lossy(&output.stderr).into_owned();
            for line in expected {
                assert!(
                    report.contains(&format!("{line:?}")),
                    "{line:?} is not in {report}"
                );
            }
        }
    }
    Ok(())
}

/// ST-18: whoever holds the sandbox is killed while connections are open. The endpoint sees their end, and nothing stays.
fn killed(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let (address, begun, collected) = servers::witness(PUBLIC, b"hello\n".len());
    allow(&mut spec, &[address]);
    let marker = format!("7{:06}", std::process::id() + u32::from(way == Way::Once));
    let (host, port) = (address.ip(), address.port());
    let script =
        format!("exec 3<>/dev/tcp/{host}/{port}; echo hello >&3; echo ready; exec sleep {marker}");
    let runner = match way {
        Way::Once => "--once",
        Way::Standing => "--standing",
    };
    let mut child = Command::new(this_program())
        .arg(runner)
        .arg(serde_json::to_string(&spec).unwrap())
        .args(["/bin/bash", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    eventually("the program runs", || is_alive(&format!("sleep\0{marker}")));
    // What the relay has not taken yet dies with it.
    begun.recv_timeout(std::time::Duration::from_secs(20))?;
    assert!(collected.try_recv().is_err());
    child.kill()?;
    child.wait()?;
    eventually("the tree is gone", || {
        !is_alive(&format!("sleep\0{marker}"))
    });
    eventually("the helper is gone", || !is_alive(&text(directory.path())));
    let arrived = collected.recv_timeout(std::time::Duration::from_secs(20))?;
    assert_eq!(arrived, b"hello\n");
    Ok(())
}
