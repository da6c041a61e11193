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

/// The store's directory.
fn store(place: &Place) -> PathBuf {
    place.state.join("agent-mcp/applied-configurations")
}

/// What was applied: the locks, and what is remembered of programs, are not.
fn stored(place: &Place) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(store(place)) else {
        return Vec::new();
    };
    let is_snapshot = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.ends_with(".json") && !name.ends_with(".hashes.json")
    };
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(is_snapshot)
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

/// What is remembered of programs, as text; empty where this file system's identities do not count.
fn remembered(place: &Place) -> Option<PathBuf> {
    std::fs::read_dir(store(place))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().ends_with(".hashes.json"))
}

/// X-HASH, issue 4: what the store remembers of a program is used instead of reading it, by every command; it is believed only
/// as this program wrote it, and replaced by `serve`. `check` and `show` change nothing.
#[test]
fn x_hash_what_is_remembered_is_used_and_what_is_damaged_is_not() {
    use sha2::Digest;
    let place = Place::usual(NOBODY);
    apply(&place);
    let Some(record) = remembered(&place) else {
        assert!(
            std::env::var_os("AGENT_MCP_FORBID_SKIPS").is_none(),
            "needs: FileSystem(ext4, xfs, btrfs, f2fs) for /bin/sh"
        );
        eprintln!("skipped, needs: FileSystem(ext4, xfs, btrfs, f2fs) for /bin/sh");
        return;
    };
    let good = std::fs::read_to_string(&record).unwrap();
    served(&place);
    assert_eq!(std::fs::read_to_string(&record).unwrap(), good, "no news");
    // A lie in exactly our own form is believed, which shows that nothing is read. Who can write it can write the store.
    let mut lie: serde_json::Value = serde_json::from_str(&good).unwrap();
    lie["executables"][0]["sha256"] = serde_json::json!("0".repeat(64));
    let at = good.find("\"executables\":").unwrap() + "\"executables\":".len();
    let end = good.find("],\"sha256\"").unwrap() + 1;
    let executables = good[at..end].replace(
        serde_json::from_str::<serde_json::Value>(&good).unwrap()["executables"][0]["sha256"]
            .as_str()
            .unwrap(),
        &"0".repeat(64),
    );
    let digest: String = sha2::Sha256::digest(&executables)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let lie = format!("{}{executables},\"sha256\":\"{digest}\"}}\n", &good[..at]);
    std::fs::write(&record, &lie).unwrap();
    refused(
        &place,
        "executable.hash_changed",
        "its bytes changed",
        "内容が変わりました",
    );
    for words in [&["check"][..], &["show"]] {
        let output = place.unapplied(words).output().unwrap();
        assert!(text(&output.stdout).contains(&"0".repeat(64)), "{words:?}");
    }
    // One digit less: not ours.
    let damaged = lie.replace(&"0".repeat(64), &"0".repeat(63));
    for (lang, sentence) in [("en", "was not believed"), ("ja", "信用せず")] {
        std::fs::write(&record, &damaged).unwrap();
        for words in [&["check"][..], &["show"]] {
            let output = place
                .unapplied(&[words, &["--lang", lang]].concat())
                .output()
                .unwrap();
            let said = text(&output.stdout) + &text(&output.stderr);
            assert!(said.contains(sentence), "{words:?}: {said}");
        }
        assert_eq!(std::fs::read_to_string(&record).unwrap(), damaged);
        let output = place.unapplied(&["serve", "--lang", lang]).output();
        let output = output.unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains(sentence), "{said}");
        assert_eq!(std::fs::read_to_string(&record).unwrap(), good, "replaced");
    }
}

/// AT-09, ST-24: one byte of the same length, with the modification time put back.
#[test]
fn at_09_a_program_that_looks_the_same_closes_until_applied() {
    let (place, tool) = place();
    std::fs::write(&tool, "#!/bin/sh\nexit 1\n").unwrap();
    apply(&place);
    served(&place);
    let modified = std::fs::metadata(&tool).unwrap().modified().unwrap();
    std::fs::write(&tool, "#!/bin/sh\nexit 2\n").unwrap();
    let file = std::fs::File::options().write(true).open(&tool).unwrap();
    file.set_times(std::fs::FileTimes::new().set_modified(modified))
        .unwrap();
    refused(
        &place,
        "executable.hash_changed",
        "its bytes changed",
        "内容が変わりました",
    );
    apply(&place);
    served(&place);
}

/// ST-23: killed between the writing of the new snapshot and its name, the old one counts, and the next turn tidies up.
#[test]
fn st_23_a_killed_apply_leaves_what_was_applied() {
    let (place, _) = place();
    apply(&place);
    let (file, good) = stored(&place).remove(0);
    let name = file.file_name().unwrap().to_string_lossy().into_owned();
    let leftover = |process: u32, content: &[u8]| {
        let path = store(&place).join(format!(".{name}.{process}-0.tmp"));
        std::fs::write(&path, content).unwrap();
        path
    };
    // The whole new content, which would grant more, and a part of it.
    let wider = text(&good).replace("\"read\"", "\"read\",\"write\"");
    let left = [
        leftover(1, wider.as_bytes()),
        leftover(2, &good[..good.len() / 2]),
    ];
    let others = store(&place).join(".other.json.3-0.tmp");
    std::fs::write(
        &others,
        "another configuration's, perhaps being written now",
    )
    .unwrap();
    served(&place);
    assert_eq!(std::fs::read(&file).unwrap(), good);
    apply(&place);
    assert_eq!(std::fs::read(&file).unwrap(), good);
    for path in left {
        assert!(!path.exists(), "{path:?}");
    }
    assert!(others.exists());
    served(&place);
}

/// ST-23: of two at once, the second waits, says so, and then shows what changes of what the first has stored.
#[test]
fn st_23_two_at_once_follow_each_other() {
    use std::io::{BufRead, BufReader, Read};
    for (lang, sentence) in [
        ("en", "Somebody else is applying"),
        ("ja", "別の apply が今"),
    ] {
        let (place, _) = place();
        apply(&place);
        let (file, first) = stored(&place).remove(0);
        let yaml = std::fs::read_to_string(&place.config).unwrap();
        std::fs::write(&place.config, yaml.clone() + "# second\n").unwrap();
        apply(&place);
        let (_, second) = stored(&place).remove(0);
        // As while the first asks its question.
        let lock = file.with_extension("lock");
        let held = std::fs::File::options().write(true).open(&lock).unwrap();
        held.lock().unwrap();
        std::fs::write(&file, &first).unwrap();
        let mut waiting = place.unapplied(&["apply", "--yes", "--json", "--lang", lang]);
        let mut waiting = waiting
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(waiting.stderr.take().unwrap()).lines();
        let line = said.next().unwrap().unwrap();
        assert!(line.contains(sentence), "{line}");
        // The first stores the same that the second wants, and is done.
        std::fs::write(&file, &second).unwrap();
        drop(held);
        let mut told = String::new();
        let mut output = waiting.stdout.take().unwrap();
        output.read_to_string(&mut told).unwrap();
        assert_eq!(support::wait_for(&mut waiting), Some(0));
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["result"], "unchanged", "{told}");
    }
    // Together, many times: one whole snapshot each time.
    let (place, _) = place();
    let applies: Vec<_> = (0..6)
        .map(|_| {
            let mut command = place.unapplied(&["apply", "--yes", "--json"]);
            command.stdout(std::process::Stdio::piped());
            command.stderr(std::process::Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    let results: Vec<String> = applies
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            told["result"].as_str().unwrap().to_owned()
        })
        .collect();
    let of = |result: &str| results.iter().filter(|found| *found == result).count();
    assert_eq!((of("applied"), of("unchanged")), (1, 5), "{results:?}");
    served(&place);
}

/// ST-23: a store of an older format is not read; it says so, and what to do.
#[test]
fn st_23_an_older_format_is_refused_with_the_way_out() {
    let (place, _) = place();
    apply(&place);
    let (file, good) = stored(&place).remove(0);
    let older = text(&good).replace("\"schema_version\":1", "\"schema_version\":0");
    for (lang, sentence) in [("en", "it has format 0"), ("ja", "形式 0")] {
        std::fs::write(&file, &older).unwrap();
        let output = place.unapplied(&["serve", "--lang", lang]).output();
        let output = output.unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains(sentence) && said.contains("agent-mcp apply"),
            "{said}"
        );
    }
    apply(&place);
    assert_eq!(std::fs::read(&file).unwrap(), good);
    served(&place);
}

/// ST-24, AT-09, AT-18: a server that runs says exactly what is not as it was applied before the next Task, in both languages.
#[test]
#[cfg(unix)]
fn st_24_a_running_server_says_what_drifted() {
    type Change = fn(&Path);
    let cases: [(&str, Change, &str, &str); 6] = [
        (
            "one byte of a program",
            |base| {
                let mut bytes = std::fs::read(base.join("tool")).unwrap();
                *bytes.last_mut().unwrap() ^= 1;
                std::fs::write(base.join("tool"), bytes).unwrap();
            },
            "executable.hash_changed",
            "entry tool (",
        ),
        (
            "the workspace's link",
            |base| {
                std::fs::remove_file(base.join("link")).unwrap();
                std::os::unix::fs::symlink("other", base.join("link")).unwrap();
            },
            "sandbox.resolution_changed",
            "/link: ",
        ),
        (
            "the program's link",
            |base| {
                std::fs::rename(base.join("tool"), base.join("moved")).unwrap();
                std::os::unix::fs::symlink("moved", base.join("tool")).unwrap();
            },
            "sandbox.resolution_changed",
            "entry tool: ",
        ),
        (
            "the program is gone",
            |base| std::fs::remove_file(base.join("tool")).unwrap(),
            "sandbox.resolution_changed",
            "/tool → -",
        ),
        (
            "a pipe for a program, which nobody waits for",
            |base| {
                std::fs::remove_file(base.join("tool")).unwrap();
                let mode = rustix::fs::Mode::from_raw_mode(0o755);
                let tool = base.join("tool");
                rustix::fs::mknodat(rustix::fs::CWD, &tool, rustix::fs::FileType::Fifo, mode, 0)
                    .unwrap();
            },
            "sandbox.resolution_changed",
            "/tool → -",
        ),
        (
            "the YAML",
            |base| {
                let yaml = std::fs::read_to_string(base.join("agent.yaml")).unwrap();
                std::fs::write(base.join("agent.yaml"), yaml + "# more\n").unwrap();
            },
            "sandbox.resolution_changed",
            "/agent.yaml: ",
        ),
    ];
    let model = RecordedModel::start();
    for (what, change, code, object) in cases {
        for (lang, sentences) in [
            ("en", ["This is not what was applied:", "its bytes changed"]),
            ("ja", ["適用した内容と異なります:", "内容が変わりました"]),
        ] {
            let place = Place::new(
                &model.endpoint,
                "sandbox:\n  workspaces: [link]\n  execution:\n    entries:\n      - {alias: tool, path: tool}\n",
            );
            let base = place.workspace.parent().unwrap().to_owned();
            std::fs::copy("/bin/true", base.join("tool")).unwrap();
            std::fs::create_dir(base.join("other")).unwrap();
            std::os::unix::fs::symlink("ws", base.join("link")).unwrap();
            let mut client = Client::start(place.command(&["serve", "--lang", lang]));
            change(&base);
            let status = client.run_to_end(REQUEST);
            assert_eq!(field(&status, "status"), "failed", "{what}: {status}");
            assert_eq!(field(&status, "last_error_code"), code, "{what}: {status}");
            let sentence = sentences[usize::from(code == "executable.hash_changed")];
            assert!(status.contains(sentence), "{what}: {status}");
            assert!(status.contains(object), "{what}: {status}");
            assert!(status.contains(" → "), "{what}: {status}");
            assert!(!place.workspace.join("hello.txt").exists());
            assert!(!base.join("other/hello.txt").exists());
            client.close();
        }
    }
    // Control: a program that was only touched still stands.
    let place = Place::new(
        &model.endpoint,
        "sandbox:\n  workspaces: [ws]\n  execution:\n    entries:\n      - {alias: tool, path: tool}\n",
    );
    let tool = place.workspace.parent().unwrap().join("tool");
    std::fs::copy("/bin/true", &tool).unwrap();
    let mut client = Client::start(place.command(&["serve"]));
    std::fs::copy("/bin/true", &tool).unwrap();
    let status = client.run_to_end(REQUEST);
    assert_eq!(field(&status, "status"), "completed", "{status}");
    client.close();
}

/// DESIGN §10.6: the network with what it leads to now, beside what was applied of it.
#[test]
fn design_10_6_show_tells_the_network() {
    let with = |network: &str| format!("sandbox:\n  workspaces: [ws]\n  network: {network}\n");
    let restricted = |endpoints: &str| {
        with(&format!(
            "{{access: restricted, restricted_endpoints: [{endpoints}]}}"
        ))
    };
    let place = Place::new(
        NOBODY,
        &restricted("{host: 127.0.0.1, ports: [9]}, {host: \"::1\", ports: [9]}"),
    );
    let head = std::fs::read_to_string(&place.config).unwrap();
    let head = head.split("sandbox:").next().unwrap().to_owned();
    let shown = || {
        let output = place.unapplied(&["show", "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        told["network"].clone()
    };
    let row = |network: &serde_json::Value, endpoint: &str| {
        let rows = network["endpoints"].as_array().unwrap();
        let row = rows.iter().find(|row| row["endpoint"] == endpoint);
        row.unwrap_or_else(|| panic!("{endpoint}: {network}"))
            .clone()
    };
    let before = shown();
    assert_eq!(before["level"], "restricted");
    assert_eq!(before["state"], "new");
    assert_eq!(row(&before, "127.0.0.1:9")["state"], "new");
    apply(&place);
    let now = shown();
    assert_eq!(now["state"], "applied");
    assert_eq!(now["applied_level"], "restricted");
    for (endpoint, address) in [("127.0.0.1:9", "127.0.0.1"), ("[::1]:9", "::1")] {
        let row = row(&now, endpoint);
        assert_eq!(row["state"], "applied", "{row}");
        assert_eq!(row["addresses"], serde_json::json!([address]), "{row}");
    }
    let more = restricted("{host: 127.0.0.1, ports: [9]}, {host: nowhere.invalid, ports: [443]}");
    std::fs::write(&place.config, head.clone() + &more).unwrap();
    let drifted = shown();
    assert_eq!(row(&drifted, "127.0.0.1:9")["state"], "applied");
    assert_eq!(row(&drifted, "[::1]:9")["state"], "removed");
    let unknown = row(&drifted, "nowhere.invalid:443");
    assert_eq!(unknown["state"], "new");
    assert_eq!(unknown["addresses"], serde_json::json!([]));
    assert!(
        unknown["detail"]
            .as_str()
            .unwrap()
            .contains("no address now"),
        "{unknown}"
    );
    std::fs::write(
        &place.config,
        head + &with("{access: local, local_endpoints: [8080]}"),
    )
    .unwrap();
    let local = shown();
    assert_eq!(local["level"], "local");
    assert_eq!(local["state"], "changed");
    assert_eq!(
        row(&local, "8080")["addresses"],
        serde_json::json!(["127.0.0.1", "::1"])
    );
    for (lang, word) in [("en", "network"), ("ja", "ネットワーク")] {
        let output = place.unapplied(&["show", "--lang", lang]).output().unwrap();
        let said = text(&output.stdout);
        assert!(
            said.contains(word) && said.contains("127.0.0.1, ::1"),
            "{said}"
        );
    }
    // What was only found, and nobody has applied, is shown; nobody is asked for its names.
    let more = restricted("{host: nowhere.invalid, ports: [443]}");
    let yaml = format!("schema_version: 2\nollama: {{model: m}}\n{more}");
    std::fs::create_dir(place.workspace.join("ws")).unwrap();
    std::fs::write(place.workspace.join("agent.yaml"), yaml).unwrap();
    let output = support::command(&place.state)
        .current_dir(&place.workspace)
        .args(["show", "--json"])
        .output()
        .unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let unasked = row(&told["network"], "nowhere.invalid:443");
    assert!(
        unasked["detail"]
            .as_str()
            .unwrap()
            .contains("nobody was asked"),
        "{unasked}"
    );
}
