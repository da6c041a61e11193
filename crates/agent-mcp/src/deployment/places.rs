//! Where things lie: the configuration file, and the state, log and audit directories, never inside a workspace by default.

use policy::config::Config;
use policy::{Blame, Code, Fault};
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

fn default_state() -> Result<PathBuf, Fault> {
    let from = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    if cfg!(windows) {
        if let Some(base) = from("LOCALAPPDATA") {
            return Ok(base.join("AgentSandboxMcp"));
        }
    } else if let Some(base) = from("XDG_STATE_HOME") {
        return Ok(base.join("agent-mcp"));
    } else if let Some(home) = from("HOME") {
        return Ok(home.join(".local/state/agent-mcp"));
    }
    Err(Fault::new(
        Blame::Machine,
        Code::StateUnusable,
        "state.directory",
        "neither XDG_STATE_HOME nor HOME is set",
    ))
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

/// Where a configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A person named it.
    Named(PathBuf),
    /// It lies in the working directory, where anything that ran may have written it.
    InPlace(PathBuf),
    /// It lies in the user's own configuration directory, which no sandbox reaches.
    Own(PathBuf),
}

/// The configuration: the one that was named, else `./agent.yaml`, `./.agent-mcp/agent.yaml`, else the user's own.
///
/// # Errors
/// The places that were looked at.
pub fn find_configuration(named: Option<&Path>) -> Result<Found, Vec<PathBuf>> {
    if let Some(named) = named {
        return Ok(Found::Named(named.to_owned()));
    }
    let exists = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok();
    let mut looked = vec![
        PathBuf::from("agent.yaml"),
        PathBuf::from(".agent-mcp/agent.yaml"),
    ];
    if let Some(found) = looked.iter().find(|path| exists(path)) {
        return Ok(Found::InPlace(found.clone()));
    }
    let own = user_directory().map(|directory| directory.join("agent.yaml"));
    match own {
        Some(own) if exists(&own) => Ok(Found::Own(own)),
        own => {
            looked.extend(own);
            Err(looked)
        }
    }
}

/// The user's own configuration directory of this program.
fn user_directory() -> Option<PathBuf> {
    let from = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = from("XDG_CONFIG_HOME").or_else(|| from("HOME").map(|home| home.join(".config")))?;
    Some(base.join("agent-mcp"))
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
