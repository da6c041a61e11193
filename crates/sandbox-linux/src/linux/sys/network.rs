//! A network namespace's own loopback: addresses and listening sockets.

use super::raw::{Errno, Fd, Result, call};
use std::net::{IpAddr, SocketAddr};

/// The number of the loopback device in every network namespace.
const LOOPBACK: u32 = 1;

fn new_socket(family: i32, kind: i32, protocol: i32) -> Result<Fd> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_socket,
            [
                family as usize,
                (kind | libc::SOCK_CLOEXEC) as usize,
                protocol as usize,
                0,
                0,
                0,
            ],
        )
    }
    .map(|fd| Fd(fd as i32))
}

/// The raw bytes of an address, and how many there are.
fn bytes_of(address: IpAddr) -> ([u8; 16], usize) {
    let mut bytes = [0u8; 16];
    match address {
        IpAddr::V4(four) => {
            bytes[..4].copy_from_slice(&four.octets());
            (bytes, 4)
        }
        IpAddr::V6(six) => (six.octets(), 16),
    }
}

/// Bytes of `nlmsghdr` and `ifaddrmsg` together.
const HEADERS: usize = 16 + 8;

/// An `RTM_NEWADDR` request for one address of the loopback device, of the returned length.
fn address_request(address: IpAddr) -> ([u8; 64], usize) {
    let (bytes, length) = bytes_of(address);
    let family = if length == 4 {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let attribute = 4 + length;
    let total = HEADERS + 2 * attribute;
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut request = [0u8; 64];
    request[0..4].copy_from_slice(&(total as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&libc::RTM_NEWADDR.to_ne_bytes());
    request[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
    request[16] = family as u8;
    request[17] = (length * 8) as u8;
    // Nobody else is on this link, so nobody is asked whether the address is taken.
    request[18] = if length == 4 {
        0
    } else {
        libc::IFA_F_NODAD as u8
    };
    request[20..24].copy_from_slice(&LOOPBACK.to_ne_bytes());
    for (index, kind) in [libc::IFA_LOCAL, libc::IFA_ADDRESS].into_iter().enumerate() {
        let at = HEADERS + index * attribute;
        request[at..at + 2].copy_from_slice(&(attribute as u16).to_ne_bytes());
        request[at + 2..at + 4].copy_from_slice(&kind.to_ne_bytes());
        request[at + 4..at + 4 + length].copy_from_slice(&bytes[..length]);
    }
    (request, total)
}

/// Gives our network namespace's loopback device this address. One that it has already is what is wanted.
pub(crate) fn add_address(address: IpAddr) -> Result<()> {
    let (request, length) = address_request(address);
    let socket = new_socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    let mut answer = [0u8; 128];
    // SAFETY: both buffers are ours and have the lengths that are passed.
    let received = unsafe {
        call(
            libc::SYS_sendto,
            [socket.arg(), request.as_ptr() as usize, length, 0, 0, 0],
        )
        .and_then(|_| {
            call(
                libc::SYS_recvfrom,
                [
                    socket.arg(),
                    answer.as_mut_ptr() as usize,
                    answer.len(),
                    0,
                    0,
                    0,
                ],
            )
        })
    };
    super::file::close(socket);
    // `nlmsghdr`, then `nlmsgerr` whose first word is the negative error number.
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    if received? < 20 || i32::from(kind) != libc::NLMSG_ERROR {
        return Err(Errno(libc::EPROTO));
    }
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        error if -error == libc::EEXIST => Ok(()),
        error => Err(Errno(-error)),
    }
}

/// Waits until our own IPv6 addresses can be reached: the kernel makes their routes later, in a worker of its own. Sends nothing.
pub(crate) fn wait_for_routes(addresses: impl Iterator<Item = SocketAddr>) -> Result<()> {
    const TRIES: u32 = 2_000;
    const PAUSE_NS: u64 = 500_000;
    let socket = new_socket(libc::AF_INET6, libc::SOCK_DGRAM, 0)?;
    let mut result = Ok(());
    for address in addresses {
        let (raw, length) = socket_address(address);
        let mut tries = 0;
        result = loop {
            match super::socket::connect(socket, raw.get(..length).unwrap_or(&[])) {
                Err(Errno(libc::ENETUNREACH | libc::EADDRNOTAVAIL)) if tries < TRIES => {
                    tries += 1;
                    if let Err(errno) = super::signal::poll(&mut [], Some(PAUSE_NS)) {
                        break Err(errno);
                    }
                }
                other => break other,
            }
        };
        if result.is_err() {
            break;
        }
    }
    super::file::close(socket);
    result
}

/// `sockaddr_in` or `sockaddr_in6`, and its length.
fn socket_address(address: SocketAddr) -> ([u8; 28], usize) {
    let mut raw = [0u8; 28];
    let (bytes, length) = bytes_of(address.ip());
    raw[2..4].copy_from_slice(&address.port().to_be_bytes());
    if length == 4 {
        raw[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        raw[4..8].copy_from_slice(&bytes[..4]);
        (raw, 16)
    } else {
        raw[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        raw[8..24].copy_from_slice(&bytes);
        (raw, 28)
    }
}

/// Connections that wait to be accepted, at most; the kernel's own limit may be lower.
const BACKLOG: usize = 4096;

/// Bytes of each connection's queues on our side, asked for: nothing is far away on a loopback, and what a program sends
/// to an endpoint that stalls is to stay with the program.
const QUEUE_BYTES: i32 = 256 << 10;

fn set_queue(socket: Fd, option: i32) -> Result<()> {
    let bytes = QUEUE_BYTES;
    // SAFETY: the value is readable and has the length that is passed.
    unsafe {
        call(
            libc::SYS_setsockopt,
            [
                socket.arg(),
                libc::SOL_SOCKET as usize,
                option as usize,
                &raw const bytes as usize,
                size_of::<i32>(),
                0,
            ],
        )
    }
    .map(drop)
}

fn bind_and_listen(socket: Fd, address: &[u8; 28], length: usize) -> Result<()> {
    // SAFETY: the address is readable for its length; the rest are numbers.
    unsafe {
        call(
            libc::SYS_bind,
            [socket.arg(), address.as_ptr() as usize, length, 0, 0, 0],
        )?;
        call(libc::SYS_listen, [socket.arg(), BACKLOG, 0, 0, 0, 0])
    }
    .map(drop)
}

/// A socket of our network namespace that listens on exactly this address.
pub(crate) fn listen(address: SocketAddr) -> Result<Fd> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let socket = new_socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    let (raw, length) = socket_address(address);
    let listening = set_queue(socket, libc::SO_RCVBUF)
        .and_then(|()| set_queue(socket, libc::SO_SNDBUF))
        .and_then(|()| bind_and_listen(socket, &raw, length));
    match listening {
        Ok(()) => Ok(socket),
        Err(errno) => {
            super::file::close(socket);
            Err(errno)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_addresses_have_the_kernels_layout() {
        let (request, length) = address_request("1.2.3.4".parse().unwrap());
        assert_eq!(length, 40);
        assert_eq!(&request[16..20], &[2, 32, 0, 0]);
        assert_eq!(&request[28..32], &[1, 2, 3, 4]);
        assert_eq!(&request[36..40], &[1, 2, 3, 4]);
        let (request, length) = address_request("2001:db8::1".parse().unwrap());
        assert_eq!(length, 64);
        assert_eq!(&request[16..20], &[10, 128, 2, 0]);
        assert_eq!(request[63], 1);
        let (raw, length) = socket_address("1.2.3.4:513".parse().unwrap());
        assert_eq!((&raw[..8], length), (&[2, 0, 2, 1, 1, 2, 3, 4][..], 16));
        let (raw, length) = socket_address("[::1]:513".parse().unwrap());
        assert_eq!((raw[0], raw[2], raw[3], raw[23], length), (10, 2, 1, 1, 28));
    }
}
