//! Text with a shape: names, paths, addresses, URLs. Each one has its check, what is allowed, and its schema.

use super::finding::FindingCode as Code;
use super::node::{Content, Node};
use super::report::{Details, Report, join};
use super::scalar::{Written, boolean, number, plain, text, whole, wrong};
use super::settings::{KeepAlive, Think, UrlPattern};
use super::words::{ThinkLevel, Word};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
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
    HostText(String) = host, "example.com, 192.0.2.1, 2001:db8::1", { "type": "string", "minLength": 1 };
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

fn host(text: &str) -> Result<String, Code> {
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

impl Written for Think {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        if let Some(switch) = plain(node).and_then(boolean) {
            return Some(Self::Switch(switch));
        }
        let level = ThinkLevel::WORDS.iter().find(
            |(word, _)| matches!(&node.content, Content::Scalar { text, .. } if text == word),
        );
        if level.is_none() {
            let allowed = "true, false, low, medium, high, max";
            wrong(Code::UnknownWord, allowed, node, key, report);
        }
        level.map(|(_, level)| Self::Level(*level))
    }
}

impl JsonSchema for Think {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Think".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words = ThinkLevel::WORDS.iter().map(|(word, _)| *word);
        let allowed: Vec<Value> = [true, false]
            .map(Value::from)
            .into_iter()
            .chain(words.map(Value::from))
            .collect();
        json_schema!({ "enum": allowed })
    }
}

impl Written for KeepAlive {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        if let Some(seconds) = plain(node).and_then(whole) {
            return Some(Self::Seconds(seconds));
        }
        match &node.content {
            Content::Scalar { text, .. } if is_duration(text) => Some(Self::Duration(text.clone())),
            _ => {
                wrong(
                    Code::BadKeepAlive,
                    "5m, 1h30m, 300, 0, -1",
                    node,
                    key,
                    report,
                );
                None
            }
        }
    }
}

impl JsonSchema for KeepAlive {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "KeepAlive".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"] })
    }
}

/// Numbers with units, as Go's `time.ParseDuration` reads them.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = 0;
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let digits = &rest[..rest.len() - unit.len()];
        if digits.matches('.').count() > 1 || !digits.contains(|c: char| c.is_ascii_digit()) {
            return false;
        }
        let Some(after) = ["ns", "us", "µs", "ms", "s", "m", "h"]
            .iter()
            .find_map(|known| {
                unit.strip_prefix(known)
                    .filter(|after| !after.starts_with(|c: char| c.is_alphabetic()))
            })
        else {
            return false;
        };
        rest = after;
        parts += 1;
    }
    (1..=16).contains(&parts)
}

/// `sandbox.environment`.
#[derive(Clone, Debug)]
pub(super) struct Variables(pub(super) BTreeMap<String, String>);

impl Written for Variables {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let Content::Map(entries) = &node.content else {
            wrong(Code::ExpectedMap, "", node, key, report);
            return None;
        };
        let mut variables = BTreeMap::new();
        for entry in entries {
            let key = join(key, &super::node::shorten(&entry.key));
            report.written(&key, entry.mark);
            let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let good =
                entry.key.chars().all(name) && !entry.key.starts_with(|c: char| c.is_ascii_digit());
            if entry.key.is_empty() || !good {
                report.add(
                    Code::BadVariable,
                    entry.mark,
                    &key,
                    Details::allowed("A-Z a-z 0-9 _"),
                );
                continue;
            }
            if looks_secret(&entry.key) {
                report.add(Code::SecretVariable, entry.mark, &key, Details::default());
            }
            // The value may be a secret after all, so no finding repeats it.
            match &entry.value.content {
                Content::Scalar { text, plain }
                    if !plain
                        || (!entry.value.is_null()
                            && boolean(text).is_none()
                            && number(text).is_none()) =>
                {
                    if text.contains('\0') {
                        report.add(
                            Code::ControlCharacter,
                            entry.value.mark,
                            &key,
                            Details::default(),
                        );
                    }
                    variables.insert(entry.key.clone(), text.clone());
                }
                _ => report.add(
                    Code::ExpectedText,
                    entry.value.mark,
                    &key,
                    Details::value("…"),
                ),
            }
        }
        Some(Self(variables))
    }
}

fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    [
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "API_KEY",
        "APIKEY",
        "PRIVATE_KEY",
        "CREDENTIAL",
    ]
    .iter()
    .any(|mark| name.contains(mark))
}

impl JsonSchema for Variables {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Variables".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
            "additionalProperties": { "type": "string" }
        })
    }
}

/// `ollama.extra_options`: any YAML, as JSON.
#[derive(Clone, Debug, Default)]
pub(super) struct Extra(pub(super) Map<String, Value>);

impl Written for Extra {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let Content::Map(entries) = &node.content else {
            wrong(Code::ExpectedMap, "", node, key, report);
            return None;
        };
        for entry in entries {
            report.written(&join(key, &super::node::shorten(&entry.key)), entry.mark);
        }
        match json(node) {
            Value::Object(map) => Some(Self(map)),
            _ => None,
        }
    }
}

impl JsonSchema for Extra {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Extra".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": true })
    }
}

fn json(node: &Node) -> Value {
    match &node.content {
        Content::List(items) => Value::Array(items.iter().map(json).collect()),
        Content::Map(entries) => entries
            .iter()
            .map(|e| (e.key.clone(), json(&e.value)))
            .collect(),
        Content::Scalar { .. } if node.is_null() => Value::Null,
        Content::Scalar { text, plain: false } => Value::from(text.as_str()),
        Content::Scalar { text, .. } => {
            if let Some(switch) = boolean(text) {
                Value::from(switch)
            } else if let Some(whole) = whole(text) {
                Value::from(whole)
            } else if let Some(number) = number(text).and_then(Number::from_f64) {
                Value::from(number)
            } else {
                Value::from(text.as_str())
            }
        }
    }
}

/// An option that Ollama no longer reads: accepted with any value, with a warning, never sent.
#[derive(Clone, Debug)]
pub(super) struct Gone;

impl Written for Gone {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        report.add(
            Code::GoneOption,
            node.mark,
            key,
            Details::value(node.shown()),
        );
        Some(Self)
    }
}

impl JsonSchema for Gone {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Gone".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "deprecated": true })
    }
}

/// `schema_version`: this program reads 2 and nothing else (X-SCHEMA).
#[derive(Clone, Debug)]
pub(super) struct Version;

impl Written for Version {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        let code = match plain(node).and_then(whole) {
            Some(2) => return Some(Self),
            Some(1) => Code::VersionOne,
            Some(_) => Code::VersionUnknown,
            None => Code::ExpectedWhole,
        };
        wrong(code, "2", node, key, report);
        None
    }
}

impl JsonSchema for Version {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Version".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "const": 2 })
    }
}
