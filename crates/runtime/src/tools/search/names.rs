//! Searching names: globs and parts of names.

use super::tree::{Entry, Findings, Found};
use globset::{GlobBuilder, GlobMatcher};
use policy::path::ObjectKind;
use policy::{Code, Refusal};
use std::path::Path;

/// What names are compared with.
#[derive(Clone)]
pub(super) enum Names {
    /// The name alone.
    GlobOfName(GlobMatcher),
    /// The whole path below the root.
    GlobOfPath(GlobMatcher),
    /// A part of the name, lower case.
    Part(String),
}

impl Names {
    /// A glob. Without a slash it is for names at any depth; an absolute one must start with the root.
    ///
    /// # Errors
    /// `tool.arguments_invalid` with the glob's error.
    pub(super) fn glob(pattern: &str, root: &Path) -> Result<Self, Refusal> {
        let below = root
            .to_str()
            .and_then(|root| pattern.strip_prefix(root))
            .map(|rest| rest.trim_start_matches('/'));
        let pattern = below.unwrap_or(pattern);
        let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
        let glob = GlobBuilder::new(pattern)
            .literal_separator(true)
            .build()
            .map_err(|error| {
                Refusal::new(Code::ToolArgumentsInvalid, "glob", "query").with("detail", error)
            })?;
        let matcher = glob.compile_matcher();
        Ok(if pattern.contains('/') {
            Self::GlobOfPath(matcher)
        } else {
            Self::GlobOfName(matcher)
        })
    }

    /// A part of a name, without regard to case.
    pub(super) fn part(text: &str) -> Self {
        Self::Part(text.to_lowercase())
    }

    /// Looks at one name.
    pub(super) fn visit(&mut self, entry: &Entry<'_>, findings: &mut Findings) {
        let matches = match self {
            Self::GlobOfName(glob) => glob.is_match(entry.name),
            Self::GlobOfPath(glob) => glob.is_match(entry.path()),
            Self::Part(part) => entry
                .name
                .to_string_lossy()
                .to_lowercase()
                .contains(part.as_str()),
        };
        if matches {
            findings.total += 1;
            let directory = entry.kind == ObjectKind::Directory;
            findings.kept.push(Found {
                path: entry.path(),
                line: None,
                directory,
            });
        }
    }
}
