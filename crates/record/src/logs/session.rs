//! Session events (X-STATE): what a replay needs to say which mode a session had at any time.

use crate::clock::{Clock, stamp};
use crate::private;
use crate::state::{AtomicFile, StateDirectory, StateError};
use policy::{RunId, SandboxMode, SessionId, TraceId};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The file in an instance's directory.
pub const SESSION_EVENTS_FILE: &str = "session-events.jsonl";
const SESSION_VERSION: u32 = 1;
/// Largest file that is replayed, bytes.
const REPLAY_LIMIT: u64 = 256 << 20;

/// What happened in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum SessionEvent {
    /// A run reached a state.
    #[serde(rename = "run")]
    Run {
        /// The run.
        run_id: RunId,
        /// Its state, as the interface names it.
        status: String,
    },
    /// The sandbox mode is now this. Every change of the mode emits one (HARNESS).
    #[serde(rename = "sandbox/mode")]
    SandboxMode {
        /// The mode before; none at the start of the session.
        from: Option<SandboxMode>,
        /// The mode from now on.
        to: SandboxMode,
        /// Who or what changed it.
        reason: String,
    },
    /// An approval reached a state.
    #[serde(rename = "approval")]
    Approval {
        /// The request.
        approval_id: String,
        /// Its state, as the interface names it.
        status: String,
    },
}

/// A session event with its place and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// RFC 3339, UTC.
    pub ts: String,
    /// The session.
    pub session_id: SessionId,
    /// Links it with the audit (DC-3).
    pub trace_id: TraceId,
    /// What happened.
    pub event: SessionEvent,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    v: u32,
    ts: String,
    session_id: SessionId,
    trace_id: TraceId,
    event: SessionEvent,
}

/// An instance's session events: append-only, synced with each event.
#[derive(Debug)]
pub struct SessionEvents {
    path: PathBuf,
    file: File,
}

impl SessionEvents {
    /// Opens them; a torn last line of a crash is closed off, so that the next event has a line of its own.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn open(directory: &StateDirectory) -> Result<Self, StateError> {
        let path = directory.file(SESSION_EVENTS_FILE)?.path().to_owned();
        let mut file = private::open_append(&path, true).map_err(StateError::io("open", &path))?;
        let size = StateError::check_file(&path, &file)?;
        if size > 0 && !ends_with_line_feed(&mut file).map_err(StateError::io("read", &path))? {
            file.write_all(b"\n")
                .map_err(StateError::io("write", &path))?;
        }
        Ok(Self { path, file })
    }

    /// Appends one event, durably.
    ///
    /// # Errors
    /// `state.unusable`; the change of mode it tells of must not happen.
    pub fn append(
        &mut self,
        session_id: SessionId,
        trace_id: TraceId,
        event: SessionEvent,
        clock: &dyn Clock,
    ) -> Result<(), StateError> {
        let line = Line {
            v: SESSION_VERSION,
            ts: stamp(clock.now()),
            session_id,
            trace_id,
            event,
        };
        let mut text = serde_json::to_vec(&line).map_err(|error| StateError::Damaged {
            path: self.path.clone(),
            reason: error.to_string(),
        })?;
        text.push(b'\n');
        self.file
            .write_all(&text)
            .and_then(|()| self.file.sync_data())
            .map_err(StateError::io("write", &self.path))
    }
}

fn ends_with_line_feed(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// All events of an instance's directory, oldest first. A line that a crash tore is left out: it was never promised.
///
/// # Errors
/// `state.unusable`; a whole line that is no event is `Damaged`.
pub fn read_events(directory: &Path) -> Result<Vec<SessionRecord>, StateError> {
    let path = directory.join(SESSION_EVENTS_FILE);
    let text = AtomicFile::at(&path)
        .read(REPLAY_LIMIT)?
        .unwrap_or_default();
    let mut events = Vec::new();
    for line in text.split(|&byte| byte == b'\n') {
        match serde_json::from_slice::<Line>(line) {
            Ok(line) if line.v == SESSION_VERSION => events.push(SessionRecord {
                ts: line.ts,
                session_id: line.session_id,
                trace_id: line.trace_id,
                event: line.event,
            }),
            Err(error) if error.is_eof() => {}
            other => {
                return Err(StateError::Damaged {
                    path,
                    reason: other.err().map_or_else(
                        || "an unknown version".to_owned(),
                        |error| error.to_string(),
                    ),
                });
            }
        }
    }
    Ok(events)
}
