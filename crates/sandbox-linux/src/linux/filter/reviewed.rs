//! The table against every call that the two architectures have: `calls.tsv`, reviewed line by line.

use super::table::tests::choices;
use super::table::{Action, REVIEWED_BELOW, all, rules};
use libc::ENOSYS;
use std::collections::BTreeMap;

/// Name, numbers on x86_64 and aarch64, and whether the filter does anything with it.
fn reviewed() -> Vec<(&'static str, [Option<u32>; 2], bool)> {
    include_str!("calls.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let &[name, x86_64, aarch64, verdict] = columns.as_slice() else {
                panic!("{line}");
            };
            assert!(["refused", "judged", "free"].contains(&verdict), "{line}");
            let number = |text: &str| text.parse().ok();
            (name, [number(x86_64), number(aarch64)], verdict != "free")
        })
        .collect()
}

/// ST-08: no call of this architecture below the reviewed bound escapes the review, whatever the filter does with it.
#[test]
fn st_08_every_call_of_this_architecture_was_reviewed() {
    let here = usize::from(cfg!(target_arch = "aarch64"));
    let mut listed = BTreeMap::new();
    for (name, numbers, is_ruled) in reviewed() {
        let Some(number) = numbers[here] else {
            continue;
        };
        assert!(number < REVIEWED_BELOW, "{name}");
        assert_eq!(listed.insert(number, (name, is_ruled)), None, "{name}");
    }
    let mut ruled: Vec<u32> = choices()
        .into_iter()
        .flat_map(all)
        .map(|rule| rule.number as u32)
        .collect();
    ruled.sort_unstable();
    ruled.dedup();
    for number in &ruled {
        assert!(
            listed.contains_key(number),
            "{number} has no line in calls.tsv"
        );
    }
    for (number, (name, is_ruled)) in &listed {
        assert_eq!(ruled.contains(number), *is_ruled, "{name}");
    }
    // What is in no list does not exist.
    for choice in choices() {
        let rules: BTreeMap<u32, Action> = rules(choice).into_iter().collect();
        for number in (0..REVIEWED_BELOW).filter(|number| !listed.contains_key(number)) {
            assert_eq!(
                rules.get(&number),
                Some(&Action::Refuse(ENOSYS)),
                "{number}"
            );
        }
    }
}

/// The same for the architecture that no test runs on: by the names that stand in this file.
#[test]
fn st_08_every_call_of_the_other_architecture_was_reviewed() {
    let (code, _) = include_str!("table.rs").split_once("mod tests {").unwrap();
    let (before, rest) = code.split_once("/// Calls that only x86_64 has.").unwrap();
    let (only_x86_64, after) = rest.split_once("const NO_NAMESPACES").unwrap();
    let names = |text: &str| {
        text.split("SYS_")
            .skip(1)
            .map(|rest| {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                rest[..end.unwrap_or(rest.len())].to_lowercase()
            })
            .collect::<std::collections::BTreeSet<_>>()
    };
    let everywhere: std::collections::BTreeSet<_> =
        names(before).union(&names(after)).cloned().collect();
    let only_x86_64 = names(only_x86_64);
    let mut numbers_of_aarch64 = BTreeMap::new();
    for (name, [x86_64, aarch64], is_ruled) in reviewed() {
        assert!(x86_64.is_some() || aarch64.is_some(), "{name}");
        if let Some(number) = aarch64 {
            assert!(number < REVIEWED_BELOW, "{name}");
            assert_eq!(numbers_of_aarch64.insert(number, name), None, "{name}");
            assert_eq!(everywhere.contains(name), is_ruled, "{name} on aarch64");
        } else {
            assert_eq!(
                only_x86_64.contains(name),
                is_ruled,
                "{name} on x86_64 only"
            );
        }
        // From 424 on the numbers are the same everywhere.
        if x86_64.is_some_and(|number| number >= 424) {
            assert_eq!(x86_64, aarch64, "{name}");
        }
    }
}

/// The list against the system's own headers, where they are there (they come with a C compiler).
#[test]
fn st_08_the_list_agrees_with_the_headers() {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let headers = [
        read("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        read("/usr/include/asm-generic/unistd.h"),
    ];
    for (column, text) in headers.into_iter().enumerate() {
        let Some(text) = text else { continue };
        let mut named: BTreeMap<&str, u32> = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let &["#define", name, value] = words.as_slice() else {
                continue;
            };
            let name = name
                .trim_start_matches("__NR3264_")
                .trim_start_matches("__NR_");
            match value.parse() {
                Ok(number) => {
                    named.insert(name, number);
                }
                // `newfstatat` is `__NR3264_fstatat` on 64 bits.
                Err(_) => {
                    let of = value.trim_start_matches("__NR3264_");
                    if name == "newfstatat"
                        && let Some(number) = named.remove(of)
                    {
                        named.insert(name, number);
                    }
                }
            }
        }
        let listed: BTreeMap<&str, u32> = reviewed()
            .into_iter()
            .filter_map(|(name, numbers, _)| Some((name, numbers[column]?)))
            .collect();
        let mut compared = 0;
        for (name, number) in named {
            // Not calls, or calls of 32 bits only, or another name for one that is listed.
            let other = ["arch_specific_syscall", "syscalls", "sync_file_range2"].contains(&name)
                || (403..=423).contains(&number);
            if other || number >= REVIEWED_BELOW {
                continue;
            }
            assert_eq!(listed.get(name), Some(&number), "{name}");
            compared += 1;
        }
        assert!(compared > 290, "column {column}: {compared}");
    }
}
