//! Rules for programs that share the machine's namespaces: what a mount, network, process or IPC namespace would keep
//! away is refused here. They replace lines of the common table.

use super::Alone;
use super::table::{Action, Case, Check, Condition, Rule, Verdict};
use libc::{EACCES, EOPNOTSUPP, EPERM};

const fn refuse(number: libc::c_long, errno: i32, reason: &'static str) -> Rule {
    Rule {
        number,
        action: Action::Refuse(errno),
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

const fn case(conditions: &'static [Condition], then: Verdict) -> Case {
    Case { conditions, then }
}

// The same on every architecture.
const SYS_SETXATTRAT: libc::c_long = 463;
const SYS_GETXATTRAT: libc::c_long = 464;
const SYS_LISTXATTRAT: libc::c_long = 465;
const SYS_REMOVEXATTRAT: libc::c_long = 466;
const SYS_FILE_GETATTR: libc::c_long = 468;
const SYS_FILE_SETATTR: libc::c_long = 469;

const OUTSIDE_IPC: &str =
    "System V IPC and message queues are the machine's without an IPC namespace";
const OUTSIDE_PROCESS: &str =
    "processes of the same user outside are in reach without a process namespace";
const HIDDEN_PATH: &str = "Landlock does not stop it on paths that are not granted";

const ALWAYS: &[Rule] = &[
    refuse(
        libc::SYS_bind,
        EACCES,
        "a name in the machine's own network namespace",
    ),
    refuse(libc::SYS_shmget, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_shmat, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_shmctl, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_semget, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_semop, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_semtimedop, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_semctl, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_msgget, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_msgsnd, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_msgrcv, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_msgctl, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_mq_open, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_mq_unlink, EACCES, OUTSIDE_IPC),
    refuse(libc::SYS_inotify_add_watch, EACCES, HIDDEN_PATH),
    refuse(libc::SYS_getxattr, EOPNOTSUPP, HIDDEN_PATH),
    refuse(libc::SYS_lgetxattr, EOPNOTSUPP, HIDDEN_PATH),
    refuse(libc::SYS_listxattr, EOPNOTSUPP, HIDDEN_PATH),
    refuse(libc::SYS_llistxattr, EOPNOTSUPP, HIDDEN_PATH),
    refuse(SYS_GETXATTRAT, EOPNOTSUPP, HIDDEN_PATH),
    refuse(SYS_LISTXATTRAT, EOPNOTSUPP, HIDDEN_PATH),
    refuse(SYS_FILE_GETATTR, EOPNOTSUPP, HIDDEN_PATH),
    check(libc::SYS_sched_setscheduler, &ITSELF_ONLY, OUTSIDE_PROCESS),
    check(libc::SYS_sched_setparam, &ITSELF_ONLY, OUTSIDE_PROCESS),
    check(libc::SYS_sched_setattr, &ITSELF_ONLY, OUTSIDE_PROCESS),
    check(libc::SYS_sched_setaffinity, &ITSELF_ONLY, OUTSIDE_PROCESS),
    check(libc::SYS_setpriority, &OWN_PRIORITY, OUTSIDE_PROCESS),
    check(libc::SYS_ioprio_set, &OWN_DISK_PRIORITY, OUTSIDE_PROCESS),
    check(
        libc::SYS_ioctl,
        &TERMINAL_IOCTLS,
        "attributes of files, sockets' owners, devices",
    ),
];

const METADATA: &str = "Landlock does not cover metadata, and nothing is mounted read-only here";

/// In read-only mode.
const NO_METADATA: &[Rule] = &[
    refuse(libc::SYS_fchmod, EPERM, METADATA),
    refuse(libc::SYS_fchmodat, EPERM, METADATA),
    refuse(452, EPERM, METADATA),
    refuse(libc::SYS_fchown, EPERM, METADATA),
    refuse(libc::SYS_fchownat, EPERM, METADATA),
    refuse(libc::SYS_utimensat, EPERM, METADATA),
    refuse(libc::SYS_setxattr, EPERM, METADATA),
    refuse(libc::SYS_lsetxattr, EPERM, METADATA),
    refuse(libc::SYS_fsetxattr, EPERM, METADATA),
    refuse(libc::SYS_removexattr, EPERM, METADATA),
    refuse(libc::SYS_lremovexattr, EPERM, METADATA),
    refuse(libc::SYS_fremovexattr, EPERM, METADATA),
    refuse(SYS_SETXATTRAT, EPERM, METADATA),
    refuse(SYS_REMOVEXATTRAT, EPERM, METADATA),
    refuse(SYS_FILE_SETATTR, EPERM, METADATA),
];

/// Calls that only x86_64 has.
#[cfg(target_arch = "x86_64")]
const NO_METADATA_OLDER: &[Rule] = &[
    refuse(libc::SYS_chmod, EPERM, METADATA),
    refuse(libc::SYS_chown, EPERM, METADATA),
    refuse(libc::SYS_lchown, EPERM, METADATA),
    refuse(libc::SYS_utime, EPERM, METADATA),
    refuse(libc::SYS_utimes, EPERM, METADATA),
    refuse(libc::SYS_futimesat, EPERM, METADATA),
];
#[cfg(target_arch = "aarch64")]
const NO_METADATA_OLDER: &[Rule] = &[];

const TRUNCATION: &str = "Landlock covers truncation from its third version on";

/// Below Landlock 3. Truncation through a descriptor needs one that was opened for writing.
const NO_TRUNCATION: &[Rule] = &[
    refuse(libc::SYS_truncate, EACCES, TRUNCATION),
    check(libc::SYS_openat, &OPENED_AT, TRUNCATION),
];
#[cfg(target_arch = "x86_64")]
const NO_TRUNCATION_OLDER: &[Rule] = &[check(libc::SYS_open, &OPENED, TRUNCATION)];
#[cfg(target_arch = "aarch64")]
const NO_TRUNCATION_OLDER: &[Rule] = &[];

const SIGNALS: &str = "Landlock keeps signals inside from its sixth version on; a filter cannot tell whose a number is";

/// Below Landlock 6.
const NO_SIGNALS: &[Rule] = &[
    check(libc::SYS_kill, &ITSELF_ONLY, SIGNALS),
    refuse(libc::SYS_tkill, EPERM, SIGNALS),
    refuse(libc::SYS_tgkill, EPERM, SIGNALS),
    refuse(libc::SYS_rt_sigqueueinfo, EPERM, SIGNALS),
    refuse(libc::SYS_rt_tgsigqueueinfo, EPERM, SIGNALS),
    refuse(libc::SYS_pidfd_send_signal, EPERM, SIGNALS),
    check(libc::SYS_fcntl, &NO_FOREIGN_OWNER, SIGNALS),
];

/// Zero means the caller, or its group for `kill`.
const ITSELF_ONLY: Check = Check {
    cases: &[case(&[Condition::Equals(0, 0)], Verdict::Allow)],
    otherwise: Verdict::Refuse(EPERM),
};

/// A kind, then whose: processes and groups, the caller's only.
const OWN_PRIORITY: Check = Check {
    cases: &[
        case(
            &[
                Condition::Equals(0, libc::PRIO_PROCESS),
                Condition::Equals(1, 0),
            ],
            Verdict::Allow,
        ),
        case(
            &[
                Condition::Equals(0, libc::PRIO_PGRP),
                Condition::Equals(1, 0),
            ],
            Verdict::Allow,
        ),
    ],
    otherwise: Verdict::Refuse(EPERM),
};
const OWN_DISK_PRIORITY: Check = Check {
    cases: &[
        // IOPRIO_WHO_PROCESS and IOPRIO_WHO_PGRP.
        case(
            &[Condition::Equals(0, 1), Condition::Equals(1, 0)],
            Verdict::Allow,
        ),
        case(
            &[Condition::Equals(0, 2), Condition::Equals(1, 0)],
            Verdict::Allow,
        ),
    ],
    otherwise: Verdict::Refuse(EPERM),
};

/// Terminals and what every descriptor has (`FIONREAD`, `FIOCLEX` and their like) have `T` in their second byte.
const TERMINAL_IOCTLS: Check = Check {
    cases: &[
        case(
            &[Condition::Equals(1, super::table::TIOCSTI)],
            Verdict::Refuse(EPERM),
        ),
        case(
            &[Condition::Equals(1, super::table::TIOCLINUX)],
            Verdict::Refuse(EPERM),
        ),
        case(
            &[Condition::MaskedEquals(1, 0xff00, 0x5400)],
            Verdict::Allow,
        ),
    ],
    otherwise: Verdict::Refuse(EACCES),
};

/// `F_SETOWN`, `F_SETSIG`, `F_SETOWN_EX`: the kernel would send signals in the caller's name.
const NO_FOREIGN_OWNER: Check = Check {
    cases: &[
        case(&[Condition::Equals(1, 8)], Verdict::Refuse(EPERM)),
        case(&[Condition::Equals(1, 10)], Verdict::Refuse(EPERM)),
        case(&[Condition::Equals(1, 15)], Verdict::Refuse(EPERM)),
    ],
    otherwise: Verdict::Allow,
};

/// `O_TRUNC` on a file that is opened for reading truncates all the same. The other case is the common table's.
macro_rules! opened {
    ($flags:literal, $mode:literal) => {
        Check {
            cases: &[
                case(
                    &[Condition::MaskedEquals(
                        $flags,
                        (libc::O_ACCMODE | libc::O_TRUNC) as u32,
                        (libc::O_RDONLY | libc::O_TRUNC) as u32,
                    )],
                    Verdict::Refuse(EACCES),
                ),
                case(
                    &[
                        Condition::AnyBit($flags, super::table::MAKES_FILE),
                        Condition::AnyBit($mode, super::table::SET_ID),
                    ],
                    Verdict::Refuse(EPERM),
                ),
            ],
            otherwise: Verdict::Allow,
        }
    };
}
const OPENED_AT: Check = opened!(2, 3);
#[cfg(target_arch = "x86_64")]
const OPENED: Check = opened!(1, 2);

/// What Landlock does not cover below its third version. With namespaces it is needed where a root may be deleted from and
/// not written, because such a mount cannot be read-only.
pub(super) fn truncation() -> impl Iterator<Item = &'static Rule> {
    NO_TRUNCATION.iter().chain(NO_TRUNCATION_OLDER)
}

/// The rules for this machine and mode.
pub(super) fn rules(alone: Alone) -> impl Iterator<Item = &'static Rule> {
    let if_so = |yes: bool, rules: &'static [Rule]| if yes { rules } else { &[] };
    ALWAYS
        .iter()
        .chain(if_so(alone.metadata, NO_METADATA))
        .chain(if_so(alone.metadata, NO_METADATA_OLDER))
        .chain(truncation().filter(move |_| alone.landlock < 3))
        .chain(if_so(alone.landlock < 6, NO_SIGNALS))
}
