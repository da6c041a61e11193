//! `agent-mcp apply` and what `serve` and `run` demand of it (DESIGN §10.3, §10.6; ST-23, ST-24).
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod support;

use std::path::{Path, PathBuf};
use support::{Client, Place, RecordedModel, field, text};

const REQUEST: &str = "create hello.txt containing the word hello";
const NOBODY: &str = "http://127.0.0.1:1";

/// A place whose entry can be changed.
fn place() -> (Place, PathBuf) {
    let place = Place::new(
        NOBODY,
        "sandbox:\n  workspaces: [ws]\n  execution:\n    entries:\n      - {alias: tool, path: tool}\n",
    );
    let tool = place.workspace.parent().unwrap().join("tool");
    std::fs::copy("/bin/true", &tool).unwrap();
    (place, tool)
}

fn apply(place: &Place) {
    let output = place.unapplied(&["apply", "--yes"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

fn stored(place: &Place) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = place.state.join("agent-mcp/applied-configurations");
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// `serve` is refused with this code, in both languages.
fn refused(place: &Place, code: &str, english: &str, japanese: &str) {
    for (lang, sentence) in [("en", english), ("ja", japanese)] {
        let output = place
            .unapplied(&["serve", "--lang", lang])
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(&format!("{code}: ")), "{said}");
        assert!(said.contains(sentence), "{said}");
        assert!(said.contains("agent-mcp apply"), "{said}");
    }
}

/// Control: as applied it serves; end of input ends it well.
fn served(place: &Place) {
    let output = place.unapplied(&["serve"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

fn drifted(place: &Place) {
    refused(
        place,
        "sandbox.resolution_changed",
        "This is not what was applied:",
        "適用した内容と異なります:",
    );
}

/// ST-23: user-only, one whole snapshot, and a refusal stores nothing.
#[test]
#[cfg(unix)]
fn st_23_one_private_snapshot_and_nothing_without_a_yes() {
    use std::os::unix::fs::PermissionsExt;
    let (place, _) = place();
    let output = place.unapplied(&["apply"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("--yes"));
    assert!(stored(&place).is_empty());
    apply(&place);
    let files = stored(&place);
    let [(file, _)] = files.as_slice() else {
        panic!("{files:?}")
    };
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(file), 0o600);
    assert_eq!(mode(file.parent().unwrap()), 0o700);
    let again = place.unapplied(&["apply"]).output().unwrap();
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    assert_eq!(stored(&place), files);
    let records = place.audit();
    assert!(
        records
            .iter()
            .any(|record| record["event"] == "config.load" && record["decision"] == "allow"),
        "{records:?}"
    );
}

/// ST-23: one path that is wrong, and nothing is stored.
#[test]
fn st_23_nothing_is_stored_where_anything_is_wrong() {
    let (place, tool) = place();
    std::fs::remove_file(tool).unwrap();
    let output = place.unapplied(&["apply", "--yes"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(stored(&place).is_empty());
}

/// ST-23: damaged, newer, open to others or a link: refused with the way out.
#[test]
#[cfg(unix)]
fn st_23_a_store_that_cannot_be_trusted_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (place, _) = place();
    apply(&place);
    let (file, good) = stored(&place).remove(0);
    let says = |sentence: &str| {
        let output = place.unapplied(&["serve"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("state.unusable: "), "{said}");
        assert!(said.contains(sentence), "{said}");
    };
    std::fs::write(&file, &good[..good.len() / 2]).unwrap();
    says("is damaged");
    let newer = text(&good).replace("\"schema_version\":1", "\"schema_version\":2");
    std::fs::write(&file, newer).unwrap();
    says("newer version");
    std::fs::write(&file, &good).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    says("chmod");
    std::fs::remove_file(&file).unwrap();
    let elsewhere = place.workspace.join("store.json");
    std::fs::write(&elsewhere, &good).unwrap();
    std::fs::set_permissions(&elsewhere, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    says("symbolic link");
}

/// ST-24: not applied, then one byte of the YAML: closed until applied again.
#[test]
fn st_24_an_edited_configuration_closes_until_applied() {
    let (place, _) = place();
    refused(
        &place,
        "sandbox.not_applied",
        "has not been applied",
        "は適用されていません",
    );
    apply(&place);
    served(&place);
    let yaml = std::fs::read_to_string(&place.config).unwrap();
    std::fs::write(&place.config, yaml + "# more\n").unwrap();
    drifted(&place);
    apply(&place);
    served(&place);
}

/// ST-24, AT-09, UC-06: one byte of an entry.
#[test]
fn st_24_a_changed_entry_closes_until_applied() {
    let (place, tool) = place();
    apply(&place);
    served(&place);
    let mut bytes = std::fs::read(&tool).unwrap();
    bytes.push(0);
    std::fs::write(&tool, bytes).unwrap();
    refused(
        &place,
        "executable.hash_changed",
        "its bytes changed",
        "内容が変わりました",
    );
    apply(&place);
    served(&place);
}

/// ST-24: the workspace is another directory under the same name.
#[test]
fn st_24_a_replaced_root_closes_until_applied() {
    let (place, _) = place();
    apply(&place);
    let command = || {
        let mut command = place.unapplied(&["serve"]);
        command.current_dir("/");
        command.output().unwrap()
    };
    assert_eq!(command().status.code(), Some(0));
    std::fs::rename(&place.workspace, place.workspace.with_file_name("old")).unwrap();
    std::fs::create_dir(&place.workspace).unwrap();
    drifted(&place);
    apply(&place);
    assert_eq!(command().status.code(), Some(0));
}

/// ST-24: a workspace that is a link leads elsewhere.
#[test]
#[cfg(unix)]
fn st_24_a_retargeted_workspace_closes_until_applied() {
    let place = Place::new(NOBODY, "sandbox:\n  workspaces: [link]\n");
    let base = place.workspace.parent().unwrap();
    std::fs::create_dir(base.join("other")).unwrap();
    let link = base.join("link");
    std::os::unix::fs::symlink("ws", &link).unwrap();
    apply(&place);
    served(&place);
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("other", &link).unwrap();
    drifted(&place);
}

/// DESIGN §10.3: an entry that was removed from the YAML is gone from the store after the same apply.
#[test]
fn design_10_3_a_removed_entry_is_gone() {
    let (place, _) = place();
    apply(&place);
    assert!(text(&stored(&place)[0].1).contains("\"tool\""));
    let yaml = std::fs::read_to_string(&place.config).unwrap();
    let without = yaml.split("  execution:").next().unwrap().to_owned();
    std::fs::write(&place.config, without).unwrap();
    apply(&place);
    assert!(!text(&stored(&place)[0].1).contains("\"tool\""));
}

/// DESIGN §10.6: `show` says how everything stands to what is applied, and changes nothing.
#[test]
fn uc_05_show_tells_what_is_applied_and_changes_nothing() {
    let (place, tool) = place();
    let shown = || {
        let output = place.unapplied(&["show", "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let before = shown();
    assert_eq!(before["applied"], false);
    assert_eq!(before["entries"][0]["state"], "new");
    assert!(stored(&place).is_empty());
    apply(&place);
    let files = stored(&place);
    let now = shown();
    assert_eq!(now["applied"], true);
    let roots = now["roots"].as_array().unwrap();
    let workspace = roots
        .iter()
        .find(|root| root["origins"][0] == "workspace")
        .unwrap();
    assert_eq!(workspace["state"], "applied");
    assert_eq!(
        workspace["rights"],
        serde_json::json!(["read", "write", "execute", "delete"])
    );
    assert!(
        roots
            .iter()
            .any(|root| root["origins"][0] == "os_runtime_root"
                && root["resolved"] == "/usr"
                && root["rights"] == serde_json::json!(["read", "execute"]))
    );
    std::fs::write(tool, "#!/bin/sh\n").unwrap();
    let drifted = shown();
    assert_eq!(drifted["applied"], false);
    assert_eq!(drifted["entries"][0]["state"], "changed");
    assert_eq!(stored(&place), files);
    for (lang, sentence) in [
        ("en", "has changed since it was applied"),
        ("ja", "適用後に変わった"),
    ] {
        let output = place.unapplied(&["show", "--lang", lang]).output().unwrap();
        assert!(
            text(&output.stdout).contains(sentence),
            "{}",
            text(&output.stdout)
        );
    }
}

/// ST-24: a server that runs closes too, also for Tasks that need no sandbox.
#[test]
fn st_24_a_running_server_closes_when_anything_drifts() {
    let model = RecordedModel::start();
    let place = Place::usual(&model.endpoint);
    let mut client = Client::start(place.command(&["serve"]));
    let yaml = std::fs::read_to_string(&place.config).unwrap();
    std::fs::write(&place.config, yaml + "# more\n").unwrap();
    let status = client.run_to_end(REQUEST);
    assert_eq!(field(&status, "status"), "failed", "{status}");
    assert_eq!(
        field(&status, "last_error_code"),
        "sandbox.resolution_changed",
        "{status}"
    );
    assert!(!place.workspace.join("hello.txt").exists());
    client.close();
    assert!(
        place
            .audit()
            .iter()
            .any(|record| record["event"] == "policy.deny"
                && record["code"] == "sandbox.resolution_changed")
    );
}

/// What a person is asked is said in texts that nobody has put beside the configuration (X-APPROVER).
#[test]
fn st_24_nobody_speaks_through_the_locale_of_what_is_not_applied() {
    let (place, _) = place();
    let base = place.config.parent().unwrap();
    std::fs::create_dir(base.join("words")).unwrap();
    let yaml = std::fs::read_to_string(&place.config).unwrap();
    let yaml = format!("{yaml}localization:\n  directory: words\n");
    std::fs::write(&place.config, yaml).unwrap();
    let planted = r#"{"apply.added": "LIES", "apply.first": "LIES {config}", "error.sandbox.not_applied": "LIES {target}", "show.new": "LIES", "show.is_not_applied": "LIES {config}", "check.config_named": "LIES {path}"}"#;
    std::fs::write(base.join("words/en.json"), planted).unwrap();
    for words in [&["apply"][..], &["show"], &["serve"], &["run", "x"]] {
        let output = place.unapplied(words).output().unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!said.contains("LIES"), "{words:?}: {said}");
        assert!(said.contains("appl"), "{words:?}: {said}");
    }
    // Control: once applied, the file speaks.
    apply(&place);
    let output = place.output(&["check"]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("LIES"), "{said}");
    std::fs::write(base.join("words/en.json"), "{").unwrap();
    let output = place.unapplied(&["apply", "--yes"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "a broken file is told");
}
