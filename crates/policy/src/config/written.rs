//! What was written: every key of the file, all optional, each with its position (ripgrep's "low" arguments).
//!
//! The section types are the one list of keys there is. The reader, the JSON Schema, and the list of known keys that a
//! mistyped one is compared with are all made from them.

use super::defaults;
use super::finding::FindingCode;
use super::node::{Content, Node};
use super::report::{Report, join};
use super::scalar::{At, Decimal, List, Whole, Written, field, unknown, wrong};
use super::settings::{KeepAlive, Think};
use super::shapes::{
    Endpoint, EndpointOrOff, HostText, Language, Loopback, Name, PathOrDefault, PathText,
    RelativePath, Text, UrlPatternText,
};
use super::values::{Extra, Gone, Variables, Version};
use super::words::{
    HardBlock, LogLevel, MountAccess, NetworkAccess, Operation, Profile, ResourceProfile, Transport,
};
use crate::effective::{PartialRule, RehashRule, SandboxMode, ShellRule};
use schemars::JsonSchema;

macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, JsonSchema)]
        #[schemars(deny_unknown_fields)]
        pub(super) struct $name {
            $($(#[$field_doc])* pub(super) $field: Option<At<$type>>,)*
        }

        impl Written for $name {
            fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
                let Content::Map(entries) = &node.content else {
                    wrong(FindingCode::ExpectedMap, "", node, key, report);
                    return None;
                };
                let mut section = Self::default();
                for entry in entries {
                    match entry.key.as_str() {
                        $(word if word == super::scalar::bare(stringify!($field)) => {
                            section.$field = field(&entry.value, entry.mark, &join(key, word), report);
                        })*
                        word => unknown(word, entry.mark, key, &[$(stringify!($field)),*], report),
                    }
                }
                Some(section)
            }

            fn keys(prefix: &str, out: &mut Vec<String>) {
                $(<$type>::keys(&join(prefix, super::scalar::bare(stringify!($field))), out);)*
            }
        }
    )*};
}

pub(super) type Port = Whole<1, 65_535>;
/// Byte limits go up to 1 GiB.
type Bytes = Whole<1, 1_073_741_824>;

sections! {
    /// Configuration of agent-mcp, schema version 2.
    Root {
        /// Version of this schema: 2.
        #[schemars(required)]
        schema_version: Version,
        /// The program as a whole.
        application: Application,
        /// The MCP server.
        mcp: Mcp,
        /// The agent loop.
        agent: Agent,
        /// The model server.
        #[schemars(required)]
        ollama: Ollama,
        /// The planner.
        planner: Planner,
        /// What may be reached and changed.
        sandbox: Sandbox,
        /// Guards around tool calls.
        guard: Guard,
        /// Decisions that a human takes.
        approvals: Approvals,
        /// The operator console, a web page on this machine.
        console: Console,
        /// Boxes: manifests of purpose, procedure, tools and limits.
        boxes: Boxes,
        /// The signed audit log.
        audit: Audit,
        /// What outlives a crash.
        state: State,
        /// The tool file_edit.
        file_edit: FileEdit,
        /// Limits of tools and context.
        limits: Limits,
        /// Texts for people.
        localization: Localization,
        /// Skills.
        skills: Skills,
        /// Log files.
        logging: Logging,
        /// Telemetry, off by default.
        telemetry: Telemetry,
    }

    /// The program as a whole.
    Application {
        /// Language of messages and answers, a BCP 47 tag. --lang goes before it.
        #[schemars(extend("default" = defaults::LANGUAGE))]
        language: Language,
    }

    /// The MCP server.
    Mcp {
        /// How clients connect. --transport goes before it.
        #[schemars(extend("default" = defaults::TRANSPORT))]
        transport: Transport,
        /// Streamable HTTP on loopback.
        http: Http,
        /// Images that a request may carry.
        images: Images,
        /// MCP Tasks.
        tasks: Tasks,
    }

    /// Streamable HTTP on loopback.
    Http {
        /// Loopback address to listen on.
        #[schemars(extend("default" = defaults::LOOPBACK))]
        host: Loopback,
        /// Port to listen on; 0 = any free port, published in the state directory.
        #[schemars(extend("default" = defaults::HTTP_PORT))]
        port: Whole<0, 65_535>,
    }

    /// Images that a request may carry.
    Images {
        /// Images of one request.
        #[schemars(extend("default" = defaults::IMAGE_COUNT))]
        max_count: Whole<0, 64>,
        /// Decoded bytes of one image.
        #[schemars(extend("default" = defaults::IMAGE_BYTES))]
        max_bytes_each: Whole<1, 268_435_456>,
        /// Decoded bytes of all images of one request.
        #[schemars(extend("default" = defaults::IMAGE_TOTAL_BYTES))]
        max_total_bytes: Whole<1, 268_435_456>,
    }

    /// MCP Tasks.
    Tasks {
        /// Hours that the record of a Task is kept.
        #[schemars(extend("default" = defaults::TASK_HOURS))]
        time_to_live_hours: Whole<1, 720>,
        /// Milliseconds between two polls that clients are told.
        #[schemars(extend("default" = defaults::TASK_POLL_MS))]
        poll_interval_ms: Whole<100, 60_000>,
    }

    /// The agent loop.
    Agent {
        /// Id of a box in boxes.directory.
        #[schemars(extend("default" = defaults::BOX_ID))]
        r#box: Name,
        /// File with text that is added to the fixed system prompt.
        user_system_prompt: PathOrDefault,
        /// Model calls of one run.
        #[schemars(extend("default" = defaults::MAX_ITERATIONS))]
        max_iterations: Whole<1, 10_000>,
        /// Equal failures in a row that end a run.
        #[schemars(extend("default" = defaults::SAME_FAILURES))]
        same_failure_limit: Whole<1, 1000>,
        /// Let the model think while it plans. Token counts are then approximate.
        #[schemars(extend("default" = false))]
        plan_think: bool,
    }

    /// The model server.
    Ollama {
        /// URL of Ollama's REST API.
        #[schemars(extend("default" = defaults::ENDPOINT))]
        endpoint: Endpoint,
        /// Model name as `ollama list` shows it. There is no default.
        #[schemars(required)]
        model: Text,
        /// Thinking: true, false, or a level where the model has levels.
        #[schemars(extend("default" = false))]
        think: Think,
        /// How long the model stays loaded: "5m", seconds, 0 = unload at once, negative = for ever.
        #[schemars(extend("default" = defaults::KEEP_ALIVE))]
        keep_alive: KeepAlive,
        /// Options that Ollama knows. What is not set is not sent.
        options: Options,
        /// Further options, sent as they are. A name listed under options is ignored here.
        extra_options: Extra,
    }

    /// Options that Ollama knows.
    Options {
        /// Context length in tokens.
        #[schemars(extend("default" = defaults::NUM_CTX))]
        num_ctx: Whole<256, 16_777_216>,
        /// Most tokens of one answer; -1 = 10 x num_ctx.
        #[schemars(extend("default" = defaults::NUM_PREDICT))]
        num_predict: Whole<-1, 16_777_216>,
        /// Tokens of one prompt batch.
        num_batch: Whole<1, 1_048_576>,
        /// Layers on the GPU; -1 = automatic.
        num_gpu: Whole<-1, 100_000>,
        /// The GPU for small tensors.
        main_gpu: Whole<0, 1024>,
        /// Map the model file into memory.
        use_mmap: bool,
        /// Processor threads; 0 = automatic.
        num_thread: Whole<0, 4096>,
        /// Tokens drafted ahead.
        draft_num_predict: Whole<0, 1_048_576>,
        /// Tokens kept when the context is cut; -1 = all.
        num_keep: Whole<-1, 16_777_216>,
        /// Random seed.
        seed: Whole<{ -0x8000_0000 }, 0xffff_ffff>,
        /// Candidates kept; 0 = all.
        top_k: Whole<0, 1_000_000>,
        /// Share of probability kept.
        top_p: Decimal<0, 1000>,
        /// Least probability against the best candidate.
        min_p: Decimal<0, 1000>,
        /// Typical sampling; 1 = off.
        typical_p: Decimal<0, 1000>,
        /// Tokens looked back at for repetition; 0 = off, -1 = num_ctx.
        repeat_last_n: Whole<-1, 16_777_216>,
        /// Randomness. A run can override it.
        temperature: Decimal<0, 2000>,
        /// Penalty for repetition; 1 = off.
        repeat_penalty: Decimal<0, 10_000>,
        /// Penalty for tokens that came before.
        presence_penalty: Decimal<-2000, 2000>,
        /// Penalty for tokens by how often they came before.
        frequency_penalty: Decimal<-2000, 2000>,
        /// Texts that end an answer.
        stop: List<String>,
        /// Ollama no longer reads it.
        tfs_z: Gone,
        /// Ollama no longer reads it.
        mirostat: Gone,
        /// Ollama no longer reads it.
        mirostat_tau: Gone,
        /// Ollama no longer reads it.
        mirostat_eta: Gone,
        /// Ollama no longer reads it.
        penalize_newline: Gone,
        /// Ollama no longer reads it.
        low_vram: Gone,
        /// Ollama no longer reads it.
        use_mlock: Gone,
    }

    /// The planner.
    Planner {
        /// Tasks of one plan.
        #[schemars(extend("default" = defaults::MAX_TASKS))]
        max_tasks: Whole<1, 1000>,
    }

    /// What may be reached and changed.
    Sandbox {
        /// readonly: workspaces can be read. development: also written, deleted in, and artifacts executed.
        #[schemars(extend("default" = "development"))]
        profile: Profile,
        /// Directories to work in. The first one is where MCP sessions start.
        workspaces: List<PathText>,
        /// Further directories or files.
        mounts: List<Mount>,
        /// The widest mode that anybody can choose.
        #[schemars(extend("default" = "workspace-write"))]
        max_mode: SandboxMode,
        /// Where incomplete enforcement is accepted.
        #[schemars(extend("default" = "read_only"))]
        partial: PartialRule,
        /// Relative paths that can be read but not written, at any depth of a workspace.
        #[schemars(extend("default" = defaults::PROTECT))]
        protect: List<RelativePath>,
        /// Environment variables for sandboxed programs. Do not put secrets here.
        environment: Variables,
        /// Programs that may be started.
        execution: Execution,
        /// What programs may connect to.
        network: Network,
        /// Memory, processes and time of a Task.
        resources: Resources,
    }

    /// A further directory or file.
    Mount {
        /// The directory or file.
        #[schemars(required)]
        path: PathText,
        /// What may be done there.
        #[schemars(required)]
        access: MountAccess,
    }

    /// Programs that may be started.
    Execution {
        /// The programs.
        entries: List<Entry>,
        /// Whether shells among them may start.
        #[schemars(extend("default" = "allow"))]
        shells: ShellRule,
        /// When a program's hash is computed again.
        #[schemars(extend("default" = "on_change"))]
        rehash: RehashRule,
    }

    /// A program that may be started.
    Entry {
        /// The word that the model uses. Unique without regard to case.
        #[schemars(required)]
        alias: Name,
        /// The program.
        #[schemars(required)]
        path: PathText,
        /// Directory of the program's own libraries and helpers.
        runtime_root: PathText,
    }

    /// What programs may connect to.
    Network {
        /// none: nothing. private: each other. local: also listed ports of this machine. restricted: also listed hosts.
        #[schemars(extend("default" = "none"))]
        access: NetworkAccess,
        /// Ports of this machine's loopback, for access: local.
        local_endpoints: List<Port>,
        /// Hosts and ports, for access: restricted.
        restricted_endpoints: List<Reachable>,
    }

    /// A host that programs may connect to.
    Reachable {
        /// Name or address.
        #[schemars(required)]
        host: HostText,
        /// TCP ports.
        #[schemars(required, length(min = 1))]
        ports: List<Port>,
    }

    /// Memory, processes and time of a Task.
    Resources {
        /// constrained: 1024 MiB, 4, 300 s. normal: 4096 MiB, 16, 1800 s. extended: 8192 MiB, 32, 3600 s.
        #[schemars(extend("default" = "normal"))]
        profile: ResourceProfile,
        /// MiB of memory instead of the profile's.
        memory_mb: Whole<1, 1_048_576>,
        /// Processes and threads instead of the profile's.
        process_limit: Whole<1, 65_536>,
        /// Seconds of one program instead of the profile's.
        execution_timeout_seconds: Whole<1, 604_800>,
    }

    /// Guards around tool calls.
    Guard {
        /// Tool calls in one planned Task before the operator is asked.
        #[schemars(extend("default" = defaults::TOOL_CALLS))]
        max_tool_calls_per_task: Whole<1, 1000>,
        /// Equal calls or errors after which the model is told.
        #[schemars(extend("default" = defaults::REPETITION))]
        repetition_notice: Whole<2, 100>,
        /// Whether destructive commands are stopped or only recorded.
        #[schemars(extend("default" = "enforce"))]
        hard_block: HardBlock,
        /// What tools may open: [scheme://]host[:port] or *.host; https where no scheme is written.
        url_allowlist: List<UrlPatternText>,
    }

    /// Decisions that a human takes.
    Approvals {
        /// Operations, or own command patterns, that need a decision each time.
        #[schemars(extend("default" = defaults::ASK))]
        ask: List<Ask>,
        /// Seconds to wait. Silence is a refusal.
        #[schemars(extend("default" = defaults::APPROVAL_SECONDS))]
        timeout_seconds: Whole<1, 86_400>,
    }

    /// An own command pattern that needs a decision each time.
    AskCommand {
        /// Shown to the person who decides.
        #[schemars(required)]
        name: Name,
        /// Words of the command line; * stands for one word, at the end for any number.
        #[schemars(required, length(min = 1))]
        argv: List<Text>,
    }

    /// The operator console.
    Console {
        /// Whether the console runs.
        #[schemars(extend("default" = true))]
        enabled: bool,
        /// Loopback address to listen on.
        #[schemars(extend("default" = defaults::LOOPBACK))]
        host: Loopback,
        /// Port to listen on; 0 = any free port, published in the state directory.
        #[schemars(extend("default" = defaults::CONSOLE_PORT))]
        port: Whole<0, 65_535>,
    }

    /// Boxes.
    Boxes {
        /// Directory of box manifests.
        #[schemars(extend("default" = defaults::BOXES))]
        directory: PathText,
    }

    /// The signed audit log.
    Audit {
        /// Directory of the audit log; empty = below the state directory.
        #[schemars(extend("default" = ""))]
        directory: PathOrDefault,
        /// File of the audit key; empty = below the state directory. AGENT_MCP_AUDIT_KEY goes before it.
        #[schemars(extend("default" = ""))]
        key_file: PathOrDefault,
    }

    /// What outlives a crash.
    State {
        /// State directory; empty = the system's own place for state.
        #[schemars(extend("default" = ""))]
        directory: PathOrDefault,
    }

    /// The tool file_edit.
    FileEdit {
        /// MiB up to which a backup is kept in memory.
        #[schemars(extend("default" = defaults::BACKUP_MIB))]
        memory_backup_limit_mb: Whole<0, 1024>,
    }

    /// Limits of tools and context.
    Limits {
        /// Bytes of a file that is read as a whole.
        #[schemars(extend("default" = defaults::WHOLE_READ_BYTES))]
        whole_read_bytes: Bytes,
        /// Results of one search.
        #[schemars(extend("default" = defaults::SEARCH_RESULTS))]
        search_max_results: Whole<1, 100_000>,
        /// Lines of one tail.
        #[schemars(extend("default" = defaults::TAIL_LINES))]
        tail_max_lines: Whole<1, 1_000_000>,
        /// Share of the context from which it is summarized.
        #[schemars(extend("default" = defaults::SUMMARY_RATIO))]
        context_summary_ratio: Decimal<100, 1000>,
        /// Bytes kept of each output stream of a program, half head, half tail.
        #[schemars(extend("default" = defaults::OUTPUT_BYTES))]
        process_output_bytes: Whole<1024, 67_108_864>,
        /// Entries of one directory listing.
        #[schemars(extend("default" = defaults::DIR_ENTRIES))]
        dir_list_entries: Whole<1, 100_000>,
        /// Bytes of the largest file that is edited.
        #[schemars(extend("default" = defaults::EDIT_BYTES))]
        edit_bytes: Bytes,
    }

    /// Texts for people.
    Localization {
        /// Directory of further locale files. en and ja are built in.
        #[schemars(extend("default" = defaults::LOCALES))]
        directory: PathText,
        /// Language of texts that the chosen one lacks.
        #[schemars(extend("default" = defaults::LANGUAGE))]
        fallback: Language,
    }

    /// Skills.
    Skills {
        /// Directory of skills.
        #[schemars(extend("default" = defaults::SKILLS))]
        directory: PathText,
    }

    /// Log files.
    Logging {
        /// Directory of logs; empty = below the state directory.
        #[schemars(extend("default" = ""))]
        directory: PathOrDefault,
        /// What is logged.
        #[schemars(extend("default" = "info"))]
        level: LogLevel,
        /// Whether HTTP requests are logged.
        #[schemars(extend("default" = true))]
        http_requests: bool,
        /// Bytes at which a log file is rotated.
        #[schemars(extend("default" = defaults::LOG_BYTES))]
        max_file_bytes: Whole<4096, 1_073_741_824>,
        /// Rotated files kept.
        #[schemars(extend("default" = defaults::LOG_FILES))]
        retained_files: Whole<1, 1000>,
    }

    /// Telemetry.
    Telemetry {
        /// OpenTelemetry endpoint; empty = off.
        #[schemars(extend("default" = ""))]
        otlp_endpoint: EndpointOrOff,
    }
}

/// One of `approvals.ask`: an operation, or an own pattern.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum Ask {
    Operation(Operation),
    Command(AskCommand),
}

impl Written for Ask {
    fn read(node: &Node, key: &str, report: &mut Report<'_>) -> Option<Self> {
        match &node.content {
            Content::Map(_) => AskCommand::read(node, key, report).map(Self::Command),
            _ => Operation::read(node, key, report).map(Self::Operation),
        }
    }

    fn keys(prefix: &str, out: &mut Vec<String>) {
        AskCommand::keys(prefix, out);
    }
}
