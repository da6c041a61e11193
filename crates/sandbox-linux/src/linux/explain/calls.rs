//! Which calls stop at init so that it can say what was refused: a table with a reason per line.

use crate::exec::Explain;
use policy::Right;

/// When a call stops at init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Never: allowed or refused by the filter itself.
    Never,
    /// Where the filter refuses it; init gives the same answer.
    Refusals,
    /// Each time.
    Always,
    /// When this argument, the flags of an open, can change something; and where the filter refuses it.
    Writing(u32),
}

/// The flags of an open that can change something. The last one is `O_TMPFILE`'s own bit.
pub(crate) const WRITING: u32 =
    (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32 | 0o20_000_000;

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Operation {
    /// A look at a name that is not there: status, access, working directory.
    Look = 13,
    Open = 1,
    Write,
    Create,
    Delete,
    Rename,
    Link,
    Change,
    Execute,
    Bind,
    Connect,
    Socket,
    /// A system call that the filter refuses; its name is the target.
    Call,
}

impl Operation {
    const ALL: &[Self] = &[
        Self::Look,
        Self::Open,
        Self::Write,
        Self::Create,
        Self::Delete,
        Self::Rename,
        Self::Link,
        Self::Change,
        Self::Execute,
        Self::Bind,
        Self::Connect,
        Self::Socket,
        Self::Call,
    ];

    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|operation| *operation as u8 == number)
    }

    /// The stable word in reports.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Open => "open",
            Self::Write => "write",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::Change => "change",
            Self::Execute => "execute",
            Self::Bind => "bind",
            Self::Connect => "connect",
            Self::Socket => "socket",
            Self::Call => "call",
        }
    }
}

/// The arguments that name a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// The argument with the directory; without one it is the caller's own.
    pub(crate) directory: Option<usize>,
    pub(crate) path: usize,
    /// The right that the call needs there.
    pub(crate) right: Right,
}

/// Where a call's object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// One or two files.
    Files(&'static [At]),
    /// A file, opened with the flags in this argument.
    Opened(At, usize),
    /// An address and its length.
    Address,
    /// Family, type and protocol.
    Socket,
    /// The call itself, by name.
    Itself(&'static str),
}

/// One line of the table.
pub(crate) struct Call {
    pub(crate) number: libc::c_long,
    pub(crate) operation: Operation,
    pub(crate) object: Object,
    ask: Ask,
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "for readers, and for the test that demands one per line"
        )
    )]
    reason: &'static str,
}

/// The file that argument `path` names, from the caller's directory.
const fn here(path: usize, right: Right) -> At {
    At {
        directory: None,
        path,
        right,
    }
}

/// The file that the argument after the directory names.
const fn from(directory: usize, right: Right) -> At {
    At {
        directory: Some(directory),
        path: directory + 1,
        right,
    }
}

const fn files(
    number: libc::c_long,
    operation: Operation,
    files: &'static [At],
    reason: &'static str,
) -> Call {
    Call {
        number,
        operation,
        object: Object::Files(files),
        ask: Ask::Always,
        reason,
    }
}

const fn refused(number: libc::c_long, name: &'static str, reason: &'static str) -> Call {
    Call {
        number,
        operation: Operation::Call,
        object: Object::Itself(name),
        ask: Ask::Refusals,
        reason,
    }
}

const SYS_FCHMODAT2: libc::c_long = 452;
const SYS_SETXATTRAT: libc::c_long = 463;
const SYS_REMOVEXATTRAT: libc::c_long = 466;

use Operation::{Bind, Change, Create, Delete, Execute, Link, Rename, Socket};

const COMMON: &[Call] = &[
    Call {
        number: libc::SYS_openat,
        operation: Operation::Write,
        object: Object::Opened(from(0, Right::Write), 2),
        ask: Ask::Writing(2),
        reason: "what people meet first: a file that cannot be written",
    },
    files(
        libc::SYS_unlinkat,
        Delete,
        &[from(0, Right::Delete)],
        "removes a file or directory",
    ),
    files(
        libc::SYS_renameat,
        Rename,
        &[from(0, Right::Delete), from(2, Right::Write)],
        "moves a file",
    ),
    files(
        libc::SYS_renameat2,
        Rename,
        &[from(0, Right::Delete), from(2, Right::Write)],
        "moves a file",
    ),
    files(
        libc::SYS_mkdirat,
        Create,
        &[from(0, Right::Write)],
        "makes a directory",
    ),
    files(
        libc::SYS_mknodat,
        Create,
        &[from(0, Right::Write)],
        "makes a pipe or device",
    ),
    files(
        libc::SYS_symlinkat,
        Create,
        &[from(1, Right::Write)],
        "makes a link",
    ),
    files(
        libc::SYS_linkat,
        Link,
        &[from(0, Right::Write), from(2, Right::Write)],
        "gives a file a second name",
    ),
    files(
        libc::SYS_truncate,
        Operation::Write,
        &[here(0, Right::Write)],
        "cuts a file",
    ),
    files(
        libc::SYS_fchmodat,
        Change,
        &[from(0, Right::Write)],
        "changes a mode",
    ),
    files(
        SYS_FCHMODAT2,
        Change,
        &[from(0, Right::Write)],
        "changes a mode",
    ),
    files(
        libc::SYS_fchownat,
        Change,
        &[from(0, Right::Write)],
        "changes an owner",
    ),
    files(
        libc::SYS_utimensat,
        Change,
        &[from(0, Right::Write)],
        "changes times",
    ),
    files(
        libc::SYS_setxattr,
        Change,
        &[here(0, Right::Write)],
        "changes attributes",
    ),
    files(
        libc::SYS_lsetxattr,
        Change,
        &[here(0, Right::Write)],
        "changes attributes",
    ),
    files(
        libc::SYS_removexattr,
        Change,
        &[here(0, Right::Write)],
        "changes attributes",
    ),
    files(
        libc::SYS_lremovexattr,
        Change,
        &[here(0, Right::Write)],
        "changes attributes",
    ),
    files(
        SYS_SETXATTRAT,
        Change,
        &[from(0, Right::Write)],
        "changes attributes",
    ),
    files(
        SYS_REMOVEXATTRAT,
        Change,
        &[from(0, Right::Write)],
        "changes attributes",
    ),
    files(
        libc::SYS_execve,
        Execute,
        &[here(0, Right::Execute)],
        "starts a program",
    ),
    files(
        libc::SYS_execveat,
        Execute,
        &[from(0, Right::Execute)],
        "starts a program",
    ),
    Call {
        number: libc::SYS_bind,
        operation: Bind,
        object: Object::Address,
        ask: Ask::Always,
        reason: "a socket file can only lie in the private area",
    },
    Call {
        number: libc::SYS_socket,
        operation: Socket,
        object: Object::Socket,
        ask: Ask::Refusals,
        reason: "where a network level begins to be felt",
    },
    Call {
        number: libc::SYS_socketpair,
        operation: Socket,
        object: Object::Socket,
        ask: Ask::Refusals,
        reason: "datagram pairs are refused though pairs work",
    },
    refused(libc::SYS_ptrace, "ptrace", "debuggers and tracers"),
    refused(libc::SYS_mount, "mount", "container tools"),
    refused(libc::SYS_umount2, "umount2", "container tools"),
    refused(libc::SYS_pivot_root, "pivot_root", "container tools"),
    refused(libc::SYS_chroot, "chroot", "build tools of distributions"),
    refused(libc::SYS_fsopen, "fsopen", "mount of util-linux tries it"),
    refused(libc::SYS_open_tree, "open_tree", "mount of util-linux"),
    refused(
        libc::SYS_unshare,
        "unshare",
        "sandboxes in the sandbox: browsers, bwrap",
    ),
    refused(libc::SYS_setns, "setns", "container tools"),
    refused(
        libc::SYS_clone,
        "clone with new namespaces",
        "sandboxes in the sandbox: browsers, bwrap",
    ),
    refused(
        libc::SYS_memfd_create,
        "memfd_create",
        "runtimes that make code at run time",
    ),
    refused(libc::SYS_keyctl, "keyctl", "Kerberos, disk encryption"),
    refused(libc::SYS_add_key, "add_key", "Kerberos, disk encryption"),
    refused(
        libc::SYS_request_key,
        "request_key",
        "Kerberos, disk encryption",
    ),
    refused(libc::SYS_bpf, "bpf", "tracers"),
    refused(libc::SYS_perf_event_open, "perf_event_open", "profilers"),
    refused(
        libc::SYS_process_vm_readv,
        "process_vm_readv",
        "debuggers and tracers",
    ),
    refused(
        libc::SYS_process_vm_writev,
        "process_vm_writev",
        "debuggers",
    ),
    refused(
        libc::SYS_pidfd_getfd,
        "pidfd_getfd",
        "container tools and debuggers",
    ),
    refused(libc::SYS_userfaultfd, "userfaultfd", "virtual machines"),
    refused(
        libc::SYS_open_by_handle_at,
        "open_by_handle_at",
        "file servers and watchers",
    ),
    refused(
        libc::SYS_name_to_handle_at,
        "name_to_handle_at",
        "file servers and watchers",
    ),
    refused(
        libc::SYS_fanotify_init,
        "fanotify_init",
        "watchers of whole mounts",
    ),
    refused(libc::SYS_sethostname, "sethostname", "container tools"),
    refused(libc::SYS_settimeofday, "settimeofday", "clock tools"),
    refused(libc::SYS_clock_settime, "clock_settime", "clock tools"),
    refused(libc::SYS_syslog, "syslog", "dmesg"),
];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &[Call] = &[
    Call {
        number: libc::SYS_open,
        operation: Operation::Write,
        object: Object::Opened(here(0, Right::Write), 1),
        ask: Ask::Writing(1),
        reason: "older programs and some runtimes",
    },
    files(
        libc::SYS_creat,
        Operation::Write,
        &[here(0, Right::Write)],
        "older programs",
    ),
    files(
        libc::SYS_unlink,
        Delete,
        &[here(0, Right::Delete)],
        "removes a file",
    ),
    files(
        libc::SYS_rmdir,
        Delete,
        &[here(0, Right::Delete)],
        "removes a directory",
    ),
    files(
        libc::SYS_rename,
        Rename,
        &[here(0, Right::Delete), here(1, Right::Write)],
        "moves a file",
    ),
    files(
        libc::SYS_mkdir,
        Create,
        &[here(0, Right::Write)],
        "makes a directory",
    ),
    files(
        libc::SYS_mknod,
        Create,
        &[here(0, Right::Write)],
        "makes a pipe or device",
    ),
    files(
        libc::SYS_symlink,
        Create,
        &[here(1, Right::Write)],
        "makes a link",
    ),
    files(
        libc::SYS_link,
        Link,
        &[here(0, Right::Write), here(1, Right::Write)],
        "gives a file a second name",
    ),
    files(
        libc::SYS_chmod,
        Change,
        &[here(0, Right::Write)],
        "changes a mode",
    ),
    files(
        libc::SYS_chown,
        Change,
        &[here(0, Right::Write)],
        "changes an owner",
    ),
    files(
        libc::SYS_lchown,
        Change,
        &[here(0, Right::Write)],
        "changes an owner",
    ),
    files(
        libc::SYS_utime,
        Change,
        &[here(0, Right::Write)],
        "changes times",
    ),
    files(
        libc::SYS_utimes,
        Change,
        &[here(0, Right::Write)],
        "changes times",
    ),
    files(
        libc::SYS_futimesat,
        Change,
        &[from(0, Right::Write)],
        "changes times",
    ),
];
/// aarch64 has only the generic calls.
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &[Call] = &[];

/// The line of a call.
pub(crate) fn call(number: libc::c_long) -> Option<&'static Call> {
    COMMON
        .iter()
        .chain(ARCHITECTURE)
        .find(|call| call.number == number)
}

/// Calls that only look at a file; a tripwire sees them when the name is not there.
const LOOKS: &[(libc::c_long, At)] = &[
    (libc::SYS_newfstatat, from(0, Right::Read)),
    (libc::SYS_statx, from(0, Right::Read)),
    (libc::SYS_faccessat, from(0, Right::Read)),
    (libc::SYS_faccessat2, from(0, Right::Read)),
    (libc::SYS_readlinkat, from(0, Right::Read)),
    (libc::SYS_chdir, here(0, Right::Read)),
    (libc::SYS_statfs, here(0, Right::Read)),
    (libc::SYS_getxattr, here(0, Right::Read)),
    (libc::SYS_lgetxattr, here(0, Right::Read)),
    (libc::SYS_inotify_add_watch, here(1, Right::Read)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_stat, here(0, Right::Read)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_lstat, here(0, Right::Read)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_access, here(0, Right::Read)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_readlink, here(0, Right::Read)),
];

/// What a call that missed a name was about, and whether init sees it before the kernel does.
pub(crate) fn missed(
    number: libc::c_long,
    flags: u32,
    explain: Explain,
) -> Option<(Operation, At, bool)> {
    let look = LOOKS.iter().find(|look| look.0 == number);
    if let Some((_, at)) = look {
        return Some((Operation::Look, *at, false));
    }
    let call = call(number)?;
    match call.object {
        Object::Opened(at, _) => {
            let seen = flags & WRITING != 0 || explain == Explain::Opens;
            Some((Operation::Open, at, seen))
        }
        Object::Files(files) => Some((call.operation, *files.first()?, true)),
        _ => None,
    }
}

/// Every number in the table.
pub(crate) fn numbers() -> impl Iterator<Item = libc::c_long> {
    COMMON.iter().chain(ARCHITECTURE).map(|call| call.number)
}

/// When this call stops at init.
pub(crate) fn ask(number: libc::c_long, explain: Explain) -> Ask {
    let listed = call(number).map_or(Ask::Never, |call| call.ask);
    match (explain, listed) {
        (Explain::Off, _) => Ask::Never,
        (Explain::Opens, Ask::Writing(_)) => Ask::Always,
        (Explain::On | Explain::Opens, listed) => listed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_listed_once_with_a_reason() {
        let mut numbers: Vec<_> = numbers().collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
        let mut all = COMMON.iter().chain(ARCHITECTURE);
        assert!(all.all(|call| call.reason.len() > 4));
    }

    #[test]
    fn operations_survive_shared_memory() {
        for operation in Operation::ALL {
            assert_eq!(Operation::of(*operation as u8), Some(*operation));
        }
        assert_eq!(Operation::of(0), None);
    }
}
