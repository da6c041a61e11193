//! What was there at the start, so that what appeared since is found by asking every directory whether it changed, instead
//! of reading it again.

use super::git;
use super::walk::{LOOK, Sight, Walk};
use super::{Patterns, opened_beneath};
use policy::sandbox::{Finding, FindingKind};
use rustix::fs::Stat;
use rustix::time::ClockId;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Which file it is, and when it last changed in any way. Programs can set neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    changed_ns: i128,
}

fn nanoseconds(seconds: i64, rest: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(rest)
}

impl Mark {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    fn of_status(status: &Stat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
            changed_ns: nanoseconds(status.st_ctime, status.st_ctime_nsec as i64),
        }
    }
}

/// Every directory that was visited: a few tens of bytes each.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    names: Vec<u8>,
}

#[derive(Debug)]
struct Node {
    /// Itself for a root.
    parent: u32,
    name: (u32, u16),
    mark: Mark,
}

impl Tree {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// A root keeps its whole path as its name.
    pub(super) fn add(&mut self, parent: Option<(u32, &CStr)>, path: &Path, status: &Stat) -> u32 {
        let number = self.nodes.len() as u32;
        let (parent, name) = match parent {
            Some((parent, name)) => (parent, name.to_bytes()),
            None => (number, path.as_os_str().as_bytes()),
        };
        // A name has at most 255 bytes, a path that could be opened at most 4096.
        let place = (self.names.len() as u32, name.len() as u16);
        self.names.extend_from_slice(name);
        self.nodes.push(Node {
            parent,
            name: place,
            mark: Mark::of_status(status),
        });
        number
    }

    fn name(&self, node: &Node) -> &[u8] {
        let (start, length) = (node.name.0 as usize, usize::from(node.name.1));
        self.names.get(start..start + length).unwrap_or_default()
    }

    fn is_root(&self, number: u32) -> bool {
        self.nodes[number as usize].parent == number
    }

    /// Walks are depth first, so a path is often the last one with another name at its end.
    fn path(&self, number: u32, cache: &mut HashMap<u32, PathBuf>) -> PathBuf {
        let node = &self.nodes[number as usize];
        let name = OsStr::from_bytes(self.name(node));
        if self.is_root(number) {
            return name.into();
        }
        let parent = match cache.get(&node.parent) {
            Some(parent) => parent.clone(),
            None => {
                let path = self.path(node.parent, cache);
                cache.insert(node.parent, path.clone());
                path
            }
        };
        parent.join(name)
    }

    /// Directories that are not as they were, with their paths.
    fn changed(&self, since_ns: i128) -> Vec<(u32, PathBuf)> {
        let mut cache = HashMap::new();
        (0..self.nodes.len() as u32)
            .filter_map(|number| {
                let path = self.path(number, &mut cache);
                let before = self.nodes[number as usize].mark;
                let same =
                    Mark::of(&path).is_some_and(|now| now == before && now.changed_ns < since_ns);
                (!same).then_some((number, path))
            })
            .collect()
    }

    /// The known directories in some directories.
    fn children(&self, of: &HashSet<u32>) -> HashMap<u32, HashSet<Vec<u8>>> {
        let mut children: HashMap<u32, HashSet<Vec<u8>>> = HashMap::new();
        for (number, node) in self.nodes.iter().enumerate() {
            if node.parent != number as u32 && of.contains(&node.parent) {
                let name = self.name(node).to_vec();
                children.entry(node.parent).or_default().insert(name);
            }
        }
        children
    }
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Record {
    patterns: Option<Patterns>,
    tree: Tree,
    sight: Sight,
    /// Protected files, links on the way to them, and hooks, as they were.
    marks: Vec<(PathBuf, Mark)>,
    /// Named by a configuration, and not there.
    absent: BTreeSet<PathBuf>,
    /// Before the first directory was read, by the clock that stamps files.
    since_ns: i128,
}

pub(super) fn now_ns() -> i128 {
    let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    nanoseconds(now.tv_sec, now.tv_nsec)
}

impl Record {
    pub(super) fn new(
        patterns: Patterns,
        tree: Tree,
        sight: Sight,
        absent: BTreeSet<PathBuf>,
        since_ns: i128,
    ) -> Self {
        let hooks = sight.obeyed.iter().filter_map(|path| path.read_dir().ok());
        let inside: Vec<PathBuf> = hooks.flatten().flatten().map(|hook| hook.path()).collect();
        let links = sight.links.iter().map(|(path, _)| path);
        let marks = sight
            .obeyed
            .iter()
            .chain(links)
            .chain(&inside)
            .filter_map(|path| Some((path.clone(), Mark::of(path)?)))
            .collect();
        Self {
            patterns: Some(patterns),
            tree,
            sight,
            marks,
            absent,
            since_ns,
        }
    }

    /// What a program left that a tool of the host would obey, and what of that is another than at the start. Follows no
    /// link and changes nothing. What cannot be looked at is named as well.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let Some(patterns) = &self.patterns else {
            return Vec::new();
        };
        let mut walk = Walk::new(patterns);
        let mut unseen = BTreeSet::new();
        let changed = self.tree.changed(self.since_ns);
        let known = self
            .tree
            .children(&changed.iter().map(|(number, _)| *number).collect());
        for (number, path) in &changed {
            self.look_again(*number, path, known.get(number), &mut walk, &mut unseen);
        }
        let mut appeared = self.appeared(&walk.sight);
        appeared.append(&mut unseen);
        let changed = self
            .marks
            .iter()
            .filter(|(path, before)| {
                std::fs::symlink_metadata(path).is_ok() && Mark::of(path) != Some(*before)
            })
            .map(|(path, _)| path.clone())
            .collect::<BTreeSet<_>>();
        let finding = |kind| move |path| Finding { path, kind };
        let topmost = topmost(&appeared).into_iter();
        topmost
            .map(finding(FindingKind::Appeared))
            .chain(changed.into_iter().map(finding(FindingKind::Changed)))
            .collect()
    }

    /// One directory that changed: its own entries, and whole trees that are new in it.
    fn look_again(
        &self,
        number: u32,
        path: &Path,
        known: Option<&HashSet<Vec<u8>>>,
        walk: &mut Walk<'_>,
        unseen: &mut BTreeSet<PathBuf>,
    ) {
        let root = self.root_of(number);
        // Through a link that stands in the way now nothing of this root is reached.
        let Ok(directory) = opened_beneath(&root, path, LOOK) else {
            return;
        };
        let below = match walk.list(rustix::fd::AsFd::as_fd(&directory), path) {
            Ok(below) => below,
            Err(_) => {
                unseen.insert(path.to_path_buf());
                return;
            }
        };
        let is_new = |name: &CString| known.is_none_or(|known| !known.contains(name.to_bytes()));
        for name in below.into_iter().filter(is_new) {
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            let Ok(opened) = rustix::fs::openat(&directory, &name, LOOK, rustix::fs::Mode::empty())
            else {
                // Gone again, or closed to us and so to our tools.
                continue;
            };
            if walk.walk(opened, path.clone(), None).is_err() {
                unseen.insert(path);
            }
        }
    }

    fn root_of(&self, mut number: u32) -> PathBuf {
        while !self.tree.is_root(number) {
            number = self.tree.nodes[number as usize].parent;
        }
        self.tree.path(number, &mut HashMap::new())
    }

    fn appeared(&self, now: &Sight) -> BTreeSet<PathBuf> {
        let known = &self.sight.git_directories;
        let ordinary = |path: &Path| {
            let directory = if path.is_file() {
                match path.file_name() {
                    Some(name) if name == "commondir" => path.parent().map(Path::to_path_buf),
                    _ => git::pointed_to(path),
                }
            } else {
                Some(path.to_path_buf())
            };
            directory.is_some_and(|directory| git::is_ordinary_worktree(&directory, known))
        };
        let links = now.links.difference(&self.sight.links);
        let absent = self.absent.iter().filter(|path| path.exists());
        now.obeyed
            .difference(&self.sight.obeyed)
            .chain(now.repositories.difference(&self.sight.repositories))
            .chain(links.map(|(path, _)| path))
            .filter(|path| !ordinary(path))
            .chain(absent)
            .cloned()
            .collect()
    }
}

/// Without what lies below another one.
fn topmost(paths: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !kept.last().is_some_and(|above| path.starts_with(above)) {
            kept.push(path.clone());
        }
    }
    kept
}
