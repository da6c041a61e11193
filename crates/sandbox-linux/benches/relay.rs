//! What the relay costs: the same client talks to the same server over plain loopback and through the relay, in turn, so
//! that whatever else the machine does meets both. Targets: at least 0.70 × the throughput, at most 1.5 × the round trip.
//! `cargo bench -p sandbox-linux --bench relay`.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a bench: it may fail, start programs and print"
)]

use policy::EffectivePolicy;
use policy::effective::{Ceiling, NetworkPolicy, PolicyDraft, SandboxMode};
use sandbox_linux::{Explain, confine};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const ROUNDS: usize = 7;
const ROUND_TRIPS: usize = 3000;
const CONNECTIONS: usize = 150;
const BYTES: usize = 512 << 20;

/// What is measured, and whether more is better.
const KINDS: [(&str, &str, bool); 5] = [
    ("trip", "round trip of 1 byte, us", false),
    ("kilo", "round trip of 1 KiB, us", false),
    ("connect", "connect and one round trip, us", false),
    ("out", "out, MiB/s", true),
    ("in", "in, MiB/s", true),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("--client") => return client(&arguments[2], arguments[3].parse().unwrap()),
        Some("--inside") => inside(Path::new(&arguments[2]), arguments[3].parse().unwrap()),
        _ => {}
    }
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let program = place.path().join("client");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let port = serve();
    println!("median of {ROUNDS} turns        plain    relayed   ratio");
    for (kind, name, more_is_better) in KINDS {
        let (mut plain, mut relayed) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            plain.push(figure(Command::new(&program).args([
                "--client",
                kind,
                &port.to_string(),
            ])));
            let mut through = Command::new(std::env::current_exe().unwrap());
            through
                .arg("--inside")
                .arg(place.path())
                .arg(port.to_string())
                .arg(kind);
            relayed.push(figure(&mut through));
        }
        let (plain, relayed) = (median(plain), median(relayed));
        let target = match more_is_better {
            true => "at least 0.70",
            false if kind == "connect" => "no target",
            false => "at most 1.5",
        };
        println!(
            "{name:32} {plain:9.1} {relayed:9.1} {:7.2}  ({target})",
            relayed / plain
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn figure(command: &mut Command) -> f64 {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.trim().parse().unwrap_or_else(|_| panic!("{output:?}"))
}

/// Answers by the first byte: `e` echoes, `s` takes all and says so, `g` gives.
fn serve() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}

fn answer(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0u8; 256 << 10];
    let mut first = [0u8];
    if stream.read_exact(&mut first).is_err() {
        return;
    }
    match first[0] {
        b'e' => {
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
        }
        b's' => {
            while let Ok(1..) = stream.read(&mut buffer) {}
            let _gone = stream.write_all(b"!");
        }
        _ => {
            let mut left = BYTES;
            while left > 0 {
                let part = left.min(buffer.len());
                if stream.write_all(&buffer[..part]).is_err() {
                    return;
                }
                left -= part;
            }
        }
    }
}

fn client(kind: &str, port: u16) {
    let connect = |first: &[u8]| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(first).unwrap();
        stream
    };
    let mut buffer = vec![0u8; 256 << 10];
    let value = match kind {
        "trip" | "kilo" => {
            let mut stream = connect(b"e");
            let part = &mut buffer[..if kind == "trip" { 1 } else { 1024 }];
            let times = (0..ROUND_TRIPS).map(|_| {
                let started = Instant::now();
                stream.write_all(part).unwrap();
                stream.read_exact(part).unwrap();
                started.elapsed().as_secs_f64() * 1e6
            });
            median(times.collect())
        }
        "connect" => {
            let times = (0..CONNECTIONS).map(|_| {
                let started = Instant::now();
                connect(b"e1").read_exact(&mut buffer[..1]).unwrap();
                started.elapsed().as_secs_f64() * 1e6
            });
            median(times.collect())
        }
        "out" => {
            let mut stream = connect(b"s");
            let started = Instant::now();
            let mut left = BYTES;
            while left > 0 {
                let part = left.min(buffer.len());
                stream.write_all(&buffer[..part]).unwrap();
                left -= part;
            }
            stream.shutdown(Shutdown::Write).unwrap();
            stream.read_exact(&mut buffer[..1]).unwrap();
            rate(started)
        }
        _ => {
            let mut stream = connect(b"g");
            let started = Instant::now();
            let mut received = 0;
            while received < BYTES {
                received += stream.read(&mut buffer).unwrap();
            }
            rate(started)
        }
    };
    println!("{value}");
}

fn rate(started: Instant) -> f64 {
    BYTES as f64 / f64::from(1 << 20) / started.elapsed().as_secs_f64()
}

/// `confine` needs a process with one thread, so each run is one of its own.
fn inside(place: &Path, port: u16) -> ! {
    let kind = std::env::args().nth(4).unwrap();
    let policy = policy(place, port);
    let argv = [
        place.join("client").into_os_string(),
        "--client".into(),
        kind.into(),
        port.to_string().into(),
    ];
    let confined = confine(&argv, &policy).unwrap().explaining(Explain::Off);
    let permit = confined.enforcement().permit(&policy).unwrap();
    let report = confined.run(permit, |_| Ok(())).unwrap();
    std::process::exit(report.end.exit_code())
}

fn policy(place: &Path, port: u16) -> EffectivePolicy {
    let mode = SandboxMode::WorkspaceWrite;
    let mut draft = PolicyDraft::preset(mode, place);
    draft.network = NetworkPolicy::Local {
        ports: [port].into(),
    };
    draft.freeze(&Ceiling::mode(mode)).unwrap()
}
