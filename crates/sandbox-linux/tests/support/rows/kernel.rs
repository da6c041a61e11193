//! The kernel (ST-19), and what init needs to watch (ST-11).

use super::super::world::text;
use super::Control::{self, MachineMayLack, RootOnly, Succeeds};
use super::{Row, at, row, works};
use libc::{EACCES, ENOENT, ENOSYS, EPERM, EROFS};

pub const ROWS: &[Row] = &[
    row(
        "st_19_core_pattern",
        p!["rewrite", "/proc/sys/kernel/core_pattern"],
        RootOnly,
        &[EROFS, EACCES],
    ),
    row(
        "st_19_sysrq",
        p!["append", "/proc/sysrq-trigger"],
        MachineMayLack("sysrq"),
        &[EROFS, EACCES, ENOENT],
    ),
    row(
        "st_19_mount",
        |w| vec!["mount".into(), at(&w.workspace, "sub")],
        RootOnly,
        &[EPERM],
    ),
    row(
        "st_19_umount",
        p!["umount", "/usr"],
        Control::None,
        &[EPERM],
    ),
    row("st_19_chroot", p!["chroot"], RootOnly, &[EPERM]),
    row("st_19_fsopen", p!["fsopen"], RootOnly, &[EPERM]),
    row("st_19_open_tree", p!["open-tree"], RootOnly, &[EPERM]),
    row(
        "st_19_new_user_namespace",
        p!["unshare"],
        Succeeds,
        &[EPERM],
    ),
    row("st_19_join_namespace", p!["setns"], RootOnly, &[EPERM]),
    row("st_19_ptrace_own_child", p!["ptrace"], Succeeds, &[EPERM]),
    row(
        "st_19_read_process_memory",
        p!["vm-read"],
        Succeeds,
        &[EPERM],
    ),
    row(
        "st_19_keyring",
        p!["keyctl"],
        MachineMayLack("keyrings"),
        &[EPERM],
    ),
    row(
        "st_19_add_key",
        p!["add-key"],
        MachineMayLack("keyrings"),
        &[EPERM],
    ),
    row("st_19_bpf", p!["bpf"], RootOnly, &[EPERM]),
    row(
        "st_19_io_uring",
        p!["io-uring"],
        MachineMayLack("io_uring"),
        &[ENOSYS],
    ),
    row("st_19_perf", p!["perf"], RootOnly, &[EPERM]),
    row(
        "st_19_userfaultfd",
        p!["userfaultfd"],
        MachineMayLack("userfaultfd"),
        &[EPERM],
    ),
    row("st_19_clone3", p!["clone3"], Control::None, &[ENOSYS]),
    row(
        "st_19_file_handles",
        |w| vec!["name-to-handle".into(), text(&w.workspace)],
        Succeeds,
        &[EPERM],
    ),
    row("st_19_kernel_log", p!["syslog"], RootOnly, &[EPERM]),
    row(
        "st_19_second_notification_listener",
        p!["seccomp-listener"],
        Succeeds,
        &[libc::EBUSY],
    ),
    row(
        "st_19_unreviewed_call",
        p!["not-a-call", "471"],
        Control::None,
        &[ENOSYS],
    ),
    row(
        "st_19_type_into_terminal",
        p!["tiocsti"],
        MachineMayLack("dev.tty.legacy_tiocsti"),
        &[EPERM],
    ),
    // Init must stay able to watch (ST-11). Unconfined, pid 1 is the machine's own, so there is no control.
    row(
        "st_11_limits_of_init",
        p!["limit-of", "1"],
        Control::None,
        &[EPERM],
    ),
    row(
        "st_11_priority_of_init",
        p!["nice-of", "0", "1"],
        Control::None,
        &[EPERM],
    ),
    row(
        "st_11_priority_of_everyone",
        p!["nice-of", "2", "0"],
        Control::None,
        &[EPERM],
    ),
    row(
        "st_11_processor_of_init",
        p!["affinity-of", "1"],
        Control::None,
        &[EPERM],
    ),
    works("st_11_own_limits", p!["limit-of", "0"], "OK"),
    works("st_11_own_processor", p!["affinity-of", "0"], "OK"),
];
