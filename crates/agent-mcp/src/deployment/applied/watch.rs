//! While a server runs: what a planned Task starts under must still be what was applied (ST-24).

use super::{Snapshot, Store};
use crate::deployment::{fingerprint_of, identity_of, pin};
use policy::effective::EntryExecutable;
use policy::{Code, Refusal, Standing};

/// What is shown where nothing is there that could be looked at, as in [`super::Difference::values`].
const NOTHING: &str = "-";

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
    let object = format!("entry {alias}");
    let old = resolved.display().to_string();
    let seen = std::fs::canonicalize(logical)
        .and_then(|now| std::fs::metadata(&now).map(|seen| (now, seen)));
    let (now, seen) = match seen {
        Ok((now, seen)) if seen.is_file() => (now, seen),
        // Never opened: to open a pipe waits for somebody.
        Ok(_) | Err(_) => return Err(drifted(&object, &old, NOTHING)),
    };
    if now != *resolved {
        return Err(drifted(&object, &old, &now.display().to_string()));
    }
    if identity_of(&seen) == *identity {
        return Ok(());
    }
    match pin(logical) {
        Ok(pinned) if pinned.sha256 == *sha256 => Ok(()),
        Ok(pinned) => {
            let target = format!("{object} ({old}): {sha256} → {}", pinned.sha256);
            Err(Refusal::new(Code::ExecutableHashChanged, "apply", target))
        }
        Err(_) => Err(drifted(&object, &old, NOTHING)),
    }
}

impl Standing for Watch {
    /// Files, roots, entries and store.
    fn check(&self) -> Result<(), Refusal> {
        let config = &self.snapshot.config;
        let now = fingerprint_of(config).map(|fingerprint| fingerprint.to_string());
        if now.as_ref().ok() != Some(&self.snapshot.fingerprint) {
            let now = now.unwrap_or_else(|_| NOTHING.to_owned());
            let object = format!("configuration {}", config.display());
            return Err(drifted(&object, &self.snapshot.fingerprint, &now));
        }
        for root in &self.snapshot.roots {
            let now = root.now();
            if now.as_ref().ok() != Some(root) {
                let now = now.map_or_else(|_| NOTHING.to_owned(), |now| now.place());
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
