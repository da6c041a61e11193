//! Which addresses a name may stand for (X-NET, SEC-INV-06).
//!
//! A listed name is a promise about the public network. Whoever answers for the name could lead it to this machine, to
//! its neighbours or to a cloud's metadata service instead, so such an answer is refused as a whole, unless that very
//! address is listed itself. The table is IANA's special-purpose registries, and what clouds put beside them.

use crate::code::Code;
use crate::fault::Refusal;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Addresses that are not the public network, with the reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Special {
    /// The first address.
    pub network: IpAddr,
    /// Leading bits that belong to it.
    pub bits: u8,
    /// What it is, in a few words.
    pub reason: &'static str,
}

const fn v4(network: [u8; 4], bits: u8, reason: &'static str) -> Special {
    let [a, b, c, d] = network;
    Special {
        network: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        bits,
        reason,
    }
}

const fn v6(network: [u16; 8], bits: u8, reason: &'static str) -> Special {
    let [a, b, c, d, e, f, g, h] = network;
    Special {
        network: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)),
        bits,
        reason,
    }
}

/// One line per network; the first that holds an address names it.
pub const SPECIAL: &[Special] = &[
    v4([0, 0, 0, 0], 8, "unspecified, which means this machine"),
    v4([10, 0, 0, 0], 8, "private"),
    v4(
        [100, 64, 0, 0],
        10,
        "shared with the provider (CGNAT), metadata of one cloud",
    ),
    v4([127, 0, 0, 0], 8, "loopback"),
    v4(
        [168, 63, 129, 16],
        32,
        "a cloud's host agent on a public-looking address",
    ),
    v4(
        [169, 254, 0, 0],
        16,
        "link-local, where clouds serve metadata",
    ),
    v4([172, 16, 0, 0], 12, "private"),
    v4(
        [192, 0, 0, 0],
        24,
        "protocol assignments, metadata of one cloud",
    ),
    v4([192, 0, 2, 0], 24, "documentation"),
    v4([192, 88, 99, 0], 24, "the relays of 6to4, gone"),
    v4([192, 168, 0, 0], 16, "private"),
    v4([198, 18, 0, 0], 15, "benchmarks"),
    v4([198, 51, 100, 0], 24, "documentation"),
    v4([203, 0, 113, 0], 24, "documentation"),
    v4([224, 0, 0, 0], 4, "multicast"),
    v4([240, 0, 0, 0], 4, "reserved, broadcast"),
    v6(
        [0, 0, 0, 0, 0, 0, 0, 0],
        128,
        "unspecified, which means this machine",
    ),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback"),
    v6(
        [0x64, 0xff9b, 1, 0, 0, 0, 0, 0],
        48,
        "a translator's local use",
    ),
    v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "discarded"),
    v6(
        [0x2001, 0, 0, 0, 0, 0, 0, 0],
        23,
        "protocol assignments, Teredo and ORCHID among them",
    ),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "documentation"),
    v6(
        [0x2002, 0, 0, 0, 0, 0, 0, 0],
        16,
        "6to4, a tunnel to an IPv4 address",
    ),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "documentation"),
    v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, "segment routing"),
    v6(
        [0xfc00, 0, 0, 0, 0, 0, 0, 0],
        7,
        "unique local, which is private; metadata of one cloud",
    ),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local"),
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "site-local, gone"),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast"),
];

/// Everything else of IPv6 that is not `2000::/3`.
const NOT_GLOBAL: Special = v6(
    [0, 0, 0, 0, 0, 0, 0, 0],
    0,
    "not assigned to the public network",
);

impl Special {
    fn holds(&self, address: IpAddr) -> bool {
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let rest = 32 - u32::from(self.bits);
                u64::from(network.to_bits()) >> rest == u64::from(address.to_bits()) >> rest
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let rest = 128 - u32::from(self.bits);
                network.to_bits().checked_shr(rest) == address.to_bits().checked_shr(rest)
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for Special {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.bits == 0 {
            return f.write_str(self.reason);
        }
        write!(f, "{}/{}: {}", self.network, self.bits, self.reason)
    }
}

/// The IPv4 address that a translator would reach instead: mapped, compatible (both handled by the kernel or by
/// nobody), and the well-known NAT64 prefix.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    const NAT64: u128 = 0x0064_ff9b << 96;
    let bits = address.to_bits();
    let is_compatible = bits >> 32 == 0 && bits > 1;
    let is_nat64 = bits >> 32 == NAT64 >> 32;
    address
        .to_ipv4_mapped()
        .or_else(|| (is_compatible || is_nat64).then_some(Ipv4Addr::from_bits(bits as u32)))
}

/// What is special about an address; `None` for the public network.
pub fn special(address: IpAddr) -> Option<&'static Special> {
    let address = match address {
        IpAddr::V6(six) => embedded(six).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    let listed = SPECIAL.iter().find(|special| special.holds(address));
    match address {
        IpAddr::V6(six) if listed.is_none() && six.to_bits() >> 125 != 1 => Some(&NOT_GLOBAL),
        _ => listed,
    }
}

const RULE: &str = "sandbox.network.restricted_endpoints";

fn refusal(host: &str, port: u16, detail: impl ToString) -> Refusal {
    let target = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    Refusal::new(Code::NetworkDenied, RULE, target).with("detail", detail)
}

/// A literal address as written, where TCP can reach it at all.
fn literal(host: &str, port: u16, address: IpAddr) -> Result<SocketAddr, Refusal> {
    let address = address.to_canonical();
    let link_local = matches!(address, IpAddr::V6(six) if six.is_unicast_link_local());
    let broadcast = matches!(address, IpAddr::V4(four) if four.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || broadcast || link_local || port == 0 {
        return Err(refusal(host, port, "no TCP connection can be aimed at it"));
    }
    Ok(SocketAddr::new(address, port))
}

/// The addresses that may be reached for one of `endpoints`. `answered` is what its name resolved to and is not looked at
/// for a literal address, which is allowed as written, private or not.
///
/// # Errors
/// `NETWORK_DENIED` for the whole endpoint when the name has no address, or when one of them is not the public network
/// and is not itself listed with this port.
pub fn reachable(
    endpoints: &BTreeSet<(String, u16)>,
    (host, port): (&str, u16),
    answered: &[IpAddr],
) -> Result<Vec<SocketAddr>, Refusal> {
    if let Ok(address) = host.parse() {
        return literal(host, port, address).map(|address| vec![address]);
    }
    if answered.is_empty() {
        return Err(refusal(host, port, "the name has no address"));
    }
    let is_listed = |address: IpAddr| {
        let listed = |text: &str| {
            text.parse()
                .is_ok_and(|it: IpAddr| it.to_canonical() == address)
        };
        endpoints
            .iter()
            .any(|(text, listed_port)| *listed_port == port && listed(text))
    };
    let mut reached = Vec::new();
    for address in answered.iter().map(IpAddr::to_canonical) {
        match special(address) {
            Some(special) if !is_listed(address) => {
                let detail = format!(
                    "the name leads to {address} ({special}); only listing that address itself allows it"
                );
                return Err(refusal(host, port, detail));
            }
            _ => {}
        }
        let address = literal(host, port, address)?;
        if !reached.contains(&address) {
            reached.push(address);
        }
    }
    Ok(reached)
}
