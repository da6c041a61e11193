//! DC-3, GUARD "audit signing": any flip, drop, swap, insertion or cut in the audit log is found.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use proptest::prelude::*;
use record::{EventName, Instance};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// File name to content: three chain files and the head.
type Files = BTreeMap<String, Vec<u8>>;

fn make(close: bool) -> Files {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let log = small_files(&instance);
    for number in 0..20 {
        log.append(event(EventName::ToolCall).detail("number", number))
            .unwrap();
    }
    if close {
        log.close().unwrap();
    } else {
        log.flush().unwrap();
    }
    let files: Files = fs::read_dir(instance.directory())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("audit."))
        // It only repeats the log's end (audit_kernel_boot.rs); without it every change must be found all the same.
        .filter(|entry| entry.file_name() != "audit.ahead")
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    assert_eq!(files.len(), 4, "{:?}", files.keys());
    files
}

fn originals() -> &'static [Files; 2] {
    static FILES: OnceLock<[Files; 2]> = OnceLock::new();
    FILES.get_or_init(|| [make(true), make(false)])
}

fn is_good(files: &Files) -> bool {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(directory.path().join(name), content).unwrap();
    }
    verify(Path::new(directory.path())).is_good()
}

#[derive(Clone, Debug)]
enum Tampering {
    /// Any bit of any file, the head's too.
    Flip {
        at: prop::sample::Index,
        bit: u8,
    },
    Drop {
        line: prop::sample::Index,
    },
    Swap {
        one: prop::sample::Index,
        two: prop::sample::Index,
    },
    /// A genuine line once more, anywhere.
    Repeat {
        line: prop::sample::Index,
        to: prop::sample::Index,
    },
    /// A line from another chain that was signed with the same key.
    Transplant {
        line: prop::sample::Index,
        to: prop::sample::Index,
        over: bool,
    },
    /// Any bytes, anywhere.
    Insert {
        at: prop::sample::Index,
        bytes: Vec<u8>,
    },
    /// Any bytes gone.
    Remove {
        at: prop::sample::Index,
        length: usize,
    },
    /// The end gone: bytes, or whole lines.
    Cut {
        bytes: usize,
    },
    CutLines {
        lines: usize,
    },
    RemoveFile {
        file: prop::sample::Index,
    },
}

fn tampering() -> impl Strategy<Value = Tampering> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (index(), 0..8u8).prop_map(|(at, bit)| Tampering::Flip { at, bit }),
        1 => index().prop_map(|line| Tampering::Drop { line }),
        1 => (index(), index()).prop_map(|(one, two)| Tampering::Swap { one, two }),
        1 => (index(), index()).prop_map(|(line, to)| Tampering::Repeat { line, to }),
        1 => (index(), index(), any::<bool>())
            .prop_map(|(line, to, over)| Tampering::Transplant { line, to, over }),
        2 => (index(), prop::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(at, bytes)| Tampering::Insert { at, bytes }),
        1 => (index(), 1..700usize).prop_map(|(at, length)| Tampering::Remove { at, length }),
        1 => (1..9000usize).prop_map(|bytes| Tampering::Cut { bytes }),
        1 => (1..18usize).prop_map(|lines| Tampering::CutLines { lines }),
        1 => index().prop_map(|file| Tampering::RemoveFile { file }),
    ]
}

fn chain_names(files: &Files) -> Vec<String> {
    files
        .keys()
        .filter(|name| name.ends_with(".jsonl"))
        .cloned()
        .collect()
}

/// Every line with the file it stands in.
fn lines(files: &Files) -> Vec<(String, Vec<u8>)> {
    chain_names(files)
        .into_iter()
        .flat_map(|name| {
            files[&name]
                .split_inclusive(|&byte| byte == b'\n')
                .map(|line| (name.clone(), line.to_vec()))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Puts lines back into their files; a file that has none left stays, empty.
fn put_lines(files: &mut Files, lines: Vec<(String, Vec<u8>)>) {
    for name in chain_names(files) {
        files.insert(name, Vec::new());
    }
    for (name, line) in lines {
        files.get_mut(&name).unwrap().extend(line);
    }
}

fn byte_at(files: &Files, at: prop::sample::Index) -> (String, usize) {
    let total: usize = files.values().map(Vec::len).sum();
    let mut offset = at.index(total);
    for (name, content) in files {
        if offset < content.len() {
            return (name.clone(), offset);
        }
        offset -= content.len();
    }
    unreachable!("the offset is below the sum")
}

fn apply(files: &mut Files, other: &Files, tampering: Tampering) {
    let mut all = lines(files);
    match tampering {
        Tampering::Flip { at, bit } => {
            let (name, offset) = byte_at(files, at);
            files.get_mut(&name).unwrap()[offset] ^= 1 << bit;
        }
        Tampering::Drop { line } => {
            all.remove(line.index(all.len()));
            put_lines(files, all);
        }
        Tampering::Swap { one, two } => {
            let (one, two) = (one.index(all.len()), two.index(all.len()));
            let first = all[one].1.clone();
            all[one].1 = std::mem::replace(&mut all[two].1, first);
            put_lines(files, all);
        }
        Tampering::Repeat { line, to } => {
            let copy = all[line.index(all.len())].1.clone();
            let to = to.index(all.len());
            let name = all[to].0.clone();
            all.insert(to, (name, copy));
            put_lines(files, all);
        }
        Tampering::Transplant { line, to, over } => {
            let foreign = lines(other);
            let copy = foreign[line.index(foreign.len())].1.clone();
            let to = to.index(all.len());
            if over {
                all[to].1 = copy;
            } else {
                let name = all[to].0.clone();
                all.insert(to, (name, copy));
            }
            put_lines(files, all);
        }
        Tampering::Insert { at, bytes } => {
            let (name, offset) = byte_at(files, at);
            files.get_mut(&name).unwrap().splice(offset..offset, bytes);
        }
        Tampering::Remove { at, length } => {
            let (name, offset) = byte_at(files, at);
            let content = files.get_mut(&name).unwrap();
            let end = (offset + length).min(content.len());
            content.drain(offset..end);
        }
        Tampering::Cut { bytes } => {
            let mut left = bytes;
            for name in chain_names(files).into_iter().rev() {
                let content = files.get_mut(&name).unwrap();
                let cut = left.min(content.len());
                content.truncate(content.len() - cut);
                left -= cut;
            }
        }
        Tampering::CutLines { lines } => {
            all.truncate(all.len().saturating_sub(lines));
            put_lines(files, all);
        }
        Tampering::RemoveFile { file } => {
            let name = files.keys().nth(file.index(files.len())).unwrap().clone();
            files.remove(&name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn dc_3_any_tampering_is_found(closed in any::<bool>(), tampering in tampering()) {
        let [one, two] = originals();
        let (original, other) = if closed { (one, two) } else { (two, one) };
        let mut files = original.clone();
        apply(&mut files, other, tampering);
        prop_assume!(files != *original);
        prop_assert!(!is_good(&files));
    }
}

/// The control: without tampering both logs are good. Else the property above would hold for any verifier.
#[test]
fn untouched_logs_are_good() {
    for files in originals() {
        assert!(is_good(files));
    }
}

/// Every single bit of one record and of the head.
#[test]
fn dc_3_every_bit_of_a_record_and_of_the_head_counts() {
    let [files, _] = originals();
    let first_line = files["audit.0001.jsonl"]
        .split_inclusive(|&byte| byte == b'\n')
        .next()
        .unwrap()
        .len();
    for (name, length) in [("audit.0001.jsonl", first_line), ("audit.head", 512)] {
        for bit in 0..length * 8 {
            let mut changed = files.clone();
            changed.get_mut(name).unwrap()[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_good(&changed), "{name} bit {bit}");
        }
    }
}
