//! Where snapshots lie: in the state directory that the environment names, never in one that a configuration names, since
//! a configuration must not bring its own approval along.

use super::{SCHEMA_VERSION, Snapshot};
use crate::deployment::{Places, resolve_existing};
use policy::{Blame, Code, Fault, Message};
use record::audit::Appended;
use record::{AtomicFile, Durable, StateDirectory, StateError};
use serde::Deserialize;
use std::path::{Path, PathBuf};

const DIRECTORY: &str = "applied-configurations";
/// Largest snapshot, bytes.
const LIMIT: u64 = 4 << 20;

/// The store of one user.
#[derive(Clone, Debug)]
pub struct Store {
    state: PathBuf,
}

/// What every version has.
#[derive(Deserialize)]
struct Versioned {
    schema_version: u32,
}

impl Store {
    /// The user's own, below the default state directory.
    ///
    /// # Errors
    /// `state.unusable`: the environment names no home.
    pub fn of_user() -> Result<Self, Fault> {
        Ok(Self::below(Places::default_places()?.state))
    }

    /// Below another state directory.
    pub fn below(state: PathBuf) -> Self {
        Self { state }
    }

    /// The file of a configuration: the SHA-256 of its resolved path.
    pub fn path(&self, config: &Path) -> PathBuf {
        self.state.join(DIRECTORY).join(name(config))
    }

    /// What was applied. Changes nothing.
    ///
    /// # Errors
    /// `state.unusable`: the directory or the file is a link, somebody else's, or open to others; damaged; from a newer
    /// version; not this configuration's.
    pub fn read(&self, config: &Path) -> Result<Option<Snapshot>, Fault> {
        let directory = self.state.join(DIRECTORY);
        for place in [&self.state, &directory] {
            let there = StateDirectory::look(place).map_err(|error| unusable(place, &error))?;
            if !there {
                return Ok(None);
            }
        }
        let path = self.path(config);
        let Some(text) = AtomicFile::at(&path)
            .read(LIMIT)
            .map_err(|error| unusable(&path, &error))?
        else {
            return Ok(None);
        };
        let damaged = |detail: String| {
            fault(
                &path,
                Message::new("applied.damaged").with("detail", detail),
            )
        };
        let Versioned { schema_version } =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if schema_version > SCHEMA_VERSION {
            let newer = Message::new("applied.newer")
                .with("version", schema_version)
                .with("known", SCHEMA_VERSION);
            return Err(fault(&path, newer));
        }
        let snapshot: Snapshot =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if snapshot.config != resolve_existing(config) {
            return Err(damaged(snapshot.config.display().to_string()));
        }
        Ok(Some(snapshot))
    }

    /// Replaces the whole snapshot, or leaves the old one (ST-23). Durable when it returns; the decision is in the audit log by then.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn replace(&self, snapshot: &Snapshot, recorded: Durable<Appended>) -> Result<(), Fault> {
        // The proof is used up by what it was recorded for.
        drop(recorded);
        let path = self.path(&snapshot.config);
        StateDirectory::open(&self.state)
            .and_then(|state| state.directory(DIRECTORY))
            .and_then(|directory| directory.file(&name(&snapshot.config)))
            .and_then(|file| file.write_json(snapshot))
            .map_err(|error| unusable(&path, &error))
    }
}

fn name(config: &Path) -> String {
    use sha2::Digest;
    let path = resolve_existing(config);
    let digest = sha2::Sha256::digest(path.as_os_str().as_encoded_bytes());
    format!("{}.json", policy::effective::Sha256Digest(digest.into()))
}

fn unusable(path: &Path, error: &StateError) -> Fault {
    let message = match error {
        StateError::Symlink { path } => Message::new("applied.link").with("path", path.display()),
        StateError::ForeignOwner { path, owner } => Message::new("applied.foreign")
            .with("path", path.display())
            .with("owner", owner),
        StateError::OpenToOthers { path, mode } => Message::new("applied.open")
            .with("path", path.display())
            .with("mode", format!("{mode:o}")),
        other => return crate::books::fault(other.code(), path, other),
    };
    fault(path, message)
}

fn fault(path: &Path, message: Message) -> Fault {
    Fault::because(
        Blame::Machine,
        Code::StateUnusable,
        path.display().to_string(),
        message,
    )
}
