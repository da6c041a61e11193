//! Starts a sandbox's init in new namespaces and gives it its identity. One implementation for one-shot and standing.

use super::cgroup::Places;
use super::explain::table::Table;
use super::explain::tripwire;
use super::failure::{At as _, Failure, Stage};
use super::filter::compile;
use super::head_start::HeadStart;
use super::plan::{Bind, Owner, Plan, Step};
use super::program::{Program, Refused};
use super::relay;
use super::shared::Shared;
use super::sys::{Errno, Fd, file, landlock, memory, mount, process, signal};
use super::{bare, confine, root, serve, supervisor, terminal};
use crate::exec::Explain;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicI32, Ordering};

/// A kernel user that owns nothing on any host: beyond every range that systems hand out.
const NOBODYS_USER: u32 = 0x7f00_0001;

/// In [`Shared::network`]: init has a network namespace already, and the command is born in it.
const HAS_NETWORK: i32 = i32::MAX;

/// What init does once the root stands.
pub(crate) enum Role<'p> {
    /// Runs one command and ends.
    Once {
        program: Program<'p>,
        directory: &'p CStr,
        /// An eventfd that says: look at the shared page.
        done: Fd,
        /// The cgroup for the command and what it starts.
        group: Option<Places>,
        /// The command's own terminal, where it has one.
        terminal: Option<Fd>,
    },
    /// Serves requests until the line is closed.
    Standing(serve::Lines),
}

impl Role<'_> {
    fn group(&self) -> Option<Places> {
        match self {
            Self::Once { group, .. } => *group,
            Self::Standing(lines) => lines.group,
        }
    }
}

/// Everything the children read; it outlives them.
pub(crate) struct Launch<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) shared: &'static Shared,
    /// What init sees refused.
    pub(crate) table: &'static Table,
    pub(crate) role: Role<'p>,
    pub(crate) filter: Vec<libc::sock_filter>,
    /// `setgroups`, user and group map, for an unprivileged caller.
    maps: [CString; 3],
    /// The launcher's own pidfd, to notice that it died before its death signal was set.
    pub(crate) launcher: Fd,
    /// The host's `/proc`, for settings of the new network namespace; none where there is no network.
    proc: Option<Fd>,
}

/// A running init.
pub(crate) struct Init {
    pub(crate) pidfd: Fd,
    pub(crate) pid: i32,
    /// Runs under a user that owns nothing on the host.
    pub(crate) separated: bool,
    /// The signal that ends it and with it the tree.
    pub(crate) ends_with: i32,
}

pub(crate) const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

impl<'p> Launch<'p> {
    pub(crate) fn new(
        plan: &'p Plan,
        table: &'static Table,
        role: Role<'p>,
    ) -> Result<Self, Failure> {
        let launcher = process::open_pidfd(process::id(), 0).at(Stage::ParentDeath)?;
        let line = |id: u32| CString::new(format!("{id} {id} 1")).unwrap_or_default();
        Ok(Self {
            plan,
            shared: Shared::new().at(Stage::Namespaces)?,
            table,
            role,
            filter: compile(plan.filter),
            maps: [
                c"deny".to_owned(),
                line(plan.owner.user),
                line(plan.owner.group),
            ],
            launcher,
            proc: if plan.filter.loopback {
                Some(file::open_at(Fd::CWD, c"/proc", file::O_PATH_CLOEXEC, 0).at(Stage::Network)?)
            } else {
                None
            },
        })
    }

    /// Starts init, or lets one go on that has begun already. The children use `self` until init has ended.
    pub(crate) fn start(&self, begun: Option<&mut HeadStart>) -> Result<Init, Failure> {
        if self.plan.bare.is_some() {
            return bare::once::start(self);
        }
        let standing = matches!(self.role, Role::Standing(_));
        // A process begins in its cgroup, so one that has begun elsewhere will not do.
        let begun = begun.filter(|_| self.role.group().is_none());
        let first = match begun.and_then(|begun| begun.hand_over(self)) {
            Some(init) => init,
            None => self.clone_init(standing)?,
        };
        if !self.plan.privileged {
            let (pid, pidfd) = first;
            return Ok(Init {
                pid,
                pidfd,
                separated: false,
                ends_with: libc::SIGKILL,
            });
        }
        let (pid, pidfd) = first;
        match self.give_identity(pid, NOBODYS_USER, NOBODYS_USER) {
            Ok(()) => Ok(Init {
                pid,
                pidfd,
                separated: true,
                ends_with: libc::SIGKILL,
            }),
            Err(_) => {
                // The file system cannot translate owners, or the caller's own namespace has no such user. Then the
                // owner's own kernel id, without any capability; reported as a missing control.
                self.discard(pid, pidfd);
                self.shared.forget_trees();
                let (pid, pidfd) = self.clone_init(standing)?;
                let owner = self.plan.owner;
                match self.give_identity(pid, owner.user, owner.group) {
                    Ok(()) => Ok(Init {
                        pid,
                        pidfd,
                        separated: false,
                        ends_with: libc::SIGKILL,
                    }),
                    Err(failure) => {
                        self.discard(pid, pidfd);
                        Err(failure)
                    }
                }
            }
        }
    }

    fn clone_init(&self, standing: bool) -> Result<(i32, Fd), Failure> {
        let pidfd = AtomicI32::new(-1);
        // One-shot shares memory, which saves copying page tables; a standing init must not share the helper's.
        let flags = NAMESPACES
            | libc::CLONE_FILES
            | if standing {
                libc::CLONE_NEWNET
            } else {
                libc::CLONE_VM
            };
        let argument = std::ptr::from_ref(self).cast_mut().cast::<u8>();
        let group = self.role.group().and_then(|group| group.init);
        // SAFETY: `self` outlives init (see `start`), nobody writes to it, and `init` neither allocates nor panics.
        let pid = unsafe { process::start(flags, Some(&pidfd), group, init, argument) }
            .at(Stage::Namespaces)?;
        Ok((pid, Fd(pidfd.load(Ordering::Acquire))))
    }

    /// Writes the id maps, opens the granted roots, and lets init go on.
    fn give_identity(&self, pid: i32, user: u32, group: u32) -> Result<(), Failure> {
        if let Some(group) = self.role.group().filter(|group| group.init.is_some()) {
            // Init will start zygotes in the tree, and no longer be who made the groups.
            for place in [group.top, group.tree] {
                file::give(place, c"cgroup.procs", user).at(Stage::Cgroup)?;
            }
        }
        let own = self.plan.owner;
        let namespace = write_maps(pid, own, Owner { user, group }).at(Stage::Identity)?;
        let result = self.open_roots(namespace, user != own.user || group != own.group);
        file::close(namespace);
        result?;
        memory::publish(&self.shared.identity, 1);
        Ok(())
    }

    fn discard(&self, pid: i32, pidfd: Fd) {
        // The process is our own child and not reaped yet, so both calls can only fail when it is gone already.
        let _gone = process::kill(pid, libc::SIGKILL);
        self.shared.let_go_of_tripwire();
        let _reaped = process::wait(pid, 0);
        file::close(pidfd);
    }

    /// Opens every granted root with the caller's rights, its owner translated to the sandbox's user.
    fn open_roots(&self, namespace: Fd, separated: bool) -> Result<(), Failure> {
        for (index, step) in self.plan.steps.iter().enumerate() {
            let Step::Bind(bind) = step else { continue };
            let Some((slot, owner)) = bind.granted else {
                continue;
            };
            let tree = self
                .open_root(bind, owner, namespace, separated)
                .map_err(|errno| Failure {
                    stage: Stage::RootStep,
                    errno: errno.0,
                    step: index as u32,
                })?;
            self.shared.set_tree(slot, tree);
        }
        Ok(())
    }

    fn open_root(
        &self,
        bind: &Bind,
        owner: Owner,
        namespace: Fd,
        separated: bool,
    ) -> Result<Fd, Errno> {
        let tree = mount::copy_tree(Fd::CWD, &bind.source)?;
        if separated {
            let mapped = if owner == self.plan.owner {
                mount::map_owners(tree, namespace)
            } else {
                map_through_own_namespace(tree, owner)
            };
            match mapped {
                // What cannot be written is then read as a stranger would.
                Err(_) if !bind.writable => {}
                other => other?,
            }
        }
        mount::restrict(tree, bind.attributes)?;
        Ok(tree)
    }
}

/// Writes one id as another into a new user namespace, and returns the namespace.
fn write_maps(pid: i32, inside: Owner, kernel: Owner) -> Result<Fd, Errno> {
    let path = CString::new(format!("/proc/{pid}")).unwrap_or_default();
    let directory = file::open_at(Fd::CWD, &path, file::O_PATH_CLOEXEC, 0)?;
    let write = |name: &CStr, inside: u32, kernel: u32| {
        let fd = file::open_at(directory, name, libc::O_WRONLY | libc::O_CLOEXEC, 0)?;
        let result = file::write(fd, format!("{inside} {kernel} 1").as_bytes());
        file::close(fd);
        result
    };
    let result = write(c"uid_map", inside.user, kernel.user)
        .and_then(|()| write(c"gid_map", inside.group, kernel.group))
        .and_then(|()| file::open_at(directory, c"ns/user", libc::O_RDONLY | libc::O_CLOEXEC, 0));
    file::close(directory);
    result
}

/// For a root whose owner is not the workspace's: a namespace that only carries its map.
fn map_through_own_namespace(tree: Fd, owner: Owner) -> Result<(), Errno> {
    // SAFETY: the child shares our memory but only waits; it uses nothing of ours.
    let pid = unsafe {
        process::start(
            libc::CLONE_NEWUSER | libc::CLONE_VM,
            None,
            None,
            wait_for_death,
            std::ptr::null_mut(),
        )
    }?;
    let kernel = Owner {
        user: NOBODYS_USER,
        group: NOBODYS_USER,
    };
    let result = write_maps(pid, owner, kernel).and_then(|namespace| {
        let result = mount::map_owners(tree, namespace);
        file::close(namespace);
        result
    });
    let _gone = process::kill(pid, libc::SIGKILL);
    let _reaped = process::wait(pid, 0);
    result
}

extern "C" fn wait_for_death(_: *mut u8) -> ! {
    // A launcher that dies meanwhile takes this along.
    if process::die_with_parent().is_ok() {
        // An error here would only end the wait early.
        let _woken = signal::poll(&mut [], Some(60_000_000_000));
    }
    process::exit(0)
}

/// PID 1.
extern "C" fn init(launch: *mut u8) -> ! {
    // SAFETY: `Launch::clone_init` passed a reference that outlives this process.
    let launch = unsafe { &*launch.cast::<Launch<'_>>() };
    run(launch, Network::OfTheCommand)
}

/// PID 1 that began before its launch, and has made its network namespace meanwhile, or has not been able to.
///
/// # Safety
/// `launch` must be a [`Launch`] that outlives this process.
pub(crate) unsafe fn init_with_network(launch: *mut u8, network: Result<(), Errno>) -> ! {
    // SAFETY: the caller vouches for it.
    let launch = unsafe { &*launch.cast::<Launch<'_>>() };
    run(launch, Network::Made(network))
}

/// Who makes the network namespace of a one-shot sandbox.
#[derive(Clone, Copy)]
enum Network {
    /// The command itself, while init mounts.
    OfTheCommand,
    /// Init already has.
    Made(Result<(), Errno>),
}

fn run(launch: &Launch<'_>, network: Network) -> ! {
    let failure = match run_init(launch, network) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    launch.shared.fail(failure);
    memory::publish(&launch.shared.apart, -1);
    if let Role::Once { done, .. } = launch.role {
        ring(done);
    }
    process::exit(125)
}

/// Tells the launcher that there is something to see.
pub(crate) fn ring(done: Fd) {
    // The counter of a fresh eventfd cannot overflow; without a reader nobody needs to know.
    let _rung = file::write(done, &1u64.to_ne_bytes());
}

/// Never returns with success.
pub(crate) enum Never {}

fn run_init(launch: &Launch<'_>, network: Network) -> Result<Never, Failure> {
    let Launch { plan, shared, .. } = launch;
    process::die_with_parent().at(Stage::ParentDeath)?;
    let mut alive = [signal::readable(launch.launcher)];
    if signal::poll(&mut alive, Some(0)).at(Stage::ParentDeath)? > 0 {
        process::exit(137);
    }
    if !plan.privileged {
        for (name, map) in [
            c"/proc/self/setgroups",
            c"/proc/self/uid_map",
            c"/proc/self/gid_map",
        ]
        .into_iter()
        .zip(&launch.maps)
        {
            let fd = file::open_at(Fd::CWD, name, libc::O_WRONLY | libc::O_CLOEXEC, 0)
                .at(Stage::Identity)?;
            file::write(fd, map.as_bytes()).at(Stage::Identity)?;
            file::close(fd);
        }
    }
    if plan.filter.explain != Explain::Off
        && let Ok(device) = tripwire::open()
    {
        // Here, because it must be opened inside the namespace and, where only root may, before the change of user.
        shared.tripwire.store(device.0 + 1, Ordering::Release);
    }
    if plan.landlock > 0 {
        let ruleset = landlock::create(plan.landlock).at(Stage::LandlockRules)?;
        shared.ruleset.store(ruleset.0 + 1, Ordering::Release);
    }
    if let Network::Made(made) = network {
        made.at(Stage::Network)?;
        open_network(launch)?;
        memory::publish(&shared.network, HAS_NETWORK);
    }
    // Otherwise the dearest step, the network namespace, is made by the command itself while this process mounts.
    let command = match launch.role {
        Role::Once { terminal, .. } => {
            if let Some(far) = terminal {
                // The end of a session hangs up its terminal: not for an init that a second attempt will replace.
                wait_for_identity(launch)?;
                terminal::lead_session(far).at(Stage::Terminal)?;
            }
            let command = start_command(launch)?;
            if let Some(far) = terminal {
                terminal::give_foreground(far, command).at(Stage::Terminal)?;
            }
            if !plan.reach.grants.is_empty() {
                // The launcher's connections stand in our descriptor table too; ours must still find a number.
                process::raise_open_files().at(Stage::Limits)?;
            }
            Some(command)
        }
        Role::Standing(_) => {
            open_network(launch)?;
            None
        }
    };
    take_identity(launch)?;
    if command.is_none() {
        relay::open_listeners(&plan.reach, shared)?;
    }
    process::new_keyring();
    process::set_host_name(b"sandbox").at(Stage::Namespaces)?;
    root::build(plan, shared, shared.ruleset())?;
    process::set_dumpable(false).at(Stage::Privileges)?;
    match &launch.role {
        Role::Once { done, terminal, .. } => {
            let command = command.unwrap_or(-1);
            if matches!(network, Network::OfTheCommand) {
                // Otherwise /proc/1/net would show the host's connections.
                memory::wait_while(&shared.network, 0, Some(10_000));
                let network = Fd(shared.network.load(Ordering::Acquire) - 1);
                process::join_namespace(network, libc::CLONE_NEWNET).at(Stage::Network)?;
            }
            memory::publish(&shared.root, 1);
            process::drop_privileges().at(Stage::Privileges)?;
            let is_interactive = terminal.is_some();
            supervisor::once(plan, shared, launch.table, command, *done, is_interactive)
        }
        Role::Standing(lines) => serve::serve(plan, shared, launch.table, &launch.filter, *lines),
    }
}

fn wait_for_identity(launch: &Launch<'_>) -> Result<(), Failure> {
    if launch.plan.privileged && !memory::wait_while(&launch.shared.identity, 0, Some(10_000)) {
        return Err(Errno(libc::ETIMEDOUT)).at(Stage::Identity);
    }
    Ok(())
}

/// A privileged caller's child waits for its maps; then it is that user.
fn take_identity(launch: &Launch<'_>) -> Result<(), Failure> {
    if launch.plan.privileged {
        wait_for_identity(launch)?;
        let owner = launch.plan.owner;
        process::become_user(owner.user, owner.group).at(Stage::Identity)?;
    }
    Ok(())
}

/// The loopback of our new network namespace, where the level has one.
fn open_network(launch: &Launch<'_>) -> Result<(), Failure> {
    if let Some(proc) = launch.proc {
        super::sys::socket::raise_loopback().at(Stage::Network)?;
        relay::free_low_ports(proc);
    }
    Ok(())
}

fn start_command(launch: &Launch<'_>) -> Result<i32, Failure> {
    let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS;
    let argument = std::ptr::from_ref(launch).cast_mut().cast::<u8>();
    let (pidfd, group) = (&launch.shared.command, launch.role.group());
    // SAFETY: `launch` outlives init, hence this process; `command` neither allocates nor panics.
    unsafe {
        process::start(
            flags,
            Some(pidfd),
            group.map(|group| group.tree),
            command,
            argument,
        )
    }
    .at(if group.is_some() {
        Stage::Cgroup
    } else {
        Stage::Command
    })
}

/// PID 2 of a one-shot sandbox, until it executes the program.
extern "C" fn command(launch: *mut u8) -> ! {
    // SAFETY: `start_command` passed a reference that outlives this process.
    let launch = unsafe { &*launch.cast::<Launch<'_>>() };
    match run_command(launch) {
        Ok(refused) => {
            launch
                .shared
                .refused
                .store(refused.pack(), Ordering::Release);
            process::exit(if refused == Refused::NotFound {
                127
            } else {
                126
            })
        }
        Err(failure) => {
            launch.shared.fail(failure);
            memory::publish(&launch.shared.network, -1);
            memory::publish(&launch.shared.listener, -1);
            process::exit(125)
        }
    }
}

fn run_command(launch: &Launch<'_>) -> Result<Refused, Failure> {
    let Launch { plan, shared, .. } = launch;
    let Role::Once {
        program,
        directory,
        terminal,
        ..
    } = &launch.role
    else {
        return Err(Errno(libc::EINVAL)).at(Stage::Command);
    };
    process::die_with_parent().at(Stage::ParentDeath)?;
    if terminal.is_none() {
        process::new_session().at(Stage::Command)?;
    }
    if shared.network.load(Ordering::Acquire) != HAS_NETWORK {
        process::unshare(libc::CLONE_NEWNET).at(Stage::Network)?;
        open_network(launch)?;
        // Through a descriptor of our own: after a change of user nobody may look at this process from outside.
        let network = file::open_at(
            Fd::CWD,
            c"/proc/self/ns/net",
            libc::O_RDONLY | libc::O_CLOEXEC,
            0,
        )
        .at(Stage::Network)?;
        memory::publish(&shared.network, network.0 + 1);
    }
    take_identity(launch)?;
    relay::open_listeners(&plan.reach, shared)?;
    process::new_keyring();
    confine::limit(&plan.limits)?;
    process::drop_privileges().at(Stage::Privileges)?;
    let listener = confine::load_filter(&launch.filter, plan.filter.quiet)?;
    memory::publish(&shared.listener, listener);
    if !memory::wait_while(&shared.root, 0, Some(60_000)) {
        return Err(Errno(libc::ETIMEDOUT)).at(Stage::Command);
    }
    if !memory::wait_while(&shared.recorded, 0, Some(60_000)) {
        return Err(Errno(libc::ETIMEDOUT)).at(Stage::Command);
    }
    confine::apply_landlock(shared.ruleset())?;
    if let Some(far) = terminal {
        terminal::stand_on(*far).at(Stage::Terminal)?;
    }
    // Before any path outside is looked up: nobody may wait for the tripwire's server and keep its device open.
    confine::leave_nothing().at(Stage::Descriptors)?;
    if let Err(errno) = file::change_directory(directory) {
        return Ok(Refused::Directory(errno.0));
    }
    // SAFETY: the arrays were made by `StringArray` and live as long as `launch`.
    Ok(unsafe { super::program::execute(program) })
}
