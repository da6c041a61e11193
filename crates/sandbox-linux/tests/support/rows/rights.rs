//! Rights apart (SEC-INV-04, FS-04, ST-01 to ST-03, AT-07, AT-08).

use super::super::world::text;
use super::Control::{self, MachineMayLack, RootOnly, Succeeds};
use super::{Inside, Row, at, row, works};
use libc::{EACCES, EBUSY, ENOENT, EPERM, EROFS, EXDEV};

pub const ROWS: &[Row] = &[
    row(
        "st_02_write_usr",
        p!["create", "/usr/sandbox-test-must-not-exist"],
        Control::None,
        &[EROFS],
    ),
    row(
        "st_02_write_etc",
        p!["create", "/etc/sandbox-test-must-not-exist"],
        Control::None,
        &[EROFS],
    ),
    row(
        "st_02_write_into_the_root",
        p!["create", "/sandbox-test-must-not-exist"],
        Control::None,
        &[EROFS],
    ),
    row(
        "st_02_change_passwd",
        p!["append", "/etc/passwd"],
        RootOnly,
        &[EROFS, EACCES],
    ),
    row(
        "st_01_create_without_write",
        |w| vec!["create".into(), at(&w.workspace, "new")],
        Succeeds,
        &[EROFS],
    )
    .rights("r"),
    row(
        "st_01_append_without_write",
        |w| vec!["append".into(), at(&w.workspace, "keep")],
        Succeeds,
        &[EROFS],
    )
    .rights("r"),
    row(
        "st_01_truncate_without_write",
        |w| vec!["truncate".into(), at(&w.workspace, "keep")],
        Succeeds,
        &[EROFS],
    )
    .rights("r"),
    row(
        "st_01_chmod_without_write",
        |w| vec!["chmod".into(), at(&w.workspace, "keep")],
        Succeeds,
        &[EROFS],
    )
    .rights("r"),
    row(
        "st_02_unlink_without_write",
        |w| vec!["unlink".into(), at(&w.workspace, "keep")],
        Succeeds,
        &[EROFS],
    )
    .rights("r"),
    row(
        "fs_04_delete_without_delete",
        |w| vec!["unlink".into(), at(&w.workspace, "keep")],
        Succeeds,
        &[EACCES],
    )
    .rights("rw"),
    row(
        "fs_04_rename_without_delete",
        |w| {
            vec![
                "rename".into(),
                at(&w.workspace, "keep"),
                at(&w.workspace, "kept"),
            ]
        },
        Succeeds,
        &[EACCES],
    )
    .rights("rw"),
    works(
        "fs_04_create_with_write",
        |w| vec!["create".into(), at(&w.workspace, "new")],
        "OK",
    )
    .rights("rw"),
    works(
        "fs_04_append_with_write",
        |w| vec!["append".into(), at(&w.workspace, "keep")],
        "OK",
    )
    .rights("rw"),
    works(
        "fs_04_delete_with_delete",
        |w| vec!["unlink".into(), at(&w.workspace, "keep")],
        "OK",
    ),
    works(
        "st_01_read",
        |w| vec!["read".into(), at(&w.workspace, "keep")],
        "OK kept",
    )
    .rights("r"),
    row(
        "fs_04_execute_without_execute",
        |w| vec!["run".into(), at(&w.workspace, "program")],
        Succeeds,
        &[EACCES],
    ),
    row(
        "fs_04_script_without_execute",
        |w| vec!["run".into(), at(&w.workspace, "script")],
        Succeeds,
        &[EACCES],
    ),
    works(
        "st_04_execute_with_execute",
        |w| vec!["run".into(), at(&w.workspace, "program")],
        "OK ExitStatus(unix_wait_status(0))",
    )
    .rights("rwdx"),
    row("st_20_memory_file", p!["memfd-exec"], Succeeds, &[EACCES]),
    row(
        "st_20_memory_file_sealed",
        p!["memfd", "8"],
        MachineMayLack("MFD_NOEXEC_SEAL"),
        &[EACCES],
    ),
    Row {
        // The loader maps the file as code; the mount forbids that, and the loader ends with 127.
        inside: Inside::Line(|line| line.starts_with("OK ExitStatus(unix_wait_status(32512))")),
        ..row(
            "st_20_dynamic_loader",
            |w| vec!["run".into(), loader().into(), at(&w.workspace, "program")],
            Succeeds,
            &[],
        )
    },
    row(
        "st_03_device_node",
        |w| vec!["mknod".into(), at(&w.workspace, "node")],
        RootOnly,
        &[EPERM, EACCES],
    ),
    row(
        "st_03_rename_the_root_itself",
        |w| {
            vec![
                "rename".into(),
                text(&w.workspace),
                at(&w.outside, "moved-ws"),
            ]
        },
        Succeeds,
        &[EROFS, EBUSY, EXDEV, ENOENT, EACCES],
    ),
    row(
        "sec_inv_10_set_user_id",
        |w| vec!["set-id".into(), at(&w.workspace, "keep"), "4755".into()],
        Succeeds,
        &[EPERM],
    ),
    row(
        "sec_inv_10_set_group_id",
        |w| vec!["set-id".into(), at(&w.workspace, "keep"), "2755".into()],
        Succeeds,
        &[EPERM],
    ),
    row(
        "sec_inv_10_create_set_user_id",
        |w| vec!["create-set-id".into(), at(&w.workspace, "new")],
        Succeeds,
        &[EPERM],
    ),
];

fn loader() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        "/lib64/ld-linux-x86-64.so.2"
    } else {
        "/lib/ld-linux-aarch64.so.1"
    }
}
