//! Sockets: the private line between server, init and zygote, and connecting for others.

use super::raw::{Fd, Result, call};

/// Most descriptors in one message.
pub(crate) const MOST_DESCRIPTORS: usize = 8;

const HEADER: usize = size_of::<libc::cmsghdr>();

/// Room for a control message with [`MOST_DESCRIPTORS`] descriptors, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control {
    header: libc::cmsghdr,
    descriptors: [i32; MOST_DESCRIPTORS],
}

fn empty_message() -> libc::msghdr {
    // SAFETY: all-zero bytes are a valid, empty message header.
    unsafe { std::mem::zeroed() }
}

/// Sends one message with descriptors.
pub(crate) fn send(socket: Fd, bytes: &[u8], descriptors: &[Fd]) -> Result<()> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all-zero bytes are a valid control buffer.
    let mut control: Control = unsafe { std::mem::zeroed() };
    let mut message = empty_message();
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    let count = descriptors.len().min(MOST_DESCRIPTORS);
    if count > 0 {
        control.header.cmsg_len = (HEADER + count * 4) as _;
        control.header.cmsg_level = libc::SOL_SOCKET;
        control.header.cmsg_type = libc::SCM_RIGHTS;
        for (slot, fd) in control.descriptors.iter_mut().zip(descriptors) {
            *slot = fd.0;
        }
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = (HEADER + count * 4) as _;
    }
    // SAFETY: the header leads to our own buffers, which live until the call returns.
    unsafe {
        call(
            libc::SYS_sendmsg,
            [
                socket.arg(),
                &raw const message as usize,
                libc::MSG_NOSIGNAL as usize,
                0,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

/// What came in one message: how many bytes, and which descriptors (closed on exec).
pub(crate) struct Received {
    pub(crate) bytes: usize,
    descriptors: [i32; MOST_DESCRIPTORS],
    count: usize,
}

impl Received {
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = Fd> + '_ {
        self.descriptors.iter().take(self.count).map(|fd| Fd(*fd))
    }
}

/// Receives one message; zero bytes mean that the other side is gone.
pub(crate) fn receive(socket: Fd, buffer: &mut [u8]) -> Result<Received> {
    let mut vector = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all-zero bytes are a valid control buffer.
    let mut control: Control = unsafe { std::mem::zeroed() };
    let mut message = empty_message();
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the header leads to our own buffers, which live until the call returns.
    let bytes = unsafe {
        call(
            libc::SYS_recvmsg,
            [
                socket.arg(),
                &raw mut message as usize,
                libc::MSG_CMSG_CLOEXEC as usize,
                0,
                0,
                0,
            ],
        )
    }?;
    let holds_descriptors = message.msg_controllen > HEADER as _
        && control.header.cmsg_level == libc::SOL_SOCKET
        && control.header.cmsg_type == libc::SCM_RIGHTS;
    let count = if holds_descriptors {
        ((control.header.cmsg_len as usize - HEADER) / 4).min(MOST_DESCRIPTORS)
    } else {
        0
    };
    Ok(Received {
        bytes,
        descriptors: control.descriptors,
        count,
    })
}

pub(crate) fn connect(socket: Fd, address: &[u8]) -> Result<()> {
    // SAFETY: the address is readable for its length.
    unsafe {
        call(
            libc::SYS_connect,
            [
                socket.arg(),
                address.as_ptr() as usize,
                address.len(),
                0,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

/// An integer option of the socket level.
pub(crate) fn option(socket: Fd, name: i32) -> Result<i32> {
    let mut value = 0i32;
    let mut length = size_of::<i32>() as u32;
    // SAFETY: value and length are writable and belong together.
    unsafe {
        call(
            libc::SYS_getsockopt,
            [
                socket.arg(),
                libc::SOL_SOCKET as usize,
                name as usize,
                &raw mut value as usize,
                &raw mut length as usize,
                0,
            ],
        )
    }?;
    Ok(value)
}

/// Brings up the loopback device of our network namespace.
pub(crate) fn raise_loopback() -> Result<()> {
    // `struct ifreq`: 16 bytes of name, then the flags.
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    request[16..18].copy_from_slice(&((libc::IFF_UP | libc::IFF_RUNNING) as u16).to_ne_bytes());
    // SAFETY: numbers only.
    let socket = unsafe {
        call(
            libc::SYS_socket,
            [
                libc::AF_INET as usize,
                (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as usize,
                0,
                0,
                0,
                0,
            ],
        )
    }?;
    let socket = Fd(socket as i32);
    // SAFETY: the buffer has the size of `struct ifreq`.
    let result = unsafe {
        call(
            libc::SYS_ioctl,
            [
                socket.arg(),
                libc::SIOCSIFFLAGS as usize,
                request.as_mut_ptr() as usize,
                0,
                0,
                0,
            ],
        )
    };
    super::file::close(socket);
    result.map(drop)
}
