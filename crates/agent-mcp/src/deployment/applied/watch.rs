//! While a server runs: what a planned Task starts under must still be what was applied (ST-24).

use super::{Snapshot, Store};
use crate::deployment::fingerprint_of;
use policy::{Code, Refusal, Standing};

/// The snapshot a process started under.
#[derive(Debug)]
pub struct Watch {
    snapshot: Snapshot,
    store: Store,
}

impl Watch {
    /// Watches a snapshot that was equal to the store's.
    pub fn new(snapshot: Snapshot, store: Store) -> Self {
        Self { snapshot, store }
    }
}

impl Standing for Watch {
    /// Files, roots and store. Entries are checked at each launch.
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
