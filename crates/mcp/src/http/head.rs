//! What the head of a request must be before its body is looked at.

use super::ENDPOINT;
use ::http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use ::http::uri::Authority;
use ::http::{HeaderMap, Method, StatusCode, Uri, request};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A head that is refused: the status, and why in a few words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rejected(pub(super) StatusCode, pub(super) &'static str);

/// 127.0.0.1 or ::1, nothing else (MCP-TR-02).
pub(super) fn is_loopback(address: IpAddr) -> bool {
    address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST
}

/// Judges a head. Who asks comes first, so that a page in somebody's browser learns nothing at all.
pub(super) fn judge(head: &request::Parts) -> Result<(), Rejected> {
    host(&head.uri, &head.headers)?;
    origin(&head.headers)?;
    if head.uri.path() != ENDPOINT {
        return Err(Rejected(StatusCode::NOT_FOUND, "the only endpoint is /mcp"));
    }
    if head.method != Method::POST {
        return Err(Rejected(
            StatusCode::METHOD_NOT_ALLOWED,
            "only POST is served: there are no event streams and no transport sessions",
        ));
    }
    if !accepts_json(&head.headers) {
        return Err(Rejected(
            StatusCode::NOT_ACCEPTABLE,
            "answers are application/json",
        ));
    }
    if !is_json(&head.headers) {
        return Err(Rejected(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body must be application/json",
        ));
    }
    Ok(())
}

/// DNS rebinding: a name of somebody else's may point at us, but it stays in `Host` (M-8). Any port, because a client may
/// reach us through a forwarded one.
fn host(uri: &Uri, headers: &HeaderMap) -> Result<(), Rejected> {
    let refused = Rejected(StatusCode::FORBIDDEN, "Host must be a loopback address");
    // The absolute form of a target goes before `Host`; both must be ours.
    if uri.authority().is_some_and(|authority| !is_ours(authority)) {
        return Err(refused);
    }
    let Some(value) = only(headers, &HOST) else {
        return Err(Rejected(
            StatusCode::BAD_REQUEST,
            "there must be exactly one Host header",
        ));
    };
    match Authority::try_from(value) {
        Ok(authority) if is_ours(&authority) => Ok(()),
        _ => Err(refused),
    }
}

/// A browser always names the page's origin; other clients name none.
fn origin(headers: &HeaderMap) -> Result<(), Rejected> {
    if !headers.contains_key(ORIGIN) {
        return Ok(());
    }
    let ours = only(headers, &ORIGIN)
        .and_then(|value| std::str::from_utf8(value).ok())
        .and_then(|value| {
            value
                .strip_prefix("http://")
                .or_else(|| value.strip_prefix("https://"))
        })
        .and_then(|authority| Authority::try_from(authority).ok())
        .is_some_and(|authority| is_ours(&authority));
    if ours {
        Ok(())
    } else {
        Err(Rejected(
            StatusCode::FORBIDDEN,
            "Origin must be a loopback address",
        ))
    }
}

fn is_ours(authority: &Authority) -> bool {
    let host = authority.host();
    let known = host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1" || host == "[::1]";
    // Nothing before it, and nothing but a port behind it.
    let rest = authority.as_str().strip_prefix(host);
    known
        && rest.is_some_and(|rest| {
            rest.is_empty()
                || rest
                    .strip_prefix(':')
                    .is_some_and(|port| port.parse::<u16>().is_ok())
        })
}

/// The value of a header that is there exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes())
}

/// The specification asks clients to accept event streams too. We never send one, so who takes JSON is served.
fn accepts_json(headers: &HeaderMap) -> bool {
    if !headers.contains_key(ACCEPT) {
        return true;
    }
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let json = ["application/json", "application/*", "*/*"]
                .iter()
                .any(|known| kind.eq_ignore_ascii_case(known));
            json && !parts.any(refuses)
        })
}

/// A weight of zero: `q=0`, `q=0.000`.
fn refuses(parameter: &str) -> bool {
    let Some((name, weight)) = parameter.split_once('=') else {
        return false;
    };
    let weight = weight.trim();
    name.trim().eq_ignore_ascii_case("q")
        && weight.starts_with('0')
        && weight.bytes().all(|byte| byte == b'0' || byte == b'.')
}

fn is_json(headers: &HeaderMap) -> bool {
    only(headers, &CONTENT_TYPE)
        .and_then(|value| value.split(|byte| *byte == b';').next())
        .is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::Request;

    fn check(headers: &[(&str, &str)], uri: &str, expected: u16) {
        let mut request = Request::post(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let found = judge(&head).err().map_or(200, |refused| refused.0.as_u16());
        assert_eq!(found, expected, "{uri} {headers:?}");
    }

    const JSON: (&str, &str) = ("content-type", "application/json");

    #[test]
    fn m_8_only_loopback_hosts() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "localhost:1",
            "LOCALHOST",
            "[::1]:8080",
            "[::1]",
        ] {
            check(&[("host", host), JSON], "/mcp", 200);
        }
        for host in [
            "evil",
            "evil:8080",
            "localhost.evil",
            "127.0.0.1.evil",
            "127.0.0.2",
            "0.0.0.0",
            "localhost.",
            "user@localhost",
            "localhost@evil",
            "localhost:99999",
            "localhost:a",
            "localhost/evil",
            "::1",
            "[::2]",
            "[::ffff:127.0.0.1]",
            "2130706433",
            "",
            "a b",
        ] {
            check(&[("host", host), JSON], "/mcp", 403);
        }
        check(&[JSON], "/mcp", 400);
        check(
            &[("host", "localhost"), ("host", "localhost"), JSON],
            "/mcp",
            400,
        );
        check(&[("host", "localhost"), JSON], "http://127.0.0.1/mcp", 200);
        check(&[("host", "localhost"), JSON], "http://evil/mcp", 403);
        check(&[("host", "evil"), JSON], "http://localhost/mcp", 403);
    }

    #[test]
    fn m_8_only_loopback_origins() {
        let local = ("host", "localhost");
        for origin in [
            "http://localhost",
            "http://localhost:3000",
            "https://127.0.0.1:8080",
            "http://[::1]:1",
        ] {
            check(&[local, ("origin", origin), JSON], "/mcp", 200);
        }
        for origin in [
            "http://evil",
            "null",
            "",
            "localhost",
            "file://localhost",
            "http://localhost.evil",
            "http://localhost@evil",
            "http://localhost/path",
            "http://localhost http://evil",
            "chrome-extension://localhost",
        ] {
            check(&[local, ("origin", origin), JSON], "/mcp", 403);
        }
        check(
            &[
                local,
                ("origin", "http://localhost"),
                ("origin", "http://evil"),
                JSON,
            ],
            "/mcp",
            403,
        );
    }

    #[test]
    fn who_asks_comes_before_what_is_asked() {
        check(&[("host", "evil")], "/other", 403);
        check(&[("host", "localhost")], "/other", 404);
        check(&[("host", "localhost")], "/mcp/", 404);
        check(&[("host", "localhost"), JSON], "/mcp?query=1", 200);
    }

    #[test]
    fn accept_and_content_type() {
        let local = ("host", "localhost");
        for accept in [
            "application/json, text/event-stream",
            "application/json",
            "text/html, */*;q=0.1",
            "Application/JSON; q=1",
        ] {
            check(&[local, ("accept", accept), JSON], "/mcp", 200);
        }
        for accept in [
            "text/event-stream",
            "text/html",
            "application/json;q=0.0",
            "",
        ] {
            check(&[local, ("accept", accept), JSON], "/mcp", 406);
        }
        for kind in ["application/json; charset=utf-8", "APPLICATION/json"] {
            check(&[local, ("content-type", kind)], "/mcp", 200);
        }
        for kind in ["text/plain", "application/jsonl", ""] {
            check(&[local, ("content-type", kind)], "/mcp", 415);
        }
        check(&[local], "/mcp", 415);
        check(&[local, JSON, JSON], "/mcp", 415);
    }
}
