//! New bytes for a file, seen wholly or not at all.

use super::snapshot::{self, Snapshot};
use super::{changed_meanwhile, guard};
use crate::tools::dir::parent_allows;
use crate::tools::effect::{EffectEnd, Intent, Recorded, record};
use crate::tools::open::{self, existing_file, hash_bytes, shown};
use crate::tools::result::{Effect, EffectKind, ToolResult};
use crate::tools::{EffectLog, Fuse, ToolContext, os};
use cap_std::fs::{Dir, File};
use policy::effective::{FileIdentity, Sha256Digest};
use policy::path::ResolvedPath;
use policy::{Code, Refusal, Right};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Start of the names of our temporary files, so that people and ignore files know them.
const TEMPORARY_PREFIX: &str = ".agent-mcp-";

/// One edit, ready to be recorded.
struct Edit<'e> {
    target: &'e ResolvedPath,
    old: Option<Snapshot>,
    new: Vec<u8>,
    after: Sha256Digest,
    temporary: Option<String>,
}

/// Replaces the target's bytes by what `make` makes of them; creates the file if it is not there.
///
/// # Errors
/// Before the effect: too large, other hash, not writable. After it: `file.verify_failed`, with everything as it was.
pub(super) fn run<L: EffectLog>(
    target: &ResolvedPath,
    expected: Option<Sha256Digest>,
    context: &ToolContext<'_, L>,
    make: impl FnOnce(&[u8]) -> Result<Vec<u8>, Refusal>,
) -> Result<ToolResult, Refusal> {
    let in_place = !parent_allows(context.policy, target, Right::Write);
    if in_place || expected.is_some() {
        existing_file(target)?;
    }
    let (old, old_bytes) = match target.object() {
        Some(_) => {
            let (old, bytes) = snapshot::take(target, in_place, context)?;
            (Some(old), bytes)
        }
        None => (None, Vec::new()),
    };
    if let Some(old) = &old {
        guard(expected, old.before.sha256, target)?;
        if !os::may_write(target.parent(), target.name()) {
            let rule = "operating system permissions";
            return Err(
                Refusal::new(Code::PathDenied, rule, shown(target.path())).requiring(Right::Write)
            );
        }
        if in_place && old.links > 1 {
            return Err(Refusal::new(
                Code::PathDenied,
                "a granted file with other hard links",
                shown(target.path()),
            ));
        }
    }
    let new = make(&old_bytes)?;
    if new.len() as u64 > context.limits.edit_bytes {
        return Err(
            Refusal::new(Code::FileTooLarge, "size limit", shown(target.path()))
                .with("size", new.len())
                .with("limit", context.limits.edit_bytes),
        );
    }
    let temporary =
        (!in_place).then(|| format!("{TEMPORARY_PREFIX}{}.tmp", Uuid::new_v4().simple()));
    let edit = Edit {
        target,
        after: hash_bytes(&new),
        old,
        new,
        temporary,
    };
    context.walker.confirm(target)?;
    let recorded = record(context.effect_log, &edit.intent())?;
    context.burn(Fuse::Recorded);
    let done = match &edit.temporary {
        Some(name) => edit.swap(name, recorded, context),
        None => edit.write_through(recorded, context),
    };
    done.map(|()| edit.report())
}

impl Edit<'_> {
    fn intent(&self) -> Intent {
        let path = self.target.path();
        let beside = |name: &String| path.parent().unwrap_or(Path::new("")).join(name);
        Intent::Replace {
            path: path.to_owned(),
            before: self.old.as_ref().map(|old| old.before.clone()),
            after_sha256: self.after,
            temporary: self.temporary.as_ref().map(beside),
            backup: self
                .old
                .as_ref()
                .and_then(|old| old.backup().map(PathBuf::from)),
            in_place: self.temporary.is_none(),
        }
    }

    /// Writes beside, moves over, reads back.
    fn swap<L: EffectLog>(
        &self,
        temporary: &str,
        recorded: Recorded<'_, L>,
        context: &ToolContext<'_, L>,
    ) -> Result<(), Refusal> {
        let (directory, name) = (self.target.parent(), self.target.name());
        let staged = match Staged::write(
            directory,
            temporary,
            &self.new,
            self.old.as_ref().map(|old| &old.file),
        ) {
            Ok(staged) => staged,
            Err(error) => {
                return Err(recorded.close_failed(EffectEnd::Undone, self.refused(&error)));
            }
        };
        context.burn(Fuse::Written);
        if let Err(refusal) = self.unchanged() {
            drop(staged);
            return Err(recorded.close_failed(EffectEnd::Undone, refusal));
        }
        let written = staged.identity;
        let moved = match &self.old {
            Some(_) => staged.over(name),
            None => staged.into_free(name),
        };
        if let Err(error) = moved {
            return Err(recorded.close_failed(EffectEnd::Undone, self.refused(&error)));
        }
        context.burn(Fuse::Applied);
        let synced = os::sync_directory(directory);
        context.burn(Fuse::Synced);
        let failure = match (synced, self.read_back()) {
            (Ok(()), Ok((_, found))) if found == self.after => {
                context.burn(Fuse::Verified);
                return recorded.close(EffectEnd::Done);
            }
            (_, Ok((identity, _))) if !os::same_object(&identity, &written) => {
                // Ours was there and someone put another file over it: that one is not ours to undo.
                let failure = self.not_verified("another file was put there right after");
                return Err(recorded.close_failed(EffectEnd::Done, failure));
            }
            (Err(error), _) => self.not_verified(error),
            (_, Err(refusal)) => self.not_verified(refusal.code),
            _ => self.not_verified("other bytes were read back"),
        };
        let end = if self.roll_back() {
            EffectEnd::Undone
        } else {
            EffectEnd::Unclear
        };
        Err(recorded.close_failed(
            end,
            failure.with(
                "old content",
                if end == EffectEnd::Undone {
                    "restored"
                } else {
                    "not restored"
                },
            ),
        ))
    }

    /// Puts the old bytes back and verifies them; a file that was not there before goes away.
    fn roll_back(&self) -> bool {
        let (directory, name) = (self.target.parent(), self.target.name());
        let Some(old) = &self.old else {
            let gone = directory.remove_file(name);
            return gone.is_ok() && os::sync_directory(directory).is_ok();
        };
        let temporary = format!("{TEMPORARY_PREFIX}{}.tmp", Uuid::new_v4().simple());
        let restored = old
            .bytes()
            .and_then(|bytes| Staged::write(directory, &temporary, &bytes, Some(&old.file)))
            .and_then(|staged| staged.over(name))
            .and_then(|()| os::sync_directory(directory));
        restored.is_ok()
            && self
                .read_back()
                .is_ok_and(|(_, found)| found == old.before.sha256)
    }

    /// A granted single file (FS-01): its directory is not ours to write, so the file itself is written, with a backup.
    fn write_through<L: EffectLog>(
        &self,
        recorded: Recorded<'_, L>,
        context: &ToolContext<'_, L>,
    ) -> Result<(), Refusal> {
        let opened = self.unchanged().and_then(|()| {
            let options = os::write_options();
            self.target
                .parent()
                .open_with(self.target.name(), &options)
                .map_err(|error| self.refused(&error))
        });
        let mut file = match opened {
            Ok(file) => file,
            Err(refusal) => return Err(recorded.close_failed(EffectEnd::Undone, refusal)),
        };
        let written = overwrite(&mut file, &self.new);
        context.burn(Fuse::Applied);
        context.burn(Fuse::Synced);
        if written.is_ok() && self.read_back().is_ok_and(|(_, found)| found == self.after) {
            context.burn(Fuse::Verified);
            return recorded.close(EffectEnd::Done);
        }
        let restored = self.old.as_ref().is_some_and(|old| {
            old.bytes()
                .and_then(|bytes| overwrite(&mut file, &bytes))
                .is_ok()
                && self
                    .read_back()
                    .is_ok_and(|(_, found)| found == old.before.sha256)
        });
        let failure = match written {
            Err(error) => self.refused(&error),
            Ok(()) => self.not_verified("other bytes were read back"),
        };
        Err(recorded.close_failed(
            if restored {
                EffectEnd::Undone
            } else {
                EffectEnd::Unclear
            },
            failure,
        ))
    }

    /// Whether the name still is what was read, right before it is replaced.
    fn unchanged(&self) -> Result<(), Refusal> {
        let now = self.target.parent().symlink_metadata(self.target.name());
        match (&self.old, now) {
            (Some(old), Ok(now)) if os::identity(&now) == old.before.identity => Ok(()),
            (None, Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            (None, Ok(_)) => Err(Refusal::new(
                Code::FileExists,
                "came into being meanwhile",
                shown(self.target.path()),
            )),
            _ => Err(changed_meanwhile(self.target)),
        }
    }

    fn read_back(&self) -> Result<(FileIdentity, Sha256Digest), Refusal> {
        let mut opened =
            open::regular(self.target.parent(), self.target.name(), self.target.path())?;
        let found = opened.hash().map_err(|error| self.refused(&error))?;
        Ok((os::identity(&opened.metadata), found))
    }

    fn refused(&self, error: &io::Error) -> Refusal {
        os::refused(error, shown(self.target.path()), Some(Right::Write))
    }

    fn not_verified(&self, detail: impl ToString) -> Refusal {
        Refusal::new(
            Code::FileVerifyFailed,
            "read back after writing",
            shown(self.target.path()),
        )
        .with("detail", detail)
    }

    fn report(&self) -> ToolResult {
        let path = shown(self.target.path());
        let (kind, verb) = match &self.old {
            Some(_) => (EffectKind::Replaced, "replaced"),
            None => (EffectKind::Created, "created"),
        };
        let mut output = format!(
            "{verb} {path} ({} bytes, sha256 {})\n",
            self.new.len(),
            self.after
        );
        if let Some(old) = &self.old {
            output.push_str(&format!("before: sha256 {}\n", old.before.sha256));
            if old.links > 1 {
                output.push_str(&format!(
                    "note: the file had {} names (hard links); only this name has the new content\n",
                    old.links
                ));
            }
        }
        let effect = Effect {
            kind,
            path: self.target.path().to_owned(),
            before_sha256: self.old.as_ref().map(|old| old.before.sha256),
            after_sha256: Some(self.after),
        };
        ToolResult::success(output, Some(path), vec![effect])
    }
}

fn overwrite(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()
}

/// A synced temporary file beside its target. Dropped, it goes away.
struct Staged<'d> {
    directory: &'d Dir,
    name: Option<String>,
    identity: FileIdentity,
}

impl<'d> Staged<'d> {
    fn write(
        directory: &'d Dir,
        name: &str,
        bytes: &[u8],
        like: Option<&File>,
    ) -> io::Result<Self> {
        let mode = if like.is_some() { 0o600 } else { 0o644 };
        let mut file = directory.open_with(name, &os::create_options(mode))?;
        let identity = os::identity(&file.metadata()?);
        let staged = Self {
            directory,
            name: Some(name.to_owned()),
            identity,
        };
        file.write_all(bytes)?;
        if let Some(old) = like {
            os::copy_attributes(old, &file)?;
        }
        file.sync_all()?;
        Ok(staged)
    }

    /// Over the existing name.
    fn over(mut self, name: &Path) -> io::Result<()> {
        if let Some(own) = &self.name {
            self.directory.rename(own, self.directory, name)?;
            self.name = None;
        }
        Ok(())
    }

    /// To a name that must be free.
    fn into_free(mut self, name: &Path) -> io::Result<()> {
        if let Some(own) = &self.name {
            os::rename_exclusive(self.directory, Path::new(own), self.directory, name)?;
            self.name = None;
        }
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The intent names it: what cannot be removed now, recovery removes.
            let _recovery_removes_it_else = self.directory.remove_file(name);
        }
    }
}
