//! More of the probe: every call that takes a path, and questions about the process itself.

use super::probe::{Tried, c, call, check, done, pointer};
use std::io::{Error, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

const HERE: i64 = libc::AT_FDCWD as i64;

/// `None`: not one of these.
pub fn attempt<'a>(what: &str, argument: &dyn Fn(usize) -> &'a str) -> Option<Tried> {
    let path = argument(0);
    let line = match what {
        "path-call" => path_call(path, argument(1), argument(2)),
        "write-through-link" => std::os::unix::fs::symlink(path, argument(1))
            .and_then(|()| done(std::fs::write(Path::new(argument(1)).join("new"), "x"))),
        "write" => done(
            std::fs::OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|mut file| file.write_all(argument(1).as_bytes())),
        ),
        "fifo-write" => call(
            libc::SYS_openat,
            [
                HERE,
                pointer(&c(path)),
                i64::from(libc::O_WRONLY | libc::O_NONBLOCK),
                0,
                0,
                0,
            ],
        ),
        "open-any" => open_any(),
        "unnamed-link" => unnamed_link(path, argument(1)),
        "bind" => bind(path, argument(1)),
        "udp-sendmsg" => udp_by_sendmsg(path.parse().unwrap()),
        "families" => {
            let open: Vec<i32> = (0..64)
                // SAFETY: a socket of our own, closed at exit.
                .filter(|family| unsafe { libc::socket(*family, libc::SOCK_STREAM, 0) } >= 0)
                .collect();
            Ok(format!("{open:?}"))
        }
        "no-new-privileges" => {
            // SAFETY: asks only.
            check(i64::from(unsafe {
                libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
            }))
        }
        "capabilities" => capabilities(),
        // SAFETY: asks only.
        "parent" => Ok(unsafe { libc::getppid() }.to_string()),
        "foreign-abi" => foreign_abi(),
        "deep" => deep(path),
        "bytes-name" => {
            let name = std::ffi::OsString::from_vec(b"bad\xff\xfename".to_vec());
            done(std::fs::write(Path::new(path).join(name), "x"))
        }
        _ => return None,
    };
    Some(line)
}

fn path_call(name: &str, path: &str, other: &str) -> Tried {
    let (path, other) = (c(path), c(other));
    let (at, to) = (pointer(&path), pointer(&other));
    let mut buffer = [0u64; 64];
    let out = buffer.as_mut_ptr() as i64;
    let word = c"user.probe";
    match name {
        "openat2" => {
            let how = [0u64; 3];
            call(libc::SYS_openat2, [HERE, at, how.as_ptr() as i64, 24, 0, 0])
        }
        "o-path" => call(
            libc::SYS_openat,
            [HERE, at, i64::from(libc::O_PATH), 0, 0, 0],
        ),
        "statx" => call(libc::SYS_statx, [HERE, at, 0, 0x7ff, out, 0]),
        "access" => call(libc::SYS_faccessat, [HERE, at, 0, 0, 0, 0]),
        "statfs" => call(libc::SYS_statfs, [at, out, 0, 0, 0, 0]),
        "truncate" => call(libc::SYS_truncate, [at, 3, 0, 0, 0, 0]),
        "chmod" => call(libc::SYS_fchmodat, [HERE, at, 0o640, 0, 0, 0]),
        "chown" => call(libc::SYS_fchownat, [HERE, at, -1, -1, 0, 0]),
        "times" => call(libc::SYS_utimensat, [HERE, at, 0, 0, 0, 0]),
        "list-xattr" => call(libc::SYS_listxattr, [at, 0, 0, 0, 0, 0]),
        "set-xattr" => call(libc::SYS_setxattr, [at, word.as_ptr() as i64, at, 1, 0, 0]),
        "inotify" => {
            // SAFETY: a descriptor of our own.
            let watch = unsafe { libc::inotify_init1(0) };
            check(i64::from(watch))?;
            call(
                libc::SYS_inotify_add_watch,
                [i64::from(watch), at, 0xfff, 0, 0, 0],
            )
        }
        "link" => call(libc::SYS_linkat, [HERE, at, HERE, to, 0, 0]),
        "rename" => call(libc::SYS_renameat2, [HERE, at, HERE, to, 0, 0]),
        "unlink" => call(libc::SYS_unlinkat, [HERE, at, 0, 0, 0, 0]),
        other => panic!("no call {other}"),
    }
}

/// The first that opens wins; else the last answer.
fn open_any() -> Tried {
    let mut answer = Err(Error::from_raw_os_error(libc::ENOENT));
    for name in [
        "kmsg",
        "mem",
        "port",
        "vda",
        "sda",
        "fuse",
        "kvm",
        "loop-control",
        "vsock",
        "userfaultfd",
        "tty1",
        "net/tun",
        "uinput",
        "snapshot",
        "vhost-net",
        "mapper/control",
        "hpet",
        "rtc0",
        "watchdog",
    ] {
        let flags = i64::from(libc::O_RDWR | libc::O_NONBLOCK);
        let path = c(&format!("/dev/{name}"));
        answer = call(libc::SYS_openat, [HERE, pointer(&path), flags, 0, 0, 0]);
        if answer.is_ok() {
            return Ok(name.into());
        }
    }
    answer
}

fn unnamed_link(directory: &str, target: &str) -> Tried {
    let flags = i64::from(libc::O_TMPFILE | libc::O_WRONLY);
    let fd = call(
        libc::SYS_openat,
        [HERE, pointer(&c(directory)), flags, 0o755, 0, 0],
    )?;
    let name = c(&format!("/proc/self/fd/{fd}"));
    call(
        libc::SYS_linkat,
        [
            HERE,
            pointer(&name),
            HERE,
            pointer(&c(target)),
            i64::from(libc::AT_SYMLINK_FOLLOW),
            0,
        ],
    )
}

fn bind(source: &str, target: &str) -> Tried {
    super::probe::own_mounts();
    let flags = libc::MS_BIND as i64;
    call(
        libc::SYS_mount,
        [pointer(&c(source)), pointer(&c(target)), 0, flags, 0, 0],
    )
}

fn udp_by_sendmsg(port: u16) -> Tried {
    // SAFETY: a socket of our own, and a header that leads to our own buffers.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        check(i64::from(socket))?;
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as u16;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
        let mut vector = libc::iovec {
            iov_base: c"x".as_ptr().cast_mut().cast(),
            iov_len: 1,
        };
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_name = (&raw mut address).cast();
        header.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        check(libc::sendmsg(socket, &raw const header, 0) as i64)
    }
}

/// `getpid` by the 32-bit entry: the filter kills whoever uses another ABI.
#[cfg(target_arch = "x86_64")]
fn foreign_abi() -> Tried {
    let answer: i64;
    // SAFETY: number 20 is `getpid` there; it takes nothing and changes nothing.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("rax") 20i64 => answer,
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _);
    }
    if answer < 0 {
        Err(Error::from_raw_os_error(-answer as i32))
    } else {
        Ok(answer.to_string())
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn foreign_abi() -> Tried {
    Err(Error::from_raw_os_error(libc::ENOSYS))
}

fn deep(base: &str) -> Tried {
    let name = c(&"d".repeat(200));
    let mut directory = call(libc::SYS_openat, [HERE, pointer(&c(base)), 0, 0, 0, 0])?;
    for _ in 0..40 {
        let number = directory.parse().unwrap();
        call(libc::SYS_mkdirat, [number, pointer(&name), 0o755, 0, 0, 0])?;
        directory = call(libc::SYS_openat, [number, pointer(&name), 0, 0, 0, 0])?;
    }
    Ok("40".into())
}

/// How many capabilities there are in all sets together, and in the bounding set. `/proc` may be closed.
fn capabilities() -> std::io::Result<String> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let header = Header {
        // `_LINUX_CAPABILITY_VERSION_3`: two words for each of the three sets.
        version: 0x2008_0522,
        pid: 0,
    };
    let mut sets = [0u32; 6];
    // SAFETY: both structures have the kernel's layout for this version.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) };
    if result != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let held: u32 = sets.iter().map(|set| set.count_ones()).sum();
    // SAFETY: asks only.
    let bounded = (0..64)
        .filter(|number| unsafe { libc::prctl(libc::PR_CAPBSET_READ, *number, 0, 0, 0) } == 1);
    Ok(format!("{held} held, {} bounded", bounded.count()))
}
