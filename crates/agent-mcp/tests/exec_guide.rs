//! What `docs/guide/exec.md`, `exec --report json` and `check` say of each other, and what ends `exec` before its command.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::{Place, can_confine, command, text};

fn guide() -> String {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    std::fs::read_to_string(manifest.join("../../docs/guide/exec.md")).unwrap()
}

/// `a.b`, `a[].b` for every field.
fn fields(value: &Value, at: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let name = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                into.insert(name.clone());
                fields(value, &name, into);
            }
        }
        Value::Array(list) => list
            .iter()
            .filter(|item| item.is_object())
            .for_each(|item| fields(item, &format!("{at}[]"), into)),
        _ => {}
    }
}

/// The reports of runs that between them fill every field.
fn reports() -> Vec<Value> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let local = format!(
        "sandbox:\n  workspaces: [ws]\n  network:\n    access: local\n    local_endpoints: [{port}]\n"
    );
    let busy = format!(
        "mkdir -p a/.git/hooks; echo x > /usr/x; exec 3<>/dev/tcp/127.0.0.1/{port}; exit 3"
    );
    let restricted = "sandbox:\n  workspaces: [ws]\n  network:\n    access: restricted\n    restricted_endpoints: [{host: 203.0.113.1, ports: [443]}]\n";
    let runs: [(&str, &str); 3] = [
        (&local, &busy),
        ("sandbox:\n  workspaces: [ws]\n", "kill -9 $$"),
        (restricted, "exit 0"),
    ];
    let mut reports = Vec::new();
    for (more, script) in runs {
        let place = Place::new("http://localhost:9", more);
        reports.push(report(&place, &["--"], &["/bin/bash", "-c", script]).1);
    }
    let place = Place::usual("http://localhost:9");
    reports.push(report(&place, &["--"], &["no-such-command"]).1);
    reports
}

fn report(place: &Place, flags: &[&str], argv: &[&str]) -> (Option<i32>, Value) {
    let file = place.directory.path().join("report.json");
    let output = command(&place.state)
        .current_dir(&place.workspace)
        .args(["exec", "--report", "json", "--report-file"])
        .arg(&file)
        .arg("--config")
        .arg(&place.config)
        .args(flags)
        .args(argv)
        .output()
        .unwrap();
    let written = std::fs::read_to_string(&file).unwrap();
    let report = serde_json::from_str(&written)
        .unwrap_or_else(|error| panic!("{error}: {written:?} {}", text(&output.stderr)));
    (output.status.code(), report)
}

/// Every field of real reports is in the guide's table, every field of the table is in a real report, and so is the example.
#[test]
fn the_guide_has_every_field_of_the_report() {
    if !can_confine() || !Path::new("/bin/bash").exists() {
        return;
    }
    let guide = guide();
    let listed: BTreeSet<String> = guide
        .split("## `--report json`")
        .nth(1)
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .collect();
    let mut real = BTreeSet::new();
    for report in reports() {
        fields(&report, "", &mut real);
    }
    assert_eq!(listed, real);
    let example = guide.split("```json").nth(1).unwrap();
    let example: Value = serde_json::from_str(example.split("```").next().unwrap()).unwrap();
    let mut shown = BTreeSet::new();
    fields(&example, "", &mut shown);
    assert!(shown.is_subset(&listed), "{shown:?}");
    assert!(example["end"]["how"].is_string());
}

/// interfaces.md §2: whatever ends `exec` before its command, a report that was asked for is written, with the code.
#[test]
fn every_early_end_writes_its_report() {
    let file_root = |place: &Place| {
        std::fs::write(place.workspace.join("file"), "").unwrap();
        place.workspace.join("file").display().to_string()
    };
    type Flags = fn(&Place, &dyn Fn(&Place) -> String) -> Vec<String>;
    let cases: &[(&str, Flags, i32, &str)] = &[
        (
            "an unknown language",
            |_, _| vec!["--lang".into(), "tlh".into()],
            125,
            "locale.invalid",
        ),
        (
            "a broken locale file",
            |place, _| {
                let locales = place.directory.path().join("config/locales");
                std::fs::create_dir_all(&locales).unwrap();
                std::fs::write(locales.join("xx.json"), "{").unwrap();
                Vec::new()
            },
            125,
            "locale.invalid",
        ),
        (
            "a configuration that is none",
            |place, _| {
                std::fs::write(&place.config, "schema_version: 2\nnonsense: 1\n").unwrap();
                Vec::new()
            },
            125,
            "configuration.invalid",
        ),
        (
            "no such root",
            |_, _| vec!["--root".into(), "/no/such/directory".into()],
            125,
            "file.not_found",
        ),
        (
            "a file for a root",
            |place, file| vec!["--root".into(), file(place)],
            125,
            "file.wrong_kind",
        ),
        (
            "danger-full-access under its own maximum",
            |place, _| {
                let text = std::fs::read_to_string(&place.config).unwrap();
                let text = text.replace("sandbox:\n", "sandbox:\n  max_mode: danger-full-access\n");
                std::fs::write(&place.config, text).unwrap();
                vec!["--mode".into(), "danger-full-access".into()]
            },
            126,
            "policy.approval_required",
        ),
    ];
    let mut wrong = Vec::new();
    for (what, flags, status, code) in cases {
        let place = Place::usual("http://localhost:9");
        let mut flags = flags(&place, &file_root);
        flags.push("--".into());
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let (ended, report) = report(&place, &flags, &["sh", "-c", "echo ran > ran"]);
        let told = (ended, report["error"]["code"].as_str());
        if told != (Some(*status), Some(code)) || report["exit_code"] != *status {
            wrong.push(format!("{what}: {report}"));
        }
        assert!(!place.workspace.join("ran").exists(), "{what}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// interfaces.md §2: usage errors of `exec` are ours on every line, and are not mistaken for the command's.
#[test]
fn usage_errors_begin_with_our_name() {
    let state = tempfile::tempdir().unwrap();
    for flags in [
        &["--no-such-flag", "--", "true"][..],
        &[],
        &["--"],
        &["--mode", "none", "--", "true"],
        &["--report-file", "x", "--", "true"],
        &["true"],
    ] {
        let output = command(state.path())
            .arg("exec")
            .args(flags)
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{flags:?} {said}");
        assert!(said.contains("--help says more"), "{said}");
        for line in said.lines() {
            assert!(line.starts_with("agent-mcp: "), "{flags:?}: {line:?}");
        }
        assert_eq!(text(&output.stdout), "");
    }
}

/// X-PARTIAL: `check` says for each missing control what it means and how to get it, in both languages and as JSON.
#[test]
fn x_partial_check_explains_what_is_missing() {
    if !can_confine() {
        return;
    }
    let place = Place::usual("http://localhost:9");
    let (_, report) = report(&place, &["--"], &["true"]);
    let missing: Vec<&str> = report["enforcement"]["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    assert!(missing.contains(&"workspace_quota"), "control: {missing:?}");
    for (lang, word) in [("en", "until its disk is full"), ("ja", "一杯になるまで")] {
        let output = place.output(&["check", "--lang", lang]);
        let table = text(&output.stdout);
        for control in &missing {
            let line = table
                .lines()
                .find(|line| line.contains(&format!("{control}: ")));
            assert!(
                line.is_some_and(|line| !line.contains("control.")),
                "{table}"
            );
        }
        assert!(table.contains(word), "{table}");
        let output = place.output(&["check", "--json", "--lang", lang]);
        let object: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = object["rows"].as_array().unwrap();
        let explained = rows.iter().filter(|row| row["subject"] == "missing");
        assert!(explained.count() >= missing.len(), "{object}");
        assert!(object.to_string().contains(word), "{object}");
    }
}
