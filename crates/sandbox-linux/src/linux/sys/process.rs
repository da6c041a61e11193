//! Processes, identities and privileges.

use super::memory::STACK_BYTES;
use super::raw::{Entry, Errno, Fd, Result, call, clone_onto, clone3_onto};
use std::ffi::{CStr, c_char};
use std::sync::atomic::AtomicI32;

/// `struct clone_args` of `clone3`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// The child begins in the cgroup that the arguments name.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Starts `entry(argument)` in a new process with these flags, on a new stack. The new process's pidfd goes to `pidfd`;
/// with `group` it begins in that cgroup, where it counts from its first page.
///
/// # Safety
/// Everything behind `argument` must live, and be shared as the flags say, as long as the child runs our code; with
/// `CLONE_VM` that code must not allocate, panic or touch thread locals.
pub(crate) unsafe fn start(
    flags: i32,
    pidfd: Option<&AtomicI32>,
    group: Option<Fd>,
    entry: Entry,
    argument: *mut u8,
) -> Result<i32> {
    let stack = super::memory::new_stack()?;
    // SAFETY: the stack is new; the caller vouches for the rest.
    unsafe { start_with(flags, pidfd, group, stack, entry, argument) }
}

/// As [`start`] on a stack of the caller's.
///
/// # Safety
/// As [`start`]; `stack` must be the lowest address of a stack of [`STACK_BYTES`] that no running child uses.
pub(crate) unsafe fn start_with(
    flags: i32,
    pidfd: Option<&AtomicI32>,
    group: Option<Fd>,
    stack: usize,
    entry: Entry,
    argument: *mut u8,
) -> Result<i32> {
    let mut arguments = CloneArguments {
        flags: flags as u64,
        exit_signal: libc::SIGCHLD as u64,
        stack: stack as u64,
        stack_size: STACK_BYTES as u64,
        ..CloneArguments::default()
    };
    if let Some(word) = pidfd {
        arguments.flags |= libc::CLONE_PIDFD as u64;
        arguments.pidfd = word.as_ptr() as u64;
    }
    if let Some(group) = group {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = group.0 as u64;
    }
    // SAFETY: the caller vouches for the stack and the argument.
    let answer = unsafe { clone3_onto(&arguments, entry, argument) };
    if answer < 0 {
        Err(Errno(-answer as i32))
    } else {
        Ok(answer as i32)
    }
}

/// As [`start`] with the older call and a stack of the caller's, for code that already runs under the filter.
///
/// # Safety
/// As [`start`]; `stack` must be the lowest address of a stack of [`STACK_BYTES`] that no running child uses.
pub(crate) unsafe fn start_on(
    flags: i32,
    stack: usize,
    entry: Entry,
    argument: *mut u8,
) -> Result<i32> {
    // SAFETY: the caller vouches for the stack and the argument.
    let answer = unsafe {
        clone_onto(
            (flags | libc::SIGCHLD) as u64,
            stack + STACK_BYTES,
            entry,
            argument,
        )
    };
    if answer < 0 {
        Err(Errno(-answer as i32))
    } else {
        Ok(answer as i32)
    }
}

pub(crate) fn exit(status: i32) -> ! {
    loop {
        // SAFETY: ends this process; nothing after it runs.
        let _never = unsafe { call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Waits for a child (`-1`: any). `Ok(None)` when `WNOHANG` found none that ended.
pub(crate) fn wait(pid: i32, options: i32) -> Result<Option<(i32, i32)>> {
    let mut status = 0i32;
    // SAFETY: the status word is writable.
    let ended = unsafe {
        call(
            libc::SYS_wait4,
            [
                pid as isize as usize,
                &raw mut status as usize,
                options as usize,
                0,
                0,
                0,
            ],
        )
    }?;
    Ok((ended != 0).then_some((ended as i32, status)))
}

pub(crate) fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_kill,
            [pid as isize as usize, signal as usize, 0, 0, 0, 0],
        )
    }
    .map(drop)
}

pub(crate) fn id() -> i32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { call(libc::SYS_getpid, [0; 6]) }.map_or(-1, |pid| pid as i32)
}

pub(crate) fn open_pidfd(pid: i32, flags: u32) -> Result<Fd> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_pidfd_open,
            [pid as usize, flags as usize, 0, 0, 0, 0],
        )
    }
    .map(|fd| Fd(fd as i32))
}

/// A copy of another process's descriptor.
pub(crate) fn take_descriptor(pidfd: Fd, number: u64) -> Result<Fd> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_pidfd_getfd,
            [pidfd.arg(), number as usize, 0, 0, 0, 0],
        )
    }
    .map(|fd| Fd(fd as i32))
}

pub(crate) const PIDFD_SIGNAL_PROCESS_GROUP: usize = 4;

pub(crate) fn signal_pidfd(pidfd: Fd, signal: i32, flags: usize) -> Result<()> {
    // SAFETY: numbers only; a null siginfo means an ordinary kill.
    unsafe {
        call(
            libc::SYS_pidfd_send_signal,
            [pidfd.arg(), signal as usize, 0, flags, 0, 0],
        )
    }
    .map(drop)
}

pub(crate) fn new_session() -> Result<()> {
    // SAFETY: takes nothing.
    unsafe { call(libc::SYS_setsid, [0; 6]) }.map(drop)
}

/// Makes a terminal control this session, which must have none yet.
pub(crate) fn control_terminal(terminal: Fd) -> Result<()> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_ioctl,
            [terminal.arg(), libc::TIOCSCTTY as usize, 0, 0, 0, 0],
        )
    }
    .map(drop)
}

/// The process leads a process group of its own.
pub(crate) fn lead_group(pid: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { call(libc::SYS_setpgid, [pid as usize, pid as usize, 0, 0, 0, 0]) }.map(drop)
}

/// Keys of our session's terminal go to this process group.
pub(crate) fn set_foreground(terminal: Fd, group: i32) -> Result<()> {
    // SAFETY: the number is readable.
    unsafe {
        call(
            libc::SYS_ioctl,
            [
                terminal.arg(),
                libc::TIOCSPGRP as usize,
                &raw const group as usize,
                0,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

/// Stops sharing these things, or leaves these namespaces for new ones.
pub(crate) fn unshare(flags: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { call(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0]) }.map(drop)
}

pub(crate) fn join_namespace(namespace: Fd, flags: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_setns,
            [namespace.arg(), flags as usize, 0, 0, 0, 0],
        )
    }
    .map(drop)
}

/// `sethostname`.
pub(crate) fn set_host_name(name: &[u8]) -> Result<()> {
    // SAFETY: the bytes are readable for their length.
    unsafe {
        call(
            libc::SYS_sethostname,
            [name.as_ptr() as usize, name.len(), 0, 0, 0, 0],
        )
    }
    .map(drop)
}

fn control(option: i32, argument: usize) -> Result<usize> {
    // SAFETY: only options that take numbers are used here.
    unsafe { call(libc::SYS_prctl, [option as usize, argument, 0, 0, 0, 0]) }
}

/// SIGKILL for us when the thread that started us ends.
pub(crate) fn die_with_parent() -> Result<()> {
    control(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize).map(drop)
}

/// This signal for us when the thread that started us ends.
pub(crate) fn signal_with_parent(number: i32) -> Result<()> {
    control(libc::PR_SET_PDEATHSIG, number as usize).map(drop)
}

/// Orphans below become our children.
pub(crate) fn adopt_orphans() -> Result<()> {
    control(libc::PR_SET_CHILD_SUBREAPER, 1).map(drop)
}

pub(crate) fn is_dumpable() -> bool {
    control(libc::PR_GET_DUMPABLE, 0) == Ok(1)
}

pub(crate) fn set_dumpable(dumpable: bool) -> Result<()> {
    control(libc::PR_SET_DUMPABLE, usize::from(dumpable)).map(drop)
}

/// Joins a new, empty session keyring, so that the caller's keys are out of reach.
pub(crate) fn new_keyring() {
    const KEYCTL_JOIN_SESSION_KEYRING: usize = 1;
    // A kernel without keyrings has nothing to hide; `keyctl` itself is refused by the filter.
    // SAFETY: a null name asks for an anonymous keyring.
    let _joined = unsafe {
        call(
            libc::SYS_keyctl,
            [KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0, 0],
        )
    };
}

/// Becomes this user and group for good, keeping the capabilities inside our own namespace.
pub(crate) fn become_user(user: u32, group: u32) -> Result<()> {
    let (user, group) = (user as usize, group as usize);
    // SAFETY: numbers and an empty list only.
    unsafe {
        call(libc::SYS_setgroups, [0, 0, 0, 0, 0, 0])?;
        call(libc::SYS_setresgid, [group, group, group, 0, 0, 0])?;
        control(libc::PR_SET_KEEPCAPS, 1)?;
        call(libc::SYS_setresuid, [user, user, user, 0, 0, 0])?;
    }
    set_capabilities(u64::MAX >> (64 - CAPABILITY_COUNT))?;
    // A change of user cleared it.
    die_with_parent()
}

const CAPABILITY_COUNT: u32 = 41;

/// Effective and permitted set; the inheritable set is always empty.
fn set_capabilities(set: u64) -> Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let (low, high) = (set as u32, (set >> 32) as u32);
    let data = [low, low, 0, high, high, 0];
    // SAFETY: header and data have the layout of version 3.
    unsafe {
        call(
            libc::SYS_capset,
            [header.as_ptr() as usize, data.as_ptr() as usize, 0, 0, 0, 0],
        )
    }
    .map(drop)
}

/// No capability in any set, none to gain, and no way to change that.
pub(crate) fn drop_privileges() -> Result<()> {
    // NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE set and locked, KEEP_CAPS clear and locked.
    const SECUREBITS: usize = 0x1 | 0x2 | 0x4 | 0x8 | 0x20 | 0x40 | 0x80;
    control(libc::PR_SET_SECUREBITS, SECUREBITS)?;
    for capability in 0..64 {
        match control(libc::PR_CAPBSET_DROP, capability) {
            Ok(_) => {}
            // The first number the kernel does not know is the end.
            Err(Errno(libc::EINVAL)) => break,
            Err(error) => return Err(error),
        }
    }
    set_capabilities(0)?;
    control(libc::PR_SET_NO_NEW_PRIVS, 1).map(drop)
}

/// The same without a user namespace of our own: a caller who may not change securebits and the bounding set has nothing
/// to lose there. Without new privileges an empty permitted set stays empty, for user 0 too.
pub(crate) fn drop_own_privileges() -> Result<()> {
    match drop_privileges() {
        Err(Errno(libc::EPERM)) => {}
        other => return other,
    }
    set_capabilities(0)?;
    control(libc::PR_SET_NO_NEW_PRIVS, 1).map(drop)
}

/// Sets soft and hard limit to `value`, or to the hard limit in force when that is lower.
pub(crate) fn limit(resource: u32, value: u64) -> Result<()> {
    let mut current = [0u64; 2];
    // SAFETY: both arrays are `struct rlimit64`.
    unsafe {
        call(
            libc::SYS_prlimit64,
            [0, resource as usize, 0, current.as_mut_ptr() as usize, 0, 0],
        )?;
        let wanted = [value.min(current[1]); 2];
        call(
            libc::SYS_prlimit64,
            [0, resource as usize, wanted.as_ptr() as usize, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Sets both limits on the number of open files.
pub(crate) fn set_open_files(limits: [u64; 2]) -> Result<()> {
    let resource = libc::RLIMIT_NOFILE as usize;
    // SAFETY: the array is `struct rlimit64`.
    unsafe {
        call(
            libc::SYS_prlimit64,
            [0, resource, limits.as_ptr() as usize, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Raises the soft limit on open files to the hard one, and returns what both were.
pub(crate) fn raise_open_files() -> Result<[u64; 2]> {
    let mut current = [0u64; 2];
    // SAFETY: the array is `struct rlimit64`.
    unsafe {
        call(
            libc::SYS_prlimit64,
            [
                0,
                libc::RLIMIT_NOFILE as usize,
                0,
                current.as_mut_ptr() as usize,
                0,
                0,
            ],
        )
    }?;
    set_open_files([current[1]; 2])?;
    Ok(current)
}

/// A NULL-terminated array of pointers to NUL-terminated strings, as `execve` wants it.
pub(crate) struct StringArray<'s> {
    pointers: Vec<*const c_char>,
    _strings: std::marker::PhantomData<&'s CStr>,
}

impl<'s> StringArray<'s> {
    pub(crate) fn new(strings: impl IntoIterator<Item = &'s CStr>) -> Self {
        let mut pointers: Vec<_> = strings.into_iter().map(CStr::as_ptr).collect();
        pointers.push(std::ptr::null());
        Self {
            pointers,
            _strings: std::marker::PhantomData,
        }
    }

    pub(crate) fn pointers(&self) -> &[*const c_char] {
        &self.pointers
    }
}

/// Executes a file: the descriptor itself when `path` is empty. Returns only with the reason why not.
///
/// # Safety
/// Both slices must end with a null pointer and every other pointer must lead to a NUL-terminated string.
pub(crate) unsafe fn execute(
    directory: Fd,
    path: &CStr,
    arguments: &[*const c_char],
    environment: &[*const c_char],
) -> Errno {
    let flags = if path.is_empty() {
        libc::AT_EMPTY_PATH
    } else {
        0
    };
    // SAFETY: the caller vouches for the arrays.
    let answer = unsafe {
        call(
            libc::SYS_execveat,
            [
                directory.arg(),
                path.as_ptr() as usize,
                arguments.as_ptr() as usize,
                environment.as_ptr() as usize,
                flags as usize,
                0,
            ],
        )
    };
    answer.err().unwrap_or(Errno(libc::EINVAL))
}

/// Reads another process's memory.
pub(crate) fn read_memory(pid: u32, address: u64, buffer: &mut [u8]) -> Result<usize> {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: buffer.len(),
    };
    // SAFETY: the local vector is our own buffer; the remote one is only an address in the other process.
    unsafe {
        call(
            libc::SYS_process_vm_readv,
            [
                pid as usize,
                &raw const local as usize,
                1,
                &raw const remote as usize,
                1,
                0,
            ],
        )
    }
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is writable. The call itself, because the vDSO needs a thread's own data.
    let _set = unsafe {
        call(
            libc::SYS_clock_gettime,
            [
                libc::CLOCK_MONOTONIC as usize,
                &raw mut time as usize,
                0,
                0,
                0,
                0,
            ],
        )
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
