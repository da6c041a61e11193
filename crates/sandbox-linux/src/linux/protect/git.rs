//! Programs and files that a repository's own configuration names: what they hold is obeyed like the configuration.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A configuration is small; of a larger one the rest is not read.
const MOST_BYTES: u64 = 1 << 20;
/// Git follows ten levels of includes.
const MOST_INCLUDES: usize = 10;

/// What a value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// A path, relative to the work tree.
    Path,
    /// Another configuration file, relative to this one.
    Include,
    /// A shell command, run at the top of the work tree; its words may be paths.
    Command,
}

/// Section, key (`*` stands for any subsection's), meaning, and why it matters.
const NAMES: &[(&str, &str, Meaning, &str)] = &[
    (
        "core",
        "hookspath",
        Meaning::Path,
        "hooks are looked up there",
    ),
    ("core", "fsmonitor", Meaning::Command, "run by git status"),
    (
        "core",
        "sshcommand",
        Meaning::Command,
        "run by git fetch and push",
    ),
    (
        "core",
        "askpass",
        Meaning::Command,
        "run when a password is needed",
    ),
    ("core", "editor", Meaning::Command, "run by git commit"),
    ("core", "pager", Meaning::Command, "run by git log and diff"),
    (
        "core",
        "gitproxy",
        Meaning::Command,
        "run for git:// addresses",
    ),
    (
        "core",
        "alternaterefscommand",
        Meaning::Command,
        "run by git fetch",
    ),
    (
        "sequence",
        "editor",
        Meaning::Command,
        "run by git rebase -i",
    ),
    ("include", "path", Meaning::Include, "read as configuration"),
    (
        "includeif",
        "path",
        Meaning::Include,
        "read as configuration",
    ),
    ("alias", "*", Meaning::Command, "run by its name"),
    (
        "filter",
        "clean",
        Meaning::Command,
        "run by git add and status",
    ),
    ("filter", "smudge", Meaning::Command, "run by git checkout"),
    (
        "filter",
        "process",
        Meaning::Command,
        "run by git add and checkout",
    ),
    ("diff", "external", Meaning::Command, "run by git diff"),
    ("diff", "command", Meaning::Command, "run by git diff"),
    (
        "diff",
        "textconv",
        Meaning::Command,
        "run by git diff, log and blame",
    ),
    ("merge", "driver", Meaning::Command, "run by git merge"),
    ("mergetool", "cmd", Meaning::Command, "run by git mergetool"),
    ("difftool", "cmd", Meaning::Command, "run by git difftool"),
    (
        "credential",
        "helper",
        Meaning::Command,
        "run by git fetch and push",
    ),
    ("gpg", "program", Meaning::Command, "run to sign and verify"),
    (
        "interactive",
        "difffilter",
        Meaning::Command,
        "run by git add -p",
    ),
    ("trailer", "command", Meaning::Command, "run by git commit"),
    ("trailer", "cmd", Meaning::Command, "run by git commit"),
    (
        "pager",
        "*",
        Meaning::Command,
        "run by the command of that name",
    ),
];

/// A path that a configuration names, whether it exists or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    pub(super) path: PathBuf,
    /// A directory counts with all that is in it; else only a file does.
    pub(super) as_directory: bool,
}

impl Named {
    fn file(path: PathBuf) -> Self {
        Self {
            path,
            as_directory: false,
        }
    }
}

/// What the configuration of one of git's directories names.
pub(super) fn named_by(git_directory: &Path) -> BTreeSet<Named> {
    let mut named = BTreeSet::new();
    let mut values = Vec::new();
    for file in ["config", "config.worktree"] {
        read(&git_directory.join(file), 0, &mut values, &mut named);
    }
    let worktree = values
        .iter()
        .rev()
        .find(|value| (value.section.as_str(), value.key.as_str()) == ("core", "worktree"))
        .map(|value| git_directory.join(&value.text));
    let top = worktree.unwrap_or_else(|| work_tree_of(git_directory).to_path_buf());
    for value in &values {
        match value.meaning() {
            Some(Meaning::Path) => {
                named.insert(Named {
                    path: top.join(&value.text),
                    as_directory: true,
                });
            }
            Some(Meaning::Command) => named.extend(
                value
                    .text
                    .split(|letter: char| letter.is_whitespace() || "!'\"();|&<>=".contains(letter))
                    .filter(|word| word.contains('/'))
                    .map(|word| Named::file(top.join(word))),
            ),
            // Taken while it was read.
            Some(Meaning::Include) | None => {}
        }
    }
    named
}

/// A repository's own directory lies in its work tree; a bare one is run where it lies.
fn work_tree_of(git_directory: &Path) -> &Path {
    let named = git_directory
        .file_name()
        .is_some_and(|name| name.eq_ignore_ascii_case(".git"));
    match git_directory.parent() {
        Some(parent) if named => parent,
        _ => git_directory,
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Value {
    section: String,
    key: String,
    text: String,
}

impl Value {
    fn meaning(&self) -> Option<Meaning> {
        NAMES
            .iter()
            .find(|(section, key, _, _)| {
                *section == self.section && (*key == "*" || *key == self.key)
            })
            .map(|(_, _, meaning, _)| *meaning)
    }
}

fn read(file: &Path, depth: usize, values: &mut Vec<Value>, named: &mut BTreeSet<Named>) {
    if depth > MOST_INCLUDES {
        return;
    }
    // What is there may be a pipe; it must not make us wait. What cannot be read by us is read by no git of ours.
    let opened = std::fs::File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(file);
    let mut text = Vec::new();
    let Ok(opened) = opened else { return };
    if !opened.metadata().is_ok_and(|metadata| metadata.is_file())
        || opened.take(MOST_BYTES).read_to_end(&mut text).is_err()
    {
        return;
    }
    for value in parse(&String::from_utf8_lossy(&text)) {
        if value.meaning() == Some(Meaning::Include) {
            let path = file.parent().unwrap_or(file).join(&value.text);
            if named.insert(Named::file(path.clone())) {
                read(&path, depth + 1, values, named);
            }
        }
        values.push(value);
    }
}

/// Git's configuration syntax, as far as it decides which value a key has.
fn parse(text: &str) -> Vec<Value> {
    let mut values = Vec::new();
    let mut section = String::new();
    let joined = text.replace("\\\r\n", "").replace("\\\n", "");
    for line in joined.lines() {
        let mut line = line.trim();
        if let Some(rest) = line.strip_prefix('[') {
            let Some((header, after)) = rest.split_once(']') else {
                continue;
            };
            section = header
                .split(|letter: char| letter.is_whitespace() || letter == '.' || letter == '"')
                .next()
                .unwrap_or("")
                .to_lowercase();
            line = after.trim();
        }
        let Some((key, text)) = line.split_once('=') else {
            continue;
        };
        values.push(Value {
            section: section.clone(),
            key: key.trim().to_lowercase(),
            text: unquote(text),
        });
    }
    values
}

/// Without quotes, escapes and the comment at the end.
fn unquote(text: &str) -> String {
    let mut out = String::new();
    let mut quoted = false;
    let mut letters = text.trim().chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => quoted = !quoted,
            '\\' => out.extend(letters.next()),
            '#' | ';' if !quoted => break,
            other => out.push(other),
        }
    }
    out.trim_end().to_owned()
}

/// Whether a directory of git's is one that `git worktree add` makes: its configuration and hooks are those of a directory
/// that was there, and so protected, from the start.
pub(super) fn is_ordinary_worktree(git_directory: &Path, known: &BTreeSet<PathBuf>) -> bool {
    let common = std::fs::read_to_string(git_directory.join("commondir"))
        .ok()
        .and_then(|text| std::fs::canonicalize(git_directory.join(text.trim_end())).ok());
    let own_config = std::fs::symlink_metadata(git_directory.join("config.worktree")).is_ok();
    common.is_some_and(|common| known.contains(&common)) && !own_config
}

/// Where a `.git` file points.
pub(super) fn pointed_to(file: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(file).ok()?;
    let target = text.strip_prefix("gitdir: ")?.trim_end();
    std::fs::canonicalize(file.parent()?.join(target)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_git_reads_them() {
        let text = "# x\n[Core]\n\thooksPath = \"my hooks\" ; here\n[filter \"a.b\"] clean = ./c\\\nd # e\n[alias]\nx = !./run\n\
            [include]path=a\\\"b\nnothing\n";
        let value = |section: &str, key: &str, text: &str| Value {
            section: section.into(),
            key: key.into(),
            text: text.into(),
        };
        assert_eq!(
            parse(text),
            [
                value("core", "hookspath", "my hooks"),
                value("filter", "clean", "./cd"),
                value("alias", "x", "!./run"),
                value("include", "path", "a\"b"),
            ]
        );
    }

    #[test]
    fn what_a_configuration_names_is_found_through_includes() {
        let root = tempfile::tempdir().unwrap();
        let git = root.path().join(".git");
        std::fs::create_dir(&git).unwrap();
        std::fs::write(
            git.join("config"),
            "[core]\nhooksPath = .husky/_\n[include]\npath = ../more\n[user]\nname = a/b\n",
        )
        .unwrap();
        std::fs::write(
            root.path().join("more"),
            "[filter \"x\"]\nclean = python3 tools/clean.py --fast\n[include]\npath = more\n",
        )
        .unwrap();
        let named = named_by(&git);
        let wanted = [
            git.join("../more"),
            root.path().join(".husky/_"),
            root.path().join("tools/clean.py"),
        ];
        let named: Vec<PathBuf> = named.into_iter().map(|named| named.path).collect();
        assert_eq!(named, wanted);
    }

    #[test]
    fn every_name_is_listed_once_with_a_reason() {
        let mut names: Vec<_> = NAMES.iter().map(|line| (line.0, line.1)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NAMES.len());
        assert!(
            NAMES
                .iter()
                .all(|line| line.3.len() > 8 && line.1 == line.1.to_lowercase())
        );
    }
}
