//! The request log off the request path (DESIGN §5.8): a bounded queue that never makes a request wait.

use record::logs::HttpRecord;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;

/// Entries that may wait for their writer, some 300 bytes each.
const WAITING: usize = 4096;
/// The longest text in an entry that a client chose, bytes.
const TEXT_BYTES: usize = 256;

/// The way in. Clones share the queue.
#[derive(Clone, Debug)]
pub struct RequestLog {
    queue: mpsc::Sender<HttpRecord>,
    dropped: Arc<AtomicU64>,
}

/// The way out, for a writer with a thread of its own.
#[derive(Debug)]
pub struct RequestEntries {
    queue: mpsc::Receiver<HttpRecord>,
    dropped: Arc<AtomicU64>,
}

/// A queue for request entries.
pub fn request_log() -> (RequestLog, RequestEntries) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let dropped = Arc::new(AtomicU64::new(0));
    (
        RequestLog {
            queue: sender,
            dropped: Arc::clone(&dropped),
        },
        RequestEntries {
            queue: receiver,
            dropped,
        },
    )
}

impl RequestLog {
    /// Hands an entry over, or drops and counts it where the writer is behind. Never waits.
    pub(super) fn note(&self, entry: HttpRecord) {
        if self.queue.try_send(entry).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RequestEntries {
    /// The next entry, and how many were dropped since the last call; nothing when every [`RequestLog`] is gone. Blocks.
    pub fn wait(&mut self) -> Option<(HttpRecord, u64)> {
        let entry = self.queue.blocking_recv()?;
        Some((entry, self.dropped()))
    }

    /// How many were dropped since this was last asked.
    pub fn dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

/// A client's text, cut at a character.
pub(super) fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_full_queue_drops_and_counts_and_never_waits() {
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let entry = HttpRecord {
            at: SystemTime::UNIX_EPOCH,
            peer: address,
            local: address,
            method: "POST".into(),
            path: "/mcp".into(),
            status: 200,
            duration: Duration::ZERO,
            request_bytes: 0,
            response_bytes: 0,
            mcp_method: None,
            mcp_name: None,
            mcp_revision: None,
        };
        let (log, mut entries) = request_log();
        for _ in 0..WAITING + 7 {
            log.note(entry.clone());
        }
        drop(log);
        let mut read = 0;
        let mut dropped = 0;
        while let Some((_, more)) = entries.wait() {
            read += 1;
            dropped += more;
        }
        assert_eq!((read, dropped), (WAITING, 7));
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(cut(&"語".repeat(100)).len(), 255);
        assert_eq!(cut("tools/call"), "tools/call");
    }
}
