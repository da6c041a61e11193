//! `file_edit` (DESIGN §7.3, §13; SPEC §12): every change is one transaction.
//!
//! Old bytes are kept, the intent is recorded, the new bytes are written beside the file, synced, moved over it in one
//! step, and read back; if they are not what was meant, the old bytes come back and are verified.

mod patch;
mod relocate;
mod replace;
mod snapshot;

use super::open::{existing_file, shown};
use super::result::ToolResult;
use super::{EffectLog, ToolContext};
use policy::effective::Sha256Digest;
use policy::path::ResolvedPath;
use policy::tool::{EditOperation, FileEdit};
use policy::{Code, Refusal};

/// Changes the judged file.
///
/// # Errors
/// As a failed [`ToolResult`]: `file.hash_mismatch`, `file.patch_mismatch`, `file.too_large`, `file.exists`,
/// `file.verify_failed`, `file.rename_cross_device`, and what the operating system refuses.
pub(super) fn run<L: EffectLog>(
    call: &FileEdit,
    paths: Vec<ResolvedPath>,
    context: &ToolContext<'_, L>,
) -> ToolResult {
    let mut paths = paths.into_iter();
    let Some(target) = paths.next() else {
        return Refusal::new(Code::Internal, "dispatch", "one path expected").into();
    };
    let done = expected(call).and_then(|expected| match call.operation {
        EditOperation::Overwrite | EditOperation::AtomicReplace => {
            let content = call.content.as_deref().unwrap_or_default();
            replace::run(&target, expected, context, |_| {
                Ok(content.as_bytes().to_vec())
            })
        }
        EditOperation::Patch => {
            let patch = patch::Patch::parse(call.patch.as_deref().unwrap_or_default())?;
            existing_file(&target)?;
            replace::run(&target, expected, context, |old| {
                patch.apply(old, &shown(target.path()))
            })
        }
        EditOperation::Delete => relocate::delete(&target, expected, context),
        EditOperation::Rename => match paths.next() {
            Some(new) => relocate::rename(&target, &new, expected, context),
            None => Err(Refusal::new(
                Code::Internal,
                "dispatch",
                "two paths expected",
            )),
        },
    });
    done.unwrap_or_else(ToolResult::from)
}

/// The guard of optimistic concurrency; models send an empty text for "none".
fn expected(call: &FileEdit) -> Result<Option<Sha256Digest>, Refusal> {
    match call.expected_sha256.as_deref().map(str::trim) {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            Refusal::new(
                Code::ToolArgumentsInvalid,
                "expected_sha256",
                shown(call.path.as_ref()),
            )
            .with("detail", "expected_sha256 must be 64 hexadecimal digits")
        }),
    }
}

/// Compares what is there with what the caller believes is there.
fn guard(
    expected: Option<Sha256Digest>,
    found: Sha256Digest,
    target: &ResolvedPath,
) -> Result<(), Refusal> {
    match expected {
        Some(expected) if expected != found => Err(Refusal::new(
            Code::FileHashMismatch,
            "expected_sha256",
            shown(target.path()),
        )
        .with("expected", expected)
        .with("found", found)),
        _ => Ok(()),
    }
}

fn changed_meanwhile(target: &ResolvedPath) -> Refusal {
    Refusal::new(
        Code::FileHashMismatch,
        "changed while it was edited; nothing was written",
        shown(target.path()),
    )
}
