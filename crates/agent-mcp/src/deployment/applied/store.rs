//! Where snapshots lie: in the state directory that the environment names, never in one that a configuration names, since
//! a configuration must not bring its own approval along.

use super::{SCHEMA_VERSION, Snapshot};
use crate::deployment::hashes::HashRecord;
use crate::deployment::{Places, resolve_existing};
use policy::{Blame, Code, Fault, Message};
use record::audit::Appended;
use record::{AtomicFile, Durable, StateDirectory, StateError, StateLock};
use serde::Deserialize;
use std::path::{Path, PathBuf};

const DIRECTORY: &str = "applied-configurations";
/// Behind the name of a configuration: what was applied, what is remembered of its programs, and whose turn it is.
const SNAPSHOT: &str = ".json";
const HASHES: &str = ".hashes.json";
const LOCK: &str = ".lock";
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
        self.file(config, SNAPSHOT)
    }

    fn file(&self, config: &Path, ending: &str) -> PathBuf {
        self.state.join(DIRECTORY).join(name(config) + ending)
    }

    /// What was applied. Changes nothing.
    ///
    /// # Errors
    /// `state.unusable`: the directory or the file is a link, somebody else's, or open to others; damaged; of a version that this
    /// program does not read; not this configuration's.
    pub fn read(&self, config: &Path) -> Result<Option<Snapshot>, Fault> {
        let path = self.path(config);
        let Some(text) = self.text_of(&path)? else {
            return Ok(None);
        };
        let Versioned { schema_version } =
            serde_json::from_slice(&text).map_err(|error| damaged(&path, error))?;
        if schema_version != SCHEMA_VERSION {
            let id = match schema_version > SCHEMA_VERSION {
                true => "applied.newer",
                false => "applied.older",
            };
            let other = Message::new(id)
                .with("version", schema_version)
                .with("known", SCHEMA_VERSION);
            return Err(fault(&path, other));
        }
        let snapshot: Snapshot =
            serde_json::from_slice(&text).map_err(|error| damaged(&path, error))?;
        if snapshot.config != resolve_existing(config) {
            return Err(damaged(&path, snapshot.config.display()));
        }
        Ok(Some(snapshot))
    }

    fn text_of(&self, path: &Path) -> Result<Option<Vec<u8>>, Fault> {
        let directory = self.state.join(DIRECTORY);
        for place in [&self.state, &directory] {
            let there = StateDirectory::look(place).map_err(|error| unusable(place, &error))?;
            if !there {
                return Ok(None);
            }
        }
        AtomicFile::at(path)
            .read(LIMIT)
            .map_err(|error| unusable(path, &error))
    }

    /// What is remembered of a configuration's programs. Changes nothing. What it holds is the reader's to judge.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub fn read_hashes(&self, config: &Path) -> Result<Option<HashRecord>, Fault> {
        let path = self.file(config, HASHES);
        let Some(text) = self.text_of(&path)? else {
            return Ok(None);
        };
        let record = serde_json::from_slice(&text).map_err(|_| self.not_our_hashes(config))?;
        Ok(Some(record))
    }

    /// What to say of a record that this program did not write like this.
    pub fn not_our_hashes(&self, config: &Path) -> Fault {
        let path = self.file(config, HASHES);
        fault(&path, Message::new("applied.hashes_damaged"))
    }

    /// Replaces what is remembered, unless somebody applies this very moment, who remembers it then.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn keep_hashes(&self, config: &Path, record: &HashRecord) -> Result<(), Fault> {
        let path = self.file(config, HASHES);
        let keep = || {
            let directory = self.directory()?;
            let Some(_lock) = directory.try_lock(&(name(config) + LOCK))? else {
                return Ok(());
            };
            directory.file(&(name(config) + HASHES))?.write_json(record)
        };
        keep().map_err(|error| unusable(&path, &error))
    }

    fn directory(&self) -> Result<StateDirectory, StateError> {
        StateDirectory::open(&self.state)?.directory(DIRECTORY)
    }

    /// Takes the one turn to apply a configuration: from what was applied, over the question, to what is stored, nobody else
    /// stores. `wait` is called once where somebody else has the turn, and then this waits. What a killed turn left is removed.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn turn(&self, config: &Path, wait: impl FnOnce()) -> Result<Turn<'_>, Fault> {
        let lock = name(config) + LOCK;
        let take = || {
            let directory = self.directory()?;
            let held = match directory.try_lock(&lock)? {
                Some(held) => held,
                None => {
                    wait();
                    directory.lock(&lock)?
                }
            };
            directory.remove_unfinished(&name(config))?;
            Ok(held)
        };
        match take() {
            Ok(held) => Ok(Turn {
                store: self,
                _held: held,
            }),
            Err(error) => Err(unusable(&self.file(config, LOCK), &error)),
        }
    }
}

/// The turn to apply one configuration. The next one gets it when this is dropped, or the process ends.
#[derive(Debug)]
pub struct Turn<'s> {
    store: &'s Store,
    _held: StateLock,
}

impl Turn<'_> {
    /// Replaces the whole snapshot, or leaves the old one (ST-23). Durable when it returns; the decision is in the audit log by
    /// then, and everything after it looks at the new one.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn replace(&self, snapshot: &Snapshot, recorded: Durable<Appended>) -> Result<(), Fault> {
        // The proof is used up by what it was recorded for.
        drop(recorded);
        let path = self.store.path(&snapshot.config);
        self.store
            .directory()
            .and_then(|directory| directory.file(&(name(&snapshot.config) + SNAPSHOT)))
            .and_then(|file| file.write_json(snapshot))
            .map_err(|error| unusable(&path, &error))
    }
}

fn damaged(path: &Path, detail: impl std::fmt::Display) -> Fault {
    let message = Message::new("applied.damaged").with("detail", detail);
    fault(path, message)
}

fn name(config: &Path) -> String {
    use sha2::Digest;
    let path = resolve_existing(config);
    let digest = sha2::Sha256::digest(path.as_os_str().as_encoded_bytes());
    policy::effective::Sha256Digest(digest.into()).to_string()
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
        other => return crate::books::fault(other.code(), path, other.reason()),
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
