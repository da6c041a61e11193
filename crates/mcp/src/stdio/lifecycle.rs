//! What may reach the SDK before and after it has chosen a lifecycle.
//!
//! The SDK ends on a notification or response before the first request (M-1), and takes an `initialize` after a request of
//! the 2026-07-28 era although every later call of that client then fails (M-11).

use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, GetMeta, JsonRpcMessage, ProtocolVersion,
};

/// Which lifecycle the SDK has chosen; it chooses once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lifecycle {
    /// None yet. Probes (`ping`, `server/discover`) and refused requests leave it so.
    #[default]
    Open,
    /// `initialize`, up to 2025-11-25.
    Handshake,
    /// Every request describes itself, from 2026-07-28.
    PerRequest,
}

/// What to do with a message.
#[derive(Debug, PartialEq)]
pub(super) enum Admission {
    /// The SDK gets it.
    Deliver,
    /// It is dropped: nobody waits for an answer.
    Ignore,
    /// It is a request that cannot be served any more.
    Refuse(ErrorData),
}

impl Lifecycle {
    pub(super) fn admit(&mut self, message: &ClientJsonRpcMessage) -> Admission {
        match (*self, message) {
            (Self::Open, JsonRpcMessage::Request(request)) => {
                *self = chosen_by(&request.request);
                Admission::Deliver
            }
            (Self::Open, _) => Admission::Ignore,
            (Self::PerRequest, JsonRpcMessage::Request(request))
                if matches!(request.request, ClientRequest::InitializeRequest(_)) =>
            {
                Admission::Refuse(ErrorData::new(
                    ErrorCode::METHOD_NOT_FOUND,
                    "initialize: this connection already uses a revision without it",
                    None,
                ))
            }
            (Self::Handshake | Self::PerRequest, _) => Admission::Deliver,
        }
    }
}

/// The SDK's own rule for the first request.
fn chosen_by(request: &ClientRequest) -> Lifecycle {
    match request {
        ClientRequest::InitializeRequest(_) => Lifecycle::Handshake,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => Lifecycle::Open,
        other => {
            let meta = other.get_meta();
            let complete = meta
                .missing_required_keys(&ProtocolVersion::V_2026_07_28)
                .is_empty();
            let known = meta
                .protocol_version()
                .is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version));
            if complete && known {
                Lifecycle::PerRequest
            } else {
                Lifecycle::Open
            }
        }
    }
}
