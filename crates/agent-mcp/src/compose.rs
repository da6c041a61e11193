//! The composition root: the backend of this machine, the books, the runtime.

use crate::books::{Books, Writer, fault};
use crate::deployment::{AbsenceGuard, Deployment, GuardedBackend};
use crate::locale::Locale;
use mcp::TaskParts;
use policy::config::{Ask, Config};
use policy::sandbox::{SandboxBackend, SandboxError};
use policy::tool::Operation;
use policy::{Blame, Code, Fault, Localize, Message, Standing};
use record::logs::{HttpLog, LlmLog, RollingFile, RollingLimits, SessionEvents};
use record::{Redactor, StateDirectory, SystemClock, TaskRecords};
use runtime::{
    AgentService, Language, ModelParts, Records, RunLimits, RuntimeParts, SkillDescriptor,
    ToolLimits,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Largest user system prompt, bytes.
const MAX_PROMPT_BYTES: u64 = 256 * 1024;

/// The backend of this machine; where there is none, one that always says unavailable (X-PLAT).
pub fn backend() -> Arc<dyn SandboxBackend> {
    Arc::new(sandbox_linux::LinuxSandbox)
}

/// `E2BIG`, the same number on every system that has it.
const TOO_LONG: i32 = 7;

/// A sandbox's failure for people and for exit codes.
pub fn sandbox_fault(error: &SandboxError) -> Fault {
    match error {
        SandboxError::Unavailable { stage, reason } => {
            Fault::new(Blame::Machine, Code::SandboxUnavailable, *stage, reason)
        }
        SandboxError::Refused(refusal) => Fault::new(
            Blame::Configuration,
            refusal.code,
            &refusal.target,
            &refusal.rule,
        ),
        SandboxError::NotFound(path) => Fault::new(
            Blame::Client,
            Code::ProcessNotFound,
            path.display().to_string(),
            "",
        ),
        SandboxError::NotExecutable { path, errno } => {
            let reason = if *errno == TOO_LONG {
                Message::new("reason.arguments_too_long")
            } else {
                std::io::Error::from_raw_os_error(*errno).into()
            };
            Fault::because(
                Blame::Client,
                Code::ProcessNotExecutable,
                path.display().to_string(),
                reason,
            )
        }
        SandboxError::Failed { stage, reason } => {
            Fault::new(Blame::Us, Code::SandboxFailed, *stage, reason)
        }
        SandboxError::Residue { what } => Fault::new(Blame::Us, Code::SandboxResidue, what, ""),
    }
}

/// Everything is open and checked; nothing works yet.
pub struct Composed {
    parts: RuntimeParts,
    records: Records,
    books: Books,
    guard: Arc<AbsenceGuard>,
}

/// Opens the books and puts the runtime's parts together.
///
/// # Errors
/// What makes a start impossible: state, key, log, prompt, own files that appeared.
pub fn compose(
    deployment: &Deployment,
    locale: &Locale,
    standing: Arc<dyn Standing>,
) -> Result<Composed, Fault> {
    let Some(config) = &deployment.config else {
        return Err(Fault::because(
            Blame::Us,
            Code::Internal,
            "compose",
            Message::new("reason.no_configuration"),
        ));
    };
    let places = &deployment.places;
    let books = Books::open(places, Writer::Thread)?;
    let guard = Arc::new(AbsenceGuard::start(&deployment.policy, &places.state)?);
    let temporary = books
        .state
        .directory("tmp")
        .map_err(|error| fault(error.code(), &places.state, error))?
        .path()
        .to_owned();
    let sandbox: Arc<dyn SandboxBackend> =
        Arc::new(GuardedBackend::new(backend(), Arc::clone(&guard)));
    let texts: Arc<dyn Localize> = Arc::new(locale.clone());
    let parts = RuntimeParts {
        policy: Arc::clone(&deployment.policy),
        standing,
        sandbox,
        model: ModelParts::from_config(config),
        limits: RunLimits::from_config(config),
        tools: ToolLimits::from_config(config),
        asks: asks(config),
        user_system_prompt: user_prompt(config, deployment.file.as_deref())?,
        skills: skills(config, deployment.file.as_deref()),
        language: language(locale),
        texts,
        temporary,
        clock: Arc::new(SystemClock),
    };
    let records = records(config, deployment, &books)?;
    Ok(Composed {
        parts,
        records,
        books,
        guard,
    })
}

/// The directory of the logs, and how they roll.
fn logs(
    config: &Config,
    deployment: &Deployment,
    books: &Books,
) -> Result<(StateDirectory, RollingLimits), Fault> {
    let places = &deployment.places;
    let directory = if places.logs.starts_with(&places.state) && places.logs != places.state {
        books.state.directory("logs")
    } else {
        StateDirectory::open(&places.logs)
    }
    .map_err(|error| fault(error.code(), &places.logs, error))?;
    let limits = RollingLimits {
        max_file_bytes: config.logging.max_file_bytes,
        retained_files: config.logging.retained_files,
    };
    Ok((directory, limits))
}

fn records(config: &Config, deployment: &Deployment, books: &Books) -> Result<Records, Fault> {
    let places = &deployment.places;
    let (logs, limits) = self::logs(config, deployment, books)?;
    // Instances write at the same time, so each has files of its own.
    let number = books.instance.number();
    let unusable = |error: record::StateError| fault(error.code(), &places.logs, error);
    let application = RollingFile::open(&logs, &format!("application.{number:04}.log"), limits)
        .map_err(unusable)?;
    crate::logging::start(config.logging.level, application);
    let instance = StateDirectory::open(books.instance.directory()).map_err(unusable)?;
    Ok(Records {
        audit: books.audit.clone(),
        redactor: Redactor::new(&books.key),
        llm_log: LlmLog::open(&logs, &format!("llm.{number:04}.jsonl"), limits)
            .map_err(unusable)?,
        session_events: SessionEvents::open(&instance).map_err(unusable)?,
    })
}

/// A running runtime with its books.
pub struct Running {
    service: AgentService,
    books: Books,
    guard: Arc<AbsenceGuard>,
}

impl Composed {
    /// Starts the runtime on the current tokio runtime.
    ///
    /// # Errors
    /// `configuration.invalid`: no client can be made from the model's settings.
    pub fn start(self) -> Result<Running, Fault> {
        let Self {
            parts,
            records,
            books,
            guard,
        } = self;
        Ok(Running {
            service: AgentService::start(parts, records)?,
            books,
            guard,
        })
    }
}

impl Running {
    /// The handle.
    pub fn service(&self) -> AgentService {
        self.service.clone()
    }

    /// This process's instance (X-INST).
    pub fn instance(&self) -> &record::Instance {
        &self.books.instance
    }

    /// The records of MCP tasks (DESIGN §5.7). What earlier processes left unfinished is written down as failed.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn tasks(&self, config: &policy::config::Tasks) -> Result<TaskParts, Fault> {
        let Books {
            state, instance, ..
        } = &self.books;
        let clock = Arc::new(SystemClock);
        let records = TaskRecords::open(state, instance, config.time_to_live, clock)
            .map_err(|error| fault(error.code(), state.path(), error))?;
        Ok(TaskParts {
            records: Arc::new(records),
            poll_interval: config.poll_interval,
        })
    }

    /// The HTTP log, unless `logging.http_requests` is off (DESIGN §5.8).
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn http_log(
        &self,
        config: &Config,
        deployment: &Deployment,
    ) -> Result<Option<HttpLog>, Fault> {
        if !config.logging.http_requests {
            return Ok(None);
        }
        let (logs, limits) = logs(config, deployment, &self.books)?;
        let name = format!("http.{:04}.jsonl", self.books.instance.number());
        HttpLog::open(&logs, &name, limits)
            .map(Some)
            .map_err(|error| fault(error.code(), &deployment.places.logs, error))
    }

    /// Stops everything safely and closes the books (DESIGN §16.1).
    ///
    /// # Errors
    /// The log could not be closed, or a file of ours appeared where a program could make it.
    pub async fn stop(self) -> Result<(), Fault> {
        self.service.shutdown().await;
        let appeared = self.guard.check();
        self.books
            .audit
            .close()
            .map_err(|error| fault(error.code(), self.books.instance.directory(), error))?;
        appeared.map_err(|refusal| {
            Fault::new(Blame::Machine, refusal.code, &refusal.target, &refusal.rule)
        })
    }
}

fn asks(config: &Config) -> BTreeSet<Operation> {
    config
        .approvals
        .ask
        .iter()
        .filter_map(|ask| match ask {
            Ask::Operation(operation) => Some(*operation),
            // Own argument patterns come with the guardrails; `check` lists them as such.
            Ask::Command { .. } => None,
        })
        .collect()
}

fn base(file: Option<&Path>) -> &Path {
    file.and_then(Path::parent).unwrap_or(Path::new(""))
}

/// The text of `agent.user_system_prompt`, if there is one.
///
/// # Errors
/// `configuration.invalid`.
pub fn user_prompt(config: &Config, file: Option<&Path>) -> Result<Option<String>, Fault> {
    use std::io::Read;
    let Some(path) = &config.agent.user_system_prompt else {
        return Ok(None);
    };
    let path = base(file).join(path);
    let unusable = |why: Message| {
        Fault::because(
            Blame::Configuration,
            Code::ConfigurationInvalid,
            "agent.user_system_prompt",
            Message::new("reason.of_path")
                .with("path", path.display())
                .with_message("reason", why),
        )
    };
    // Looked at first: to open a pipe waits for somebody.
    let seen = std::fs::metadata(&path).map_err(|error| unusable(error.into()))?;
    if !seen.is_file() {
        return Err(unusable(Message::new("reason.not_a_regular_file")));
    }
    let opened = std::fs::File::open(&path).map_err(|error| unusable(error.into()))?;
    let mut text = String::new();
    opened
        .take(MAX_PROMPT_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| unusable(error.into()))?;
    if text.len() as u64 > MAX_PROMPT_BYTES {
        return Err(unusable(
            Message::new("reason.too_large").with("limit", MAX_PROMPT_BYTES),
        ));
    }
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

/// Names and descriptions from the front matter of the skill directory's Markdown files. Loading one gives no right.
fn skills(config: &Config, file: Option<&Path>) -> Vec<SkillDescriptor> {
    let directory = base(file).join(&config.skills.directory);
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut skills: Vec<SkillDescriptor> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .filter_map(|path| {
            let text = std::fs::read_to_string(&path).ok()?;
            let front = text.strip_prefix("---\n")?.split("\n---").next()?;
            let field = |name: &str| {
                front
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                    .map(|value| value.trim().to_owned())
            };
            Some(SkillDescriptor {
                name: field("name")?,
                description: field("description")?,
            })
        })
        .collect();
    skills.sort_by(|a, b| a.name.cmp(&b.name));
    skills
}

fn language(locale: &Locale) -> Language {
    Language {
        tag: locale.language().to_owned(),
        name: locale.text(&Message::new("language.english_name")),
        instruction: locale.text(&Message::new("language.instruction")),
    }
}
