//! The network levels `none` and `private` (SEC-INV-06, ST-12, AT-10).

use super::Control::{self, MachineMayLack, RootOnly, Succeeds};
use super::{Row, at, row, works};
use libc::{EACCES, EAFNOSUPPORT, ECONNREFUSED, ENOENT, EPERM, EPROTONOSUPPORT};

pub const ROWS: &[Row] = &[
    row(
        "sec_inv_06_tcp",
        |w| vec!["tcp".into(), format!("127.0.0.1:{}", w.tcp)],
        Succeeds,
        &[EACCES],
    ),
    row(
        "sec_inv_06_tcp_mapped",
        |w| vec!["tcp".into(), format!("[::ffff:127.0.0.1]:{}", w.tcp)],
        MachineMayLack("IPv6"),
        &[EACCES],
    ),
    row(
        "sec_inv_06_udp",
        |w| vec!["udp".into(), format!("127.0.0.1:{}", w.udp)],
        Succeeds,
        &[EACCES],
    ),
    row(
        "sec_inv_06_abstract_socket_outside",
        |w| {
            vec![
                "abstract".into(),
                crate::support::world::abstract_name(w.tcp),
            ]
        },
        Succeeds,
        &[ECONNREFUSED],
    ),
    row(
        "sec_inv_06_own_loopback_too",
        p!["loopback"],
        Succeeds,
        &[EACCES],
    ),
    row(
        "sec_inv_06_mptcp",
        p!["socket", libc::AF_INET, libc::SOCK_STREAM, 262],
        MachineMayLack("MPTCP"),
        &[EACCES],
    ),
    row(
        "sec_inv_06_icmp",
        p!["socket", libc::AF_INET, libc::SOCK_RAW, 1],
        RootOnly,
        &[EACCES],
    ),
    row(
        "sec_inv_06_netlink",
        p!["socket", libc::AF_NETLINK, libc::SOCK_RAW, 0],
        Succeeds,
        &[EAFNOSUPPORT],
    ),
    row(
        "sec_inv_06_vsock",
        p!["socket", libc::AF_VSOCK, libc::SOCK_STREAM, 0],
        MachineMayLack("vsock"),
        &[EAFNOSUPPORT],
    ),
    row(
        "sec_inv_06_packet",
        p!["socket", libc::AF_PACKET, libc::SOCK_RAW, 0],
        RootOnly,
        &[EAFNOSUPPORT],
    ),
    row(
        "sec_inv_06_alg",
        p!["socket", libc::AF_ALG, libc::SOCK_SEQPACKET, 0],
        MachineMayLack("AF_ALG"),
        &[EAFNOSUPPORT],
    ),
    row(
        "sec_inv_06_unix_datagram",
        p!["socket", libc::AF_UNIX, libc::SOCK_DGRAM, 0],
        Succeeds,
        &[EPERM],
    ),
    row(
        "sec_inv_06_unix_datagram_pair",
        p!["pair-of", libc::AF_UNIX, libc::SOCK_DGRAM],
        Succeeds,
        &[EPERM],
    ),
    row(
        "sec_inv_06_unix_socket_outside",
        |w| vec!["unix".into(), at(&w.outside, "stream.sock")],
        Succeeds,
        &[ENOENT],
    ),
    row(
        "sec_inv_06_host_socket_in_the_workspace",
        |w| vec!["unix".into(), at(&w.workspace, "host.sock")],
        Succeeds,
        &[EACCES],
    ),
    row(
        "sec_inv_06_host_socket_by_magic_link",
        |w| {
            vec![
                "unix".into(),
                format!("/proc/self/root{}", at(&w.workspace, "host.sock")),
            ]
        },
        Succeeds,
        &[EACCES],
    ),
    row(
        "sec_inv_06_new_socket_in_the_workspace",
        |w| vec!["private-socket".into(), at(&w.workspace, "own.sock")],
        Succeeds,
        &[EACCES],
    ),
    // Network private: the own loopback works, nothing else does.
    works("x_net_private_loopback", p!["loopback"], "OK").private(),
    row(
        "x_net_private_host_loopback",
        |w| vec!["tcp".into(), format!("127.0.0.1:{}", w.tcp)],
        Succeeds,
        &[ECONNREFUSED],
    )
    .private(),
    row(
        "x_net_private_no_route",
        p!["tcp", "10.1.2.3:80"],
        Control::None,
        &[libc::ENETUNREACH],
    )
    .private(),
    row(
        "x_net_private_udp",
        |w| vec!["udp".into(), format!("127.0.0.1:{}", w.udp)],
        Succeeds,
        &[EACCES],
    )
    .private(),
    row(
        "x_net_private_mptcp",
        p!["socket", libc::AF_INET, libc::SOCK_STREAM, 262],
        MachineMayLack("MPTCP"),
        &[EPROTONOSUPPORT],
    )
    .private(),
];
