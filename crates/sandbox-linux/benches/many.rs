//! One hundred sandboxes open at once: what each costs the server, and what its own processes hold (at most 2 MiB each).

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a bench with a main of its own: it may fail and print"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use support::{Spec, request, standing, temporary};

const SANDBOXES: usize = 100;

/// KiB of one line of a process's account; `None` where we may not look into it.
fn account(pid: &str, file: &str, label: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_whitespace().next()?.parse().ok()
}

fn processes() -> BTreeSet<String> {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect()
}

fn main() {
    support::take_over();
    let directory = temporary();
    let workspace = directory.path().canonicalize().unwrap();
    let spec = Spec::new(&workspace, "rwdx");
    // The first one pays for what all share.
    standing(&spec).end().unwrap();
    let before = account("self", "smaps_rollup", "Anonymous:").unwrap();
    let known = processes();
    let open: Vec<_> = (0..SANDBOXES).map(|_| standing(&spec)).collect();
    let request = request(&spec, &["/bin/true"]);
    for sandbox in &open {
        assert!(sandbox.run(&request).unwrap().end.is_success());
    }
    let server = account("self", "smaps_rollup", "Anonymous:")
        .unwrap()
        .saturating_sub(before);
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let theirs: Vec<String> = processes().difference(&known).cloned().collect();
    let (mut shares, mut hidden) = (0, 0);
    for pid in &theirs {
        match account(pid, "smaps_rollup", "Pss:") {
            Some(kib) => shares += kib,
            None => hidden += 1,
        }
    }
    eprintln!(
        "{SANDBOXES} open: {:.1} KiB of the server's own memory each, {descriptors} descriptors; {} processes with {:.0} KiB for each sandbox ({hidden} not readable)",
        server as f64 / SANDBOXES as f64,
        theirs.len(),
        shares as f64 / SANDBOXES as f64,
    );
    for sandbox in open {
        sandbox.end().unwrap();
    }
}
