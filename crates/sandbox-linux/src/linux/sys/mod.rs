//! The thinnest possible wrappers around system calls, and the only place with `unsafe`.
//!
//! Everything here works in a child that shares its parent's memory (`CLONE_VM`): no allocation, no `errno`, no thread
//! local, no panic. Descriptors are plain numbers ([`Fd`]) because in such a child a destructor would close the parent's.

pub(crate) mod file;
pub(crate) mod landlock;
pub(crate) mod memory;
pub(crate) mod mount;
pub(crate) mod names;
pub(crate) mod network;
pub(crate) mod process;
mod raw;
pub(crate) mod seccomp;
pub(crate) mod signal;
pub(crate) mod socket;

pub(crate) use raw::{Errno, Fd, Result};
