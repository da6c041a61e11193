//! Plays what a filter alone cannot, because it lies in memory: an older Landlock's answers, flags of `clone3`, file
//! systems that cannot be mounted.

use std::io::Error;

/// What is played.
#[derive(Clone, Copy, Default)]
pub struct Played {
    /// Landlock of this version.
    pub landlock: Option<u32>,
    /// `clone3` with one of these flags answers this.
    pub clone3: Option<(u64, i32)>,
    /// `fsopen` of this file system answers EPERM.
    pub no_filesystem: Option<u64>,
}

impl Played {
    pub const NOTHING: Self = Self {
        landlock: None,
        clone3: None,
        no_filesystem: None,
    };

    /// The calls that must be looked at.
    pub fn calls(self) -> impl Iterator<Item = libc::c_long> {
        [
            self.landlock.map(|_| libc::SYS_landlock_create_ruleset),
            self.clone3.map(|_| libc::SYS_clone3),
            self.no_filesystem.map(|_| libc::SYS_fsopen),
        ]
        .into_iter()
        .flatten()
    }
}

/// A word of a stopped tracee; a bad address gives nothing useful and no error.
fn word(pid: i32, address: u64) -> u64 {
    // SAFETY: only reads the tracee.
    unsafe { libc::ptrace(libc::PTRACE_PEEKDATA, pid, address, 0) as u64 }
}

/// The answer instead of the call.
fn judge(played: Played, pid: i32, number: u64, arguments: [u64; 6]) -> Option<i64> {
    match (number as libc::c_long, played) {
        (
            libc::SYS_landlock_create_ruleset,
            Played {
                landlock: Some(version),
                ..
            },
        ) => ruleset(version, pid, arguments),
        (
            libc::SYS_clone3,
            Played {
                clone3: Some((flags, errno)),
                ..
            },
        ) => (word(pid, arguments[0]) & flags != 0).then_some(-i64::from(errno)),
        (
            libc::SYS_fsopen,
            Played {
                no_filesystem: Some(name),
                ..
            },
        ) => {
            // Its name and the NUL.
            let mask = (1u64 << 40) - 1;
            (word(pid, arguments[0]) & mask == name).then_some(-i64::from(libc::EPERM))
        }
        _ => None,
    }
}

/// File rights that this version knows.
fn known(version: u32) -> u64 {
    match version {
        1 => 0x1fff,
        2 => 0x3fff,
        3 | 4 => 0x7fff,
        _ => 0xffff,
    }
}

/// What the older kernel would answer; `None`: the same as this one.
fn ruleset(version: u32, pid: i32, arguments: [u64; 6]) -> Option<i64> {
    let [attributes, size, flags, ..] = arguments;
    if flags == 1 && attributes == 0 {
        return Some(version.into());
    }
    let mut words = [0u64; 3];
    for (index, word) in words.iter_mut().enumerate() {
        if size >= 8 * (index as u64 + 1) {
            *word = self::word(pid, attributes + 8 * index as u64);
        }
    }
    let [files, ports, scopes] = words;
    if files & !known(version) != 0 {
        return Some(-i64::from(libc::EINVAL));
    }
    if (version < 4 && ports != 0) || (version < 6 && scopes != 0) {
        return Some(-i64::from(libc::E2BIG));
    }
    None
}

#[cfg(target_arch = "x86_64")]
fn answer(pid: i32, value: i64) {
    // Offsets in `struct user`: rax, orig_rax.
    for (offset, word) in [(80, value), (120, -1)] {
        // SAFETY: a stopped tracee's registers.
        let done = unsafe { libc::ptrace(libc::PTRACE_POKEUSER, pid, offset, word) };
        assert_eq!(done, 0, "{}", Error::last_os_error());
    }
}

#[cfg(target_arch = "aarch64")]
fn answer(pid: i32, value: i64) {
    const NT_PRSTATUS: usize = 1;
    const NT_ARM_SYSTEM_CALL: usize = 0x404;
    let mut registers = [0u64; 34];
    let mut vector = libc::iovec {
        iov_base: registers.as_mut_ptr().cast(),
        iov_len: size_of_val(&registers),
    };
    let mut number = -1i32;
    let number = libc::iovec {
        iov_base: (&raw mut number).cast(),
        iov_len: 4,
    };
    // SAFETY: a stopped tracee's registers, through vectors over our own memory.
    unsafe {
        libc::ptrace(libc::PTRACE_GETREGSET, pid, NT_PRSTATUS, &raw mut vector);
        // The kernel reads it through the vector.
        (&raw mut registers[0]).write(value as u64);
        libc::ptrace(libc::PTRACE_SETREGSET, pid, NT_PRSTATUS, &raw const vector);
        libc::ptrace(
            libc::PTRACE_SETREGSET,
            pid,
            NT_ARM_SYSTEM_CALL,
            &raw const number,
        );
    }
}

fn stopped(played: Played, pid: i32, status: i32) {
    let signal = (status >> 8) & 0xff;
    let mut request = libc::PTRACE_CONT;
    let mut deliver = 0;
    match status >> 16 {
        libc::PTRACE_EVENT_SECCOMP => {
            // SAFETY: all zeros is a valid value, filled by the kernel.
            let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
            let size = size_of_val(&info);
            // SAFETY: the structure has the size that is passed.
            let got =
                unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, pid, size, &raw mut info) };
            assert!(got > 0, "{}", Error::last_os_error());
            // SAFETY: at this stop the kernel fills this variant.
            let (number, arguments) = unsafe { (info.u.seccomp.nr, info.u.seccomp.args) };
            if let Some(value) = judge(played, pid, number, arguments) {
                answer(pid, value);
            }
        }
        libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => request = libc::PTRACE_LISTEN,
        0 => deliver = signal,
        _ => {}
    }
    // SAFETY: lets the tracee go on; one that was killed meanwhile is no matter.
    unsafe { libc::ptrace(request, pid, 0, deliver) };
}

fn trace(played: Played, target: i32, ready: i32) -> ! {
    let options = libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_EXITKILL;
    // SAFETY: this process has one thread and only calls the kernel.
    unsafe {
        let attached = libc::ptrace(libc::PTRACE_SEIZE, target, 0, options);
        let letter = if attached == 0 { b'y' } else { b'n' };
        libc::setsid();
        libc::write(ready, (&raw const letter).cast(), 1);
        // No stream of the test is kept open.
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for number in 0..3 {
            libc::dup2(null, number);
        }
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        loop {
            let mut status = 0;
            let pid = libc::waitpid(-1, &raw mut status, libc::__WALL);
            if pid < 0 {
                libc::_exit(0);
            }
            if libc::WIFSTOPPED(status) {
                stopped(played, pid, status);
            }
        }
    }
}

/// From now on this process and all it starts see that. The tracer ends with them, and they with it.
pub fn attach(played: Played) {
    let mut pipe = [0; 2];
    // SAFETY: this process has one thread; the children only call `trace` and `_exit`.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        libc::prctl(libc::PR_SET_PTRACER, usize::MAX, 0, 0, 0);
        let target = libc::getpid();
        match libc::fork() {
            0 => {
                // The tracer must be nobody's child here: whoever waits for all children would wait for it.
                if libc::fork() == 0 {
                    trace(played, target, pipe[1]);
                }
                libc::_exit(0)
            }
            child => {
                assert!(child > 0);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        }
        let mut letter = 0u8;
        libc::read(pipe[0], (&raw mut letter).cast(), 1);
        assert_eq!(letter, b'y', "the tracer could not attach");
        libc::close(pipe[0]);
        libc::close(pipe[1]);
    }
}
