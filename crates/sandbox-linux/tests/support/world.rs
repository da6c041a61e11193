//! A host worth attacking: a workspace, secrets outside of it, listeners, a canary process.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub struct World {
    _directory: tempfile::TempDir,
    pub workspace: PathBuf,
    pub outside: PathBuf,
    pub tcp: u16,
    pub udp: u16,
    pub canary: Child,
    _keep: (UnixListener, UnixDatagram, fs::File),
}

impl Drop for World {
    fn drop(&mut self) {
        self.canary.kill().unwrap();
        self.canary.wait().unwrap();
    }
}

pub fn world() -> World {
    let directory = super::temporary();
    let base = directory.path().canonicalize().unwrap();
    let (workspace, outside) = (base.join("ws"), base.join("out"));
    fs::create_dir(&workspace).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "HOSTSECRET").unwrap();
    fs::write(outside.join("movable"), "x").unwrap();
    fs::write(workspace.join("keep"), "kept").unwrap();
    fs::create_dir(workspace.join("sub")).unwrap();
    std::os::unix::fs::symlink(outside.join("secret"), workspace.join("link")).unwrap();
    std::os::unix::fs::symlink("../out", workspace.join("out-link")).unwrap();
    super::write_program(&workspace.join("program"), &fs::read("/bin/true").unwrap());
    super::write_program(&workspace.join("script"), b"#!/bin/sh\nexit 0\n");
    let fifo = std::ffi::CString::new(text(&outside.join("fifo"))).unwrap();
    // SAFETY: a path of our own.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o666) }, 0);
    let fifo = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(outside.join("fifo"))
        .unwrap();
    let stream = UnixListener::bind(outside.join("stream.sock")).unwrap();
    let inside = UnixListener::bind(workspace.join("host.sock")).unwrap();
    let datagram = UnixDatagram::bind(outside.join("dgram.sock")).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = abstract_name(tcp.local_addr().unwrap().port());
    let unnamed = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let unnamed = UnixListener::bind_addr(&unnamed).unwrap();
    for listener in [stream.try_clone().unwrap(), inside, unnamed] {
        std::thread::spawn(move || answer_unix(&listener));
    }
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (tcp_port, udp_port) = (
        tcp.local_addr().unwrap().port(),
        udp.local_addr().unwrap().port(),
    );
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = tcp.accept() {
            // A client that went away is no matter.
            let _gone = stream.write_all(b"HOST");
        }
    });
    std::thread::spawn(move || {
        let mut buffer = [0u8; 64];
        while let Ok((_, from)) = udp.recv_from(&mut buffer) {
            let _gone = udp.send_to(b"HOST", from);
        }
    });
    let canary = Command::new("/bin/sleep")
        .arg("600")
        .env("CANARY_SECRET", "CANARY")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    World {
        _directory: directory,
        workspace,
        outside,
        tcp: tcp_port,
        udp: udp_port,
        canary,
        _keep: (stream, datagram, fifo),
    }
}

/// The listener without a path, named after the world's own port.
pub fn abstract_name(port: u16) -> String {
    format!("agent-mcp-test-{port}")
}

fn answer_unix(listener: &UnixListener) {
    while let Ok((mut stream, _)) = listener.accept() {
        let _gone = stream.write_all(b"HOST");
        let _ended = stream.read(&mut [0u8; 1]);
    }
}

/// Whether a process whose command line holds this text is alive (bounded, no signal sent).
pub fn is_alive(text: &str) -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let name = entry.file_name();
        name.to_string_lossy()
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            && fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(text))
    })
}

/// Waits until the condition holds, at most ten seconds.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

pub fn text(path: &Path) -> String {
    path.display().to_string()
}
