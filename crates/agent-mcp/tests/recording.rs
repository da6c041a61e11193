//! The terminal recording in the README: each command of it is run as it stands there, and says what it says there.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use std::path::PathBuf;
use std::process::Command;
use support::{RecordedModel, can_confine, text};

/// What is cut out of a recorded line, because it is another on each machine.
const CUT: char = '…';

/// Commands, each with the lines that follow it.
fn recording() -> Vec<(String, Vec<String>)> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let readme = std::fs::read_to_string(manifest.join("../../README.md")).unwrap();
    let block = readme.split("<!-- recording -->").nth(1).unwrap();
    let block = block.split("```console\n").nth(1).unwrap();
    let block = block.split("```").next().unwrap();
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push((command.to_owned(), Vec::new())),
            None => commands.last_mut().unwrap().1.push(line.to_owned()),
        }
    }
    commands
}

/// Whether the pieces between the cuts are there, in order, from the start to the end of the line.
fn fits(recorded: &str, said: &str) -> bool {
    let pieces: Vec<&str> = recorded.trim_end().split(CUT).collect();
    let Some((last, pieces)) = pieces.split_last() else {
        return false;
    };
    let Some((first, between)) = pieces.split_first() else {
        return said.trim_end() == *last;
    };
    let Some(mut rest) = said.trim_end().strip_prefix(first) else {
        return false;
    };
    for piece in between {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Columns are as wide as what is in them.
fn narrow(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ")
}

/// Issue 4: `init`, edit, `check`, `show`, `apply`, `run`, as a newcomer types them.
#[test]
fn uc_06_the_readme_shows_what_happens() {
    assert!(
        fits("a … c", "a b c") && fits("a …", "a b") && fits("a", "a"),
        "control"
    );
    assert!(
        !fits("a … c", "a b d") && !fits("a", "a b") && !fits("b …", "a b"),
        "control"
    );
    if !can_confine() {
        return;
    }
    let model = RecordedModel::start();
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    let project = base.join("my-project");
    std::fs::create_dir(&project).unwrap();
    let program = support::program();
    let bin = base.join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(&program, bin.join("agent-mcp")).unwrap();
    let commands = recording();
    assert_eq!(commands.len(), 7, "{commands:?}");
    for (command, recorded) in commands {
        // The model of the recording stands in for an Ollama at its usual place.
        let run = match command.as_str() {
            "agent-mcp init" => format!("{command} --ollama {}", model.endpoint),
            other => other.to_owned(),
        };
        let output = Command::new("/bin/sh")
            .args(["-c", &run])
            .env_clear()
            .env(
                "PATH",
                format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()),
            )
            .env("HOME", &base)
            .env("COLUMNS", "120")
            .current_dir(&project)
            .output()
            .unwrap();
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{run}: {said}");
        let shown = said.replace(base.to_str().unwrap(), "/home/me");
        let mut lines = shown.lines();
        for line in recorded {
            if line.trim() == CUT.to_string() {
                continue;
            }
            assert!(
                lines.any(|said| fits(&narrow(&line), &narrow(said))),
                "{run} does not say (any more, or in this order): {line}\n{shown}"
            );
        }
    }
}
