//! What a process gives up before it executes anything: privileges, limits, system calls, files.

use super::failure::{At as _, Failure, Stage};
use super::plan::Limits;
use super::sys::signal::{self, SignalSet};
use super::sys::{Fd, Result, file, landlock, process, seccomp};

/// One line of the table of limits.
struct Limit {
    resource: u32,
    value: fn(&Limits) -> u64,
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "for readers, and for the test that demands one per line"
        )
    )]
    reason: &'static str,
}

/// How much of its memory limit one process may reserve as data.
const DATA_PER_MEMORY: u64 = 4;

const LIMITS: &[Limit] = &[
    Limit {
        resource: libc::RLIMIT_NPROC,
        value: |limits| limits.processes,
        reason: "processes and threads of this sandbox's user; it does not bind kernel user 0",
    },
    Limit {
        resource: libc::RLIMIT_DATA,
        value: |limits| {
            if limits.counted {
                u64::MAX
            } else {
                limits.memory_bytes.saturating_mul(DATA_PER_MEMORY)
            }
        },
        reason: "where memory is only watched, one process cannot take much more before the next look; not the limit \
            itself, because stacks and heaps are reserved without being used (and address space is no memory: RLIMIT_AS \
            would break every runtime that reserves it)",
    },
    Limit {
        resource: libc::RLIMIT_CORE,
        value: |_| 1,
        reason: "one byte: no core file, and no program of the host is started with the dump as a limit of zero would",
    },
    Limit {
        resource: libc::RLIMIT_MEMLOCK,
        value: |limits| limits.memory_bytes.min(64 << 20),
        reason: "locked memory cannot be swapped out by the host",
    },
    Limit {
        resource: libc::RLIMIT_MSGQUEUE,
        value: |_| 1 << 20,
        reason: "kernel memory of message queues is in no process's account",
    },
    Limit {
        resource: libc::RLIMIT_RTPRIO,
        value: |_| 0,
        reason: "real-time programs could starve init and its watchers",
    },
    Limit {
        resource: libc::RLIMIT_NICE,
        value: |_| 0,
        reason: "no priority above the server's",
    },
];

/// The limits. They bind this process and what it starts, not init.
pub(crate) fn limit(limits: &Limits) -> std::result::Result<(), Failure> {
    for limit in LIMITS {
        process::limit(limit.resource, (limit.value)(limits)).at(Stage::Limits)?;
    }
    Ok(())
}

/// In the listener's word: the filter asks nobody.
pub(crate) const NO_LISTENER: i32 = i32::MAX;

/// Loads the filter and returns the listener's word: where notifications come from, plus one, or [`NO_LISTENER`].
pub(crate) fn load_filter(
    filter: &[libc::sock_filter],
    quiet: bool,
) -> std::result::Result<i32, Failure> {
    if quiet {
        seccomp::load_quiet(filter).at(Stage::Filter)?;
        return Ok(NO_LISTENER);
    }
    let listener = seccomp::load(filter).at(Stage::Filter)?;
    Ok(listener.0 + 1)
}

/// Landlock for this process and all it starts. Needs the finished root.
pub(crate) fn apply_landlock(ruleset: Option<Fd>) -> std::result::Result<(), Failure> {
    match ruleset {
        Some(ruleset) => landlock::restrict_self(ruleset).at(Stage::LandlockApply),
        None => Ok(()),
    }
}

/// Nothing of ours is left to the program but its three streams: no descriptor, no blocked or ignored signal.
pub(crate) fn leave_nothing() -> Result<()> {
    file::close_range(3, u32::MAX, true)?;
    signal::reset(libc::SIGPIPE)?;
    signal::block_only(SignalSet::EMPTY).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_listed_once_with_a_reason() {
        let mut resources: Vec<_> = LIMITS.iter().map(|limit| limit.resource).collect();
        resources.sort_unstable();
        resources.dedup();
        assert_eq!(resources.len(), LIMITS.len());
        assert!(LIMITS.iter().all(|limit| limit.reason.len() > 8));
    }
}
