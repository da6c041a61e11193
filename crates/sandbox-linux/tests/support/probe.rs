//! The probe: tries one thing and prints `OK …` or `ERRNO n`. The same program runs unconfined as the control.

use std::ffi::CString;
use std::io::{Error, Read as _, Write as _};
use std::net::{TcpStream as Tcp, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub type Tried = Result<String, Error>;

pub fn main(arguments: &[String]) -> ! {
    let (what, rest) = arguments.split_first().unwrap();
    let argument = |index: usize| rest.get(index).map_or("", String::as_str);
    let line = match attempt(what, &argument) {
        Ok(detail) => format!("OK {detail}"),
        Err(error) => match error.raw_os_error() {
            Some(errno) => format!("ERRNO {errno}"),
            None => format!("ERROR {error}"),
        },
    };
    // The assertion is about this line, so a failed write shows.
    let _written = writeln!(std::io::stdout(), "{line}");
    std::process::exit(0)
}

pub fn check(answer: i64) -> Tried {
    if answer < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(answer.to_string())
    }
}

pub fn call(number: libc::c_long, arguments: [i64; 6]) -> Tried {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the probe only passes numbers, and pointers to its own buffers.
    check(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}

pub fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

pub fn pointer(text: &CString) -> i64 {
    text.as_ptr() as i64
}

pub fn done<T>(result: Result<T, Error>) -> Tried {
    result.map(|_| String::new())
}

fn attempt<'a>(what: &str, argument: &dyn Fn(usize) -> &'a str) -> Tried {
    let path = argument(0);
    if let Some(tried) = super::probe_more::attempt(what, argument) {
        return tried;
    }
    let number = |index: usize| argument(index).parse::<i64>().unwrap();
    match what {
        "read" => std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        "list" => done(std::fs::read_dir(path)),
        "stat" => done(std::fs::symlink_metadata(path)),
        "create" => done(
            std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(path),
        ),
        "append" => done(std::fs::OpenOptions::new().append(true).open(path)),
        "rewrite" => {
            let before = std::fs::read(path)?;
            let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
            done(file.write_all(&before))
        }
        "truncate" => call(libc::SYS_truncate, [pointer(&c(path)), 0, 0, 0, 0, 0]),
        "truncate-by-open" => {
            let flags = i64::from(libc::O_RDONLY | libc::O_TRUNC);
            let file = c(path);
            call(
                libc::SYS_openat,
                [i64::from(libc::AT_FDCWD), pointer(&file), flags, 0, 0, 0],
            )
        }
        "unlink" => done(std::fs::remove_file(path)),
        "mkdir" => done(std::fs::create_dir(path)),
        "rename" => done(std::fs::rename(path, argument(1))),
        "exchange" => call(
            libc::SYS_renameat2,
            [
                i64::from(libc::AT_FDCWD),
                pointer(&c(path)),
                i64::from(libc::AT_FDCWD),
                pointer(&c(argument(1))),
                2,
                0,
            ],
        ),
        "link" => done(std::fs::hard_link(path, argument(1))),
        "chmod" => {
            use std::os::unix::fs::PermissionsExt as _;
            done(std::fs::set_permissions(
                path,
                std::fs::Permissions::from_mode(0o777),
            ))
        }
        "set-id" => {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = u32::from_str_radix(argument(1), 8).unwrap();
            done(std::fs::set_permissions(
                path,
                std::fs::Permissions::from_mode(mode),
            ))
        }
        "create-set-id" => {
            use std::os::unix::fs::OpenOptionsExt as _;
            done(
                std::fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o4755)
                    .open(path),
            )
        }
        "mknod" => call(
            libc::SYS_mknodat,
            [
                i64::from(libc::AT_FDCWD),
                pointer(&c(path)),
                i64::from(libc::S_IFCHR | 0o600),
                0x103,
                0,
                0,
            ],
        ),
        "run" => {
            let mut command = std::process::Command::new(path);
            (1..9)
                .map(argument)
                .filter(|text| !text.is_empty())
                .for_each(|text| {
                    command.arg(text);
                });
            command.status().map(|status| format!("{status:?}"))
        }
        "fd" => call(
            libc::SYS_fcntl,
            [number(0), i64::from(libc::F_GETFD), 0, 0, 0, 0],
        ),
        "fd-open" => call(
            libc::SYS_openat,
            [number(0), pointer(&c("etc/passwd")), 0, 0, 0, 0],
        ),
        "fds" => {
            let mut open: Vec<i32> = (0..65_536)
                // SAFETY: asking for flags changes nothing.
                .filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0)
                .collect();
            open.retain(|fd| *fd > 2);
            Ok(format!("{open:?}"))
        }
        "environment" => {
            let mut lines: Vec<String> = std::env::vars()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            lines.sort();
            Ok(lines.join(";"))
        }
        "memfd-exec" => memory_file_runs(),
        "tiocsti" => type_into_terminal(),
        "keep-going" => {
            // SAFETY: ignoring a signal in our own process.
            unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        "forks" => forks(number(0)),
        "hog" => {
            let mut held: Vec<Vec<u8>> = Vec::new();
            for _ in 0..number(0) {
                held.push(vec![1u8; 1 << 20]);
            }
            Ok(format!("{} MiB", held.len()))
        }
        "hog-hidden" => {
            // SAFETY: our own process.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
            let held: Vec<Vec<u8>> = (0..number(0)).map(|_| vec![1u8; 1 << 20]).collect();
            Ok(format!("{} MiB", held.len()))
        }
        "hog-and-stay" => {
            let held: Vec<Vec<u8>> = (0..number(0)).map(|_| vec![1u8; 1 << 20]).collect();
            std::thread::sleep(Duration::from_secs(20));
            Ok(format!("{} MiB", held.len()))
        }
        "hog-file" => {
            // A removed file: in no directory and no process's account.
            let file = std::fs::File::create("/tmp/hog")?;
            std::fs::remove_file("/tmp/hog")?;
            fill_and_stay(file, number(0))
        }
        "hog-memfd" => {
            // SAFETY: a new descriptor of ours.
            let fd = unsafe { libc::memfd_create(c"hog".as_ptr(), 0) };
            check(i64::from(fd))?;
            // SAFETY: just made.
            fill_and_stay(
                std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) }),
                number(0),
            )
        }
        "hog-segment" => {
            let bytes = (number(0) as usize) << 20;
            // SAFETY: a segment of our own, detached again after it was filled.
            unsafe {
                let id = libc::shmget(libc::IPC_PRIVATE, bytes, libc::IPC_CREAT | 0o600);
                check(i64::from(id))?;
                let at = libc::shmat(id, std::ptr::null(), 0);
                std::ptr::write_bytes(at.cast::<u8>(), 1, bytes);
                libc::shmdt(at);
            }
            stay(number(0))
        }
        "pty" => pty(),
        "shm" => {
            let name = c("/sandbox-test");
            // SAFETY: a name of our own; the descriptor is closed at exit.
            let fd = unsafe { libc::shm_open(name.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600) };
            check(i64::from(fd))
        }
        "pair" => {
            let (mut one, mut other) = UnixStream::pair()?;
            // SAFETY: our own buffers; no address.
            check(unsafe { libc::send(one.as_raw_fd(), c"x".as_ptr().cast(), 1, 0) as i64 })?;
            one.write_all(b"y")?;
            let mut two = [0u8; 2];
            other.read_exact(&mut two)?;
            Ok(String::from_utf8_lossy(&two).into())
        }
        "private-socket" => private_socket(argument(0)),
        "limit-of" => {
            let mut limits = [0u64; 2];
            let resource = i64::from(libc::RLIMIT_CORE);
            call(
                libc::SYS_prlimit64,
                [number(0), resource, 0, limits.as_mut_ptr() as i64, 0, 0],
            )
        }
        "nice-of" => call(libc::SYS_setpriority, [number(0), number(1), 19, 0, 0, 0]),
        "affinity-of" => {
            let mut set = [u64::MAX; 16];
            call(
                libc::SYS_sched_setaffinity,
                [number(0), 128, set.as_mut_ptr() as i64, 0, 0, 0],
            )
        }
        "kill-0" => call(libc::SYS_kill, [number(0), 0, 0, 0, 0, 0]),
        _ => network(what, argument).or_else(|error| {
            if error.kind() == std::io::ErrorKind::Unsupported {
                kernel(what, argument)
            } else {
                Err(error)
            }
        }),
    }
}

fn network<'a>(what: &str, argument: &dyn Fn(usize) -> &'a str) -> Tried {
    let number = |index: usize| argument(index).parse::<i64>().unwrap();
    let limit = Duration::from_secs(3);
    match what {
        "socket" => call(libc::SYS_socket, [number(0), number(1), number(2), 0, 0, 0]),
        "pair-of" => {
            let mut pair = [0i32; 2];
            call(
                libc::SYS_socketpair,
                [number(0), number(1), 0, pair.as_mut_ptr() as i64, 0, 0],
            )
        }
        "tcp" => {
            let mut stream = Tcp::connect(argument(0))?;
            stream.set_read_timeout(Some(limit))?;
            let mut answer = [0u8; 4];
            stream.read_exact(&mut answer)?;
            Ok(String::from_utf8_lossy(&answer).into())
        }
        "udp" => {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.set_read_timeout(Some(limit))?;
            socket.send_to(b"x", argument(0))?;
            let mut answer = [0u8; 4];
            socket.recv(&mut answer)?;
            Ok(String::from_utf8_lossy(&answer).into())
        }
        "unix" => {
            let mut stream = UnixStream::connect(argument(0))?;
            stream.set_read_timeout(Some(limit))?;
            let mut answer = [0u8; 4];
            stream.read_exact(&mut answer)?;
            Ok(String::from_utf8_lossy(&answer).into())
        }
        "abstract" => {
            use std::os::linux::net::SocketAddrExt as _;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(argument(0))?;
            done(UnixStream::connect_addr(&address))
        }
        "loopback" => {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            let client = std::thread::spawn(move || Tcp::connect(address));
            listener.accept()?;
            done(client.join().unwrap())
        }
        _ => Err(std::io::ErrorKind::Unsupported.into()),
    }
}

/// Keeps a control that may mount away from the machine; inside the sandbox it is refused, which is fine too.
pub fn own_mounts() {
    // SAFETY: changes only our own namespace, and makes our copy of the mounts private.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS);
        let nothing = std::ptr::null();
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        libc::mount(nothing, c"/".as_ptr(), nothing, flags, std::ptr::null());
    }
}

/// Calls into the kernel's dangerous corners. Harmless where they succeed: in namespaces of our own, on our own process,
/// or with arguments that ask only.
fn kernel<'a>(what: &str, argument: &dyn Fn(usize) -> &'a str) -> Tried {
    let number = |index: usize| argument(index).parse::<i64>().unwrap();
    match what {
        "mount" => {
            own_mounts();
            let kind = c("tmpfs");
            call(
                libc::SYS_mount,
                [
                    pointer(&kind),
                    pointer(&c(argument(0))),
                    pointer(&kind),
                    0,
                    0,
                    0,
                ],
            )
        }
        "umount" => {
            own_mounts();
            call(
                libc::SYS_umount2,
                [
                    pointer(&c(argument(0))),
                    i64::from(libc::MNT_DETACH),
                    0,
                    0,
                    0,
                    0,
                ],
            )
        }
        "chroot" => call(libc::SYS_chroot, [pointer(&c("/")), 0, 0, 0, 0, 0]),
        "fsopen" => call(libc::SYS_fsopen, [pointer(&c("tmpfs")), 0, 0, 0, 0, 0]),
        "open-tree" => {
            own_mounts();
            call(
                libc::SYS_open_tree,
                [i64::from(libc::AT_FDCWD), pointer(&c("/")), 1, 0, 0, 0],
            )
        }
        "unshare" => call(
            libc::SYS_unshare,
            [i64::from(libc::CLONE_NEWUSER), 0, 0, 0, 0, 0],
        ),
        "setns" => {
            let namespace = std::fs::File::open("/proc/self/ns/uts")?;
            call(
                libc::SYS_setns,
                [i64::from(namespace.as_raw_fd()), 0, 0, 0, 0, 0],
            )
        }
        "ptrace" => {
            const PTRACE_SEIZE: i64 = 0x4206;
            let mut child = std::process::Command::new("/bin/sleep").arg("5").spawn()?;
            let answer = call(
                libc::SYS_ptrace,
                [PTRACE_SEIZE, i64::from(child.id()), 0, 0, 0, 0],
            );
            child.kill()?;
            answer
        }
        "vm-read" => {
            let mut buffer = [0u8; 8];
            let local = libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: 8,
            };
            let vector = &raw const local as i64;
            call(
                libc::SYS_process_vm_readv,
                [i64::from(std::process::id()), vector, 1, vector, 1, 0],
            )
        }
        "keyctl" => call(libc::SYS_keyctl, [0, -3, 1, 0, 0, 0]),
        "add-key" => call(
            libc::SYS_add_key,
            [
                pointer(&c("user")),
                pointer(&c("x")),
                pointer(&c("y")),
                1,
                -1,
                0,
            ],
        ),
        "bpf" => {
            let mut attributes = [0u64; 16];
            // Map create: array, key 4, value 4, one entry.
            attributes[0] = 2 | 4 << 32;
            attributes[1] = 4 | 1 << 32;
            call(
                libc::SYS_bpf,
                [0, attributes.as_mut_ptr() as i64, 72, 0, 0, 0],
            )
        }
        "io-uring" => {
            let mut parameters = [0u64; 16];
            call(
                libc::SYS_io_uring_setup,
                [1, parameters.as_mut_ptr() as i64, 0, 0, 0, 0],
            )
        }
        "perf" => {
            let mut attributes = [0u64; 16];
            // Software event, size 128, CPU clock, user only.
            attributes[0] = 1 | 128 << 32;
            attributes[5] = 1 << 5 | 1 << 6;
            call(
                libc::SYS_perf_event_open,
                [attributes.as_mut_ptr() as i64, 0, -1, -1, 0, 0],
            )
        }
        "userfaultfd" => call(libc::SYS_userfaultfd, [1, 0, 0, 0, 0, 0]),
        "landlock" => call(libc::SYS_landlock_create_ruleset, [0, 0, 1, 0, 0, 0]),
        "clone3" => call(libc::SYS_clone3, [0, 0, 0, 0, 0, 0]),
        "name-to-handle" => {
            let mut handle = [0u32; 64];
            handle[0] = 128;
            let mut mount = 0i32;
            let path = c(argument(0));
            call(
                libc::SYS_name_to_handle_at,
                [
                    i64::from(libc::AT_FDCWD),
                    pointer(&path),
                    handle.as_mut_ptr() as i64,
                    &raw mut mount as i64,
                    0,
                    0,
                ],
            )
        }
        "syslog" => call(libc::SYS_syslog, [10, 0, 0, 0, 0, 0]),
        "memfd" => call(
            libc::SYS_memfd_create,
            [pointer(&c("x")), number(0), 0, 0, 0, 0],
        ),
        "seccomp-listener" => {
            let program = [libc::sock_filter {
                code: 6,
                jt: 0,
                jf: 0,
                k: 0x7fff_0000,
            }];
            let filter = libc::sock_fprog {
                len: 1,
                filter: program.as_ptr().cast_mut(),
            };
            // SAFETY: our own process.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            call(libc::SYS_seccomp, [1, 8, &raw const filter as i64, 0, 0, 0])
        }
        "not-a-call" => call(number(0), [0; 6]),
        other => panic!("no probe {other}"),
    }
}

fn fill_and_stay(mut file: std::fs::File, mib: i64) -> Tried {
    for _ in 0..mib {
        file.write_all(&[1u8; 1 << 20])?;
    }
    let answer = stay(mib);
    drop(file);
    answer
}

/// Long enough for any watcher to have looked several times.
fn stay(mib: i64) -> Tried {
    std::thread::sleep(Duration::from_millis(300));
    Ok(format!("{mib} MiB"))
}

fn memory_file_runs() -> Tried {
    let name = c("x");
    // SAFETY: a name of our own; the descriptor is ours.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), 0) };
    check(i64::from(fd))?;
    // SAFETY: just made.
    let mut file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(&std::fs::read("/bin/true")?)?;
    std::process::Command::new(format!("/proc/self/fd/{fd}"))
        .status()
        .map(|status| format!("{status:?}"))
}

/// Opens a pseudo-terminal pair and makes it the controlling one.
fn open_terminal() -> Result<(OwnedFd, OwnedFd), Error> {
    let (mut master, mut slave) = (-1, -1);
    let nothing = std::ptr::null_mut();
    // SAFETY: both numbers are ours afterwards.
    let answer = unsafe {
        libc::openpty(
            &raw mut master,
            &raw mut slave,
            nothing,
            std::ptr::null(),
            std::ptr::null(),
        )
    };
    check(i64::from(answer))?;
    // SAFETY: just made by openpty.
    Ok(unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) })
}

fn pty() -> Tried {
    let (master, slave) = open_terminal()?;
    let mut writer = std::fs::File::from(slave);
    writer.write_all(b"hello")?;
    let mut text = [0u8; 5];
    std::fs::File::from(master).read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into())
}

fn type_into_terminal() -> Tried {
    let (_master, slave) = open_terminal()?;
    // SAFETY: a session of our own, and a terminal of our own as its controlling one.
    unsafe {
        // The pair is closed at the end, which hangs up its session.
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::setsid();
        libc::ioctl(slave.as_raw_fd(), libc::TIOCSCTTY, 0);
    }
    let letter = b'#';
    // SAFETY: the letter is readable.
    check(i64::from(unsafe {
        libc::ioctl(slave.as_raw_fd(), libc::TIOCSTI, &raw const letter)
    }))
}

fn forks(wanted: i64) -> Tried {
    let mut children = 0;
    for _ in 0..wanted {
        // SAFETY: the child only sleeps and ends.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: as above.
                unsafe {
                    libc::sleep(20);
                    libc::_exit(0)
                }
            }
            -1 => {
                let error = Error::last_os_error();
                return Ok(format!(
                    "{children} then ERRNO {}",
                    error.raw_os_error().unwrap_or(0)
                ));
            }
            _ => children += 1,
        }
    }
    Ok(format!("{children}"))
}

/// A server and its client over a socket file.
fn private_socket(path: &str) -> Tried {
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    // The queue takes it, so a refusal is seen before anybody waits.
    let client = UnixStream::connect(path)?;
    let (mut stream, _) = listener.accept()?;
    stream.write_all(b"x")?;
    drop(client);
    Ok(String::new())
}
