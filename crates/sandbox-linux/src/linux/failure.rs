//! What can go wrong while a sandbox is built, in a form that fits into shared memory.

use super::plan::{Plan, Step};
use super::sys::Errno;
use policy::sandbox::SandboxError;

macro_rules! stages {
    ($($variant:ident = $name:literal,)*) => {
        /// The step that failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Stage {
            $($variant,)*
        }

        impl Stage {
            const ALL: &[Self] = &[$(Self::$variant,)*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

stages! {
    Namespaces = "namespaces",
    Identity = "identity",
    Cgroup = "cgroup",
    ParentDeath = "parent death signal",
    LandlockRules = "landlock rules",
    LandlockApply = "landlock",
    Network = "network namespace",
    Command = "command process",
    Terminal = "terminal",
    RootFilesystem = "root file system",
    RootStep = "root",
    Pivot = "pivot",
    Privileges = "privileges",
    Limits = "limits",
    Filter = "system call filter",
    Descriptors = "descriptors",
    Supervisor = "supervisor",
    Listeners = "network grants",
    Serve = "server line",
}

/// A failed step: where, why, and on which line of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) stage: Stage,
    pub(crate) errno: i32,
    /// Index into the plan's steps, for [`Stage::RootStep`].
    pub(crate) step: u32,
}

impl Failure {
    /// For shared memory: never zero.
    pub(crate) fn pack(self) -> u64 {
        1 << 63
            | u64::from(self.stage as u8) << 48
            | u64::from(self.step & 0xffff) << 32
            | u64::from(self.errno as u32)
    }

    pub(crate) fn unpack(word: u64) -> Option<Self> {
        if word >> 63 == 0 {
            return None;
        }
        let stage = *Stage::ALL.get(((word >> 48) & 0xff) as usize)?;
        Some(Self {
            stage,
            errno: word as u32 as i32,
            step: ((word >> 32) & 0xffff) as u32,
        })
    }

    /// Whether this says that the machine lets nobody like us have namespaces and mounts of their own, as opposed to
    /// something being wrong with one of the policy's paths.
    pub(crate) fn is_forbidden(self, plan: &Plan) -> bool {
        let by_machine = match self.stage {
            Stage::Namespaces
            | Stage::Identity
            | Stage::Network
            | Stage::RootFilesystem
            | Stage::Pivot => true,
            Stage::RootStep => match plan.steps.get(self.step as usize) {
                Some(Step::Proc(_) | Step::Terminals(_) | Step::Private(_)) => true,
                // A path that its owner closed answers EACCES; these mean that nothing at all may be mounted.
                Some(Step::Bind(_)) => matches!(self.errno, libc::EPERM | libc::ENOSYS),
                _ => false,
            },
            _ => false,
        };
        let forbidden = [
            libc::EPERM,
            libc::EACCES,
            libc::ENOSYS,
            libc::ENOSPC,
            libc::EUSERS,
            libc::EINVAL,
        ];
        by_machine && forbidden.contains(&self.errno)
    }

    /// Whether filters can be loaded here, but none that asks: the kernel is too old, or somebody's filter asks already.
    pub(crate) fn is_unasked(self, plan: &Plan) -> bool {
        // Connections of the private loopback are made by init, which is asked.
        self.stage == Stage::Filter
            && matches!(self.errno, libc::EINVAL | libc::EBUSY)
            && !plan.filter.loopback
            && !plan.filter.quiet
    }

    /// Nothing ran yet, so the machine cannot do it: `SANDBOX_UNAVAILABLE`.
    pub(crate) fn unavailable(self, plan: &Plan) -> SandboxError {
        let why = Errno(self.errno);
        let reason = match plan.steps.get(self.step as usize) {
            Some(step) if self.stage == Stage::RootStep => {
                format!("{}: {why}", Step::describe(step))
            }
            _ => why.to_string(),
        };
        SandboxError::Unavailable {
            stage: self.stage.name(),
            reason,
        }
    }
}

/// Names the stage of an error.
pub(crate) trait At<T> {
    fn at(self, stage: Stage) -> Result<T, Failure>;
}

impl<T> At<T> for super::sys::Result<T> {
    fn at(self, stage: Stage) -> Result<T, Failure> {
        self.map_err(|errno| Failure {
            stage,
            errno: errno.0,
            step: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_survives_shared_memory() {
        for (index, stage) in Stage::ALL.iter().enumerate() {
            let failure = Failure {
                stage: *stage,
                errno: index as i32 + 1,
                step: 700,
            };
            assert_eq!(Failure::unpack(failure.pack()), Some(failure));
        }
        assert_eq!(Failure::unpack(0), None);
    }
}
