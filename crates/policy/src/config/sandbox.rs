//! The meaning of the `sandbox` section, where one wrong default would open something.

use super::defaults;
use super::finding::FindingCode as Code;
use super::meaning::{number, or, required, section};
use super::report::{Details, Report};
use super::scalar::{At, Item, List};
use super::settings as plain;
use super::words::{MountAccess, NetworkAccess, Profile, ResourceProfile};
use super::written as w;
use crate::effective::{NetworkPolicy, PartialRule, RehashRule, SandboxMode, ShellRule};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

pub(super) fn sandbox(written: w::Sandbox, report: &mut Report<'_>) -> plain::Sandbox {
    let w::Sandbox {
        profile,
        workspaces,
        mounts,
        max_mode,
        partial,
        protect,
        environment,
        execution,
        network,
        resources,
    } = written;
    let max_mode = or(max_mode, SandboxMode::WorkspaceWrite);
    let profile = self::profile(profile, max_mode, report);
    plain::Sandbox {
        profile,
        workspaces: section(workspaces).map(|path| path.0),
        mounts: self::mounts(section(mounts), profile, report),
        max_mode,
        partial: or(partial, PartialRule::ReadOnly),
        protect: match protect {
            Some(at) => at.value.map(|path| path.0),
            None => defaults::PROTECT.iter().map(PathBuf::from).collect(),
        },
        environment: environment.map_or_else(BTreeMap::new, |at| at.value.0),
        execution: self::execution(section(execution), report),
        network: self::network(section(network), report),
        resources: self::resources(section(resources)),
    }
}

/// The written profile, or the widest that `max_mode` leaves. A written one above it is a contradiction (X-MODE).
fn profile(
    written: Option<At<Profile>>,
    max_mode: SandboxMode,
    report: &mut Report<'_>,
) -> Profile {
    match written {
        Some(At {
            value: Profile::Development,
            mark,
        }) if max_mode == SandboxMode::ReadOnly => {
            let details =
                Details::allowed(Profile::Readonly.word()).with_value(Profile::Development.word());
            report.add(Code::ProfileAboveMode, mark, "sandbox.profile", details);
            Profile::Readonly
        }
        Some(at) => at.value,
        None if max_mode == SandboxMode::ReadOnly => Profile::Readonly,
        None => Profile::Development,
    }
}

fn mounts(written: List<w::Mount>, profile: Profile, report: &mut Report<'_>) -> Vec<plain::Mount> {
    let mut mounts = Vec::new();
    for Item { index, mark, value } in written.0 {
        let w::Mount { path, access } = value;
        let key = format!("sandbox.mounts[{index}]");
        let access_mark = access.as_ref().map_or(mark, |at| at.mark);
        let path = required(path, &format!("{key}.path"), mark, report);
        let access = required(access, &format!("{key}.access"), mark, report);
        if let Some(access) = access
            && profile == Profile::Readonly
            && access != MountAccess::ReadOnly
        {
            let details = Details::allowed(MountAccess::ReadOnly.word()).with_value(access.word());
            report.add(
                Code::MountNotReadOnly,
                access_mark,
                &format!("{key}.access"),
                details,
            );
        }
        if let (Some(path), Some(access)) = (path, access) {
            mounts.push(plain::Mount {
                path: path.0,
                access,
            });
        }
    }
    mounts
}

fn execution(written: w::Execution, report: &mut Report<'_>) -> plain::Execution {
    let w::Execution {
        entries,
        shells,
        rehash,
    } = written;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept = Vec::new();
    for Item { index, mark, value } in section(entries).0 {
        let w::Entry {
            alias,
            path,
            runtime_root,
        } = value;
        let key = format!("sandbox.execution.entries[{index}]");
        let alias_mark = alias.as_ref().map_or(mark, |at| at.mark);
        let alias = required(alias, &format!("{key}.alias"), mark, report);
        let path = required(path, &format!("{key}.path"), mark, report);
        if let Some(alias) = &alias
            && let Some(first) = seen.insert(alias.0.to_lowercase(), alias_mark.line)
        {
            let details = Details::value(alias.0.as_str()).with_detail(first.to_string());
            report.add(
                Code::DuplicateAlias,
                alias_mark,
                &format!("{key}.alias"),
                details,
            );
        }
        if let (Some(alias), Some(path)) = (alias, path) {
            kept.push(plain::Entry {
                alias: alias.0,
                path: path.0,
                runtime_root: runtime_root.map(|at| at.value.0),
            });
        }
    }
    plain::Execution {
        entries: kept,
        shells: or(shells, ShellRule::Allow),
        rehash: or(rehash, RehashRule::OnChange),
    }
}

/// X-NET: the level and its list belong together. An empty list is never open, and a list that does nothing is no
/// silent comment.
fn network(written: w::Network, report: &mut Report<'_>) -> NetworkPolicy {
    let w::Network {
        access,
        local_endpoints,
        restricted_endpoints,
    } = written;
    let mark = access.as_ref().map(|at| at.mark);
    let level = or(access, NetworkAccess::None);
    if report.mentions("sandbox.network.access") {
        return NetworkPolicy::None;
    }
    let lists = [
        (
            "sandbox.network.local_endpoints",
            NetworkAccess::Local,
            local_endpoints
                .as_ref()
                .map(|at| (at.mark, at.value.0.len())),
        ),
        (
            "sandbox.network.restricted_endpoints",
            NetworkAccess::Restricted,
            restricted_endpoints
                .as_ref()
                .map(|at| (at.mark, at.value.0.len())),
        ),
    ];
    for (key, wanted, list) in lists {
        let details = Details::allowed(wanted.word()).with_value(level.word());
        match list {
            Some((list, length)) if level != wanted && length > 0 => {
                report.add(Code::NetworkListUnused, list, key, details);
            }
            None | Some((_, 0)) if level == wanted && !report.mentions(key) => {
                let mark = list.map(|(mark, _)| mark).or(mark).unwrap_or_default();
                report.add(Code::NetworkListEmpty, mark, key, details);
            }
            _ => {}
        }
    }
    let ports: BTreeSet<u16> = section(local_endpoints)
        .map(port)
        .into_iter()
        .flatten()
        .collect();
    let endpoints = reachable(section(restricted_endpoints), report);
    match level {
        NetworkAccess::None => NetworkPolicy::None,
        NetworkAccess::Private => NetworkPolicy::Private,
        NetworkAccess::Local => NetworkPolicy::Local { ports },
        NetworkAccess::Restricted => NetworkPolicy::Restricted { endpoints },
    }
}

fn port(written: w::Port) -> Option<u16> {
    u16::try_from(written.0).ok()
}

fn reachable(written: List<w::Reachable>, report: &mut Report<'_>) -> BTreeSet<(String, u16)> {
    let mut endpoints = BTreeSet::new();
    for Item { index, mark, value } in written.0 {
        let w::Reachable { host, ports } = value;
        let key = format!("sandbox.network.restricted_endpoints[{index}]");
        let ports_key = format!("{key}.ports");
        let ports_mark = ports.as_ref().map_or(mark, |at| at.mark);
        let host = required(host, &format!("{key}.host"), mark, report);
        let ports = required(ports, &ports_key, mark, report);
        if ports.as_ref().is_some_and(|ports| ports.0.is_empty()) && !report.mentions(&ports_key) {
            let details = Details::allowed("1..65535").with_value("restricted");
            report.add(Code::NetworkListEmpty, ports_mark, &ports_key, details);
        }
        if let (Some(host), Some(ports)) = (host, ports) {
            let ports = ports.map(port).into_iter().flatten();
            endpoints.extend(ports.map(|port| (host.0.clone(), port)));
        }
    }
    endpoints
}

/// DESIGN §10.5: the preset, with positive overrides in place of its values.
fn resources(written: w::Resources) -> plain::Resources {
    let w::Resources {
        profile,
        memory_mb,
        process_limit,
        execution_timeout_seconds,
    } = written;
    let profile = or(profile, ResourceProfile::Normal);
    let (memory, processes, seconds) = match profile {
        ResourceProfile::Constrained => (1024, 4, 300),
        ResourceProfile::Normal => (4096, 16, 1800),
        ResourceProfile::Extended => (8192, 32, 3600),
    };
    plain::Resources {
        profile,
        memory_mib: number(memory_mb, memory),
        process_limit: number(process_limit, processes),
        execution_timeout: Duration::from_secs(number(execution_timeout_seconds, seconds)),
    }
}
