//! The view (SEC-INV-03, FS-03, ST-05, ST-06).

use super::Control::{MachineMayLack, RootOnly, Succeeds};
use super::{Row, at, row};
use libc::{EACCES, ENOENT, EROFS, ESRCH, EXDEV};

pub const ROWS: &[Row] = &[
    row(
        "sec_inv_03_read_secret_outside",
        |w| vec!["read".into(), at(&w.outside, "secret")],
        Succeeds,
        &[ENOENT],
    ),
    row(
        "sec_inv_03_stat_secret_outside",
        |w| vec!["stat".into(), at(&w.outside, "secret")],
        Succeeds,
        &[ENOENT],
    ),
    row(
        "sec_inv_03_read_shadow",
        p!["read", "/etc/shadow"],
        RootOnly,
        &[ENOENT],
    ),
    row(
        "sec_inv_03_list_root_home",
        p!["list", "/root"],
        RootOnly,
        &[EACCES, ENOENT],
    ),
    row(
        "sec_inv_03_host_name_file",
        p!["read", "/etc/hostname"],
        MachineMayLack("/etc/hostname"),
        &[ENOENT],
    ),
    row(
        "fs_03_symlink_out_of_the_root",
        |w| vec!["read".into(), at(&w.workspace, "link")],
        Succeeds,
        &[ENOENT],
    ),
    row(
        "fs_03_symlinked_directory_out",
        |w| vec!["create".into(), at(&w.workspace, "out-link/new")],
        Succeeds,
        &[ENOENT],
    ),
    row(
        "fs_03_dot_dot_out",
        |w| vec!["read".into(), at(&w.workspace, "../out/secret")],
        Succeeds,
        &[ENOENT],
    ),
    row(
        "st_05_proc_self_root_prefix",
        |w| {
            vec![
                "read".into(),
                format!("/proc/self/root{}", at(&w.outside, "secret")),
            ]
        },
        Succeeds,
        &[ENOENT],
    ),
    row(
        "st_05_proc_1_root",
        p!["list", "/proc/1/root/"],
        MachineMayLack("access to the host's first process"),
        &[EACCES],
    ),
    row(
        "st_05_proc_1_cwd",
        p!["list", "/proc/1/cwd/"],
        MachineMayLack("access to the host's first process"),
        &[EACCES],
    ),
    row(
        "st_05_hard_link_in",
        |w| {
            vec![
                "link".into(),
                at(&w.outside, "secret"),
                at(&w.workspace, "hard"),
            ]
        },
        Succeeds,
        &[ENOENT, EXDEV],
    ),
    row(
        "st_05_rename_in",
        |w| {
            vec![
                "rename".into(),
                at(&w.outside, "movable"),
                at(&w.workspace, "moved"),
            ]
        },
        Succeeds,
        &[ENOENT],
    ),
    row(
        "sec_inv_03_canary_environment",
        |w| vec!["read".into(), format!("/proc/{}/environ", w.canary.id())],
        Succeeds,
        &[ENOENT],
    ),
    row(
        "sec_inv_10_signal_to_the_host",
        |w| vec!["kill-0".into(), w.canary.id().to_string()],
        Succeeds,
        &[ESRCH],
    ),
    row(
        "sec_inv_03_init_environment",
        p!["read", "/proc/1/environ"],
        MachineMayLack("access to the host's first process"),
        &[EACCES],
    ),
    row(
        "sec_inv_03_init_memory",
        p!["append", "/proc/1/mem"],
        MachineMayLack("access to the host's first process"),
        &[EACCES, EROFS],
    ),
];
