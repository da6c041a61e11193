//! A configuration that is only found in the working directory could have been written by what ran there. It is used only
//! if a person has named it before (`--config`, or `init` wrote it) and it has not changed since. `apply` will replace this.

use super::places::Places;
use policy::Fault;
use policy::effective::Sha256Digest;
use record::{AtomicFile, StateDirectory};
use std::collections::BTreeMap;
use std::path::Path;

const FILE: &str = "trusted.json";
/// Largest list, bytes.
const LIMIT: u64 = 1 << 20;

type Trusted = BTreeMap<String, String>;

fn list() -> Result<(AtomicFile, Trusted), Fault> {
    let state = Places::default_places()?.state;
    let unusable = |error: record::StateError| crate::books::fault(error.code(), &state, error);
    let file = StateDirectory::open(&state)
        .and_then(|directory| directory.file(FILE))
        .map_err(unusable)?;
    let trusted = file.read_json(LIMIT).map_err(unusable)?.unwrap_or_default();
    Ok((file, trusted))
}

fn name(file: &Path) -> String {
    super::places::resolve_existing(file).display().to_string()
}

/// Whether a person has named this file with these bytes. In doubt not.
pub fn is_trusted(file: &Path, fingerprint: &Sha256Digest) -> bool {
    // Looking makes no directory.
    let is_there = Places::default_places()
        .is_ok_and(|places| StateDirectory::look(&places.state).unwrap_or(false));
    is_there
        && list()
            .is_ok_and(|(_, trusted)| trusted.get(&name(file)) == Some(&fingerprint.to_string()))
}

/// Remembers that a person has named this file with these bytes.
///
/// # Errors
/// `state.unusable`.
pub fn trust(file: &Path, fingerprint: &Sha256Digest) -> Result<(), Fault> {
    let (list_file, mut trusted) = list()?;
    if trusted
        .insert(name(file), fingerprint.to_string())
        .as_deref()
        == Some(&fingerprint.to_string())
    {
        return Ok(());
    }
    list_file
        .write_json(&trusted)
        .map_err(|error| crate::books::fault(error.code(), list_file.path(), error))
}
