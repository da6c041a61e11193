//! While a server runs: what a run starts under must still be what was applied (ST-24), looked at before each sandbox is
//! prepared.

use super::{AppliedRoot, Snapshot, Store};
use crate::deployment::{fingerprint_of, identity_of};
use policy::effective::EffectivePolicy;
use policy::sandbox::{Enforcement, PreparedSandbox, SandboxBackend, SandboxError};
use policy::{Code, Refusal};
use std::path::Path;
use std::sync::Arc;

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

    /// Whether files, roots and store still are what they were. Entries are checked at each launch.
    ///
    /// # Errors
    /// `sandbox.resolution_changed`, naming the first object that differs.
    pub fn check(&self) -> Result<(), Refusal> {
        let config = &self.snapshot.config;
        let now = fingerprint_of(config).map(|fingerprint| fingerprint.to_string());
        if now.as_ref().ok() != Some(&self.snapshot.fingerprint) {
            let now = now.unwrap_or_else(|_| "-".to_owned());
            let object = format!("configuration {}", config.display());
            return Err(drifted(&object, &self.snapshot.fingerprint, &now));
        }
        for root in &self.snapshot.roots {
            let now = place_of(&root.logical);
            if now.as_deref().ok() != Some(root.place().as_str()) {
                let now = now.unwrap_or_else(|error| error.to_string());
                let object = format!("{} {}", root.origin, root.logical.display());
                return Err(drifted(&object, &root.place(), &now));
            }
        }
        let applied = self.store.read(config).ok().flatten();
        match applied {
            Some(applied) if self.snapshot.demand(Some(&applied)).is_ok() => Ok(()),
            other => {
                let other =
                    other.map_or_else(|| "-".to_owned(), |snapshot| snapshot.digest().to_string());
                let object = self.store.path(config).display().to_string();
                Err(drifted(
                    &object,
                    &self.snapshot.digest().to_string(),
                    &other,
                ))
            }
        }
    }
}

fn place_of(logical: &Path) -> std::io::Result<String> {
    let resolved = std::fs::canonicalize(logical)?;
    let identity = identity_of(&std::fs::metadata(&resolved)?);
    Ok(AppliedRoot {
        origin: String::new(),
        logical: logical.to_owned(),
        resolved,
        rights: Vec::new(),
        device: identity.device,
        inode: identity.inode,
    }
    .place())
}

fn drifted(object: &str, old: &str, new: &str) -> Refusal {
    Refusal::new(
        Code::SandboxResolutionChanged,
        "apply",
        format!("{object}: {old} → {new}"),
    )
}

/// A backend that prepares nothing once something has drifted.
#[derive(Debug)]
pub struct AppliedBackend {
    inner: Arc<dyn SandboxBackend>,
    watch: Watch,
}

impl AppliedBackend {
    /// Puts the watch around a backend.
    pub fn new(inner: Arc<dyn SandboxBackend>, watch: Watch) -> Self {
        Self { inner, watch }
    }
}

impl SandboxBackend for AppliedBackend {
    fn survey(&self, policy: &EffectivePolicy) -> Result<Enforcement, SandboxError> {
        self.inner.survey(policy)
    }

    fn prepare(
        &self,
        policy: &Arc<EffectivePolicy>,
        task: &str,
    ) -> Result<Box<dyn PreparedSandbox>, SandboxError> {
        self.watch
            .check()
            .map_err(|refusal| SandboxError::Refused(Box::new(refusal)))?;
        self.inner.prepare(policy, task)
    }
}
