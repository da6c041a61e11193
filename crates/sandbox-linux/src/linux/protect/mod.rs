//! Finds what must stay unwritable inside writable roots (X-PROTECT), and afterwards what appeared there that a tool of the
//! host would obey. Creates nothing.

mod git;
mod names;
mod record;
mod walk;

pub(crate) use record::Record;

use git::Named;
use names::Patterns;
use policy::effective::RootKind;
use policy::sandbox::SandboxError;
use policy::{Code, EffectivePolicy, Refusal, Right};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use walk::{LOOK, Walk};

/// Covers beyond this number are refused: each is a mount, and the kernel has a limit for those.
const MOST_COVERED: usize = 10_000;

fn refusal(path: &Path, detail: impl ToString) -> SandboxError {
    Refusal::new(
        Code::PathProtected,
        "sandbox.protect",
        path.display().to_string(),
    )
    .with("detail", detail)
    .into()
}

/// What the walk came to.
#[derive(Debug, Default)]
pub(crate) struct Protected {
    /// Real files and directories that must not be written.
    pub(crate) covered: BTreeSet<PathBuf>,
    /// Links to files among them, which must not be replaced either. A link to a directory cannot be mounted on; when it is
    /// replaced, that is found at the end.
    pub(crate) links: BTreeMap<PathBuf, PathBuf>,
    pub(crate) record: Record,
}

/// Looks at every writable root of the policy.
///
/// # Errors
/// A refusal where a tree is too large to be looked at, cannot be looked at, or its file system takes several spellings for
/// one name in a way that a mount does not cover.
pub(crate) fn look(policy: &EffectivePolicy) -> Result<Protected, SandboxError> {
    let patterns = Patterns::new(policy.protect());
    if patterns.are_none() {
        return Ok(Protected::default());
    }
    let since_ns = record::now_ns();
    let writable = |path: &Path| policy.rights_at(path).allows(Right::Write);
    let mut walk = Walk::new(&patterns);
    let mut protected = Protected::default();
    let mut walked: Option<&Path> = None;
    for root in policy.roots().iter().filter(|root| writable(&root.path)) {
        if policy.protected_by(&root.path).is_some() {
            // A root inside of what is protected: the stricter one wins.
            protected.covered.insert(root.path.clone());
        }
        // Sorted by path: a root below another one has been walked with it.
        if root.kind == RootKind::File || walked.is_some_and(|outer| root.path.starts_with(outer)) {
            continue;
        }
        let directory = openat(CWD, &root.path, LOOK, Mode::empty())
            .map_err(|errno| refusal(&root.path, errno))?;
        walk.walk(directory, root.path.clone(), None)?;
        walked = Some(&root.path);
    }
    let Walk { sight, tree, .. } = walk;
    protected.covered.extend(sight.obeyed.iter().cloned());
    let mut absent = BTreeSet::new();
    for (link, rest) in &sight.links {
        protected.follow(link, rest, &writable, &mut absent);
    }
    for directory in &sight.git_directories {
        for named in git::named_by(directory) {
            let sight = (directory.as_path(), &mut absent);
            protected.cover_named(&named, &writable, sight);
        }
    }
    if protected.covered.len() > MOST_COVERED {
        let detail = format!("more than {MOST_COVERED} files and directories to protect");
        return Err(refusal(policy.workspace_root(), detail));
    }
    for path in &protected.covered {
        check_spelling(path)?;
    }
    protected.record = Record::new(patterns.clone(), tree, sight, absent, since_ns);
    Ok(protected)
}

impl Protected {
    /// A link at, or on the way to, what is protected: the target is protected where the sandbox could write it.
    fn follow(
        &mut self,
        link: &Path,
        rest: &Path,
        writable: &impl Fn(&Path) -> bool,
        absent: &mut BTreeSet<PathBuf>,
    ) {
        let path = if rest.as_os_str().is_empty() {
            link.to_path_buf()
        } else {
            link.join(rest)
        };
        let Ok(target) = std::fs::canonicalize(&path) else {
            absent.insert(path);
            return;
        };
        if writable(&target) {
            self.covered.insert(target.clone());
        }
        if rest.as_os_str().is_empty() && target.is_file() {
            self.links.insert(link.to_path_buf(), target);
        }
    }

    /// What a configuration names, as far as the sandbox could write it. A directory around the repository itself, as in
    /// `hooksPath = .`, cannot be closed: everything would be.
    fn cover_named(
        &mut self,
        named: &Named,
        writable: &impl Fn(&Path) -> bool,
        (git_directory, absent): (&Path, &mut BTreeSet<PathBuf>),
    ) {
        match std::fs::canonicalize(&named.path) {
            Ok(target) => {
                let counts =
                    target.is_file() || (named.as_directory && !git_directory.starts_with(&target));
                if counts && writable(&target) {
                    self.covered.insert(target);
                }
            }
            Err(_) => {
                let path = folded(&named.path);
                if writable(&path) {
                    absent.insert(path);
                }
            }
        }
    }
}

/// Without `.` and `..`, by name alone.
fn folded(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                out.pop();
            }
            std::path::Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// Opens a path of a root without leaving the root or following a link.
fn opened_beneath(root: &Path, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let top = openat(CWD, root, LOOK, Mode::empty())?;
    match path.strip_prefix(root) {
        Ok(rest) if !rest.as_os_str().is_empty() => {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            openat2(&top, rest, flags, Mode::empty(), resolve)
        }
        _ => Ok(top),
    }
}

/// A mount covers one directory entry as the kernel knows it. Where the kernel itself folds case (ext4, vfat) all spellings
/// are one entry. Where only a server behind it does (9p, FUSE), another spelling would lead around the mount.
///
/// # Errors
/// A refusal that says so.
pub(crate) fn check_spelling(path: &Path) -> Result<(), SandboxError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let other = parent.join(flipped(&name.to_string_lossy()));
    let (Ok(one), Ok(two)) = (
        std::fs::symlink_metadata(path),
        std::fs::symlink_metadata(&other),
    ) else {
        return Ok(());
    };
    if other == path || (one.dev(), one.ino()) != (two.dev(), two.ino()) {
        return Ok(());
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let known_as = |path: &Path| {
        let opened = openat(CWD, path, flags, Mode::empty())?;
        rustix::fs::readlink(
            format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened)),
            Vec::new(),
        )
    };
    match (known_as(path), known_as(&other)) {
        (Ok(one), Ok(two)) if one == two => Ok(()),
        _ => Err(refusal(
            path,
            "its file system ignores case without the kernel's knowledge, so that it cannot be protected",
        )),
    }
}

/// Every letter in the other case.
fn flipped(name: &str) -> String {
    name.chars()
        .map(|letter| {
            if letter.is_ascii_uppercase() {
                letter.to_ascii_lowercase()
            } else {
                letter.to_ascii_uppercase()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::effective::{
        Ceiling, GrantedRoot, NetworkPolicy, Origin, PartialRule, PolicyDraft, RehashRule,
        ResourceLimits, ShellRule,
    };
    use policy::sandbox::FindingKind;
    use policy::{Rights, SandboxMode};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    fn policy_for(root: &Path, protect: &[&str]) -> EffectivePolicy {
        PolicyDraft {
            mode: SandboxMode::WorkspaceWrite,
            roots: vec![GrantedRoot {
                path: root.to_path_buf(),
                kind: RootKind::Directory,
                rights: Rights::ALL,
                origins: [Origin::Workspace].into(),
            }],
            entries: Vec::new(),
            network: NetworkPolicy::None,
            resources: ResourceLimits {
                memory_bytes: 1 << 20,
                process_limit: 1,
                execution_timeout: Duration::from_secs(1),
                output_bytes: 1,
                private_bytes: 1 << 20,
            },
            environment: Default::default(),
            protect: protect.iter().map(PathBuf::from).collect(),
            own_files: Vec::new(),
            shells: ShellRule::Allow,
            rehash: RehashRule::OnChange,
            partial: PartialRule::ReadOnly,
            workspace_root: root.to_path_buf(),
        }
        .freeze(&Ceiling::mode(SandboxMode::WorkspaceWrite))
        .unwrap()
    }

    const GIT: &[&str] = &[".git/config", ".git/hooks"];

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(directories: &[&str], files: &[&str]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for path in directories {
                fs::create_dir_all(tree.at(path)).unwrap();
            }
            for path in files {
                fs::write(tree.at(path), "").unwrap();
            }
            tree
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(path)
        }

        fn look(&self, patterns: &[&str]) -> Protected {
            look(&policy_for(&self.at(""), patterns)).unwrap()
        }

        fn covered(&self, patterns: &[&str]) -> Vec<String> {
            self.look(patterns)
                .covered
                .iter()
                .map(|path| {
                    path.strip_prefix(self.at(""))
                        .unwrap()
                        .display()
                        .to_string()
                })
                .collect()
        }

        fn findings(&self, protected: &Protected) -> Vec<(String, FindingKind)> {
            let relative = |path: &Path| {
                path.strip_prefix(self.at(""))
                    .unwrap()
                    .display()
                    .to_string()
            };
            protected
                .record
                .findings()
                .iter()
                .map(|finding| (relative(&finding.path), finding.kind))
                .collect()
        }
    }

    #[test]
    fn x_protect_what_git_obeys_is_found_at_any_depth_and_nothing_is_created() {
        let tree = Tree::new(
            &[
                ".git/hooks",
                ".git/objects/aa",
                ".git/modules/sub/hooks",
                ".git/modules/sub/objects",
                ".git/modules/sub/refs",
                ".git/worktrees/wt",
                "bare.git/objects",
                "bare.git/refs",
                "bare.git/hooks",
                "d/.git",
                "src/objects",
                "src/refs",
            ],
            &[
                ".git/config",
                ".git/config.worktree",
                ".git/modules/sub/HEAD",
                ".git/modules/sub/config",
                ".git/worktrees/wt/HEAD",
                ".git/worktrees/wt/commondir",
                ".git/worktrees/wt/config.worktree",
                "bare.git/HEAD",
                "bare.git/config",
                "src/config",
                "e",
            ],
        );
        fs::create_dir(tree.at("wt")).unwrap();
        fs::write(tree.at("wt/.git"), "gitdir: ../.git/worktrees/wt\n").unwrap();
        assert_eq!(
            tree.covered(GIT),
            [
                ".git/config",
                ".git/config.worktree",
                ".git/hooks",
                ".git/modules/sub/config",
                ".git/modules/sub/hooks",
                ".git/worktrees/wt/commondir",
                ".git/worktrees/wt/config.worktree",
                "bare.git/config",
                "bare.git/hooks",
                "wt/.git",
            ]
        );
        assert!(!tree.at("d/.git/hooks").exists());
        assert_eq!(tree.covered(&["e", "src/config"]), ["e", "src/config"]);
        assert!(tree.covered(&[]).is_empty());
    }

    #[test]
    fn x_protect_links_lead_to_what_is_protected() {
        let tree = Tree::new(
            &["real/hooks", "store/hooks", "repo/.git"],
            &["real/config", "store/config"],
        );
        symlink("real", tree.at(".git")).unwrap();
        symlink("../../store/config", tree.at("repo/.git/config")).unwrap();
        symlink("../../store/hooks", tree.at("repo/.git/hooks")).unwrap();
        let protected = tree.look(GIT);
        assert_eq!(
            tree.covered(GIT),
            ["real/config", "real/hooks", "store/config", "store/hooks"]
        );
        assert_eq!(
            protected.links,
            [(tree.at("repo/.git/config"), tree.at("store/config"))].into()
        );
        assert_eq!(tree.findings(&protected), []);
        fs::remove_file(tree.at(".git")).unwrap();
        symlink("elsewhere", tree.at(".git")).unwrap();
        let changed = (".git".to_owned(), FindingKind::Changed);
        assert_eq!(tree.findings(&protected), [changed]);
    }

    #[test]
    fn x_protect_what_a_configuration_names_is_covered() {
        let tree = Tree::new(
            &[".git", ".husky/_", "tools"],
            &["more.conf", "tools/clean", "tools/other"],
        );
        fs::write(
            tree.at(".git/config"),
            "[core]\nhooksPath=.husky/_\n[include]\npath=../more.conf\n[filter \"x\"]\nclean=tools/clean --x\nsmudge=tools/later\n\
             [alias]\nx=!cd tools/ && true\n",
        )
        .unwrap();
        let protected = tree.look(GIT);
        assert_eq!(
            tree.covered(GIT),
            [".git/config", ".husky/_", "more.conf", "tools/clean"]
        );
        fs::write(tree.at("tools/later"), "").unwrap();
        let later = ("tools/later".to_owned(), FindingKind::Appeared);
        assert_eq!(tree.findings(&protected), [later]);
        // Everything would be closed: left to review.
        fs::write(tree.at(".git/config"), "[core]\nhooksPath = .\n").unwrap();
        assert_eq!(tree.covered(GIT), [".git/config"]);
    }

    #[test]
    fn x_protect_whatever_appears_is_found_once() {
        let tree = Tree::new(&["a/b", ".git", "plain", "w/.git"], &["w/.git/config"]);
        let protected = tree.look(GIT);
        assert_eq!(tree.findings(&protected), []);
        fs::write(tree.at("plain/file"), "").unwrap();
        assert_eq!(tree.findings(&protected), []);
        fs::create_dir_all(tree.at("a/b/c/d/.git/hooks")).unwrap();
        fs::write(tree.at("a/b/c/d/.git/hooks/pre-commit"), "").unwrap();
        fs::create_dir(tree.at(".git/hooks")).unwrap();
        fs::write(tree.at("plain/.git"), "gitdir: /elsewhere").unwrap();
        fs::write(tree.at("w/.git/commondir"), "/elsewhere").unwrap();
        for directory in ["bare/objects", "bare/refs", ".git/modules/m/objects/x"] {
            fs::create_dir_all(tree.at(directory)).unwrap();
        }
        fs::write(tree.at("bare/HEAD"), "").unwrap();
        fs::write(tree.at(".git/modules/m/config"), "").unwrap();
        fs::create_dir(tree.at(".git/modules/m/refs")).unwrap();
        fs::write(tree.at(".git/modules/m/HEAD"), "").unwrap();
        // The host replaces what was protected, which takes the cover off.
        fs::write(tree.at("w/.git/new"), "").unwrap();
        fs::rename(tree.at("w/.git/new"), tree.at("w/.git/config")).unwrap();
        let appeared = |path: &str| (path.to_owned(), FindingKind::Appeared);
        assert_eq!(
            tree.findings(&protected),
            [
                appeared(".git/hooks"),
                appeared(".git/modules/m/config"),
                appeared("a/b/c/d/.git"),
                appeared("bare"),
                appeared("plain/.git"),
                appeared("w/.git/commondir"),
                ("w/.git/config".to_owned(), FindingKind::Changed),
            ]
        );
    }

    #[test]
    fn x_protect_a_moved_directory_hides_nothing() {
        let tree = Tree::new(&["one/x/y", "two/z"], &[]);
        let protected = tree.look(GIT);
        fs::create_dir(tree.at("one/x/y/.git")).unwrap();
        fs::rename(tree.at("one"), tree.at("three")).unwrap();
        symlink("three", tree.at("one")).unwrap();
        let found = tree.findings(&protected);
        assert_eq!(
            found,
            [("three/x/y/.git".to_owned(), FindingKind::Appeared)]
        );
    }

    #[test]
    fn x_protect_a_worktree_of_a_protected_repository_is_ordinary() {
        let tree = Tree::new(&[".git/worktrees"], &[".git/config"]);
        let protected = tree.look(GIT);
        let own = ".git/worktrees/wt";
        for directory in [own, "wt"] {
            fs::create_dir(tree.at(directory)).unwrap();
        }
        fs::write(tree.at(".git/worktrees/wt/HEAD"), "").unwrap();
        fs::write(tree.at(".git/worktrees/wt/commondir"), "../..\n").unwrap();
        let pointer = format!("gitdir: {}\n", tree.at(own).display());
        fs::write(tree.at("wt/.git"), pointer).unwrap();
        assert_eq!(tree.findings(&protected), []);
        let appeared = |path: &str| (path.to_owned(), FindingKind::Appeared);
        // Another common directory, or a configuration of its own.
        fs::write(tree.at(".git/worktrees/wt/config.worktree"), "").unwrap();
        assert_eq!(
            tree.findings(&protected),
            [
                appeared(".git/worktrees/wt/commondir"),
                appeared(".git/worktrees/wt/config.worktree"),
                appeared("wt/.git")
            ]
        );
    }

    #[test]
    fn x_protect_deep_and_long_trees_are_covered_where_they_are_too_deep() {
        let tree = Tree::new(&[], &[]);
        let mut directory = openat(CWD, tree.at(""), LOOK, Mode::empty()).unwrap();
        for _ in 0..420 {
            rustix::fs::mkdirat(&directory, "deeper-and-deeper", Mode::RWXU).unwrap();
            directory = openat(&directory, "deeper-and-deeper", LOOK, Mode::empty()).unwrap();
        }
        let covered = tree.look(GIT).covered;
        assert_eq!(covered.len(), 1);
        let path = covered.first().unwrap();
        assert!(path.as_os_str().len() < 3_900 && path.is_dir());
        // Too long for one call.
        let status = std::process::Command::new("rm")
            .arg("-rf")
            .arg(tree.at("deeper-and-deeper"))
            .status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn case_is_ignored_as_the_policy_does() {
        let tree = Tree::new(&[".GIT/Hooks"], &[".GIT/CONFIG"]);
        assert_eq!(tree.covered(GIT), [".GIT/CONFIG", ".GIT/Hooks"]);
        // Two names of one file lead around a cover.
        fs::hard_link(tree.at(".GIT/CONFIG"), tree.at(".GIT/config")).unwrap();
        let error = look(&policy_for(&tree.at(""), GIT)).unwrap_err();
        assert_eq!(error.code(), Code::PathProtected);
    }
}
