//! Names that go away or change: delete and rename.

use super::{changed_meanwhile, guard};
use crate::tools::dir::parent_allows;
use crate::tools::effect::{Before, EffectEnd, Intent, record};
use crate::tools::open::{self, Opened, existing_file, shown};
use crate::tools::result::{Effect, EffectKind, ToolResult};
use crate::tools::{EffectLog, Fuse, ToolContext, os};
use policy::effective::Sha256Digest;
use policy::path::ResolvedPath;
use policy::{Code, Refusal, Right};
use std::io;

/// Removes one file.
///
/// # Errors
/// Not a file, other hash, or the operating system refuses.
pub(super) fn delete<L: EffectLog>(
    target: &ResolvedPath,
    expected: Option<Sha256Digest>,
    context: &ToolContext<'_, L>,
) -> Result<ToolResult, Refusal> {
    let before = look(target)?;
    guard(expected, before.sha256, target)?;
    context.walker.confirm(target)?;
    let intent = Intent::Delete {
        path: target.path().to_owned(),
        before: before.clone(),
    };
    let recorded = record(context.effect_log, &intent)?;
    context.burn(Fuse::Recorded);
    let removed = unchanged(target, &before).and_then(|()| {
        let refused = |error| os::refused(&error, shown(target.path()), Some(Right::Delete));
        target.parent().remove_file(target.name()).map_err(refused)
    });
    if let Err(refusal) = removed {
        return Err(recorded.close_failed(EffectEnd::Undone, refusal));
    }
    context.burn(Fuse::Applied);
    let synced = os::sync_directory(target.parent());
    recorded.close(if synced.is_ok() {
        EffectEnd::Done
    } else {
        EffectEnd::Unclear
    })?;
    let path = shown(target.path());
    let effect = Effect {
        kind: EffectKind::Deleted,
        path: target.path().to_owned(),
        before_sha256: Some(before.sha256),
        after_sha256: None,
    };
    Ok(ToolResult::success(
        format!("deleted {path} (sha256 {})\n", before.sha256),
        Some(path),
        vec![effect],
    ))
}

/// Moves one file to a name that must be free (DESIGN §7.3). Directories are not renamed: what is protected inside them
/// would move along.
///
/// # Errors
/// `file.exists`, `file.rename_cross_device`, other hash, or the operating system refuses.
pub(super) fn rename<L: EffectLog>(
    target: &ResolvedPath,
    new: &ResolvedPath,
    expected: Option<Sha256Digest>,
    context: &ToolContext<'_, L>,
) -> Result<ToolResult, Refusal> {
    let before = look(target)?;
    guard(expected, before.sha256, target)?;
    if new.object().is_some() {
        return Err(Refusal::new(
            Code::FileExists,
            "the new name must be free",
            shown(new.path()),
        ));
    }
    for place in [target, new] {
        if !parent_allows(context.policy, place, Right::Write) {
            let rule = "granted file, not directory";
            return Err(
                Refusal::new(Code::PathDenied, rule, shown(place.path())).requiring(Right::Write)
            );
        }
        context.walker.confirm(place)?;
    }
    let intent = Intent::Rename {
        path: target.path().to_owned(),
        new_path: new.path().to_owned(),
        before: before.clone(),
    };
    let recorded = record(context.effect_log, &intent)?;
    context.burn(Fuse::Recorded);
    let moved = unchanged(target, &before).and_then(|()| {
        let moved = os::rename_exclusive(target.parent(), target.name(), new.parent(), new.name());
        moved.map_err(|error| os::refused(&error, shown(new.path()), Some(Right::Write)))
    });
    if let Err(refusal) = moved {
        return Err(recorded.close_failed(EffectEnd::Undone, refusal));
    }
    context.burn(Fuse::Applied);
    let synced =
        os::sync_directory(new.parent()).and_then(|()| os::sync_directory(target.parent()));
    context.burn(Fuse::Synced);
    if synced.is_err() || !arrived(target, new, &before) {
        let back = os::rename_exclusive(new.parent(), new.name(), target.parent(), target.name());
        let undone = back.is_ok() && unchanged_bytes(target, &before);
        let failure = Refusal::new(
            Code::FileVerifyFailed,
            "read back after renaming",
            shown(new.path()),
        );
        return Err(recorded.close_failed(
            if undone {
                EffectEnd::Undone
            } else {
                EffectEnd::Unclear
            },
            failure,
        ));
    }
    context.burn(Fuse::Verified);
    recorded.close(EffectEnd::Done)?;
    let path = shown(new.path());
    let effect = Effect {
        kind: EffectKind::Renamed,
        path: new.path().to_owned(),
        before_sha256: Some(before.sha256),
        after_sha256: Some(before.sha256),
    };
    let output = format!(
        "renamed {} to {path} (sha256 {})\n",
        shown(target.path()),
        before.sha256
    );
    Ok(ToolResult::success(output, Some(path), vec![effect]))
}

/// Which file it is and which bytes it has.
fn look(target: &ResolvedPath) -> Result<Before, Refusal> {
    existing_file(target)?;
    let mut opened: Opened = open::for_reading(target)?;
    let refused = |error: io::Error| os::refused(&error, shown(target.path()), Some(Right::Read));
    let sha256 = opened.hash().map_err(refused)?;
    Ok(Before {
        sha256,
        identity: os::identity(&opened.metadata),
        mode: os::mode_of(&opened.metadata),
    })
}

fn unchanged(target: &ResolvedPath, before: &Before) -> Result<(), Refusal> {
    match target.parent().symlink_metadata(target.name()) {
        Ok(now) if os::identity(&now) == before.identity => Ok(()),
        _ => Err(changed_meanwhile(target)),
    }
}

fn unchanged_bytes(target: &ResolvedPath, before: &Before) -> bool {
    open::regular(target.parent(), target.name(), target.path())
        .is_ok_and(|mut opened| opened.hash().is_ok_and(|found| found == before.sha256))
}

fn arrived(target: &ResolvedPath, new: &ResolvedPath, before: &Before) -> bool {
    let gone = target.parent().symlink_metadata(target.name());
    gone.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) && unchanged_bytes(new, before)
}
