//! X-NET, SEC-INV-06: which addresses a listed name may stand for.

use policy::Code;
use policy::reach::{SPECIAL, reachable, special};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn endpoints(list: &[(&str, u16)]) -> BTreeSet<(String, u16)> {
    list.iter()
        .map(|(host, port)| ((*host).to_owned(), *port))
        .collect()
}

/// SEC-INV-06: one of each kind, its first and its last address where the border matters.
#[test]
fn sec_inv_06_a_name_never_leads_into_private_networks() {
    for text in [
        "0.0.0.0",
        "0.255.255.255",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.0",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "169.254.170.2",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.170",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "192.168.255.255",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.7",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::2",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.1.2.3",
        "::ffff:169.254.169.254",
        "::ffff:0.0.0.0",
        "64:ff9b::a00:1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "100::1",
        "100:0:0:1::1",
        "2001::1",
        "2001:2::1",
        "2001:10::1",
        "2001:db8::1",
        "2002:a00:1::1",
        "3fff::1",
        "5f00::1",
        "4000::1",
        "fc00::1",
        "fd00:ec2::254",
        "fdff:ffff::1",
        "fe80::1",
        "fe80::a9fe:a9fe",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "::ffff:0:127.0.0.1",
    ] {
        let address = ip(text);
        assert!(special(address).is_some(), "{text} passes as public");
        let listed = endpoints(&[("example.com", 443)]);
        let refused = reachable(
            &listed,
            ("example.com", 443),
            &[ip("93.184.216.34"), address],
        )
        .unwrap_err();
        assert_eq!(refused.code, Code::NetworkDenied);
        assert_eq!(refused.target, "example.com:443");
        let detail = &refused.detail[0].1;
        let named = address.to_canonical().to_string();
        assert!(detail.contains(&named), "{text}: {detail}");
    }
}

#[test]
fn public_addresses_are_public() {
    for text in [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "93.184.216.34",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "168.63.129.15",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.1",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2001:200::1",
        "2606:4700:4700::1111",
        "2a00:1450::1",
        "3ffe::1",
        "64:ff9b::808:808",
        "::ffff:8.8.8.8",
    ] {
        assert_eq!(special(ip(text)), None, "{text}");
        let address = ip(text).to_canonical();
        assert_eq!(
            reachable(&endpoints(&[("n", 1)]), ("n", 1), &[ip(text), ip(text)]),
            Ok(vec![SocketAddr::new(address, 1)])
        );
    }
}

/// A private address that a person listed is meant, with that port and no other.
#[test]
fn a_name_may_lead_to_a_listed_address() {
    let listed = endpoints(&[("db.example", 5432), ("10.0.0.9", 5432), ("10.0.0.9", 80)]);
    let answered = [ip("10.0.0.9")];
    let reached = reachable(&listed, ("db.example", 5432), &answered);
    assert_eq!(reached, Ok(vec!["10.0.0.9:5432".parse().unwrap()]));
    for port in [443, 0] {
        assert!(reachable(&listed, ("db.example", port), &answered).is_err());
    }
    assert!(reachable(&listed, ("db.example", 5432), &[ip("10.0.0.8")]).is_err());
    let mapped = reachable(&listed, ("db.example", 5432), &[ip("::ffff:10.0.0.9")]);
    assert_eq!(mapped, Ok(vec!["10.0.0.9:5432".parse().unwrap()]));
}

#[test]
fn literal_addresses_are_allowed_as_written() {
    for (host, address) in [
        ("127.0.0.1", "127.0.0.1:9"),
        ("10.0.0.1", "10.0.0.1:9"),
        ("169.254.169.254", "169.254.169.254:9"),
        ("8.8.8.8", "8.8.8.8:9"),
        ("::1", "[::1]:9"),
        ("fd00::1", "[fd00::1]:9"),
        ("::ffff:10.0.0.1", "10.0.0.1:9"),
    ] {
        let reached = reachable(&endpoints(&[(host, 9)]), (host, 9), &[]);
        assert_eq!(reached, Ok(vec![address.parse().unwrap()]), "{host}");
    }
    for host in [
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "fe80::1",
        "255.255.255.255",
    ] {
        let refused = reachable(&endpoints(&[(host, 9)]), (host, 9), &[]).unwrap_err();
        assert_eq!(refused.code, Code::NetworkDenied, "{host}");
    }
    let bracketed = reachable(&endpoints(&[("::", 9)]), ("::", 9), &[]).unwrap_err();
    assert_eq!(bracketed.target, "[::]:9");
}

#[test]
fn a_name_without_an_address_is_refused() {
    let refused = reachable(&endpoints(&[("n", 1)]), ("n", 1), &[]).unwrap_err();
    assert_eq!(refused.code, Code::NetworkDenied);
}

#[test]
fn every_line_has_a_reason_and_holds_no_other() {
    for (index, line) in SPECIAL.iter().enumerate() {
        assert!(line.reason.len() > 6, "{line}");
        for other in &SPECIAL[..index] {
            let again = special(line.network).is_some_and(|found| found == other);
            // 2001:db8::/32 lies beside 2001::/23, not in it.
            assert!(!again, "{line} lies in {other}");
        }
    }
}

proptest! {
    /// The table agrees with what std says of itself.
    #[test]
    fn the_table_is_no_weaker_than_std(bits in any::<u32>()) {
        let address = Ipv4Addr::from_bits(bits);
        let known = address.is_private() || address.is_loopback() || address.is_link_local()
            || address.is_multicast() || address.is_broadcast() || address.is_documentation() || address.is_unspecified();
        prop_assert!(!known || special(address.into()).is_some());
    }

    /// However an IPv4 address is wrapped, it is judged as itself.
    #[test]
    fn wrapping_changes_nothing(bits in any::<u32>()) {
        let plain = Ipv4Addr::from_bits(bits);
        let [a, b, c, d] = plain.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        let mapped = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low);
        let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
        let judged = special(plain.into());
        prop_assert_eq!(special(mapped.into()), judged);
        prop_assert_eq!(special(nat64.into()), judged);
    }

    /// IPv6 beyond 2000::/3 is never public, except where it wraps IPv4.
    #[test]
    fn only_global_unicast_is_public(bits in any::<u128>()) {
        let address = Ipv6Addr::from_bits(bits);
        let wrapped = bits >> 32 == 0xffff || bits >> 32 == 0 || bits >> 32 == (0x0064_ff9b_u128 << 64);
        if bits >> 125 != 1 && !wrapped {
            prop_assert!(special(address.into()).is_some());
        }
    }

    /// One special answer among public ones refuses the whole endpoint, wherever it stands.
    #[test]
    fn one_bad_answer_refuses_all(position in 0usize..5, bad in 0u32..1 << 24) {
        let mut answered: Vec<IpAddr> = (1..6u32).map(|n| Ipv4Addr::from_bits(0x0101_0100 | n).into()).collect();
        answered[position] = Ipv4Addr::from_bits(0x0a00_0000 | bad).into();
        prop_assert!(reachable(&endpoints(&[("n", 1)]), ("n", 1), &answered).is_err());
    }
}
