//! Which names matter: the policy's patterns, and what git reads of a directory that it takes for its own.

use rustix::fs::FileType;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// What git obeys in a directory of its own, with the reason. Whoever protects `.git/config` or `.git/hooks` means these, in
/// worktrees' and submodules' directories and bare repositories too.
pub(super) const OBEYED: &[(&str, &str)] = &[
    (
        "config",
        "names programs: fsmonitor, hooksPath, sshCommand, filters, aliases",
    ),
    ("hooks", "is run by most commands"),
    (
        "config.worktree",
        "is read like config with extensions.worktreeConfig",
    ),
    (
        "commondir",
        "names the directory whose config and hooks count",
    ),
];

/// What makes a directory one of git's, by its own rule: `HEAD`, and objects and refs here or in the common directory.
const MARKS: [&[u8]; 3] = [b"HEAD", b"objects", b"refs"];
const COMMON: usize = 3;

/// As the policy compares names.
pub(super) fn same_name(one: &[u8], other: &[u8]) -> bool {
    one.eq_ignore_ascii_case(other)
}

pub(super) fn is_git(name: &[u8]) -> bool {
    same_name(name, b".git")
}

/// The interesting names of one directory, as they are spelled there.
#[derive(Default)]
pub(super) struct GitNames {
    repository: Option<(Vec<u8>, FileType)>,
    marks: [bool; MARKS.len()],
    obeyed: [Option<(Vec<u8>, FileType)>; OBEYED.len()],
}

impl GitNames {
    pub(super) fn note(&mut self, name: &[u8], kind: FileType) {
        if is_git(name) {
            self.repository = Some((name.to_owned(), kind));
        }
        for (seen, mark) in self.marks.iter_mut().zip(MARKS) {
            *seen |= same_name(name, mark);
        }
        for (slot, (wanted, _)) in self.obeyed.iter_mut().zip(OBEYED) {
            if same_name(name, wanted.as_bytes()) {
                *slot = Some((name.to_owned(), kind));
            }
        }
    }

    /// Asks the file system for the names that were not seen in this spelling.
    pub(super) fn ask(&mut self, lookup: impl Fn(&str) -> Option<FileType>) {
        if self.repository.is_none() {
            self.repository = lookup(".git").map(|kind| (b".git".to_vec(), kind));
        }
        for (seen, mark) in self.marks.iter_mut().zip(MARKS) {
            *seen |= std::str::from_utf8(mark).is_ok_and(|mark| lookup(mark).is_some());
        }
        for (slot, (wanted, _)) in self.obeyed.iter_mut().zip(OBEYED) {
            if slot.is_none() {
                *slot = lookup(wanted).map(|kind| (wanted.as_bytes().to_vec(), kind));
            }
        }
    }

    pub(super) fn repository(&self) -> Option<(&[u8], FileType)> {
        self.repository
            .as_ref()
            .map(|(name, kind)| (name.as_slice(), *kind))
    }

    pub(super) fn obeyed(&self, index: usize) -> Option<(&[u8], FileType)> {
        self.obeyed
            .get(index)?
            .as_ref()
            .map(|(name, kind)| (name.as_slice(), *kind))
    }

    pub(super) fn is_directory_of_git(&self) -> bool {
        let [head, objects, refs] = self.marks;
        head && ((objects && refs) || self.obeyed(COMMON).is_some())
    }
}

/// The policy's patterns.
#[derive(Debug, Clone)]
pub(super) struct Patterns {
    patterns: Vec<PathBuf>,
    knows_git: bool,
}

/// A name to look out for in one directory.
pub(super) struct Wanted<'p> {
    pub(super) name: &'p OsStr,
    /// What of the pattern follows; empty at its end.
    pub(super) rest: &'p Path,
    pub(super) seen: bool,
}

impl Patterns {
    pub(super) fn new(patterns: &[PathBuf]) -> Self {
        Self {
            knows_git: patterns.iter().any(|pattern| {
                pattern
                    .iter()
                    .next()
                    .is_some_and(|first| is_git(first.as_bytes()))
            }),
            patterns: patterns.to_vec(),
        }
    }

    /// Whether git's own rules are followed: a pattern below `.git` is about them.
    pub(super) fn knows_git(&self) -> bool {
        self.knows_git
    }

    pub(super) fn are_none(&self) -> bool {
        self.patterns.is_empty()
    }

    /// What the patterns name in this directory: their first parts, and the next parts of those that its path begins.
    pub(super) fn wanted_in(&self, directory: &Path) -> Vec<Wanted<'_>> {
        let mut wanted = Vec::with_capacity(self.patterns.len());
        for pattern in &self.patterns {
            let parts: Vec<Component<'_>> = pattern.components().collect();
            for (index, part) in parts.iter().enumerate() {
                let begins = parts.iter().take(index).rev().zip(directory.iter().rev());
                let begun = begins
                    .filter(|(part, name)| same_name(part.as_os_str().as_bytes(), name.as_bytes()))
                    .count();
                if begun == index {
                    let mut rest = pattern.components();
                    rest.by_ref().take(index + 1).for_each(drop);
                    wanted.push(Wanted {
                        name: part.as_os_str(),
                        rest: rest.as_path(),
                        seen: false,
                    });
                }
            }
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(patterns: &Patterns, directory: &str) -> Vec<String> {
        patterns
            .wanted_in(Path::new(directory))
            .iter()
            .map(|wanted| format!("{:?} then {:?}", wanted.name, wanted.rest))
            .collect()
    }

    #[test]
    fn patterns_are_followed_through_directories() {
        let patterns = Patterns::new(&["a/b/c".into(), ".git/config".into(), "Makefile".into()]);
        let first = [
            r#""a" then "b/c""#,
            r#"".git" then "config""#,
            r#""Makefile" then """#,
        ];
        assert_eq!(names(&patterns, "/ws"), first);
        assert_eq!(
            names(&patterns, "/ws/A/B"),
            [first[0], r#""c" then """#, first[1], first[2]]
        );
        assert_eq!(
            names(&patterns, "/ws/.GIT"),
            [first[0], first[1], r#""config" then """#, first[2]]
        );
        assert!(patterns.knows_git() && !Patterns::new(&["x".into()]).knows_git());
    }

    #[test]
    fn every_obeyed_name_has_a_reason() {
        assert!(OBEYED.iter().all(|(_, reason)| reason.len() > 8));
        assert_eq!(OBEYED[COMMON].0, "commondir");
    }
}
