//! Loading a filter, and talking to a stopped caller.

use super::raw::{Errno, Fd, Result, call};

const SET_MODE_FILTER: usize = 1;
const NEW_LISTENER: usize = 1 << 3;
const WAIT_KILLABLE_RECV: usize = 1 << 5;
const IOC_RECV: usize = 0xc050_2100;
const IOC_SEND: usize = 0xc018_2101;
const IOC_ID_VALID: usize = 0x4008_2102;
const IOC_SET_FLAGS: usize = 0x4008_2104;
const FD_SYNC_WAKE_UP: usize = 1;

/// `struct seccomp_notif`: a caller that waits for our answer.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Notification {
    pub(crate) id: u64,
    pub(crate) pid: u32,
    flags: u32,
    pub(crate) number: i32,
    arch: u32,
    instruction_pointer: u64,
    pub(crate) arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// Applies a filter to this thread, for good, and returns the descriptor that its notifications come from.
pub(crate) fn load(program: &[libc::sock_filter]) -> Result<Fd> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    let load = |flags: usize| {
        // SAFETY: the kernel copies the program, which is as long as it says.
        unsafe {
            call(
                libc::SYS_seccomp,
                [SET_MODE_FILTER, flags, &raw const program as usize, 0, 0, 0],
            )
        }
    };
    let listener = match load(NEW_LISTENER | WAIT_KILLABLE_RECV) {
        // Before Linux 5.19 a caller can be interrupted while it waits.
        Err(Errno(libc::EINVAL)) => load(NEW_LISTENER)?,
        other => other?,
    };
    let listener = Fd(listener as i32);
    // Linux 6.6; without it the answer only takes longer.
    // SAFETY: numbers only.
    let _faster = unsafe {
        call(
            libc::SYS_ioctl,
            [listener.arg(), IOC_SET_FLAGS, FD_SYNC_WAKE_UP, 0, 0, 0],
        )
    };
    Ok(listener)
}

/// Applies a filter that notifies nobody.
pub(crate) fn load_quiet(program: &[libc::sock_filter]) -> Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program, which is as long as it says.
    unsafe {
        call(
            libc::SYS_seccomp,
            [SET_MODE_FILTER, 0, &raw const program as usize, 0, 0, 0],
        )
    }
    .map(drop)
}

pub(crate) fn receive(listener: Fd) -> Result<Notification> {
    let mut notification = Notification::default();
    // SAFETY: the structure is zeroed and has the kernel's layout.
    unsafe {
        call(
            libc::SYS_ioctl,
            [
                listener.arg(),
                IOC_RECV,
                &raw mut notification as usize,
                0,
                0,
                0,
            ],
        )
    }?;
    Ok(notification)
}

/// Whether the caller still waits, so that what was read about its process is its own.
pub(crate) fn is_waiting(listener: Fd, id: u64) -> bool {
    // SAFETY: the number is readable.
    unsafe {
        call(
            libc::SYS_ioctl,
            [
                listener.arg(),
                IOC_ID_VALID,
                &raw const id as usize,
                0,
                0,
                0,
            ],
        )
    }
    .is_ok()
}

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const CONTINUE: u32 = 1;

/// Answers a caller in the kernel's place. That it is gone by now is no error.
pub(crate) fn answer(listener: Fd, id: u64, result: Result<()>) {
    send(
        listener,
        &Answer {
            id,
            value: 0,
            error: result.err().map_or(0, |errno| -errno.0),
            flags: 0,
        },
    );
}

/// Lets the kernel do what the caller asked for. Its arguments in memory may have changed since they were looked at, so
/// this is for calls that need no permission from us.
pub(crate) fn proceed(listener: Fd, id: u64) {
    send(
        listener,
        &Answer {
            id,
            value: 0,
            error: 0,
            flags: CONTINUE,
        },
    );
}

fn send(listener: Fd, answer: &Answer) {
    // SAFETY: the structure has the kernel's layout.
    let _gone = unsafe {
        call(
            libc::SYS_ioctl,
            [
                listener.arg(),
                IOC_SEND,
                std::ptr::from_ref(answer) as usize,
                0,
                0,
                0,
            ],
        )
    };
}
