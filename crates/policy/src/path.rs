//! Paths are judged on what was opened, never on their text (FS-02, FS-03, SEC-INV-04).
//!
//! The runtime walks from a granted root's handle, component by component and without following a link in the last step
//! of its walk, and brings what it found as a [`WalkedPath`]. [`judge`] says yes or no and is the only maker of a
//! [`ResolvedPath`], which keeps the opened parent directory, so that the effect happens on the same object.

use crate::code::Code;
use crate::effective::{EffectivePolicy, FileIdentity};
use crate::fault::Refusal;
use crate::rights::{Right, Rights};
use cap_std::fs::Dir;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link that was not followed.
    Link,
    /// FIFO, socket, device.
    Other,
}

/// Facts about an object that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    /// What it is.
    pub kind: ObjectKind,
    /// Which bytes.
    pub identity: FileIdentity,
    /// Number of hard links.
    pub links: u64,
}

/// What the platform found at a path, before anyone judged it.
#[derive(Debug)]
pub struct WalkedPath {
    /// Absolute path without links.
    pub resolved: PathBuf,
    /// The opened directory that holds the last component; for a granted directory root, the root itself.
    pub parent: Dir,
    /// The last component; `.` for a granted directory root. For a directory to be made, every component that is missing.
    pub name: OsString,
    /// The object, or nothing if it does not exist yet.
    pub object: Option<ObjectFacts>,
}

/// A judged path with its opened parent. [`judge`] is its only maker (SEC-INV-04).
///
/// ```compile_fail,E0451
/// use policy::path::{ResolvedPath, WalkedPath};
/// fn unjudged(walked: WalkedPath) -> ResolvedPath {
///     ResolvedPath { walked, rights: policy::Rights::ALL }
/// }
/// ```
/// ```
/// use policy::path::{ResolvedPath, WalkedPath, judge};
/// fn judged(policy: &policy::EffectivePolicy, walked: WalkedPath) -> Option<ResolvedPath> {
///     judge(policy, walked, policy::Rights::READ).ok()
/// }
/// ```
#[derive(Debug)]
pub struct ResolvedPath {
    walked: WalkedPath,
    rights: Rights,
}

impl ResolvedPath {
    /// Absolute path without links.
    pub fn path(&self) -> &Path {
        &self.walked.resolved
    }

    /// The opened directory that holds it.
    pub fn parent(&self) -> &Dir {
        &self.walked.parent
    }

    /// Its name in that directory.
    pub fn name(&self) -> &Path {
        Path::new(&self.walked.name)
    }

    /// What was there when it was walked.
    pub fn object(&self) -> Option<&ObjectFacts> {
        self.walked.object.as_ref()
    }

    /// The rights the policy gives here.
    pub fn rights(&self) -> Rights {
        self.rights
    }
}

/// Judges a walked path against the policy.
///
/// # Errors
/// Our own files, protected files (for anything but reading), missing rights, and objects that are neither file nor directory.
pub fn judge(
    policy: &EffectivePolicy,
    walked: WalkedPath,
    wanted: Rights,
) -> Result<ResolvedPath, Refusal> {
    let rights = judge_place(policy, &walked.resolved, wanted)?;
    if let Some(object) = &walked.object
        && matches!(object.kind, ObjectKind::Other | ObjectKind::Link)
    {
        return Err(Refusal::new(
            Code::FileKindUnsupported,
            "file or directory",
            walked.resolved.display().to_string(),
        ));
    }
    Ok(ResolvedPath { walked, rights })
}

/// The part of [`judge`] that needs only the resolved place.
///
/// # Errors
/// As [`judge`], but for the kind of object.
pub fn judge_place(
    policy: &EffectivePolicy,
    resolved: &Path,
    wanted: Rights,
) -> Result<Rights, Refusal> {
    let target = || resolved.display().to_string();
    let rights = policy.rights_at(resolved);
    if rights == Rights::NONE {
        let refusal = Refusal::new(Code::PathDenied, "granted roots", target());
        return Err(match wanted.iter().next() {
            Some(right) => refusal.requiring(right),
            None => refusal,
        });
    }
    if policy.is_own_file(resolved) {
        return Err(Refusal::new(Code::PathProtected, "own files", target()));
    }
    let changes = wanted.allows(Right::Write) || wanted.allows(Right::Delete);
    if changes && policy.leads_to_own_file(resolved) {
        return Err(Refusal::new(Code::PathProtected, "own files", target()));
    }
    if changes && let Some(pattern) = policy.protected_by(resolved) {
        return Err(Refusal::new(
            Code::PathProtected,
            format!("sandbox.protect: {}", pattern.display()),
            target(),
        ));
    }
    if let Some(missing) = wanted.iter().find(|right| !rights.allows(*right)) {
        let rule = policy
            .root_of(resolved)
            .map_or_else(String::new, |root| root.path.display().to_string());
        return Err(Refusal::new(Code::PathDenied, rule, target()).requiring(missing));
    }
    Ok(rights)
}
