//! Machines that lack something, simulated on this one.
//!
//! [`Machine::command`] starts this very program again inside such a machine: a seccomp filter answers the calls that the
//! machine forbids, and an older Landlock is played by a tracer that answers the version query and refuses the rights that
//! version does not know. Nothing of the real machine changes.
//!
//! ```ignore
//! let machine = machine::named("docker");
//! let output = machine.command(&["--once", &spec_json, "/bin/true"]).output()?;   // exec_once there
//! let output = machine.command(&["--standing", &spec_json, "/bin/true"]).output()?; // prepare, start, run, end there
//! let output = machine.command(&["--survey", &spec_json]).output()?;              // `partial filesystem_view,…`
//! ```

use super::this_program;
use super::tracer::{self, Played};
use libc::{EINVAL, ENOSPC, ENOSYS, EOPNOTSUPP, EPERM, sock_filter};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A call that the machine answers with an error, always or when one of these bits is set in an argument's low half.
pub struct Deny {
    pub call: libc::c_long,
    pub bits: Option<(u32, u32)>,
    pub errno: i32,
}

/// See the module's head.
pub struct Machine {
    pub name: &'static str,
    pub denies: &'static [&'static [Deny]],
    /// What a tracer plays. An older Landlock must not be newer than the real one ([`Machine::is_possible`]).
    pub played: Played,
    /// What root may at most have; `None`: everything.
    pub capabilities: Option<u64>,
}

const fn deny(call: libc::c_long, errno: i32) -> Deny {
    Deny {
        call,
        bits: None,
        errno,
    }
}

const fn when(call: libc::c_long, argument: u32, bits: u32, errno: i32) -> Deny {
    Deny {
        call,
        bits: Some((argument, bits)),
        errno,
    }
}

const NAMESPACES: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u32;
const NEW_USER: u32 = libc::CLONE_NEWUSER as u32;

/// As container engines do it: `clone3` hides its flags in memory, so it does not exist.
const NO_NAMESPACES: &[Deny] = &[
    when(libc::SYS_clone, 0, NAMESPACES, EPERM),
    deny(libc::SYS_clone3, ENOSYS),
    when(libc::SYS_unshare, 0, NAMESPACES, EPERM),
    deny(libc::SYS_setns, EPERM),
];
const NO_MOUNTS: &[Deny] = &[
    deny(libc::SYS_mount, EPERM),
    deny(libc::SYS_umount2, EPERM),
    deny(libc::SYS_pivot_root, EPERM),
    deny(libc::SYS_open_tree, EPERM),
    deny(libc::SYS_move_mount, EPERM),
    deny(libc::SYS_fsopen, EPERM),
    deny(libc::SYS_fsconfig, EPERM),
    deny(libc::SYS_fsmount, EPERM),
    deny(libc::SYS_mount_setattr, EPERM),
];
/// The rest of what the profile of a container engine refuses and a sandbox might use.
const CONTAINER: &[Deny] = &[
    deny(libc::SYS_keyctl, EPERM),
    deny(libc::SYS_add_key, EPERM),
    deny(libc::SYS_request_key, EPERM),
    deny(libc::SYS_bpf, EPERM),
    deny(libc::SYS_perf_event_open, EPERM),
    deny(libc::SYS_userfaultfd, EPERM),
    deny(libc::SYS_io_uring_setup, EPERM),
    deny(libc::SYS_open_by_handle_at, EPERM),
    deny(libc::SYS_sethostname, EPERM),
];
const UNKNOWN_CALLS: &[Deny] = &[
    when(libc::SYS_clone, 0, NAMESPACES, EPERM),
    deny(libc::SYS_clone3, ENOSYS),
    deny(libc::SYS_unshare, ENOSYS),
    deny(libc::SYS_fsopen, ENOSYS),
    deny(libc::SYS_open_tree, ENOSYS),
    deny(libc::SYS_mount_setattr, ENOSYS),
];
/// `user.max_user_namespaces = 0`.
const USER_NAMESPACES_USED_UP: &[Deny] = &[
    when(libc::SYS_clone, 0, NEW_USER, ENOSPC),
    when(libc::SYS_unshare, 0, NEW_USER, ENOSPC),
];
const LANDLOCK_ABSENT: &[Deny] = &[
    deny(libc::SYS_landlock_create_ruleset, ENOSYS),
    deny(libc::SYS_landlock_add_rule, ENOSYS),
    deny(libc::SYS_landlock_restrict_self, ENOSYS),
];
const LANDLOCK_OFF: &[Deny] = &[
    deny(libc::SYS_landlock_create_ruleset, EOPNOTSUPP),
    deny(libc::SYS_landlock_add_rule, EOPNOTSUPP),
    deny(libc::SYS_landlock_restrict_self, EOPNOTSUPP),
];
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
const NO_NOTIFICATION: &[Deny] = &[when(libc::SYS_seccomp, 1, 1 << 3, EINVAL)];
const NO_FILTER: &[Deny] = &[deny(libc::SYS_seccomp, ENOSYS)];
const NO_PIDFD: &[Deny] = &[
    deny(libc::SYS_pidfd_open, ENOSYS),
    deny(libc::SYS_pidfd_send_signal, ENOSYS),
    deny(libc::SYS_pidfd_getfd, ENOSYS),
];

/// What a container engine leaves to its root.
const CONTAINER_ROOT: u64 = 0xa804_25fb;

const fn machine(name: &'static str, denies: &'static [&'static [Deny]]) -> Machine {
    Machine {
        name,
        denies,
        played: Played::NOTHING,
        capabilities: None,
    }
}

impl Machine {
    const fn landlock(self, version: u32) -> Self {
        Machine {
            played: Played {
                landlock: Some(version),
                ..self.played
            },
            ..self
        }
    }
    const fn container_root(self) -> Self {
        Machine {
            capabilities: Some(CONTAINER_ROOT),
            ..self
        }
    }
}

const DOCKER: &[&[Deny]] = &[NO_NAMESPACES, NO_MOUNTS, CONTAINER];

/// Every machine.
pub const MACHINES: &[Machine] = &[
    machine("this", &[]),
    machine("landlock-absent", &[LANDLOCK_ABSENT]),
    machine("landlock-off", &[LANDLOCK_OFF]),
    machine("landlock-1", &[]).landlock(1),
    machine("landlock-2", &[]).landlock(2),
    machine("landlock-3", &[]).landlock(3),
    machine("landlock-5", &[]).landlock(5),
    machine("docker", DOCKER).container_root(),
    machine("docker-landlock-1", DOCKER)
        .container_root()
        .landlock(1),
    machine("docker-landlock-2", DOCKER)
        .container_root()
        .landlock(2),
    machine("docker-landlock-4", DOCKER)
        .container_root()
        .landlock(4),
    machine(
        "docker-landlock-off",
        &[NO_NAMESPACES, NO_MOUNTS, CONTAINER, LANDLOCK_OFF],
    )
    .container_root(),
    machine("unknown-calls", &[UNKNOWN_CALLS]),
    Machine {
        played: Played {
            clone3: Some((NEW_USER as u64, ENOSPC)),
            ..Played::NOTHING
        },
        ..machine("user-namespaces-used-up", &[USER_NAMESPACES_USED_UP])
    },
    Machine {
        played: Played {
            no_filesystem: Some(u64::from_le_bytes(*b"proc\0\0\0\0")),
            ..Played::NOTHING
        },
        ..machine("no-proc", &[])
    },
    machine("no-mounts", &[NO_MOUNTS]),
    machine("no-notification", &[NO_NOTIFICATION]),
    machine(
        "docker-no-notification",
        &[NO_NAMESPACES, NO_MOUNTS, CONTAINER, NO_NOTIFICATION],
    )
    .container_root(),
    machine("no-filter", &[NO_FILTER]),
    machine("no-pidfd", &[NO_PIDFD]),
];

/// The machine with this name.
pub fn named(name: &str) -> &'static Machine {
    MACHINES
        .iter()
        .find(|machine| machine.name == name)
        .unwrap_or_else(|| panic!("no machine {name}"))
}

impl Machine {
    /// Whether this machine can play it: its own Landlock is not older.
    pub fn is_possible(&self) -> bool {
        // SAFETY: asks for the version, passes no pointer.
        let own = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                std::ptr::null::<u8>(),
                0,
                1,
            )
        };
        self.played
            .landlock
            .is_none_or(|version| i64::from(version) <= own)
    }

    /// This program with these arguments, inside this machine.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Command {
        let mut command = Command::new(this_program());
        command
            .arg("--machine")
            .arg(self.name)
            .args(arguments)
            .stdin(std::process::Stdio::null());
        command
    }

    fn filter(&self) -> Vec<sock_filter> {
        const LOAD: u16 = 0x20;
        const JUMP_EQUAL: u16 = 0x15;
        const JUMP_ANY_BIT: u16 = 0x45;
        const RETURN: u16 = 0x06;
        let line = |code, k, yes, no| sock_filter {
            code,
            jt: yes,
            jf: no,
            k,
        };
        let mut program = Vec::new();
        for deny in self.denies.iter().copied().flatten() {
            program.push(line(LOAD, 0, 0, 0));
            let skip = if deny.bits.is_some() { 3 } else { 1 };
            program.push(line(JUMP_EQUAL, deny.call as u32, 0, skip));
            if let Some((argument, bits)) = deny.bits {
                program.push(line(LOAD, 16 + 8 * argument, 0, 0));
                program.push(line(JUMP_ANY_BIT, bits, 0, 1));
            }
            program.push(line(RETURN, 0x0005_0000 | deny.errno as u32, 0, 0));
        }
        for call in self.played.calls() {
            program.push(line(LOAD, 0, 0, 0));
            program.push(line(JUMP_EQUAL, call as u32, 0, 1));
            // SECCOMP_RET_TRACE
            program.push(line(RETURN, 0x7ff0_0000, 0, 0));
        }
        program.push(line(RETURN, 0x7fff_0000, 0, 0));
        program
    }

    /// Puts this process into the machine, for good.
    fn enter(&self) {
        if self.played.calls().next().is_some() {
            tracer::attach(self.played);
        }
        if let (Some(kept), true) = (self.capabilities, super::is_root()) {
            keep_capabilities(kept);
        }
        let program = self.filter();
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_ptr().cast_mut(),
        };
        // SAFETY: changes only this process; the program lives until the kernel has copied it.
        let loaded = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::syscall(libc::SYS_seccomp, 1, 0, &raw const filter)
        };
        assert_eq!(loaded, 0, "{}", std::io::Error::last_os_error());
    }
}

fn keep_capabilities(kept: u64) {
    let header = [0x2008_0522u32, 0];
    let (low, high) = (kept as u32, (kept >> 32) as u32);
    let data = [low, low, 0, high, high, 0];
    // SAFETY: only this process; both arrays have the layout of version 3.
    unsafe {
        for capability in (0..64).filter(|capability| kept >> capability & 1 == 0) {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        let set = libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr());
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

/// `--machine NAME …`: the rest of the arguments, inside.
pub fn main(arguments: &[String]) -> ! {
    named(&arguments[0]).enter();
    let error = Command::new(this_program()).args(&arguments[1..]).exec();
    panic!("{error}")
}
