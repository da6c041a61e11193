//! What a tool gives back (DESIGN §7.7): the model's text, and the facts that must not get lost on the way to the audit.

use policy::effective::Sha256Digest;
use policy::{Category, Code, Fault, Refusal, Right};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// What kind of change was made outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// A file that did not exist.
    Created,
    /// A file with new bytes.
    Replaced,
    /// A file that is gone.
    Deleted,
    /// A file under another name; [`Effect::path`] is the new one.
    Renamed,
    /// A new directory.
    DirectoryMade,
    /// A directory that is gone.
    DirectoryRemoved,
    /// A program that ran, whatever it did; the path is the program.
    ProgramRan,
}

/// One change, for evidence (AGT-04) and audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// What kind.
    pub kind: EffectKind,
    /// Resolved path of what changed.
    pub path: PathBuf,
    /// Bytes before; nothing where there was no file.
    pub before_sha256: Option<Sha256Digest>,
    /// Bytes after; nothing where there is no file.
    pub after_sha256: Option<Sha256Digest>,
}

/// The result of one tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ToolResult {
    /// Whether the tool did what was asked.
    pub ok: bool,
    /// What the model sees: English, plain data, no tool names.
    pub output: String,
    /// Stable code of the failure.
    pub code: Option<Code>,
    /// The object the result is about.
    pub target_path: Option<String>,
    /// The right that was missing.
    pub required_permission: Option<Right>,
    /// `false`: the same call may not be sent again (DESIGN §7.8).
    pub retry_allowed: bool,
    /// What to do about it, for the model.
    pub resolution: Option<String>,
    /// What was changed. Also filled when something went wrong after the change.
    pub effects: Vec<Effect>,
    /// SHA-256 of [`ToolResult::output`].
    pub evidence: Sha256Digest,
    /// The refusal behind a failure, for the audit and for texts in the user's language.
    pub refusal: Option<Refusal>,
}

impl ToolResult {
    /// A success.
    pub fn success(output: String, target: Option<String>, effects: Vec<Effect>) -> Self {
        Self {
            ok: true,
            evidence: digest(output.as_bytes()),
            output,
            code: None,
            target_path: target,
            required_permission: None,
            retry_allowed: true,
            resolution: None,
            effects,
            refusal: None,
        }
    }

    /// A refusal or failure, with what had been changed before it.
    pub fn failure(refusal: Refusal, effects: Vec<Effect>) -> Self {
        let resolution = resolution(refusal.code);
        let output = describe(&refusal, resolution);
        Self {
            ok: false,
            evidence: digest(output.as_bytes()),
            output,
            code: Some(refusal.code),
            target_path: Some(refusal.target.clone()),
            required_permission: refusal.required,
            retry_allowed: may_retry(refusal.code),
            resolution: Some(resolution.to_owned()),
            effects,
            refusal: Some(refusal),
        }
    }
}

impl From<Refusal> for ToolResult {
    fn from(refusal: Refusal) -> Self {
        Self::failure(refusal, Vec::new())
    }
}

impl From<Fault> for ToolResult {
    fn from(fault: Fault) -> Self {
        Self::failure(of_fault(fault), Vec::new())
    }
}

/// A fault as the refusal it leads to, so that tools have one way out.
pub(super) fn of_fault(fault: Fault) -> Refusal {
    Refusal::new(
        fault.code,
        format!("{:?}", fault.blame).to_lowercase(),
        fault.target,
    )
    .with("detail", fault.detail)
}

/// SHA-256 of some bytes.
pub(super) fn digest(bytes: &[u8]) -> Sha256Digest {
    Sha256Digest(Sha256::digest(bytes).into())
}

/// A denial is never retried as it was (DESIGN §8.4), a machine that failed is not the model's to repair.
fn may_retry(code: Code) -> bool {
    matches!(
        code.category(),
        Category::ToolFailure | Category::ResourceLimit | Category::Validation
    )
}

fn describe(refusal: &Refusal, resolution: &str) -> String {
    let denied = refusal.code.category() == Category::PolicyDenied;
    let mut text = format!(
        "{} {}\n",
        if denied { "DENIED" } else { "FAILED" },
        refusal.code
    );
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("{name}: {}\n", super::text::one_line(value)));
        }
    };
    line("target", &refusal.target);
    line("rule", &refusal.rule);
    line("missing right", refusal.required.map_or("", Right::word));
    for (name, value) in &refusal.detail {
        line(name, value);
    }
    line("what to do", resolution);
    text
}

/// What the model can do about a failure.
fn resolution(code: Code) -> &'static str {
    match code {
        Code::PathDenied | Code::PathEscapes => {
            "This place is outside what was granted. Work inside the workspace; do not send this call again."
        }
        Code::PathProtected => {
            "This file belongs to the system and cannot be touched. Go on without it."
        }
        Code::PathInvalid => "Give a plain path: no NUL, not empty, not too long.",
        Code::FileNotFound => "Check the path; list the directory that should hold it.",
        Code::FileExists => "Choose another name, or edit what is there.",
        Code::FileKindUnsupported => {
            "Only regular files and directories can be used, not links, pipes, sockets or devices."
        }
        Code::FileWrongKind => {
            "This is a directory where a file is needed, or the other way round."
        }
        Code::FileTooLarge => "Read it in parts with mode range, or search in it.",
        Code::FileBinary => "This is not text. Ask for its metadata instead.",
        Code::FileHashMismatch => "The file is not what you last saw. Read it again, then decide.",
        Code::PatchMismatch => {
            "Read the file again and give an old_text that is there exactly once, with enough lines around it."
        }
        Code::FileVerifyFailed => {
            "The change did not survive. Read the file again before anything else."
        }
        Code::RenameCrossDevice => "Write the new file and delete the old one instead.",
        Code::DirectoryNotEmpty => {
            "Only empty directories are removed. Delete its files one by one if that is wanted."
        }
        Code::ToolArgumentsInvalid => "Correct the arguments and send the call again.",
        Code::ExecutableUnknown => "Use one of the allowed names.",
        Code::ExecutableDenied | Code::ShellDenied => {
            "This program may not be started. Use one of the allowed names."
        }
        Code::ExecutableHashChanged | Code::ExecutableResolutionChanged => {
            "The program is not the approved one any more. Only a human can approve it again; do without it."
        }
        Code::ProcessTimeout => "It ran too long and was ended. Do less in one call.",
        Code::ProcessMemory => "It used too much memory and was ended. Do less in one call.",
        Code::ProcessFailed => "Read its output, correct the cause, run it again.",
        _ => "Try something else, or report that it is not possible.",
    }
}
