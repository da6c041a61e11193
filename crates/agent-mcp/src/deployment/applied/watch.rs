//! While a server runs: what a planned Task starts under must still be what was applied (ST-24).

use super::{Snapshot, Store};
use crate::deployment::{fingerprint_of, identity_of, pin};
use policy::effective::EntryExecutable;
use policy::{Code, Refusal, Standing};

/// The snapshot a process started under.
#[derive(Debug)]
pub struct Watch {
    snapshot: Snapshot,
    entries: Vec<EntryExecutable>,
    store: Store,
}

impl Watch {
    /// Watches a snapshot that was equal to the store's, and the programs as they were pinned then.
    pub fn new(snapshot: Snapshot, entries: Vec<EntryExecutable>, store: Store) -> Self {
        Self {
            snapshot,
            entries,
            store,
        }
    }
}

/// Only what looks different is read again: what was only touched still stands. A launch looks again, through the descriptor
/// that it executes (X-HASH).
fn check_entry(entry: &EntryExecutable) -> Result<(), Refusal> {
    let EntryExecutable {
        alias,
        logical,
        resolved,
        sha256,
        identity,
        ..
    } = entry;
    let seen = std::fs::canonicalize(logical).and_then(|now| {
        let seen = std::fs::metadata(&now)?;
        Ok((now, identity_of(&seen)))
    });
    match seen {
        Ok((now, seen)) if now == *resolved && seen == *identity => return Ok(()),
        Ok((now, _)) if now != *resolved => {
            let (old, new) = (resolved.display(), now.display());
            return Err(drifted(
                &format!("entry {alias}"),
                &old.to_string(),
                &new.to_string(),
            ));
        }
        Ok(_) | Err(_) => {}
    }
    let now = pin(logical).map(|pinned| pinned.sha256);
    match now {
        Ok(now) if now == *sha256 => Ok(()),
        Ok(now) => Err(Refusal::new(
            Code::ExecutableHashChanged,
            "apply",
            format!("entry {alias} ({}): {sha256} → {now}", resolved.display()),
        )),
        Err(error) => Err(drifted(
            &format!("entry {alias}"),
            &resolved.display().to_string(),
            &error.to_string(),
        )),
    }
}

impl Standing for Watch {
    /// Files, roots, entries and store.
    fn check(&self) -> Result<(), Refusal> {
        let config = &self.snapshot.config;
        let now = fingerprint_of(config).map(|fingerprint| fingerprint.to_string());
        if now.as_ref().ok() != Some(&self.snapshot.fingerprint) {
            let now = now.unwrap_or_else(|_| "-".to_owned());
            let object = format!("configuration {}", config.display());
            return Err(drifted(&object, &self.snapshot.fingerprint, &now));
        }
        for root in &self.snapshot.roots {
            let now = root.now();
            if now.as_ref().ok() != Some(root) {
                let now = now.map_or_else(|error| error.to_string(), |now| now.place());
                let object = format!("{} {}", root.origin, root.logical.display());
                return Err(drifted(&object, &root.place(), &now));
            }
        }
        self.entries.iter().try_for_each(check_entry)?;
        let applied = self.store.read(config).ok().flatten();
        self.snapshot.demand(applied.as_ref()).map_err(|refusals| {
            let first = refusals.into_iter().next();
            first.unwrap_or_else(|| drifted(&config.display().to_string(), "-", "-"))
        })
    }
}

fn drifted(object: &str, old: &str, new: &str) -> Refusal {
    Refusal::new(
        Code::SandboxResolutionChanged,
        "apply",
        format!("{object}: {old} → {new}"),
    )
}
