//! The kernel's wait status, exactly (a death by signal is not an exit status).

use policy::sandbox::ProcessEnd;

/// Reads a wait status of a process that has ended.
pub(crate) fn end(status: i32) -> ProcessEnd {
    match status & 0x7f {
        0 => ProcessEnd::Exited {
            status: (status >> 8) & 0xff,
        },
        signal => ProcessEnd::Signaled { signal },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_and_signals_are_told_apart() {
        assert_eq!(end(0), ProcessEnd::Exited { status: 0 });
        assert_eq!(end(255 << 8), ProcessEnd::Exited { status: 255 });
        assert_eq!(end(libc::SIGKILL), ProcessEnd::Signaled { signal: 9 });
        let dumped = libc::SIGSEGV | 0x80;
        assert_eq!(end(dumped), ProcessEnd::Signaled { signal: 11 });
    }
}
