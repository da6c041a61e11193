//! As much of HTTP/1.1 as a test server needs, by hand, because half of the replies are wrong on purpose.

use serde_json::Value;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The largest request, bytes.
const MOST: usize = 64 << 20;

/// One request as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// `GET`, `POST`.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The exact bytes, for comparing prefixes (X-CACHE).
    pub body: Vec<u8>,
}

impl Request {
    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Reads one request; nothing when the client closed before it was complete.
pub(crate) async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<Request>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if bytes.len() > MOST || stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
        // TLS, for one, starts otherwise and would wait for an answer to it.
        if !bytes[0].is_ascii_uppercase() {
            return Ok(None);
        }
    };
    let Some(mut request) = parse_head(&String::from_utf8_lossy(&bytes[..end])) else {
        return Ok(None);
    };
    request.body = bytes.split_off(end + 4);
    let length = request
        .header("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    while request.body.len() < length {
        if request.body.len() > MOST || stream.read_buf(&mut request.body).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(request))
}

fn parse_head(head: &str) -> Option<Request> {
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?, first.next()?);
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Some(Request {
        method: method.to_owned(),
        path: target.split('?').next()?.to_owned(),
        headers: lines.filter_map(header).collect(),
        body: Vec::new(),
    })
}
