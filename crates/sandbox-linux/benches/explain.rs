//! What explaining costs (sandbox.md: at most 1.05 times on `find`, `cc`, `rg`): off, on and opens in turn, so that whatever else the machine
//! does meets all three. `cargo bench -p sandbox-linux --bench explain`.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a bench: it may fail, start programs and print"
)]

use policy::effective::{Ceiling, PolicyDraft, SandboxMode};
use sandbox_linux::{Explain, confine};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LEVELS: [(&str, Explain); 3] = [
    ("off", Explain::Off),
    ("on", Explain::On),
    ("opens", Explain::Opens),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).map(String::as_str) == Some("--inside") {
        inside(&arguments[2], Path::new(&arguments[3]), &arguments[4..]);
    }
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    fill(place.path());
    let works: [(&str, usize, &[&str]); 4] = [
        ("true", 60, &["true"]),
        (
            "find, 50000 files",
            8,
            &["find", ".", "-name", "none", "-newer", "a.c"],
        ),
        (
            "cc",
            8,
            &[
                "sh",
                "-c",
                "for i in 1 2 3 4 5; do cc -O1 -c a.c -o a.o; done",
            ],
        ),
        ("rg, 50000 files", 8, &["rg", "-j1", "needle"]),
    ];
    for (name, rounds, argv) in works {
        let mut times = [const { Vec::new() }; LEVELS.len()];
        for _ in 0..rounds {
            for (level, times) in LEVELS.iter().zip(&mut times) {
                times.push(once(level.0, place.path(), argv));
            }
        }
        let [off, on, opens] = times.map(|mut times: Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2].as_secs_f64() * 1e3
        });
        println!(
            "{name:20} off {off:8.2} ms   on {on:8.2} ms ({:.3} x)   opens {opens:8.2} ms ({:.3} x)",
            on / off,
            opens / off
        );
    }
}

fn fill(place: &Path) {
    for directory in 0..250 {
        let directory = place.join(format!("d{directory}"));
        std::fs::create_dir(&directory).unwrap();
        for file in 0..200 {
            std::fs::write(directory.join(format!("f{file}")), "some text\n").unwrap();
        }
    }
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint main(void) { return printf(\"x\"); }\n";
    std::fs::write(place.join("a.c"), source).unwrap();
}

/// `confine` needs a process with one thread, so each run is one of its own; both levels pay for that.
fn once(level: &str, place: &Path, argv: &[&str]) -> Duration {
    let started = Instant::now();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--inside", level])
        .arg(place)
        .args(argv)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(
        status.code().is_some_and(|code| code < 2),
        "{argv:?}: {status}"
    );
    started.elapsed()
}

fn inside(level: &str, place: &Path, argv: &[String]) -> ! {
    let explain = LEVELS.iter().find(|listed| listed.0 == level).unwrap().1;
    let mode = SandboxMode::WorkspaceWrite;
    let policy = PolicyDraft::preset(mode, place)
        .freeze(&Ceiling::mode(mode))
        .unwrap();
    let confined = confine(argv, &policy).unwrap().explaining(explain);
    let permit = confined.enforcement().permit(&policy).unwrap();
    let report = confined.run(permit, |_| Ok(())).unwrap();
    std::process::exit(report.end.exit_code())
}
