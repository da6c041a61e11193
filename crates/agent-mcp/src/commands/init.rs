//! `agent-mcp init`: writes a commented configuration into a directory of its own, with safe defaults that work at once.
//! Never overwrites.

mod configuration;
mod entries;
mod write;

use super::check::memory_bytes;
use super::opening::flag_locale;
use crate::cli::InitArgs;
use crate::deployment::{for_shell, resolve_existing, too_wide};
use crate::exit;
use crate::models::{AskProblem, Details, Model, Server, ask, choose};
use crate::terminal::Terminal;
use configuration::Contents;
use policy::config::{Config, Source, json_schema};
use policy::{Blame, Code, Fault, Localize, Message, Refusal, Right};
use std::path::Path;
use url::Url;
use write::{NewFile, is_there, write_all};

const SKILL: &str = include_str!("../../templates/example-skill.md");
const BOX: &str = include_str!("../../templates/example-box.yaml");
const LOCALES: &str = include_str!("../../templates/locales.md");
/// The directory that makes the one around it the workspace.
const OWN_DIRECTORY: &str = ".agent-mcp";
const CONFIGURATION: &str = "agent.yaml";

/// Does it.
pub fn run(arguments: &InitArgs) -> u8 {
    let locale = match flag_locale(arguments.lang.as_deref()) {
        Ok(locale) => locale,
        Err(code) => return code,
    };
    let terminal = Terminal::new(&locale);
    let endpoint = match arguments.ollama.parse::<Url>() {
        Ok(endpoint) => endpoint,
        Err(error) => {
            terminal.fault(&wrong_endpoint(&error.to_string()));
            return exit::USAGE;
        }
    };
    let directory = &arguments.directory;
    let is_own = directory
        .file_name()
        .is_some_and(|name| name == OWN_DIRECTORY);
    if is_own && let Some(refusal) = unsuitable_workspace(directory) {
        terminal.refusal(&refusal);
        return exit::of(refusal.code);
    }
    warn_of_owner(&terminal, directory);
    let is_new = !is_there(&directory.join(CONFIGURATION));
    let memory = memory_bytes();
    // What is kept is not asked about.
    let model = is_new
        .then(|| pick_model(&terminal, &endpoint, memory))
        .flatten();
    let entries = entries::installed();
    let contents = Contents {
        model: model.as_ref(),
        endpoint: &endpoint,
        workspace: if is_own { ".." } else { "workspace" },
        entries: &entries,
        memory,
        language: arguments.lang.as_deref(),
    };
    let text = contents.text();
    if let Some(problem) = findings(&text, terminal.texts()) {
        // Only the endpoint is a person's own words here.
        terminal.fault(&wrong_endpoint(&problem));
        return exit::USAGE;
    }
    let written = match write_all(directory, &files(text), (!is_own).then_some("workspace")) {
        Ok(written) => written,
        Err(fault) => {
            terminal.fault(&fault);
            terminal.warn(&Message::new("init.nothing_written"));
            return exit::FAILED;
        }
    };
    for file in &written {
        let id = if file.kept { "init.kept" } else { "init.wrote" };
        terminal.say(&Message::new(id).with("path", file.path.display()));
    }
    let configuration = directory.join(CONFIGURATION);
    let wrote_it = written
        .iter()
        .any(|file| !file.kept && file.path == configuration);
    if wrote_it {
        let aliases: Vec<&str> = entries.iter().map(|entry| entry.alias).collect();
        if !aliases.is_empty() {
            terminal.say(&Message::new("init.entries").with("names", aliases.join(", ")));
        }
    }
    terminal.say(&next(&configuration, is_own));
    exit::OK
}

/// What to do now. In the workspace itself the file is found without being named.
fn next(configuration: &Path, is_own: bool) -> Message {
    let is_found = is_own && configuration.parent() == Some(Path::new(OWN_DIRECTORY));
    let shown = for_shell(&configuration.display().to_string());
    let flag = if is_found {
        String::new()
    } else {
        format!(" --config {shown}")
    };
    Message::new("init.next")
        .with("config", shown)
        .with("flag", flag)
}

fn wrong_endpoint(detail: &str) -> Fault {
    Fault::new(
        Blame::Configuration,
        Code::ConfigurationInvalid,
        "--ollama",
        detail,
    )
}

/// What is wrong with the text, if anything is.
fn findings(text: &str, texts: &dyn Localize) -> Option<String> {
    let source = Source {
        name: CONFIGURATION,
        text: text.as_bytes(),
    };
    let findings = Config::read(&[source]).err()?;
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| texts.text(&finding.message))
        .collect();
    Some(lines.join(" "))
}

/// The directory around `.agent-mcp` must be one project's.
fn unsuitable_workspace(directory: &Path) -> Option<Refusal> {
    let workspace = resolve_existing(directory).parent()?.to_owned();
    let reason = too_wide(&workspace)?;
    let target = workspace.display().to_string();
    Some(Refusal::new(Code::PathDenied, reason.id(), target).requiring(Right::Write))
}

/// Root's files in somebody else's directory would be of no use to them.
#[cfg(unix)]
fn warn_of_owner(terminal: &Terminal<'_>, directory: &Path) {
    use std::os::unix::fs::MetadataExt;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let existing = absolute.ancestors().find(|path| path.exists());
    let owner = existing.and_then(|path| Some(std::fs::metadata(path).ok()?.uid()));
    if let (Some(existing), Some(owner)) = (existing, owner)
        && owner != 0
    {
        terminal.warn(
            &Message::new("init.foreign_directory")
                .with("path", existing.display())
                .with("owner", owner),
        );
    }
}

#[cfg(not(unix))]
fn warn_of_owner(_: &Terminal<'_>, _: &Path) {}

/// Asks Ollama, and says what was chosen and why.
fn pick_model(terminal: &Terminal<'_>, endpoint: &Url, memory: Option<u64>) -> Option<Model> {
    let server = match ask(endpoint, Details::All) {
        Ok(server) => server,
        Err(problem) => {
            let detail = match &problem {
                AskProblem::NoAnswer(fault) => terminal.texts().text(&fault.message()),
                AskProblem::Settings(_) | AskProblem::NoRuntime(_) => problem.to_string(),
            };
            terminal.say(&Message::new("init.no_ollama").with("detail", detail));
            return None;
        }
    };
    let Server { models, .. } = server;
    let Some(chosen) = choose(&models, memory) else {
        let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        let message = match names.is_empty() {
            true => Message::new("init.no_model").with("endpoint", endpoint),
            false => Message::new("init.no_suitable_model")
                .with("endpoint", endpoint)
                .with("names", names.join(", ")),
        };
        terminal.say(&message);
        return None;
    };
    terminal.say(&Message::new("init.models"));
    for model in models.iter().filter(|model| model.is_suitable()) {
        let id = match model.is_cloud() {
            true => "init.model_line_cloud",
            false => "init.model_line",
        };
        terminal.say(&with_facts(Message::new(id), model));
    }
    let suitable = models.iter().filter(|model| model.is_suitable()).count();
    let id = match (chosen.is_cloud(), suitable) {
        (true, _) => "init.model_cloud",
        (false, 1) => "init.model_only",
        (false, _) => "init.model",
    };
    terminal.say(&with_facts(Message::new(id), chosen));
    Some(chosen.clone())
}

fn with_facts(message: Message, model: &Model) -> Message {
    let number = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), |n| n.to_string());
    message
        .with("model", &model.name)
        .with("context", number(model.context()))
        .with("size", number(model.size.map(|size| size >> 20)))
}

/// All files; the configuration comes last, so that where it is, everything is.
fn files(configuration: String) -> Vec<NewFile> {
    let file = |name, text| NewFile { name, text };
    let schema = format!("{:#}\n", json_schema());
    vec![
        // No copy of the texts: they are compiled in, and a copy would be wrong as soon as a later version has other keys.
        file("config/locales/README.md", LOCALES.to_owned()),
        file("skills/example.md", SKILL.to_owned()),
        file("boxes/example.yaml", BOX.to_owned()),
        // The first line of the configuration names it, so that editors complete and check without any network.
        file("agent.schema.json", schema),
        file(CONFIGURATION, configuration),
    ]
}
