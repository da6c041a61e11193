//! Our own files stay out of reach: what exists is masked by the sandbox; what does not exist yet, and could be made inside
//! a writable workspace, is watched, so that a program cannot give itself rights for the next start (users.md 8).

use super::places::{Places, local_file, resolve_existing};
use policy::config::Config;
use policy::effective::GrantedRoot;
use policy::sandbox::{
    Enforcement, Finding, HostResource, PreparedSandbox, ProcessOutcome, ProcessRequest, Relayed,
    SandboxBackend, SandboxError, StartPermit, TaskSandbox,
};
use policy::{Blame, Code, EffectivePolicy, Fault, Message, Refusal, Right};
use record::StateDirectory;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Every file and directory of ours that a configuration names, resolved as far as it exists.
pub(super) fn of(
    config: &Config,
    file: &Path,
    base: &Path,
    places: &Places,
    roots: &[GrantedRoot],
) -> Vec<PathBuf> {
    let mut own = places.own();
    // The Applied Configuration Store lies there, wherever this configuration keeps its state.
    own.extend(Places::default_places().map(|user| resolve_existing(&user.state)));
    own.push(resolve_existing(file));
    own.push(resolve_existing(&local_file(file)));
    for directory in [
        &config.localization.directory,
        &config.skills.directory,
        &config.boxes.directory,
    ] {
        own.push(resolve_existing(&base.join(directory)));
    }
    if let Some(prompt) = &config.agent.user_system_prompt {
        own.push(resolve_existing(&base.join(prompt)));
    }
    // A directory of its own around the configuration is ours as a whole, so that nothing can be added to it.
    if !roots.iter().any(|root| root.path.starts_with(base)) {
        own.push(base.to_owned());
    }
    own.sort();
    own.dedup();
    own
}

/// Watches own files that are not there and could be made by a sandboxed program.
///
/// While a sandbox may run, their names are in a marker in the state directory. A start that finds a marker with a file
/// that has appeared since refuses, because nobody knows who wrote it.
#[derive(Debug)]
pub struct AbsenceGuard {
    marker: PathBuf,
    watched: Vec<PathBuf>,
}

impl AbsenceGuard {
    /// Checks earlier markers and writes this process's own, synced, when there is something to watch.
    ///
    /// # Errors
    /// `policy.path_protected` for a file that appeared while nobody watched; `state.unusable`.
    pub fn start(policy: &EffectivePolicy, state: &Path) -> Result<Self, Fault> {
        let directory = state.join("absent");
        check_markers(&directory, policy)?;
        let exists = |path: &Path| std::fs::symlink_metadata(path).is_ok();
        let own = policy.own_files();
        // What lies in a directory of ours that is there is masked with it.
        let masked = |path: &PathBuf| {
            own.iter()
                .any(|other| other != path && path.starts_with(other) && exists(other))
        };
        let watched: Vec<PathBuf> = own
            .iter()
            .filter(|path| {
                !exists(path) && policy.rights_at(path).allows(Right::Write) && !masked(path)
            })
            .cloned()
            .collect();
        let name = format!("{}.json", std::process::id());
        let marker = directory.join(&name);
        if !watched.is_empty() {
            // Whole or not at all: a torn marker would stop every later start.
            StateDirectory::open(state)
                .and_then(|state| state.directory("absent"))
                .and_then(|directory| directory.file(&name))
                .and_then(|file| file.write_json(&watched))
                .map_err(|error| crate::books::fault(error.code(), &marker, error))?;
        }
        Ok(Self { marker, watched })
    }

    /// Moves away whatever appeared, and says so.
    ///
    /// # Errors
    /// `policy.path_protected` naming the first file.
    pub fn check(&self) -> Result<(), Refusal> {
        let mut first = None;
        for path in &self.watched {
            if std::fs::symlink_metadata(path).is_err() {
                continue;
            }
            let aside = path.with_file_name(format!(
                "{}.refused-{}",
                path.file_name().unwrap_or_default().to_string_lossy(),
                // Nobody can be there already.
                policy::TraceId::random()
            ));
            let detail = match std::fs::rename(path, &aside) {
                Ok(()) => format!("moved to {}", aside.display()),
                Err(error) => error.to_string(),
            };
            first.get_or_insert_with(|| {
                Refusal::new(Code::PathProtected, "own files", path.display().to_string())
                    .with("detail", detail)
            });
        }
        first.map_or(Ok(()), Err)
    }
}

impl Drop for AbsenceGuard {
    fn drop(&mut self) {
        if self.check().is_ok() && !self.watched.is_empty() {
            // A marker that stays only makes the next start look again.
            drop(std::fs::remove_file(&self.marker));
        }
    }
}

fn check_markers(directory: &Path, policy: &EffectivePolicy) -> Result<(), Fault> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unusable(directory, error)),
    };
    for entry in entries {
        let path = entry.map_err(|error| unusable(directory, error))?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            // The unfinished file of a process that died while it wrote; nothing ran for it.
            continue;
        }
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            // Its owner has just ended well.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(unusable(&path, error)),
        };
        let watched: Vec<PathBuf> =
            serde_json::from_slice(&text).map_err(|error| unusable(&path, error))?;
        // Only what this start would read is its business; other files stay noted for theirs.
        let appeared = |own: &&PathBuf| {
            policy.own_files().contains(own) && std::fs::symlink_metadata(own).is_ok()
        };
        if let Some(appeared) = watched.iter().find(appeared) {
            let why = Message::new("reason.appeared").with("marker", path.display());
            return Err(Fault::because(
                Blame::Machine,
                Code::PathProtected,
                appeared.display().to_string(),
                why,
            ));
        }
        let alive = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .is_some_and(|pid| Path::new("/proc").join(pid).exists());
        if !alive {
            drop(std::fs::remove_file(&path));
        }
    }
    Ok(())
}

fn unusable(path: &Path, detail: impl ToString) -> Fault {
    Fault::new(
        Blame::Machine,
        Code::StateUnusable,
        path.display().to_string(),
        detail,
    )
}

/// A backend whose programs cannot make our own files: after each program the guard looks.
#[derive(Debug)]
pub struct GuardedBackend {
    inner: Arc<dyn SandboxBackend>,
    guard: Arc<AbsenceGuard>,
}

impl GuardedBackend {
    /// Puts the guard around a backend.
    pub fn new(inner: Arc<dyn SandboxBackend>, guard: Arc<AbsenceGuard>) -> Self {
        Self { inner, guard }
    }
}

impl SandboxBackend for GuardedBackend {
    fn survey(&self, policy: &EffectivePolicy) -> Result<Enforcement, SandboxError> {
        self.inner.survey(policy)
    }

    fn prepare(
        &self,
        policy: &Arc<EffectivePolicy>,
        task: &str,
    ) -> Result<Box<dyn PreparedSandbox>, SandboxError> {
        let inner = self.inner.prepare(policy, task)?;
        Ok(Box::new(GuardedPrepared {
            inner,
            guard: Arc::clone(&self.guard),
        }))
    }
}

struct GuardedPrepared {
    inner: Box<dyn PreparedSandbox>,
    guard: Arc<AbsenceGuard>,
}

impl PreparedSandbox for GuardedPrepared {
    fn enforcement(&self) -> &Enforcement {
        self.inner.enforcement()
    }

    fn host_resources(&self) -> Vec<HostResource> {
        self.inner.host_resources()
    }

    fn start(self: Box<Self>, permit: StartPermit) -> Result<Arc<dyn TaskSandbox>, SandboxError> {
        let inner = self.inner.start(permit)?;
        Ok(Arc::new(GuardedTask {
            inner,
            guard: self.guard,
        }))
    }
}

struct GuardedTask {
    inner: Arc<dyn TaskSandbox>,
    guard: Arc<AbsenceGuard>,
}

impl TaskSandbox for GuardedTask {
    fn run(&self, request: &ProcessRequest) -> Result<ProcessOutcome, SandboxError> {
        let outcome = self.inner.run(request);
        self.guard.check()?;
        outcome
    }

    fn relayed(&self) -> Vec<Relayed> {
        self.inner.relayed()
    }

    fn findings(&self) -> Vec<Finding> {
        self.inner.findings()
    }

    fn kill(&self) {
        self.inner.kill();
    }

    fn end(&self) -> Result<(), SandboxError> {
        self.inner.end()?;
        self.guard.check()?;
        Ok(())
    }
}
