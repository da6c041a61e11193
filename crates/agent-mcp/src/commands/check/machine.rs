//! The configured resources against what this machine has.

use super::report::{Mark, Report};
use crate::deployment::Deployment;
use crate::locale::Locale;
use policy::{Localize, Message};
use serde_json::json;

pub(super) fn rows(report: &mut Report, locale: &Locale, deployment: &Deployment) {
    let limits = deployment.policy.resources();
    let (memory, processes) = (limits.memory_bytes, u64::from(limits.process_limit));
    let has = memory_bytes();
    let may = process_limit();
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
