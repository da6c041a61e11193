//! Every call that takes a path, on a path outside; and calls that reach past the namespaces.

use super::Control::{self, MachineMayLack, Succeeds};
use super::{Row, at, row, works};
use libc::{
    EACCES, EAFNOSUPPORT, EINVAL, ELOOP, ENODEV, ENOENT, ENOSYS, ENXIO, EPERM, EROFS, EXDEV,
};

/// The path does not exist inside, whichever call asks.
macro_rules! outside {
    ($($name:literal, $call:literal, $control:expr;)*) => {
        &[$(row(
            $name,
            |w| vec!["path-call".into(), $call.into(), at(&w.outside, "secret"), at(&w.workspace, "sub/new")],
            $control,
            // "Not implemented" where the filter lets programs fall back to an older call.
            &[ENOENT, ENOSYS],
        )),*]
    };
}

pub const OUTSIDE: &[Row] = outside! {
    "sec_inv_03_outside_openat2", "openat2", Succeeds;
    "sec_inv_03_outside_o_path", "o-path", Succeeds;
    "sec_inv_03_outside_statx", "statx", Succeeds;
    "sec_inv_03_outside_access", "access", Succeeds;
    "sec_inv_03_outside_statfs", "statfs", Succeeds;
    "sec_inv_03_outside_truncate", "truncate", Succeeds;
    "sec_inv_03_outside_chmod", "chmod", Succeeds;
    "sec_inv_03_outside_chown", "chown", Succeeds;
    "sec_inv_03_outside_times", "times", Succeeds;
    "sec_inv_03_outside_list_xattr", "list-xattr", Succeeds;
    "sec_inv_03_outside_set_xattr", "set-xattr", MachineMayLack("user xattrs");
    "sec_inv_03_outside_inotify", "inotify", Succeeds;
    "sec_inv_03_outside_link", "link", Succeeds;
    "sec_inv_03_outside_rename", "rename", Succeeds;
    "sec_inv_03_outside_unlink", "unlink", Succeeds;
};

/// Refused by the filter whatever the arguments; with these nothing would happen anyway.
macro_rules! refused {
    ($($name:literal, $call:ident;)*) => {
        &[$(row($name, |_| vec!["not-a-call".into(), libc::$call.to_string()], Control::None, &[EPERM, ENOSYS])),*]
    };
}

pub const REFUSED: &[Row] = refused! {
    "st_19_kexec_load", SYS_kexec_load;
    "st_19_init_module", SYS_init_module;
    "st_19_finit_module", SYS_finit_module;
    "st_19_delete_module", SYS_delete_module;
    "st_19_reboot", SYS_reboot;
    "st_19_swapon", SYS_swapon;
    "st_19_swapoff", SYS_swapoff;
    "st_19_settimeofday", SYS_settimeofday;
    "st_19_clock_settime", SYS_clock_settime;
    "st_19_acct", SYS_acct;
    "st_19_quotactl", SYS_quotactl;
    "st_19_pivot_root", SYS_pivot_root;
    "st_19_move_mount", SYS_move_mount;
    "st_19_mount_setattr", SYS_mount_setattr;
    "st_19_fsmount", SYS_fsmount;
    "st_19_fspick", SYS_fspick;
    "st_19_process_vm_writev", SYS_process_vm_writev;
    "st_19_kcmp", SYS_kcmp;
    "st_19_pidfd_getfd", SYS_pidfd_getfd;
    "st_19_open_by_handle", SYS_open_by_handle_at;
    "st_19_request_key", SYS_request_key;
    "st_19_io_uring_enter", SYS_io_uring_enter;
    "st_19_io_uring_register", SYS_io_uring_register;
    "st_19_fanotify", SYS_fanotify_init;
    "st_19_sethostname", SYS_sethostname;
    "st_19_setdomainname", SYS_setdomainname;
    "st_19_move_pages", SYS_move_pages;
    "st_19_migrate_pages", SYS_migrate_pages;
};

pub const MORE: &[Row] = &[
    row(
        "fs_03_write_through_own_symlink",
        |w| {
            vec![
                "write-through-link".into(),
                at(&w.outside, ""),
                at(&w.workspace, "sub/sl"),
            ]
        },
        Succeeds,
        &[ENOENT],
    ),
    row(
        "sec_inv_03_host_fifo",
        |w| vec!["fifo-write".into(), at(&w.outside, "fifo")],
        Succeeds,
        &[ENOENT],
    ),
    row(
        "st_03_host_devices",
        p!["open-any"],
        Control::None,
        &[ENOENT, EACCES, ENXIO, ENODEV, EPERM],
    ),
    row(
        "st_02_unnamed_file_into_a_protected_place",
        |w| {
            vec![
                "unnamed-link".into(),
                at(&w.workspace, "sub"),
                "/etc/new".into(),
            ]
        },
        Control::None,
        &[EROFS, EXDEV, EACCES],
    ),
    row(
        "st_19_bind_mount",
        |w| vec!["bind".into(), at(&w.outside, ""), at(&w.workspace, "sub")],
        Control::RootOnly,
        &[EPERM],
    ),
    row(
        "st_11_oom_score",
        p!["write", "/proc/self/oom_score_adj", "-900"],
        MachineMayLack("a lower oom score"),
        &[EROFS, EACCES],
    ),
    row(
        "st_19_namespaces_of_init",
        p!["read", "/proc/1/ns/mnt"],
        Control::None,
        &[EACCES, ENXIO, EINVAL, ELOOP],
    ),
    row(
        "sec_inv_06_udp_by_sendmsg",
        |w| vec!["udp-sendmsg".into(), w.udp.to_string()],
        Succeeds,
        &[EACCES, EAFNOSUPPORT, libc::EPROTONOSUPPORT],
    ),
    row(
        "sec_inv_06_udp_lite",
        p!["socket", libc::AF_INET, libc::SOCK_DGRAM, 136],
        MachineMayLack("UDP-Lite"),
        &[EACCES, EAFNOSUPPORT, libc::EPROTONOSUPPORT],
    ),
    row(
        "sec_inv_06_sctp",
        p!["socket", libc::AF_INET, libc::SOCK_STREAM, 132],
        MachineMayLack("SCTP"),
        &[EACCES, EAFNOSUPPORT, libc::EPROTONOSUPPORT],
    ),
    row(
        "sec_inv_06_dccp",
        p!["socket", libc::AF_INET, 6, 33],
        MachineMayLack("DCCP"),
        &[EACCES, EAFNOSUPPORT, libc::EPROTONOSUPPORT],
    ),
    // What must be so, with nothing to compare.
    Row {
        control: Control::None,
        ..works("sec_inv_06_every_socket_family", p!["families"], "OK [1]")
    },
    Row {
        control: Control::None,
        ..works(
            "sec_inv_10_no_new_privileges",
            p!["no-new-privileges"],
            "OK 1",
        )
    },
    Row {
        control: Control::None,
        ..works(
            "sec_inv_10_no_capabilities",
            p!["capabilities"],
            "OK 0 held, 0 bounded",
        )
    },
    Row {
        control: Control::None,
        ..works("sec_inv_10_the_parent_is_inside", p!["parent"], "OK 1")
    },
    Row {
        control: Control::None,
        inside: super::Inside::Line(|line| line.is_empty() || line.starts_with("ERRNO 38")),
        ..works("st_19_older_abi", p!["foreign-abi"], "")
    },
    works(
        "keeps_deep_directories",
        |w| vec!["deep".into(), at(&w.workspace, "sub")],
        "OK 40",
    ),
    works(
        "keeps_names_that_are_no_text",
        |w| vec!["bytes-name".into(), at(&w.workspace, "sub")],
        "OK",
    ),
    works(
        "keeps_scripts_of_an_interpreter",
        |w| vec!["run".into(), "/bin/sh".into(), at(&w.workspace, "script")],
        "OK",
    ),
];
