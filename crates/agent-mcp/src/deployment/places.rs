//! Where things lie: the configuration file, and the state, log and audit directories, never inside a workspace by default.

use policy::config::Config;
use policy::{Blame, Code, Fault, Message};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// State, logs, audit and key, absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// `state.directory`.
    pub state: PathBuf,
    /// `logging.directory`.
    pub logs: PathBuf,
    /// `audit.directory`.
    pub audit: PathBuf,
    /// `audit.key_file`.
    pub key_file: PathBuf,
}

impl Places {
    /// From the configuration; relative paths are relative to the base file's directory.
    ///
    /// # Errors
    /// `state.unusable` where no directory is configured and the environment names none.
    pub fn of(config: &Config, base: &Path) -> Result<Self, Fault> {
        let state = match &config.state.directory {
            Some(directory) => base.join(directory),
            None => default_state()?,
        };
        Ok(Self {
            logs: config
                .logging
                .directory
                .as_ref()
                .map_or_else(|| state.join("logs"), |directory| base.join(directory)),
            audit: config
                .audit
                .directory
                .as_ref()
                .map_or_else(|| state.clone(), |directory| base.join(directory)),
            key_file: config
                .audit
                .key_file
                .as_ref()
                .map_or_else(|| state.join("audit.key"), |file| base.join(file)),
            state,
        })
    }

    /// Without a configuration.
    ///
    /// # Errors
    /// As [`Places::of`].
    pub fn default_places() -> Result<Self, Fault> {
        Ok(Self::below(default_state()?))
    }

    /// Everything below one state directory.
    pub fn below(state: PathBuf) -> Self {
        Self {
            logs: state.join("logs"),
            audit: state.clone(),
            key_file: state.join("audit.key"),
            state,
        }
    }

    /// All of them, resolved as far as they exist: out of reach of tools and sandbox.
    pub fn own(&self) -> Vec<PathBuf> {
        let mut own: Vec<PathBuf> = [&self.state, &self.logs, &self.audit, &self.key_file]
            .into_iter()
            .map(|path| resolve_existing(path))
            .chain(user_directory().map(|directory| resolve_existing(&directory)))
            .collect();
        own.sort();
        own.dedup();
        own
    }
}

/// As a shell reads it back.
pub fn for_shell(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._+-=:@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

fn default_state() -> Result<PathBuf, Fault> {
    Variables::of_process().state()
}

/// The variables that say where things lie. A value that is no absolute path counts as not set (XDG Base Directory
/// Specification).
pub struct Variables(fn(&str) -> Option<OsString>);

impl Variables {
    /// Of this process.
    pub fn of_process() -> Self {
        Self(|name| std::env::var_os(name))
    }

    /// One that holds an absolute path.
    pub fn absolute(&self, name: &str) -> Option<PathBuf> {
        (self.0)(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }

    fn state(&self) -> Result<PathBuf, Fault> {
        if cfg!(windows) {
            if let Some(base) = self.absolute("LOCALAPPDATA") {
                return Ok(base.join("AgentSandboxMcp"));
            }
        } else if let Some(base) = self.absolute("XDG_STATE_HOME") {
            return Ok(base.join("agent-mcp"));
        } else if let Some(home) = self.absolute("HOME") {
            return Ok(home.join(".local/state/agent-mcp"));
        }
        Err(Fault::because(
            Blame::Machine,
            Code::StateUnusable,
            "state.directory",
            Message::new("reason.no_home"),
        ))
    }

    fn configuration(&self) -> Option<PathBuf> {
        let base = self
            .absolute("XDG_CONFIG_HOME")
            .or_else(|| self.absolute("HOME").map(|home| home.join(".config")))?;
        Some(base.join("agent-mcp"))
    }
}

/// The absolute path with the links of its existing part resolved; what does not exist stays as it is.
pub fn resolve_existing(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut existing = path.as_path();
    loop {
        if let Ok(resolved) = std::fs::canonicalize(existing) {
            return match path.strip_prefix(existing) {
                Ok(rest) if !rest.as_os_str().is_empty() => resolved.join(rest),
                _ => resolved,
            };
        }
        match existing.parent() {
            Some(parent) => existing = parent,
            None => return path,
        }
    }
}

/// The user's own configuration directory of this program.
pub fn user_directory() -> Option<PathBuf> {
    Variables::of_process().configuration()
}

/// The directory that relative paths are relative to.
///
/// # Errors
/// The directory cannot be resolved.
pub fn base_directory(file: &Path) -> Result<PathBuf, Fault> {
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::canonicalize(parent).map_err(|error| {
        Fault::new(
            Blame::Configuration,
            Code::ConfigurationInvalid,
            file.display().to_string(),
            error,
        )
    })
}

/// `agent.local.yaml` beside `agent.yaml` (DESIGN §10.1).
pub fn local_file(file: &Path) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!("{stem}.local.yaml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X-CLI, issue 4: the XDG directories; relative values count as not set, and so does an empty one.
    #[test]
    #[cfg(unix)]
    fn x_cli_xdg_directories() {
        let at = |variables: fn(&str) -> Option<OsString>| {
            let variables = Variables(variables);
            (variables.state().ok(), variables.configuration())
        };
        let both = |state: &str, configuration: &str| {
            (
                Some(PathBuf::from(state)),
                Some(PathBuf::from(configuration)),
            )
        };
        assert_eq!(
            at(|name| (name == "HOME").then(|| "/h".into())),
            both("/h/.local/state/agent-mcp", "/h/.config/agent-mcp")
        );
        assert_eq!(
            at(|name| Some(if name == "HOME" { "/h" } else { "relative" }.into())),
            both("/h/.local/state/agent-mcp", "/h/.config/agent-mcp")
        );
        assert_eq!(
            at(|name| Some(if name == "HOME" { "/h" } else { "" }.into())),
            both("/h/.local/state/agent-mcp", "/h/.config/agent-mcp")
        );
        assert_eq!(
            at(|name| match name {
                "XDG_STATE_HOME" => Some("/s".into()),
                "XDG_CONFIG_HOME" => Some("/c".into()),
                _ => None,
            }),
            both("/s/agent-mcp", "/c/agent-mcp")
        );
        assert_eq!(at(|_| None), (None, None));
        assert_eq!(at(|_| Some("x".into())), (None, None));
    }
}
