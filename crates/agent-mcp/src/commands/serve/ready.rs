//! Telling a service manager that clients may connect, and that we stop (`sd_notify`).

#[cfg(unix)]
use std::os::unix::ffi::OsStrExt;

/// Names the socket of a service manager that waits for us.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// What is told.
#[derive(Clone, Copy, Debug)]
pub enum State {
    /// Clients may connect.
    Ready,
    /// The end has begun.
    Stopping,
}

impl State {
    fn word(self) -> &'static [u8] {
        match self {
            Self::Ready => b"READY=1",
            Self::Stopping => b"STOPPING=1",
        }
    }
}

/// Tells the service manager, if there is one. One that cannot be told is only logged: clients are served all the same.
pub fn notify(state: State) {
    #[cfg(unix)]
    {
        let Some(name) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else {
            return;
        };
        if let Err(error) = send(name.as_bytes(), state.word()) {
            tracing::warn!(%error, "the service manager ({VARIABLE}) cannot be told");
        }
    }
    #[cfg(not(unix))]
    drop(state);
}

/// One datagram to a path, or to an abstract name where it begins with `@`.
#[cfg(unix)]
fn send(name: &[u8], word: &[u8]) -> std::io::Result<()> {
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let address = match name {
        [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
        #[cfg(target_os = "linux")]
        [b'@', rest @ ..] => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(rest)?
        }
        _ => return Err(std::io::ErrorKind::Unsupported.into()),
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not hold us up.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(word, &address).map(drop)
}
