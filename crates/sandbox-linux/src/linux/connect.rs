//! Connecting on behalf of a confined program.
//!
//! `connect` is the only call left that can name a socket outside: the filter stops it, and init looks at its own copy of
//! the address, on its own duplicate of the socket, and connects that. The caller's memory and descriptor table are
//! never trusted again after they were copied, so nothing can be swapped in between.

use super::sys::{Errno, Fd, Result, file, process, seccomp, socket};

/// An address as the kernel takes it, at most.
const MOST_ADDRESS: usize = 128;
/// A look into the kernel's memory fails when something is renamed at the same moment; then it is repeated.
const CACHED_TRIES: u32 = 16;
/// `PIDFD_THREAD`, Linux 6.9.
const PIDFD_THREAD: u32 = libc::O_EXCL as u32;

/// What a request came to.
pub(crate) enum Decision {
    Done(Result<()>),
    /// It takes longer; init must not wait for it.
    Later(Pending),
}

/// A connection that is on its way.
#[derive(Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) listener: Fd,
    pub(crate) id: u64,
    pub(crate) socket: Fd,
    /// For a pathname socket whose queue is full: the socket file, to try again.
    pub(crate) file: Option<Fd>,
}

impl Pending {
    pub(crate) fn close(self) {
        file::close(self.socket);
        if let Some(path) = self.file {
            file::close(path);
        }
    }
}

/// Looks at one stopped `connect`. `private_device` is the only file system whose sockets may be reached by path.
pub(crate) fn decide(
    listener: Fd,
    request: &seccomp::Notification,
    private_device: u64,
) -> Decision {
    let length = request.arguments[2] as u32 as usize;
    if !(2..=MOST_ADDRESS).contains(&length) {
        return Decision::Done(Err(Errno(libc::EINVAL)));
    }
    // One byte more stays zero and ends a path.
    let mut address = [0u8; MOST_ADDRESS + 1];
    let Some(copy) = address.get_mut(..length) else {
        return Decision::Done(Err(Errno(libc::EINVAL)));
    };
    if process::read_memory(request.pid, request.arguments[1], copy) != Ok(length) {
        return Decision::Done(Err(Errno(libc::EFAULT)));
    }
    let duplicate = match duplicate(request) {
        Ok(duplicate) => duplicate,
        Err(Errno(libc::EBADF)) => return Decision::Done(Err(Errno(libc::EBADF))),
        Err(_) => return Decision::Done(Err(Errno(libc::EACCES))),
    };
    if !seccomp::is_waiting(listener, request.id) {
        file::close(duplicate);
        return Decision::Done(Err(Errno(libc::EINTR)));
    }
    let mut pending = Pending {
        listener,
        id: request.id,
        socket: duplicate,
        file: None,
    };
    let result = match socket::option(duplicate, libc::SO_DOMAIN) {
        Ok(libc::AF_UNIX) => connect_local(request, &address, length, private_device, &mut pending),
        // The network namespace is the boundary; the filter lets no other family exist.
        Ok(_) => without_waiting(duplicate, address.get(..length).unwrap_or(&[])),
        Err(errno) => Err(errno),
    };
    match result {
        Err(Errno(libc::EAGAIN)) if pending.file.is_some() && waits(duplicate) => {
            Decision::Later(pending)
        }
        Err(Errno(libc::EINPROGRESS)) if waits(duplicate) => Decision::Later(pending),
        result => {
            pending.close();
            Decision::Done(result)
        }
    }
}

/// Whether the program wants to wait for its connection.
fn waits(socket: Fd) -> bool {
    file::flags(socket).is_ok_and(|flags| flags & libc::O_NONBLOCK == 0)
}

/// Init must never block. The flag is the caller's too, so it is put back; a caller that fights over it from another
/// thread delays only its own sandbox.
fn without_waiting(socket: Fd, address: &[u8]) -> Result<()> {
    let flags = file::flags(socket)?;
    if flags & libc::O_NONBLOCK != 0 {
        return socket::connect(socket, address);
    }
    file::set_flags(socket, flags | libc::O_NONBLOCK)?;
    let result = socket::connect(socket, address);
    file::set_flags(socket, flags)?;
    result
}

fn duplicate(request: &seccomp::Notification) -> Result<Fd> {
    let pid = request.pid as i32;
    let pidfd = process::open_pidfd(pid, PIDFD_THREAD)
        .or_else(|_| process::open_pidfd(thread_group(pid)?, 0))?;
    let duplicate = process::take_descriptor(pidfd, request.arguments[0]);
    file::close(pidfd);
    duplicate
}

/// The process of a thread, for kernels without thread pidfds.
fn thread_group(thread: i32) -> Result<i32> {
    let mut path = NumberedPath::new(b"/proc/");
    path.number(thread);
    path.text(b"/status");
    let mut text = [0u8; 1024];
    let fd = file::open_at(
        Fd::CWD,
        path.as_c_str(),
        libc::O_RDONLY | libc::O_CLOEXEC,
        0,
    )?;
    let length = file::read(fd, &mut text);
    file::close(fd);
    let text = text.get(..length?).unwrap_or(&[]);
    let label = b"Tgid:\t";
    let at = text
        .windows(label.len())
        .position(|window| window == label)
        .ok_or(Errno(libc::ESRCH))?;
    let digits = text.get(at + label.len()..).unwrap_or(&[]);
    Ok(digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |sum: i32, digit| {
            sum.wrapping_mul(10).wrapping_add(i32::from(digit - b'0'))
        }))
}

fn connect_local(
    request: &seccomp::Notification,
    address: &[u8; MOST_ADDRESS + 1],
    length: usize,
    private_device: u64,
    pending: &mut Pending,
) -> Result<()> {
    let given = address.get(..length).unwrap_or(&[]);
    let family = u16::from_ne_bytes([address[0], address[1]]);
    if i32::from(family) != libc::AF_UNIX || length < 3 {
        return Err(Errno(libc::EINVAL));
    }
    if address[2] == 0 {
        // An abstract name: the socket's own network namespace is its world.
        return without_waiting(pending.socket, given);
    }
    let found = open_socket_file(request, address)?;
    let status = file::status(found)?;
    let verdict = if status.st_mode & libc::S_IFMT != libc::S_IFSOCK {
        Err(Errno(libc::ECONNREFUSED))
    } else if status.st_dev != private_device {
        Err(Errno(libc::EACCES))
    } else {
        Ok(())
    };
    if let Err(errno) = verdict {
        file::close(found);
        return Err(errno);
    }
    pending.file = Some(found);
    connect_to_file(pending.socket, found)
}

/// The socket file that the caller's path leads to, seen from the caller's directory, without following links of `/proc`.
fn open_socket_file(
    request: &seccomp::Notification,
    address: &[u8; MOST_ADDRESS + 1],
) -> Result<Fd> {
    let rest = address.get(2..).unwrap_or(&[]);
    let path = std::ffi::CStr::from_bytes_until_nul(rest).map_err(|_| Errno(libc::ENAMETOOLONG))?;
    let absolute = path.to_bytes().first() == Some(&b'/');
    let mut resolve = file::RESOLVE_NO_MAGICLINKS;
    let base = if absolute {
        resolve |= file::RESOLVE_IN_ROOT;
        file::open_at(Fd::CWD, c"/", file::O_PATH_CLOEXEC, 0)?
    } else {
        let mut directory = NumberedPath::new(b"/proc/");
        directory.number(request.pid as i32);
        directory.text(b"/cwd");
        file::open_at(Fd::CWD, directory.as_c_str(), file::O_PATH_CLOEXEC, 0)?
    };
    // Never by asking a file system: one that hangs would hang init, and of the tripwire init is the server. Sockets in the
    // private area are in the kernel's memory; of others nothing is lost but the difference between two refusals.
    // The process tree is always answered by the kernel, and leads nowhere else without its own links.
    if !path.to_bytes().starts_with(b"/proc/") {
        resolve |= file::RESOLVE_CACHED;
    }
    let mut found = Err(Errno(libc::EAGAIN));
    for _ in 0..CACHED_TRIES {
        found = file::open_resolved(base, path, file::O_PATH_CLOEXEC, resolve);
        if found != Err(Errno(libc::EAGAIN)) {
            break;
        }
    }
    file::close(base);
    found.map_err(|errno| match errno.0 {
        libc::ELOOP => Errno(libc::EACCES),
        libc::EAGAIN => Errno(libc::ENOENT),
        _ => errno,
    })
}

/// Connects to exactly this socket file, through its descriptor.
pub(crate) fn connect_to_file(socket: Fd, found: Fd) -> Result<()> {
    let mut path = NumberedPath::new(b"/proc/self/fd/");
    path.number(found.0);
    let text = path.as_c_str().to_bytes_with_nul();
    let mut address = [0u8; 2 + 64];
    address[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    let end = 2 + text.len();
    match address.get_mut(2..end) {
        Some(place) => place.copy_from_slice(text),
        None => return Err(Errno(libc::ENAMETOOLONG)),
    }
    without_waiting(socket, address.get(..end).unwrap_or(&[]))
}

/// A short path with a number in it, made without allocating. What does not fit is cut, and then not found.
pub(crate) struct NumberedPath {
    text: [u8; 64],
    length: usize,
}

impl NumberedPath {
    pub(crate) fn new(start: &[u8]) -> Self {
        let mut path = Self {
            text: [0; 64],
            length: 0,
        };
        path.text(start);
        path
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        for byte in text {
            // The last byte stays zero.
            if self.length + 1 < self.text.len() {
                self.text[self.length] = *byte;
                self.length += 1;
            }
        }
    }

    pub(crate) fn number(&mut self, number: i32) {
        let mut digits = [0u8; 10];
        let mut at = digits.len();
        let mut rest = number.unsigned_abs();
        while at > 0 {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.text(digits.get(at..).unwrap_or(&[]));
    }

    pub(crate) fn as_c_str(&self) -> &std::ffi::CStr {
        std::ffi::CStr::from_bytes_until_nul(&self.text).unwrap_or(c"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_numbers() {
        let mut path = NumberedPath::new(b"/proc/");
        path.number(2_147_483_647);
        path.text(b"/cwd");
        assert_eq!(path.as_c_str(), c"/proc/2147483647/cwd");
        let mut zero = NumberedPath::new(b"");
        zero.number(0);
        assert_eq!(zero.as_c_str(), c"0");
    }
}
