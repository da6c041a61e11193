//! Stacks, shared pages, and words that processes wait on.

use super::raw::{Errno, Result, call};
use std::ffi::c_char;
use std::sync::atomic::{AtomicI32, Ordering};

/// Bytes of the stack of a child that shares our memory.
pub(crate) const STACK_BYTES: usize = 128 * 1024;

fn map(bytes: usize, flags: i32) -> Result<usize> {
    // SAFETY: a new anonymous mapping at an address the kernel chooses overlaps nothing.
    unsafe {
        call(
            libc::SYS_mmap,
            [
                0,
                bytes,
                (libc::PROT_READ | libc::PROT_WRITE) as usize,
                (flags | libc::MAP_ANONYMOUS) as usize,
                usize::MAX,
                0,
            ],
        )
    }
}

/// The lowest address of a new stack of [`STACK_BYTES`].
pub(crate) fn new_stack() -> Result<usize> {
    map(
        STACK_BYTES,
        libc::MAP_PRIVATE | libc::MAP_STACK | libc::MAP_NORESERVE,
    )
}

/// A zeroed value in memory that stays common after a fork. It is never unmapped.
///
/// # Safety
/// All-zero bytes must be a valid `T`.
pub(crate) unsafe fn shared_zeroed<T: Sync>() -> Result<&'static T> {
    let address = map(size_of::<T>(), libc::MAP_SHARED)?;
    // SAFETY: the mapping is page aligned, zeroed, large enough and lives until exit; the caller vouches for zero bytes.
    Ok(unsafe { &*(address as *const T) })
}

/// A value in a file that another process writes. Unmapped when it is dropped.
pub(crate) struct SharedFile<T: 'static>(&'static T);

impl<T: Sync> SharedFile<T> {
    /// # Safety
    /// The file must hold a `T`, never shrink, and all that writes to it must keep it a valid `T`.
    pub(crate) unsafe fn map(fd: super::Fd) -> Result<Self> {
        // SAFETY: the caller vouches for the file.
        unsafe { map_shared(fd) }.map(Self)
    }
}

impl<T> std::ops::Deref for SharedFile<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0
    }
}

impl<T> Drop for SharedFile<T> {
    fn drop(&mut self) {
        let address = std::ptr::from_ref(self.0) as usize;
        // SAFETY: the whole mapping made by `map`; references into it end with this guard's.
        let _unmapped = unsafe { call(libc::SYS_munmap, [address, size_of::<T>(), 0, 0, 0, 0]) };
    }
}

/// A value in a file, shared with everyone who maps it. It is never unmapped.
///
/// # Safety
/// The file must hold a `T`, never shrink, and all that writes to it must keep it a valid `T`.
pub(crate) unsafe fn map_shared<T: Sync>(fd: super::Fd) -> Result<&'static T> {
    // SAFETY: a new mapping at an address the kernel chooses.
    let address = unsafe {
        call(
            libc::SYS_mmap,
            [
                0,
                size_of::<T>(),
                (libc::PROT_READ | libc::PROT_WRITE) as usize,
                libc::MAP_SHARED as usize,
                fd.arg(),
                0,
            ],
        )
    }?;
    // SAFETY: the mapping is page aligned and as long as a `T`, which the caller says it holds.
    Ok(unsafe { &*(address as *const T) })
}

/// Reads a whole file descriptor's first `bytes` through a private mapping, for requests larger than a message.
pub(crate) fn map_file(fd: super::Fd, bytes: usize) -> Result<&'static [u8]> {
    if bytes == 0 {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: a new private mapping at an address the kernel chooses. The sender sealed the file against shrinking.
    let address = unsafe {
        call(
            libc::SYS_mmap,
            [
                0,
                bytes,
                libc::PROT_READ as usize,
                libc::MAP_PRIVATE as usize,
                fd.arg(),
                0,
            ],
        )
    }?;
    // SAFETY: the kernel mapped `bytes` readable bytes there.
    Ok(unsafe { std::slice::from_raw_parts(address as *const u8, bytes) })
}

pub(crate) fn unmap(bytes: &'static [u8]) {
    // SAFETY: the slice is a whole mapping made by `map_file`, and the caller gives it up.
    let _unmapped = unsafe {
        call(
            libc::SYS_munmap,
            [bytes.as_ptr() as usize, bytes.len(), 0, 0, 0, 0],
        )
    };
}

/// A new array of null pointers.
pub(crate) fn pointer_array(length: usize) -> Result<&'static mut [*const c_char]> {
    let bytes = length
        .checked_mul(size_of::<*const c_char>())
        .ok_or(Errno(libc::ENOMEM))?;
    let address = map(bytes, libc::MAP_PRIVATE)?;
    // SAFETY: a new mapping of `bytes` zeroed bytes; zero is the null pointer, and nobody else knows the address.
    Ok(unsafe { std::slice::from_raw_parts_mut(address as *mut *const c_char, length) })
}

pub(crate) fn free_pointer_array(array: &'static mut [*const c_char]) {
    // SAFETY: the slice is a whole mapping made by `pointer_array`, and the caller gives it up.
    let _unmapped = unsafe {
        call(
            libc::SYS_munmap,
            [array.as_ptr() as usize, size_of_val(array), 0, 0, 0, 0],
        )
    };
}

/// Waits while the word has this value, at most `timeout_ms` (no limit when `None`). Hand-overs take a few
/// microseconds, so it looks a while before it sleeps.
pub(crate) fn wait_while(word: &AtomicI32, value: i32, timeout_ms: Option<u32>) -> bool {
    for _ in 0..400 {
        if word.load(Ordering::Acquire) != value {
            return true;
        }
        std::hint::spin_loop();
    }
    let limit = timeout_ms.map(|ms| libc::timespec {
        tv_sec: i64::from(ms / 1000),
        tv_nsec: i64::from(ms % 1000) * 1_000_000,
    });
    while word.load(Ordering::Acquire) == value {
        let limit = limit
            .as_ref()
            .map_or(0, |limit| std::ptr::from_ref(limit) as usize);
        // SAFETY: the word lives in memory that all waiters share; the time is valid or null.
        let answer = unsafe {
            call(
                libc::SYS_futex,
                [
                    std::ptr::from_ref(word) as usize,
                    libc::FUTEX_WAIT as usize,
                    value as usize,
                    limit,
                    0,
                    0,
                ],
            )
        };
        if answer == Err(Errno(libc::ETIMEDOUT)) {
            return word.load(Ordering::Acquire) != value;
        }
    }
    true
}

/// Sets the word and wakes everyone who waits on it.
pub(crate) fn publish(word: &AtomicI32, value: i32) {
    word.store(value, Ordering::Release);
    // SAFETY: the word lives in shared memory; waking touches nothing else.
    let _woken = unsafe {
        call(
            libc::SYS_futex,
            [
                std::ptr::from_ref(word) as usize,
                libc::FUTEX_WAKE as usize,
                i32::MAX as usize,
                0,
                0,
                0,
            ],
        )
    };
}
