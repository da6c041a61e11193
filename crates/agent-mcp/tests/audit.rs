//! `agent-mcp audit` on a real log.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use support::{Place, can_confine, text};

fn logged() -> Option<(Place, std::path::PathBuf)> {
    if !can_confine() {
        return None;
    }
    let place = Place::usual("http://127.0.0.1:9");
    let output = place
        .command(&["exec"])
        .args(["--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let file = find(&place.state).expect("an audit file");
    Some((place, file))
}

fn find(directory: &std::path::Path) -> Option<std::path::PathBuf> {
    std::fs::read_dir(directory)
        .ok()?
        .flatten()
        .find_map(|entry| {
            let path = entry.path();
            if path.is_dir() {
                return find(&path);
            }
            (path
                .extension()
                .is_some_and(|extension| extension == "jsonl")
                && path
                    .file_name()
                    .unwrap()
                    .to_string_lossy()
                    .starts_with("audit"))
            .then_some(path)
        })
}

/// DC-3: `exec` is in the log, and the log verifies.
#[test]
fn dc_3_exec_is_in_the_log() {
    let Some((place, _)) = logged() else { return };
    let output = place.output(&["audit", "verify"]);
    assert!(
        output.status.success() && text(&output.stdout).contains("audit: verified"),
        "{}",
        text(&output.stdout)
    );
    let events: Vec<String> = place
        .audit()
        .iter()
        .map(|record| record["event"].as_str().unwrap().to_owned())
        .collect();
    for wanted in ["process.start", "process.exit", "enforcement.report"] {
        assert!(
            events.iter().any(|event| event == wanted),
            "{wanted}: {events:?}"
        );
    }
}

/// DC-3, GUARD 7: a flipped byte, a missing line and a cut tail are found, with their place; exit 1.
#[test]
fn dc_3_every_change_is_found() {
    let Some((place, file)) = logged() else {
        return;
    };
    let good = std::fs::read(&file).unwrap();
    let newline = good.iter().position(|byte| *byte == b'\n').unwrap();
    let mut flipped = good.clone();
    let at = newline
        + good[newline..]
            .windows(8)
            .position(|window| window == b"\"event\":")
            .unwrap()
        + 10;
    flipped[at] ^= 1;
    let without_first = good[newline + 1..].to_vec();
    let last = good[..good.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap();
    let cut = good[..=last].to_vec();
    for (what, bytes) in [("flip", flipped), ("drop", without_first), ("cut", cut)] {
        std::fs::write(&file, bytes).unwrap();
        let output = place.output(&["audit", "verify"]);
        let all = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{what}: {all}");
        assert!(all.contains("NOT VERIFIED"), "{what}: {all}");
    }
    std::fs::write(&file, good).unwrap();
    assert!(
        place.output(&["audit", "verify"]).status.success(),
        "control"
    );
}

/// X-KEYS: a key that others can read is refused; nothing runs without a log.
#[test]
#[cfg(unix)]
fn x_keys_an_open_key_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let Some((place, _)) = logged() else { return };
    let key = place.state.join("audit.key");
    assert_eq!(
        std::fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = place
        .command(&["exec"])
        .args(["--", "sh", "-c", "echo ran > ran"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(
        text(&output.stderr).contains("audit.key_unusable"),
        "{}",
        text(&output.stderr)
    );
    assert!(!place.workspace.join("ran").exists());
}

/// X-KEYS: a key in the environment that is no key is refused, and never shown, also where it is no text.
#[test]
#[cfg(unix)]
fn x_keys_a_key_that_is_no_text_is_refused_and_not_shown() {
    use std::os::unix::ffi::OsStringExt;
    let place = support::Place::usual("http://127.0.0.1:1");
    place.output(&["apply", "--yes"]);
    let mut bytes = b"topsecretvalue".to_vec();
    bytes.push(0xff);
    let value = std::ffi::OsString::from_vec(bytes);
    for words in [&["audit", "verify"][..], &["check"], &["serve"]] {
        let mut command = place.unapplied(words);
        let output = command.env("AGENT_MCP_AUDIT_KEY", &value).output().unwrap();
        let said = support::text(&output.stdout) + &support::text(&output.stderr);
        assert_ne!(output.status.code(), Some(0), "{words:?}: {said}");
        assert!(said.contains("AGENT_MCP_AUDIT_KEY"), "{words:?}: {said}");
        assert!(!said.contains("topsecret"), "{words:?}: {said}");
    }
}
