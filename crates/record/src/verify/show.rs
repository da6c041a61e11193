//! Reading records for people and programs. Verifies nothing.

use super::{LINE_LIMIT, VerifyError, chain_files};
use crate::private;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// A record as it was written, version 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShownRecord {
    /// Record format: 1.
    pub v: u32,
    /// Place in the chain.
    pub seq: u64,
    /// The opening of the log it was written in.
    pub boot_id: String,
    /// RFC 3339, UTC, milliseconds.
    pub ts: String,
    /// Links everything of one run (DC-3).
    pub trace_id: String,
    /// What happened.
    pub event: String,
    /// In which session.
    pub session_id: Option<String>,
    /// In which run: the public `task_id` (X-TASK).
    pub run_id: Option<String>,
    /// In which planned Task.
    pub planned_task_id: Option<String>,
    /// `allow`, `deny`, `ask` or `none`.
    pub decision: String,
    /// Stable code.
    pub code: Option<String>,
    /// The object.
    pub target: Option<String>,
    /// What else there is to say.
    pub detail: Map<String, Value>,
    /// The mac of the record before.
    pub prev: String,
    /// Its own.
    pub mac: String,
}

/// Which records are wanted: all that are given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShowFilter {
    /// Only of this run.
    pub run_id: Option<String>,
    /// Only of this trace.
    pub trace_id: Option<String>,
    /// Only this event, or, with a dot at the end, this family (`approval.`).
    pub event: Option<String>,
}

impl ShowFilter {
    fn fits(&self, record: &ShownRecord) -> bool {
        let run = self
            .run_id
            .as_ref()
            .is_none_or(|run| record.run_id.as_ref() == Some(run));
        let trace = self
            .trace_id
            .as_ref()
            .is_none_or(|trace| record.trace_id == *trace);
        let event = self
            .event
            .as_ref()
            .is_none_or(|event| match event.ends_with('.') {
                true => record.event.starts_with(event.as_str()),
                false => record.event == *event,
            });
        run && trace && event
    }
}

/// The records of an instance's directory that fit, oldest first. A line that is no record is an error of kind
/// `InvalidData`, after which the reading goes on.
///
/// # Errors
/// When the files cannot be listed.
pub fn show(
    directory: &Path,
    filter: ShowFilter,
) -> Result<impl Iterator<Item = Result<ShownRecord, VerifyError>> + use<>, VerifyError> {
    let mut files = chain_files(directory)?;
    files.reverse();
    Ok(Records {
        waiting: files.into_iter().map(|(_, path)| path).collect(),
        current: None,
        filter,
    })
}

struct Records {
    waiting: Vec<PathBuf>,
    current: Option<(PathBuf, BufReader<File>)>,
    filter: ShowFilter,
}

impl Records {
    /// The next line of the current file, or `None` at its end.
    fn line(&mut self) -> Option<Result<ShownRecord, VerifyError>> {
        let (path, reader) = self.current.as_mut()?;
        let mut text = Vec::new();
        let read = reader.take(LINE_LIMIT + 1).read_until(b'\n', &mut text);
        match read {
            Err(error) => {
                let failed = VerifyError::new(path, error);
                self.current = None;
                Some(Err(failed))
            }
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_slice(&text).map_err(|error| {
                VerifyError::new(path, io::Error::new(io::ErrorKind::InvalidData, error))
            })),
        }
    }
}

impl Iterator for Records {
    type Item = Result<ShownRecord, VerifyError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(line) = self.line() {
                match line {
                    Ok(record) if !self.filter.fits(&record) => {}
                    other => return Some(other),
                }
            }
            let path = self.waiting.pop()?;
            match private::open_read(&path) {
                Ok(file) => self.current = Some((path, BufReader::with_capacity(1 << 16, file))),
                Err(error) => return Some(Err(VerifyError::new(&path, error))),
            }
        }
    }
}
