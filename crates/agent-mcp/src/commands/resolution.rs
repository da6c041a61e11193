//! What the granted names lead to now, for `check` and `show`. The resolver is asked in a process of its own, for five seconds at
//! most; no address is dialled.

use crate::deployment::Judged;
use policy::effective::NetworkPolicy;
use policy::reach::reachable;
use policy::{Fault, Refusal};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A granted endpoint and what it leads to.
pub(super) struct Endpoint {
    /// `host:port` as the configuration and the applied store have it.
    pub(super) key: String,
    /// `host:port` or `[host]:port`.
    pub(super) shown: String,
    pub(super) answer: Answer,
}

/// What became of the question.
pub(super) enum Answer {
    /// What may be reached of what it leads to.
    Addresses(Vec<IpAddr>),
    /// It has no address now; the resolver's words, if any.
    Unknown(Option<String>),
    /// It leads where it must not.
    Refused(Refusal),
    /// Nobody has named or applied this configuration, so nobody is asked for its names.
    NotAsked,
}

/// Every endpoint of the level, in order.
///
/// # Errors
/// No process could be made to ask in.
pub(super) fn resolution(network: &NetworkPolicy, judged: Judged) -> Result<Vec<Endpoint>, Fault> {
    match network {
        NetworkPolicy::None | NetworkPolicy::Private => Ok(Vec::new()),
        NetworkPolicy::Local { ports } => Ok(ports.iter().map(local).collect()),
        NetworkPolicy::Restricted { endpoints } => restricted(endpoints, judged),
    }
}

/// A key for people: an address of IPv6 in brackets.
pub(super) fn shown(key: &str) -> String {
    match key.rsplit_once(':') {
        Some((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
        _ => key.to_owned(),
    }
}

fn local(port: &u16) -> Endpoint {
    let addresses = [
        IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
    ];
    Endpoint {
        key: port.to_string(),
        shown: port.to_string(),
        answer: Answer::Addresses(addresses.to_vec()),
    }
}

fn restricted(endpoints: &BTreeSet<(String, u16)>, judged: Judged) -> Result<Vec<Endpoint>, Fault> {
    let is_name = |host: &str| host.parse::<IpAddr>().is_err();
    let names: BTreeSet<&String> = endpoints
        .iter()
        .map(|(host, _)| host)
        .filter(|host| is_name(host))
        .collect();
    let names: Vec<String> = names.into_iter().cloned().collect();
    let answers = match names.is_empty() || judged == Judged::NotYet {
        true => sandbox_linux::Answers::new(),
        false => sandbox_linux::ask_for_names(&names)
            .map_err(|error| crate::compose::sandbox_fault(&error))?,
    };
    let one = |(host, port): &(String, u16)| {
        let answered: Result<&[IpAddr], Answer> = match answers.get(host) {
            None if is_name(host) && judged == Judged::NotYet => Err(Answer::NotAsked),
            None => Ok(&[]),
            Some(Ok(answered)) if !answered.is_empty() => Ok(answered),
            Some(Ok(_)) => Err(Answer::Unknown(None)),
            Some(Err(reason)) => Err(Answer::Unknown(Some(reason.clone()))),
        };
        let reached = answered.map(|answered| reachable(endpoints, (host, *port), answered));
        let key = format!("{host}:{port}");
        Endpoint {
            shown: shown(&key),
            key,
            answer: match reached {
                Ok(Ok(addresses)) => {
                    Answer::Addresses(addresses.iter().map(|address| address.ip()).collect())
                }
                Ok(Err(refusal)) => Answer::Refused(refusal),
                Err(answer) => answer,
            },
        }
    };
    Ok(endpoints.iter().map(one).collect())
}
