//! The configured resources against what this machine has.

use super::report::{Mark, Report};
use crate::deployment::Deployment;
use crate::locale::Locale;
use policy::effective::ResourceLimits;
use policy::{Localize, Message};
use serde_json::json;

pub(super) fn rows(report: &mut Report, locale: &Locale, deployment: &Deployment) {
    let machine = Machine {
        memory: memory_bytes(),
        processes: process_limit(),
    };
    against(report, locale, deployment.policy.resources(), &machine);
}

/// What there is, as far as it is known and limited.
struct Machine {
    /// Bytes.
    memory: Option<u64>,
    processes: Option<u64>,
}

fn against(report: &mut Report, locale: &Locale, limits: &ResourceLimits, machine: &Machine) {
    let (memory, processes) = (limits.memory_bytes, u64::from(limits.process_limit));
    let (has, may) = (machine.memory, machine.processes);
    let message = Message::new("check.resources")
        .with("memory", memory >> 20)
        .with("processes", processes)
        .with("seconds", limits.execution_timeout.as_secs());
    let data = json!({
        "memory_bytes": memory, "machine_memory_bytes": has,
        "processes": processes, "machine_processes": may,
        "execution_timeout_seconds": limits.execution_timeout.as_secs(),
    });
    report.add_with(Mark::Ok, "resources", locale.text(&message), data);
    if let Some(has) = has.filter(|has| *has < memory) {
        let message = Message::new("check.memory_above_machine")
            .with("wanted", memory >> 20)
            .with("has", has >> 20);
        report.add(Mark::Warning, "resources", locale.text(&message));
    }
    if let Some(may) = may.filter(|may| *may < processes) {
        let message = Message::new("check.processes_above_limit")
            .with("wanted", processes)
            .with("has", may);
        report.add(Mark::Warning, "resources", locale.text(&message));
    }
}

/// The machine's memory, or the container's where that is less.
#[cfg(target_os = "linux")]
pub(crate) fn memory_bytes() -> Option<u64> {
    let system = rustix::system::sysinfo();
    let machine = u64::from(system.mem_unit).saturating_mul(system.totalram);
    let container = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    Some(container.map_or(machine, |container: u64| container.min(machine)))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn memory_bytes() -> Option<u64> {
    None
}

/// How many processes this user may have at most; root is not limited.
#[cfg(target_os = "linux")]
fn process_limit() -> Option<u64> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    rustix::process::getrlimit(rustix::process::Resource::Nproc).maximum
}

#[cfg(not(target_os = "linux"))]
fn process_limit() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Issue 4: each limit that is above the machine's own is told, and nothing else is.
    #[test]
    fn spec_15_limits_above_the_machine() {
        let limits = ResourceLimits {
            memory_bytes: 4096 << 20,
            process_limit: 16,
            execution_timeout: Duration::from_secs(60),
            output_bytes: 1,
            private_bytes: 1,
        };
        let locale = Locale::built_in("en");
        let warnings = |memory, processes| {
            let mut report = Report::default();
            against(
                &mut report,
                &locale,
                &limits,
                &Machine { memory, processes },
            );
            report.details(Mark::Warning)
        };
        assert_eq!(warnings(None, None), Vec::<String>::new());
        assert_eq!(warnings(Some(4096 << 20), Some(16)), Vec::<String>::new());
        let memory = warnings(Some(4095 << 20), Some(16));
        assert!(
            memory.len() == 1 && memory[0].contains("this machine has 4095 MiB"),
            "{memory:?}"
        );
        let processes = warnings(Some(4096 << 20), Some(15));
        assert!(
            processes.len() == 1 && processes[0].contains("your own limit is 15"),
            "{processes:?}"
        );
    }
}
