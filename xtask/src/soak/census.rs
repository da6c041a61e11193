//! What is there: everything a sandbox could leave behind, by name, so that residue can be named.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Kinds of things, each with the names of what there is.
#[derive(Clone, Debug, Default)]
pub(super) struct Census(BTreeMap<&'static str, BTreeSet<String>>);

impl Census {
    pub(super) fn take(directory: &Path) -> Self {
        let below = descendants();
        let marker = directory.display().to_string();
        let mut kinds = BTreeMap::new();
        kinds.insert(
            "processes",
            below.iter().map(|pid| describe(*pid)).collect(),
        );
        for name in ["user", "mnt", "pid", "net", "ipc", "uts"] {
            let kind = match name {
                "user" => "user namespaces",
                "mnt" => "mount namespaces",
                "pid" => "process namespaces",
                "net" => "network namespaces",
                "ipc" => "ipc namespaces",
                _ => "uts namespaces",
            };
            kinds.insert(kind, namespaces(&below, name));
        }
        kinds.insert("mounts", lines("/proc/self/mountinfo", |_| true));
        let named = |line: &str| line.contains(&marker) || line.contains("agent-mcp");
        kinds.insert("unix sockets", lines("/proc/net/unix", |line| named(line)));
        kinds.insert(
            "cgroups",
            tree(Path::new("/sys/fs/cgroup"), 6, &|name| {
                name.contains("agent-mcp")
            }),
        );
        for place in ["/tmp", "/var/tmp", "/dev/shm", "/run"] {
            let kind = match place {
                "/tmp" => "/tmp",
                "/var/tmp" => "/var/tmp",
                "/dev/shm" => "/dev/shm",
                _ => "/run",
            };
            kinds.insert(
                kind,
                tree(Path::new(place), 1, &|name| name.contains("agent-mcp")),
            );
        }
        kinds.insert("TMPDIR", tree(&directory.join("tmp"), 8, &|_| true));
        let is_kept = |name: &str| super::KEPT.iter().any(|kept| name.starts_with(kept));
        kinds.insert(
            "workspaces",
            tree(&directory.join("ws"), 8, &|name| !is_kept(name)),
        );
        // Logs grow and instances stay; what belongs to one run does not.
        let is_log = |name: &str| {
            name.starts_with("audit.") || name == "lock" || name.starts_with("instance")
        };
        kinds.insert(
            "state",
            tree(&directory.join("state"), 8, &|name| {
                !is_log(name) && !is_number(name)
            }),
        );
        kinds.insert("system V memory", lines("/proc/sysvipc/shm", |_| true));
        Self(kinds)
    }
}

impl Census {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether nothing below us runs.
    pub(super) fn has_no_process(&self) -> bool {
        self.0.get("processes").is_none_or(BTreeSet::is_empty)
    }
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Everything below this process. It reaps for all of it, so nothing can leave.
fn descendants() -> Vec<u32> {
    let mut parents = BTreeMap::new();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    for pid in entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
    {
        if let Some(parent) = parent(pid) {
            parents.insert(pid, parent);
        }
    }
    let own = std::process::id();
    let is_below = |pid: u32| {
        let mut at = pid;
        for _ in 0..64 {
            match parents.get(&at) {
                Some(&parent) if parent == own => return true,
                Some(&parent) => at = parent,
                None => return false,
            }
        }
        false
    };
    parents
        .keys()
        .copied()
        .filter(|pid| is_below(*pid))
        .collect()
}

/// Field 4 of `stat`, counted after the name, which may hold anything.
fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text[text.rfind(')')? + 2..].split(' ').nth(1)?.parse().ok()
}

fn describe(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!(
        "{pid} {}",
        String::from_utf8_lossy(&line).replace('\0', " ")
    )
}

/// Namespaces that a process below us is in and we are not.
fn namespaces(below: &[u32], name: &str) -> BTreeSet<String> {
    let link = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
    let own = link("self");
    below
        .iter()
        .filter_map(|pid| link(&pid.to_string()))
        .filter(|namespace| Some(namespace) != own.as_ref())
        .map(|namespace| namespace.display().to_string())
        .collect()
}

fn lines(file: &str, wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines()
        .filter(|line| wanted(line))
        .map(str::to_owned)
        .collect()
}

fn tree(directory: &Path, depth: u32, wanted: &dyn Fn(&str) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let Ok(entries) = fs::read_dir(directory) else {
        return found;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if wanted(&name) {
            found.insert(entry.path().display().to_string());
        }
        if depth > 1 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(tree(&entry.path(), depth - 1, wanted));
        }
    }
    found
}

/// The table, with what is new by name, and how many kinds have something new.
pub(super) fn table(before: &Census, after: &Census) -> (String, usize) {
    let mut text = "| what | before | after | left |\n|---|---|---|---|\n".to_owned();
    let mut residue = 0;
    let mut names = String::new();
    for (kind, had) in &before.0 {
        let have = after.0.get(kind).cloned().unwrap_or_default();
        let new: Vec<&String> = have.difference(had).collect();
        // Writing to a string cannot fail.
        let _written = writeln!(
            text,
            "| {kind} | {} | {} | {} |",
            had.len(),
            have.len(),
            new.len()
        );
        if !new.is_empty() {
            residue += 1;
            for name in new.iter().take(10) {
                let _written = writeln!(names, "left, {kind}: {name}");
            }
        }
    }
    (text + &names, residue)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-INV-10: what is left is found and named. A child of ours stands for what escaped.
    #[test]
    fn sec_inv_10_what_is_left_is_named() {
        let directory =
            std::env::temp_dir().join(format!("agent-mcp-census-{}", std::process::id()));
        fs::create_dir_all(directory.join("ws")).unwrap();
        fs::create_dir_all(directory.join("tmp")).unwrap();
        let before = Census::take(&directory);
        assert_eq!(table(&before, &before).1, 0);
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        fs::write(directory.join("ws/stray"), "").unwrap();
        fs::write(directory.join("ws/kept"), "").unwrap();
        fs::write(directory.join("tmp/stray"), "").unwrap();
        let (text, residue) = table(&before, &Census::take(&directory));
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(residue, 3, "{text}");
        assert!(
            text.contains(&format!("left, processes: {} ", child.id())),
            "{text}"
        );
        assert!(
            text.contains("ws/stray") && !text.contains("ws/kept"),
            "{text}"
        );
    }
}
