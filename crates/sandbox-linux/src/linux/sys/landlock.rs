//! Landlock's three calls and its rights.

use super::raw::{Fd, Result, call};

pub(crate) const EXECUTE: u64 = 1;
pub(crate) const WRITE_FILE: u64 = 1 << 1;
pub(crate) const READ_FILE: u64 = 1 << 2;
pub(crate) const READ_DIR: u64 = 1 << 3;
pub(crate) const REMOVE_DIR: u64 = 1 << 4;
pub(crate) const REMOVE_FILE: u64 = 1 << 5;
pub(crate) const MAKE_CHAR: u64 = 1 << 6;
pub(crate) const MAKE_DIR: u64 = 1 << 7;
pub(crate) const MAKE_REG: u64 = 1 << 8;
pub(crate) const MAKE_FIFO: u64 = 1 << 10;
pub(crate) const MAKE_BLOCK: u64 = 1 << 11;
pub(crate) const MAKE_SYM: u64 = 1 << 12;
pub(crate) const REFER: u64 = 1 << 13;
pub(crate) const TRUNCATE: u64 = 1 << 14;
pub(crate) const IOCTL_DEV: u64 = 1 << 15;

/// What may be granted on a file that is not a directory.
pub(crate) const FILE_RIGHTS: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

const CREATE_RULESET_VERSION: usize = 1;
const RULE_PATH_BENEATH: usize = 1;
const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
const SCOPE_SIGNAL: u64 = 2;

/// `struct landlock_ruleset_attr` as of ABI 6; older kernels take a prefix.
#[repr(C)]
struct RulesetAttributes {
    access_fs: u64,
    access_net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// The kernel's Landlock version, 0 where it has none or it is switched off.
pub(crate) fn version() -> u32 {
    // SAFETY: the version query takes no pointer.
    unsafe {
        call(
            libc::SYS_landlock_create_ruleset,
            [0, 0, CREATE_RULESET_VERSION, 0, 0, 0],
        )
    }
    .map_or(0, |version| version as u32)
}

/// Every file right this version knows.
pub(crate) fn known_rights(version: u32) -> u64 {
    match version {
        0 => 0,
        1 => 0x1fff,
        2 => 0x3fff,
        3 | 4 => 0x7fff,
        _ => 0xffff,
    }
}

/// A rule set that handles everything this version knows about files, signals and abstract sockets. TCP is not handled:
/// the network namespace and the filter are the boundary, and port rules would break its private loopback.
pub(crate) fn create(version: u32) -> Result<Fd> {
    let attributes = RulesetAttributes {
        access_fs: known_rights(version),
        access_net: 0,
        scoped: if version >= 6 {
            SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL
        } else {
            0
        },
    };
    let size = match version {
        ..4 => 8,
        4 | 5 => 16,
        _ => 24,
    };
    // SAFETY: the structure is at least `size` bytes long.
    unsafe {
        call(
            libc::SYS_landlock_create_ruleset,
            [&raw const attributes as usize, size, 0, 0, 0, 0],
        )
    }
    .map(|fd| Fd(fd as i32))
}

pub(crate) fn allow_beneath(ruleset: Fd, parent: Fd, allowed: u64) -> Result<()> {
    let rule = PathBeneath {
        allowed,
        parent: parent.0,
    };
    // SAFETY: the structure is what this rule type needs.
    unsafe {
        call(
            libc::SYS_landlock_add_rule,
            [
                ruleset.arg(),
                RULE_PATH_BENEATH,
                &raw const rule as usize,
                0,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

/// Applies to this thread and everything it starts, for good.
pub(crate) fn restrict_self(ruleset: Fd) -> Result<()> {
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_landlock_restrict_self,
            [ruleset.arg(), 0, 0, 0, 0, 0],
        )
    }
    .map(drop)
}
