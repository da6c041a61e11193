//! A parallel walk below one opened directory.
//!
//! Every directory is opened by name in its opened parent and without following links, so that a directory swapped for a
//! link while the walk runs leads nowhere (FS-03, AT-08); walking by path, as search programs do, could not promise that.

use crate::tools::dir::open_directory;
use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use policy::path::{ObjectKind, ResolvedPath};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Most threads; more only wait for the same disk.
const MOST_THREADS: usize = 8;
/// Files of one directory that are handed over together.
const BATCH: usize = 128;
/// Deepest directory below the root: each holds a descriptor while its children wait.
const DEEPEST: usize = 200;

/// What bounds a walk.
pub(super) struct Bounds<'b> {
    /// Results that are kept; all are counted.
    pub(super) keep: usize,
    /// Our own files, relative to the root.
    pub(super) own_files: Vec<PathBuf>,
    /// Ends the walk early.
    pub(super) cancelled: Option<&'b AtomicBool>,
}

/// One result.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Below the root; empty for the root itself.
    pub(super) path: PathBuf,
    /// Line number from 1, and the line.
    pub(super) line: Option<(u64, String)>,
    /// For names: whether it is a directory.
    pub(super) directory: bool,
}

/// All results.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The first in order of path and line.
    pub(super) kept: Vec<Found>,
    /// How many there are.
    pub(super) total: u64,
    /// Files that are no text.
    pub(super) binary: u64,
    /// Files and directories that could not be read.
    pub(super) unreadable: u64,
}

impl Findings {
    fn shrink(&mut self, keep: usize) {
        self.kept.sort_unstable();
        self.kept.truncate(keep);
    }

    fn merge(&mut self, mut other: Self) {
        self.kept.append(&mut other.kept);
        self.total += other.total;
        self.binary += other.binary;
        self.unreadable += other.unreadable;
    }
}

/// One name that the walk came to.
pub(super) struct Entry<'e> {
    /// The opened directory that holds it.
    pub(super) parent: &'e Dir,
    /// That directory below the root.
    pub(super) below: &'e Path,
    /// Its name there.
    pub(super) name: &'e OsStr,
    /// What it is, as the directory says.
    pub(super) kind: ObjectKind,
}

impl Entry<'_> {
    /// Its path below the root.
    pub(super) fn path(&self) -> PathBuf {
        self.below.join(self.name)
    }
}

/// Work that waits.
enum Work {
    Directory {
        parent: Arc<Dir>,
        below: PathBuf,
        name: OsString,
    },
    Opened {
        directory: Dir,
        below: PathBuf,
    },
    Files {
        parent: Arc<Dir>,
        below: Arc<Path>,
        names: Vec<OsString>,
    },
}

/// Work shared by the threads; the last in goes first, so that few directories are open at a time.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: Vec<Work>,
    busy: usize,
}

/// Visits everything at and below the root with one visitor per thread. The order of visits is not fixed, the order of
/// the findings is.
///
/// # Errors
/// The root itself could not be opened.
pub(super) fn walk<V>(
    root: &ResolvedPath,
    kind: ObjectKind,
    bounds: &Bounds<'_>,
    visitor: impl Fn() -> V + Sync,
    visit: impl Fn(&mut V, &Entry<'_>, &mut Findings) + Sync,
) -> io::Result<Findings> {
    let mut findings = Findings::default();
    if kind != ObjectKind::Directory {
        let entry = Entry {
            parent: root.parent(),
            below: Path::new(""),
            name: root.name().as_os_str(),
            kind,
        };
        visit(&mut visitor(), &entry, &mut findings);
        findings
            .kept
            .iter_mut()
            .for_each(|found| found.path = PathBuf::new());
        findings.shrink(bounds.keep);
        return Ok(findings);
    }
    let directory = open_directory(root)?;
    let queue = Queue {
        state: Mutex::new(State {
            waiting: vec![Work::Opened {
                directory,
                below: PathBuf::new(),
            }],
            busy: 0,
        }),
        changed: Condvar::new(),
    };
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MOST_THREADS);
    let run = || {
        let mut walker = Worker {
            bounds,
            queue: &queue,
            findings: Findings::default(),
        };
        let mut visitor = visitor();
        while let Some(work) = queue.next() {
            walker.work(work, &mut |entry, findings| {
                visit(&mut visitor, entry, findings)
            });
            queue.done();
        }
        walker.findings
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        findings.merge(run());
        for other in others {
            match other.join() {
                Ok(found) => findings.merge(found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    findings.shrink(bounds.keep);
    Ok(findings)
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.waiting.pop() {
                state.busy += 1;
                return Some(work);
            }
            if state.busy == 0 {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn add(&self, work: impl IntoIterator<Item = Work>) {
        self.lock().waiting.extend(work);
        self.changed.notify_all();
    }

    fn done(&self) {
        let mut state = self.lock();
        state.busy -= 1;
        if state.busy == 0 {
            self.changed.notify_all();
        }
    }
}

struct Worker<'w> {
    bounds: &'w Bounds<'w>,
    queue: &'w Queue,
    findings: Findings,
}

impl Worker<'_> {
    fn cancelled(&self) -> bool {
        self.bounds
            .cancelled
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    fn work(&mut self, work: Work, visit: &mut dyn FnMut(&Entry<'_>, &mut Findings)) {
        if self.cancelled() {
            return;
        }
        match work {
            Work::Files {
                parent,
                below,
                names,
            } => self.files(&parent, &below, &names, visit),
            Work::Opened { directory, below } => self.directory(directory, below, visit),
            Work::Directory {
                parent,
                below,
                name,
            } => match parent.open_dir_nofollow(&name) {
                Ok(directory) => {
                    drop(parent);
                    self.directory(directory, below.join(name), visit);
                }
                Err(_) => self.findings.unreadable += 1,
            },
        }
    }

    fn directory(
        &mut self,
        directory: Dir,
        below: PathBuf,
        visit: &mut dyn FnMut(&Entry<'_>, &mut Findings),
    ) {
        let Ok(entries) = directory.entries() else {
            self.findings.unreadable += 1;
            return;
        };
        let skip_objects = below.file_name() == Some(OsStr::new(".git"));
        let may_hold_own = self
            .bounds
            .own_files
            .iter()
            .any(|own| own.starts_with(&below));
        let mut files = Vec::new();
        let mut directories = Vec::new();
        for entry in entries {
            let (Ok(name), Ok(kind)) = (
                entry.as_ref().map(|entry| entry.file_name()),
                entry
                    .as_ref()
                    .map_or_else(|_| Err(()), |entry| entry.file_type().map_err(|_| ())),
            ) else {
                self.findings.unreadable += 1;
                continue;
            };
            if may_hold_own
                && self
                    .bounds
                    .own_files
                    .iter()
                    .any(|own| below.join(&name).starts_with(own))
            {
                continue;
            }
            if kind.is_dir() {
                if !(skip_objects && name == OsStr::new("objects")) {
                    directories.push(name);
                }
            } else if kind.is_file() {
                files.push(name);
            } else {
                let kind = if kind.is_symlink() {
                    ObjectKind::Link
                } else {
                    ObjectKind::Other
                };
                visit(
                    &Entry {
                        parent: &directory,
                        below: &below,
                        name: &name,
                        kind,
                    },
                    &mut self.findings,
                );
            }
        }
        for name in &directories {
            let kind = ObjectKind::Directory;
            visit(
                &Entry {
                    parent: &directory,
                    below: &below,
                    name,
                    kind,
                },
                &mut self.findings,
            );
        }
        let directory = Arc::new(directory);
        if below.components().count() >= DEEPEST {
            self.findings.unreadable += directories.len() as u64;
            directories.clear();
        }
        if !directories.is_empty() {
            self.queue
                .add(directories.into_iter().map(|name| Work::Directory {
                    parent: Arc::clone(&directory),
                    below: below.clone(),
                    name,
                }));
        }
        if files.len() > BATCH {
            let shared: Arc<Path> = Arc::from(below.as_path());
            let rest = files.split_off(BATCH);
            self.queue.add(rest.chunks(BATCH).map(|names| Work::Files {
                parent: Arc::clone(&directory),
                below: Arc::clone(&shared),
                names: names.to_vec(),
            }));
        }
        self.files(&directory, &below, &files, visit);
    }

    fn files(
        &mut self,
        parent: &Dir,
        below: &Path,
        names: &[OsString],
        visit: &mut dyn FnMut(&Entry<'_>, &mut Findings),
    ) {
        for name in names {
            if self.cancelled() {
                return;
            }
            visit(
                &Entry {
                    parent,
                    below,
                    name,
                    kind: ObjectKind::File,
                },
                &mut self.findings,
            );
        }
        if self.findings.kept.len() > self.bounds.keep.saturating_mul(4).max(1024) {
            self.findings.shrink(self.bounds.keep);
        }
    }
}
