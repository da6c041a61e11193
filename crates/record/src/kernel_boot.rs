//! Which run of the kernel this is: what it holds in memory outlives a process, not the kernel.

/// The kernel's own name for its run, new with every start of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelBoot(String);

impl KernelBoot {
    /// Of this machine; `None` where the system has no such name.
    pub fn current() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Self::named(text.trim_end())
    }

    /// From a UUID in its usual form; `None` for anything else.
    pub fn named(text: &str) -> Option<Self> {
        let id = uuid::Uuid::try_parse(text).ok()?;
        Some(Self(id.hyphenated().to_string()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}
