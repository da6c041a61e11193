//! The HTTP log: one line per answered request (DESIGN §5.8).
//!
//! Absent here, because a record has no place for it: a query, a forwarded or credential header, anything of a body.

use super::rolling::{RollingFile, RollingLimits};
use crate::clock::stamp;
use crate::state::{StateDirectory, StateError};
use jiff::Timestamp;
use serde::Serialize;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

const HTTP_VERSION: u32 = 1;

/// One request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRecord {
    /// When its head was read.
    pub at: SystemTime,
    /// The client's end of the connection.
    pub peer: SocketAddr,
    /// Our end.
    pub local: SocketAddr,
    /// The method of the request line.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The status of the answer.
    pub status: u16,
    /// From the head to the answer.
    pub duration: Duration,
    /// Bytes of the body that were kept.
    pub request_bytes: u64,
    /// Bytes of the answer's body.
    pub response_bytes: u64,
    /// The message's method.
    pub mcp_method: Option<String>,
    /// The tool it names.
    pub mcp_name: Option<String>,
    /// The revision it is in, as the client says.
    pub mcp_revision: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    ts: String,
    peer: SocketAddr,
    local: SocketAddr,
    method: &'a str,
    path: &'a str,
    status: u16,
    duration_us: u128,
    request_bytes: u64,
    response_bytes: u64,
    mcp_method: Option<&'a str>,
    mcp_name: Option<&'a str>,
    mcp_revision: Option<&'a str>,
}

/// The log: JSON Lines, user-only, rolling.
#[derive(Debug)]
pub struct HttpLog {
    file: RollingFile,
}

impl HttpLog {
    /// Opens it.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn open(
        directory: &StateDirectory,
        name: &str,
        limits: RollingLimits,
    ) -> Result<Self, StateError> {
        RollingFile::open(directory, name, limits).map(|file| Self { file })
    }

    /// Appends one record in one write.
    ///
    /// # Errors
    /// The system's refusal. The log proves nothing, so the caller may go on, but must say so.
    pub fn append(&mut self, record: &HttpRecord) -> io::Result<()> {
        let at = Timestamp::try_from(record.at).unwrap_or(Timestamp::UNIX_EPOCH);
        let mut line = serde_json::to_vec(&Line {
            v: HTTP_VERSION,
            ts: stamp(at),
            peer: record.peer,
            local: record.local,
            method: &record.method,
            path: &record.path,
            status: record.status,
            duration_us: record.duration.as_micros(),
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
            mcp_method: record.mcp_method.as_deref(),
            mcp_name: record.mcp_name.as_deref(),
            mcp_revision: record.mcp_revision.as_deref(),
        })?;
        line.push(b'\n');
        self.file.write_all(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_is_written_as_documented() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&directory.path().join("logs")).unwrap();
        let limits = RollingLimits {
            max_file_bytes: 1 << 20,
            retained_files: 1,
        };
        let mut log = HttpLog::open(&state, "http.jsonl", limits).unwrap();
        let record = HttpRecord {
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1),
            peer: "[::1]:40000".parse().unwrap(),
            local: "[::1]:8080".parse().unwrap(),
            method: "POST".into(),
            path: "/mcp".into(),
            status: 200,
            duration: Duration::from_micros(340),
            request_bytes: 10,
            response_bytes: 20,
            mcp_method: Some("tools/call".into()),
            mcp_name: Some("agent\n_status".into()),
            mcp_revision: None,
        };
        log.append(&record).unwrap();
        let text = std::fs::read_to_string(state.path().join("http.jsonl")).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"v":1,"ts":"1970-01-01T00:00:00.001Z","peer":"[::1]:40000","local":"[::1]:8080","method":"POST","#,
                r#""path":"/mcp","status":200,"duration_us":340,"request_bytes":10,"response_bytes":20,"#,
                r#""mcp_method":"tools/call","mcp_name":"agent\n_status","mcp_revision":null}"#,
                "\n"
            )
        );
    }
}
