//! The text of a new `agent.yaml`: the template of `policy`, with what was found on this machine, in the chosen language.

use super::entries::Entry;
use crate::models::{Model, NO_MODEL};
use policy::config::TEMPLATE;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use url::Url;

/// The template's comments and what they are in Japanese.
const JAPANESE_COMMENTS: &str = include_str!("../../../templates/agent.ja.json");
/// `ollama.options.num_ctx` of the template.
const CONTEXT: u64 = 32_768;
/// `sandbox.resources.profile: normal`, bytes.
const NORMAL_MEMORY: u64 = 4096 << 20;

/// What goes into it.
pub(super) struct Contents<'a> {
    pub(super) model: Option<&'a Model>,
    pub(super) endpoint: &'a Url,
    /// Relative to the file's directory.
    pub(super) workspace: &'a str,
    pub(super) entries: &'a [Entry],
    /// The machine's, bytes.
    pub(super) memory: Option<u64>,
    /// Given with `--lang`.
    pub(super) language: Option<&'a str>,
}

impl Contents<'_> {
    /// The file.
    pub(super) fn text(&self) -> String {
        let name = self.model.map_or(NO_MODEL, |model| &model.name);
        let mut text = TEMPLATE
            .replace("\"{model}\"", &quoted(name))
            .replace("    - .\n", &format!("    - {}\n", self.workspace))
            .replace(
                "  # endpoint: http://localhost:11434\n",
                &format!(
                    "  endpoint: {}\n",
                    word(self.endpoint.as_str().trim_end_matches('/'))
                ),
            );
        if let Some(context) = self
            .model
            .and_then(Model::context)
            .filter(|context| (1..CONTEXT).contains(context))
        {
            text = text.replace(
                &format!("num_ctx: {CONTEXT}"),
                &format!("num_ctx: {context}"),
            );
        }
        if self.memory.is_some_and(|memory| memory < NORMAL_MEMORY) {
            text = text.replace("profile: normal ", "profile: constrained ");
        }
        if let Some(language) = self.language {
            text = text.replace(
                "# application:\n#   language: en ",
                &format!("application:\n  language: {} ", word(language)),
            );
        }
        if !self.entries.is_empty() {
            text = text.replace(
                "    entries: []             # programs that may start, for example:\n",
                &listed(self.entries),
            );
        }
        match self.language {
            Some("ja") => translated(&text),
            _ => text,
        }
    }
}

fn listed(entries: &[Entry]) -> String {
    let mut text =
        "    entries:                # programs that may start, for example:\n".to_owned();
    for entry in entries {
        // Writing to a string cannot fail.
        let _written = write!(
            text,
            "      - alias: {}\n        path: {}\n",
            entry.alias,
            word(&entry.path.to_string_lossy())
        );
    }
    text
}

/// A path, an address, a language: in quotes where YAML needs them.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/:._+-".contains(c);
    let begins = text.starts_with(|c: char| c == '/' || c.is_ascii_alphabetic());
    match begins && text.chars().all(plain) && !text.ends_with(':') {
        true => text.to_owned(),
        false => quoted(text),
    }
}

/// In quotes: what JSON writes, YAML reads.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn comments() -> BTreeMap<String, String> {
    // A test reads it, so that a broken file cannot be built into a release.
    serde_json::from_str(JAPANESE_COMMENTS).unwrap_or_default()
}

fn translated(text: &str) -> String {
    let comments = comments();
    text.lines()
        .map(|line| {
            let translated = comment(line)
                .and_then(|at| Some(format!("{}{}", &line[..at], comments.get(&line[at..])?)));
            translated.unwrap_or_else(|| line.to_owned()) + "\n"
        })
        .collect()
}

/// Where the words of a line's comment begin: behind its last `# `. A line that is only a commented default has its own
/// words there, which no table of comments knows.
fn comment(line: &str) -> Option<usize> {
    line.rfind("# ").map(|at| at + 2)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use policy::config::{Config, Source};
    use std::collections::BTreeSet;

    fn contents<'a>(endpoint: &'a Url, language: Option<&'a str>) -> Contents<'a> {
        Contents {
            model: None,
            endpoint,
            workspace: "..",
            entries: &[],
            memory: None,
            language,
        }
    }

    fn meaning(text: &str) -> Config {
        let source = Source {
            name: "agent.yaml",
            text: text.as_bytes(),
        };
        let mut config = Config::read(&[source]).unwrap().config;
        config.places.clear();
        config
    }

    /// NFR-08, I18N-07: the Japanese file says the same, and every comment of the template is translated.
    #[test]
    fn nfr_08_the_japanese_file_says_the_same() {
        let endpoint: Url = "http://127.0.0.1:11434".parse().unwrap();
        let english = contents(&endpoint, Some("en")).text();
        let japanese = contents(&endpoint, Some("ja")).text();
        assert_eq!(
            meaning(&english.replace("language: en", "language: ja")),
            meaning(&japanese)
        );
        let comments = comments();
        let mut used = BTreeSet::new();
        let head = TEMPLATE.lines().take_while(|line| !line.is_empty()).count();
        for (number, line) in TEMPLATE.lines().enumerate() {
            let Some(at) = comment(line) else { continue };
            let trails = line[..at - 2].contains(|c: char| c.is_alphanumeric());
            let for_editors = line.contains("yaml-language-server");
            if (trails || number < head) && !for_editors {
                assert!(comments.contains_key(&line[at..]), "not translated: {line}");
            }
            used.insert(&line[at..]);
        }
        for key in comments.keys() {
            assert!(used.contains(key.as_str()), "in no line: {key}");
        }
    }

    /// What a server calls its models, and where it is, stays a value.
    #[test]
    fn values_stay_values() {
        let endpoint: Url = "http://127.0.0.1:1/a%22b".parse().unwrap();
        let odd = Model {
            name: "a\"b\\: #{x} 日本".to_owned(),
            size: None,
            details: None,
        };
        let entries = [Entry {
            alias: "sh",
            path: "/opt/a b: #c/sh".into(),
        }];
        let text = Contents {
            model: Some(&odd),
            entries: &entries,
            ..contents(&endpoint, None)
        }
        .text();
        let config = meaning(&text);
        assert_eq!(config.ollama.model, odd.name);
        assert_eq!(config.ollama.endpoint, endpoint);
        assert_eq!(config.sandbox.execution.entries[0].path, entries[0].path);
    }
}
