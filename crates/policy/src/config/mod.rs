//! The configuration: what was written, then what it means.
//!
//! Bytes come in, a [`Config`] or every finding at once comes out. Absent here: no file is opened, no path is resolved, no
//! name is looked up, no default widens what the human wrote.

mod defaults;
mod finding;
mod settings;
mod words;

pub use finding::{Finding, FindingCode, Place, Severity};
pub use settings::*;
pub use words::{
    HardBlock, LogLevel, MountAccess, NetworkAccess, Operation, Profile, ResourceProfile,
    ThinkLevel, Transport, Word,
};

/// The largest configuration file, bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;

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
    /// Where a key is written, if it is (`sandbox.mounts[0].path`).
    pub fn place(&self, key: &str) -> Option<&Place> {
        self.places.get(key)
    }
}
