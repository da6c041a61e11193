//! The snapshot of what may be reached, made once before the sandbox is built.

use super::resolve::{self, Answers};
use policy::effective::NetworkPolicy;
use policy::reach::reachable;
use policy::sandbox::SandboxError;
use policy::{Code, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Addresses with ports that one sandbox may reach; more are refused.
pub(crate) const MOST_GRANTS: usize = 256;

/// Addresses of one name that are granted, in the resolver's order; those beyond are judged, too, but do not exist inside.
const MOST_ADDRESSES: usize = 16;

/// One address that may be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    /// What the policy lists: `host:port`.
    pub(crate) endpoint: String,
    pub(crate) address: SocketAddr,
    /// Whether the host has a way to it. Without one it does not exist inside either, so that programs try another.
    pub(crate) routed: bool,
}

/// Everything that leads out of one sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reach {
    pub(crate) grants: Vec<Grant>,
    /// Lines for the hosts file.
    pub(crate) hosts: String,
}

impl Reach {
    /// The grants that get a listener, in its order.
    pub(crate) fn routed(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(|grant| grant.routed)
    }

    fn add(&mut self, endpoint: String, address: SocketAddr, routed: bool) {
        if !self.grants.iter().any(|grant| grant.address == address) {
            self.grants.push(Grant {
                endpoint,
                address,
                routed,
            });
        }
    }
}

/// What this level lets out. Asks the resolver where names are listed.
///
/// # Errors
/// `NETWORK_DENIED` naming the endpoint whose name has no answer, or one that it may not have.
pub(crate) fn reach(network: &NetworkPolicy) -> Result<Reach, SandboxError> {
    reach_with(network, &resolve::ask, &is_routed)
}

fn reach_with(
    network: &NetworkPolicy,
    ask: &dyn Fn(&[String]) -> Result<Answers, SandboxError>,
    is_routed: &dyn Fn(IpAddr) -> bool,
) -> Result<Reach, SandboxError> {
    let mut reach = Reach::default();
    match network {
        NetworkPolicy::None | NetworkPolicy::Private => {}
        NetworkPolicy::Local { ports } => {
            for address in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
                let routed = is_routed(address);
                for port in ports {
                    let address = SocketAddr::new(address, *port);
                    reach.add(format!("localhost:{port}"), address, routed);
                }
            }
        }
        NetworkPolicy::Restricted { endpoints } => {
            let names = names_in(endpoints)?;
            let answers = if names.is_empty() {
                Answers::new()
            } else {
                ask(&names)?
            };
            restricted(&mut reach, endpoints, &answers, is_routed)?;
        }
    }
    if reach.grants.len() > MOST_GRANTS {
        return Err(Refusal::new(
            Code::ConfigurationInvalid,
            "sandbox.network: at most 256 addresses with ports",
            network.word(),
        )
        .into());
    }
    Ok(reach)
}

fn denied(endpoint: &str, detail: impl ToString) -> SandboxError {
    let rule = "sandbox.network.restricted_endpoints";
    Refusal::new(Code::NetworkDenied, rule, endpoint)
        .with("detail", detail)
        .into()
}

/// The hosts that are names. One that could not stand in a hosts file is none.
fn names_in(endpoints: &BTreeSet<(String, u16)>) -> Result<Vec<String>, SandboxError> {
    let mut names = Vec::new();
    for (host, port) in endpoints {
        if host.parse::<IpAddr>().is_ok() || names.last() == Some(host) {
            continue;
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if host.is_empty() || host.len() > 253 || !host.bytes().all(plain) {
            return Err(denied(&format!("{host}:{port}"), "not a host name"));
        }
        names.push(host.clone());
    }
    Ok(names)
}

fn restricted(
    reach: &mut Reach,
    endpoints: &BTreeSet<(String, u16)>,
    answers: &Answers,
    is_routed: &dyn Fn(IpAddr) -> bool,
) -> Result<(), SandboxError> {
    let mut named = BTreeSet::new();
    for (host, port) in endpoints {
        let is_name = host.parse::<IpAddr>().is_err();
        let endpoint = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        let none = Ok(Vec::new());
        let answered = match answers.get(host).unwrap_or(&none) {
            Ok(answered) => answered,
            Err(reason) => return Err(denied(&endpoint, reason)),
        };
        let allowed = reachable(endpoints, (host, *port), answered)?;
        for address in allowed.into_iter().take(MOST_ADDRESSES) {
            let routed = is_routed(address.ip());
            reach.add(endpoint.clone(), address, routed);
            if is_name && routed && named.insert((host, address.ip())) {
                // Writing to a string cannot fail.
                let _written = writeln!(reach.hosts, "{} {host}", address.ip());
            }
        }
    }
    Ok(())
}

/// Whether the host has a route to an IPv6 address. IPv4 is taken for granted: nobody tries it first. Sends nothing.
fn is_routed(address: IpAddr) -> bool {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
    if address.is_ipv4() {
        return true;
    }
    socket_with(
        AddressFamily::INET6,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .and_then(|socket| connect(&socket, &SocketAddr::new(address, 9)))
    .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restricted_to(list: &[(&str, u16)]) -> NetworkPolicy {
        NetworkPolicy::Restricted {
            endpoints: list
                .iter()
                .map(|(host, port)| ((*host).to_owned(), *port))
                .collect(),
        }
    }

    fn answering(
        list: &[(&str, &[&str])],
    ) -> impl Fn(&[String]) -> Result<Answers, SandboxError> + use<> {
        let answers: Answers = list
            .iter()
            .map(|(name, addresses)| {
                let addresses = addresses.iter().map(|text| text.parse().unwrap());
                ((*name).to_owned(), Ok(addresses.collect()))
            })
            .collect();
        move |_| Ok(answers.clone())
    }

    fn nobody(_: &[String]) -> Result<Answers, SandboxError> {
        panic!("nobody is asked")
    }

    fn addresses(reach: &Reach) -> Vec<String> {
        let text = |grant: &Grant| grant.address.to_string();
        reach.routed().map(text).collect()
    }

    #[test]
    fn closed_levels_lead_nowhere() {
        for level in [NetworkPolicy::None, NetworkPolicy::Private] {
            assert_eq!(reach_with(&level, &nobody, &|_| true), Ok(Reach::default()));
        }
    }

    #[test]
    fn local_is_both_loopbacks() {
        let level = NetworkPolicy::Local {
            ports: [80, 5432].into(),
        };
        let reach = reach_with(&level, &nobody, &|_| true).unwrap();
        assert_eq!(
            addresses(&reach),
            ["127.0.0.1:80", "127.0.0.1:5432", "[::1]:80", "[::1]:5432"]
        );
        let reach = reach_with(&level, &nobody, &|address| address.is_ipv4()).unwrap();
        assert_eq!(addresses(&reach), ["127.0.0.1:80", "127.0.0.1:5432"]);
        assert_eq!(reach.grants.len(), 4);
    }

    #[test]
    fn names_become_a_hosts_file() {
        let level = restricted_to(&[
            ("10.0.0.1", 22),
            ("a.example", 80),
            ("a.example", 443),
            ("b.example", 443),
        ]);
        let ask = answering(&[
            ("a.example", &["1.1.1.1", "2606::1"]),
            ("b.example", &["1.1.1.1"]),
        ]);
        let reach = reach_with(&level, &ask, &|address| address.is_ipv4()).unwrap();
        assert_eq!(
            addresses(&reach),
            ["10.0.0.1:22", "1.1.1.1:80", "1.1.1.1:443"]
        );
        assert_eq!(reach.hosts, "1.1.1.1 a.example\n1.1.1.1 b.example\n");
        assert_eq!(reach.grants.iter().filter(|one| !one.routed).count(), 2);
    }

    /// Issue 3: an answer of 100 addresses is cut, and every one of them is judged.
    #[test]
    fn many_answers_are_judged_and_cut() {
        let mut many: Vec<String> = (1..=100).map(|n| format!("1.1.1.{n}")).collect();
        let answer = |list: &[String]| {
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            let ask = answering(&[("a.example", &list)]);
            reach_with(&restricted_to(&[("a.example", 443)]), &ask, &|_| true)
        };
        assert_eq!(answer(&many).unwrap().grants.len(), MOST_ADDRESSES);
        many.push("10.0.0.1".into());
        let error = answer(&many).unwrap_err();
        assert_eq!(error.code(), Code::NetworkDenied);
    }

    #[test]
    fn endpoints_without_an_answer_are_named() {
        let level = restricted_to(&[("a.example", 443)]);
        let failing = |_: &[String]| {
            Ok(Answers::from([(
                "a.example".to_owned(),
                Err("no answer within 5 s".to_owned()),
            )]))
        };
        let SandboxError::Refused(refusal) = reach_with(&level, &failing, &|_| true).unwrap_err()
        else {
            panic!("not a refusal")
        };
        assert_eq!(refusal.target, "a.example:443");
        assert_eq!(refusal.detail[0].1, "no answer within 5 s");
        let empty = reach_with(&level, &answering(&[]), &|_| true).unwrap_err();
        assert_eq!(empty.code(), Code::NetworkDenied);
    }

    #[test]
    fn what_is_no_name_is_not_asked_for() {
        for host in ["a\n127.0.0.1 b", "", "a b", "[::1]"] {
            let error = reach_with(&restricted_to(&[(host, 1)]), &nobody, &|_| true).unwrap_err();
            assert_eq!(error.code(), Code::NetworkDenied, "{host:?}");
        }
    }

    #[test]
    fn too_many_grants_are_refused() {
        let ports = (1..=MOST_GRANTS as u16).collect();
        let level = NetworkPolicy::Local { ports };
        let error = reach_with(&level, &nobody, &|_| true).unwrap_err();
        assert_eq!(error.code(), Code::ConfigurationInvalid);
        let level = NetworkPolicy::Local {
            ports: (1..=MOST_GRANTS as u16 / 2).collect(),
        };
        assert!(reach_with(&level, &nobody, &|_| true).is_ok());
    }
}
