//! Servers of the "outside": each runs until the test program ends.

use rustix::net::sockopt::set_socket_linger;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Nobody ever listens here.
pub const UNUSED_PORT: u16 = 9;

fn listen(address: IpAddr) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn serve(address: &str, each: impl Fn(TcpStream) + Send + Clone + 'static) -> SocketAddr {
    let (listener, address) = listen(address.parse().unwrap());
    serve_on(listener, each);
    address
}

fn serve_on(listener: TcpListener, each: impl Fn(TcpStream) + Send + Clone + 'static) {
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let each = each.clone();
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(move || each(stream))
                .unwrap();
        }
    });
}

fn echo_one(mut stream: TcpStream) {
    let mut buffer = vec![0u8; 16 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) if stream.write_all(&buffer[..length]).is_err() => return,
            Ok(_) => {}
        }
    }
    // Only after the other side has said its end: without half-close this would never arrive.
    let _gone = stream.write_all(b"END");
}

/// Sends everything back, and `END` after the end.
pub fn echo(address: &str) -> SocketAddr {
    serve(address, echo_one)
}

/// The same on both loopbacks with one port.
pub fn echo_on_both_loopbacks() -> u16 {
    loop {
        let port = echo("127.0.0.1").port();
        if let Ok(listener) = TcpListener::bind(("::1", port)) {
            serve_on(listener, echo_one);
            return port;
        }
    }
}

/// Takes everything and hands it to the test when the sender has ended.
pub fn collector(address: &str) -> (SocketAddr, Receiver<Vec<u8>>) {
    let (send, receive) = channel();
    let address = serve(address, move |mut stream| {
        let mut all = Vec::new();
        if stream.read_to_end(&mut all).is_ok() {
            let _over = send.send(all);
        }
    });
    (address, receive)
}

/// The same, which says before when `first` bytes have come.
pub fn witness(address: &str, first: usize) -> (SocketAddr, Receiver<()>, Receiver<Vec<u8>>) {
    let (begin, begun) = channel();
    let (send, receive) = channel();
    let address = serve(address, move |mut stream| {
        let mut all = vec![0; first];
        if stream.read_exact(&mut all).is_ok() {
            let _over = begin.send(());
        }
        if stream.read_to_end(&mut all).is_ok() {
            let _over = send.send(all);
        }
    });
    (address, begun, receive)
}

/// Accepts and never reads.
pub fn stalled(address: &str) -> SocketAddr {
    serve(address, |stream| {
        std::thread::sleep(Duration::from_secs(3600));
        drop(stream);
    })
}

/// Answers five bytes, then ends both directions hard.
pub fn resetting(address: &str) -> SocketAddr {
    serve(address, |mut stream| {
        // Its bytes are in the other kernel's queue before the reset is.
        let _sent = stream.write_all(b"FIRST");
        let _read = stream.read(&mut [0u8; 1]);
        let _told = set_socket_linger(&stream, Some(Duration::ZERO));
    })
}

/// Sends everything it has and ends, without reading.
pub fn sender(address: &str, bytes: usize) -> SocketAddr {
    serve(address, move |mut stream| {
        let _gone = stream.write_all(&pattern(bytes));
        let _ended = stream.shutdown(Shutdown::Write);
        let _rest = stream.read_to_end(&mut Vec::new());
    })
}

/// Its queue is full, so that nobody gets an answer to a connect.
pub fn unanswering(address: &str) -> SocketAddr {
    let listener = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    let wanted = SocketAddr::new(address.parse().unwrap(), 0);
    rustix::net::bind(&listener, &wanted).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let listener = TcpListener::from(listener);
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        waiting.push(stream);
    }
    std::mem::forget((listener, waiting));
    address
}

/// A port that was free a moment ago.
pub fn closed(address: &str) -> SocketAddr {
    listen(address.parse().unwrap()).1
}

/// What is sent through: no period that a buffer's size divides.
pub fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at % 251) as u8 ^ (at >> 16) as u8)
        .collect()
}

/// The name server of this namespace, which takes every question and answers none.
pub fn silence_the_resolver() {
    std::mem::forget(UdpSocket::bind("127.0.0.1:53").unwrap());
}

/// A UDP server that answers, for controls.
pub fn udp(address: &str) -> SocketAddr {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0u8; 64];
        while let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _gone = socket.send_to(b"HOST", from);
        }
    });
    address
}
