//! `docs/requirements.md`: every requirement ID, its tests and its state, made from `docs/requirements.tsv` and the tests'
//! own names and doc comments, so that it cannot drift.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const SOURCE: &str = "docs/requirements.tsv";
const TARGET: &str = "docs/requirements.md";
/// Tests shown for one ID; more are counted.
const SHOWN: usize = 5;

struct Requirement {
    id: String,
    source: String,
    state: String,
    what: String,
}

impl Requirement {
    fn wants_tests(&self) -> bool {
        self.state.starts_with("verified") || self.state.starts_with("part")
    }
}

/// Writes the page.
pub fn write() -> Result<(), String> {
    let page = page()?;
    fs::write(crate::root().join(TARGET), page).map_err(|error| format!("{TARGET}: {error}"))
}

/// Compares the page with what it should be.
pub fn check() -> Result<(), String> {
    let have = fs::read_to_string(crate::root().join(TARGET))
        .map_err(|error| format!("{TARGET}: {error}"))?;
    if have == page()? {
        Ok(())
    } else {
        Err(format!(
            "{TARGET} is out of date: run `cargo xtask requirements`"
        ))
    }
}

fn page() -> Result<String, String> {
    let requirements = requirements()?;
    let tests = tests_by_id(&requirements)?;
    let mut problems = String::new();
    let mut rows = String::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for requirement in &requirements {
        let found = tests.get(&requirement.id).map_or(&[][..], Vec::as_slice);
        if requirement.wants_tests() && found.is_empty() {
            let _ = writeln!(
                problems,
                "{}: says \"{}\" and has no test",
                requirement.id, requirement.state
            );
        }
        let word = match requirement.state.as_str() {
            state if state.starts_with("verified") => "verified here",
            state if state.starts_with("part") => "in part",
            state if state.starts_with("measured") => "measured",
            _ => "not yet",
        };
        *counts.entry(word).or_default() += 1;
        let mut shown: Vec<String> = found
            .iter()
            .take(SHOWN)
            .map(|test| format!("`{test}`"))
            .collect();
        if found.len() > SHOWN {
            shown.push(format!("and {} more", found.len() - SHOWN));
        }
        let _ = writeln!(
            rows,
            "| {} | {} | {} | {} | {} |",
            requirement.id,
            requirement.source,
            requirement.what,
            requirement.state,
            shown.join("<br>")
        );
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(word, count)| format!("{word}: {count}"))
        .collect();
    Ok(format!(
        "# Requirements\n\nMade by `cargo xtask requirements` from `{SOURCE}` and from the IDs in test names and test comments; \
         a test fails when it is out of date, and when an ID that says it is verified has no test.\n\n{}.\n\n\
         | ID | source | what | state | tests |\n|---|---|---|---|---|\n{rows}",
        counts.join(", ")
    ))
}

fn requirements() -> Result<Vec<Requirement>, String> {
    let text = fs::read_to_string(crate::root().join(SOURCE))
        .map_err(|error| format!("{SOURCE}: {error}"))?;
    let mut found: Vec<Requirement> = Vec::new();
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [id, source, state, what] = cells[..] else {
            return Err(format!("{SOURCE}: four columns wanted: {line}"));
        };
        if found.iter().any(|known| known.id == id) {
            return Err(format!("{SOURCE}: {id} twice"));
        }
        found.push(Requirement {
            id: id.into(),
            source: source.into(),
            state: state.into(),
            what: what.into(),
        });
    }
    Ok(found)
}

fn tests_by_id(requirements: &[Requirement]) -> Result<BTreeMap<String, Vec<String>>, String> {
    let root = crate::root();
    let mut files = Vec::new();
    for folder in ["crates", "xtask"] {
        rust_files(&root.join(folder), &mut files);
    }
    files.sort();
    let mut by_id: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let text =
            fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file
            .strip_prefix(&root)
            .unwrap_or(&file)
            .display()
            .to_string();
        let lines: Vec<&str> = text.lines().collect();
        let Some(first) = first_test_line(&name, &lines) else {
            continue;
        };
        for (index, line) in lines.iter().enumerate().skip(first) {
            if !is_name_or_comment(line) {
                continue;
            }
            for requirement in requirements
                .iter()
                .filter(|requirement| mentions(line, &requirement.id))
            {
                let test = format!("{name}::{}", function_near(&lines, index));
                let known = by_id.entry(requirement.id.clone()).or_default();
                if !known.contains(&test) {
                    known.push(test);
                }
            }
        }
    }
    Ok(by_id)
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Where tests begin in a file: the whole file below `tests/` or called `tests.rs`, else from `#[cfg(test)]` on.
fn first_test_line(name: &str, lines: &[&str]) -> Option<usize> {
    if name.contains("/tests/") || name.ends_with("tests.rs") || name.ends_with("_test.rs") {
        return Some(0);
    }
    lines
        .iter()
        .position(|line| line.trim_start().starts_with("#[cfg(test)]"))
}

fn is_name_or_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") || line.contains("fn ") || line.contains('"')
}

/// The ID as it is written (`SEC-INV-04`), or in a name (`sec_inv_04`).
fn mentions(line: &str, id: &str) -> bool {
    let in_name = id.to_lowercase().replace('-', "_");
    bounded(line, id, |c| c.is_ascii_alphanumeric() || c == '-')
        || bounded(line, &in_name, |c| c.is_ascii_alphanumeric())
}

fn bounded(line: &str, word: &str, continues: impl Fn(char) -> bool) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(&continues) && !after.is_some_and(&continues)
    })
}

fn function_near(lines: &[&str], index: usize) -> String {
    let name_in = |line: &str| {
        let rest = &line[line.find("fn ")? + 3..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
        (end > 0).then(|| rest[..end].to_owned())
    };
    let after = lines
        .iter()
        .skip(index)
        .take(14)
        .find_map(|line| name_in(line));
    after.unwrap_or_else(|| format!("line {}", index + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// product.md §4: the page lists every ID with its tests and state, and cannot drift.
    #[test]
    fn requirements_page_is_up_to_date() {
        check().unwrap();
    }

    #[test]
    fn an_id_is_found_whole_only() {
        assert!(mentions("/// SEC-INV-04: no", "SEC-INV-04"));
        assert!(mentions("fn sec_inv_04_refuses()", "SEC-INV-04"));
        assert!(!mentions("/// ST-051", "ST-05"));
        assert!(!mentions("/// AT-10", "AT-1"));
        assert!(!mentions("fn cat_01()", "AT-01"));
    }
}
