//! A process tree without a process namespace: everything below the guard, which orphans are given to.

use crate::backend::sys::{Errno, file, process};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds of stopping before the killing begins; a tree that still grows then is killed while it grows.
const MOST_ROUNDS: u32 = 100;

/// A process that cannot be mistaken for a later one with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    pub(crate) pid: i32,
    start_ticks: u64,
}

/// One line of `/proc`: parent, start, and whether it is dead and waits for its parent.
struct Line {
    parent: i32,
    start_ticks: u64,
    dead: bool,
}

fn read(pid: i32) -> Option<Line> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, so fields are counted after its end.
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 2;
    let rest = std::str::from_utf8(text.get(after_name..)?).ok()?;
    let mut fields = rest.split(' ');
    let dead = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(Line {
        parent,
        start_ticks,
        dead,
    })
}

/// Every living process below this one.
pub(crate) fn below(root: i32) -> Vec<Member> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut children: BTreeMap<i32, Vec<(Member, bool)>> = BTreeMap::new();
    for entry in entries.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if let Some(line) = read(pid) {
            let member = Member {
                pid,
                start_ticks: line.start_ticks,
            };
            children
                .entry(line.parent)
                .or_default()
                .push((member, line.dead));
        }
    }
    let mut found = Vec::new();
    let mut waiting = vec![root];
    while let Some(parent) = waiting.pop() {
        for (member, dead) in children.remove(&parent).unwrap_or_default() {
            waiting.push(member.pid);
            if !dead {
                found.push(member);
            }
        }
    }
    found
}

/// Through a descriptor, after a second look: a number may have been given to a stranger meanwhile.
fn signal(member: Member, number: i32) {
    // One that has ended needs no signal.
    let Ok(pidfd) = process::open_pidfd(member.pid, 0) else {
        return;
    };
    if read(member.pid).is_some_and(|line| line.start_ticks == member.start_ticks) {
        let _ended = process::signal_pidfd(pidfd, number, 0);
    }
    file::close(pidfd);
}

/// Stops everything below, until nothing new is found, then kills it.
pub(crate) fn kill_below(root: i32) {
    let mut stopped = BTreeSet::new();
    for _ in 0..MOST_ROUNDS {
        let before = stopped.len();
        for member in below(root) {
            if stopped.insert(member) {
                signal(member, libc::SIGSTOP);
            }
        }
        if stopped.len() == before {
            break;
        }
    }
    for member in below(root) {
        signal(member, libc::SIGKILL);
    }
}

/// Kills until no child is left; for the guard, whose children all of them become.
pub(crate) fn end_below(root: i32) {
    loop {
        kill_below(root);
        match process::wait(-1, 0) {
            Ok(_) | Err(Errno(libc::EINTR)) => {}
            Err(_) => return,
        }
    }
}

/// Tasks (threads too) that this user runs now, as `RLIMIT_NPROC` counts them.
pub(crate) fn tasks_of_this_user() -> u64 {
    let own = rustix::process::getuid().as_raw();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.parse::<i32>().ok()?;
            let text = std::fs::read_to_string(entry.path().join("status")).ok()?;
            let field = |label: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(label))?;
                line.split_whitespace().next()?.parse::<u64>().ok()
            };
            (field("Uid:")? == u64::from(own)).then_some(field("Threads:")?)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_children_and_this_user() {
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let found = below(std::process::id() as i32);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.iter().any(|member| member.pid == pid));
        assert!(tasks_of_this_user() >= 1);
    }
}
