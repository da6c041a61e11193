//! What the configuration means: plain values, every default filled in, every unit in the name or the documentation.
//!
//! Paths are as written: relative ones are relative to the directory of the base file (DESIGN §10.1). Whether they exist
//! is judged by whoever opens them, with [`Config::place`] for the position.

use super::finding::Place;
use super::words::{
    HardBlock, LogLevel, MountAccess, Operation, Profile, ResourceProfile, ThinkLevel, Transport,
};
use crate::effective::{NetworkPolicy, PartialRule, RehashRule, SandboxMode, ShellRule};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// The whole configuration, `schema_version: 2` (X-SCHEMA).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `application`.
    pub application: Application,
    /// `mcp`.
    pub mcp: Mcp,
    /// `agent`.
    pub agent: Agent,
    /// `ollama`.
    pub ollama: Ollama,
    /// `planner`.
    pub planner: Planner,
    /// `sandbox`.
    pub sandbox: Sandbox,
    /// `guard`.
    pub guard: Guard,
    /// `approvals`.
    pub approvals: Approvals,
    /// `console`.
    pub console: Console,
    /// `boxes`.
    pub boxes: Boxes,
    /// `audit`.
    pub audit: Audit,
    /// `state`.
    pub state: State,
    /// `file_edit`.
    pub file_edit: FileEdit,
    /// `limits`.
    pub limits: Limits,
    /// `localization`.
    pub localization: Localization,
    /// `skills`.
    pub skills: Skills,
    /// `logging`.
    pub logging: Logging,
    /// `telemetry`.
    pub telemetry: Telemetry,
    /// Where each written key stands, by its full name (`sandbox.mounts[0].path`). Empty for [`Config::minimal`].
    pub places: BTreeMap<String, Place>,
}

/// `application`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// `language`: BCP 47 tag as written; default `en`. `--lang` goes before it (I18N-06).
    pub language: String,
}

/// `mcp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mcp {
    /// `transport`; default stdio. `--transport` goes before it.
    pub transport: Transport,
    /// `http`.
    pub http: Http,
    /// `images`.
    pub images: Images,
    /// `tasks`.
    pub tasks: Tasks,
}

/// `mcp.http`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http {
    /// `host`: 127.0.0.1 or ::1, nothing else (MCP-TR-02, ST-22).
    pub host: IpAddr,
    /// `port`: default 8080; 0 takes any free one.
    pub port: u16,
}

/// `mcp.images`: what `agent_run` accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Images {
    /// `max_count`: default 4; 0 accepts none.
    pub max_count: u32,
    /// `max_bytes_each`: decoded bytes; default 10 MiB.
    pub max_bytes_each: u64,
    /// `max_total_bytes`: decoded bytes of one request; default 20 MiB.
    pub max_total_bytes: u64,
}

impl Images {
    /// The longest HTTP body and stdio line in bytes: ⌈4/3 × `max_total_bytes`⌉ + 1 MiB.
    pub fn message_limit_bytes(&self) -> u64 {
        (self.max_total_bytes * 4).div_ceil(3) + (1 << 20)
    }
}

/// `mcp.tasks`: the MCP Tasks extension (DESIGN §5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// `time_to_live_hours`: default 24 h.
    pub time_to_live: Duration,
    /// `poll_interval_ms`: default 1000 ms.
    pub poll_interval: Duration,
}

/// `agent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// `box`: id of a box in `boxes.directory`; default `default` (X-BOX).
    pub box_id: String,
    /// `user_system_prompt`: file with text added to the fixed prompt; none by default.
    pub user_system_prompt: Option<PathBuf>,
    /// `max_iterations`: model calls of one run; default 128 (AGT-02, X-LIMIT).
    pub max_iterations: u32,
    /// `same_failure_limit`: equal failures in a row; default 5 (AGT-03).
    pub same_failure_limit: u32,
    /// `plan_think`: think while planning; default false, because token counts are then only approximate (X-OLL).
    pub plan_think: bool,
}

/// `ollama`.
#[derive(Clone, Debug, PartialEq)]
pub struct Ollama {
    /// `endpoint`: http or https, with host and without user, password, query or fragment; default `http://localhost:11434`.
    pub endpoint: Url,
    /// `model`: never empty; it has no default (X-MODEL).
    pub model: String,
    /// `think`: always sent; default off, which every model accepts.
    pub think: Think,
    /// `keep_alive`: default `5m`.
    pub keep_alive: KeepAlive,
    /// `options`.
    pub options: OllamaOptions,
    /// `extra_options`: sent as they are; none of them carries a name of [`OllamaOptions`] (OLL-05).
    pub extra_options: Map<String, Value>,
}

impl Ollama {
    /// The `options` object of a request: known options that are set, and the extra ones (OLL-03, OLL-05).
    /// `temperature` is the run's own value and goes before the configured one (OLL-06).
    pub fn request_options(&self, temperature: Option<f64>) -> Map<String, Value> {
        let mut options = self.options.clone();
        options.temperature = temperature.or(options.temperature);
        let mut object = self.extra_options.clone();
        if let Ok(Value::Object(known)) = serde_json::to_value(&options) {
            object.extend(known);
        }
        object
    }
}

/// `ollama.think`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Think {
    /// On or off.
    Switch(bool),
    /// For models with levels.
    Level(ThinkLevel),
}

/// `ollama.keep_alive`: how long the model stays loaded after a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum KeepAlive {
    /// Seconds; negative = for ever, 0 = unload at once.
    Seconds(i64),
    /// A duration with unit, as Ollama reads it: `5m`, `1h30m`.
    Duration(String),
}

/// `ollama.options`: the options that Ollama still reads (OLL-03, OLL-04). What is not set is not sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OllamaOptions {
    /// Context length in tokens; default 32768 and always sent, because the summary ratio needs it (DESIGN §9.3).
    pub num_ctx: u32,
    /// Most tokens of one answer; default 4096 and always sent (X-OLL). −1 = 10 × `num_ctx`.
    pub num_predict: i32,
    /// Tokens of one prompt batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_batch: Option<u32>,
    /// Layers on the GPU; −1 = Ollama decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_gpu: Option<i32>,
    /// The GPU for small tensors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub main_gpu: Option<u32>,
    /// Map the model file into memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_mmap: Option<bool>,
    /// Processor threads; 0 = Ollama decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_thread: Option<u32>,
    /// Tokens drafted ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_num_predict: Option<u32>,
    /// Tokens kept when the context is cut; −1 = all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_keep: Option<i32>,
    /// Random seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Candidates kept; 0 = all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f64>,
    /// 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub typical_p: Option<f64>,
    /// Tokens looked back at for repetition; 0 = off, −1 = `num_ctx`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat_last_n: Option<i32>,
    /// 0 to 2; a run can override it (OLL-06).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// 0 to 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat_penalty: Option<f64>,
    /// −2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// −2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// Texts that end an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Vec<String>>,
}

/// `planner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planner {
    /// `max_tasks`: nodes of one graph; default 32 (PLN-02).
    pub max_tasks: u32,
}

/// `sandbox`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// `profile`; default development, or readonly where `max_mode` is read-only.
    pub profile: Profile,
    /// `workspaces`: directories; the first one is the MCP sessions' root (X-ROOT).
    pub workspaces: Vec<PathBuf>,
    /// `mounts`: further directories or files (FS-01).
    pub mounts: Vec<Mount>,
    /// `max_mode`: default workspace-write (X-MODE).
    pub max_mode: SandboxMode,
    /// `partial`: default read_only (X-PARTIAL).
    pub partial: PartialRule,
    /// `protect`: relative paths that are readable but never writable at any depth (X-PROTECT).
    pub protect: Vec<PathBuf>,
    /// `environment`: given to sandboxed processes beside the fixed table.
    pub environment: BTreeMap<String, String>,
    /// `execution`.
    pub execution: Execution,
    /// `network`: the level with its list, which is never empty (X-NET).
    pub network: NetworkPolicy,
    /// `resources`, overrides applied.
    pub resources: Resources,
}

impl Sandbox {
    /// The deployment's default mode: the profile's, never above `max_mode` (X-MODE).
    pub fn default_mode(&self) -> SandboxMode {
        let mode = match self.profile {
            Profile::Readonly => SandboxMode::ReadOnly,
            Profile::Development => SandboxMode::WorkspaceWrite,
        };
        mode.min(self.max_mode)
    }
}

/// One of `sandbox.mounts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `path`.
    pub path: PathBuf,
    /// `access`.
    pub access: MountAccess,
}

/// `sandbox.execution`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// `entries`: aliases are unique without regard to case (DESIGN §10.3).
    pub entries: Vec<Entry>,
    /// `shells`: default allow (PRC-05).
    pub shells: ShellRule,
    /// `rehash`: default on_change (X-HASH).
    pub rehash: RehashRule,
}

/// One of `sandbox.execution.entries`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `alias`: the word the model uses.
    pub alias: String,
    /// `path`: the program.
    pub path: PathBuf,
    /// `runtime_root`: directory of its further programs and libraries.
    pub runtime_root: Option<PathBuf>,
}

/// `sandbox.resources`, of one Task's process tree (DESIGN §10.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// `profile`: default normal. The values below have its presets and the overrides in them.
    pub profile: ResourceProfile,
    /// `memory_mb`, in MiB.
    pub memory_mib: u64,
    /// `process_limit`: processes and threads.
    pub process_limit: u32,
    /// `execution_timeout_seconds`: wall clock of one program.
    pub execution_timeout: Duration,
}

/// `guard`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// `max_tool_calls_per_task`: default 10 (DC-4, X-LIMIT).
    pub max_tool_calls_per_task: u32,
    /// `repetition_notice`: default 3 (X-REPEAT).
    pub repetition_notice: u32,
    /// `hard_block`: default enforce (X-KEYS).
    pub hard_block: HardBlock,
    /// `url_allowlist`: empty = no tool opens a URL.
    pub url_allowlist: Vec<UrlPattern>,
}

/// One of `guard.url_allowlist`: `[scheme://]host[:port]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UrlPattern {
    /// `http` or `https`; default https.
    pub scheme: String,
    /// Lower case, without `*.`; an IPv6 address without brackets.
    pub host: String,
    /// Written `*.host`: every name below `host`, not `host` itself.
    pub subdomains: bool,
    /// The scheme's own port where none is written.
    pub port: u16,
}

/// `approvals`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approvals {
    /// `ask`: what needs an action approval (L5).
    pub ask: Vec<Ask>,
    /// `timeout_seconds`: default 600 s; silence is a refusal (X-ESC).
    pub timeout: Duration,
}

/// One of `approvals.ask`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// An operation of the built-in set.
    Operation(Operation),
    /// An own rule: a name, and words of a command line where `*` stands for one word, at the end for any number.
    Command {
        /// `name`: shown to the person who decides.
        name: String,
        /// `argv`: never empty.
        argv: Vec<String>,
    },
}

/// `console`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Console {
    /// `enabled`: default true.
    pub enabled: bool,
    /// `host`: 127.0.0.1 or ::1.
    pub host: IpAddr,
    /// `port`: 0 (default) = any free port, published in the state directory.
    pub port: u16,
}

/// `boxes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boxes {
    /// `directory`: default `boxes`.
    pub directory: PathBuf,
}

/// `audit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// `directory`: `None` = below the state directory.
    pub directory: Option<PathBuf>,
    /// `key_file`: `None` = below the state directory, made with mode 0600. `AGENT_MCP_AUDIT_KEY` goes before it.
    pub key_file: Option<PathBuf>,
}

/// `state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// `directory`: `None` = `XDG_STATE_HOME/agent-mcp`, on Windows `%LOCALAPPDATA%\AgentSandboxMcp`.
    pub directory: Option<PathBuf>,
}

/// `file_edit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEdit {
    /// `memory_backup_limit_mb`, in MiB: larger backups go to a file; default 16 (DESIGN §13.2).
    pub memory_backup_limit_mib: u64,
}

/// `limits`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// `whole_read_bytes`: default 1 MiB.
    pub whole_read_bytes: u64,
    /// `search_max_results`: default 1,000.
    pub search_max_results: u32,
    /// `tail_max_lines`: default 10,000.
    pub tail_max_lines: u32,
    /// `context_summary_ratio`: share of `num_ctx` from which the context is summarized; default 0.8.
    pub context_summary_ratio: f64,
    /// `process_output_bytes`: kept of each stream, half head, half tail; default 64 KiB.
    pub process_output_bytes: u64,
    /// `dir_list_entries`: default 2,000.
    pub dir_list_entries: u32,
    /// `edit_bytes`: largest file that is edited; default 16 MiB.
    pub edit_bytes: u64,
}

/// `localization`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Localization {
    /// `directory`: default `config/locales`; the compiled-in `en` and `ja` need no file (X-LOCALE).
    pub directory: PathBuf,
    /// `fallback`: default `en`.
    pub fallback: String,
}

/// `skills`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skills {
    /// `directory`: default `skills`.
    pub directory: PathBuf,
}

/// `logging`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// `directory`: `None` = below the state directory.
    pub directory: Option<PathBuf>,
    /// `level`: default info.
    pub level: LogLevel,
    /// `http_requests`: default true.
    pub http_requests: bool,
    /// `max_file_bytes`: a log is rotated at this size; default 10 MiB.
    pub max_file_bytes: u64,
    /// `retained_files`: rotated files kept; default 5.
    pub retained_files: u32,
}

/// `telemetry`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telemetry {
    /// `otlp_endpoint`: `None` (default) = off.
    pub otlp_endpoint: Option<Url>,
}
