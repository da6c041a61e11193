//! The crate graph of ARCHITECTURE.md, read from `cargo metadata`.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use cargo_metadata::{DependencyKind, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};

/// Who may depend on whom (ours only). `console` and `sandbox-windows` have no code yet.
const ALLOWED: &[(&str, &[&str])] = &[
    ("planner", &[]),
    ("policy", &[]),
    ("record", &["policy"]),
    ("sandbox-linux", &["policy"]),
    ("runtime", &["planner", "policy", "record"]),
    ("mcp", &["runtime", "policy", "record"]),
    (
        "agent-mcp",
        &[
            "planner",
            "policy",
            "record",
            "runtime",
            "sandbox-linux",
            "mcp",
        ],
    ),
    ("testkit", &["policy", "record", "runtime", "agent-mcp"]),
    ("xtask", &[]),
];

/// NFR-04, architecture.md: no edge beyond the table; testkit only as a dev-dependency.
#[test]
fn nfr_04_no_edge_beyond_the_table() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let ours: BTreeSet<String> = metadata
        .packages
        .iter()
        .map(|package| package.name.to_string())
        .collect();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    for package in &metadata.packages {
        let may = allowed
            .get(package.name.as_str())
            .unwrap_or_else(|| panic!("{} is not in the table", package.name));
        for dependency in package
            .dependencies
            .iter()
            .filter(|dependency| ours.contains(&dependency.name))
        {
            let dev_testkit =
                dependency.kind == DependencyKind::Development && dependency.name == "testkit";
            assert!(
                dev_testkit || may.contains(&dependency.name.as_str()),
                "{} may not depend on {}",
                package.name,
                dependency.name
            );
        }
    }
}

/// architecture.md: a folder's name is its crate's name, and no module has a name that says nothing.
#[test]
fn nfr_09_names_say_what_things_are() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    for package in &metadata.packages {
        let folder = package.manifest_path.parent().unwrap();
        assert_eq!(folder.file_name().unwrap(), package.name.as_str());
        let mut stack = vec![folder.join("src").into_std_path_buf()];
        while let Some(directory) = stack.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let stem = path.file_stem().unwrap().to_string_lossy().to_lowercase();
                for bad in [
                    "util",
                    "utils",
                    "common",
                    "helpers",
                    "manager",
                    "infrastructure",
                    "misc",
                ] {
                    assert_ne!(stem, bad, "{}", path.display());
                }
                if path.is_dir() {
                    stack.push(path);
                }
            }
        }
    }
}

/// style.md: unsafe code only in the sandbox crates.
#[test]
fn unsafe_code_is_forbidden_outside_the_sandbox_crates() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    for package in metadata
        .packages
        .iter()
        .filter(|package| !package.name.starts_with("sandbox-"))
    {
        for target in package
            .targets
            .iter()
            .filter(|target| target.is_lib() || target.is_bin())
        {
            let text = std::fs::read_to_string(&target.src_path).unwrap();
            assert!(
                text.contains("#![forbid(unsafe_code)]"),
                "{}",
                target.src_path
            );
        }
    }
}

/// X-WORDS: an executable approval and an action approval are different things; no type is called just "Approval".
#[test]
fn x_words_no_type_is_called_just_approval() {
    for_each_source(|path, text| {
        for line in text.lines() {
            let words: Vec<&str> = line.split(|c: char| !c.is_ascii_alphanumeric()).collect();
            let plain = words.windows(2).any(|pair| {
                ["struct", "enum", "trait", "type"].contains(&pair[0]) && pair[1] == "Approval"
            });
            assert!(!plain, "{}: {line}", path.display());
        }
    });
}

/// NFR-05, X-DEPS: every dependency of the workspace is used by a crate, and those that matter for security are in a decision.
#[test]
fn nfr_05_x_deps_every_dependency_is_used() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let root = metadata.workspace_root.clone();
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let section = manifest
        .split("[workspace.dependencies]")
        .nth(1)
        .unwrap()
        .split("\n[")
        .next()
        .unwrap();
    let used: BTreeSet<String> = metadata
        .packages
        .iter()
        .flat_map(|package| {
            package
                .dependencies
                .iter()
                .map(|dependency| dependency.name.clone())
        })
        .collect();
    for line in section.lines().filter(|line| line.contains('=')) {
        let name = line.split('=').next().unwrap().trim();
        assert!(
            used.contains(name),
            "{name} is in [workspace.dependencies] and nobody uses it"
        );
    }
    let decision =
        std::fs::read_to_string(root.join("docs/decisions/0001-dependencies.md")).unwrap();
    for name in [
        "rmcp", "reqwest", "cap-std", "rustix", "hmac", "sha2", "landlock",
    ] {
        assert!(
            !used.contains(name) || decision.contains(&format!("`{name}`")),
            "{name} is not in the decision"
        );
    }
}

fn for_each_source(mut look: impl FnMut(&std::path::Path, &str)) {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    for package in &metadata.packages {
        let mut stack = vec![
            package
                .manifest_path
                .parent()
                .unwrap()
                .join("src")
                .into_std_path_buf(),
        ];
        while let Some(directory) = stack.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    stack.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    look(&path, &std::fs::read_to_string(&path).unwrap());
                }
            }
        }
    }
}
