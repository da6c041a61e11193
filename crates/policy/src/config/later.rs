//! Keys whose feature comes in a later issue: read and judged, but not alive yet, and never silently.

use super::defaults;
use super::finding::{Finding, FindingCode as Code};
use super::report::{Details, finding};
use super::settings::Config;

/// Whether what is written asks for something that is not there yet.
type Asks = fn(&Config) -> bool;

/// A key or a section with everything below it. Shorten the table as features arrive.
const LATER: &[(&str, Code, Asks)] = &[
    ("agent.box", Code::LaterKey, |config| {
        config.agent.box_id != defaults::BOX_ID
    }),
    ("approvals", Code::LaterKey, |_| true),
    ("boxes", Code::LaterKey, |_| true),
    ("console", Code::LaterKey, |config| config.console.enabled),
    ("guard.url_allowlist", Code::LaterKey, |config| {
        !config.guard.url_allowlist.is_empty()
    }),
    ("mcp.tasks", Code::LaterKey, |_| true),
    ("skills", Code::LaterKey, |_| true),
    ("telemetry", Code::LaterKey, |config| {
        config.telemetry.otlp_endpoint.is_some()
    }),
];

impl Config {
    /// Warnings for the keys that the human wrote and that do nothing yet, in the order of their names.
    pub fn later_keys(&self) -> Vec<Finding> {
        LATER
            .iter()
            .filter(|(_, _, asks)| asks(self))
            .flat_map(|(section, code, _)| {
                self.places
                    .iter()
                    .filter(move |(key, _)| below(key, section) && self.is_leaf(key))
                    .map(|(key, place)| finding(*code, place.clone(), key, Details::default()))
            })
            .collect()
    }

    /// A key of its own: no section, no item of a list.
    fn is_leaf(&self, key: &str) -> bool {
        let section = format!("{key}.");
        let has_keys = self
            .places
            .range(section.clone()..)
            .next()
            .is_some_and(|(next, _)| next.starts_with(&section));
        !key.contains('[') && !has_keys
    }
}

/// Whether `key` is `section` or lies in it.
fn below(key: &str, section: &str) -> bool {
    key.strip_prefix(section)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
