//! The configuration: what was written, then what it means.
//!
//! Bytes come in; a [`Config`] or every finding at once comes out. Absent here: no file is opened, no path is resolved, no
//! name is looked up, no secret is read, and no default widens what the human wrote.
//!
//! The way of a file: `node` (YAML with positions) → `merge` (local over base) → `written` (typed, all optional) →
//! `meaning` (defaults, presets, contradictions) → [`Config`].

#[cfg(test)]
mod conformance;
mod defaults;
mod encoding;
mod finding;
mod later;
mod meaning;
mod merge;
pub mod nearest;
mod node;
mod ollama;
mod report;
mod sandbox;
mod scalar;
mod settings;
mod shapes;
mod values;
mod words;
mod written;

pub use finding::{Finding, FindingCode, Place, Severity};
pub use settings::*;
pub use words::{
    HardBlock, LogLevel, MountAccess, NetworkAccess, Operation, Profile, ResourceProfile,
    ThinkLevel, Transport, Word,
};

use node::{Mark, Node, NotYaml};
use report::{Details, Report};
use scalar::Written;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The largest configuration file, bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// Findings that are told; after them only that there are more.
pub const MOST_FINDINGS: usize = 500;

/// The commented file that `init` writes, with `{model}` for the name of an installed model.
pub const TEMPLATE: &str = include_str!("../../templates/agent.yaml");

/// One configuration file's name (for findings) and bytes.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Shown in findings.
    pub name: &'a str,
    /// As read from the disk.
    pub text: &'a [u8],
}

/// A valid configuration and what should still be looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The meaning.
    pub config: Config,
    /// Only [`Severity::Warning`], in the order of the files.
    pub warnings: Vec<Finding>,
}

impl Config {
    /// Reads the base file and, if there is one, the local file that goes over it (DESIGN §10.1).
    ///
    /// # Errors
    /// Every finding of both files in one pass, warnings included, in the order of the files (SPEC §15). A file that is no
    /// YAML is reported with the findings of that step only, because everything after it would be a guess.
    pub fn read(sources: &[Source<'_>]) -> Result<Loaded, Vec<Finding>> {
        let mut report = Report::new(sources.iter().map(|source| source.name).collect());
        let merged = merged(sources, &mut report);
        let config = merged
            .and_then(|node| written::Root::read(&node, "", &mut report))
            .and_then(|written| meaning::root(written, &mut report));
        let clean = report.is_clean();
        let (findings, places) = report.finish();
        match config {
            Some(config) if clean => Ok(Loaded {
                config: Config { places, ..config },
                warnings: findings,
            }),
            _ => Err(findings),
        }
    }

    /// Every default, with a model: for tests, and for commands that need no file.
    ///
    /// # Errors
    /// When the text cannot be a model's name.
    pub fn minimal(model: &str) -> Result<Self, Vec<Finding>> {
        let file = serde_json::json!({ "schema_version": 2, "ollama": { "model": model } });
        let text = file.to_string();
        let source = Source {
            name: "defaults",
            text: text.as_bytes(),
        };
        let Loaded { config, .. } = Self::read(&[source])?;
        Ok(Self {
            places: BTreeMap::new(),
            ..config
        })
    }

    /// Where a key is written, if it is (`sandbox.mounts[0].path`).
    pub fn place(&self, key: &str) -> Option<&Place> {
        self.places.get(key)
    }
}

/// Parses every source, also after one failed, and merges them in order.
fn merged(sources: &[Source<'_>], report: &mut Report<'_>) -> Option<Node> {
    let mut base = None;
    let mut broken = false;
    for (index, source) in sources.iter().enumerate() {
        match (node::parse(source.text, index, report), &mut base) {
            (Ok(Some(node)), None) if index == 0 => base = Some(node),
            (Ok(Some(node)), Some(base)) => merge::merge(base, node, "", report),
            (Ok(None), _) if index == 0 => {
                report.add(FindingCode::Empty, Mark::start(0), "", Details::default());
                broken = true;
            }
            (Err(NotYaml), _) => broken = true,
            // A local file with nothing but comments, or one whose base is broken.
            _ => {}
        }
    }
    base.filter(|_| !broken)
}

/// The full names of all keys, in the order of the schema; those of list items have `[]` in them.
pub fn known_keys() -> &'static [String] {
    static KEYS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut keys = Vec::new();
        written::Root::keys("", &mut keys);
        keys
    });
    &KEYS
}

/// The JSON Schema of the configuration, draft 2020-12, so that editors complete and check it.
pub fn json_schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(written::Root).to_value();
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".to_owned(), "agent-mcp configuration".into());
    }
    schema
}
