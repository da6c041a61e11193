//! From the plan for namespaces to the plan without: mounts become Landlock rules, masks become gaps between rules.

use super::tree;
use crate::backend::filter::Alone;
use crate::backend::plan::{Plan, PrivateArea, Step};
use crate::backend::program::Refused;
use crate::backend::sys::landlock as ll;
use crate::backend::{enforcement, environment};
use policy::effective::NetworkPolicy;
use policy::sandbox::{Enforcement, SandboxError};
use policy::{Code, EffectivePolicy, Refusal, Right, SandboxMode};
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// More rules than this would make every file access slow.
const MOST_RULES: usize = 10_000;

/// What the plan has instead of mounts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Bare {
    pub(crate) rules: Vec<Rule>,
}

/// A path and what may be done at and below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) path: CString,
    pub(crate) access: u64,
}

/// Files of `/proc` that say nothing about any process, with who needs them. A program's own directory cannot be granted:
/// rules name what exists when they are made, and granting all of `/proc` would show every command line of the machine.
const PROC: &[(&str, &str)] = &[
    ("/proc/cpuinfo", "how many processors, and which"),
    (
        "/proc/meminfo",
        "how much memory; runtimes size their heaps",
    ),
    (
        "/proc/stat",
        "processor counts for runtimes and build tools",
    ),
    ("/proc/uptime", "clocks of shells and runtimes"),
    ("/proc/loadavg", "build tools"),
    ("/proc/version", "which kernel"),
    ("/proc/filesystems", "coreutils and SELinux libraries ask"),
    ("/proc/sys/kernel/osrelease", "which kernel"),
    ("/proc/sys/kernel/ngroups_max", "the C library's sysconf"),
    ("/proc/sys/vm/overcommit_memory", "allocators ask at start"),
    ("/proc/sys/fs/pipe-max-size", "runtimes that size pipes"),
];

const READS: u64 = ll::READ_FILE | ll::READ_DIR | ll::EXECUTE;

/// Refuses what cannot be made so without namespaces and would be accepted as partial otherwise.
fn check(policy: &EffectivePolicy, landlock: u32) -> Result<(), SandboxError> {
    if landlock == 0 {
        return Err(SandboxError::Unavailable {
            stage: "landlock",
            reason: "neither namespaces nor Landlock: files cannot be confined".to_owned(),
        });
    }
    if *policy.network() != NetworkPolicy::None {
        let level = policy.network().word();
        return Err(
            Refusal::new(Code::SandboxPartial, "sandbox.partial", "network")
                .with(
                    "detail",
                    format!("`{level}` needs a network namespace, which this machine forbids"),
                )
                .into(),
        );
    }
    let writable = policy
        .roots()
        .iter()
        .find(|root| root.rights.allows(Right::Write) || root.rights.allows(Right::Delete));
    if let (SandboxMode::ReadOnly, Some(root)) = (policy.mode(), writable) {
        let path = root.path.display().to_string();
        return Err(Refusal::new(Code::SandboxPartial, "sandbox.partial", path)
            .with(
                "detail",
                "a writable root needs a mount namespace, which this machine forbids",
            )
            .into());
    }
    Ok(())
}

/// What will be enforced, before anything is made.
///
/// # Errors
/// As [`plan`].
pub(crate) fn enforcement(
    policy: &EffectivePolicy,
    whole: &Plan,
) -> Result<Enforcement, SandboxError> {
    check(policy, whole.landlock)?;
    Ok(enforcement::without_namespaces(alone(policy, whole)))
}

fn alone(policy: &EffectivePolicy, whole: &Plan) -> Alone {
    Alone {
        metadata: policy.mode() == SandboxMode::ReadOnly,
        landlock: whole.landlock,
    }
}

/// A working directory must be granted here too; without a view of its own the kernel would enter any.
///
/// # Errors
/// As if it did not exist.
pub(crate) fn check_directory(
    policy: &EffectivePolicy,
    directory: &Path,
) -> Result<(), SandboxError> {
    let granted = std::fs::canonicalize(directory)
        .is_ok_and(|resolved| policy.rights_at(&resolved).allows(Right::Read));
    if granted {
        return Ok(());
    }
    Err(Refused::Directory(libc::ENOENT).error(Path::new(""), directory))
}

/// The plan without namespaces. `private` is where the private area will be.
///
/// # Errors
/// `sandbox.partial` naming what this machine cannot do for this policy; `Unavailable` where it cannot confine files.
pub(crate) fn plan(
    policy: &EffectivePolicy,
    whole: Plan,
    private: &Path,
) -> Result<Plan, SandboxError> {
    check(policy, whole.landlock)?;
    let private = PrivateArea {
        path: CString::new(private.as_os_str().as_bytes()).unwrap_or_default(),
        ..whole.private.clone()
    };
    let mut rules = rules_of(&whole.steps)?;
    rules.push(Rule {
        path: private.path.clone(),
        access: ll::known_rights(u32::MAX)
            & !(ll::EXECUTE | ll::MAKE_CHAR | ll::MAKE_BLOCK | ll::IOCTL_DEV),
    });
    let mut limits = whole.limits;
    // The kernel counts all of this user's tasks, not only ours; what runs already must not use the limit up.
    limits.processes += tree::tasks_of_this_user();
    let mut filter = whole.filter;
    filter.quiet = true;
    filter.explain = crate::exec::Explain::Off;
    filter.alone = Some(alone(policy, &whole));
    Ok(Plan {
        steps: Vec::new(),
        environment: environment::environment(policy, &private, |name| std::env::var_os(name)),
        private,
        filter,
        limits,
        bare: Some(Bare { rules }),
        ..whole
    })
}

fn path_of(text: &CString) -> PathBuf {
    Path::new("/").join(OsStr::from_bytes(text.as_bytes()))
}

/// Rules for what the steps would bind, with gaps where they would mask. Nothing becomes writable but devices: a policy
/// with writable roots is refused or never permitted.
fn rules_of(steps: &[Step]) -> Result<Vec<Rule>, SandboxError> {
    let masks: Vec<(PathBuf, bool)> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Mask { path, directory } => Some((path_of(path), *directory)),
            _ => None,
        })
        .collect();
    let mut rules = Vec::new();
    for step in steps {
        let Step::Bind(bind) = step else { continue };
        let path = path_of(&bind.source);
        let device = std::fs::symlink_metadata(&path)
            .is_ok_and(|metadata| metadata.file_type().is_char_device());
        let access = if device {
            bind.access
        } else {
            bind.access & READS
        };
        around(&path, access, &masks, &mut rules)?;
    }
    for (path, _) in PROC {
        if Path::new(path).exists() {
            rules.push(rule(Path::new(path), ll::READ_FILE));
        }
    }
    Ok(rules)
}

fn rule(path: &Path, access: u64) -> Rule {
    Rule {
        path: CString::new(path.as_os_str().as_bytes()).unwrap_or_default(),
        access,
    }
}

/// Rules add up along a path, so a directory with something masked in it gets none; everything beside the masked gets
/// its own. What appears there later stays closed.
fn around(
    path: &Path,
    access: u64,
    masks: &[(PathBuf, bool)],
    rules: &mut Vec<Rule>,
) -> Result<(), SandboxError> {
    if masks.iter().any(|(mask, _)| path.starts_with(mask)) {
        return Ok(());
    }
    let inside: Vec<bool> = masks
        .iter()
        .filter(|(mask, _)| mask.starts_with(path))
        .map(|(_, directory)| *directory)
        .collect();
    if inside.is_empty() {
        rules.push(rule(path, access));
        return Ok(());
    }
    if !inside.contains(&true) && access & ll::READ_DIR != 0 {
        // Names only. Over a masked directory it would list that too.
        rules.push(rule(path, ll::READ_DIR));
    }
    let failed = |reason: String| -> SandboxError {
        Refusal::new(Code::PathProtected, "own files", path.display().to_string())
            .with("detail", reason)
            .into()
    };
    for entry in std::fs::read_dir(path).map_err(|error| failed(error.to_string()))? {
        let entry = entry.map_err(|error| failed(error.to_string()))?;
        let kind = entry
            .file_type()
            .map_err(|error| failed(error.to_string()))?;
        let access = match kind {
            kind if kind.is_dir() => access,
            kind if kind.is_file() => access & ll::FILE_RIGHTS,
            // Links lead to what has a rule of its own or none; devices are granted by the table only.
            _ => continue,
        };
        around(&entry.path(), access, masks, rules)?;
        if rules.len() > MOST_RULES {
            return Err(failed(format!(
                "more than {MOST_RULES} entries beside our own files"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// SEC-INV-04: no rule lies at or above a masked path, and everything else has one.
    #[test]
    fn rules_lie_around_what_is_masked() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("conf/state/deep")).unwrap();
        fs::create_dir_all(at("src/lib")).unwrap();
        for file in ["conf/agent.yaml", "conf/other", "readme"] {
            fs::write(at(file), "").unwrap();
        }
        let masks = [(at("conf/agent.yaml"), false), (at("conf/state"), true)];
        let mut rules = Vec::new();
        around(root.path(), READS, &masks, &mut rules).unwrap();
        let mut paths: Vec<PathBuf> = rules.iter().map(|rule| path_of(&rule.path)).collect();
        paths.sort();
        assert_eq!(paths, [at("conf/other"), at("readme"), at("src")]);
        let mut names = Vec::new();
        around(root.path(), READS, &masks[..1], &mut names).unwrap();
        assert!(names.contains(&rule(&at("conf"), ll::READ_DIR)));
        assert!(names.contains(&rule(&at("conf/state"), READS)));
    }

    #[test]
    fn proc_files_are_listed_once_with_a_reason_and_name_no_process() {
        let mut paths: Vec<_> = PROC.iter().map(|line| line.0).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), PROC.len());
        assert!(
            PROC.iter()
                .all(|line| line.1.len() > 8 && !line.0.contains("self"))
        );
    }
}
