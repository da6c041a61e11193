//! What holds for every file.

use policy::config::{Config, Source, known_keys};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn findings(text: &[u8]) -> Vec<(String, String, usize)> {
    let findings = match Config::read(&[Source { name: "a", text }]) {
        Ok(loaded) => loaded.warnings,
        Err(findings) => findings,
    };
    findings
        .into_iter()
        .map(|f| (f.code.id().to_owned(), f.key, f.line))
        .collect()
}

/// Pieces that come together to nearly right files.
fn yaml_like() -> impl Strategy<Value = String> {
    let keys: Vec<String> = known_keys()
        .iter()
        .flat_map(|key| key.split(['.', '[', ']']))
        .map(str::to_owned)
        .collect();
    let signs = [
        ": ", "\n", "  ", "\t", "- ", "[", "]", "{", "}", "&a ", "*a", "!!str ", "'", "\"", "|\n",
        ">", "#", "---", "? ", ", ", "2", "-1", "1e9", "0x1f", "true", "null", "~", "日本",
        "\u{feff}", "\r\n", "\r", "%", "<<: ", "\\", "\0",
    ];
    let piece = prop_oneof![
        proptest::sample::select(keys),
        proptest::sample::select(signs.to_vec()).prop_map(str::to_owned),
        "\\PC{0,6}",
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(!findings(&text).is_empty());
    }

    /// Every finding stands in its file, at a character or just behind the last one of its line, and the same bytes give the
    /// same findings.
    #[test]
    fn spec_15_findings_stand_in_the_file(head in any::<bool>(), text in yaml_like(), junk in proptest::collection::vec(any::<u8>(), 0..4)) {
        let head = if head { "schema_version: 2\nollama: {model: m}\n" } else { "" };
        let mut bytes = format!("{head}{text}").into_bytes();
        bytes.extend(junk);
        let read = || {
            let found = match Config::read(&[Source { name: "a", text: &bytes }]) {
                Ok(loaded) => loaded.warnings,
                Err(findings) => findings,
            };
            format!("{found:?}")
        };
        prop_assert_eq!(read(), read());
        let shown = String::from_utf8_lossy(&bytes);
        let shown = shown.replace("\r\n", "\n").replace('\r', "\n");
        let lines: Vec<&str> = shown.split('\n').collect();
        if let Err(found) = Config::read(&[Source { name: "a", text: &bytes }]) {
            for finding in found {
                let line = lines.get(finding.line - 1);
                let length = line.map_or(0, |line| line.chars().count());
                prop_assert!(finding.line <= lines.len() && finding.column <= length + 1, "{finding:?} in {shown:?}");
            }
        }
    }

    #[test]
    fn nearly_yaml_never_panics(base in yaml_like(), local in yaml_like()) {
        let head = "schema_version: 2\nollama: {model: m}\n";
        for base in [base.clone(), format!("{head}{base}")] {
            let sources = [
                Source { name: "a", text: base.as_bytes() },
                Source { name: "b", text: local.as_bytes() },
            ];
            match Config::read(&sources) {
                Ok(loaded) => prop_assert!(loaded.config.later_keys().iter().all(|finding| finding.line > 0)),
                Err(findings) => {
                    prop_assert!(!findings.is_empty());
                    for finding in findings {
                        let text = if finding.file == "a" { &base } else { &local };
                        let lines = text.split(['\n', '\r']).count() + 1;
                        prop_assert!((1..=lines).contains(&finding.line) && finding.column >= 1, "{finding:?} in {text:?}");
                    }
                }
            }
        }
    }

    /// An unknown key is found wherever it stands, at its line, and nothing else is.
    #[test]
    fn unknown_keys_are_always_found(name in "[a-z]{1,12}_x", section in proptest::sample::select(sections())) {
        let mut text = "schema_version: 2\n".to_owned();
        if !section.starts_with("ollama") {
            text.push_str("ollama: {model: m}\n");
        }
        let mut indent = String::new();
        for part in section.split('.').filter(|part| !part.is_empty()) {
            text.push_str(&format!("{indent}{part}:\n"));
            indent.push_str("  ");
            if part == "ollama" {
                text.push_str("  model: m\n");
            }
        }
        let line = text.lines().count() + 1;
        text.push_str(&format!("{indent}{name}: 1\n"));
        let key = if section.is_empty() { name } else { format!("{section}.{name}") };
        let found = findings(text.as_bytes());
        prop_assert_eq!(found.len(), 1, "{:?} {}", &found, &text);
        prop_assert!(found[0].0.starts_with("config.unknown_key"));
        prop_assert_eq!((&found[0].1, found[0].2), (&key, line));
    }
}

/// Every section with a fixed set of keys, the file itself included.
fn sections() -> Vec<String> {
    let mut sections = BTreeSet::from([String::new()]);
    for key in known_keys().iter().filter(|key| !key.contains('[')) {
        let mut at = key.as_str();
        while let Some((section, _)) = at.rsplit_once('.') {
            sections.insert(section.to_owned());
            at = section;
        }
    }
    sections.into_iter().collect()
}
