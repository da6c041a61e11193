//! cgroup v2, where a part of it is delegated to us: memory and process count of the whole tree, counted by the kernel.
//!
//! A standing sandbox has a group with two children, because init must survive what ends the programs: `init` without
//! limits, and `tree` with them. A one-shot sandbox needs one group; its init stays where the caller is. Nothing but our
//! own groups is ever changed, no controller is switched on for anybody else, and no version 1 hierarchy is touched.

use super::plan::Limits;
use super::sys::{Fd, file};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// `CGROUP2_SUPER_MAGIC`.
const CGROUP2_FILE_SYSTEM: rustix::fs::FsWord = 0x6367_7270;

/// Where systems mount it. Elsewhere it is looked for in the list of mounts.
const USUAL_PLACES: &[&str] = &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// What a group needs from its parent.
const CONTROLLERS: &[&str] = &["memory", "pids"];

/// Every group of ours: this, the owner's process id, its start time, a number.
const PREFIX: &str = "agent-mcp-";
const INIT: &str = "init";
const TREE: &str = "tree";

/// How long a killed group may take to become empty.
const EMPTY_WITHIN: Duration = Duration::from_secs(5);

/// The descriptors that starting a sandbox needs. They stay open as long as their [`Group`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// The group that everything is in.
    pub(crate) top: Fd,
    /// Where a standing sandbox's init goes.
    pub(crate) init: Option<Fd>,
    /// Where programs go.
    pub(crate) tree: Fd,
    /// `memory.events` of the tree.
    pub(crate) events: Fd,
}

/// Who is in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One command and what it starts.
    Once,
    /// Init apart from zygote and programs.
    Standing,
}

/// A group of ours. Dropping it ends everything in it and removes it.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    /// Locked as long as somebody of us lives, so that nobody takes it for a dead one's.
    top: OwnedFd,
    init: Option<OwnedFd>,
    tree: Option<OwnedFd>,
    events: OwnedFd,
}

impl Group {
    /// A new group with these limits; `None` where nothing is delegated, or a limit cannot be set. Removes groups whose
    /// owner is dead first.
    pub(crate) fn new(limits: &Limits, shape: Shape) -> Option<Self> {
        let parent = delegated()?;
        sweep(&parent);
        let path = parent.join(new_name()?);
        rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)).ok()?;
        let made = fill(&path, limits, shape);
        if made.is_none() {
            // Without processes in it nothing keeps it.
            remove_all(&path);
        }
        made
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn places(&self) -> Places {
        let number = |fd: &OwnedFd| Fd(fd.as_raw_fd());
        Places {
            top: number(&self.top),
            init: self.init.as_ref().map(number),
            tree: number(self.tree.as_ref().unwrap_or(&self.top)),
            events: number(&self.events),
        }
    }

    /// Whether the kernel ended something in it for want of memory.
    pub(crate) fn ran_out(&self) -> bool {
        memory_kills(Fd(self.events.as_raw_fd())) > 0
    }

    /// Ends everything in it, waits, and removes it. A second call is fine.
    ///
    /// # Errors
    /// What is left.
    pub(crate) fn remove(&self) -> Result<(), String> {
        remove_within(&self.path, self.top.as_fd(), EMPTY_WITHIN)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever wants to know has called `remove`; what is left goes with the next start.
        let _left = self.remove();
    }
}

/// How often the kernel ended a process of this group for want of memory. For children that share memory, too.
pub(crate) fn memory_kills(events: Fd) -> u64 {
    let mut text = [0u8; 512];
    if file::seek(events, 0).is_err() {
        return 0;
    }
    let length = file::read(events, &mut text).unwrap_or(0);
    count(text.get(..length).unwrap_or(&[]), b"oom_kill ")
}

fn count(text: &[u8], label: &[u8]) -> u64 {
    text.split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(label))
        .map_or(0, super::watch::number)
}

/// The nearest group above us that gives its children both controllers and in which we may make one.
fn delegated() -> Option<PathBuf> {
    let mount = mount_point()?;
    let text = std::fs::read("/proc/self/cgroup").ok()?;
    let own = text
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::/"))?;
    let own = Path::new(OsStr::from_bytes(own));
    // Outside of our cgroup namespace.
    if own.components().any(|part| part.as_os_str() == "..") {
        return None;
    }
    own.ancestors()
        .map(|ancestor| mount.join(ancestor))
        .find(|group| gives_controllers(group) && is_ours(group))
}

fn mount_point() -> Option<PathBuf> {
    let is_it = |place: &&&str| {
        rustix::fs::statfs(**place).is_ok_and(|status| status.f_type == CGROUP2_FILE_SYSTEM)
    };
    if let Some(place) = USUAL_PLACES.iter().find(is_it) {
        return Some(place.into());
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ")
            .then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    })
}

fn gives_controllers(group: &Path) -> bool {
    std::fs::read_to_string(group.join("cgroup.subtree_control")).is_ok_and(|text| {
        CONTROLLERS
            .iter()
            .all(|wanted| text.split_whitespace().any(|given| given == *wanted))
    })
}

/// Children can be made, and processes be moved from where we are.
fn is_ours(group: &Path) -> bool {
    [group, &group.join("cgroup.procs")]
        .into_iter()
        .all(|path| rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok())
}

fn new_name() -> Option<String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let id = std::process::id();
    let start = super::standing::start_ticks(i32::try_from(id).ok()?)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Some(format!("{PREFIX}{id}-{start}-{number}"))
}

/// The owner of a group with this name, if it can be one of ours.
fn owner_of(name: &str) -> Option<(i32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let owner = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let _number: u32 = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(owner)
}

fn open_group(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(path, flags, Mode::empty())
}

fn set(group: BorrowedFd<'_>, name: &str, value: &str) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(group, name, flags, Mode::empty())?;
    rustix::io::write(&file, value.as_bytes()).map(drop)
}

fn fill(path: &Path, limits: &Limits, shape: Shape) -> Option<Group> {
    let top = open_group(path).ok()?;
    rustix::fs::flock(&top, FlockOperation::NonBlockingLockExclusive).ok()?;
    let (init, tree) = match shape {
        Shape::Once => (None, None),
        Shape::Standing => {
            set(top.as_fd(), "cgroup.subtree_control", "+memory +pids").ok()?;
            for name in [INIT, TREE] {
                rustix::fs::mkdirat(&top, name, Mode::from_raw_mode(0o755)).ok()?;
            }
            let open = |name: &str| open_group(&path.join(name)).ok();
            (Some(open(INIT)?), Some(open(TREE)?))
        }
    };
    let limited = tree.as_ref().unwrap_or(&top).as_fd();
    limit(limited, limits, shape)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let events = rustix::fs::openat(limited, "memory.events", flags, Mode::empty()).ok()?;
    Some(Group {
        path: path.to_path_buf(),
        top,
        init,
        tree,
        events,
    })
}

fn limit(group: BorrowedFd<'_>, limits: &Limits, shape: Shape) -> Option<()> {
    set(group, "memory.max", &limits.memory_bytes.to_string()).ok()?;
    match set(group, "memory.swap.max", "0") {
        Ok(()) => {}
        // A kernel without swap; one that has swap and does not count it cannot limit memory.
        Err(Errno::NOENT) if !has_swap() => {}
        Err(_) => return None,
    }
    // What ends one of them for want of memory ends all of them.
    set(group, "memory.oom.group", "1").ok()?;
    let zygote = u64::from(shape == Shape::Standing);
    set(
        group,
        "pids.max",
        &(limits.policy_processes + zygote).to_string(),
    )
    .ok()
}

fn has_swap() -> bool {
    std::fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().nth(1).is_some())
}

/// Removes what owners that are dead by now have left. Whoever lives holds a lock, also where its number means another
/// process to us.
fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((pid, start)) = name.to_str().and_then(owner_of) else {
            continue;
        };
        if super::standing::start_ticks(pid) == Some(start) {
            continue;
        }
        let path = entry.path();
        let Ok(top) = open_group(&path) else { continue };
        if rustix::fs::flock(&top, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Not waited for long: a start must not hang on somebody else's dead.
            let _left = remove_within(&path, top.as_fd(), Duration::from_millis(500));
        }
    }
}

fn remove_within(path: &Path, top: BorrowedFd<'_>, limit: Duration) -> Result<(), String> {
    if remove_all(path) {
        return Ok(());
    }
    // Before Linux 5.14 there is no such file; then the process namespace has ended them already.
    let _none = set(top, "cgroup.kill", "1");
    let deadline = Instant::now() + limit;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let events = rustix::fs::openat(top, "cgroup.events", flags, Mode::empty());
    while !remove_all(path) {
        if Instant::now() >= deadline {
            return Err(format!("cgroup {}", path.display()));
        }
        if let Ok(events) = &events {
            // Reading arms the wait for a change; that it is short makes up for one that came in between.
            let _text = rustix::io::pread(events, &mut [0u8; 128], 0);
            let short = Timespec {
                tv_sec: 0,
                tv_nsec: 2_000_000,
            };
            let _changed = poll(&mut [PollFd::new(events, PollFlags::PRI)], Some(&short));
        }
    }
    Ok(())
}

/// `true` when it is gone.
fn remove_all(path: &Path) -> bool {
    let gone = |path: &Path| matches!(rustix::fs::rmdir(path), Ok(()) | Err(Errno::NOENT));
    gone(path) || (gone(&path.join(TREE)) && gone(&path.join(INIT)) && gone(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_have_an_owner() {
        assert_eq!(owner_of("agent-mcp-12-3456-0"), Some((12, 3456)));
        for other in [
            "agent-mcp-12-3456",
            "agent-mcp-12-3456-0-1",
            "agent-mcp-x-3456-0",
            "agent-mcp.service",
            "12-3456-0",
        ] {
            assert_eq!(owner_of(other), None, "{other}");
        }
        let own = new_name().unwrap();
        let (pid, start) = owner_of(&own).unwrap();
        assert_eq!(super::super::standing::start_ticks(pid), Some(start));
    }

    #[test]
    fn events_are_read_by_name() {
        let text = b"low 0\nhigh 0\nmax 17\noom 3\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(count(text, b"oom_kill "), 2);
        assert_eq!(count(b"max 17\n", b"oom_kill "), 0);
    }
}
