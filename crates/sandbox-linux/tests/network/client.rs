//! The programs inside. Each prints one line: `OK …` or `ERRNO n`. The same runs unconfined as the control.

use super::servers::pattern;
use std::io::{Error, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsRawFd as _;

type Tried = Result<String, Error>;

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
    println!("{line}");
    std::process::exit(0)
}

fn connect(address: &str) -> Result<TcpStream, Error> {
    TcpStream::connect(address.parse::<SocketAddr>().unwrap())
}

fn attempt<'a>(what: &str, argument: &dyn Fn(usize) -> &'a str) -> Tried {
    let number = |index: usize| argument(index).parse::<usize>().unwrap();
    match what {
        "connect" => connect(argument(0)).map(|_| String::new()),
        "echo" => echo(connect(argument(0))?, number(1)),
        "echo-by-name" => echo(TcpStream::connect(argument(0))?, number(1)),
        // Says one byte and waits for what comes, to the end.
        "talk" => {
            let mut stream = connect(argument(0))?;
            stream.write_all(b"x")?;
            let mut all = Vec::new();
            match stream.read_to_end(&mut all) {
                Ok(_) => Ok(String::from_utf8_lossy(&all).into()),
                Err(error) if all.is_empty() => Err(error),
                Err(error) => Ok(format!(
                    "{} then ERRNO {}",
                    String::from_utf8_lossy(&all),
                    error.raw_os_error().unwrap_or(0)
                )),
            }
        }
        // Sends and is gone at once, as `exec` of a command that only reports.
        "send" => {
            let mut stream = connect(argument(0))?;
            stream.write_all(&pattern(number(1)))?;
            Ok(String::new())
        }
        "receive" => {
            let mut all = Vec::new();
            connect(argument(0))?.read_to_end(&mut all)?;
            Ok(format!("{} {}", all.len(), all == pattern(all.len())))
        }
        // Fills what there is room for, without waiting.
        "stuff" => {
            let mut stream = connect(argument(0))?;
            stream.set_nonblocking(true)?;
            let piece = vec![7u8; 64 << 10];
            let mut sent = 0usize;
            let mut quiet = 0;
            while quiet < 50 {
                match stream.write(&piece) {
                    Ok(length) => (sent, quiet) = (sent + length, 0),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        quiet += 1;
                        std::thread::sleep(std::time::Duration::from_millis(2));
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(sent.to_string())
        }
        "many" => many(argument(0), number(1)),
        // What comes of each of so many connections that stay open.
        "crowd" => {
            raise_limit();
            let mut kept = Vec::new();
            let (mut fine, mut reset) = (0, 0);
            for _ in 0..number(1) {
                // The reset may come while connecting, before the byte is sent, or after it.
                let answered = connect(argument(0)).and_then(|mut stream| {
                    stream.write_all(b"x")?;
                    let length = stream.read(&mut [0u8; 1])?;
                    kept.push(stream);
                    Ok(length)
                });
                match answered {
                    Ok(1) => fine += 1,
                    Ok(_) => return Ok("ended".into()),
                    Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => reset += 1,
                    Err(error) => return Err(error),
                }
            }
            // Once there is room again, so are connections.
            drop(kept);
            let mut tries = 0;
            while connect(argument(0))
                .and_then(|stream| echo(stream, 10))
                .is_err()
                && tries < 1000
            {
                tries += 1;
            }
            Ok(format!("{} {} {}", fine > 0, reset > 0, tries < 1000))
        }
        "resolve" => {
            let mut found: Vec<String> = (argument(0), 1u16)
                .to_socket_addrs()?
                .map(|address| address.ip().to_string())
                .collect();
            found.sort();
            found.dedup();
            Ok(found.join(" "))
        }
        "bind" => TcpListener::bind(argument(0)).map(|_| String::new()),
        "own-server" => {
            let listener = TcpListener::bind(argument(0))?;
            let address = listener.local_addr()?;
            let client = std::thread::spawn(move || TcpStream::connect(address));
            let (mut stream, _) = listener.accept()?;
            stream.write_all(b"x")?;
            client.join().unwrap()?.read_exact(&mut [0u8; 1])?;
            Ok(String::new())
        }
        "links" => netlink(libc::RTM_GETLINK, 0x300, &[]),
        "new-address" => {
            // ifaddrmsg of 10.9.8.7/32 on device 1, then IFA_LOCAL.
            let body = [2, 32, 0, 0, 1, 0, 0, 0, 8, 0, 2, 0, 10, 9, 8, 7];
            netlink(libc::RTM_NEWADDR, 0x404, &body)
        }
        "new-route" => {
            // rtmsg of the default route through device 1, then RTA_OIF.
            let body = [2, 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0, 8, 0, 4, 0, 1, 0, 0, 0];
            netlink(libc::RTM_NEWROUTE, 0x404, &body)
        }
        "fast-open" => {
            let socket = rustix::net::socket(
                rustix::net::AddressFamily::INET,
                rustix::net::SocketType::STREAM,
                None,
            )?;
            let address: SocketAddr = argument(0).parse().unwrap();
            let flags = rustix::net::SendFlags::from_bits_retain(libc::MSG_FASTOPEN as u32);
            rustix::net::sendto(&socket, b"x", flags, &address)?;
            Ok(String::new())
        }
        other => panic!("no client {other}"),
    }
}

fn echo(mut stream: TcpStream, bytes: usize) -> Tried {
    let sent = pattern(bytes);
    let mut writer = stream.try_clone()?;
    let copy = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&copy)?;
        writer.shutdown(Shutdown::Write)
    });
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    writing.join().unwrap()?;
    let intact = all.strip_suffix(b"END") == Some(&sent[..]);
    Ok(format!("{} {intact}", all.len()))
}

fn raise_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
}

fn many(address: &str, count: usize) -> Tried {
    raise_limit();
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(connect(address)?);
    }
    for (index, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&[index as u8])?;
    }
    let mut right = 0;
    for (index, stream) in streams.iter_mut().enumerate() {
        let mut answer = [0u8; 1];
        stream.read_exact(&mut answer)?;
        right += usize::from(answer[0] == index as u8);
    }
    Ok(right.to_string())
}

/// One request to the kernel's routing, and what it says.
fn netlink(kind: u16, flags: u16, body: &[u8]) -> Tried {
    // SAFETY: numbers only.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE) };
    if socket < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: just made.
    let socket = unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(socket) };
    let mut body = body.to_vec();
    if body.is_empty() {
        body.resize(16, 0);
    }
    let mut request = Vec::new();
    request.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(
        &(flags | libc::NLM_F_REQUEST as u16 | libc::NLM_F_ACK as u16).to_ne_bytes(),
    );
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(&body);
    let mut answer = [0u8; 8192];
    // SAFETY: our own buffers with their lengths.
    let length = unsafe {
        libc::send(
            socket.as_raw_fd(),
            request.as_ptr().cast(),
            request.len(),
            0,
        );
        libc::recv(
            socket.as_raw_fd(),
            answer.as_mut_ptr().cast(),
            answer.len(),
            0,
        )
    };
    if length < 20 {
        return Err(Error::last_os_error());
    }
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    let error = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    if i32::from(kind) == libc::NLMSG_ERROR && error != 0 {
        return Err(Error::from_raw_os_error(-error));
    }
    Ok(format!("{kind}"))
}
