//! What a runtime is put together from. The composition root fills it in once; nothing in it changes afterwards.

use crate::ollama::{Backoff, OllamaSettings};
use policy::config;
use policy::sandbox::SandboxBackend;
use policy::tool::Operation;
use policy::{EffectivePolicy, Localize, Standing};
use record::Clock;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

pub use crate::ledger::Records;

/// Everything a runtime needs, from the composition root.
pub struct RuntimeParts {
    /// The frozen policy (DESIGN §10.7).
    pub policy: Arc<EffectivePolicy>,
    /// Whether what it was frozen from still stands; asked before each planned Task (ST-24).
    pub standing: Arc<dyn Standing>,
    /// What confines processes.
    pub sandbox: Arc<dyn SandboxBackend>,
    /// The model server and how it is asked.
    pub model: ModelParts,
    /// How far one run may go.
    pub limits: RunLimits,
    /// How far one tool may go.
    pub tools: ToolLimits,
    /// Operations that need an action approval (L5).
    pub asks: BTreeSet<Operation>,
    /// Text of the configuration's owner; added to the fixed prompt, never instead of it (SEC-INV-09).
    pub user_system_prompt: Option<String>,
    /// Names and descriptions only (DESIGN §9.2, part 4).
    pub skills: Vec<SkillDescriptor>,
    /// The language the model answers in (DESIGN §14.3).
    pub language: Language,
    /// Turns messages into that language: for an answer that code has to write.
    pub texts: Arc<dyn Localize>,
    /// A directory of ours for spooled output and backups; in no granted root.
    pub temporary: PathBuf,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
}

/// The model server and how it is asked.
#[derive(Clone, Debug)]
pub struct ModelParts {
    /// Endpoint, model, waits.
    pub settings: OllamaSettings,
    /// Options and `think` of every call (OLL-03…06).
    pub ollama: config::Ollama,
    /// `agent.plan_think` (X-OLL).
    pub plan_think: bool,
    /// How repetitions pause (OLL-12).
    pub backoff: Backoff,
}

/// How far one run may go (X-LIMIT, X-REPEAT).
#[derive(Clone, Debug)]
pub struct RunLimits {
    /// Model calls of one run (AGT-02).
    pub max_iterations: u32,
    /// Equal failures in a row (AGT-03).
    pub same_failure_limit: u32,
    /// Tool calls in one planned Task (DC-4).
    pub max_tool_calls_per_task: u32,
    /// From how many equal calls or errors on the model is told (HR-5).
    pub repetition_notice: u32,
    /// Replans of one run (DESIGN §8.4).
    pub max_replans: u32,
    /// Tasks of one graph (PLN-02).
    pub max_tasks: usize,
    /// Waiting runs; one more is refused with `run.queue_full`.
    pub queue: usize,
    /// What waiting requests may hold together, texts and images in bytes; refused in the same way.
    pub queue_bytes: usize,
    /// Share of `num_ctx` from which the context is summarized (SES-05).
    pub context_summary_ratio: f64,
    /// Images of one request (DESIGN §6.4).
    pub images: config::Images,
}

impl RunLimits {
    /// Waiting runs unless said otherwise.
    pub const QUEUE: usize = 10_000;
    /// Bytes of waiting requests unless said otherwise.
    pub const QUEUE_BYTES: usize = 256 << 20;
    /// Replans of one run (DESIGN §8.4).
    pub const MAX_REPLANS: u32 = 3;

    /// The limits of a configuration.
    pub fn from_config(config: &config::Config) -> Self {
        Self {
            max_iterations: config.agent.max_iterations,
            same_failure_limit: config.agent.same_failure_limit,
            max_tool_calls_per_task: config.guard.max_tool_calls_per_task,
            repetition_notice: config.guard.repetition_notice,
            max_replans: Self::MAX_REPLANS,
            max_tasks: usize::try_from(config.planner.max_tasks).unwrap_or(usize::MAX),
            queue: Self::QUEUE,
            queue_bytes: Self::QUEUE_BYTES,
            context_summary_ratio: config.limits.context_summary_ratio,
            images: config.mcp.images,
        }
    }
}

/// How far one tool may go.
#[derive(Clone, Copy, Debug)]
pub struct ToolLimits {
    /// `limits` of the configuration.
    pub limits: config::Limits,
    /// Backups above this many bytes go to a file (DESIGN §13.2).
    pub memory_backup_limit_bytes: u64,
}

impl ToolLimits {
    /// The limits of a configuration.
    pub fn from_config(config: &config::Config) -> Self {
        Self {
            limits: config.limits,
            memory_backup_limit_bytes: config
                .file_edit
                .memory_backup_limit_mib
                .saturating_mul(1 << 20),
        }
    }
}

impl ModelParts {
    /// The model of a configuration, with real pauses.
    pub fn from_config(config: &config::Config) -> Self {
        Self {
            settings: OllamaSettings::from_config(&config.ollama),
            ollama: config.ollama.clone(),
            plan_think: config.agent.plan_think,
            backoff: Backoff::standard(),
        }
    }
}

/// One Skill as the model sees it before it asks for more (Progressive Disclosure, stage 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillDescriptor {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
}

/// The language the model answers in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Language {
    /// BCP 47 tag.
    pub tag: String,
    /// Its English name, for the English instruction: `Japanese`.
    pub name: String,
    /// A sentence in that language that asks to answer in it; may be empty.
    pub instruction: String,
}
