//! One system call instruction per architecture.

use std::arch::asm;
use std::fmt;

/// A kernel error number, always positive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({})", self.0)
    }
}

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// A descriptor number without ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fd(pub(crate) i32);

impl Fd {
    /// The process's working directory where a directory is expected.
    pub(crate) const CWD: Self = Self(libc::AT_FDCWD);

    pub(super) fn arg(self) -> usize {
        self.0 as isize as usize
    }
}

/// Makes one system call and turns the kernel's answer into a `Result`.
///
/// # Safety
/// The arguments must be valid for this system call: every pointer must be readable or writable as the call needs it.
pub(super) unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller vouches for the arguments.
    let answer = unsafe { instruction(number as usize, args) };
    if (-4095..0).contains(&answer) {
        Err(Errno(-answer as i32))
    } else {
        Ok(answer as usize)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn instruction(number: usize, args: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the x86_64 system call convention; rcx and r11 are overwritten by the instruction and declared so.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => answer,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2], in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    answer
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn instruction(number: usize, args: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the aarch64 system call convention; only x0 is overwritten.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") args[0] as isize => answer,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5], options(nostack));
    }
    answer
}

/// What runs in a new process; it never returns.
pub(crate) type Entry = extern "C" fn(*mut u8) -> !;

/// `clone3` onto a stack of its own, then `entry(argument)` in the child. The parent gets the child's number.
///
/// # Safety
/// `arguments` must describe a mapped stack that nobody else uses for the child's whole life, and everything behind
/// `argument` must live and be shared correctly for as long as the child runs our code.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn clone3_onto(
    arguments: &super::process::CloneArguments,
    entry: Entry,
    argument: *mut u8,
) -> isize {
    let answer: isize;
    // SAFETY: the child starts on its own stack with entry in r12 and argument in r13, which clone preserves.
    unsafe {
        asm!("syscall", "test rax, rax", "jnz 2f", "xor ebp, ebp", "mov rdi, r13", "and rsp, -16", "call r12", "ud2", "2:",
            inlateout("rax") libc::SYS_clone3 => answer,
            in("rdi") arguments, in("rsi") size_of::<super::process::CloneArguments>(),
            in("r12") entry, in("r13") argument, lateout("rcx") _, lateout("r11") _);
    }
    answer
}

/// The same with `clone`, which our own filter still lets through.
///
/// # Safety
/// As [`clone3_onto`]; `stack_top` is the end of the stack.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn clone_onto(
    flags: u64,
    stack_top: usize,
    entry: Entry,
    argument: *mut u8,
) -> isize {
    let answer: isize;
    // SAFETY: as above; x86_64 passes (flags, stack, parent tid, child tid, tls).
    unsafe {
        asm!("syscall", "test rax, rax", "jnz 2f", "xor ebp, ebp", "mov rdi, r13", "and rsp, -16", "call r12", "ud2", "2:",
            inlateout("rax") libc::SYS_clone => answer,
            in("rdi") flags, in("rsi") stack_top, in("rdx") 0, in("r10") 0, in("r8") 0,
            in("r12") entry, in("r13") argument, lateout("rcx") _, lateout("r11") _);
    }
    answer
}

/// `clone3` onto a stack of its own, then `entry(argument)` in the child. The parent gets the child's number.
///
/// # Safety
/// `arguments` must describe a mapped stack that nobody else uses for the child's whole life, and everything behind
/// `argument` must live and be shared correctly for as long as the child runs our code.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn clone3_onto(
    arguments: &super::process::CloneArguments,
    entry: Entry,
    argument: *mut u8,
) -> isize {
    let answer: isize;
    // SAFETY: the child starts on its own stack with entry in x9 and argument in x10, which the kernel preserves.
    unsafe {
        asm!("svc 0", "cbnz x0, 2f", "mov x29, xzr", "mov x0, x10", "blr x9", "brk 1", "2:",
            in("x8") libc::SYS_clone3, inlateout("x0") arguments as *const _ as isize => answer,
            in("x1") size_of::<super::process::CloneArguments>(),
            in("x9") entry, in("x10") argument, lateout("x30") _);
    }
    answer
}

/// The same with `clone`, which our own filter still lets through.
///
/// # Safety
/// As [`clone3_onto`]; `stack_top` is the end of the stack.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn clone_onto(
    flags: u64,
    stack_top: usize,
    entry: Entry,
    argument: *mut u8,
) -> isize {
    let answer: isize;
    // SAFETY: as above; aarch64 passes (flags, stack, parent tid, tls, child tid).
    unsafe {
        asm!("svc 0", "cbnz x0, 2f", "mov x29, xzr", "mov x0, x10", "blr x9", "brk 1", "2:",
            in("x8") libc::SYS_clone, inlateout("x0") flags as isize => answer,
            in("x1") stack_top, in("x2") 0, in("x3") 0, in("x4") 0,
            in("x9") entry, in("x10") argument, lateout("x30") _);
    }
    answer
}
