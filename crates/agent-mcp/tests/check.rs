//! `check`: what it says about files, models, places and names, and that it changes nothing (SPEC §15, UC-05).
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{Place, can_confine, command, text};
use testkit::{Reply, Script, ScriptedModel};

/// The rows of one subject.
fn rows(output: &Output, subject: &str) -> Vec<Value> {
    let object: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}{}", text(&output.stdout), text(&output.stderr)));
    object["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["subject"] == subject)
        .cloned()
        .collect()
}

/// The one row of a subject that has this mark and this text.
#[track_caller]
fn expect(output: &Output, subject: &str, mark: &str, word: &str) -> Value {
    let rows = rows(output, subject);
    let fits = |row: &&Value| row["mark"] == mark && row["detail"].as_str().unwrap().contains(word);
    rows.iter()
        .find(fits)
        .unwrap_or_else(|| panic!("no {mark} with {word:?}: {rows:#?}"))
        .clone()
}

fn show(capabilities: &[&str], context: u64) -> Value {
    json!({
        "capabilities": capabilities,
        "model_info": {"general.architecture": "x", "x.context_length": context},
    })
}

fn tags(names: &[&str]) -> Value {
    let models: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "model": name, "size": 1_000_000_000u64}))
        .collect();
    json!({ "models": models })
}

fn ollama(names: &[&str], show: &Value) -> ScriptedModel {
    ScriptedModel::start(
        Script::new()
            .standing("/api/tags", Reply::json(200, &tags(names)))
            .standing("/api/show", Reply::json(200, show)),
    )
}

/// A place whose model is `name`, with more of the `ollama` section.
fn place(model: &ScriptedModel, name: &str, more: &str) -> Place {
    let place = Place::new(&model.endpoint(), "sandbox: {workspaces: [ws]}\n");
    let written = std::fs::read_to_string(&place.config).unwrap();
    let written = written.replace(
        &format!("model: {}", support::MODEL),
        &format!("model: {name}\n  {more}"),
    );
    std::fs::write(&place.config, written).unwrap();
    place
}

/// SPEC §15, X-MODEL: Ollama's version and models, and what the configured one can do; none of it is ever an error.
#[test]
fn x_model_what_the_model_can_do() {
    let installed = &["qwen3:8b", "qwen3:14b", "llama3.1:8b"];
    let all = &["completion", "tools", "vision", "thinking"][..];
    let check = |name: &str, more: &str, show: &Value| {
        let model = ollama(installed, show);
        let output = place(&model, name, more).output(&["check", "--json"]);
        assert_ne!(output.status.code(), Some(2), "{}", text(&output.stdout));
        output
    };
    let fine = check("qwen3:8b", "", &show(all, 40_960));
    let row = expect(&fine, "ollama", "ok", "0.33.0");
    assert_eq!(row["data"]["models"], json!(installed));
    let row = expect(&fine, "model", "ok", "40960");
    assert_eq!(row["data"]["capabilities"], json!(all));
    assert_eq!(rows(&fine, "model").len(), 1, "nothing to say");
    let cases = [
        (
            "llama3.1:8b",
            "",
            show(&["completion"], 131_072),
            "cannot call tools",
        ),
        (
            "nomic-embed",
            "",
            show(&["embedding"], 131_072),
            "embeddings only",
        ),
        (
            "qwen3:8b",
            "",
            show(all, 8192),
            "num_ctx is 32768: a long prompt would be cut",
        ),
        (
            "qwen3:8b",
            "think: true",
            show(&["completion", "tools"], 131_072),
            "Set ollama.think to false",
        ),
        (
            "qwen3:8b",
            "",
            json!({"details": {}}),
            "does not say what it can do",
        ),
    ];
    for (name, more, show, word) in cases {
        expect(&check(name, more, &show), "model", "warning", word);
    }
    let fits = check("qwen3:8b", "options: {num_ctx: 8192}", &show(all, 8192));
    assert_eq!(rows(&fits, "model").len(), 1, "control");
    let off = check(
        "qwen3:8b",
        "think: false",
        &show(&["completion", "tools"], 131_072),
    );
    assert_eq!(rows(&off, "model").len(), 1, "control");
}

/// X-MODEL: a model that is not there, with the command that gets it and the installed ones most like it; and the
/// placeholder of `init`, with the line to write.
#[test]
fn x_model_what_to_do_about_a_missing_model() {
    let missing = Reply::error(404, "model 'x' not found");
    let without = |names: &[&str]| {
        ScriptedModel::start(
            Script::new()
                .standing("/api/tags", Reply::json(200, &tags(names)))
                .standing("/api/show", missing.clone()),
        )
    };
    let model = without(&["mistral:7b", "qwen3:14b", "qwen3:8b", "qwen2.5:7b"]);
    let output = place(&model, "qwen3:4b", "").output(&["check", "--json"]);
    let row = expect(&output, "model", "warning", "`ollama pull qwen3:4b`");
    assert!(
        row["detail"]
            .as_str()
            .unwrap()
            .ends_with("qwen3:14b, qwen3:8b, qwen2.5:7b"),
        "{row}"
    );
    let chosen = place(&model, "choose-a-model", "");
    let output = chosen.output(&["check", "--json"]);
    let row = expect(&output, "model", "warning", "No model is chosen yet");
    let detail = row["detail"].as_str().unwrap();
    let line = format!("{}:4", chosen.config.display());
    assert!(
        detail.contains(&line) && detail.contains("mistral:7b"),
        "{detail}"
    );
    drop(model);
    // Nobody answers any more.
    let output = chosen.output(&["check", "--json"]);
    expect(&output, "ollama", "warning", "`ollama serve`");
    expect(&output, "model", "warning", "`ollama pull qwen3:8b`");
    let empty = without(&[]);
    let output = place(&empty, "qwen3:4b", "").output(&["check", "--json"]);
    expect(&output, "model", "warning", "`ollama pull qwen3:4b`");
}

/// X-MODEL, X-KEYS, X-MODE: what leaves this machine and what nothing stops is red, and no error.
#[test]
fn x_model_x_keys_dangers_are_red() {
    let model = ollama(&["m"], &show(&["completion", "tools"], 131_072));
    let mut far = show(&["completion", "tools"], 131_072);
    far["remote_host"] = json!("https://ollama.example");
    let remote = ollama(&["m"], &far);
    let cases: Vec<(Place, &str, &str)> = vec![
        (
            place(&model, "gpt-oss:120b-cloud", ""),
            "configuration",
            "leaves this machine",
        ),
        (place(&remote, "m", ""), "model", "https://ollama.example"),
        (
            Place::new("http://192.0.2.1:9", "sandbox: {workspaces: [ws]}\n"),
            "configuration",
            "not this machine",
        ),
        (
            Place::new(
                &model.endpoint(),
                "sandbox: {workspaces: [ws]}\nguard: {hard_block: observe}\n",
            ),
            "configuration",
            "recorded but not stopped",
        ),
        (
            Place::new(
                &model.endpoint(),
                "sandbox: {workspaces: [ws], max_mode: danger-full-access}\n",
            ),
            "mode",
            "danger-full-access",
        ),
    ];
    for (place, subject, word) in cases {
        let output = place.output(&["check", "--json"]);
        expect(&output, subject, "danger", word);
        let plain = place.output(&["check"]);
        assert_ne!(plain.status.code(), Some(2), "{}", text(&plain.stdout));
        assert!(
            !text(&plain.stdout).contains('\u{1b}'),
            "no colours in a pipe"
        );
        assert!(
            text(&plain.stdout)
                .lines()
                .any(|line| line.starts_with("DANGER") && line.contains(word)),
            "{}",
            text(&plain.stdout)
        );
        let red = place
            .command(&["check"])
            .env("CLICOLOR_FORCE", "1")
            .output()
            .unwrap();
        let red = text(&red.stdout);
        assert!(red.contains("\u{1b}[31mDANGER"), "{red}");
        let none = place
            .command(&["check"])
            .env("CLICOLOR_FORCE", "1")
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        assert!(!text(&none.stdout).contains('\u{1b}'));
    }
}

/// Issue 4: nothing that does not answer keeps `check` waiting: a listener that accepts and is silent, and one that stops
/// in the middle.
#[test]
fn it_never_hangs() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let place = Place::new(&endpoint, "sandbox: {workspaces: [ws]}\n");
    let output = place.output(&["check", "--json"]);
    expect(&output, "ollama", "warning", &endpoint);
    let stalled = ScriptedModel::start(Script::new().standing(
        "/api/tags",
        Reply::Stall(Box::new(Reply::json(200, &tags(&["m"])))),
    ));
    let place = Place::new(&stalled.endpoint(), "sandbox: {workspaces: [ws]}\n");
    let output = place.output(&["check", "--json"]);
    expect(&output, "ollama", "warning", "Ollama");
    // Something that is no Ollama.
    let other = ScriptedModel::start(Script::new().standing("/api/version", Reply::html(200)));
    let place = Place::new(&other.endpoint(), "sandbox: {workspaces: [ws]}\n");
    expect(
        &place.output(&["check", "--json"]),
        "ollama",
        "warning",
        "not usable",
    );
}

/// Every path below a directory with its kind, mode, size, times and bytes.
fn everything(base: &Path) -> BTreeMap<PathBuf, String> {
    use std::os::unix::fs::MetadataExt;
    let mut found = BTreeMap::new();
    let mut left = vec![base.to_owned()];
    while let Some(path) = left.pop() {
        let seen = std::fs::symlink_metadata(&path).unwrap();
        let content = match seen.is_file() {
            true => std::fs::read(&path).unwrap(),
            false => Vec::new(),
        };
        if seen.is_dir() {
            left.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        let facts = (
            seen.mode(),
            seen.uid(),
            seen.mtime_nsec(),
            seen.ctime_nsec(),
            content,
        );
        found.insert(path, format!("{facts:?}"));
    }
    found
}

/// SPEC §15, interfaces.md §2: `check` changes nothing, with and without state, named or found.
#[test]
fn spec_15_check_changes_nothing() {
    let place = Place::usual("http://127.0.0.1:9");
    let base = place.config.parent().unwrap().to_owned();
    let home = tempfile::tempdir().unwrap();
    let check = |cwd: &Path, words: &[&str]| {
        Command::new(support::program())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home.path())
            .current_dir(cwd)
            .arg("check")
            .args(words)
            .output()
            .unwrap()
    };
    let named = ["--config", place.config.to_str().unwrap()];
    let all = || (everything(&base), everything(home.path()));
    let before = all();
    check(&base, &named);
    check(&place.workspace, &[]);
    check(home.path(), &[]);
    assert_eq!(before, all(), "without any state");
    if !can_confine() {
        return;
    }
    let output = command(&place.state)
        .current_dir(&place.workspace)
        .args(["exec", named[0], named[1], "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let before = all();
    assert!(place.state.join("audit.key").exists(), "control");
    check(&base, &named);
    check(&base, &["--json"]);
    assert_eq!(before, all(), "with state");
}

/// Issue 4: which file is used and why, and what was seen and passed over; the same in Japanese.
#[test]
fn x_cli_it_says_which_file_and_why() {
    let home = tempfile::tempdir().unwrap();
    let base = home.path().canonicalize().unwrap();
    let project = base.join("project/deep");
    std::fs::create_dir_all(project.join("ws")).unwrap();
    let yaml = "schema_version: 2\nollama: {model: m, endpoint: 'http://127.0.0.1:9'}\nsandbox: {workspaces: [ws]}\n";
    let write = |path: &str| {
        let path = base.join(path);
        std::fs::create_dir_all(path.parent().unwrap().join("ws")).unwrap();
        std::fs::write(&path, yaml).unwrap();
        path
    };
    let run = |cwd: &Path, words: &[&str]| {
        command(&base)
            .env_remove("XDG_STATE_HOME")
            .current_dir(cwd)
            .args(words)
            .output()
            .unwrap()
    };
    let check = |words: &[&str]| run(&project, &[&["check", "--json"][..], words].concat());
    let own = write(".config/agent-mcp/agent.yaml");
    let row = expect(&check(&[]), "configuration", "ok", "your own");
    assert_eq!(
        row["data"],
        json!({"path": own.to_str().unwrap(), "origin": "user"})
    );
    // A project's goes before it. Whoever wrote it, it is looked at; whom it names is asked only once a person has said so.
    let found = write("project/agent.yaml");
    let unseen = || {
        let output = check(&[]);
        let row = expect(&output, "configuration", "ok", "nobody has applied");
        assert_eq!(
            row["data"],
            json!({"path": found.to_str().unwrap(), "origin": "project"})
        );
        let passed = expect(&output, "configuration", "ok", own.to_str().unwrap());
        assert_eq!(passed["data"]["passed_over"], "later");
        expect(&output, "ollama", "warning", "was not asked");
    };
    unseen();
    let named = found.to_str().unwrap();
    let row = expect(
        &check(&["--config", named]),
        "configuration",
        "ok",
        "named with --config",
    );
    assert_eq!(row["data"]["origin"], "named");
    // To name it is not remembered, here and for `exec`.
    unseen();
    if !can_confine() {
        return;
    }
    let ws = base.join("project/ws");
    assert_eq!(
        run(&ws, &["exec", "--config", named, "--", "true"])
            .status
            .code(),
        Some(0)
    );
    let output = run(&ws, &["exec", "--", "true"]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    unseen();
    let output = run(&ws, &["apply", "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = check(&[]);
    let row = expect(&output, "configuration", "ok", "applied and unchanged");
    assert_eq!(row["data"]["origin"], "project");
    let passed = expect(&output, "configuration", "ok", own.to_str().unwrap());
    assert_eq!(passed["data"]["passed_over"], "later");
    expect(&check(&["--lang", "ja"]), "configuration", "ok", "上位");
    // X-ROOT: the work happens where one stands, found from there.
    let deep = ws.join("in/side");
    std::fs::create_dir_all(&deep).unwrap();
    let output = run(&deep, &["exec", "--", "pwd"]);
    assert_eq!(
        text(&output.stdout).trim(),
        deep.to_str().unwrap(),
        "{}",
        text(&output.stderr)
    );
    // The local file beside it is told, too.
    std::fs::write(
        base.join("project/agent.local.yaml"),
        "ollama: {model: n}\n",
    )
    .unwrap();
    expect(
        &check(&["--config", named]),
        "configuration",
        "ok",
        "agent.local.yaml",
    );
}

/// Issue 4: directories and the key as they are, and what is wrong with them, before a start trips over it.
#[test]
fn spec_15_places_and_the_key() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::usual("http://127.0.0.1:9");
    let check = || place.output(&["check", "--json"]);
    let output = check();
    let row = expect(&output, "state", "ok", "made at the first start");
    assert_eq!(row["data"]["exists"], false);
    assert!(row["data"]["free_bytes"].is_u64(), "{row}");
    let row = expect(&output, "audit_key", "ok", "made at the first start");
    assert_eq!(row["data"]["exists"], false);
    // The variable goes before the file, and its value is nowhere.
    let key = "5a".repeat(32);
    let with_key = |key: &str| {
        place
            .command(&["check", "--json"])
            .env("AGENT_MCP_AUDIT_KEY", key)
            .output()
            .unwrap()
    };
    let output = with_key(&key);
    let row = expect(&output, "audit_key", "ok", "AGENT_MCP_AUDIT_KEY");
    assert_eq!(row["data"]["origin"], "environment");
    assert!(!text(&output.stdout).contains("5a5a"), "{row}");
    let output = with_key("secret!");
    assert_eq!(output.status.code(), Some(2));
    expect(&output, "audit_key", "error", "64 hexadecimal digits");
    assert!(!text(&output.stdout).contains("secret!"));
    // A key that others can read.
    std::fs::create_dir(&place.state).unwrap();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&place.state, 0o700);
    let file = place.state.join("audit.key");
    std::fs::write(&file, format!("{key}\n")).unwrap();
    mode(&file, 0o600);
    let row = expect(&check(), "audit_key", "ok", "audit.key");
    assert_eq!(row["data"]["exists"], true);
    mode(&file, 0o640);
    let output = check();
    assert_eq!(output.status.code(), Some(2));
    expect(&output, "audit_key", "error", "mode 640");
    mode(&file, 0o600);
    // Logs that nobody could verify with a new key.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir_all(place.state.join("instances/0001")).unwrap();
    std::fs::write(place.state.join("instances/0001/audit.jsonl"), "x").unwrap();
    expect(&check(), "audit_key", "error", "was signed with it");
    std::fs::remove_dir_all(place.state.join("instances")).unwrap();
    // A state directory that others can look into, a link, a file.
    std::fs::write(place.state.join("x"), "x").unwrap();
    mode(&place.state, 0o755);
    let output = check();
    assert_eq!(output.status.code(), Some(2));
    expect(&output, "state", "error", "open to others");
    std::fs::remove_dir_all(&place.state).unwrap();
    let elsewhere = place.state.with_file_name("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &place.state).unwrap();
    expect(&check(), "state", "error", "symbolic link");
    std::fs::remove_file(&place.state).unwrap();
    std::fs::write(&place.state, "x").unwrap();
    assert_eq!(check().status.code(), Some(2));
}

/// X-NET, SEC-INV-06: names are asked for, an answer that leads inward is refused, one that nobody gives is a warning.
#[test]
fn x_net_what_names_lead_to() {
    let check = |endpoints: &str| {
        let more = format!(
            "sandbox:\n  workspaces: [ws]\n  network:\n    access: restricted\n    restricted_endpoints: [{endpoints}]\n"
        );
        Place::new("http://127.0.0.1:9", &more).output(&["check", "--json"])
    };
    let output = check("{host: localhost, ports: [443]}");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    expect(&output, "network", "error", "localhost:443");
    let output = check("{host: 192.0.2.7, ports: [443, 80]}, {host: name.invalid, ports: [1]}");
    let row = expect(&output, "network", "ok", "192.0.2.7:443 = 192.0.2.7");
    assert_eq!(row["data"]["addresses"], json!(["192.0.2.7"]));
    expect(&output, "network", "warning", "name.invalid:1");
    if can_confine() {
        // It may be known when the work starts.
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    }
    assert!(
        !text(&output.stdout).contains("no effect"),
        "the level is alive"
    );
}

/// Issue 4: the configured resources against this machine.
#[test]
fn spec_15_more_memory_than_there_is() {
    let check = |memory: u64| {
        let more = format!("sandbox: {{workspaces: [ws], resources: {{memory_mb: {memory}}}}}\n");
        Place::new("http://127.0.0.1:9", &more).output(&["check", "--json"])
    };
    let row = expect(&check(64), "resources", "ok", "64 MiB");
    assert_eq!(row["data"]["memory_bytes"], 64u64 << 20);
    assert_eq!(rows(&check(64), "resources").len(), 1, "control");
    let most = row["data"]["machine_memory_bytes"].as_u64().unwrap() >> 20;
    let output = check(most + 1);
    // The largest value that the schema takes may be below a large machine's memory.
    if !text(&output.stdout).contains("memory_mb") || most < 1_000_000 {
        expect(&output, "resources", "warning", "this machine has");
    }
}

/// I18N-03, I18N-10: languages that users added, and how much of each comes from `en`.
#[test]
fn i18n_03_i18n_10_languages_of_the_directory() {
    let place = Place::usual("http://127.0.0.1:9");
    let locales = place.config.parent().unwrap().join("config/locales");
    let output = place.output(&["check", "--json"]);
    expect(&output, "language", "ok", "built in");
    std::fs::create_dir_all(&locales).unwrap();
    std::fs::write(
        locales.join("zh-CN.json"),
        r#"{"error.file.not_found":"{target} 不存在。"}"#,
    )
    .unwrap();
    std::fs::write(
        locales.join("ja.json"),
        r#"{"error.file.not_found":"{target} がない。"}"#,
    )
    .unwrap();
    let output = place.output(&["check", "--json"]);
    let row = expect(&output, "language", "ok", "zh-CN: 1 texts");
    let all = agent_mcp::locale::english().len();
    assert_eq!(row["data"]["missing"], all - 1);
    let row = expect(&output, "language", "ok", "ja: 1 texts");
    assert_eq!(row["data"]["missing"], 0, "ja is built in");
}

/// Issue 4: without HOME and XDG variables, or with relative ones, the state directory must be written down.
#[test]
fn x_cli_without_a_home() {
    let place = Place::usual("http://127.0.0.1:9");
    let check = |variables: &[(&str, &str)]| {
        let mut command = place.command(&["check", "--json"]);
        command.env_remove("HOME").env_remove("XDG_STATE_HOME");
        command.envs(variables.iter().copied()).output().unwrap()
    };
    expect(&check(&[]), "state", "ok", "state");
    let written = std::fs::read_to_string(&place.config).unwrap();
    let written: String = written
        .lines()
        .filter(|line| !line.starts_with("state:") && !line.starts_with("  directory:"))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&place.config, written).unwrap();
    for variables in [&[][..], &[("HOME", "x"), ("XDG_STATE_HOME", "y")]] {
        let output = check(variables);
        assert_eq!(output.status.code(), Some(2));
        expect(&output, "configuration", "error", "XDG_STATE_HOME");
    }
    let home = tempfile::tempdir().unwrap();
    let variables = [
        ("HOME", home.path().to_str().unwrap()),
        ("XDG_STATE_HOME", "relative"),
    ];
    expect(&check(&variables), "state", "ok", ".local/state/agent-mcp");
}

/// interfaces.md §2: the exit codes; errors of the file go before those of the machine.
#[test]
fn interfaces_2_exit_codes() {
    let fine = Place::usual("http://127.0.0.1:9").output(&["check", "--json"]);
    if can_confine() {
        assert_eq!(fine.status.code(), Some(0), "{}", text(&fine.stdout));
    }
    let wrong = Place::new("http://127.0.0.1:9", "sandbox: {workspaces: [nowhere]}\n");
    let output = wrong.output(&["check", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&object["result"], &object["exit_code"]),
        (&json!("error"), &json!(2))
    );
    let state = tempfile::tempdir().unwrap();
    let output = command(state.path())
        .current_dir(state.path())
        .args(["check", "--json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    expect(&output, "configuration", "error", "agent-mcp init");
}
