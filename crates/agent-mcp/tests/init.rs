//! `init`: what it writes, what it picks, and what it leaves alone (UC-05).
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Output;
use support::{can_confine, command, text};
use testkit::{Reply, Script, ScriptedModel};

/// Nobody answers there.
const NOBODY: &str = "http://127.0.0.1:9";

struct Home {
    state: tempfile::TempDir,
    project: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self {
            state: tempfile::tempdir().unwrap(),
            project: tempfile::tempdir().unwrap(),
        }
    }

    fn project(&self) -> PathBuf {
        self.project.path().canonicalize().unwrap()
    }

    fn run(&self, words: &[&str]) -> Output {
        command(self.state.path())
            .current_dir(self.project())
            .args(words)
            .output()
            .unwrap()
    }

    fn init(&self, words: &[&str]) -> Output {
        self.run(&[&["init"], words].concat())
    }
}

/// Every name below a directory.
fn names(base: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![base.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                left.push(path.clone());
            }
            let name = path.strip_prefix(base).unwrap();
            found.push(name.to_str().unwrap().to_owned());
        }
    }
    found.sort();
    found
}

fn ollama(models: &[(&str, &[&str], u64)]) -> ScriptedModel {
    let list: Vec<Value> = models
        .iter()
        .map(|(name, _, _)| json!({"name": name, "model": name, "size": 1_000_000u64}))
        .collect();
    let mut script =
        Script::new().standing("/api/tags", Reply::json(200, &json!({ "models": list })));
    // The scripted server does not look at the question, so the answers come in the order of the list; `check` asks
    // about the chosen one afterwards.
    for (_, capabilities, context) in models {
        let show = json!({
            "capabilities": capabilities,
            "model_info": {"general.architecture": "x", "x.context_length": context},
        });
        script = script.then_on("/api/show", Reply::json(200, &show));
    }
    ScriptedModel::start(script)
}

const TOOLS: &[&str] = &["completion", "tools"];

/// UC-05, X-MODEL: with an Ollama, the file works at once: `check` has nothing to warn of.
#[test]
fn uc_05_x_model_green_at_once() {
    for context in [131_072, 8192] {
        let home = Home::new();
        let model = ollama(&[
            ("nomic-embed-text:latest", &["embedding"], 2048),
            ("gpt-oss:120b-cloud", TOOLS, 1 << 20),
            ("small:1b", TOOLS, 4096),
            ("good:8b", TOOLS, context),
        ]);
        let output = home.init(&["--ollama", &model.endpoint()]);
        let told = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(told.contains("Chosen: good:8b: on this machine"), "{told}");
        assert!(
            told.contains("gpt-oss:120b-cloud: context") && told.contains("small:1b"),
            "{told}"
        );
        assert!(!told.contains("nomic"), "{told}");
        model.assert_finished();
        // `check` asks about the one that was chosen.
        let show = json!({
            "capabilities": TOOLS,
            "model_info": {"general.architecture": "x", "x.context_length": context},
        });
        let tags = json!({"models": [{"name": "good:8b", "size": 1}]});
        let chosen = ScriptedModel::start(
            Script::new()
                .standing("/api/show", Reply::json(200, &show))
                .standing("/api/tags", Reply::json(200, &tags)),
        );
        let config = home.project().join(".agent-mcp/agent.yaml");
        let written = std::fs::read_to_string(&config).unwrap();
        assert!(written.contains("model: \"good:8b\""), "{written}");
        let moved = written.replace(&model.endpoint(), &chosen.endpoint());
        std::fs::write(&config, moved).unwrap();
        let output = home.run(&["check", "--json", "--config", config.to_str().unwrap()]);
        let object: Value = serde_json::from_slice(&output.stdout).unwrap();
        if can_confine() {
            assert_eq!(object["result"], "ok", "{object:#}");
            assert_eq!(output.status.code(), Some(0));
        }
    }
}

/// X-MODEL: what it says where the choice is a poor one, and that a server's names stay names.
#[test]
fn x_model_what_it_says_about_the_choice() {
    let said = |models: &[(&str, &[&str], u64)]| {
        let home = Home::new();
        let model = ollama(models);
        let output = home.init(&["--ollama", &model.endpoint()]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let written =
            std::fs::read_to_string(home.project().join(".agent-mcp/agent.yaml")).unwrap();
        (text(&output.stdout), written)
    };
    let (told, written) = said(&[("far:cloud", TOOLS, 1 << 20)]);
    assert!(told.contains("everything it is told leaves"), "{told}");
    assert!(written.contains("model: \"far:cloud\""));
    let (told, _) = said(&[("one:8b", TOOLS, 40_960)]);
    assert!(told.contains("the only one on this machine"), "{told}");
    let (told, written) = said(&[("plain:8b", &["completion"], 40_960)]);
    assert!(
        told.contains("no model that can call tools (plain:8b)"),
        "{told}"
    );
    assert!(written.contains("choose-a-model"));
    let (told, _) = said(&[]);
    assert!(told.contains("ollama pull"), "{told}");
    let (_, written) = said(&[("a\"b: #x", TOOLS, 40_960)]);
    assert!(written.contains(r#"model: "a\"b: #x""#), "{written}");
}

/// UC-05: without an Ollama a placeholder is written that `check` explains, with the line to change.
#[test]
fn uc_05_without_ollama() {
    let home = Home::new();
    let output = home.init(&["--ollama", NOBODY]);
    assert_eq!(output.status.code(), Some(0));
    let told = text(&output.stdout);
    assert!(told.contains("agent-mcp check"), "{told}");
    let output = home.run(&["check"]);
    let told = text(&output.stdout);
    assert!(
        told.contains("`ollama pull qwen3:8b`") && told.contains("agent.yaml:"),
        "{told}"
    );
    if can_confine() {
        assert_eq!(output.status.code(), Some(0), "{told}");
        // And the rest of it works once it is applied: a program runs in the project, found from below it.
        let output = home.run(&["apply", "--yes"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        std::fs::create_dir(home.project().join("sub")).unwrap();
        let output = command(home.state.path())
            .current_dir(home.project().join("sub"))
            .args(["exec", "--", "sh", "-c", "echo made > file && pwd"])
            .output()
            .unwrap();
        let sub = home.project().join("sub");
        assert_eq!(
            text(&output.stdout).trim(),
            sub.to_str().unwrap(),
            "{}",
            text(&output.stderr)
        );
        assert!(sub.join("file").exists());
    }
}

/// UC-05: all files, each whole; a second time nothing changes, and what is missing is added.
#[test]
fn uc_05_twice() {
    let home = Home::new();
    home.init(&["--ollama", NOBODY]);
    let base = home.project();
    let first = names(&base);
    for name in [
        "agent.schema.json",
        "agent.yaml",
        "config/locales/README.md",
        "skills/example.md",
        "boxes/example.yaml",
    ] {
        assert!(first.contains(&format!(".agent-mcp/{name}")), "{first:?}");
    }
    let config = base.join(".agent-mcp/agent.yaml");
    std::fs::write(&config, "mine").unwrap();
    std::fs::remove_file(base.join(".agent-mcp/skills/example.md")).unwrap();
    let output = home.init(&["--ollama", NOBODY]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "mine");
    assert_eq!(names(&base), first);
    assert!(
        told.contains("kept .agent-mcp/agent.yaml")
            && told.contains("wrote .agent-mcp/skills/example.md"),
        "{told}"
    );
    assert_eq!(home.run(&["check"]).status.code(), Some(2));
    // A link to nowhere is kept, too.
    std::fs::remove_file(&config).unwrap();
    std::os::unix::fs::symlink("/nowhere/agent.yaml", &config).unwrap();
    assert_eq!(home.init(&["--ollama", NOBODY]).status.code(), Some(0));
    assert!(config.is_symlink());
}

/// NFR-08: with `--lang ja` the comments are Japanese, and the language is chosen.
#[test]
fn nfr_08_japanese_comments() {
    let home = Home::new();
    let output = home.init(&["--lang", "ja", "--ollama", NOBODY]);
    assert!(
        text(&output.stdout).contains("次に"),
        "{}",
        text(&output.stdout)
    );
    let written = std::fs::read_to_string(home.project().join(".agent-mcp/agent.yaml")).unwrap();
    assert!(written.contains("設定ファイル") && written.contains("language: ja"));
    assert!(!written.contains("Put no secrets"), "{written}");
    let output = home.run(&["check"]);
    assert!(
        text(&output.stdout).contains("起動"),
        "{}",
        text(&output.stdout)
    );
}

/// UC-05: names with spaces and other letters; the next step can be pasted.
#[test]
fn uc_05_any_directory_name() {
    for name in ["with space", "プロジェクト", "it's", "a/b/c"] {
        let home = Home::new();
        let output = home.init(&[name, "--ollama", NOBODY]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let config = home.project().join(name).join("agent.yaml");
        assert!(config.exists() && config.with_file_name("workspace").is_dir());
        let told = text(&output.stdout);
        let next = told
            .lines()
            .find_map(|line| line.trim().strip_prefix("agent-mcp check --config "))
            .unwrap();
        let echoed = std::process::Command::new("sh")
            .current_dir(home.project())
            .args(["-c", &format!("printf %s {next}")])
            .output()
            .unwrap();
        assert_eq!(text(&echoed.stdout), format!("{name}/agent.yaml"));
    }
    let home = Home::new();
    home.init(&["with space", "--ollama", NOBODY]);
    let output = home.run(&["check", "--config", "with space/agent.yaml"]);
    assert_ne!(output.status.code(), Some(2), "{}", text(&output.stdout));
}

/// UC-05: what cannot be written leaves nothing behind: a file in the way, a file system that takes nothing, a name that
/// is too long, a disk that is full in the middle.
#[test]
fn uc_05_nothing_half_written() {
    let home = Home::new();
    let base = home.project();
    std::fs::write(base.join("file"), "x").unwrap();
    let long = "x".repeat(300);
    for directory in ["file", "file/below", "/proc/agent-mcp-init", &long] {
        let output = home.init(&[directory, "--ollama", NOBODY]);
        assert_eq!(output.status.code(), Some(1), "{directory}");
        let told = text(&output.stderr);
        assert!(told.contains("Nothing was written"), "{told}");
        assert_eq!(names(&base), ["file"], "{directory}");
    }
    // In the middle: one of the directories is a file.
    std::fs::create_dir(base.join("d")).unwrap();
    std::fs::write(base.join("d/boxes"), "x").unwrap();
    let before = names(&base);
    let output = home.init(&["d", "--ollama", NOBODY]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(names(&base), before);
    std::fs::remove_dir_all(base.join("d")).unwrap();
    // A full disk, as a limit of file sizes: the small files fit, the schema does not.
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec '{}' init --ollama {NOBODY}",
        support::program().display()
    );
    let output = command(home.state.path())
        .current_dir(&base)
        .env_remove("AGENT_MCP_TEST_TREE")
        .status_of(&["sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert_eq!(names(&base), ["file"]);
    assert_eq!(
        home.init(&["--ollama", NOBODY]).status.code(),
        Some(0),
        "control"
    );
}

/// The same environment for another program.
trait StatusOf {
    fn status_of(&mut self, words: &[&str]) -> Output;
}

impl StatusOf for std::process::Command {
    fn status_of(&mut self, words: &[&str]) -> Output {
        let mut other = std::process::Command::new(words[0]);
        other.args(&words[1..]).env_clear();
        for (name, value) in self.get_envs() {
            if let Some(value) = value {
                other.env(name, value);
            }
        }
        if let Some(directory) = self.get_current_dir() {
            other.current_dir(directory);
        }
        other.output().unwrap()
    }
}

/// NFR-01: the directory around `.agent-mcp` becomes the workspace, so it must be one project's: not the home directory,
/// not `/tmp`.
#[test]
fn nfr_01_not_in_a_wide_directory() {
    let home = tempfile::tempdir().unwrap();
    let run = |cwd: &Path| {
        command(home.path())
            .current_dir(cwd)
            .args(["init", "--ollama", NOBODY])
            .output()
            .unwrap()
    };
    let there = Path::new("/tmp/.agent-mcp").exists();
    for cwd in [home.path(), Path::new("/tmp")] {
        let output = run(cwd);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stdout));
        assert!(
            text(&output.stderr).contains("policy.path_denied"),
            "{}",
            text(&output.stderr)
        );
    }
    assert_eq!(names(home.path()), Vec::<String>::new());
    assert_eq!(Path::new("/tmp/.agent-mcp").exists(), there);
    let project = home.path().join("project");
    std::fs::create_dir(&project).unwrap();
    assert_eq!(run(&project).status.code(), Some(0), "control");
}

/// UC-05: root is told that another user's directory will hold root's files.
#[test]
fn uc_05_root_in_somebody_elses_directory() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = Home::new();
    let output = home.init(&["--ollama", NOBODY]);
    assert_eq!(text(&output.stderr), "", "control");
    let home = Home::new();
    std::os::unix::fs::chown(home.project(), Some(12_345), None).unwrap();
    let output = home.init(&["--ollama", NOBODY]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text(&output.stderr).contains("belongs to user 12345"),
        "{}",
        text(&output.stderr)
    );
}

/// An address that is none, and one with a password in it, are refused before anything is written.
#[test]
fn bad_endpoints_are_refused() {
    for endpoint in ["nonsense", "ftp://x", "http://user:pass@127.0.0.1:9"] {
        let home = Home::new();
        let output = home.init(&["--ollama", endpoint]);
        assert_eq!(output.status.code(), Some(2), "{endpoint}");
        assert!(
            text(&output.stderr).contains("--ollama"),
            "{}",
            text(&output.stderr)
        );
        assert_eq!(names(&home.project()), Vec::<String>::new());
    }
}

/// I18N-02, I18N-11: `init` copies no texts, so a later version with other keys still starts; what is there is only explained.
#[test]
fn i18n_11_nothing_that_init_writes_can_go_stale() {
    let home = Home::new();
    home.init(&["--ollama", NOBODY]);
    let locales = home.project().join(".agent-mcp/config/locales");
    let names: Vec<_> = std::fs::read_dir(&locales)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["README.md"], "no *.json, which would be read");
    for lang in ["en", "ja"] {
        let output = home.run(&["check", "--lang", lang]);
        assert_ne!(output.status.code(), Some(2), "{}", text(&output.stdout));
    }
    // Its example is one that works.
    let told = std::fs::read_to_string(locales.join("README.md")).unwrap();
    let example: String = told
        .lines()
        .filter(|line| line.starts_with("    "))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(locales.join("en.json"), example).unwrap();
    let output = home.run(&["check", "--config", ".agent-mcp/agent.yaml"]);
    assert!(
        text(&output.stdout).contains("Good to go.") || output.status.code() == Some(4),
        "{}",
        text(&output.stdout)
    );
    // Control: a key that this version does not have is fatal where a person has written it.
    std::fs::write(locales.join("en.json"), r#"{"check.fine.old": "x"}"#).unwrap();
    let output = home.run(&["check", "--config", ".agent-mcp/agent.yaml"]);
    assert_eq!(output.status.code(), Some(2));
}
