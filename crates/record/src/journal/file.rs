//! The journal's file: documents line by line, of which the last whole one counts.

use super::document::{JOURNAL_VERSION, JournalDocument};
use crate::private;
use crate::state::{AtomicFile, StateError};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Largest journal that is read, bytes.
const JOURNAL_LIMIT: u64 = 64 << 20;
/// Bytes after which the file is replaced by one with the newest document only.
const GROWN_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct JournalFile {
    name: AtomicFile,
    /// `None` after a write that may have left half a line: then the whole file is replaced.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    size: u64,
}

impl JournalFile {
    /// A file with this document only; it and its name are durable.
    pub(super) fn create(path: &Path, document: &JournalDocument) -> Result<Self, StateError> {
        let mut file = Self {
            name: AtomicFile::at(path),
            open: None,
        };
        file.write(document)?;
        Ok(file)
    }

    /// Makes this the document that counts; durable when it returns.
    pub(super) fn write(&mut self, document: &JournalDocument) -> Result<(), StateError> {
        let mut line = serde_json::to_vec(document).map_err(|error| StateError::Damaged {
            path: self.name.path().to_owned(),
            reason: error.to_string(),
        })?;
        line.push(b'\n');
        match self.open.take() {
            Some(open) if open.size + line.len() as u64 <= GROWN_BYTES => {
                self.open = Some(self.append(open, &line)?);
            }
            _ => {
                self.name.write(&line)?;
                self.open = Some(self.reopen(line.len() as u64)?);
            }
        }
        Ok(())
    }

    /// On an error `open` stays empty, so that the next write replaces the file.
    fn append(&self, mut open: Open, line: &[u8]) -> Result<Open, StateError> {
        open.file
            .write_all(line)
            .and_then(|()| open.file.sync_data())
            .map_err(StateError::io("write", self.name.path()))?;
        open.size += line.len() as u64;
        Ok(open)
    }

    fn reopen(&self, size: u64) -> Result<Open, StateError> {
        let path = self.name.path();
        let file = private::open_append(path, false).map_err(StateError::io("open", path))?;
        Ok(Open { file, size })
    }

    pub(super) fn remove(&self) -> Result<(), StateError> {
        self.name.remove()
    }
}

/// The document that counts.
pub(super) fn read(path: &Path) -> Result<JournalDocument, StateError> {
    let damaged = |reason: String| StateError::Damaged {
        path: path.to_owned(),
        reason,
    };
    let text = AtomicFile::at(path)
        .read(JOURNAL_LIMIT)?
        .ok_or_else(|| damaged(io::ErrorKind::NotFound.to_string()))?;
    let end = text
        .iter()
        .rposition(|&byte| byte == b'\n')
        .ok_or_else(|| damaged("no whole line".to_owned()))?;
    let start = text[..end]
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |before| before + 1);
    let document: JournalDocument =
        serde_json::from_slice(&text[start..end]).map_err(|error| damaged(error.to_string()))?;
    if document.schema_version != JOURNAL_VERSION {
        return Err(damaged(format!(
            "schema_version {}",
            document.schema_version
        )));
    }
    Ok(document)
}
