//! Completions and manual pages: made from the command definitions, whole, and readable by what reads them.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use agent_mcp::cli::localized;
use agent_mcp::locale::Locale;
use clap::Command;
use std::io::Write;
use std::process::Stdio;
use support::{command, text};

/// Every command with its full name, and every long flag.
fn names(command: &Command, names: &mut Vec<String>, flags: &mut Vec<String>) {
    for sub in command.get_subcommands() {
        names.push(sub.get_name().to_owned());
        self::names(sub, names, flags);
    }
    flags.extend(
        command
            .get_arguments()
            .filter_map(|arg| arg.get_long())
            .map(str::to_owned),
    );
}

fn all() -> (Vec<String>, Vec<String>) {
    let (mut commands, mut flags) = (Vec::new(), Vec::new());
    names(
        &localized(&Locale::built_in("en")),
        &mut commands,
        &mut flags,
    );
    assert!(commands.len() >= 10 && flags.len() >= 20);
    (commands, flags)
}

fn completions(shell: &str, lang: &str) -> String {
    let state = tempfile::tempdir().unwrap();
    let output = command(state.path())
        .args(["completions", shell, "--lang", lang])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Issue 4: each shell's script names every command and every flag, in each language.
#[test]
fn x_cli_completions_are_whole() {
    let (commands, flags) = all();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        for lang in ["en", "ja"] {
            let script = completions(shell, lang);
            for name in &commands {
                assert!(script.contains(name.as_str()), "{shell} {lang}: {name}");
            }
            for flag in &flags {
                let written =
                    script.contains(&format!("--{flag}")) || script.contains(&format!("-l {flag}"));
                assert!(written, "{shell} {lang}: --{flag}");
            }
        }
    }
}

/// Issue 4: the shells that are here can read theirs. `bash` always is.
#[test]
fn x_cli_completions_can_be_read() {
    for (shell, needed) in [("bash", true), ("zsh", false), ("fish", false)] {
        for lang in ["en", "ja"] {
            let spawned = std::process::Command::new(shell)
                .arg("-n")
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let mut child = match spawned {
                Ok(child) => child,
                Err(_) if !needed => continue,
                Err(error) => panic!("{shell}: {error}"),
            };
            let script = completions(shell, lang);
            child
                .stdin
                .take()
                .unwrap()
                .write_all(script.as_bytes())
                .unwrap();
            let output = child.wait_with_output().unwrap();
            assert!(
                output.status.success(),
                "{shell} {lang}: {}",
                text(&output.stderr)
            );
        }
    }
}

/// Issue 4: the main page on standard output; a page for each command in a directory.
#[test]
fn x_cli_manual_pages_are_whole() {
    let state = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let output = command(state.path()).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let main = run(&["man"]);
    assert!(main.contains(".TH agent-mcp 1"), "{main}");
    assert!(
        main.contains(".SH NAME") && main.contains(".SH COMMANDS"),
        "{main}"
    );
    let japanese = run(&["man", "--lang", "ja"]);
    for heading in [".SH 名前", ".SH 書式", ".SH コマンド"] {
        assert!(japanese.contains(heading), "{heading}: {japanese}");
    }
    for line in japanese.lines().filter(|line| line.starts_with(".SH")) {
        assert!(!line.is_ascii(), "{line}");
    }
    let directory = state.path().join("man1");
    run(&["man", &directory.display().to_string()]);
    let mut whole = localized(&Locale::built_in("en"));
    whole.build();
    let mut waiting = vec![whole];
    while let Some(command) = waiting.pop() {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let page = std::fs::read_to_string(directory.join(format!("{name}.1"))).unwrap();
        for flag in command.get_arguments().filter_map(|arg| arg.get_long()) {
            let flag = flag.replace('-', "\\-");
            assert!(page.contains(&flag), "{name}: {flag}\n{page}");
        }
        waiting.extend(command.get_subcommands().cloned());
    }
    // What cannot be written is an error that says so.
    let output = command(state.path())
        .args(["man", "/dev/null/x"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("/dev/null/x"),
        "{}",
        text(&output.stderr)
    );
}
