//! Network levels `local` and `restricted` (X-NET; SEC-INV-06; ST-12 to ST-14, ST-18, ST-27): what is listed is reached
//! and works as TCP does, and nothing else exists.
//!
//! Runs in network and mount namespaces of its own, where the "public" addresses, the hosts file and a resolver that never
//! answers are made for the test; as root with the host's own user 0, else as an ordinary user.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test with a main of its own: it may fail, connect and print"
)]

mod client;
mod closed;
mod flows;
mod names;
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod tls;

use libtest_mimic::{Arguments, Failed, Trial};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode};
use support::{Spec, WAYS, Way, matrix, rows};

type Checked = Result<(), Failed>;
type Test = fn(Way) -> Checked;

/// A public address that this namespace has.
pub const PUBLIC: &str = "93.184.216.34";
/// The same, IPv6.
pub const PUBLIC_6: &str = "2606:2800:220:1::34";
/// Another host.
pub const NEIGHBOUR: &str = "93.184.216.35";

const INSIDE: &str = "NETWORK_TEST_INSIDE";

/// `$1` is a directory, `$2` an id: 0 stays root.
const SETUP: &str = r#"
set -e
ip link set lo up
for address in 93.184.216.34 93.184.216.35; do ip addr add $address/32 dev lo; done
for address in 2606:2800:220:1::34 2606:2800:220:1::35; do ip -6 addr add $address/128 dev lo nodad; done
# The kernel makes the way to a new IPv6 address a moment later.
for address in 2606:2800:220:1::34 2606:2800:220:1::35; do
  tries=0
  until ip -6 route get $address >/dev/null 2>&1; do
    tries=$((tries + 1)); [ $tries -lt 1000 ] || exit 98
    sleep 0.01
  done
done
echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start
mount --bind "$1/hosts" /etc/hosts
mount --bind "$1/resolv.conf" /etc/resolv.conf
user=$2; shift 2
[ "$user" = 0 ] && exec "$@"
exec unshare --user --map-user="$user" --map-group="$user" "$@"
"#;

const HOSTS: &str = "\
127.0.0.1 localhost
::1 localhost
93.184.216.34 both.test
2606:2800:220:1::34 both.test
93.184.216.34 four.test
93.184.216.34 mixed.test
10.0.0.5 mixed.test
127.0.0.1 loop.test
169.254.169.254 meta.test
";

/// Runs this program again in namespaces of its own. `None` where that is impossible.
fn isolated() -> Option<ExitCode> {
    let directory = support::temporary();
    std::fs::write(directory.path().join("hosts"), HOSTS).unwrap();
    std::fs::write(
        directory.path().join("resolv.conf"),
        "nameserver 127.0.0.1\n",
    )
    .unwrap();
    let user = rustix::process::geteuid().as_raw();
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount"]);
    if user != 0 {
        command.arg("--map-root-user");
    }
    let possible = Command::new("sh")
        .args([
            "-c",
            "command -v ip unshare && unshare --help | grep -q map-user",
        ])
        .output()
        .is_ok_and(|output| output.status.success());
    if !possible {
        return None;
    }
    let status = command
        .args(["sh", "-c", SETUP, "setup"])
        .arg(directory.path())
        .arg(user.to_string())
        .arg(support::this_program())
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .status()
        .unwrap();
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Some(ExitCode::from(code.unwrap_or(1) as u8))
}

fn main() -> ExitCode {
    support::take_over();
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|word| word == "--client") {
        client::main(&arguments[2..]);
    }
    if arguments.get(1).is_some_and(|word| word == "--standing") {
        standing_main(&arguments[2], &arguments[3..]);
    }
    if std::env::var_os(INSIDE).is_none() {
        return match isolated() {
            Some(code) => code,
            None if std::env::var_os("AGENT_MCP_FORBID_SKIPS").is_some() => {
                eprintln!("skipped, needs: ip, unshare --map-user");
                ExitCode::FAILURE
            }
            None => {
                eprintln!("skipped, needs: ip, unshare --map-user");
                ExitCode::SUCCESS
            }
        };
    }
    servers::silence_the_resolver();
    let tests = [flows::TESTS, closed::TESTS, names::TESTS, tls::TESTS];
    let mut trials = Vec::new();
    for way in WAYS {
        for (name, test) in tests.into_iter().flatten() {
            trials.push(Trial::test(format!("{way:?}::{name}"), move || test(way)));
        }
        // ST-27: with the grant, everything that is refused without it is refused still.
        for row in rows::all().filter(|row| row.private_network || !is_about_no_network(row)) {
            let name = format!("{way:?}::st_27_local::{}", row.name);
            let widen = |spec: &mut Spec| spec.local = vec![servers::UNUSED_PORT];
            trials.push(Trial::test(name, move || {
                matrix::check_with(row, way, widen)
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// One program in a Task's sandbox, in a process of its own.
fn standing_main(spec: &str, argv: &[String]) -> ! {
    let spec: Spec = serde_json::from_str(spec).unwrap();
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let ran = support::confined(Way::Standing, &spec, &argv);
    print!("{}", ran.stdout);
    eprint!("{}", ran.stderr);
    std::process::exit(ran.code.parse().unwrap_or(125))
}

/// Rows that say what the level `none` refuses beyond the others.
fn is_about_no_network(row: &rows::Row) -> bool {
    row.name == "sec_inv_06_every_socket_family"
        || rows::network::ROWS
            .iter()
            .any(|other| other.name == row.name)
}
