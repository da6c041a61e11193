//! The six internal tools, their typed arguments (DESIGN §7) and the operations they amount to.

use crate::code::Code;
use crate::fault::Refusal;
use crate::rights::Rights;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

mod outward;

pub(crate) use outward::program_operations;

/// A tool of the internal catalogue (DESIGN §6.5). Never listed to MCP clients (AGT-06).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolName {
    /// Search by glob, name, text, regex, or the tail of a file.
    FileSearch,
    /// Read a file, a byte range, or its metadata.
    FileRead,
    /// Overwrite, patch, replace, delete, rename.
    FileEdit,
    /// Run one program, confined.
    ProcessRun,
    /// Add Tasks, dependencies, estimates.
    TaskUpdate,
    /// Make, remove or list a directory.
    Dir,
}

impl ToolName {
    /// The whole catalogue.
    pub const ALL: [Self; 6] = [
        Self::FileSearch,
        Self::FileRead,
        Self::FileEdit,
        Self::ProcessRun,
        Self::TaskUpdate,
        Self::Dir,
    ];

    /// The catalogue name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FileSearch => "file_search",
            Self::FileRead => "file_read",
            Self::FileEdit => "file_edit",
            Self::ProcessRun => "process_run",
            Self::TaskUpdate => "task_update",
            Self::Dir => "dir",
        }
    }

    /// Whether its success can be an external effect (DESIGN §7.8). `dir list` is not, see [`ToolArguments::has_side_effect`].
    pub fn can_have_side_effect(self) -> bool {
        matches!(self, Self::FileEdit | Self::ProcessRun | Self::Dir)
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ToolName {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::ALL
            .into_iter()
            .find(|tool| tool.as_str() == text)
            .ok_or_else(|| {
                let known: Vec<&str> = Self::ALL.iter().map(|tool| tool.as_str()).collect();
                Refusal::new(Code::ToolUnknown, "tool catalogue", clip(text))
                    .with("allowed", known.join(", "))
            })
    }
}

/// How `file_search` searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchMode {
    /// Paths that match a glob.
    Glob,
    /// File names that contain the text.
    Name,
    /// Lines that contain the text.
    Text,
    /// Lines that match the regular expression.
    Regex,
    /// The last lines of one text file.
    Tail,
}

/// Arguments of `file_search` (DESIGN §7.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSearch {
    /// Directory or file to search.
    pub root: String,
    /// How.
    pub mode: SearchMode,
    /// Glob, name part, text or expression; unused by `tail`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub query: String,
    /// At most this many results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_results: Option<u64>,
    /// Lines for `tail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_lines: Option<u64>,
}

/// How `file_read` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadMode {
    /// The whole text file.
    Whole,
    /// A byte range.
    Range,
    /// Kind, size, times, hash.
    Metadata,
}

/// Arguments of `file_read` (DESIGN §7.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRead {
    /// The file.
    pub path: String,
    /// How; `whole` if absent.
    #[serde(default = "whole")]
    pub mode: ReadMode,
    /// First byte of the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// Bytes of the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

fn whole() -> ReadMode {
    ReadMode::Whole
}

/// What `file_edit` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EditOperation {
    /// Write the whole content; creates the file if it is not there.
    Overwrite,
    /// Replace one exact piece of text.
    Patch,
    /// Like overwrite, never seen half written.
    AtomicReplace,
    /// Remove the file.
    Delete,
    /// Move the file; the destination must not exist.
    Rename,
}

/// Arguments of `file_edit` (DESIGN §7.3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEdit {
    /// The file.
    pub path: String,
    /// What to do.
    pub operation: EditOperation,
    /// New content for overwrite and atomic_replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// `{"old_text":"…","new_text":"…"}` as a JSON text, for patch.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "text_or_object"
    )]
    pub patch: Option<String>,
    /// Refuse unless the file has this SHA-256 now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_sha256: Option<String>,
    /// Destination of a rename.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_path: Option<String>,
}

/// Models often send the patch as an object instead of a JSON text; both mean the same.
fn text_or_object<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    match Option::<Value>::deserialize(deserializer)? {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(object @ Value::Object(_)) => Ok(Some(object.to_string())),
        Some(_) => Err(serde::de::Error::custom(
            "patch must be a JSON text with old_text and new_text",
        )),
    }
}

fn null_is_default<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.unwrap_or_default())
}

/// Arguments of `process_run` (DESIGN §7.4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessRun {
    /// Alias of an entry, or path of a runtime component or workspace artifact.
    pub executable: String,
    /// Arguments after the program's name; never a shell line.
    #[serde(default)]
    pub args: Vec<String>,
    /// Working directory; the workspace root if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Seconds; capped by the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Text for standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
}

/// What `task_update` does. The state of a Task is not among it (DESIGN §7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOperation {
    /// A new Task.
    Add,
    /// A new dependency.
    AddDependency,
    /// A new estimate.
    SetEstimate,
}

/// Arguments of `task_update` (DESIGN §7.5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskUpdate {
    /// What to do.
    pub operation: TaskOperation,
    /// The Task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Description of a new Task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Tasks it depends on.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// Token Budget Class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_class: Option<String>,
    /// O.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimistic_tokens: Option<u64>,
    /// M.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_likely_tokens: Option<u64>,
    /// P.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pessimistic_tokens: Option<u64>,
    /// Whether a new Task needs an effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_external_effect: Option<bool>,
    /// Tools a new Task needs.
    #[serde(default)]
    pub required_tools: Vec<String>,
}

/// What `dir` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DirOperation {
    /// Make it and its parents.
    Mkdir,
    /// Remove it if it is empty.
    Rmdir,
    /// List its entries.
    List,
}

/// Arguments of `dir` (DESIGN §7.6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dir {
    /// The directory.
    pub path: String,
    /// What to do.
    pub operation: DirOperation,
}

/// Typed arguments of one call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ToolArguments {
    /// `file_search`
    FileSearch(FileSearch),
    /// `file_read`
    FileRead(FileRead),
    /// `file_edit`
    FileEdit(FileEdit),
    /// `process_run`
    ProcessRun(ProcessRun),
    /// `task_update`
    TaskUpdate(TaskUpdate),
    /// `dir`
    Dir(Dir),
}

/// Names of operations in boxes and in `approvals.ask` (guards.md).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Read a file, list, search.
    FsRead,
    /// Create, overwrite, rename.
    FsWrite,
    /// Remove a file.
    FsDelete,
    /// Make a directory.
    DirMake,
    /// Remove an empty directory.
    DirRemove,
    /// Run a program.
    ProcessRun,
    /// Read a repository.
    GitRead,
    /// Send commits elsewhere.
    GitPush,
    /// Send a package to a registry.
    PackagePublish,
    /// Open a connection.
    NetworkOpen,
    /// A wider sandbox mode.
    ModeRaise,
    /// A wider network level.
    NetworkRaise,
    /// Act in a browser.
    BrowserAct,
    /// Propose a box draft.
    DraftPropose,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 14] = [
        Self::FsRead,
        Self::FsWrite,
        Self::FsDelete,
        Self::DirMake,
        Self::DirRemove,
        Self::ProcessRun,
        Self::GitRead,
        Self::GitPush,
        Self::PackagePublish,
        Self::NetworkOpen,
        Self::ModeRaise,
        Self::NetworkRaise,
        Self::BrowserAct,
        Self::DraftPropose,
    ];

    /// The stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::FsRead => "fs_read",
            Self::FsWrite => "fs_write",
            Self::FsDelete => "fs_delete",
            Self::DirMake => "dir_make",
            Self::DirRemove => "dir_remove",
            Self::ProcessRun => "process_run",
            Self::GitRead => "git_read",
            Self::GitPush => "git_push",
            Self::PackagePublish => "package_publish",
            Self::NetworkOpen => "network_open",
            Self::ModeRaise => "mode_raise",
            Self::NetworkRaise => "network_raise",
            Self::BrowserAct => "browser_act",
            Self::DraftPropose => "draft_propose",
        }
    }
}

/// Longest path text, bytes (Linux `PATH_MAX`).
pub const MAX_PATH_BYTES: usize = 4096;
/// Most arguments of one program.
pub const MAX_ARGUMENTS: usize = 1024;
/// Longest single argument or query, bytes.
pub const MAX_ARGUMENT_BYTES: usize = 128 * 1024;
/// Longest text for a program's standard input, bytes.
pub const MAX_STDIN_BYTES: usize = 16 * 1024 * 1024;

impl ToolArguments {
    /// Stage 1, the shape: typed arguments from what the model sent.
    ///
    /// # Errors
    /// `tool.arguments_invalid` naming what is wrong; the model may try again.
    pub fn parse(tool: ToolName, arguments: Value) -> Result<Self, Refusal> {
        if !arguments.is_object() {
            return Err(shape(tool, "arguments must be a JSON object"));
        }
        let parsed = match tool {
            ToolName::FileSearch => serde_json::from_value(arguments).map(Self::FileSearch),
            ToolName::FileRead => serde_json::from_value(arguments).map(Self::FileRead),
            ToolName::FileEdit => serde_json::from_value(arguments).map(Self::FileEdit),
            ToolName::ProcessRun => serde_json::from_value(arguments).map(Self::ProcessRun),
            ToolName::TaskUpdate => serde_json::from_value(arguments).map(Self::TaskUpdate),
            ToolName::Dir => serde_json::from_value(arguments).map(Self::Dir),
        };
        let parsed = parsed.map_err(|error| shape(tool, &error.to_string()))?;
        parsed.check_lengths()?;
        parsed.check_combinations()?;
        Ok(parsed)
    }

    fn check_lengths(&self) -> Result<(), Refusal> {
        let tool = self.tool();
        let text = |name: &str, value: &str, limit: usize| {
            if value.contains('\0') {
                return Err(shape(tool, &format!("{name} contains a NUL character")));
            }
            if value.len() > limit {
                return Err(shape(tool, &format!("{name} is longer than {limit} bytes")));
            }
            Ok(())
        };
        let path = |name: &str, value: &str| {
            if value.trim().is_empty() {
                return Err(shape(tool, &format!("{name} must not be empty")));
            }
            text(name, value, MAX_PATH_BYTES)
        };
        match self {
            Self::FileSearch(call) => {
                path("root", &call.root)?;
                text("query", &call.query, MAX_ARGUMENT_BYTES)
            }
            Self::FileRead(call) => path("path", &call.path),
            Self::FileEdit(call) => {
                path("path", &call.path)?;
                call.new_path
                    .as_deref()
                    .map_or(Ok(()), |new_path| path("new_path", new_path))
            }
            Self::ProcessRun(call) => {
                path("executable", &call.executable)?;
                if let Some(cwd) = &call.cwd {
                    path("cwd", cwd)?;
                }
                if call.args.len() > MAX_ARGUMENTS {
                    return Err(shape(
                        tool,
                        &format!("args has more than {MAX_ARGUMENTS} items"),
                    ));
                }
                if call.stdin.as_ref().map_or(0, String::len) > MAX_STDIN_BYTES {
                    return Err(shape(
                        tool,
                        &format!("stdin is longer than {MAX_STDIN_BYTES} bytes"),
                    ));
                }
                call.args
                    .iter()
                    .try_for_each(|argument| text("args", argument, MAX_ARGUMENT_BYTES))
            }
            Self::TaskUpdate(call) => {
                for (name, list) in [
                    ("depends_on", &call.depends_on),
                    ("required_tools", &call.required_tools),
                ] {
                    if list.len() > MAX_ARGUMENTS {
                        return Err(shape(
                            tool,
                            &format!("{name} has more than {MAX_ARGUMENTS} items"),
                        ));
                    }
                    list.iter()
                        .try_for_each(|item| text(name, item, MAX_PATH_BYTES))?;
                }
                for (name, value, limit) in [
                    ("task_id", &call.task_id, MAX_PATH_BYTES),
                    ("budget_class", &call.budget_class, MAX_PATH_BYTES),
                    ("description", &call.description, MAX_ARGUMENT_BYTES),
                ] {
                    text(name, value.as_deref().unwrap_or_default(), limit)?;
                }
                Ok(())
            }
            Self::Dir(call) => path("path", &call.path),
        }
    }

    fn check_combinations(&self) -> Result<(), Refusal> {
        let tool = self.tool();
        let need = |present: bool, text: &str| {
            if present {
                Ok(())
            } else {
                Err(shape(tool, text))
            }
        };
        match self {
            Self::FileSearch(call) => {
                need(
                    call.mode == SearchMode::Tail || !call.query.is_empty(),
                    "query is required for this mode",
                )?;
                need(
                    call.max_results != Some(0),
                    "max_results must be at least 1",
                )?;
                need(call.tail_lines != Some(0), "tail_lines must be at least 1")
            }
            Self::FileRead(call) => {
                need(
                    call.mode != ReadMode::Range || call.length.is_some_and(|length| length > 0),
                    "length is required for range and must be at least 1",
                )?;
                let end = call
                    .start
                    .unwrap_or(0)
                    .checked_add(call.length.unwrap_or(0));
                need(end.is_some(), "start and length are too large")
            }
            Self::FileEdit(call) => match call.operation {
                EditOperation::Overwrite | EditOperation::AtomicReplace => need(
                    call.content.is_some(),
                    "content is required for this operation",
                ),
                EditOperation::Patch => need(
                    call.patch.is_some(),
                    "patch is required: {\"old_text\":\"…\",\"new_text\":\"…\"}",
                ),
                EditOperation::Rename => {
                    need(call.new_path.is_some(), "new_path is required for rename")
                }
                EditOperation::Delete => Ok(()),
            },
            Self::ProcessRun(call) => need(
                call.timeout_seconds != Some(0),
                "timeout_seconds must be at least 1",
            ),
            Self::TaskUpdate(_) | Self::Dir(_) => Ok(()),
        }
    }

    /// Which tool they belong to.
    pub fn tool(&self) -> ToolName {
        match self {
            Self::FileSearch(_) => ToolName::FileSearch,
            Self::FileRead(_) => ToolName::FileRead,
            Self::FileEdit(_) => ToolName::FileEdit,
            Self::ProcessRun(_) => ToolName::ProcessRun,
            Self::TaskUpdate(_) => ToolName::TaskUpdate,
            Self::Dir(_) => ToolName::Dir,
        }
    }

    /// Whether success changes something outside (DESIGN §7.8).
    pub fn has_side_effect(&self) -> bool {
        match self {
            Self::FileEdit(_) | Self::ProcessRun(_) => true,
            Self::Dir(call) => call.operation != DirOperation::List,
            Self::FileSearch(_) | Self::FileRead(_) | Self::TaskUpdate(_) => false,
        }
    }

    /// The operations it amounts to (L1, L5).
    pub fn operations(&self) -> BTreeSet<Operation> {
        match self {
            Self::FileSearch(_) | Self::FileRead(_) => BTreeSet::from([Operation::FsRead]),
            Self::FileEdit(call) => match call.operation {
                EditOperation::Delete => BTreeSet::from([Operation::FsDelete]),
                _ => BTreeSet::from([Operation::FsWrite]),
            },
            Self::Dir(call) => match call.operation {
                DirOperation::Mkdir => BTreeSet::from([Operation::DirMake]),
                DirOperation::Rmdir => BTreeSet::from([Operation::DirRemove]),
                DirOperation::List => BTreeSet::from([Operation::FsRead]),
            },
            Self::ProcessRun(call) => program_operations(&call.executable, &call.args),
            Self::TaskUpdate(_) => BTreeSet::new(),
        }
    }

    /// Every path text with the rights it needs, in argument order (DESIGN §7). Programs are judged apart.
    pub fn paths(&self) -> Vec<(&str, Rights)> {
        match self {
            Self::FileSearch(call) => vec![(&call.root, Rights::READ)],
            Self::FileRead(call) => vec![(&call.path, Rights::READ)],
            Self::FileEdit(call) => match call.operation {
                EditOperation::Overwrite | EditOperation::AtomicReplace => {
                    vec![(&call.path, crate::rights::Right::Write.into())]
                }
                EditOperation::Patch => vec![(&call.path, Rights::READ_WRITE)],
                EditOperation::Delete => vec![(&call.path, crate::rights::Right::Delete.into())],
                EditOperation::Rename => {
                    let write = crate::rights::Right::Write.into();
                    vec![
                        (call.path.as_str(), write),
                        (call.new_path.as_deref().unwrap_or(""), write),
                    ]
                }
            },
            Self::ProcessRun(call) => call
                .cwd
                .as_deref()
                .map(|cwd| (cwd, Rights::READ))
                .into_iter()
                .collect(),
            Self::Dir(call) => vec![(
                &call.path,
                match call.operation {
                    DirOperation::Mkdir => crate::rights::Right::Write.into(),
                    DirOperation::Rmdir => crate::rights::Right::Delete.into(),
                    DirOperation::List => Rights::READ,
                },
            )],
            Self::TaskUpdate(_) => Vec::new(),
        }
    }
}

fn shape(tool: ToolName, detail: &str) -> Refusal {
    Refusal::new(Code::ToolArgumentsInvalid, "shape", tool.as_str()).with("detail", clip(detail))
}

fn clip(text: &str) -> String {
    text.chars().take(300).collect()
}
