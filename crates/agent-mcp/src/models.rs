//! What Ollama has installed, asked within bounds: for `check`, which judges the configured model, and for `init`, which
//! picks one. Nothing here waits longer than [`TOGETHER`], whatever the other side does.

use policy::Fault;
use policy::config::KeepAlive;
use runtime::ollama::{
    Backoff, Capabilities, InstalledModel, ModelDetails, OllamaClient, OllamaSettings,
    SettingsProblem,
};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Longest wait for one answer.
const EACH: Duration = Duration::from_secs(3);
/// Longest wait for all details together.
const TOGETHER: Duration = Duration::from_secs(10);
/// Models whose details are asked for.
const MOST_ASKED: usize = 64;
/// Longest name that is written into a configuration, bytes.
const LONGEST_NAME: usize = 256;
/// Similar names that are told.
const MOST_SIMILAR: usize = 3;
/// Written where no model was found; `check` then says what is missing.
pub const NO_MODEL: &str = "choose-a-model";

/// Ollama, as it answered.
#[derive(Debug)]
pub struct Server {
    /// Its version.
    pub version: String,
    /// Its models, in its order.
    pub models: Vec<Model>,
    /// About the one model that was asked for by name.
    pub named: Option<Result<Model, Fault>>,
}

/// One model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// As `ollama.model` wants it.
    pub name: String,
    /// Bytes on the disk.
    pub size: Option<u64>,
    /// What it can do, where that was asked and told.
    pub details: Option<ModelDetails>,
}

/// Whose details are asked for.
#[derive(Clone, Copy, Debug)]
pub enum Details<'a> {
    /// One model's.
    Named(&'a str),
    /// Those of every installed one.
    All,
}

/// Asks. Blocks for a bounded time.
///
/// # Errors
/// It does not answer, or not as Ollama.
pub fn ask(endpoint: &Url, details: Details<'_>) -> Result<Server, AskProblem> {
    let name = match details {
        Details::Named(name) => name,
        Details::All => NO_MODEL,
    };
    let settings = OllamaSettings {
        endpoint: endpoint.clone(),
        model: name.to_owned(),
        keep_alive: KeepAlive::Seconds(0),
        connect_timeout: EACH,
        deadline: EACH,
    };
    // The question is cheap and a person waits: what failed is asked again at once.
    let at_once = Backoff::with_pause(Arc::new(|_| Box::pin(std::future::ready(()))));
    let client = OllamaClient::with_backoff(settings, at_once).map_err(AskProblem::Settings)?;
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(AskProblem::NoRuntime)?;
    let answered = tokio.block_on(all_questions(&client, details));
    // A name server that never answers holds a thread; it is not waited for.
    tokio.shutdown_background();
    answered.map_err(AskProblem::NoAnswer)
}

/// Why nothing is known.
#[derive(Debug, thiserror::Error)]
pub enum AskProblem {
    /// No client can be made for this endpoint.
    #[error("{0}")]
    Settings(SettingsProblem),
    /// This process cannot wait for a network.
    #[error("{0}")]
    NoRuntime(std::io::Error),
    /// No usable answer.
    #[error("{0}")]
    NoAnswer(Fault),
}

async fn all_questions(client: &OllamaClient, details: Details<'_>) -> Result<Server, Fault> {
    let version = client.version().await.map_err(|fault| fault.to_fault())?;
    let installed = client.tags().await.map_err(|fault| fault.to_fault())?;
    let mut server = Server {
        version,
        models: installed.into_iter().filter_map(Model::listed).collect(),
        named: None,
    };
    match details {
        Details::Named(name) => {
            let shown = client.show(name).await;
            server.named = Some(shown.map_err(|fault| fault.to_fault()).map(|details| {
                Model {
                    name: name.to_owned(),
                    size: server
                        .models
                        .iter()
                        .find(|model| is_same(&model.name, name))
                        .and_then(|model| model.size),
                    details: Some(details),
                }
            }));
        }
        Details::All => {
            let models = &mut server.models;
            // What was not told in time stays unknown.
            let _in_time = tokio::time::timeout(TOGETHER, async {
                for model in models.iter_mut().take(MOST_ASKED) {
                    model.details = client.show(&model.name).await.ok();
                }
            })
            .await;
        }
    }
    Ok(server)
}

impl Model {
    /// Without names that could not stand in a configuration.
    fn listed(installed: InstalledModel) -> Option<Self> {
        let InstalledModel { name, size } = installed;
        let usable = !name.trim().is_empty()
            && name.len() <= LONGEST_NAME
            && !name.chars().any(char::is_control);
        usable.then_some(Self {
            name,
            size,
            details: None,
        })
    }

    /// What it can do; nothing where that is not known.
    pub fn capabilities(&self) -> Option<Capabilities> {
        self.details.as_ref()?.capabilities
    }

    /// The longest context, tokens.
    pub fn context(&self) -> Option<u64> {
        self.details.as_ref()?.context_length
    }

    /// Where it really runs, if that is not Ollama's own machine (X-MODEL).
    pub fn remote_host(&self) -> Option<&str> {
        let host = self.details.as_ref()?.raw.get("remote_host")?.as_str()?;
        Some(host).filter(|host| !host.is_empty())
    }

    /// Whether what it is told leaves this machine (X-MODEL).
    pub fn is_cloud(&self) -> bool {
        let tag = self.name.rsplit_once(':').map_or("", |(_, tag)| tag);
        tag == "cloud" || tag.ends_with("-cloud") || self.remote_host().is_some()
    }

    /// Whether it can do the work: talk and call tools (OLL-10).
    pub fn is_suitable(&self) -> bool {
        self.capabilities()
            .is_some_and(|can| can.completion && can.tools)
    }
}

/// The most sensible one to begin with: suitable, on this machine before in the cloud, one that fits into `memory` bytes
/// before one that does not, with the longer context, then the larger one, then the first by name.
pub fn choose(models: &[Model], memory: Option<u64>) -> Option<&Model> {
    let fits = |model: &Model| match (model.size, memory) {
        (Some(size), Some(memory)) => size <= memory,
        _ => true,
    };
    models
        .iter()
        .filter(|model| model.is_suitable())
        .max_by(|a, b| {
            let rank = |model: &Model| {
                (
                    !model.is_cloud(),
                    fits(model),
                    model.context().unwrap_or(0),
                    model.size.unwrap_or(0),
                )
            };
            rank(a).cmp(&rank(b)).then_with(|| b.name.cmp(&a.name))
        })
}

/// Whether two names are the same model: a name without a tag is the one with `:latest`.
pub fn is_same(a: &str, b: &str) -> bool {
    fn whole(name: &str) -> (&str, &str) {
        match name.rsplit_once(':') {
            Some((base, tag)) if !tag.contains('/') => (base, tag),
            _ => (name, "latest"),
        }
    }
    whole(a) == whole(b)
}

/// Installed names like a wanted one: the same family first, then what begins alike.
pub fn similar(wanted: &str, models: &[Model]) -> Vec<String> {
    let base = |name: &str| name.split(':').next().unwrap_or_default().to_lowercase();
    let wanted_base = base(wanted);
    let mut ranked: Vec<(usize, &str)> = models
        .iter()
        .map(|model| {
            let name = model.name.as_str();
            let alike = wanted_base
                .chars()
                .zip(base(name).chars())
                .take_while(|(a, b)| a == b)
                .count();
            let same_family = usize::from(base(name) == wanted_base) * 1000;
            (same_family + alike, name)
        })
        .collect();
    ranked.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    ranked
        .into_iter()
        .take(MOST_SIMILAR)
        .map(|(_, name)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn model(name: &str, can: &[&str], context: u64, size: u64) -> Model {
        let capabilities = Capabilities {
            completion: can.contains(&"completion"),
            tools: can.contains(&"tools"),
            vision: can.contains(&"vision"),
            thinking: can.contains(&"thinking"),
        };
        Model {
            name: name.to_owned(),
            size: Some(size),
            details: Some(ModelDetails {
                capabilities: Some(capabilities),
                context_length: Some(context),
                raw: json!({}),
            }),
        }
    }

    const TOOLS: &[&str] = &["completion", "tools"];
    const GIB: u64 = 1 << 30;

    /// X-MODEL: `init` never picks what cannot do the work, and the cloud only where there is nothing else.
    #[test]
    fn x_model_the_most_sensible_one() {
        let embedding = model("nomic-embed-text:latest", &["embedding"], 2048, GIB);
        let plain = model("gemma:2b", &["completion"], 1 << 20, GIB);
        let cloud = model("gpt-oss:120b-cloud", TOOLS, 1 << 20, 0);
        let mut remote = model("mine:latest", TOOLS, 1 << 20, 0);
        remote.details.as_mut().unwrap().raw = json!({"remote_host": "https://far.example"});
        let short = model("a:1b", TOOLS, 8192, GIB);
        let long = model("b:7b", TOOLS, 131_072, 5 * GIB);
        let huge = model("c:405b", TOOLS, 262_144, 200 * GIB);
        let silent = Model {
            name: "silent".to_owned(),
            size: None,
            details: None,
        };
        let choose = |models: &[&Model]| {
            let models: Vec<Model> = models.iter().map(|model| (*model).clone()).collect();
            super::choose(&models, Some(16 * GIB)).map(|model| model.name.clone())
        };
        assert_eq!(choose(&[]), None);
        assert_eq!(choose(&[&embedding, &plain, &silent]), None);
        assert_eq!(
            choose(&[&embedding, &cloud]),
            Some("gpt-oss:120b-cloud".into())
        );
        assert_eq!(choose(&[&cloud, &remote, &short]), Some("a:1b".into()));
        assert_eq!(choose(&[&short, &long, &cloud]), Some("b:7b".into()));
        assert_eq!(choose(&[&huge, &short, &long]), Some("b:7b".into()));
        assert_eq!(choose(&[&huge]), Some("c:405b".into()));
        let twin = model("a:7b", TOOLS, 131_072, 5 * GIB);
        assert_eq!(choose(&[&long, &twin]), Some("a:7b".into()));
        assert_eq!(choose(&[&twin, &long]), Some("a:7b".into()));
    }

    #[test]
    fn names_that_are_alike() {
        assert!(is_same("qwen3", "qwen3:latest") && is_same("a/b:c", "a/b:c"));
        assert!(!is_same("qwen3", "qwen3:8b") && !is_same("host:1/qwen3", "qwen3"));
        let models = ["mistral:7b", "qwen3:8b", "qwen2.5:7b", "qwen3:14b", "llama"]
            .map(|name| model(name, TOOLS, 1, 1));
        assert_eq!(
            similar("qwen3:4b", &models),
            ["qwen3:14b", "qwen3:8b", "qwen2.5:7b"]
        );
        assert_eq!(similar("x", &[]), Vec::<String>::new());
    }

    /// What a server calls its models cannot write the configuration.
    #[test]
    fn odd_names_are_left_out() {
        let listed = |name: &str| {
            Model::listed(InstalledModel {
                name: name.to_owned(),
                size: None,
            })
        };
        assert!(listed("qwen3:8b").is_some());
        for name in ["", " ", "a\nsandbox: x", "\u{1b}[2J", &"x".repeat(300)] {
            assert_eq!(listed(name), None, "{name:?}");
        }
    }
}
