//! Answers that are ours, not the SDK's.

use super::head::Rejected;
use ::http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use ::http::{Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use rmcp::ErrorData;
use rmcp::model::ServerJsonRpcMessage;
use std::convert::Infallible;

pub(super) type Answer = Response<BoxBody<Bytes, Infallible>>;

pub(super) fn with(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()).boxed());
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// A message of the protocol.
pub(super) fn message(status: StatusCode, message: &ServerJsonRpcMessage) -> Answer {
    match serde_json::to_vec(message) {
        Ok(body) => with(status, "application/json", body),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be encoded");
            text(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
        }
    }
}

/// An invalid request without id.
pub(super) fn invalid(status: StatusCode, reason: &'static str) -> Answer {
    let error = ErrorData::invalid_request(reason, None);
    message(status, &ServerJsonRpcMessage::error(error, None))
}

pub(super) fn text(status: StatusCode, reason: &'static str) -> Answer {
    let mut answer = with(status, "text/plain; charset=utf-8", reason);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        answer
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("POST"));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

/// The connection ends with this answer, because the rest of the request was not read.
pub(super) fn last(mut answer: Answer) -> Answer {
    answer
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

pub(super) fn rejected(Rejected(status, reason): &Rejected) -> Answer {
    text(*status, reason)
}
