//! How much a client may send at once, and how long it may be kept waiting.

use policy::config::Images;
use std::time::Duration;

/// How long `agent_status` waits for news before it answers with what the client knows already.
///
/// Clients give up on a call after 60 s, some after 30 s (users.md, row 14).
const STATUS_WAIT: Duration = Duration::from_secs(15);

/// Limits of one server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// The longest line on stdio in bytes, its end not counted. A longer one is refused without being kept (M-4).
    pub max_line_bytes: u64,
    /// What `agent_run` accepts as images (DESIGN §6.4).
    pub images: Images,
    /// How long `agent_status` may wait for a change when nothing has changed since the last answer; zero never waits.
    pub status_wait: Duration,
}

/// DESIGN §6.4.
const IMAGES: Images = Images {
    max_count: 4,
    max_bytes_each: 10 << 20,
    max_total_bytes: 20 << 20,
};

impl ServerLimits {
    /// The limits that follow from `mcp.images`: a line has room for the largest images allowed and for the rest.
    pub fn from_images(images: &Images) -> Self {
        Self {
            max_line_bytes: images.message_limit_bytes(),
            images: *images,
            status_wait: STATUS_WAIT,
        }
    }
}

impl Default for ServerLimits {
    /// The limits where nothing is configured.
    fn default() -> Self {
        Self::from_images(&IMAGES)
    }
}
