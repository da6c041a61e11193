//! The command line, the configuration's edges, and what people see.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use serde_json::json;
use support::{Client, Place, RecordedModel, can_confine, command, field, text};

/// X-CLI: the commands of this version are there, each with its own help; an unknown one is a usage error.
#[test]
fn x_cli_commands() {
    let state = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| command(state.path()).args(words).output().unwrap();
    let help = text(&run(&["--help"]).stdout);
    for name in ["serve", "check", "run", "exec", "demo", "audit", "init"] {
        assert!(help.contains(name), "{name}: {help}");
        assert_eq!(run(&[name, "--help"]).status.code(), Some(0), "{name}");
    }
    assert_eq!(run(&["fly"]).status.code(), Some(2));
    // 2 could be the command's own.
    let usage = run(&["exec"]);
    assert_eq!(usage.status.code(), Some(125));
    assert!(text(&usage.stderr).starts_with("agent-mcp: "));
}

/// X-CLI, SEC-INV-02: no flag widens the policy or sets a sampling value.
#[test]
fn x_cli_no_flag_widens() {
    let state = tempfile::tempdir().unwrap();
    for flag in [
        "--temperature",
        "--model",
        "--allow-network",
        "--workspace",
        "--max-mode",
    ] {
        for name in ["serve", "run", "exec"] {
            let output = command(state.path())
                .args([name, flag, "x"])
                .output()
                .unwrap();
            let usage = if name == "exec" { 125 } else { 2 };
            assert_eq!(output.status.code(), Some(usage), "{name} {flag}");
        }
    }
    let output = command(state.path())
        .args(["exec", "--mode", "danger-full-access", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(126));
    let told = text(&output.stderr);
    assert!(
        told.contains("agent-mcp: policy.approval_required"),
        "{told}"
    );
    assert!(told.contains("sandbox.max_mode: workspace-write"), "{told}");
}

/// MCP-TR-03, MCP-TR-05, AT-03: there is no other transport, and none can be configured.
#[test]
fn mcp_tr_03_mcp_tr_05_no_other_transport() {
    let place = Place::usual("http://127.0.0.1:9");
    for transport in ["sse", "http+sse", "websocket", "tcp"] {
        let output = place.output(&["serve", "--transport", transport]);
        assert_eq!(output.status.code(), Some(2), "{transport}");
        let other = Place::new(
            "http://127.0.0.1:9",
            &format!("sandbox: {{workspaces: [ws]}}\nmcp: {{transport: {transport}}}\n"),
        );
        assert_eq!(
            other.output(&["serve"]).status.code(),
            Some(2),
            "{transport}"
        );
    }
}

/// OLL-01, OLL-08, SEC-INV-09: no other backend and no replacement of the fixed prompt can be configured.
#[test]
fn oll_01_oll_08_nothing_else_can_be_configured() {
    for more in [
        "openai: {key: x}",
        "ollama: {backend: openai}",
        "agent: {system_prompt: x.md}",
        "agent: {fixed_system_prompt: x.md}",
    ] {
        let place = Place::new("http://127.0.0.1:9", "");
        std::fs::write(
            &place.config,
            format!(
                "schema_version: 2\nsandbox: {{workspaces: [ws]}}\n{}\n",
                if more.starts_with("ollama") {
                    more.replace('{', "{model: m, ")
                } else {
                    format!("ollama: {{model: m}}\n{more}")
                }
            ),
        )
        .unwrap();
        let output = place.output(&["check"]);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{more}: {}",
            text(&output.stdout)
        );
        assert!(
            text(&output.stdout).contains("agent.yaml:"),
            "{}",
            text(&output.stdout)
        );
    }
}

/// I18N-08: the language of the request decides nothing; I18N-06: the flag goes before the configuration.
#[test]
fn i18n_08_i18n_06_the_input_decides_nothing() {
    if !can_confine() {
        return;
    }
    let model = RecordedModel::start();
    let place = Place::usual(&model.endpoint);
    let japanese = "create メモ.txt containing the word こんにちは";
    let mut client = Client::start(place.command(&["serve"]));
    let (answer, _) = client.call("agent_run", json!({"request": japanese}));
    assert!(field(&answer, "message").is_ascii(), "{answer}");
    let status = client.wait(&field(&answer, "task_id"));
    assert_eq!(field(&status, "status"), "completed", "{status}");
    assert!(place.workspace.join("メモ.txt").exists());
    assert_eq!(client.close().0, Some(0));

    let configured =
        std::fs::read_to_string(&place.config).unwrap() + "application: {language: ja}\n";
    std::fs::write(&place.config, configured).unwrap();
    let output = place.output(&["check"]);
    assert!(
        text(&output.stdout).contains("起動できます"),
        "{}",
        text(&output.stdout)
    );
    let output = place.output(&["check", "--lang", "en"]);
    assert!(
        text(&output.stdout).contains("Ready to serve"),
        "{}",
        text(&output.stdout)
    );
}

/// X-SCHEMA, SPEC §15: version 1, an empty file, no YAML, a directory, nothing at all: exit 2 and a reason, never a panic.
#[test]
fn x_schema_broken_configurations() {
    let place = Place::new("http://127.0.0.1:9", "");
    for content in [
        &b"schema_version: 1\n"[..],
        b"",
        b"a: [",
        b"\xff\xfe",
        b"\t- x",
        b"schema_version: 2\nollama: {model: \"\"}\n",
    ] {
        std::fs::write(&place.config, content).unwrap();
        for name in ["check", "serve"] {
            let output = place.output(&[name]);
            assert_eq!(output.status.code(), Some(2), "{name} {}", text(content));
            let all = text(&output.stdout) + &text(&output.stderr);
            assert!(
                all.contains("agent.yaml") && !all.contains("panicked"),
                "{all}"
            );
        }
    }
    std::fs::remove_file(&place.config).unwrap();
    std::fs::create_dir(&place.config).unwrap();
    assert_eq!(place.output(&["check"]).status.code(), Some(2));
    let state = tempfile::tempdir().unwrap();
    let output = command(state.path())
        .current_dir(state.path())
        .arg("check")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("agent-mcp init"),
        "{}",
        text(&output.stderr)
    );
}

/// `init` writes what `check` accepts, and never overwrites.
#[test]
fn init_writes_and_never_overwrites() {
    let (directory, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = |words: &[&str]| {
        command(state.path())
            .current_dir(directory.path())
            .args(words)
            .output()
            .unwrap()
    };
    let output = run(&["init", "--ollama", "http://127.0.0.1:9"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let config = directory.path().join(".agent-mcp/agent.yaml");
    assert!(text(&run(&["check"]).stdout).contains(".agent-mcp/agent.yaml"));
    std::fs::write(&config, "mine").unwrap();
    assert_eq!(
        run(&["init", "--ollama", "http://127.0.0.1:9"])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "mine");
}

/// users.md 8: a program cannot give itself rights for the next start by making a file of ours that was not there.
#[test]
fn own_files_cannot_be_made() {
    if !can_confine() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    std::fs::write(
        base.join("agent.yaml"),
        "schema_version: 2\nollama: {model: m}\nsandbox: {workspaces: [.]}\n",
    )
    .unwrap();
    let state = tempfile::tempdir().unwrap();
    let run = |script: &str| {
        command(state.path())
            .current_dir(&base)
            .args(["exec", "--config", "agent.yaml", "--", "sh", "-c", script])
            .output()
            .unwrap()
    };
    // What exists is masked.
    let output = run("cat agent.yaml; echo x >> agent.yaml; mv agent.yaml b");
    assert_ne!(output.status.code(), Some(0));
    assert!(
        !text(&output.stdout).contains("schema_version"),
        "{}",
        text(&output.stdout)
    );
    // What does not exist yet is moved aside, and said.
    let output = run("echo 'sandbox: {mounts: [{path: /, access: read_only}]}' > agent.local.yaml");
    assert_eq!(output.status.code(), Some(126), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("policy.path_protected"),
        "{}",
        text(&output.stderr)
    );
    assert!(!base.join("agent.local.yaml").exists());
    assert_eq!(run("true").status.code(), Some(0), "control");
    // One that is there all the same, by a crash or a trick, is never merged: a program could have written it.
    std::fs::write(
        base.join("agent.local.yaml"),
        "sandbox: {workspaces: [/var/empty]}\n",
    )
    .unwrap();
    let output = run("true");
    assert_eq!(output.status.code(), Some(126), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("agent.local.yaml"),
        "{}",
        text(&output.stderr)
    );
}

/// SEC-INV-01, users.md 8: a configuration that a confined program wrote into the working directory is not obeyed by the next
/// run. Control: a person who names it gets it.
#[test]
fn sec_inv_01_a_written_configuration_is_not_obeyed() {
    if !can_confine() {
        return;
    }
    let (workspace, state, outside) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let secret = outside.path().canonicalize().unwrap().join("secret");
    std::fs::write(&secret, "the secret").unwrap();
    let run = |words: &[&str]| {
        command(state.path())
            .current_dir(workspace.path())
            .args(words)
            .output()
            .unwrap()
    };
    let yaml = format!(
        "schema_version: 2\nollama: {{model: m, endpoint: \"http://127.0.0.1:9\"}}\nsandbox: {{workspaces: [.], mounts: [{{path: {}, access: read_only}}]}}\n",
        outside.path().canonicalize().unwrap().display()
    );
    let write = format!("printf '%s' '{yaml}' > agent.yaml");
    assert_eq!(
        run(&["exec", "--", "sh", "-c", &write]).status.code(),
        Some(0),
        "control: it can be written"
    );
    let read = secret.display().to_string();
    for words in [&["exec", "--", "cat", &read][..], &["run", "x"], &["serve"]] {
        let output = run(words);
        assert_ne!(output.status.code(), Some(0), "{words:?}");
        assert!(!text(&output.stdout).contains("the secret"));
        assert!(
            text(&output.stderr).contains("agent-mcp apply"),
            "{words:?}: {}",
            text(&output.stderr)
        );
    }
    // `check` looks at it, in its own words, and asks nobody.
    let output = run(&["check"]);
    let said = text(&output.stdout);
    assert!(said.contains("nobody has applied it"), "{said}");
    assert!(said.contains("was not asked"), "{said}");
    assert!(!said.contains("the secret"));
    let named = run(&["exec", "--config", "agent.yaml", "--", "cat", &read]);
    assert_eq!(
        text(&named.stdout),
        "the secret",
        "control: {}",
        text(&named.stderr)
    );
    // To name it is not remembered; applied, it is found from now on, until it changes.
    assert_eq!(run(&["exec", "--", "true"]).status.code(), Some(125));
    assert_eq!(run(&["apply", "--yes"]).status.code(), Some(0));
    assert_eq!(run(&["exec", "--", "true"]).status.code(), Some(0));
    std::fs::write(workspace.path().join("agent.yaml"), yaml + "# changed\n").unwrap();
    assert_eq!(run(&["exec", "--", "true"]).status.code(), Some(125));
}

/// The report goes to the file that was named, not through a link that the command puts there; a FIFO does not hang it.
#[test]
#[cfg(unix)]
fn the_report_follows_no_link() {
    if !can_confine() {
        return;
    }
    let (workspace, state, outside) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let victim = outside.path().join("victim");
    std::fs::write(&victim, "untouched").unwrap();
    let script = format!("rm -f r.json; ln -s {} r.json", victim.display());
    let run = |report: &str, script: &str| {
        command(state.path())
            .current_dir(workspace.path())
            .args([
                "exec",
                "--report",
                "json",
                "--report-file",
                report,
                "--",
                "sh",
                "-c",
                script,
            ])
            .output()
            .unwrap()
    };
    assert_eq!(run("r.json", &script).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    // The link is there now, before the start.
    assert_eq!(run("r.json", "true").status.code(), Some(125));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    assert_eq!(
        run("fifo-made-by-nobody.json", "true").status.code(),
        Some(0),
        "control"
    );
}

/// NFR-01: what is no workspace is refused as one: the system's directories, shared ones, and the home directory.
#[test]
fn nfr_01_no_workspace_is_too_wide() {
    let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let home = state.path().canonicalize().unwrap().display().to_string();
    for root in ["/", "/etc", "/usr", "/tmp", &home] {
        let output = command(state.path())
            .current_dir(workspace.path())
            .args(["exec", "--root", root, "--", "true"])
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(126),
            "{root}: {}",
            text(&output.stderr)
        );
        assert!(
            text(&output.stderr).contains("policy.path_denied"),
            "{root}"
        );
        let configured = Place::new(
            "http://127.0.0.1:9",
            &format!("sandbox: {{workspaces: [{root}]}}\n"),
        );
        let output = configured
            .command(&["check"])
            .env("HOME", &home)
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(2),
            "{root}: {}",
            text(&output.stdout)
        );
    }
}
