//! Text with a shape: names, paths, addresses, URLs. Each one has its check, what is allowed, and its schema.

use super::finding::FindingCode as Code;
use super::node::Node;
use super::report::{Details, Report};
use super::scalar::{Written, text, wrong};
use super::settings::UrlPattern;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;
use url::{Host, Url};

macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident($value:ty) = $check:path, $allowed:literal, $schema:tt;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(super) struct $name(pub(super) $value);

        impl Written for $name {
            fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
                let text = text(node, key, report)?;
                let checked = if text.chars().any(char::is_control) {
                    Err(Code::ControlCharacter)
                } else {
                    $check(text)
                };
                match checked {
                    Ok(value) => return Some(Self(value)),
                    // The value may hold a password, so it is not repeated.
                    Err(Code::UrlSecret) => {
                        report.add(Code::UrlSecret, node.mark, key, Details::default());
                    }
                    Err(code) => wrong(code, $allowed, node, key, report),
                }
                None
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

shapes! {
    /// Text that is not empty.
    Text(String) = filled, "", { "type": "string", "minLength": 1 };
    /// A path; relative ones start at the directory of the base file.
    PathText(PathBuf) = path, "", { "type": "string", "minLength": 1 };
    /// A path, or `""` for the default.
    PathOrDefault(Option<PathBuf>) = path_or_default, "", { "type": "string" };
    /// A path below something, at any depth.
    RelativePath(PathBuf) = relative_path, "a/b", { "type": "string", "minLength": 1 };
    /// An alias, a box id, the name of an own rule.
    Name(String) = name, "A-Z a-z 0-9 . _ - (64)",
        { "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" };
    /// BCP 47 (I18N-04).
    Language(String) = language, "en, ja, zh-CN",
        { "type": "string", "pattern": "^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$" };
    /// MCP-TR-02, ST-22: these two and no name, because a name can be made to lead elsewhere.
    Loopback(IpAddr) = loopback, "127.0.0.1, ::1", { "type": "string", "enum": ["127.0.0.1", "::1"] };
    /// The model server.
    Endpoint(Url) = endpoint, "http://host:port, https://host:port",
        { "type": "string", "format": "uri", "pattern": "^https?://" };
    /// A URL, or `""` for off.
    EndpointOrOff(Option<Url>) = endpoint_or_off, "http://host:port, https://host:port, \"\"",
        { "type": "string" };
    /// A name or address that the sandbox may reach.
    HostText(String) = reachable_host, "example.com, 192.0.2.1, 2001:db8::1", { "type": "string", "minLength": 1 };
    /// `guard.url_allowlist[]`.
    UrlPatternText(UrlPattern) = url_pattern, "[https://|http://]host[:port], *.host",
        { "type": "string", "minLength": 1 };
}

fn filled(text: &str) -> Result<String, Code> {
    match text.trim() {
        "" => Err(Code::EmptyText),
        _ => Ok(text.to_owned()),
    }
}

fn path(text: &str) -> Result<PathBuf, Code> {
    filled(text).map(PathBuf::from)
}

fn path_or_default(text: &str) -> Result<Option<PathBuf>, Code> {
    Ok((!text.is_empty()).then(|| PathBuf::from(text)))
}

fn relative_path(text: &str) -> Result<PathBuf, Code> {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    let text = filled(text)?;
    if text.contains(['\\', ':']) || !text.trim_end_matches('/').split('/').all(plain) {
        return Err(Code::BadRelativePath);
    }
    Ok(PathBuf::from(text))
}

fn name(text: &str) -> Result<String, Code> {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if first && text.len() <= 64 && text.chars().all(inner) {
        Ok(text.to_owned())
    } else {
        Err(Code::BadName)
    }
}

fn language(text: &str) -> Result<String, Code> {
    let mut parts = text.split('-');
    let first = parts.next().unwrap_or_default();
    let good = (2..=8).contains(&first.len())
        && first.chars().all(|c| c.is_ascii_alphabetic())
        && text.len() <= 35
        && parts.all(|part| {
            (1..=8).contains(&part.len()) && part.chars().all(|c| c.is_ascii_alphanumeric())
        });
    if good {
        Ok(text.to_owned())
    } else {
        Err(Code::BadLanguage)
    }
}

fn loopback(text: &str) -> Result<IpAddr, Code> {
    match text {
        "127.0.0.1" | "::1" => text.parse().map_err(|_| Code::NotLoopback),
        _ => Err(Code::NotLoopback),
    }
}

fn endpoint(text: &str) -> Result<Url, Code> {
    let url = Url::parse(text).map_err(|_| Code::BadUrl)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Code::UrlSecret);
    }
    let http = matches!(url.scheme(), "http" | "https");
    if !http || !url.has_host() || url.query().is_some() || url.fragment().is_some() {
        return Err(Code::BadUrl);
    }
    Ok(url)
}

fn endpoint_or_off(text: &str) -> Result<Option<Url>, Code> {
    if text.is_empty() {
        return Ok(None);
    }
    endpoint(text).map(Some)
}

/// As people copy them: an IPv6 address may stand in brackets, and a name may end with the dot of the root.
fn reachable_host(text: &str) -> Result<String, Code> {
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    match inner {
        Some(inner) => {
            let address: std::net::Ipv6Addr = inner.parse().map_err(|_| Code::BadHost)?;
            Ok(address.to_string())
        }
        None => host(text.strip_suffix('.').unwrap_or(text)),
    }
}

/// A name in the letters that DNS knows, lower case (IDNA), or an address.
fn host(text: &str) -> Result<String, Code> {
    if !text.is_ascii() {
        // Written in fullwidth digits it would be an address.
        return match Host::parse(text) {
            Ok(Host::Domain(name)) if name.is_ascii() => host(&name),
            _ => Err(Code::BadHost),
        };
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    // A last label of digits is a mistyped address, never a name.
    let number = |label: &str| label.chars().all(|c| c.is_ascii_digit());
    let last = text.rsplit('.').next().unwrap_or_default();
    if text.len() <= 253 && text.split('.').all(label) && !number(last) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(Code::BadHost)
    }
}

fn url_pattern(text: &str) -> Result<UrlPattern, Code> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
    let own_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return Err(Code::BadUrlPattern),
    };
    let (subdomains, rest) = match rest.strip_prefix("*.") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (name, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, port)) => (address, port.strip_prefix(':').or(Some(""))),
        None => match rest.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (rest, None),
        },
    };
    let port = match port {
        None => own_port,
        Some(port) if port.starts_with('+') => return Err(Code::BadUrlPattern),
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or(Code::BadUrlPattern)?,
    };
    let host = host(name).map_err(|_| Code::BadUrlPattern)?;
    let bracketed = rest.starts_with('[');
    let shape_fits = match host.parse::<IpAddr>() {
        Ok(address) => !subdomains && address.is_ipv6() == bracketed,
        Err(_) => !bracketed,
    };
    if !shape_fits {
        return Err(Code::BadUrlPattern);
    }
    Ok(UrlPattern {
        scheme: scheme.to_owned(),
        host,
        subdomains,
        port,
    })
}

/// Whether a URL leads to this machine.
pub(super) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
