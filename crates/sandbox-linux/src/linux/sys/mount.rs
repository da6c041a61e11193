//! The descriptor-based mount interface (Linux 5.12).

use super::raw::{Fd, Result, call};
use std::ffi::CStr;

pub(crate) const RDONLY: u64 = 0x1;
pub(crate) const NOSUID: u64 = 0x2;
pub(crate) const NODEV: u64 = 0x4;
pub(crate) const NOEXEC: u64 = 0x8;
const IDMAP: u64 = 0x0010_0000;

const FSOPEN_CLOEXEC: usize = 1;
const FSMOUNT_CLOEXEC: usize = 1;
const FSCONFIG_SET_FLAG: usize = 0;
const FSCONFIG_SET_STRING: usize = 1;
const FSCONFIG_CMD_CREATE: usize = 6;
const OPEN_TREE_CLONE: usize = 1;
const AT_RECURSIVE: usize = 0x8000;
const MOVE_MOUNT_F_EMPTY_PATH: usize = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: usize = 0x40;
const MS_PRIVATE: u64 = 1 << 18;

/// `struct mount_attr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// A fresh file system that is attached nowhere yet. An option without value is a flag.
pub(crate) fn fresh(kind: &CStr, options: &[(&CStr, &CStr)], attributes: u64) -> Result<Fd> {
    // SAFETY: all strings are NUL-terminated; the context descriptor is closed on every path below.
    let context = unsafe {
        call(
            libc::SYS_fsopen,
            [kind.as_ptr() as usize, FSOPEN_CLOEXEC, 0, 0, 0, 0],
        )
    }?;
    let context = Fd(context as i32);
    let mounted = configure(context, options, attributes);
    super::file::close(context);
    mounted
}

fn configure(context: Fd, options: &[(&CStr, &CStr)], attributes: u64) -> Result<Fd> {
    for (key, value) in options {
        let (command, value) = if value.is_empty() {
            (FSCONFIG_SET_FLAG, 0)
        } else {
            (FSCONFIG_SET_STRING, value.as_ptr() as usize)
        };
        // SAFETY: key and value are NUL-terminated; a flag takes a null value.
        unsafe {
            call(
                libc::SYS_fsconfig,
                [context.arg(), command, key.as_ptr() as usize, value, 0, 0],
            )
        }?;
    }
    // SAFETY: numbers only.
    unsafe {
        call(
            libc::SYS_fsconfig,
            [context.arg(), FSCONFIG_CMD_CREATE, 0, 0, 0, 0],
        )?;
        call(
            libc::SYS_fsmount,
            [context.arg(), FSMOUNT_CLOEXEC, attributes as usize, 0, 0, 0],
        )
    }
    .map(|fd| Fd(fd as i32))
}

/// A detached copy of the mount tree at a path (relative to `directory`; empty: the directory itself).
pub(crate) fn copy_tree(directory: Fd, path: &CStr) -> Result<Fd> {
    let flags = OPEN_TREE_CLONE
        | libc::O_CLOEXEC as usize
        | AT_RECURSIVE
        | libc::AT_EMPTY_PATH as usize
        | libc::AT_SYMLINK_NOFOLLOW as usize;
    // SAFETY: `path` is NUL-terminated.
    unsafe {
        call(
            libc::SYS_open_tree,
            [directory.arg(), path.as_ptr() as usize, flags, 0, 0, 0],
        )
    }
    .map(|fd| Fd(fd as i32))
}

fn set(tree: Fd, attributes: &MountAttributes, recursive: usize) -> Result<()> {
    let flags = libc::AT_EMPTY_PATH as usize | recursive;
    // SAFETY: the path is an empty string, the structure has the size that is passed.
    unsafe {
        call(
            libc::SYS_mount_setattr,
            [
                tree.arg(),
                c"".as_ptr() as usize,
                flags,
                std::ptr::from_ref(attributes) as usize,
                size_of::<MountAttributes>(),
                0,
            ],
        )
    }
    .map(drop)
}

/// Adds attributes to the whole tree and cuts it off from later mounts of the host.
pub(crate) fn restrict(tree: Fd, attributes: u64) -> Result<()> {
    set(
        tree,
        &MountAttributes {
            set: attributes,
            clear: 0,
            propagation: MS_PRIVATE,
            user_namespace: 0,
        },
        AT_RECURSIVE,
    )
}

/// Adds attributes to one mount; what is mounted below it keeps its own.
pub(crate) fn restrict_one(mount: Fd, attributes: u64) -> Result<()> {
    set(
        mount,
        &MountAttributes {
            set: attributes,
            clear: 0,
            propagation: 0,
            user_namespace: 0,
        },
        0,
    )
}

/// Translates owners through the map of a user namespace.
pub(crate) fn map_owners(tree: Fd, user_namespace: Fd) -> Result<()> {
    set(
        tree,
        &MountAttributes {
            set: IDMAP,
            clear: 0,
            propagation: 0,
            user_namespace: user_namespace.0 as u64,
        },
        AT_RECURSIVE,
    )
}

/// Attaches a detached tree at a path.
pub(crate) fn attach(tree: Fd, directory: Fd, path: &CStr) -> Result<()> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH
        | if path.is_empty() {
            MOVE_MOUNT_T_EMPTY_PATH
        } else {
            0
        };
    // SAFETY: both strings are NUL-terminated.
    unsafe {
        call(
            libc::SYS_move_mount,
            [
                tree.arg(),
                c"".as_ptr() as usize,
                directory.arg(),
                path.as_ptr() as usize,
                flags,
                0,
            ],
        )
    }
    .map(drop)
}

/// Takes away what is mounted at a path below the working directory; copies of it stay.
pub(crate) fn detach(path: &CStr) -> Result<()> {
    let flags = (libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) as usize;
    // SAFETY: `path` is NUL-terminated.
    unsafe {
        call(
            libc::SYS_umount2,
            [path.as_ptr() as usize, flags, 0, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Makes the working directory the root, and lets go of the old one.
pub(crate) fn pivot_here() -> Result<()> {
    // SAFETY: both strings are NUL-terminated.
    unsafe {
        call(
            libc::SYS_pivot_root,
            [c".".as_ptr() as usize, c".".as_ptr() as usize, 0, 0, 0, 0],
        )?;
        call(
            libc::SYS_umount2,
            [
                c".".as_ptr() as usize,
                libc::MNT_DETACH as usize,
                0,
                0,
                0,
                0,
            ],
        )
    }
    .map(drop)
}
