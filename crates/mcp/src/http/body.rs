//! Reading a body: so much, so long, and few large ones at a time.

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// A body up to this many bytes needs no permit. All connections together cannot hold more than 64 MiB of such ones.
const SMALL_BYTES: usize = 64 << 10;

/// Bodies beyond that which are held at a time, from the first byte beyond to the answer.
pub(super) const LARGE_BODIES: usize = 4;

/// A larger body gets one more second for this many bytes of the limit.
const BYTES_PER_SECOND: u64 = 4 << 20;

/// Of a body that is too large so many more bytes are read and thrown away, so that its sender gets to read why.
const DISCARDED_BYTES: u64 = 256 << 20;

/// A whole body. The permit lives as long as its bytes are needed.
#[derive(Debug)]
pub(super) struct Whole<'a> {
    pub(super) bytes: Vec<u8>,
    pub(super) permit: Option<SemaphorePermit<'a>>,
}

/// Why there is no body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyFault {
    /// Beyond the limit.
    TooLarge,
    /// Not whole in time.
    TooSlow,
    /// Others' large bodies are in the way.
    Busy,
    /// The client left, or broke the coding.
    Broken,
}

/// What a body may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    pub(super) bytes: u64,
    pub(super) time: Duration,
}

/// Reads a body whole.
pub(super) async fn read(
    mut body: Incoming,
    waits_for_continue: bool,
    limits: BodyLimits,
    large: &Semaphore,
) -> Result<Whole<'_>, BodyFault> {
    let start = Instant::now();
    let announced = body.size_hint().exact();
    let mut whole = Whole {
        bytes: Vec::with_capacity(
            announced.map_or(0, |bytes| bytes.min(SMALL_BYTES as u64) as usize),
        ),
        permit: None,
    };
    let mut deadline = start + limits.time;
    let longest = deadline + Duration::from_secs(limits.bytes / BYTES_PER_SECOND);
    if announced.is_some_and(|bytes| bytes > limits.bytes) {
        if !waits_for_continue {
            discard(body, longest).await;
        }
        return Err(BodyFault::TooLarge);
    }
    while let Some(frame) = tokio::time::timeout_at(deadline, body.frame())
        .await
        .map_err(|_| BodyFault::TooSlow)?
    {
        // Trailers say nothing to us.
        let Ok(data) = frame.map_err(|_| BodyFault::Broken)?.into_data() else {
            continue;
        };
        let length = whole.bytes.len() + data.len();
        if length as u64 > limits.bytes {
            drop(whole);
            discard(body, longest).await;
            return Err(BodyFault::TooLarge);
        }
        if length > SMALL_BYTES && whole.permit.is_none() {
            let permit = tokio::time::timeout_at(longest, large.acquire()).await;
            whole.permit = Some(
                permit
                    .map_err(|_| BodyFault::Busy)?
                    .map_err(|_| BodyFault::Busy)?,
            );
            // The wait was not the client's fault.
            deadline = Instant::now() + (longest - start);
        }
        whole.bytes.extend_from_slice(&data);
    }
    Ok(whole)
}

async fn discard(mut body: Incoming, deadline: Instant) {
    let mut left = DISCARDED_BYTES;
    while let Ok(Some(Ok(frame))) = tokio::time::timeout_at(deadline, body.frame()).await {
        let bytes = frame.data_ref().map_or(0, bytes::Bytes::len) as u64;
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
