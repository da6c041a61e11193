//! `dir` (DESIGN §7.6): make, remove empty, list.

use super::effect::{EffectEnd, Intent, Recorded, record};
use super::open::shown;
use super::result::{Effect, EffectKind, ToolResult};
use super::{EffectLog, Fuse, ToolContext, os, text};
use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use policy::path::{ObjectKind, ResolvedPath};
use policy::tool::{Dir as DirCall, DirOperation};
use policy::{Code, EffectivePolicy, Refusal, Right};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// Makes, removes or lists the judged directory.
///
/// # Errors
/// `file.exists` where a file is in the way, `directory.not_empty`, `file.wrong_kind`, `file.not_found`.
pub(super) fn run<L: EffectLog>(
    call: &DirCall,
    target: &ResolvedPath,
    context: &ToolContext<'_, L>,
) -> Result<ToolResult, Refusal> {
    match call.operation {
        DirOperation::Mkdir => make(target, context),
        DirOperation::Rmdir => remove(target, context),
        DirOperation::List => list(target, context),
    }
}

/// Whether names may be made and removed in the directory that holds the target. A granted single file (FS-01) does not
/// grant its directory.
pub(super) fn parent_allows(policy: &EffectivePolicy, target: &ResolvedPath, right: Right) -> bool {
    target
        .path()
        .parent()
        .is_some_and(|parent| policy.rights_at(parent).allows(right))
}

fn make<L: EffectLog>(
    target: &ResolvedPath,
    context: &ToolContext<'_, L>,
) -> Result<ToolResult, Refusal> {
    let path = shown(target.path());
    match target.object().map(|object| object.kind) {
        Some(ObjectKind::Directory) => {
            return Ok(ToolResult::success(
                format!("{path} is there already\n"),
                Some(path),
                Vec::new(),
            ));
        }
        Some(_) => return Err(Refusal::new(Code::FileExists, "a file is there", path)),
        None => {}
    }
    if !parent_allows(context.policy, target, Right::Write) {
        return Err(
            Refusal::new(Code::PathDenied, "granted file, not directory", path)
                .requiring(Right::Write),
        );
    }
    let names: Vec<OsString> = target.name().iter().map(OsStr::to_owned).collect();
    let mut paths: Vec<PathBuf> = target
        .path()
        .ancestors()
        .take(names.len())
        .map(Path::to_owned)
        .collect();
    paths.reverse();
    context.walker.confirm(target)?;
    let recorded = record(
        context.effect_log,
        &Intent::MakeDirectories {
            paths: paths.clone(),
        },
    )?;
    context.burn(Fuse::Recorded);
    make_recorded(target, &names, recorded, context)?;
    let effects = paths
        .iter()
        .map(|path| effect(EffectKind::DirectoryMade, path))
        .collect();
    let made: Vec<String> = paths
        .iter()
        .map(|path| format!("made {}\n", shown(path)))
        .collect();
    Ok(ToolResult::success(made.concat(), Some(path), effects))
}

fn make_recorded<L: EffectLog>(
    target: &ResolvedPath,
    names: &[OsString],
    recorded: Recorded<'_, L>,
    context: &ToolContext<'_, L>,
) -> Result<(), Refusal> {
    let mut made: Vec<(Dir, &OsStr)> = Vec::new();
    let done = (|| {
        let mut parent = target.parent().try_clone()?;
        for name in names {
            parent.create_dir(name)?;
            made.push((parent.try_clone()?, name));
            os::sync_directory(&parent)?;
            parent = parent.open_dir_nofollow(name)?;
        }
        context.burn(Fuse::Applied);
        Ok(())
    })();
    match done {
        Ok(()) => recorded.close(EffectEnd::Done),
        Err(error) => {
            let failure = os::refused(&error, shown(target.path()), Some(Right::Write));
            let undone = made
                .iter()
                .rev()
                .all(|(parent, name)| parent.remove_dir(name).is_ok());
            Err(recorded.close_failed(
                if undone {
                    EffectEnd::Undone
                } else {
                    EffectEnd::Unclear
                },
                failure,
            ))
        }
    }
}

fn remove<L: EffectLog>(
    target: &ResolvedPath,
    context: &ToolContext<'_, L>,
) -> Result<ToolResult, Refusal> {
    let path = shown(target.path());
    match target.object().map(|object| object.kind) {
        None => return Err(Refusal::new(Code::FileNotFound, "must exist", path)),
        Some(ObjectKind::Directory) => {}
        Some(_) => return Err(Refusal::new(Code::FileWrongKind, "directory", path)),
    }
    if target.name() == Path::new(".") {
        return Err(
            Refusal::new(Code::PathDenied, "a granted root stays", path).requiring(Right::Delete)
        );
    }
    let failed = |error: io::Error| os::refused(&error, &path, Some(Right::Delete));
    let metadata = target
        .parent()
        .symlink_metadata(target.name())
        .map_err(failed)?;
    context.walker.confirm(target)?;
    let intent = Intent::RemoveDirectory {
        path: target.path().to_owned(),
        mode: os::mode_of(&metadata),
    };
    let recorded = record(context.effect_log, &intent)?;
    context.burn(Fuse::Recorded);
    if let Err(error) = target.parent().remove_dir(target.name()) {
        return Err(recorded.close_failed(EffectEnd::Undone, failed(error)));
    }
    context.burn(Fuse::Applied);
    let synced = os::sync_directory(target.parent());
    recorded.close(if synced.is_ok() {
        EffectEnd::Done
    } else {
        EffectEnd::Unclear
    })?;
    let effects = vec![effect(EffectKind::DirectoryRemoved, target.path())];
    Ok(ToolResult::success(
        format!("removed {path}\n"),
        Some(path),
        effects,
    ))
}

fn effect(kind: EffectKind, path: &Path) -> Effect {
    Effect {
        kind,
        path: path.to_owned(),
        before_sha256: None,
        after_sha256: None,
    }
}

/// One directory's entries, by name. Our own files are named, with the kind `protected` and nothing else.
fn list<L: EffectLog>(
    target: &ResolvedPath,
    context: &ToolContext<'_, L>,
) -> Result<ToolResult, Refusal> {
    let path = shown(target.path());
    let failed = |error: io::Error| os::refused(&error, &path, Some(Right::Read));
    match target.object().map(|object| object.kind) {
        None => return Err(Refusal::new(Code::FileNotFound, "must exist", path)),
        Some(ObjectKind::Directory) => {}
        Some(_) => return Err(Refusal::new(Code::FileWrongKind, "directory", path)),
    }
    let directory = open_directory(target).map_err(failed)?;
    let mut names = Vec::new();
    for entry in directory.entries().map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name());
    }
    names.sort_unstable();
    let limit = usize::try_from(context.limits.dir_list_entries).unwrap_or(usize::MAX);
    let mut output = format!("{path}: {} entries\n", names.len());
    for name in names.iter().take(limit) {
        let place = target.path().join(name);
        output.push_str(&line(&directory, name, context.policy.is_own_file(&place)));
    }
    if names.len() > limit {
        output.push_str(&format!(
            "[{} more entries not shown]\n",
            names.len() - limit
        ));
    }
    Ok(ToolResult::success(output, Some(path), Vec::new()))
}

/// Opens the judged directory itself.
pub(super) fn open_directory(target: &ResolvedPath) -> io::Result<Dir> {
    if target.name() == Path::new(".") {
        target.parent().try_clone()
    } else {
        target.parent().open_dir_nofollow(target.name())
    }
}

fn line(directory: &Dir, name: &OsStr, protected: bool) -> String {
    let shown = text::path(Path::new(name));
    if protected {
        return format!("protected  {shown}\n");
    }
    let Ok(metadata) = directory.symlink_metadata(name) else {
        return format!("unreadable {shown}\n");
    };
    match os::facts(&metadata).kind {
        ObjectKind::File => format!("file       {shown} ({} bytes)\n", metadata.len()),
        ObjectKind::Directory => format!("directory  {shown}/\n"),
        ObjectKind::Link => {
            let leads_to = directory
                .read_link_contents(name)
                .map_or_else(|_| "?".to_owned(), |to| text::path(&to));
            format!("link       {shown} -> {leads_to}\n")
        }
        ObjectKind::Other => format!("special    {shown}\n"),
    }
}
