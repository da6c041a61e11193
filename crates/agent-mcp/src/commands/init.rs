//! `agent-mcp init`: writes a commented configuration into a directory of its own. Never overwrites.

use super::opening::flag_locale;
use crate::cli::InitArgs;
use crate::deployment::{fingerprint_of, trust};
use crate::exit;
use crate::locale::{english, japanese};
use crate::terminal::Terminal;
use policy::config::{KeepAlive, TEMPLATE};
use policy::{Blame, Code, Fault, Message};
use runtime::ollama::{OllamaClient, OllamaSettings};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SKILL: &str = include_str!("../../templates/example-skill.md");
const BOX: &str = include_str!("../../templates/example-box.yaml");
/// Written where no model was found; `check` then says what is missing.
const NO_MODEL: &str = "choose-a-model";

/// Does it.
pub fn run(arguments: &InitArgs) -> u8 {
    let locale = match flag_locale(arguments.lang.as_deref()) {
        Ok(locale) => locale,
        Err(code) => return code,
    };
    let terminal = Terminal::new(&locale);
    if let Err(error) = arguments.ollama.parse::<url::Url>() {
        terminal.fault(&Fault::new(
            Blame::Configuration,
            Code::ConfigurationInvalid,
            "--ollama",
            error,
        ));
        return exit::USAGE;
    }
    let model = installed_model(&arguments.ollama);
    match &model {
        Ok(Some(model)) => terminal.say(&Message::new("init.model").with("model", model)),
        Ok(None) => {
            terminal.say(&Message::new("init.no_model").with("endpoint", &arguments.ollama))
        }
        Err(fault) => terminal.fault(fault),
    }
    let model = model.ok().flatten().unwrap_or_else(|| NO_MODEL.to_owned());
    let directory = &arguments.directory;
    let own = directory
        .file_name()
        .is_some_and(|name| name == ".agent-mcp");
    let workspace = if own { ".." } else { "workspace" };
    let files = files(&model, workspace, arguments);
    match write_all(directory, &files, (!own).then_some(workspace)) {
        Ok(written) => {
            for (path, new) in &written {
                let id = if *new { "init.wrote" } else { "init.kept" };
                terminal.say(&Message::new(id).with("path", path.display()));
            }
            // It was written by this person's own command just now.
            let configuration = directory.join("agent.yaml");
            if written
                .iter()
                .any(|(path, new)| *new && *path == configuration)
                && let Ok(fingerprint) = fingerprint_of(&configuration)
            {
                drop(trust(&configuration, &fingerprint));
            }
            terminal.say(
                &Message::new("init.next").with("config", directory.join("agent.yaml").display()),
            );
            exit::OK
        }
        Err(fault) => {
            terminal.fault(&fault);
            exit::FAILED
        }
    }
}

fn files(model: &str, workspace: &str, arguments: &InitArgs) -> Vec<(PathBuf, String)> {
    let mut configuration = TEMPLATE
        .replace("{model}", model)
        .replace("    - .\n", &format!("    - {workspace}\n"));
    configuration = configuration.replace(
        "  # endpoint: http://localhost:11434\n",
        &format!("  endpoint: {}\n", arguments.ollama),
    );
    if let Some(lang) = &arguments.lang {
        configuration = configuration.replace(
            "# application:\n#   language: en ",
            &format!("application:\n  language: {lang} "),
        );
    }
    let entries = shell_entry();
    configuration = configuration.replace(
        "    entries: []             # programs that may start, for example:\n",
        &entries,
    );
    let pretty = |texts: &std::collections::BTreeMap<String, String>| {
        serde_json::to_string_pretty(texts).map_or_else(|_| String::new(), |text| text + "\n")
    };
    vec![
        (PathBuf::from("agent.yaml"), configuration),
        (PathBuf::from("config/locales/en.json"), pretty(english())),
        (PathBuf::from("config/locales/ja.json"), pretty(japanese())),
        (PathBuf::from("skills/example.md"), SKILL.to_owned()),
        (PathBuf::from("boxes/example.yaml"), BOX.to_owned()),
    ]
}

/// Programs that most requests need and that are there, as entries.
fn shell_entry() -> String {
    let mut text = "    entries:                # programs that may start:\n".to_owned();
    let mut any = false;
    for (alias, paths) in [
        ("sh", &["/bin/sh"][..]),
        ("python3", &["/usr/bin/python3", "/usr/local/bin/python3"]),
        ("git", &["/usr/bin/git"]),
        ("make", &["/usr/bin/make"]),
    ] {
        if let Some(path) = paths.iter().find(|path| Path::new(path).is_file()) {
            any = true;
            text.push_str(&format!("      - alias: {alias}\n        path: {path}\n"));
        }
    }
    if any {
        text
    } else {
        "    entries: []             # programs that may start, for example:\n".to_owned()
    }
}

fn write_all(
    directory: &Path,
    files: &[(PathBuf, String)],
    workspace: Option<&str>,
) -> Result<Vec<(PathBuf, bool)>, Fault> {
    let failed = |path: &Path, error: std::io::Error| {
        Fault::new(
            Blame::Machine,
            Code::ToolFailed,
            path.display().to_string(),
            error,
        )
    };
    let mut written = Vec::new();
    for (name, text) in files {
        let path = directory.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
        }
        match std::fs::File::options()
            .write(true)
            .create_new(true)
            .open(&path)
        {
            Ok(mut file) => {
                file.write_all(text.as_bytes())
                    .map_err(|error| failed(&path, error))?;
                written.push((path, true));
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                written.push((path, false))
            }
            Err(error) => return Err(failed(&path, error)),
        }
    }
    if let Some(workspace) = workspace {
        let path = directory.join(workspace);
        std::fs::create_dir_all(&path).map_err(|error| failed(&path, error))?;
    }
    Ok(written)
}

/// The first installed model that can call tools.
fn installed_model(endpoint: &str) -> Result<Option<String>, Fault> {
    let wrong = |detail: String| {
        Fault::new(
            Blame::Configuration,
            Code::ConfigurationInvalid,
            "--ollama",
            detail,
        )
    };
    let endpoint: url::Url = endpoint
        .parse()
        .map_err(|error: url::ParseError| wrong(error.to_string()))?;
    let settings = |model: &str| OllamaSettings {
        endpoint: endpoint.clone(),
        model: model.to_owned(),
        keep_alive: KeepAlive::Duration("5m".to_owned()),
        connect_timeout: Duration::from_secs(2),
        deadline: Duration::from_secs(10),
    };
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| wrong(error.to_string()))?;
    let lister =
        OllamaClient::new(settings(NO_MODEL)).map_err(|problem| wrong(problem.to_string()))?;
    let Ok(models) = tokio.block_on(lister.tags()) else {
        return Ok(None);
    };
    for model in models {
        let Ok(client) = OllamaClient::new(settings(&model.name)) else {
            continue;
        };
        if let Ok(details) = tokio.block_on(client.show(&model.name))
            && details.capabilities.is_some_and(|can| can.tools)
        {
            return Ok(Some(model.name));
        }
    }
    Ok(None)
}
