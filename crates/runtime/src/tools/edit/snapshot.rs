//! The old bytes of a file, kept until the edit is verified (DESIGN §13.2).

use crate::tools::effect::Before;
use crate::tools::open::{self, Opened, shown};
use crate::tools::{EffectLog, ToolContext, os};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File};
use policy::path::ResolvedPath;
use policy::{Blame, Code, Fault, Refusal};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Where the old bytes are.
enum Kept {
    Memory(Vec<u8>),
    File(Backup),
}

/// A file that existed before the edit.
pub(super) struct Snapshot {
    kept: Kept,
    /// For the record.
    pub(super) before: Before,
    /// Hard links to it.
    pub(super) links: u64,
    /// The old file, still open, for its attributes.
    pub(super) file: File,
}

/// A backup file in the Task's own directory; gone when the edit ends.
struct Backup {
    directory: Dir,
    name: String,
    path: PathBuf,
}

impl Drop for Backup {
    fn drop(&mut self) {
        // What stays is removed with the Task's directory.
        let _removed_with_the_directory_else = self.directory.remove_file(&self.name);
    }
}

/// Reads the file once, for its hash and for the way back; returns its bytes too.
///
/// # Errors
/// Larger than `limits.edit_bytes`, not readable, or no room for the backup.
pub(super) fn take<L: EffectLog>(
    target: &ResolvedPath,
    backup_always: bool,
    context: &ToolContext<'_, L>,
) -> Result<(Snapshot, Vec<u8>), Refusal> {
    let mut opened: Opened = open::for_reading(target)?;
    let bytes = opened.bytes(context.limits.edit_bytes, target.path())?;
    let facts = os::facts(&opened.metadata);
    let before = Before {
        sha256: open::hash_bytes(&bytes),
        identity: facts.identity,
        mode: os::mode_of(&opened.metadata),
    };
    let kept = if backup_always || bytes.len() as u64 > context.limits.memory_backup_bytes {
        Kept::File(Backup::write(context.task_temp, &bytes).map_err(|error| {
            let path = shown(context.task_temp);
            crate::tools::result::of_fault(Fault::new(
                Blame::Machine,
                Code::StateUnusable,
                path,
                error,
            ))
        })?)
    } else {
        Kept::Memory(bytes.clone())
    };
    Ok((
        Snapshot {
            kept,
            before,
            links: facts.links,
            file: opened.file,
        },
        bytes,
    ))
}

impl Snapshot {
    /// The old bytes.
    pub(super) fn bytes(&self) -> io::Result<Vec<u8>> {
        match &self.kept {
            Kept::Memory(bytes) => Ok(bytes.clone()),
            Kept::File(backup) => {
                let mut bytes = Vec::new();
                backup
                    .directory
                    .open_with(&backup.name, &os::read_options())?
                    .read_to_end(&mut bytes)?;
                Ok(bytes)
            }
        }
    }

    /// The backup file, where there is one.
    pub(super) fn backup(&self) -> Option<&Path> {
        match &self.kept {
            Kept::Memory(_) => None,
            Kept::File(backup) => Some(&backup.path),
        }
    }
}

impl Backup {
    fn write(task_temp: &Path, bytes: &[u8]) -> io::Result<Self> {
        let name = format!("backup-{}", Uuid::new_v4().simple());
        let directory = Dir::open_ambient_dir(task_temp, ambient_authority())?;
        let mut file = directory.open_with(&name, &os::create_options(0o600))?;
        let backup = Self {
            path: task_temp.join(&name),
            directory,
            name,
        };
        file.write_all(bytes)?;
        file.sync_all()?;
        os::sync_directory(&backup.directory)?;
        Ok(backup)
    }
}
