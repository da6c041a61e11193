//! Where the server is, which model it runs, and how long we wait for it.

use policy::config::KeepAlive;
use std::time::Duration;
use url::Url;

/// What one client is made from. The model is fixed here and never by a request (OLL-07).
#[derive(Clone, Debug, PartialEq)]
pub struct OllamaSettings {
    /// `http` or `https`; a path in front of `/api` is kept.
    pub endpoint: Url,
    /// The model's name as the server lists it.
    pub model: String,
    /// Sent with every chat.
    pub keep_alive: KeepAlive,
    /// How long one connection may take to open.
    pub connect_timeout: Duration,
    /// How long one [`chat`](super::OllamaClient::chat) may take with its repetitions; loading a model takes minutes.
    pub deadline: Duration,
}

impl OllamaSettings {
    /// Default for [`connect_timeout`](Self::connect_timeout).
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// Default for [`deadline`](Self::deadline).
    pub const DEADLINE: Duration = Duration::from_secs(30 * 60);

    /// The settings of a configuration, with the default waits.
    pub fn from_config(ollama: &policy::config::Ollama) -> Self {
        Self {
            endpoint: ollama.endpoint.clone(),
            model: ollama.model.clone(),
            keep_alive: ollama.keep_alive.clone(),
            connect_timeout: Self::CONNECT_TIMEOUT,
            deadline: Self::DEADLINE,
        }
    }

    /// Refuses what the server would only refuse later.
    pub(super) fn check(&self) -> Result<(), SettingsProblem> {
        if !matches!(self.endpoint.scheme(), "http" | "https") || self.endpoint.host().is_none() {
            return Err(SettingsProblem::Endpoint(self.endpoint.to_string()));
        }
        if self.model.trim().is_empty() {
            return Err(SettingsProblem::Model);
        }
        match &self.keep_alive {
            KeepAlive::Duration(text) if !is_go_duration(text) => {
                Err(SettingsProblem::KeepAlive(text.clone()))
            }
            _ => Ok(()),
        }
    }
}

/// Settings that no client can be made from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsProblem {
    /// Not http or https, or no host.
    #[error("unusable endpoint {0}")]
    Endpoint(String),
    /// The model's name is empty.
    #[error("no model")]
    Model,
    /// No duration with units: a bare `5` is an error in Ollama.
    #[error("unusable keep_alive {0:?}")]
    KeepAlive(String),
    /// TLS could not be set up (no root certificates on this machine).
    #[error("no TLS: {0}")]
    Tls(String),
}

/// Units of a Go duration, the longer ones first where one starts like another.
const UNITS: [&str; 8] = ["ms", "ns", "us", "µs", "μs", "h", "m", "s"];

/// Whether Go's `time.ParseDuration` reads it, which is what Ollama uses: `5m`, `1h30m`, `-1s`, `0`.
fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        let digits = &rest[..number];
        if !digits.contains(|c: char| c.is_ascii_digit()) || digits.matches('.').count() > 1 {
            return false;
        }
        let after = &rest[number..];
        match UNITS.iter().find_map(|unit| after.strip_prefix(unit)) {
            Some(next) => rest = next,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alive_takes_what_ollama_takes() {
        for good in ["5m", "1h30m", "-1s", "0", "1.5h", "300ms", "-5m"] {
            assert!(is_go_duration(good), "{good}");
        }
        for bad in [
            "", "5", "-1", "m", "5 m", "1h30", "5x", ".m", "1..5s", "forever", "5M",
        ] {
            assert!(!is_go_duration(bad), "{bad}");
        }
    }
}
