//! Checks `docs/attacks.md`: every row of the escape matrix is listed, and every listed test exists.

use std::collections::BTreeSet;
use std::path::Path;

/// What rows and tests of the sandbox are called.
const PREFIXES: &[&str] = &[
    "fs_",
    "st_",
    "sec_inv_",
    "x_",
    "keeps_",
    "bare_",
    "terminal_",
    "private_area_",
];

/// Says what is missing on either side.
pub fn check() -> Result<(), String> {
    let root = crate::root();
    let page = std::fs::read_to_string(root.join("docs/attacks.md"))
        .map_err(|error| format!("docs/attacks.md: {error}"))?;
    let tests = root.join("crates/sandbox-linux/tests");
    let (mut rows, mut known) = (BTreeSet::new(), BTreeSet::new());
    collect(&tests.join("support/rows"), &mut rows)?;
    collect(&tests, &mut known)?;
    let listed: Vec<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
        .collect();
    let unlisted: Vec<&String> = rows
        .iter()
        .filter(|row| !listed.iter().any(|pattern| fits(pattern, row)))
        .collect();
    let unknown: Vec<&&str> = listed
        .iter()
        .filter(|pattern| !known.iter().any(|name| fits(pattern, name)))
        .collect();
    if unlisted.is_empty() && unknown.is_empty() {
        return Ok(());
    }
    Err(format!(
        "docs/attacks.md lists no {unlisted:?}; there is no {unknown:?}"
    ))
}

/// A name, with one `*` for any rest.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
        None => pattern == name,
    }
}

/// Every name in quotes in the sources of a folder.
fn collect(folder: &Path, names: &mut BTreeSet<String>) -> Result<(), String> {
    let entries =
        std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, names)?;
            continue;
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let quoted = text.split('"').skip(1).step_by(2);
        let is_name = |word: &&str| {
            word.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
                && PREFIXES.iter().any(|prefix| word.starts_with(prefix))
                && word.len() > 6
        };
        names.extend(quoted.filter(is_name).map(str::to_owned));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_attacks_is_complete() {
        check().unwrap();
    }

    #[test]
    fn patterns_fit_whole_names() {
        assert!(fits("st_19_fs*", "st_19_fsopen"));
        assert!(fits("st_19_*_module", "st_19_init_module"));
        assert!(!fits("st_19_fs", "st_19_fsopen"));
        assert!(!fits("st_19_fsopen*n", "st_19_fsopen"));
    }
}
