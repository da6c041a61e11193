//! What is not granted does not exist. Every attempt has its control outside, and its exact errno inside.

use crate::flows::{allow, inside, outside, spec};
use crate::support::matrix::{first_line, probe_argv, unconfined};
use crate::support::{self, Spec, Way, prepare, temporary};
use crate::{Checked, NEIGHBOUR, PUBLIC, PUBLIC_6, Test, servers};
use libc::{
    AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_UNIX, AF_VSOCK, EACCES, EADDRINUSE, EAFNOSUPPORT,
    ECONNREFUSED, ENETUNREACH, EPERM, EPROTONOSUPPORT, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET,
    SOCK_STREAM,
};
use policy::sandbox::Level;

pub const TESTS: &[(&str, Test)] = &[
    ("st_14_other_ports_and_hosts_do_not_exist", other_places),
    (
        "sec_inv_06_other_kinds_of_sockets_are_refused",
        other_sockets,
    ),
    ("sec_inv_06_datagrams_do_not_leave", datagrams),
    ("interfaces_can_be_listed_and_not_changed", netlink),
    ("the_own_loopback_works_below_1024_too", own_loopback),
    ("a_granted_port_is_taken_inside", taken_port),
    ("nothing_is_missing_under_these_levels", nothing_missing),
    ("sec_inv_06_the_broadcast_address_is_refused", broadcast),
];

/// Both levels, with one granted port that is the positive control of every negative row.
fn levels(directory: &tempfile::TempDir) -> [(Spec, String); 3] {
    let port = servers::echo_on_both_loopbacks();
    let mut local = spec(directory);
    local.local = vec![port];
    let (four, six) = (servers::echo(PUBLIC), servers::echo(PUBLIC_6));
    let mut public = spec(directory);
    allow(&mut public, &[four]);
    let mut public_6 = spec(directory);
    allow(&mut public_6, &[six]);
    [
        (local, format!("127.0.0.1:{port}")),
        (public, four.to_string()),
        (public_6, six.to_string()),
    ]
}

/// SEC-INV-07, AT-11, ST-14.
fn other_places(way: Way) -> Checked {
    let directory = temporary();
    for (spec, granted) in levels(&directory) {
        let of = |host: &str| servers::echo(host).to_string();
        let refused = |host: &str, listed: bool| {
            // The address exists inside where one of its ports is listed; otherwise there is no way to it.
            let errno = if listed { ECONNREFUSED } else { ENETUNREACH };
            (of(host), errno)
        };
        let rows = [
            refused(PUBLIC, granted.starts_with(PUBLIC)),
            refused(PUBLIC_6, granted.contains(PUBLIC_6)),
            refused(NEIGHBOUR, false),
            refused("2606:2800:220:1::35", false),
            // The own loopback is there; the host's is not.
            refused("127.0.0.1", true),
            refused("::1", true),
            refused("127.0.0.77", true),
        ];
        let line = inside(way, &spec, &["echo", &granted, "10"]);
        assert_eq!(line, "OK 13 true", "{granted}");
        for (address, errno) in rows {
            let control = outside(&["connect", &address]);
            assert_eq!(control, "OK ", "control of {address}");
            let line = inside(way, &spec, &["connect", &address]);
            assert_eq!(line, format!("ERRNO {errno}"), "{address} with {granted}");
            // Connecting without `connect`.
            let line = inside(way, &spec, &["fast-open", &address]);
            if address.contains('.') {
                assert_eq!(line, format!("ERRNO {errno}"), "fast open {address}");
            }
        }
    }
    Ok(())
}

/// Family, type, protocol, and the answer.
const SOCKETS: &[(i32, i32, i32, i32, &str)] = &[
    (AF_INET, SOCK_DGRAM, 0, EACCES, "UDP, and with it DNS"),
    (AF_INET6, SOCK_DGRAM, 0, EACCES, "UDP, and with it DNS"),
    (AF_INET, SOCK_DGRAM, 17, EACCES, "UDP by its number"),
    (AF_INET, SOCK_DGRAM, 1, EACCES, "ping"),
    (AF_INET6, SOCK_DGRAM, 58, EACCES, "ping"),
    (AF_INET, SOCK_DGRAM, 136, EACCES, "UDP-Lite"),
    (AF_INET6, SOCK_DGRAM, 136, EACCES, "UDP-Lite"),
    (AF_INET, SOCK_RAW, 1, EACCES, "raw ICMP"),
    (AF_INET, SOCK_RAW, 6, EACCES, "raw TCP"),
    (AF_INET, SOCK_RAW, 255, EACCES, "raw IP"),
    (AF_INET6, SOCK_RAW, 58, EACCES, "raw ICMP"),
    (AF_INET, SOCK_STREAM, 262, EPROTONOSUPPORT, "MPTCP"),
    (AF_INET6, SOCK_STREAM, 262, EPROTONOSUPPORT, "MPTCP"),
    (AF_INET, SOCK_STREAM, 132, EPROTONOSUPPORT, "SCTP"),
    (AF_INET6, SOCK_STREAM, 132, EPROTONOSUPPORT, "SCTP"),
    (AF_INET, SOCK_SEQPACKET, 132, EACCES, "SCTP in packets"),
    (AF_INET, 6, 33, EACCES, "DCCP"),
    (AF_INET, 10, 0, EACCES, "the old packet type"),
    (
        AF_PACKET,
        SOCK_RAW,
        0x300,
        EAFNOSUPPORT,
        "packets of the device",
    ),
    (
        AF_PACKET,
        SOCK_DGRAM,
        0x300,
        EAFNOSUPPORT,
        "packets of the device",
    ),
    (AF_VSOCK, SOCK_STREAM, 0, EAFNOSUPPORT, "the hypervisor"),
    (AF_VSOCK, SOCK_DGRAM, 0, EAFNOSUPPORT, "the hypervisor"),
    (43, SOCK_STREAM, 0, EAFNOSUPPORT, "SMC, a TCP beside TCP"),
    (44, SOCK_RAW, 0, EAFNOSUPPORT, "XDP"),
    (31, SOCK_STREAM, 3, EAFNOSUPPORT, "Bluetooth"),
    (
        38,
        SOCK_SEQPACKET,
        0,
        EAFNOSUPPORT,
        "the kernel's cryptography",
    ),
    (21, SOCK_SEQPACKET, 0, EAFNOSUPPORT, "RDS"),
    (30, SOCK_STREAM, 0, EAFNOSUPPORT, "TIPC"),
    (AF_NETLINK, SOCK_RAW, 4, EAFNOSUPPORT, "socket diagnosis"),
    (AF_NETLINK, SOCK_RAW, 9, EAFNOSUPPORT, "audit"),
    (AF_NETLINK, SOCK_RAW, 12, EAFNOSUPPORT, "packet filter"),
    (AF_NETLINK, SOCK_RAW, 15, EAFNOSUPPORT, "device events"),
    (AF_NETLINK, SOCK_RAW, 16, EAFNOSUPPORT, "generic netlink"),
    (AF_UNIX, SOCK_DGRAM, 0, EPERM, "datagrams to any path"),
];

fn other_sockets(way: Way) -> Checked {
    let directory = temporary();
    for (spec, granted) in levels(&directory) {
        for (family, kind, protocol, errno, what) in SOCKETS {
            for flags in [0, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK] {
                let kind = kind | flags;
                let words = [
                    "socket".to_owned(),
                    family.to_string(),
                    kind.to_string(),
                    protocol.to_string(),
                ];
                let argv = probe_argv(&words);
                let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
                let ran = support::confined(way, &spec, &argv);
                let line = first_line(&ran.stdout);
                assert_eq!(
                    line,
                    format!("ERRNO {errno}"),
                    "{what} with {granted}: {ran:?}"
                );
            }
        }
        // The control: the probe itself works, here as there.
        for words in [
            [2, 1, 0],
            [2, 1, 6],
            [10, 1, 0],
            [1, 1, 0],
            [16, 3, 0],
            [16, 2, 0],
        ] {
            let mut probe = vec!["socket".to_owned()];
            probe.extend(words.map(|word| word.to_string()));
            assert!(unconfined(&probe).starts_with("OK"), "{words:?}");
            let argv = probe_argv(&probe);
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            let ran = support::confined(way, &spec, &argv);
            assert!(ran.stdout.starts_with("OK"), "{words:?}: {ran:?}");
        }
    }
    let udp = ["socket".to_owned(), "2".into(), "2".into(), "0".into()];
    assert!(unconfined(&udp).starts_with("OK"));
    Ok(())
}

fn datagrams(way: Way) -> Checked {
    let directory = temporary();
    let address = servers::udp("127.0.0.1").to_string();
    let words = ["udp".to_owned(), address];
    assert_eq!(unconfined(&words), "OK HOST");
    for (spec, _) in levels(&directory) {
        let argv = probe_argv(&words);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let ran = support::confined(way, &spec, &argv);
        assert_eq!(
            first_line(&ran.stdout),
            format!("ERRNO {EACCES}"),
            "{ran:?}"
        );
    }
    Ok(())
}

/// node's `os.networkInterfaces()` asks route netlink; who may ask may not change.
fn netlink(way: Way) -> Checked {
    let directory = temporary();
    let mut private = spec(&directory);
    private.private_network = true;
    let mut specs = vec![private];
    specs.extend(levels(&directory).map(|(spec, _)| spec));
    assert!(outside(&["links"]).starts_with("OK"));
    for spec in specs {
        let line = inside(way, &spec, &["links"]);
        // RTM_NEWLINK: a link is listed.
        assert_eq!(line, "OK 16");
        for words in ["new-address", "new-route"] {
            let line = inside(way, &spec, &[words]);
            assert_eq!(line, format!("ERRNO {EPERM}"), "{words}");
        }
    }
    Ok(())
}

fn own_loopback(way: Way) -> Checked {
    let directory = temporary();
    let mut private = spec(&directory);
    private.private_network = true;
    let mut specs = vec![private];
    specs.extend(levels(&directory).map(|(spec, _)| spec));
    for spec in specs {
        for address in [
            "127.0.0.1:0",
            "[::1]:0",
            "0.0.0.0:0",
            "[::]:0",
            "127.0.0.1:80",
            "[::1]:443",
        ] {
            let line = inside(way, &spec, &["own-server", address]);
            assert_eq!(line, "OK ", "{address}");
        }
    }
    Ok(())
}

/// A granted port cannot be listened on inside, neither at its address nor at all addresses. Said, not hidden.
fn taken_port(way: Way) -> Checked {
    let directory = temporary();
    for (spec, granted) in levels(&directory) {
        let (_, port) = granted.rsplit_once(':').ok_or("no port")?;
        let all = if granted.starts_with('[') {
            format!("[::]:{port}")
        } else {
            format!("0.0.0.0:{port}")
        };
        for address in [granted.clone(), all] {
            let line = inside(way, &spec, &["bind", &address]);
            assert_eq!(line, format!("ERRNO {EADDRINUSE}"), "{address}");
        }
        if !granted.contains("127.0.0.1") {
            let line = inside(way, &spec, &["own-server", &format!("127.0.0.1:{port}")]);
            assert_eq!(line, "OK ");
        }
    }
    Ok(())
}

/// X-PARTIAL: the level stays full, and lists nothing of the network.
fn nothing_missing(_: Way) -> Checked {
    let directory = temporary();
    for (spec, _) in levels(&directory) {
        let prepared = prepare(&spec)?;
        assert_eq!(prepared.enforcement().level(), Level::Full);
    }
    Ok(())
}

/// An address that is nobody's is refused before anything is built; it is not left out.
fn broadcast(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    // The broadcast address: no device has it, and outside it is everybody around.
    spec.restricted = vec![("255.255.255.255".into(), 80)];
    match way {
        Way::Once => {
            let ran = support::confined(way, &spec, &["/bin/true"]);
            assert_eq!(ran.code, "126", "{ran:?}");
            assert!(ran.stderr.contains("255.255.255.255:80"), "{ran:?}");
        }
        Way::Standing => {
            let code = prepare(&spec).err().map(|error| error.code());
            assert_eq!(code, Some(policy::Code::NetworkDenied));
        }
    }
    Ok(())
}
