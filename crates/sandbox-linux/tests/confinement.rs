//! The escape matrix: attack × (one-shot, standing), each with its control unconfined and the exact errno confined.
//!
//! SEC-INV-03, SEC-INV-04, SEC-INV-06, SEC-INV-08, SEC-INV-10; ST-01 to ST-03, ST-05, ST-06, ST-10, ST-12, ST-19, ST-20; FS-03, FS-04;
//! AT-07, AT-08, AT-10. Runs as root and as an ordinary user; what one of them cannot try is a typed skip.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test with a main of its own: it may fail, connect and print"
)]

mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use support::world::{World, text, world};
use support::{Spec, WAYS, Way, confined, once_command, this_program};

/// What must happen inside.
enum Inside {
    /// Exactly one of these error numbers.
    Errno(&'static [i32]),
    /// It works, and the line starts so.
    Works(&'static str),
    /// The program is ended by this signal or cannot be started.
    Line(fn(&str) -> bool),
}

/// Whether the same probe must succeed unconfined.
#[derive(Clone, Copy, PartialEq)]
enum Control {
    /// It must: else the row proves nothing and fails.
    Succeeds,
    /// Only for the host's root; others skip the row's control.
    RootOnly,
    /// The machine may lack it.
    MachineMayLack(&'static str),
    /// The probe only reports; there is nothing to compare.
    None,
}

struct Row {
    name: &'static str,
    rights: &'static str,
    private_network: bool,
    probe: fn(&World) -> Vec<String>,
    control: Control,
    inside: Inside,
}

const fn row(
    name: &'static str,
    probe: fn(&World) -> Vec<String>,
    control: Control,
    errno: &'static [i32],
) -> Row {
    Row {
        name,
        rights: "rwd",
        private_network: false,
        probe,
        control,
        inside: Inside::Errno(errno),
    }
}

const fn works(name: &'static str, probe: fn(&World) -> Vec<String>, start: &'static str) -> Row {
    Row {
        name,
        rights: "rwd",
        private_network: false,
        probe,
        control: Control::Succeeds,
        inside: Inside::Works(start),
    }
}

impl Row {
    const fn rights(self, rights: &'static str) -> Self {
        Row { rights, ..self }
    }
    const fn private(self) -> Self {
        Row {
            private_network: true,
            ..self
        }
    }
    const fn control(self, control: Control) -> Self {
        Row { control, ..self }
    }
}

macro_rules! p {
    ($($word:expr),*) => { |_| vec![$($word.to_string()),*] };
}

fn at(directory: &Path, rest: &str) -> String {
    text(&directory.join(rest))
}

use Control::{MachineMayLack, RootOnly, Succeeds};
use libc::{
    EACCES, EAFNOSUPPORT, EBADF, EBUSY, ECONNREFUSED, ENOENT, ENOSYS, EPERM, EPROTONOSUPPORT,
    EROFS, ESRCH, EXDEV,
};

const ROWS: &[Row] = &[
    // The view (SEC-INV-03, FS-03, ST-05, ST-06).
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
        &[ENOENT],
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
    // Rights apart (SEC-INV-04, FS-04, ST-01 to ST-03, AT-07, AT-08).
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
    // The kernel (ST-19).
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
    // Network none (SEC-INV-06, ST-12, AT-10).
    row(
        "sec_inv_06_tcp",
        |w| vec!["tcp".into(), format!("127.0.0.1:{}", w.tcp)],
        Succeeds,
        &[EACCES],
    ),
    row(
        "sec_inv_06_tcp_mapped",
        |w| vec!["tcp".into(), format!("[::ffff:127.0.0.1]:{}", w.tcp)],
        MachineMayLack("IPv6"),
        &[EACCES],
    ),
    row(
        "sec_inv_06_udp",
        |w| vec!["udp".into(), format!("127.0.0.1:{}", w.udp)],
        Succeeds,
        &[EACCES],
    ),
    row(
        "sec_inv_06_own_loopback_too",
        p!["loopback"],
        Succeeds,
        &[EACCES],
    ),
    row(
        "sec_inv_06_mptcp",
        p!["socket", libc::AF_INET, libc::SOCK_STREAM, 262],
        MachineMayLack("MPTCP"),
        &[EACCES],
    ),
    row(
        "sec_inv_06_icmp",
        p!["socket", libc::AF_INET, libc::SOCK_RAW, 1],
        RootOnly,
        &[EACCES],
    ),
    row(
        "sec_inv_06_netlink",
        p!["socket", libc::AF_NETLINK, libc::SOCK_RAW, 0],
        Succeeds,
        &[EAFNOSUPPORT],
    ),
    row(
        "sec_inv_06_vsock",
        p!["socket", libc::AF_VSOCK, libc::SOCK_STREAM, 0],
        MachineMayLack("vsock"),
        &[EAFNOSUPPORT],
    ),
    row(
        "sec_inv_06_packet",
        p!["socket", libc::AF_PACKET, libc::SOCK_RAW, 0],
        RootOnly,
        &[EAFNOSUPPORT],
    ),
    row(
        "sec_inv_06_alg",
        p!["socket", libc::AF_ALG, libc::SOCK_SEQPACKET, 0],
        MachineMayLack("AF_ALG"),
        &[EAFNOSUPPORT],
    ),
    row(
        "sec_inv_06_unix_datagram",
        p!["socket", libc::AF_UNIX, libc::SOCK_DGRAM, 0],
        Succeeds,
        &[EPERM],
    ),
    row(
        "sec_inv_06_unix_datagram_pair",
        p!["pair-of", libc::AF_UNIX, libc::SOCK_DGRAM],
        Succeeds,
        &[EPERM],
    ),
    row(
        "sec_inv_06_unix_socket_outside",
        |w| vec!["unix".into(), at(&w.outside, "stream.sock")],
        Succeeds,
        &[ENOENT],
    ),
    row(
        "sec_inv_06_host_socket_in_the_workspace",
        |w| vec!["unix".into(), at(&w.workspace, "host.sock")],
        Succeeds,
        &[EACCES],
    ),
    row(
        "sec_inv_06_host_socket_by_magic_link",
        |w| {
            vec![
                "unix".into(),
                format!("/proc/self/root{}", at(&w.workspace, "host.sock")),
            ]
        },
        Succeeds,
        &[EACCES],
    ),
    row(
        "sec_inv_06_new_socket_in_the_workspace",
        |w| vec!["private-socket".into(), at(&w.workspace, "own.sock")],
        Succeeds,
        &[EACCES],
    ),
    // Network private: the own loopback works, nothing else does.
    works("x_net_private_loopback", p!["loopback"], "OK").private(),
    row(
        "x_net_private_host_loopback",
        |w| vec!["tcp".into(), format!("127.0.0.1:{}", w.tcp)],
        Succeeds,
        &[ECONNREFUSED],
    )
    .private(),
    row(
        "x_net_private_no_route",
        p!["tcp", "10.1.2.3:80"],
        Control::None,
        &[libc::ENETUNREACH],
    )
    .private(),
    row(
        "x_net_private_udp",
        |w| vec!["udp".into(), format!("127.0.0.1:{}", w.udp)],
        Succeeds,
        &[EACCES],
    )
    .private(),
    row(
        "x_net_private_mptcp",
        p!["socket", libc::AF_INET, libc::SOCK_STREAM, 262],
        MachineMayLack("MPTCP"),
        &[EPROTONOSUPPORT],
    )
    .private(),
    // What must keep working (ST-10, AT-12).
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

impl Row {
    const fn errno(self, errno: &'static [i32]) -> Self {
        Row {
            inside: Inside::Errno(errno),
            ..self
        }
    }
}

fn loader() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        "/lib64/ld-linux-x86-64.so.2"
    } else {
        "/lib/ld-linux-aarch64.so.1"
    }
}

fn probe_argv(words: &[String]) -> Vec<String> {
    let mut argv = vec![text(&this_program()), "--probe".into()];
    argv.extend(words.iter().cloned());
    argv
}

fn first_line(stdout: &str) -> String {
    stdout.lines().next().unwrap_or("").to_owned()
}

/// The probe without any sandbox.
fn unconfined(words: &[String]) -> String {
    let argv = probe_argv(words);
    let output = Command::new(&argv[0])
        .args(&argv[1..])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    first_line(&String::from_utf8_lossy(&output.stdout))
}

fn check(row: &Row, way: Way) -> Result<(), Failed> {
    // The confined run comes first: the control may change the world it looks at.
    let confined_world = world();
    let words = (row.probe)(&confined_world);
    let mut spec = Spec::new(&confined_world.workspace, row.rights);
    spec.private_network = row.private_network;
    let argv = probe_argv(&words);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let ran = confined(way, &spec, &argv);
    let line = first_line(&ran.stdout);
    let fine = match &row.inside {
        Inside::Errno(list) => list.iter().any(|errno| line == format!("ERRNO {errno}")),
        Inside::Works(start) => line.starts_with(start),
        Inside::Line(judge) => judge(&line),
    };
    if !fine {
        return Err(format!("confined {words:?}: {line:?} ({ran:?})").into());
    }
    drop(confined_world);
    let control_world = world();
    let control = match row.control {
        Control::None => return Ok(()),
        Control::RootOnly if !support::is_root() => {
            eprintln!("{}: control skipped, needs: root", row.name);
            return Ok(());
        }
        _ => unconfined(&(row.probe)(&control_world)),
    };
    match (row.control, control.starts_with("OK")) {
        (_, true) => Ok(()),
        (MachineMayLack(what), false) => {
            eprintln!("{}: control skipped, needs: {what} ({control})", row.name);
            Ok(())
        }
        (_, false) => Err(format!("the control was refused too: {control}").into()),
    }
}

/// Descriptors that a careless parent leaves open (SEC-INV-03): a file, a high number, an `O_PATH` of `/`.
fn inherited_descriptors(way: Way) -> Result<(), Failed> {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let secret = std::fs::File::open(world.outside.join("secret"))?;
    let root = rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())?;
    // High numbers that nobody else takes meanwhile.
    let top = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(1024) as i32;
    let numbers = [top - 9, top - 5, top - 7];
    let leak = |fd: i32, number: i32| {
        // SAFETY: the numbers are nobody's; without close-on-exec on purpose.
        let made = unsafe { libc::dup2(fd, number) };
        assert_eq!(made, number, "{}", std::io::Error::last_os_error());
    };
    let _lock = LEAK
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    leak(secret.as_raw_fd(), numbers[0]);
    leak(secret.as_raw_fd(), numbers[1]);
    leak(root.as_raw_fd(), numbers[2]);
    let names = numbers.map(|number| number.to_string());
    let probe = text(&this_program());
    let control = unconfined(&["fd-open".into(), names[2].clone()]);
    let lines: Vec<String> = [
        ["fd", &names[0]],
        ["fd", &names[1]],
        ["fd-open", &names[2]],
        ["fds", ""],
    ]
    .iter()
    .map(|words| first_line(&confined(way, &spec, &[&probe, "--probe", words[0], words[1]]).stdout))
    .collect();
    for number in numbers {
        // SAFETY: our own numbers from above.
        drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) });
    }
    assert!(control.starts_with("OK"), "control: {control}");
    let closed = format!("ERRNO {EBADF}");
    assert_eq!(
        lines,
        [closed.clone(), closed.clone(), closed, "OK []".into()]
    );
    Ok(())
}

static LEAK: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// SEC-INV-08: only the table and the policy's own variables.
fn environment_is_a_table(way: Way) -> Result<(), Failed> {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "r");
    spec.environment.push(("GIVEN".into(), "yes".into()));
    let probe = text(&this_program());
    let line = match way {
        Way::Once => {
            let output = once_command(&spec, &[&probe, "--probe", "environment"])
                .env("SECRET_TOKEN", "s3cret")
                .env("LD_PRELOAD_LIKE", "x")
                .env("TZ", "$(bad)")
                .env("LANG", "ja_JP.UTF-8")
                .output()?;
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Way::Standing => confined(way, &spec, &[&probe, "--probe", "environment"]).stdout,
    };
    let names: Vec<&str> = line
        .trim()
        .trim_start_matches("OK ")
        .split(';')
        .filter_map(|pair| Some(pair.split_once('=')?.0))
        .collect();
    let known = [
        "GIVEN", "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TERM", "TMPDIR", "TZ", "USER",
    ];
    assert!(names.iter().all(|name| known.contains(name)), "{line}");
    assert!(
        line.contains("GIVEN=yes") && line.contains("HOME=/tmp/.home"),
        "{line}"
    );
    if way == Way::Once {
        assert!(
            line.contains("LANG=ja_JP.UTF-8") && !line.contains("bad"),
            "{line}"
        );
    }
    Ok(())
}

/// SEC-INV-04: our own files inside a granted root can be neither read, changed, replaced nor moved away.
fn own_files_are_masked(way: Way) -> Result<(), Failed> {
    let world = world();
    let own = world.workspace.join("conf/deep");
    std::fs::create_dir_all(own.join("state"))?;
    std::fs::write(own.join("agent.yaml"), "secret: 1")?;
    std::fs::write(own.join("state/key"), "k")?;
    let mut spec = Spec::new(&world.workspace, "rwd");
    spec.own_files = vec![own.join("agent.yaml"), own.join("state")];
    let yaml = text(&own.join("agent.yaml"));
    let key = text(&own.join("state/key"));
    let (conf, moved) = (at(&world.workspace, "conf"), at(&world.workspace, "moved"));
    let probe = text(&this_program());
    for (words, wanted) in [
        (vec!["read", &yaml], EACCES),
        (vec!["append", &yaml], EROFS),
        (vec!["chmod", &yaml], EROFS),
        (vec!["unlink", &yaml], EBUSY),
        (vec!["read", &key], EACCES),
        (vec!["rename", &conf, &moved], EBUSY),
        (vec!["exchange", &conf, &at(&world.workspace, "sub")], EBUSY),
    ] {
        let mut argv = vec![probe.as_str(), "--probe"];
        argv.extend(words.iter().copied());
        let line = first_line(&confined(way, &spec, &argv).stdout);
        let also = if wanted == EROFS { EACCES } else { wanted };
        assert!(
            line == format!("ERRNO {wanted}") || line == format!("ERRNO {also}"),
            "{words:?}: {line}"
        );
    }
    assert_eq!(
        std::fs::read_to_string(own.join("agent.yaml"))?,
        "secret: 1"
    );
    Ok(())
}

/// X-PROTECT: hooks and configuration of every repository, at any depth, and no way around by renaming.
fn repositories_are_protected(way: Way) -> Result<(), Failed> {
    let world = world();
    for repository in ["", "sub/nested"] {
        let git = world.workspace.join(repository).join(".git");
        std::fs::create_dir_all(git.join("hooks"))?;
        std::fs::create_dir_all(git.join("objects"))?;
        std::fs::write(git.join("config"), "[core]\n")?;
    }
    let before = listing(&world.workspace);
    let spec = Spec::new(&world.workspace, "rwd");
    let ws = |rest: &str| at(&world.workspace, rest);
    let probe = text(&this_program());
    for (words, wanted) in [
        (vec!["read".to_owned(), ws(".git/config")], None),
        (
            vec!["append".to_owned(), ws(".git/config")],
            Some(vec![EROFS]),
        ),
        (
            vec!["create".to_owned(), ws(".git/hooks/pre-commit")],
            Some(vec![EROFS]),
        ),
        (
            vec!["append".to_owned(), ws("sub/nested/.git/config")],
            Some(vec![EROFS]),
        ),
        (
            vec!["create".to_owned(), ws("sub/nested/.git/hooks/x")],
            Some(vec![EROFS]),
        ),
        (
            vec!["rename".to_owned(), ws(".git"), ws("elsewhere")],
            Some(vec![EBUSY]),
        ),
        (
            vec!["rename".to_owned(), ws("sub"), ws("elsewhere")],
            Some(vec![EBUSY]),
        ),
        (
            vec!["exchange".to_owned(), ws(".git"), ws("sub")],
            Some(vec![EBUSY]),
        ),
        (
            vec!["rename".to_owned(), ws("keep"), ws(".git/config")],
            Some(vec![EBUSY, EXDEV]),
        ),
        (
            vec!["unlink".to_owned(), ws(".git/config")],
            Some(vec![EBUSY]),
        ),
        (vec!["create".to_owned(), ws(".git/objects/new")], None),
    ] {
        let mut argv = vec![probe.clone(), "--probe".into()];
        argv.extend(words.iter().cloned());
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let line = first_line(&confined(way, &spec, &argv).stdout);
        let fine = match &wanted {
            None => line.starts_with("OK"),
            Some(list) => list.iter().any(|errno| line == format!("ERRNO {errno}")),
        };
        assert!(fine, "{words:?}: {line}");
    }
    std::fs::remove_file(world.workspace.join(".git/objects/new"))?;
    assert_eq!(
        listing(&world.workspace),
        before,
        "something was left in the workspace"
    );
    Ok(())
}

fn listing(directory: &Path) -> Vec<String> {
    let output = Command::new("find").arg(directory).output().unwrap();
    let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(Into::into)
        .collect();
    lines.sort();
    lines
}

/// A workspace below `/tmp` moves the private area, because Landlock's grants add up along a path.
fn workspace_below_tmp(way: Way) -> Result<(), Failed> {
    let directory = tempfile::Builder::new()
        .prefix("sandbox-test-")
        .tempdir_in("/tmp")?;
    let workspace = directory.path().canonicalize()?;
    std::fs::write(workspace.join("keep"), "kept")?;
    let spec = Spec::new(&workspace, "rw");
    let probe = text(&this_program());
    let keep = at(&workspace, "keep");
    let unlink = confined(way, &spec, &[&probe, "--probe", "unlink", &keep]);
    assert_eq!(first_line(&unlink.stdout), format!("ERRNO {EACCES}"));
    let environment = confined(way, &spec, &[&probe, "--probe", "environment"]).stdout;
    assert!(environment.contains("TMPDIR=/run/private"), "{environment}");
    let made = confined(way, &spec, &[&probe, "--probe", "create", "/run/private/x"]);
    assert_eq!(first_line(&made.stdout), "OK ");
    Ok(())
}

/// The network of the host is invisible, init's included.
fn no_host_connections_in_proc(way: Way) -> Result<(), Failed> {
    let world = world();
    let spec = Spec::new(&world.workspace, "r");
    let probe = text(&this_program());
    let port = format!(":{:04X} ", world.tcp);
    for path in ["/proc/net/tcp", "/proc/1/net/tcp", "/proc/2/net/tcp"] {
        let line = confined(way, &spec, &[&probe, "--probe", "read", path]).stdout;
        assert!(!line.contains(&port), "{path}: {line}");
    }
    let control = std::fs::read_to_string("/proc/net/tcp")?;
    assert!(control.contains(&port));
    Ok(())
}

/// DESIGN §10.5: the private area is limited, also in the number of files.
fn private_area_is_limited(way: Way) -> Result<(), Failed> {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "r");
    spec.private_mb = 4;
    let script = "head -c 10000000 /dev/zero > /tmp/big; stat -c %s /tmp/big; rm /tmp/big; \
        i=0; while echo > /tmp/f$i; do i=$((i+1)); [ $i -gt 3000 ] && break; done 2>/dev/null; echo $i";
    let out = confined(way, &spec, &["/bin/sh", "-c", script]).stdout;
    let numbers: Vec<u64> = out.lines().map(|line| line.parse().unwrap()).collect();
    assert!(numbers[0] <= 4 << 20 && numbers[1] <= 1024, "{out}");
    Ok(())
}

type Test = fn(Way) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("sec_inv_03_inherited_descriptors", inherited_descriptors),
    ("sec_inv_08_environment_is_a_table", environment_is_a_table),
    ("sec_inv_04_own_files_are_masked", own_files_are_masked),
    ("x_protect_repositories", repositories_are_protected),
    ("workspace_below_tmp", workspace_below_tmp),
    (
        "sec_inv_06_no_host_connections_in_proc",
        no_host_connections_in_proc,
    ),
    ("private_area_is_limited", private_area_is_limited),
];

fn main() -> ExitCode {
    support::take_over();
    let mut trials = Vec::new();
    for way in WAYS {
        for row in ROWS {
            trials.push(Trial::test(format!("{way:?}::{}", row.name), move || {
                check(row, way)
            }));
        }
        for (name, test) in TESTS {
            trials.push(Trial::test(format!("{way:?}::{name}"), move || test(way)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
