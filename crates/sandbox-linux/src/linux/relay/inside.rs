//! What init or the command makes in the sandbox's own network namespace. No allocation, no panic.

use super::Reach;
use crate::backend::failure::{At as _, Failure, Stage};
use crate::backend::shared::Shared;
use crate::backend::sys::{Fd, file, network};
use std::net::SocketAddr;

/// Gives the namespace its granted addresses and leaves a listening socket for each in the shared page. Needs the
/// capabilities of the namespace's owner.
pub(crate) fn open_listeners(reach: &Reach, shared: &Shared) -> Result<(), Failure> {
    for (slot, grant) in reach.routed().enumerate() {
        let address = grant.address;
        // These the loopback device has by itself.
        if !address.ip().is_loopback() {
            network::add_address(address.ip()).at(Stage::Listeners)?;
        }
        let listener = network::listen(address).at(Stage::Listeners)?;
        shared.set_listener(slot, listener);
    }
    let added = |address: &SocketAddr| address.is_ipv6() && !address.ip().is_loopback();
    let mut later = reach
        .routed()
        .map(|grant| grant.address)
        .filter(added)
        .peekable();
    if later.peek().is_some() {
        network::wait_for_routes(later).at(Stage::Listeners)?;
    }
    Ok(())
}

/// Lets programs listen below 1024 too: on this namespace's loopback no port is anybody's. `proc` is the host's `/proc`.
/// Where that is read-only, as in some containers, low ports stay closed to programs, which opens nothing.
pub(crate) fn free_low_ports(proc: Fd) {
    let path = c"sys/net/ipv4/ip_unprivileged_port_start";
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    if let Ok(setting) = file::open_at(proc, path, flags, 0) {
        let _closed_below_1024 = file::write(setting, b"0");
        file::close(setting);
    }
}
