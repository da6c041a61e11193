//! A Task's sandbox from the server's side: `survey`, `prepare`, `start`.

use super::bare::{self, Area};
use super::cgroup::{Group, Shape};
use super::enforcement;
use super::explain::table::Table;
use super::failure::Failure;
use super::helper;
use super::plan::{Plan, plan};
use super::protect::Record;
use super::relay::{Reach, RelayThread};
use super::sys::socket as raw_socket;
use super::sys::{Errno, Fd};
use super::task::{Parts, Task, Witness};
use super::wire::{FAILED, LISTENERS, READY, STARTED};
use policy::EffectivePolicy;
use policy::sandbox::{
    Enforcement, HostResource, PreparedSandbox, SandboxBackend, SandboxError, StartPermit,
    TaskSandbox,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A sandbox that is not ready after this long never will be.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// The backend on Linux (see the crate's head).
#[derive(Clone, Copy, Debug, Default)]
pub struct LinuxSandbox;

impl SandboxBackend for LinuxSandbox {
    /// Builds a whole sandbox for this policy and lets it go: what is true of it is true. Takes a few milliseconds.
    fn survey(&self, policy: &EffectivePolicy) -> Result<Enforcement, SandboxError> {
        build(policy).map(|ready| ready.enforcement.clone())
    }

    fn prepare(
        &self,
        policy: &Arc<EffectivePolicy>,
        task: &str,
    ) -> Result<Box<dyn PreparedSandbox>, SandboxError> {
        let ready = build(policy)?;
        Ok(Box::new(Prepared {
            ready,
            policy: Arc::clone(policy),
            task: task.to_owned(),
        }))
    }
}

/// A sandbox that is complete and idle. Dropping it ends it.
struct Ready {
    enforcement: Enforcement,
    /// `None`: nothing was built, because no permit can start it.
    parts: Option<(Parts, Witness, Vec<OwnedFd>)>,
    record: Record,
    reach: Reach,
}

struct Prepared {
    ready: Ready,
    policy: Arc<EffectivePolicy>,
    task: String,
}

impl PreparedSandbox for Prepared {
    fn enforcement(&self) -> &Enforcement {
        &self.ready.enforcement
    }

    /// The helper and init, and their cgroup. Nothing else is on the host: the namespaces and everything mounted in them
    /// end with init. Without namespaces both are one process, and the private area is a directory.
    fn host_resources(&self) -> Vec<HostResource> {
        let Some((parts, ..)) = &self.ready.parts else {
            return Vec::new();
        };
        let mut pids = vec![parts.helper_id(), parts.init_id];
        pids.dedup();
        let processes = pids.into_iter().filter_map(|pid| {
            Some(HostResource::Process {
                pid,
                start_ticks: start_ticks(pid)?,
            })
        });
        let directory = parts.area.iter().map(|area| HostResource::Temporary {
            path: area.path().to_path_buf(),
        });
        let group = parts.group.iter().map(|group| HostResource::Cgroup {
            path: group.path().to_path_buf(),
        });
        processes.chain(directory).chain(group).collect()
    }

    fn start(self: Box<Self>, permit: StartPermit) -> Result<Arc<dyn TaskSandbox>, SandboxError> {
        permit.redeem(&self.ready.enforcement, &self.policy)?;
        let Ready {
            parts,
            record,
            reach,
            ..
        } = self.ready;
        let (parts, witness, listeners) =
            parts.ok_or_else(|| unavailable("start", "nothing was built"))?;
        let relay = if listeners.is_empty() && reach.grants.is_empty() {
            None
        } else {
            let started = RelayThread::start(&reach, listeners);
            Some(started.map_err(|error| SandboxError::Failed {
                stage: "relay",
                reason: error.to_string(),
            })?)
        };
        Ok(Arc::new(Task::new(
            parts,
            witness,
            record,
            relay,
            &self.policy,
            &self.task,
        )))
    }
}

/// Field 22 of `/proc/PID/stat`. The name in field 2 may hold anything, so fields are counted after its end.
pub(super) fn start_ticks(pid: i32) -> Option<u64> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 2;
    let rest = std::str::from_utf8(text.get(after_name..)?).ok()?;
    rest.split(' ').nth(19)?.parse().ok()
}

pub(super) fn unavailable(stage: &'static str, reason: impl ToString) -> SandboxError {
    SandboxError::Unavailable {
        stage,
        reason: reason.to_string(),
    }
}

fn build(policy: &EffectivePolicy) -> Result<Ready, SandboxError> {
    if !helper::is_possible() {
        return Err(unavailable(
            "helper",
            "the program did not call sandbox_linux::init() first in main",
        ));
    }
    let mut whole = plan(policy)?;
    let mut begun = begin(&mut whole, None);
    if matches!(&begun, Err(NotReady::Failed(failure)) if failure.is_unasked(&whole)) {
        whole.be_quiet();
        begun = begin(&mut whole, None);
    }
    match begun {
        Ok((parts, witness, listeners, separated)) => Ok(Ready {
            enforcement: enforcement::of(&whole, separated),
            parts: Some((parts, witness, listeners)),
            record: whole.record,
            reach: whole.reach,
        }),
        Err(NotReady::Failed(failure)) if failure.is_forbidden(&whole) => build_bare(policy, whole),
        Err(not_ready) => Err(not_ready.error(&whole)),
    }
}

/// The same without namespaces, because this machine has just refused them. What no permit can start is not built.
fn build_bare(policy: &EffectivePolicy, mut whole: Plan) -> Result<Ready, SandboxError> {
    // Nobody made a group to count in.
    whole.count(false);
    let enforcement = bare::plan::enforcement(policy, &whole)?;
    if enforcement.permit(policy).is_err() {
        return Ok(Ready {
            enforcement,
            parts: None,
            record: whole.record,
            reach: whole.reach,
        });
    }
    let area = Area::make()?;
    let mut plan = bare::plan::plan(policy, whole, area.path())?;
    let (parts, witness, listeners, _) =
        begin(&mut plan, Some(area)).map_err(|not_ready| not_ready.error(&plan))?;
    Ok(Ready {
        enforcement,
        parts: Some((parts, witness, listeners)),
        record: plan.record,
        reach: plan.reach,
    })
}

/// Why a sandbox did not come to serve.
enum NotReady {
    /// A step in the helper or below it.
    Failed(Failure),
    Error(SandboxError),
}

impl From<SandboxError> for NotReady {
    fn from(error: SandboxError) -> Self {
        Self::Error(error)
    }
}

impl NotReady {
    fn error(self, plan: &Plan) -> SandboxError {
        match self {
            Self::Failed(failure) => failure.unavailable(plan),
            Self::Error(error) => error,
        }
    }
}

/// What serves, what it will have seen refused, the listeners of routed grants, and whether it has a kernel user of its own.
type Begun = (Parts, Witness, Vec<OwnedFd>, bool);

/// Starts the helper with this plan and waits until it serves.
fn begin(plan: &mut Plan, area: Option<Area>) -> Result<Begun, NotReady> {
    let group = match plan.bare {
        None => Group::new(&plan.limits, Shape::Standing),
        Some(_) => None,
    };
    plan.count(group.is_some());
    let (control, helper_control) = line("control line")?;
    let (requests, helper_requests) = line("request line")?;
    let helper = Command::new("/proc/self/exe")
        .arg0(helper::NAME)
        .env_clear()
        .stdin(Stdio::from(helper_control))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| unavailable("helper", error))?;
    // From here on an early return ends the helper: dropping the parts closes its line.
    let mut guard = HelperGuard(Some(helper));
    let denied = denied_file().map_err(|error| unavailable("explaining", error))?;
    send_plan(&control, &helper_requests, plan, &denied, group.as_ref())?;
    let table =
        Table::seen_in_file(fd_of(&denied)).map_err(|errno| unavailable("explaining", errno))?;
    drop(helper_requests);
    let ((init, init_id, separated), listeners) = wait_until_ready(&control)?;
    let helper = guard
        .0
        .take()
        .ok_or_else(|| unavailable("helper", "gone"))?;
    Ok((
        Parts {
            helper,
            init,
            init_id,
            control,
            requests,
            group,
            area,
        },
        Witness {
            table,
            places: plan.places.clone(),
        },
        listeners,
        separated,
    ))
}

/// Ends and reaps the helper unless it is handed on.
struct HelperGuard(Option<Child>);

impl Drop for HelperGuard {
    fn drop(&mut self) {
        if let Some(helper) = &mut self.0 {
            // It dies by itself when its line is closed; this is only faster. Either way it is gone afterwards.
            let _ended = helper.kill();
            let _reaped = helper.wait();
        }
    }
}

fn line(stage: &'static str) -> Result<(OwnedFd, OwnedFd), SandboxError> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| unavailable(stage, errno))
}

pub(super) fn fd_of(fd: &OwnedFd) -> Fd {
    Fd(fd.as_raw_fd())
}

/// Where init writes what was refused: zeros, of a size that stays.
fn denied_file() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("agent-mcp", flags)?;
    rustix::fs::ftruncate(&file, Table::BYTES as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// A sealed memory file with these bytes.
pub(super) fn memory_file(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let fd =
        rustix::fs::memfd_create("agent-mcp", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes)?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL,
    )?;
    Ok(file.into())
}

fn send_plan(
    control: &OwnedFd,
    requests: &OwnedFd,
    plan: &Plan,
    denied: &OwnedFd,
    group: Option<&Group>,
) -> Result<(), SandboxError> {
    let text = serde_json::to_vec(plan).map_err(|error| unavailable("plan", error))?;
    let file = memory_file(&text).map_err(|error| unavailable("plan", error))?;
    let mut descriptors = vec![fd_of(requests), fd_of(&file), fd_of(denied)];
    if let Some(places) = group.map(Group::places) {
        let init = places.init.unwrap_or(places.tree);
        descriptors.extend([places.top, init, places.tree, places.events]);
    }
    raw_socket::send(
        fd_of(control),
        &(text.len() as u64).to_ne_bytes(),
        &descriptors,
    )
    .map_err(|errno| unavailable("helper", errno))
}

/// Init's pidfd, its number, and whether it has a kernel user of its own.
type Started = (OwnedFd, i32, bool);

/// Takes messages until init serves. The helper's and init's may come in either order.
fn wait_until_ready(control: &OwnedFd) -> Result<(Started, Vec<OwnedFd>), NotReady> {
    let deadline = Instant::now() + READY_WITHIN;
    let mut started = None;
    let mut ready = false;
    let mut listeners = Vec::new();
    loop {
        if ready && let Some(started) = started.take() {
            return Ok((started, listeners));
        }
        wait_readable(control, deadline)?;
        let mut message = [0u8; 16];
        let received = raw_socket::receive(fd_of(control), &mut message)
            .map_err(|errno| unavailable("helper", errno))?;
        let mut descriptors = received
            .descriptors()
            // SAFETY: the kernel has just made this number for us, and nobody else knows it.
            .map(|fd| unsafe { OwnedFd::from_raw_fd(fd.0) });
        if (received.bytes, message[0]) == (1, LISTENERS) {
            listeners.extend(descriptors);
            continue;
        }
        match (received.bytes, message[0], descriptors.next()) {
            (1, READY, _) => ready = true,
            (6, STARTED, Some(pidfd)) => {
                let pid = i32::from_ne_bytes([message[2], message[3], message[4], message[5]]);
                started = Some((pidfd, pid, message[1] != 0));
            }
            (9, FAILED, _) => {
                let mut word = [0u8; 8];
                word.copy_from_slice(&message[1..9]);
                return Err(match Failure::unpack(u64::from_ne_bytes(word)) {
                    Some(failure) => NotReady::Failed(failure),
                    None => unavailable("helper", "unknown failure").into(),
                });
            }
            (0, _, _) => return Err(unavailable("helper", "ended early").into()),
            _ => return Err(unavailable("helper", Errno(libc::EPROTO)).into()),
        }
    }
}

fn wait_readable(fd: &OwnedFd, deadline: Instant) -> Result<(), SandboxError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut list = [PollFd::new(fd, PollFlags::IN)];
        match poll(&mut list, Some(&limit)) {
            Ok(0) => return Err(unavailable("helper", "not ready in time")),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(unavailable("helper", errno)),
        }
    }
}

/// Whether the process behind a pidfd ends within this time.
pub(super) fn ends_within(pidfd: BorrowedFd<'_>, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut list = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
        match poll(&mut list, Some(&limit)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
