//! What must keep working (ST-10, AT-12).

use super::Control::{self, MachineMayLack};
use super::{Inside, Row, works};
use libc::{EACCES, ENOENT, EROFS};

pub const ROWS: &[Row] = &[
    works("keeps_socket_pairs", p!["pair"], "OK xy"),
    works("keeps_shared_memory", p!["shm"], "OK").control(MachineMayLack("/dev/shm")),
    works("keeps_terminals", p!["pty"], "OK hello"),
    Row {
        control: Control::None,
        ..works(
            "keeps_private_sockets",
            p!["private-socket", "/tmp/own.sock"],
            "OK",
        )
    },
    Row {
        control: Control::None,
        ..works(
            "keeps_private_temporary_files",
            p!["create", "/tmp/file"],
            "OK",
        )
    },
    Row {
        control: Control::None,
        inside: Inside::Errno(&[EROFS, EACCES]),
        ..works("private_area_runs_nothing", p!["run", "/tmp/nothing"], "")
    }
    .errno(&[ENOENT]),
];
