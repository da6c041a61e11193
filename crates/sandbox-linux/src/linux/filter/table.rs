//! Which system calls are refused, how, and why.

use super::FilterChoice;
use libc::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, EACCES, EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT,
    SOCK_SEQPACKET, SOCK_STREAM,
};
use std::collections::BTreeMap;

/// Numbers from here on were not known when this table was written.
pub(super) const REVIEWED_BELOW: u32 = 471;

/// Numbers below it that no call has: what a kernel may do with them one day was not reviewed either.
#[cfg(target_arch = "x86_64")]
const UNASSIGNED: &[std::ops::RangeInclusive<u32>] = &[335..=423];
/// The first range is for calls of single architectures.
#[cfg(target_arch = "aarch64")]
const UNASSIGNED: &[std::ops::RangeInclusive<u32>] = &[244..=259, 295..=423];

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    Refuse(i32),
    /// Stops the caller until init has made the call for it.
    Ask,
    /// Judges the arguments.
    Check(&'static Check),
}

/// The first case whose conditions all hold decides; otherwise `otherwise`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) cases: &'static [Case],
    pub(super) otherwise: Verdict,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) conditions: &'static [Condition],
    pub(super) then: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    Refuse(i32),
}

/// A condition on the low 32 bits of an argument. All arguments judged here are 32 bits wide for the kernel too, except
/// `clone`'s flags, whose namespace bits lie in the low half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Equals(u32, u32),
    MaskedEquals(u32, u32, u32),
    AnyBit(u32, u32),
}

/// One line of the table.
pub(super) struct Rule {
    pub(super) number: libc::c_long,
    pub(super) action: Action,
    /// Read by people and by the test that demands one per line.
    pub(super) reason: &'static str,
}

const fn refuse(number: libc::c_long, reason: &'static str) -> Rule {
    Rule {
        number,
        action: Action::Refuse(EPERM),
        reason,
    }
}

const fn absent(number: libc::c_long, reason: &'static str) -> Rule {
    Rule {
        number,
        action: Action::Refuse(ENOSYS),
        reason,
    }
}

const fn check(number: libc::c_long, check: &'static Check, reason: &'static str) -> Rule {
    Rule {
        number,
        action: Action::Check(check),
        reason,
    }
}

// Numbers that the libc crate does not name on every architecture. From 424 on they are the same everywhere.
const SYS_QUOTACTL_FD: libc::c_long = 443;
const SYS_PROCESS_MRELEASE: libc::c_long = 448;
const SYS_SET_MEMPOLICY_HOME_NODE: libc::c_long = 450;
const SYS_FCHMODAT2: libc::c_long = 452;
const SYS_STATMOUNT: libc::c_long = 457;
const SYS_LISTMOUNT: libc::c_long = 458;
const SYS_LSM_GET_SELF_ATTR: libc::c_long = 459;
const SYS_LSM_SET_SELF_ATTR: libc::c_long = 460;
const SYS_LSM_LIST_MODULES: libc::c_long = 461;
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;
const SYS_LISTNS: libc::c_long = 470;
const SYS_MEMFD_SECRET: libc::c_long = 447;

/// Refused on every architecture.
const COMMON: &[Rule] = &[
    refuse(libc::SYS_mount, "the view is fixed"),
    refuse(libc::SYS_umount2, "masks and protections are mounts"),
    refuse(libc::SYS_pivot_root, "the root is fixed"),
    refuse(
        libc::SYS_chroot,
        "a root of one's own is the classic way out",
    ),
    refuse(libc::SYS_open_tree, "detached mounts"),
    refuse(libc::SYS_move_mount, "detached mounts"),
    refuse(libc::SYS_fsopen, "new file systems"),
    refuse(libc::SYS_fsconfig, "new file systems"),
    refuse(libc::SYS_fsmount, "new file systems"),
    refuse(libc::SYS_fspick, "changing mounted file systems"),
    refuse(
        libc::SYS_mount_setattr,
        "read-only and noexec are mount attributes",
    ),
    refuse(SYS_OPEN_TREE_ATTR, "detached mounts with attributes"),
    refuse(SYS_STATMOUNT, "lists mounts"),
    refuse(SYS_LISTMOUNT, "lists mounts"),
    refuse(SYS_LISTNS, "lists namespaces"),
    refuse(
        libc::SYS_unshare,
        "new namespaces bring capabilities over kernel code",
    ),
    refuse(libc::SYS_setns, "other namespaces"),
    check(
        libc::SYS_clone,
        &NO_NAMESPACES,
        "processes and threads yes, namespaces no",
    ),
    absent(
        libc::SYS_clone3,
        "its flags lie in memory where a filter cannot read them; libc falls back to clone",
    ),
    refuse(libc::SYS_ptrace, "reads and drives other processes"),
    refuse(libc::SYS_process_vm_readv, "reads other processes"),
    refuse(libc::SYS_process_vm_writev, "writes other processes"),
    refuse(
        libc::SYS_pidfd_getfd,
        "takes descriptors of other processes",
    ),
    refuse(libc::SYS_kcmp, "tells kernel addresses apart"),
    refuse(libc::SYS_process_madvise, "other processes' memory"),
    refuse(SYS_PROCESS_MRELEASE, "other processes' memory"),
    refuse(libc::SYS_bpf, "code in the kernel"),
    refuse(
        libc::SYS_perf_event_open,
        "large attack surface, side channels",
    ),
    refuse(libc::SYS_userfaultfd, "widens kernel races"),
    absent(
        libc::SYS_io_uring_setup,
        "does what the filter refuses, without system calls",
    ),
    absent(libc::SYS_io_uring_enter, "as io_uring_setup"),
    absent(libc::SYS_io_uring_register, "as io_uring_setup"),
    refuse(libc::SYS_keyctl, "keyrings are not in any namespace"),
    refuse(libc::SYS_add_key, "keyrings are not in any namespace"),
    refuse(
        libc::SYS_request_key,
        "keyrings, and starts a helper on the host",
    ),
    refuse(libc::SYS_init_module, "code in the kernel"),
    refuse(libc::SYS_finit_module, "code in the kernel"),
    refuse(libc::SYS_delete_module, "code in the kernel"),
    refuse(libc::SYS_kexec_load, "another kernel"),
    refuse(libc::SYS_kexec_file_load, "another kernel"),
    refuse(libc::SYS_reboot, "the whole machine"),
    refuse(libc::SYS_swapon, "the whole machine"),
    refuse(libc::SYS_swapoff, "the whole machine"),
    refuse(libc::SYS_settimeofday, "the whole machine"),
    refuse(libc::SYS_clock_settime, "the whole machine"),
    refuse(libc::SYS_adjtimex, "the whole machine"),
    refuse(libc::SYS_clock_adjtime, "the whole machine"),
    refuse(libc::SYS_sethostname, "the namespace's name is ours"),
    refuse(libc::SYS_setdomainname, "the namespace's name is ours"),
    refuse(libc::SYS_acct, "the whole machine"),
    refuse(libc::SYS_syslog, "kernel messages hold addresses"),
    refuse(libc::SYS_vhangup, "the caller's terminal"),
    refuse(libc::SYS_quotactl, "file system administration"),
    refuse(SYS_QUOTACTL_FD, "file system administration"),
    refuse(libc::SYS_open_by_handle_at, "opens files without a path"),
    refuse(
        libc::SYS_name_to_handle_at,
        "makes handles for open_by_handle_at",
    ),
    refuse(libc::SYS_fanotify_init, "watches whole mounts"),
    refuse(libc::SYS_fanotify_mark, "watches whole mounts"),
    refuse(libc::SYS_lookup_dcookie, "profiling of the machine"),
    refuse(libc::SYS_nfsservctl, "gone, never needed"),
    refuse(
        libc::SYS_move_pages,
        "memory placement shows other processes",
    ),
    refuse(
        libc::SYS_migrate_pages,
        "memory placement shows other processes",
    ),
    refuse(
        libc::SYS_mbind,
        "memory placement, a history of kernel faults",
    ),
    refuse(
        libc::SYS_set_mempolicy,
        "memory placement, a history of kernel faults",
    ),
    refuse(
        SYS_SET_MEMPOLICY_HOME_NODE,
        "memory placement, a history of kernel faults",
    ),
    refuse(SYS_LSM_GET_SELF_ATTR, "security module interface"),
    refuse(SYS_LSM_SET_SELF_ATTR, "security module interface"),
    refuse(SYS_LSM_LIST_MODULES, "security module interface"),
    refuse(SYS_MEMFD_SECRET, "memory that no limit of ours sees"),
    check(
        libc::SYS_socketpair,
        &PAIRS,
        "pairs of connection sockets; a datagram one can be aimed at any path",
    ),
    check(libc::SYS_ioctl, &IOCTLS, "types into the terminal"),
    check(libc::SYS_prctl, &PROCESS_CONTROLS, "memory map tricks"),
    check(
        libc::SYS_personality,
        &PERSONALITIES,
        "switches kernel protections off",
    ),
    check(
        libc::SYS_fchmod,
        &NO_SET_ID_IN_1,
        "leaves set-id files for the host",
    ),
    check(
        libc::SYS_fchmodat,
        &NO_SET_ID_IN_2,
        "leaves set-id files for the host",
    ),
    check(
        SYS_FCHMODAT2,
        &NO_SET_ID_IN_2,
        "leaves set-id files for the host",
    ),
    check(
        libc::SYS_mknodat,
        &NO_SET_ID_IN_2,
        "leaves set-id files for the host",
    ),
    check(
        libc::SYS_openat,
        &NO_SET_ID_OPENED_AT,
        "leaves set-id files for the host",
    ),
    absent(
        libc::SYS_openat2,
        "its mode lies in memory where a filter cannot read it; callers fall back to openat",
    ),
    check(
        libc::SYS_prlimit64,
        &OWN_LIMITS_ONLY,
        "limits of init would blind its memory watcher",
    ),
    check(
        libc::SYS_sched_setscheduler,
        &NOT_INIT,
        "an idle init watches nothing",
    ),
    check(
        libc::SYS_sched_setparam,
        &NOT_INIT,
        "an idle init watches nothing",
    ),
    check(
        libc::SYS_sched_setattr,
        &NOT_INIT,
        "an idle init watches nothing",
    ),
    check(
        libc::SYS_sched_setaffinity,
        &NOT_INIT,
        "init on a crowded processor watches late",
    ),
    check(
        libc::SYS_setpriority,
        &PRIORITIES,
        "an init of low priority watches late",
    ),
    check(
        libc::SYS_ioprio_set,
        &DISK_PRIORITIES,
        "an init of low priority watches late",
    ),
    Rule {
        number: libc::SYS_connect,
        action: Action::Ask,
        reason: "a pathname socket is a way out unless it lies in the private area; init looks and connects",
    },
];

/// `S_ISUID | S_ISGID`.
pub(super) const SET_ID: u32 = 0o6000;

/// A file that changes its user's identity when it is run would be left behind for the host: as the owner's own, even
/// where the sandbox runs as nobody (id-mapped mounts translate, and `nosuid` binds only our mount).
macro_rules! no_set_id {
    ($argument:literal) => {
        Check {
            cases: &[Case {
                conditions: &[Condition::AnyBit($argument, SET_ID)],
                then: Verdict::Refuse(EPERM),
            }],
            otherwise: Verdict::Allow,
        }
    };
}
const NO_SET_ID_IN_1: Check = no_set_id!(1);
const NO_SET_ID_IN_2: Check = no_set_id!(2);

/// `O_CREAT` and the bit of `O_TMPFILE`: without them the mode is not looked at and may hold anything.
pub(super) const MAKES_FILE: u32 = libc::O_CREAT as u32 | 0o20_000_000;
macro_rules! no_set_id_made {
    ($flags:literal, $mode:literal) => {
        Check {
            cases: &[Case {
                conditions: &[
                    Condition::AnyBit($flags, MAKES_FILE),
                    Condition::AnyBit($mode, SET_ID),
                ],
                then: Verdict::Refuse(EPERM),
            }],
            otherwise: Verdict::Allow,
        }
    };
}
const NO_SET_ID_OPENED_AT: Check = no_set_id_made!(2, 3);
#[cfg(target_arch = "x86_64")]
const NO_SET_ID_OPENED: Check = no_set_id_made!(1, 2);

const fn allow_but(cases: &'static [Case]) -> Check {
    Check {
        cases,
        otherwise: Verdict::Allow,
    }
}

/// Init runs under the programs' own user, so the kernel would let them slow it down or starve its watchers.
const OWN_LIMITS_ONLY: Check = Check {
    cases: &[family(&[Condition::Equals(0, 0)], Verdict::Allow)],
    otherwise: Verdict::Refuse(EPERM),
};
const NOT_INIT: Check = Check {
    cases: &[family(&[Condition::Equals(0, 1)], Verdict::Refuse(EPERM))],
    otherwise: Verdict::Allow,
};
/// `setpriority` and `ioprio_set` name a kind first; a whole user includes init.
const PRIORITIES: Check = allow_but(&[
    family(
        &[
            Condition::Equals(0, libc::PRIO_PROCESS),
            Condition::Equals(1, 1),
        ],
        Verdict::Refuse(EPERM),
    ),
    family(
        &[Condition::Equals(0, libc::PRIO_USER)],
        Verdict::Refuse(EPERM),
    ),
]);
const DISK_PRIORITIES: Check = allow_but(&[
    // IOPRIO_WHO_PROCESS and IOPRIO_WHO_USER.
    family(
        &[Condition::Equals(0, 1), Condition::Equals(1, 1)],
        Verdict::Refuse(EPERM),
    ),
    family(&[Condition::Equals(0, 3)], Verdict::Refuse(EPERM)),
]);

/// Calls that only x86_64 has.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &[Rule] = &[
    check(
        libc::SYS_chmod,
        &NO_SET_ID_IN_1,
        "leaves set-id files for the host",
    ),
    check(
        libc::SYS_creat,
        &NO_SET_ID_IN_1,
        "leaves set-id files for the host",
    ),
    check(
        libc::SYS_mknod,
        &NO_SET_ID_IN_1,
        "leaves set-id files for the host",
    ),
    check(
        libc::SYS_open,
        &NO_SET_ID_OPENED,
        "leaves set-id files for the host",
    ),
    refuse(libc::SYS_iopl, "hardware ports"),
    refuse(libc::SYS_ioperm, "hardware ports"),
    refuse(
        libc::SYS_modify_ldt,
        "old segment code, a history of kernel faults",
    ),
    refuse(libc::SYS_uselib, "maps a file as code"),
    refuse(libc::SYS_ustat, "obsolete; tells about mounted devices"),
    refuse(libc::SYS_sysfs, "obsolete; lists file system drivers"),
    refuse(libc::SYS__sysctl, "kernel settings"),
];

/// aarch64 has only the generic calls.
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &[Rule] = &[];

const NO_NAMESPACES: Check = Check {
    cases: &[Case {
        conditions: &[Condition::AnyBit(
            0,
            (libc::CLONE_NEWUSER
                | libc::CLONE_NEWNS
                | libc::CLONE_NEWPID
                | libc::CLONE_NEWNET
                | libc::CLONE_NEWIPC
                | libc::CLONE_NEWUTS
                | libc::CLONE_NEWCGROUP) as u32,
        )],
        then: Verdict::Refuse(EPERM),
    }],
    otherwise: Verdict::Allow,
};

/// `SOCK_TYPE_MASK`: the rest are flags.
const TYPE: u32 = 0xf;

const UNIX_STREAM: Case = Case {
    conditions: &[
        Condition::Equals(0, AF_UNIX as u32),
        Condition::MaskedEquals(1, TYPE, SOCK_STREAM as u32),
    ],
    then: Verdict::Allow,
};
const UNIX_PACKET: Case = Case {
    conditions: &[
        Condition::Equals(0, AF_UNIX as u32),
        Condition::MaskedEquals(1, TYPE, SOCK_SEQPACKET as u32),
    ],
    then: Verdict::Allow,
};
/// A datagram socket names its destination in every `sendto` and `sendmsg`, out of a filter's sight.
const UNIX_OTHER: Case = Case {
    conditions: &[Condition::Equals(0, AF_UNIX as u32)],
    then: Verdict::Refuse(EPERM),
};

const PAIRS: Check = Check {
    cases: &[UNIX_STREAM, UNIX_PACKET, UNIX_OTHER],
    otherwise: Verdict::Refuse(EAFNOSUPPORT),
};

const fn family(family: &'static [Condition], then: Verdict) -> Case {
    Case {
        conditions: family,
        then,
    }
}

/// Network `none`: no family but local ones (SEC-INV-06).
const SOCKETS_NONE: Check = Check {
    cases: &[
        UNIX_STREAM,
        UNIX_PACKET,
        UNIX_OTHER,
        family(
            &[Condition::Equals(0, AF_INET as u32)],
            Verdict::Refuse(EACCES),
        ),
        family(
            &[Condition::Equals(0, AF_INET6 as u32)],
            Verdict::Refuse(EACCES),
        ),
    ],
    otherwise: Verdict::Refuse(EAFNOSUPPORT),
};

macro_rules! tcp {
    ($family:expr, $protocol:expr) => {
        Case {
            conditions: &[
                Condition::Equals(0, $family as u32),
                Condition::MaskedEquals(1, TYPE, SOCK_STREAM as u32),
                Condition::Equals(2, $protocol as u32),
            ],
            then: Verdict::Allow,
        }
    };
}
macro_rules! stream_other {
    ($family:expr) => {
        Case {
            conditions: &[
                Condition::Equals(0, $family as u32),
                Condition::MaskedEquals(1, TYPE, SOCK_STREAM as u32),
            ],
            then: Verdict::Refuse(EPROTONOSUPPORT),
        }
    };
}

/// Private loopback: TCP with its own protocol number only. MPTCP and SCTP come as stream sockets too.
const SOCKETS_LOOPBACK: Check = Check {
    cases: &[
        UNIX_STREAM,
        UNIX_PACKET,
        UNIX_OTHER,
        tcp!(AF_INET, 0),
        tcp!(AF_INET, libc::IPPROTO_TCP),
        stream_other!(AF_INET),
        family(
            &[Condition::Equals(0, AF_INET as u32)],
            Verdict::Refuse(EACCES),
        ),
        tcp!(AF_INET6, 0),
        tcp!(AF_INET6, libc::IPPROTO_TCP),
        stream_other!(AF_INET6),
        family(
            &[Condition::Equals(0, AF_INET6 as u32)],
            Verdict::Refuse(EACCES),
        ),
        // Route netlink of our own namespace, for programs that list interfaces; changes need capabilities.
        family(
            &[
                Condition::Equals(0, AF_NETLINK as u32),
                Condition::Equals(2, 0),
            ],
            Verdict::Allow,
        ),
    ],
    otherwise: Verdict::Refuse(EAFNOSUPPORT),
};

pub(super) const TIOCSTI: u32 = 0x5412;
pub(super) const TIOCLINUX: u32 = 0x541c;

const IOCTLS: Check = Check {
    cases: &[
        family(&[Condition::Equals(1, TIOCSTI)], Verdict::Refuse(EPERM)),
        family(&[Condition::Equals(1, TIOCLINUX)], Verdict::Refuse(EPERM)),
    ],
    otherwise: Verdict::Allow,
};

const PROCESS_CONTROLS: Check = Check {
    cases: &[family(
        &[Condition::Equals(0, libc::PR_SET_MM as u32)],
        Verdict::Refuse(EPERM),
    )],
    otherwise: Verdict::Allow,
};

const PERSONALITIES: Check = Check {
    cases: &[
        family(&[Condition::Equals(0, 0)], Verdict::Allow),
        // Asks without changing.
        family(&[Condition::Equals(0, u32::MAX)], Verdict::Allow),
        // ADDR_NO_RANDOMIZE: debuggers and some compilers set it for their own children.
        family(&[Condition::Equals(0, 0x0004_0000)], Verdict::Allow),
    ],
    otherwise: Verdict::Refuse(EPERM),
};

/// Every rule for this choice, sorted by number.
pub(super) fn rules(choice: FilterChoice) -> Vec<(u32, Action)> {
    let mut rules: BTreeMap<u32, Action> = all(choice)
        .map(|rule| (rule.number as u32, rule.action))
        .collect();
    if choice.quiet {
        // Pairs and pipes need no address, and only `connect` can name a socket outside.
        rules.insert(libc::SYS_connect as u32, Action::Refuse(EACCES));
    }
    for rule in replacing(choice) {
        rules.insert(rule.number as u32, rule.action);
    }
    for number in UNASSIGNED.iter().cloned().flatten() {
        rules.entry(number).or_insert(Action::Refuse(ENOSYS));
    }
    rules.into_iter().collect()
}

/// Rules that stand in place of the common ones.
fn replacing(choice: FilterChoice) -> impl Iterator<Item = &'static Rule> {
    let alone = choice.alone.into_iter().flat_map(super::alone::rules);
    super::alone::truncation()
        .filter(move |_| choice.no_truncation)
        .chain(alone)
}

pub(super) fn all(choice: FilterChoice) -> impl Iterator<Item = Rule> {
    let sockets = if choice.loopback {
        &SOCKETS_LOOPBACK
    } else {
        &SOCKETS_NONE
    };
    let memory_files = if choice.execution_limited {
        Some(Rule {
            number: libc::SYS_memfd_create,
            action: Action::Refuse(EACCES),
            reason: "a file without a path can be executed whatever its flags say",
        })
    } else if choice.memory_counted {
        None
    } else {
        Some(absent(
            libc::SYS_memfd_create,
            "memory that no process has mapped is in no account, and may travel in a message; programs know older kernels",
        ))
    };
    let copies = COMMON.iter().chain(ARCHITECTURE).map(|rule| Rule {
        number: rule.number,
        action: rule.action,
        reason: rule.reason,
    });
    copies.chain(memory_files).chain([check(
        libc::SYS_socket,
        sockets,
        "families and protocols of the network level",
    )])
}

impl Condition {
    fn holds(self, arguments: &[u64; 6]) -> bool {
        let low = |index: u32| {
            arguments
                .get(index as usize)
                .map_or(0, |value| *value as u32)
        };
        match self {
            Self::Equals(index, value) => low(index) == value,
            Self::MaskedEquals(index, mask, value) => low(index) & mask == value,
            Self::AnyBit(index, mask) => low(index) & mask != 0,
        }
    }
}

/// The error number with which this call is refused, as the compiled filter says it; for init, which answers in its place.
/// Does not allocate.
pub(crate) fn refusal(choice: FilterChoice, number: i32, arguments: &[u64; 6]) -> Option<i32> {
    let number = libc::c_long::from(number);
    let action = replacing(choice)
        .filter(|rule| rule.number == number)
        .last()
        .map(|rule| rule.action)
        .or_else(|| {
            all(choice)
                .find(|rule| rule.number == number)
                .map(|rule| rule.action)
        });
    let verdict = match action {
        None | Some(Action::Allow | Action::Ask) => Verdict::Allow,
        Some(Action::Refuse(errno)) => Verdict::Refuse(errno),
        Some(Action::Check(check)) => check
            .cases
            .iter()
            .find(|case| {
                case.conditions
                    .iter()
                    .all(|condition| condition.holds(arguments))
            })
            .map_or(check.otherwise, |case| case.then),
    };
    match verdict {
        Verdict::Allow => None,
        Verdict::Refuse(errno) => Some(errno),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn choices() -> [FilterChoice; 8] {
        [0, 1, 2, 3, 4, 5, 6, 7].map(|bits| FilterChoice {
            loopback: bits & 1 != 0,
            execution_limited: bits & 2 != 0,
            explain: crate::exec::Explain::Off,
            memory_counted: bits & 4 != 0,
            quiet: false,
            no_truncation: false,
            alone: None,
        })
    }

    /// style.md: a table with a reason per line, and a test that fails on a redundant line.
    #[test]
    fn every_call_is_listed_once_with_a_reason() {
        for choice in choices() {
            let mut seen = BTreeMap::new();
            for rule in all(choice) {
                assert!(rule.reason.len() > 8, "call {} has no reason", rule.number);
                assert!(
                    (rule.number as u32) < REVIEWED_BELOW,
                    "call {} lies above the reviewed range",
                    rule.number
                );
                let before = seen.insert(rule.number, rule.reason);
                assert_eq!(before, None, "call {} is listed twice", rule.number);
            }
        }
    }

    /// A verdict that equals what comes anyway would be a redundant line.
    #[test]
    fn no_action_in_the_table_is_the_default() {
        for choice in choices() {
            assert!(
                rules(choice)
                    .iter()
                    .all(|(_, action)| *action != Action::Allow)
            );
        }
    }
}
