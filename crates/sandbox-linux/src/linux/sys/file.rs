//! Files, directories and descriptors.

use super::raw::{Errno, Fd, Result, call};
use std::ffi::CStr;

pub(crate) const O_PATH_CLOEXEC: i32 = libc::O_PATH | libc::O_CLOEXEC;

pub(crate) fn open_at(directory: Fd, path: &CStr, flags: i32, mode: u32) -> Result<Fd> {
    // SAFETY: `path` is a NUL-terminated string.
    let answer = unsafe {
        call(
            libc::SYS_openat,
            [
                directory.arg(),
                path.as_ptr() as usize,
                flags as usize,
                mode as usize,
                0,
                0,
            ],
        )
    };
    answer.map(|fd| Fd(fd as i32))
}

/// `openat2`'s `struct open_how`.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

pub(crate) const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
pub(crate) const RESOLVE_NO_SYMLINKS: u64 = 0x04;
pub(crate) const RESOLVE_BENEATH: u64 = 0x08;
/// Only what the kernel has in memory, without asking any file system.
pub(crate) const RESOLVE_CACHED: u64 = 0x20;
pub(crate) const RESOLVE_IN_ROOT: u64 = 0x10;

pub(crate) fn open_resolved(directory: Fd, path: &CStr, flags: i32, resolve: u64) -> Result<Fd> {
    let how = OpenHow {
        flags: flags as u64,
        mode: 0,
        resolve,
    };
    // SAFETY: `path` is NUL-terminated, `how` has the size that is passed.
    let answer = unsafe {
        call(
            libc::SYS_openat2,
            [
                directory.arg(),
                path.as_ptr() as usize,
                &raw const how as usize,
                size_of::<OpenHow>(),
                0,
                0,
            ],
        )
    };
    answer.map(|fd| Fd(fd as i32))
}

pub(crate) fn close(fd: Fd) {
    // SAFETY: closing a number touches no memory; what it belongs to is the caller's business.
    // The result is not used: Linux always frees the number.
    let _freed = unsafe { call(libc::SYS_close, [fd.arg(), 0, 0, 0, 0, 0]) };
}

pub(crate) fn read(fd: Fd, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer is writable for its length.
    unsafe {
        call(
            libc::SYS_read,
            [
                fd.arg(),
                buffer.as_mut_ptr() as usize,
                buffer.len(),
                0,
                0,
                0,
            ],
        )
    }
}

/// Writes everything in one call; a short write is an error.
pub(crate) fn write(fd: Fd, bytes: &[u8]) -> Result<()> {
    // SAFETY: the bytes are readable for their length.
    let written = unsafe {
        call(
            libc::SYS_write,
            [fd.arg(), bytes.as_ptr() as usize, bytes.len(), 0, 0, 0],
        )
    }?;
    if written == bytes.len() {
        Ok(())
    } else {
        Err(Errno(libc::EIO))
    }
}

pub(crate) fn make_directory(directory: Fd, path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: `path` is NUL-terminated.
    unsafe {
        call(
            libc::SYS_mkdirat,
            [
                directory.arg(),
                path.as_ptr() as usize,
                mode as usize,
                0,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

pub(crate) fn make_link(target: &CStr, directory: Fd, path: &CStr) -> Result<()> {
    // SAFETY: both strings are NUL-terminated.
    unsafe {
        call(
            libc::SYS_symlinkat,
            [
                target.as_ptr() as usize,
                directory.arg(),
                path.as_ptr() as usize,
                0,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

/// Creates a file with this content; it must not exist yet.
pub(crate) fn create(directory: Fd, path: &CStr, content: &[u8], mode: u32) -> Result<()> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
    let fd = open_at(directory, path, flags, mode)?;
    let result = if content.is_empty() {
        Ok(())
    } else {
        write(fd, content)
    };
    close(fd);
    result
}

pub(crate) fn status(fd: Fd) -> Result<libc::stat> {
    // SAFETY: an all-zero `stat` is valid, and the kernel fills exactly one.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        call(
            libc::SYS_fstat,
            [fd.arg(), &raw mut status as usize, 0, 0, 0, 0],
        )?;
        Ok(status)
    }
}

/// Bytes in use on the file system behind a descriptor.
pub(crate) fn used(fd: Fd) -> Result<u64> {
    // SAFETY: an all-zero `statfs` is valid, and the kernel fills exactly one.
    unsafe {
        let mut status: libc::statfs = std::mem::zeroed();
        call(
            libc::SYS_fstatfs,
            [fd.arg(), &raw mut status as usize, 0, 0, 0, 0],
        )?;
        Ok(status.f_blocks.saturating_sub(status.f_bfree) * status.f_bsize as u64)
    }
}

/// Makes a file another user's; its group stays.
pub(crate) fn give(directory: Fd, name: &CStr, user: u32) -> Result<()> {
    // SAFETY: the name is NUL-terminated.
    unsafe {
        call(
            libc::SYS_fchownat,
            [
                directory.arg(),
                name.as_ptr() as usize,
                user as usize,
                u32::MAX as usize,
                libc::AT_SYMLINK_NOFOLLOW as usize,
                0,
            ],
        )
    }
    .map(drop)
}

pub(crate) fn duplicate_onto(from: Fd, to: Fd, flags: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_dup3,
            [from.arg(), to.arg(), flags as usize, 0, 0, 0],
        )
    }
    .map(drop)
}

/// The lowest free number at or above `at_least`, closed on exec.
pub(crate) fn duplicate_above(fd: Fd, at_least: i32) -> Result<Fd> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_fcntl,
            [
                fd.arg(),
                libc::F_DUPFD_CLOEXEC as usize,
                at_least as usize,
                0,
                0,
                0,
            ],
        )
    }
    .map(|fd| Fd(fd as i32))
}

pub(crate) fn flags(fd: Fd) -> Result<i32> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_fcntl,
            [fd.arg(), libc::F_GETFL as usize, 0, 0, 0, 0],
        )
    }
    .map(|flags| flags as i32)
}

pub(crate) fn set_flags(fd: Fd, flags: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_fcntl,
            [fd.arg(), libc::F_SETFL as usize, flags as usize, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Leaves this descriptor to the program that is executed.
pub(crate) fn keep_on_exec(fd: Fd) -> Result<()> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_fcntl,
            [fd.arg(), libc::F_SETFD as usize, 0, 0, 0, 0],
        )
    }
    .map(drop)
}

const CLOSE_RANGE_UNSHARE: usize = 2;

/// Closes `first..=last`. With `unshare`, in a table of our own from now on.
pub(crate) fn close_range(first: i32, last: u32, unshare: bool) -> Result<()> {
    let flags = if unshare { CLOSE_RANGE_UNSHARE } else { 0 };
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_close_range,
            [first as usize, last as usize, flags, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Where a link leads: the number of bytes written.
pub(crate) fn read_link(path: &CStr, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: `path` is NUL-terminated, the buffer is writable for its length.
    unsafe {
        call(
            libc::SYS_readlinkat,
            [
                Fd::CWD.arg(),
                path.as_ptr() as usize,
                buffer.as_mut_ptr() as usize,
                buffer.len(),
                0,
                0,
            ],
        )
    }
}

pub(crate) fn change_directory(path: &CStr) -> Result<()> {
    // SAFETY: `path` is NUL-terminated.
    unsafe { call(libc::SYS_chdir, [path.as_ptr() as usize, 0, 0, 0, 0, 0]) }.map(drop)
}

pub(crate) fn change_directory_to(fd: Fd) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { call(libc::SYS_fchdir, [fd.arg(), 0, 0, 0, 0, 0]) }.map(drop)
}

/// Whether the file exists and may be executed by its mode.
pub(crate) fn exists(path: &CStr) -> bool {
    // SAFETY: `path` is NUL-terminated.
    unsafe {
        call(
            libc::SYS_faccessat,
            [Fd::CWD.arg(), path.as_ptr() as usize, 0, 0, 0, 0],
        )
    }
    .is_ok()
}

/// Directory entries from `offset` on.
pub(crate) fn entries(fd: Fd, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer is writable for its length.
    unsafe {
        call(
            libc::SYS_getdents64,
            [
                fd.arg(),
                buffer.as_mut_ptr() as usize,
                buffer.len(),
                0,
                0,
                0,
            ],
        )
    }
}

pub(crate) fn seek(fd: Fd, offset: usize) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { call(libc::SYS_lseek, [fd.arg(), offset, 0, 0, 0, 0]) }.map(drop)
}
