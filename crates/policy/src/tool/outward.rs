//! Which argument vectors send something out: `git push`, `cargo publish` and their like.
//!
//! Judged by program and sub-command alone. What a shell line or an interpreter's script would do is not seen here; the
//! shell syntax tree comes with the guardrails, and the sandbox's network is closed either way.

use super::Operation;
use std::collections::BTreeSet;

/// One family of programs whose sub-commands can send something out.
struct Sender {
    programs: &'static [&'static str],
    operation: Operation,
    /// Options before the sub-command whose value is the next word. Options are compared as they are: `-C` is not `-c`.
    valued: &'static [&'static str],
    /// The sub-command, and for some of them a word that must come later.
    commands: &'static [(&'static str, Option<&'static str>)],
    /// Options that define what a sub-command means, with the start of the settings that do it.
    redefining: (&'static [&'static str], &'static [&'static str]),
}

const NOTHING_REDEFINES: (&[&str], &[&str]) = (&[], &[]);

const SENDERS: &[Sender] = &[
    Sender {
        programs: &["git"],
        operation: Operation::GitPush,
        valued: &[
            "-C",
            "-c",
            "--git-dir",
            "--work-tree",
            "--namespace",
            "--super-prefix",
            "--config-env",
            "--attr-source",
        ],
        commands: &[
            ("push", None),
            ("send-pack", None),
            ("http-push", None),
            ("subtree", Some("push")),
            ("lfs", Some("push")),
            ("svn", Some("dcommit")),
            ("p4", Some("submit")),
        ],
        redefining: (&["-c", "--config-env"], &["alias.", "include"]),
    },
    Sender {
        programs: &["cargo"],
        operation: Operation::PackagePublish,
        valued: &["-C", "-Z", "--config", "--color"],
        commands: &[("publish", None)],
        redefining: (&["--config"], &["alias"]),
    },
    Sender {
        programs: &["npm", "pnpm", "yarn", "bun"],
        operation: Operation::PackagePublish,
        valued: &[
            "-C",
            "-w",
            "-F",
            "--access",
            "--cache",
            "--cwd",
            "--dir",
            "--filter",
            "--globalconfig",
            "--include",
            "--loglevel",
            "--omit",
            "--otp",
            "--prefix",
            "--registry",
            "--reporter",
            "--scope",
            "--tag",
            "--userconfig",
            "--workspace",
        ],
        commands: &[
            ("publish", None),
            // npm takes every unambiguous beginning of a command.
            ("pu", None),
            ("pub", None),
            ("publ", None),
            ("publi", None),
            ("publis", None),
            ("npm", Some("publish")),
            ("workspace", Some("publish")),
            ("workspaces", Some("publish")),
            ("recursive", Some("publish")),
        ],
        redefining: NOTHING_REDEFINES,
    },
    Sender {
        programs: &["poetry", "uv", "pdm", "flit", "hatch", "maturin"],
        operation: Operation::PackagePublish,
        valued: &[
            "-C",
            "-P",
            "-f",
            "--color",
            "--config-file",
            "--directory",
            "--project",
        ],
        commands: &[("publish", None), ("upload", None)],
        redefining: NOTHING_REDEFINES,
    },
    Sender {
        programs: &["twine"],
        operation: Operation::PackagePublish,
        valued: &[],
        commands: &[("upload", None)],
        redefining: NOTHING_REDEFINES,
    },
    Sender {
        programs: &["gem"],
        operation: Operation::PackagePublish,
        valued: &["--config-file"],
        commands: &[("push", None)],
        redefining: NOTHING_REDEFINES,
    },
];

/// What an argument vector amounts to, by the program's file name and its sub-command.
pub(crate) fn program_operations(executable: &str, args: &[String]) -> BTreeSet<Operation> {
    let mut operations = BTreeSet::from([Operation::ProcessRun]);
    let name = program_name(executable);
    // git's own helper programs: git-push is `git push`.
    let (name, helper) = match name.split_once('-') {
        Some(("git", helper)) => ("git", Some(helper)),
        _ => (name.as_str(), None),
    };
    let words: Vec<&str> = helper
        .into_iter()
        .chain(args.iter().map(String::as_str))
        .collect();
    let sender = SENDERS
        .iter()
        .find(|sender| sender.programs.contains(&name));
    match sender {
        Some(sender) if sender.sends(&words) => {
            operations.insert(sender.operation);
        }
        Some(_) if name == "git" => {
            operations.insert(Operation::GitRead);
        }
        _ => {}
    }
    operations
}

fn program_name(executable: &str) -> String {
    let name = executable
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or(executable)
        .to_lowercase();
    [".exe", ".cmd", ".bat"]
        .iter()
        .find_map(|extension| name.strip_suffix(extension))
        .unwrap_or(&name)
        .to_owned()
}

impl Sender {
    fn sends(&self, words: &[&str]) -> bool {
        let mut rest = words;
        while let [word, after @ ..] = rest {
            rest = after;
            // `cargo +nightly` names a toolchain.
            if word.starts_with('+') {
                continue;
            }
            if !word.starts_with('-') {
                return self.commands.iter().any(|(command, later)| {
                    word.eq_ignore_ascii_case(command)
                        && later.is_none_or(|later| {
                            rest.iter().any(|word| word.eq_ignore_ascii_case(later))
                        })
                });
            }
            let (option, mut value) = match word.split_once('=') {
                Some((option, value)) => (option, Some(value)),
                None => (*word, None),
            };
            if value.is_none() && self.valued.contains(&option) {
                value = rest.first().copied();
                rest = rest.get(1..).unwrap_or_default();
            }
            if self.redefines(option, value.unwrap_or_default()) {
                return true;
            }
        }
        false
    }

    /// `git -c alias.x=push x` pushes. Which sub-command it makes is not worked out: it counts as sending.
    fn redefines(&self, option: &str, value: &str) -> bool {
        let (options, settings) = self.redefining;
        let value = value.trim_start().to_lowercase();
        options.contains(&option) && settings.iter().any(|start| value.starts_with(start))
    }
}
