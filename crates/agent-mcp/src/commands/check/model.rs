//! Ollama and the configured model. Never more than a warning (SPEC §15): both may be there later.

use super::report::{Mark, Report, both};
use crate::deployment::Judged;
use crate::locale::Locale;
use crate::models::{AskProblem, Details, Model, NO_MODEL, Server, ask, is_same, similar};
use policy::config::{Config, Think};
use policy::{Code, Localize, Message};
use serde_json::{Value, json};

/// Where an Ollama listens that nobody has configured.
const USUAL: [&str; 2] = ["http://localhost:11434/", "http://127.0.0.1:11434/"];

/// Where nobody has judged the configuration only the usual Ollama of this machine is asked, which is no secret and no way out.
pub(super) fn rows(report: &mut Report, locale: &Locale, config: &Config, judged: Judged) {
    let ollama = &config.ollama;
    let endpoint = ollama.endpoint.as_str();
    if judged == Judged::NotYet && !USUAL.contains(&endpoint) {
        let message = Message::new("check.ollama_not_asked").with("endpoint", endpoint);
        let data = json!({ "endpoint": endpoint, "version": Value::Null });
        report.add_with(Mark::Warning, "ollama", locale.text(&message), data);
        return tell_no_model(report, locale, config);
    }
    match ask(&ollama.endpoint, Details::Named(&ollama.model)) {
        Ok(server) => {
            let message = Message::new("check.ollama")
                .with("version", &server.version)
                .with("endpoint", endpoint)
                .with("count", server.models.len());
            let names: Vec<&str> = server
                .models
                .iter()
                .map(|model| model.name.as_str())
                .collect();
            let data = json!({ "endpoint": endpoint, "version": server.version, "models": names });
            report.add_with(Mark::Ok, "ollama", locale.text(&message), data);
            model(report, locale, config, server);
        }
        Err(problem) => {
            let detail = match &problem {
                AskProblem::NoAnswer(fault) => both(locale, &fault.message(), &fault.hint()),
                AskProblem::Settings(_) | AskProblem::NoRuntime(_) => problem.to_string(),
            };
            let data = json!({ "endpoint": endpoint, "version": Value::Null });
            report.add_with(Mark::Warning, "ollama", detail, data);
            tell_no_model(report, locale, config);
        }
    }
}

/// What can be said about the model without a server.
fn tell_no_model(report: &mut Report, locale: &Locale, config: &Config) {
    if config.ollama.model == NO_MODEL {
        report.add(Mark::Warning, "model", locale.text(&no_model(config, &[])));
    }
}

/// Nobody has chosen one: what to type next.
fn no_model(config: &Config, models: &[Model]) -> Message {
    let place = config
        .place("ollama.model")
        .map_or_else(String::new, |place| {
            format!("{}:{}", place.file, place.line)
        });
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    match names.is_empty() {
        true => Message::new("check.model_choose_first").with("place", place),
        false => Message::new("check.model_choose")
            .with("place", place)
            .with("names", names.join(", ")),
    }
}

fn model(report: &mut Report, locale: &Locale, config: &Config, server: Server) {
    let name = &config.ollama.model;
    if name == NO_MODEL {
        report.add(
            Mark::Warning,
            "model",
            locale.text(&no_model(config, &server.models)),
        );
        return;
    }
    let shown = match server.named {
        Some(Ok(model)) => model,
        Some(Err(fault)) if fault.code == Code::OllamaModelMissing => {
            report.add_with(
                Mark::Warning,
                "model",
                locale.text(&missing(name, &server.models)),
                json!({ "model": name, "installed": false }),
            );
            return;
        }
        Some(Err(fault)) => {
            let detail = both(locale, &fault.message(), &fault.hint());
            report.add(Mark::Warning, "model", detail);
            return;
        }
        None => return,
    };
    let installed = server.models.iter().any(|model| is_same(&model.name, name));
    abilities(report, locale, &shown, installed);
    thinking(report, locale, config, &shown);
    context(report, locale, config, &shown);
    // A name that says so is told with the configuration.
    if let Some(host) = shown.remote_host() {
        let message = Message::new("check.model_remote")
            .with("model", name)
            .with("host", host);
        report.add(Mark::Danger, "model", locale.text(&message));
    }
}

fn missing(name: &str, models: &[Model]) -> Message {
    let similar = similar(name, models);
    match similar.is_empty() {
        true => Message::new("check.model_missing").with("model", name),
        false => Message::new("check.model_missing_similar")
            .with("model", name)
            .with("names", similar.join(", ")),
    }
}

fn abilities(report: &mut Report, locale: &Locale, model: &Model, installed: bool) {
    let name = &model.name;
    let context = model.context();
    let words = |can: &[(&'static str, bool)]| -> Vec<&'static str> {
        can.iter()
            .filter(|(_, has)| *has)
            .map(|(word, _)| *word)
            .collect()
    };
    let Some(can) = model.capabilities() else {
        let message = Message::new("check.model_silent").with("model", name);
        report.add_with(
            Mark::Warning,
            "model",
            locale.text(&message),
            json!({ "model": name, "installed": installed, "capabilities": Value::Null, "context": context }),
        );
        return;
    };
    let words = words(&[
        ("completion", can.completion),
        ("tools", can.tools),
        ("vision", can.vision),
        ("thinking", can.thinking),
    ]);
    let data =
        json!({ "model": name, "installed": installed, "capabilities": words, "context": context });
    let (mark, detail) = if !can.completion {
        let message = Message::new("check.model_embedding").with("model", name);
        (Mark::Warning, locale.text(&message))
    } else if !can.tools {
        let code = Code::OllamaToolsUnsupported;
        let message = Message::new(code.message_id()).with("target", name);
        let hint = Message::new(code.hint_id()).with("target", name);
        (Mark::Warning, both(locale, &message, &hint))
    } else {
        let message = Message::new("check.model")
            .with("model", name)
            .with("abilities", words.join(", "))
            .with(
                "context",
                context.map_or_else(|| "?".to_owned(), |length| length.to_string()),
            );
        (Mark::Ok, locale.text(&message))
    };
    report.add_with(mark, "model", detail, data);
}

/// A model that cannot think refuses every call that asks it to.
fn thinking(report: &mut Report, locale: &Locale, config: &Config, model: &Model) {
    let asks = !matches!(config.ollama.think, Think::Switch(false)) || config.agent.plan_think;
    let cannot = model.capabilities().is_some_and(|can| !can.thinking);
    if asks && cannot {
        let key = match config.ollama.think {
            Think::Switch(false) => "agent.plan_think",
            _ => "ollama.think",
        };
        let message = Message::new("check.model_thinking")
            .with("model", &model.name)
            .with("key", key);
        report.add(Mark::Warning, "model", locale.text(&message));
    }
}

/// Ollama takes no more context than the model was made for, and the prompt is cut or refused there.
fn context(report: &mut Report, locale: &Locale, config: &Config, model: &Model) {
    let wanted = u64::from(config.ollama.options.num_ctx);
    if let Some(has) = model.context().filter(|has| *has < wanted) {
        let message = Message::new("check.model_context")
            .with("model", &model.name)
            .with("wanted", wanted)
            .with("has", has);
        report.add(Mark::Warning, "model", locale.text(&message));
    }
}
