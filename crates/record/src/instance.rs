//! Running instances (X-INST): each holds the lock of its own directory `<state>/instances/NNNN/`.
//!
//! A starting process takes the lowest number whose lock is free and goes on with that instance's audit chain, so that
//! thousands of short `exec` runs share one file. The lock is a `flock` on an open file: it ends with the process. A
//! child that keeps the descriptor without `exec` keeps the lock, so a sandbox's init must close what it inherits.

use crate::private;
use crate::state::{AtomicFile, StateDirectory, StateError, StateLock};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Numbers below this are tried. So many instances of one user at a time are a mistake.
pub const INSTANCE_LIMIT: u32 = 10_000;

const INSTANCES: &str = "instances";
const LOCK: &str = "lock";

/// A held instance. Clones share the lock; it is released when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Instance {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    number: u32,
    directory: StateDirectory,
    _lock: StateLock,
}

impl Instance {
    /// Claims the lowest free number, making its directory when it is new. Never fails because of another instance.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn claim(state: &StateDirectory) -> Result<Self, StateError> {
        let instances = state.directory(INSTANCES)?;
        for number in 1..INSTANCE_LIMIT {
            let path = instances.path().join(format!("{number:04}"));
            if private::make_directory(&path).map_err(StateError::io("create", &path))? {
                private::sync_directory(instances.path())
                    .map_err(StateError::io("sync", instances.path()))?;
            }
            if let Some(instance) = lock(number, &path)? {
                return Ok(instance);
            }
        }
        Err(StateError::NoInstanceLeft {
            limit: INSTANCE_LIMIT,
        })
    }

    /// Its number, from 1.
    pub fn number(&self) -> u32 {
        self.held.number
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.held.directory.path()
    }

    /// Every instance beside it, itself included, by number.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn all(&self) -> Result<Vec<InstanceEntry>, StateError> {
        instances_in(self.directory().parent().unwrap_or(self.directory()))
    }

    /// A file in its directory.
    ///
    /// # Errors
    /// For a name with separators.
    pub fn file(&self, name: &str) -> Result<AtomicFile, StateError> {
        self.held.directory.file(name)
    }

    /// A directory in its directory, made when it is missing.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn subdirectory(&self, name: &str) -> Result<StateDirectory, StateError> {
        self.held.directory.directory(name)
    }
}

fn lock(number: u32, path: &Path) -> Result<Option<Instance>, StateError> {
    let directory = StateDirectory::open(path)?;
    let Some(lock) = directory.try_lock(LOCK)? else {
        return Ok(None);
    };
    // Only now: nobody else writes here.
    directory.remove_unfinished("")?;
    Ok(Some(Instance {
        held: Arc::new(Held {
            number,
            directory,
            _lock: lock,
        }),
    }))
}

/// An instance directory that exists, held or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceEntry {
    /// Its number.
    pub number: u32,
    /// Its directory.
    pub directory: PathBuf,
}

impl InstanceEntry {
    /// Takes it when nobody holds it: recovery may touch an instance only while it holds it (X-INST).
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn try_adopt(&self) -> Result<Option<Instance>, StateError> {
        lock(self.number, &self.directory)
    }

    /// Whether a journal is left in it. Without the lock this may be a running instance's.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn has_journal(&self) -> Result<bool, StateError> {
        Ok(!crate::journal::journal_files(&self.directory)?.is_empty())
    }
}

/// Every instance directory, by number.
///
/// # Errors
/// `state.unusable`.
pub fn instances(state: &StateDirectory) -> Result<Vec<InstanceEntry>, StateError> {
    instances_in(&state.path().join(INSTANCES))
}

fn instances_in(path: &Path) -> Result<Vec<InstanceEntry>, StateError> {
    let listing = match fs::read_dir(path) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StateError::io("read", path)(error)),
    };
    let mut found = Vec::new();
    for entry in listing {
        let entry = entry.map_err(StateError::io("read", path))?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        found.push(InstanceEntry {
            number,
            directory: entry.path(),
        });
    }
    found.sort_by_key(|entry| entry.number);
    Ok(found)
}
