//! Issue 4, P-9: an unchanged start with 64 roots and 64 programs of 50 MB against the start of an empty configuration, side by
//! side: `serve` with no input, and `check`. Target: 50 ms more at most. Uses no disk to speak of: the programs are sparse.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed bench")]
#![allow(clippy::disallowed_types, reason = "the product as its users start it")]
#![allow(clippy::disallowed_macros, reason = "a bench prints its figures")]

use std::fmt::Write as _;
use std::io::{Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROOTS: usize = 64;
const PROGRAMS: usize = 64;
const PROGRAM_BYTES: u64 = 50_000_000;
const ROUNDS: usize = 25;
const TARGET_MS: f64 = 50.0;
/// Longer than what changed just now is not remembered.
const SETTLING: Duration = Duration::from_secs(3);

/// A configuration in a directory of its own.
struct Place {
    state: PathBuf,
    config: PathBuf,
}

impl Place {
    fn new(base: &Path, name: &str, sandbox: &str) -> Self {
        let directory = base.join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let config = directory.join("agent.yaml");
        let text = format!(
            "schema_version: 2\nollama: {{endpoint: \"http://127.0.0.1:1\", model: m}}\nsandbox:\n{sandbox}"
        );
        std::fs::write(&config, text).unwrap();
        Self {
            state: directory.join("state"),
            config,
        }
    }

    fn run(&self, words: &[&str]) -> Duration {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-mcp"));
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &self.state)
            .env("XDG_STATE_HOME", &self.state)
            .current_dir(self.config.parent().unwrap())
            .args(words)
            .arg("--config")
            .arg(&self.config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let start = Instant::now();
        let output = command.output().unwrap();
        let taken = start.elapsed();
        assert!(
            output.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        taken
    }

    /// What is remembered of the programs, if anything.
    fn forget(&self) {
        let store = self.state.join("agent-mcp/applied-configurations");
        for entry in std::fs::read_dir(store).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(".hashes.json") {
                std::fs::remove_file(path).unwrap();
            }
        }
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    let mut sandbox = "  workspaces:\n".to_owned();
    for number in 0..ROOTS {
        std::fs::create_dir_all(base.join(format!("full/root{number}"))).unwrap();
        writeln!(sandbox, "    - root{number}").unwrap();
    }
    sandbox.push_str("  execution:\n    entries:\n");
    for number in 0..PROGRAMS {
        let program = base.join(format!("program{number}"));
        std::fs::copy("/bin/true", &program).unwrap();
        let mut file = std::fs::File::options().write(true).open(&program).unwrap();
        file.seek(SeekFrom::Start(PROGRAM_BYTES - 8)).unwrap();
        file.write_all(&number.to_le_bytes()).unwrap();
        writeln!(
            sandbox,
            "      - {{alias: p{number}, path: ../program{number}}}"
        )
        .unwrap();
    }
    let full = Place::new(&base, "full", &sandbox);
    std::fs::create_dir_all(base.join("empty/ws")).unwrap();
    let empty = Place::new(&base, "empty", "  workspaces: [ws]\n");
    std::thread::sleep(SETTLING);
    let everything = full.run(&["apply", "--yes"]);
    empty.run(&["apply", "--yes"]);
    println!(
        "apply, all {PROGRAMS} programs of {PROGRAM_BYTES} bytes read: {:.0} ms",
        everything.as_secs_f64() * 1e3
    );
    full.forget();
    let nothing_remembered = full.run(&["serve"]);
    println!(
        "serve, nothing remembered: {:.0} ms",
        nothing_remembered.as_secs_f64() * 1e3
    );
    for words in [&["serve"][..], &["check"], &["show"]] {
        let (mut of_empty, mut of_full) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            of_empty.push(empty.run(words));
            of_full.push(full.run(words));
        }
        let (of_empty, of_full) = (median(of_empty), median(of_full));
        let more = of_full - of_empty;
        let verdict = if more <= TARGET_MS { "met" } else { "MISSED" };
        println!(
            "{}: empty {of_empty:.1} ms, {ROOTS} roots and {PROGRAMS} programs {of_full:.1} ms: {more:.1} ms more (median of {ROUNDS}; target {TARGET_MS} ms: {verdict})",
            words[0]
        );
    }
}
