//! Network levels `local` and `restricted` (X-NET).
//!
//! The sandbox's network namespace has no way out. What is granted is an address of its own loopback with a listening
//! socket; the other end of that socket is on this side, and dials exactly that real address. Read in this order:
//! `grants` (what may be reached, decided once), `resolve` (who is asked), `inside` (addresses and listeners),
//! `engine` and `connection` (forwarding), `thread` and `single` (who drives it for a Task, and for one command).
//!
//! Absent here: no byte is looked at, no name is resolved after the start, no address is dialled that is not in the
//! snapshot, and nothing blocks.

mod connection;
mod engine;
mod grants;
mod inside;
mod resolve;
mod single;
mod thread;

use engine::Relay;
pub(crate) use engine::Tally;
pub(crate) use grants::{MOST_GRANTS, Reach, reach};
pub(crate) use inside::{free_low_ports, open_listeners};
pub(crate) use resolve::{NAME as RESOLVER, ask as ask_for_names, run as run_resolver};
pub(crate) use single::SingleRelay;
pub(crate) use thread::RelayThread;
