//! The MCP server over Streamable HTTP, through the real binary and raw sockets.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use support::http::{HttpServer, tool_text};
use support::{Client, Place, RecordedModel, can_confine, field, text};

const REQUEST: &str = "create hello.txt containing the word hello";

/// AT-02, MCP-TR-02, REC-05, X-HTTP: both eras hand over work and poll; a finished answer, with its connection closed, ends
/// nothing.
#[test]
fn at_02_both_eras_over_http() {
    if !can_confine() {
        return;
    }
    let model = RecordedModel::start();
    let place = HttpServer::place(&model.endpoint);
    let server = HttpServer::start(place.command(&["serve"]));
    let hello = server.ask(
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "e2e", "version": "1"}}),
    );
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
    let (answer, failed) = server.call("agent_run", json!({"request": REQUEST}));
    assert!(!failed, "{answer}");
    let status = server.wait(&field(&answer, "task_id"));
    assert_eq!(field(&status, "status"), "completed", "{status}");
    assert!(place.workspace.join("hello.txt").exists());

    let reply = server.ask_modern(
        "tools/call",
        json!({"name": "agent_run", "arguments": {"request": "create b.txt containing the word hello"}}),
    );
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json()["result"]["resultType"], "complete");
    let (answer, failed) = tool_text(&reply.json());
    assert!(!failed, "{answer}");
    let status = server.wait(&field(&answer, "task_id"));
    assert_eq!(field(&status, "status"), "completed", "{status}");
    assert_eq!(server.stop(), Some(0));
    let verified = place.output(&["audit", "verify"]);
    assert!(text(&verified.stdout).contains("audit: verified"));
}

/// AT-02, MCP-TR-02: ::1 as well, and a scan of this process's sockets shows loopback only.
#[test]
fn mcp_tr_02_only_loopback_listens() {
    if !can_confine() {
        return;
    }
    for (host, shown) in [("127.0.0.1", "127.0.0.1:"), ("::1", "[::1]:")] {
        let place = HttpServer::place("http://127.0.0.1:9");
        change(
            &place,
            "{port: 0}",
            &format!("{{host: \"{host}\", port: 0}}"),
        );
        let server = HttpServer::start(place.command(&["serve"]));
        assert!(server.address.to_string().starts_with(shown));
        assert_eq!(server.ask("ping", json!({}))["result"], json!({}));
        let listening = listening(server.child.id());
        assert_eq!(listening, [server.address], "only this socket listens");
        assert_eq!(server.stop(), Some(0));
    }
}

/// The addresses on which a process listens for TCP, from /proc.
fn listening(pid: u32) -> Vec<SocketAddr> {
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            let name = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(name.to_owned())
        })
        .collect();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let rows = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap();
        for row in rows.lines().skip(1) {
            let cells: Vec<&str> = row.split_whitespace().collect();
            let (local, state, inode) = (cells[1], cells[3], cells[9]);
            if state == "0A" && sockets.iter().any(|socket| socket == inode) {
                found.push(address(local));
            }
        }
    }
    found
}

/// `0100007F:1F90`: words of four bytes in this machine's order.
fn address(text: &str) -> SocketAddr {
    let (host, port) = text.split_once(':').unwrap();
    let bytes: Vec<u8> = (0..host.len() / 8)
        .flat_map(|word| {
            u32::from_str_radix(&host[word * 8..word * 8 + 8], 16)
                .unwrap()
                .to_ne_bytes()
        })
        .collect();
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => IpAddr::from(four),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes.as_slice()).unwrap()),
    };
    SocketAddr::new(ip, u16::from_str_radix(port, 16).unwrap())
}

fn change(place: &Place, from: &str, to: &str) {
    let text = std::fs::read_to_string(&place.config).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(&place.config, text.replace(from, to)).unwrap();
}

/// ST-22: a host that is not loopback starts nothing, on whichever transport, and neither `--transport http` changes that.
#[test]
fn st_22_non_loopback_starts_nothing() {
    for host in [
        "0.0.0.0",
        "\"::\"",
        "192.0.2.1",
        "127.0.0.2",
        "localhost",
        "\"::ffff:127.0.0.1\"",
    ] {
        let place = Place::new(
            "http://127.0.0.1:9",
            &format!("sandbox: {{workspaces: [ws]}}\nmcp:\n  http: {{host: {host}}}\n"),
        );
        let output = place.output(&["serve", "--transport", "http"]);
        assert_eq!(output.status.code(), Some(2), "{host}");
        let said = text(&output.stderr);
        assert!(
            said.contains("mcp.http.host") && !said.contains("ready"),
            "{host} {said}"
        );
    }
}

/// M-8: foreign `Host` and `Origin` headers through the real binary.
#[test]
fn m_8_foreign_hosts_and_origins() {
    if !can_confine() {
        return;
    }
    let place = HttpServer::place("http://127.0.0.1:9");
    let server = HttpServer::start(place.command(&["serve"]));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    // The control: the same without the header is served.
    assert_eq!(server.post(&[], &body).status, 200);
    for header in [
        ("Origin", "http://evil"),
        ("Origin", "null"),
        ("Host", "evil"),
    ] {
        assert_eq!(server.post(&[header], &body).status, 403, "{header:?}");
    }
    assert_eq!(server.stop(), Some(0));
}

/// X-INST: three servers side by side, each published in its own instance; a port in use names the ways out.
#[test]
fn x_inst_servers_side_by_side() {
    if !can_confine() {
        return;
    }
    let place = HttpServer::place("http://127.0.0.1:9");
    let servers: Vec<HttpServer> = (0..3)
        .map(|_| HttpServer::start(place.command(&["serve"])))
        .collect();
    let mut published: Vec<String> = published(&place)
        .iter()
        .map(|file| file["url"].as_str().unwrap().to_owned())
        .collect();
    published.sort();
    let mut urls: Vec<String> = servers
        .iter()
        .map(|server| format!("http://{}/mcp", server.address))
        .collect();
    urls.sort();
    assert_eq!(published, urls);
    for server in &servers {
        assert_eq!(server.ask("ping", json!({}))["result"], json!({}));
    }
    let port = servers[0].address.port();
    change(&place, "{port: 0}", &format!("{{port: {port}}}"));
    for (lang, word) in [("en", "in use"), ("ja", "待ち受け")] {
        let output = place.output(&["serve", "--lang", lang]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        for part in [
            "http.port_unavailable",
            word,
            "mcp.http.port",
            "stdio",
            &port.to_string(),
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("ready"), "{said}");
    }
    // The way out works at once: the port's holder is not disturbed.
    let mut client = Client::start({
        let mut command = place.command(&["serve"]);
        command.args(["--transport", "stdio"]);
        command
    });
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    assert_eq!(client.close().0, Some(0));
    for server in servers {
        assert_eq!(server.ask("ping", json!({}))["result"], json!({}));
        assert_eq!(server.stop(), Some(0));
    }
    assert_eq!(self::published(&place).len(), 0, "nothing stays published");
}

/// Every `http.json` of the place's instances.
fn published(place: &Place) -> Vec<Value> {
    std::fs::read_dir(place.state.join("instances"))
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("http.json")).ok())
        .map(|bytes| serde_json::from_slice(&bytes).unwrap())
        .collect()
}

/// SEC-INV-11, DESIGN §5.8: what fails before serving opens no port, and says nothing of being ready.
#[test]
fn sec_inv_11_no_port_before_the_preflight() {
    let place = HttpServer::place("http://127.0.0.1:9");
    std::fs::copy("/bin/true", place.workspace.join("tool")).unwrap();
    change(
        &place,
        "{alias: sh, path: /bin/sh}",
        "{alias: tool, path: ws/tool}",
    );
    let waiting = Notified::start(NotifyName::Path(place.directory.path().join("notify")));
    let mut command = place.command(&["serve"]);
    command.env("NOTIFY_SOCKET", &waiting.name);
    let Err(said) = HttpServer::try_start(command) else {
        panic!("it serves")
    };
    assert!(said.contains("executable.writable"), "{said}");
    assert_eq!(waiting.heard(), "");
}

/// A service manager is told when clients may connect, and when the end begins; by path and by abstract name.
#[test]
fn a_service_manager_is_told() {
    if !can_confine() {
        return;
    }
    let place = HttpServer::place("http://127.0.0.1:9");
    let path = place.directory.path().join("notify");
    let unique = format!("agent-mcp-test-{}-{}", std::process::id(), path.display());
    for name in [NotifyName::Path(path), NotifyName::Abstract(unique)] {
        let waiting = Notified::start(name);
        let mut command = place.command(&["serve"]);
        command.env("NOTIFY_SOCKET", &waiting.name);
        let server = HttpServer::start(command);
        assert_eq!(server.ask("ping", json!({}))["result"], json!({}));
        assert_eq!(server.stop(), Some(0));
        assert_eq!(waiting.heard(), "READY=1 STOPPING=1");
    }
    // One that is not there stops nobody.
    let mut command = place.command(&["serve"]);
    command.env("NOTIFY_SOCKET", "/nonexistent/notify");
    assert_eq!(HttpServer::start(command).stop(), Some(0));
}

enum NotifyName {
    Path(std::path::PathBuf),
    Abstract(String),
}

/// The socket of a service manager.
struct Notified {
    socket: UnixDatagram,
    name: std::ffi::OsString,
}

impl Notified {
    fn start(name: NotifyName) -> Self {
        use std::os::linux::net::SocketAddrExt;
        let (address, name) = match name {
            NotifyName::Path(path) => (
                std::os::unix::net::SocketAddr::from_pathname(&path).unwrap(),
                path.into_os_string(),
            ),
            NotifyName::Abstract(text) => (
                std::os::unix::net::SocketAddr::from_abstract_name(&text).unwrap(),
                format!("@{text}").into(),
            ),
        };
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, name }
    }

    /// Everything that came, in order.
    fn heard(&self) -> String {
        let mut words = Vec::new();
        let mut buffer = [0; 1024];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            words.push(text(&buffer[..length]));
        }
        words.join(" ")
    }
}

/// DESIGN §5.8: one line per request with what routes it, and nothing of headers, query or payload; the key turns it off.
#[test]
fn every_request_is_logged_without_its_secrets() {
    if !can_confine() {
        return;
    }
    let place = HttpServer::place("http://127.0.0.1:9");
    let server = HttpServer::start(place.command(&["serve"]));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
        {"name": "agent_run", "arguments": {"request": "private-text"}}});
    let secret = [
        ("Authorization", "Bearer private-token"),
        ("Cookie", "private-cookie"),
        ("X-Forwarded-For", "private-forwarded"),
        ("Mcp-Session-Id", "private-session"),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    let bytes =
        String::from_utf8(support::http::request(&secret, body.to_string().as_bytes())).unwrap();
    let bytes = bytes.replace("POST /mcp ", "POST /mcp?private-query=1 ");
    assert_eq!(server.exchange(bytes).status, 200);
    assert_eq!(server.post(&[("Host", "evil")], "private-body").status, 403);
    let address = server.address;
    assert_eq!(server.stop(), Some(0));
    let log = std::fs::read_to_string(place.state.join("logs/http.0001.jsonl")).unwrap();
    assert!(!log.contains("private"), "{log}");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let row = |line: &Value| {
        json!([
            line["method"],
            line["path"],
            line["status"],
            line["mcp_method"],
            line["mcp_name"],
            line["mcp_revision"]
        ])
    };
    assert_eq!(
        row(&lines[0]),
        json!(["POST", "/mcp", 200, "tools/call", "agent_run", "2025-11-25"])
    );
    assert_eq!(
        row(&lines[1]),
        json!(["POST", "/mcp", 403, null, null, null])
    );
    assert_eq!(lines[0]["local"], address.to_string());
    assert!(lines[0]["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(
        lines[0]["request_bytes"].as_u64().unwrap() > 0
            && lines[0]["response_bytes"].as_u64().unwrap() > 0
    );
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(place.state.join("logs/http.0001.jsonl"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    std::fs::remove_file(place.state.join("logs/http.0001.jsonl")).unwrap();
    let yaml =
        std::fs::read_to_string(&place.config).unwrap() + "logging: {http_requests: false}\n";
    std::fs::write(&place.config, yaml).unwrap();
    let server = HttpServer::start(place.command(&["serve"]));
    server.ask("ping", json!({}));
    assert_eq!(server.stop(), Some(0));
    assert!(!place.state.join("logs/http.0001.jsonl").exists());
}

/// A server whose standard error nobody reads still answers: nothing that a client causes is written there.
#[test]
fn unread_standard_error_stops_nobody() {
    if !can_confine() {
        return;
    }
    let place = HttpServer::place("http://127.0.0.1:9");
    let server = HttpServer::start(place.command(&["serve"]));
    let before = server.stderr.lock().unwrap().len();
    for _ in 0..50 {
        server.ask_modern("no/such", json!({}));
        server.post(&[("Host", "evil")], "");
        server.post(&[], "{");
        server.post(&[("MCP-Protocol-Version", "1999-01-01")], "{}");
    }
    let after = server.stderr.lock().unwrap().len();
    // The line about readiness may still have been on its way.
    assert!(after < before + 1000, "{}", server.stderr.lock().unwrap());
    assert_eq!(server.stop(), Some(0));
}

/// REC-04 is for stdio: an HTTP server lives on when whoever started it is gone. REC-05: its stop ends the runs.
#[test]
fn rec_05_a_server_outlives_its_starter_and_its_stop_ends_runs() {
    if !can_confine() {
        return;
    }
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = HttpServer::place(&format!("http://{}", silent.local_addr().unwrap()));
    let inner = place.command(&["serve"]);
    // A shell that starts it in the background and ends.
    let mut shell = std::process::Command::new("/bin/sh");
    shell
        .env_clear()
        .env("HOME", &place.state)
        .env("XDG_STATE_HOME", &place.state)
        .current_dir(&place.workspace)
        .arg("-c")
        .arg("\"$@\" </dev/null >/dev/null 2>\"$0\" & echo $!")
        .arg(place.directory.path().join("stderr"))
        .arg(inner.get_program())
        .args(inner.get_args());
    let output = shell.output().unwrap();
    let pid: i32 = text(&output.stdout).trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let start = std::time::Instant::now();
    let address: SocketAddr = loop {
        if let Some(file) = (place.state.join("instances").exists())
            .then(|| published(&place).pop())
            .flatten()
        {
            let url = file["url"].as_str().unwrap().to_owned();
            break url["http://".len()..url.len() - "/mcp".len()]
                .parse()
                .unwrap();
        }
        assert!(start.elapsed() < support::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let ask = |body: Value| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        std::io::Write::write_all(
            &mut stream,
            &support::http::request(&[], body.to_string().as_bytes()),
        )
        .unwrap();
        support::http::read_reply(&mut std::io::BufReader::new(stream))
            .unwrap()
            .json()
    };
    let started = ask(
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
        {"name": "agent_run", "arguments": {"request": REQUEST}}}),
    );
    let task = field(&tool_text(&started).0, "task_id");
    // Longer than a dead parent is looked for.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let status = ask(
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
        {"name": "agent_status", "arguments": {"task_id": task}}}),
    );
    let state = field(&tool_text(&status).0, "status");
    assert!(
        ["planning", "running"].contains(&state.as_str()),
        "{status}"
    );
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    while rustix::process::test_kill_process(pid).is_ok() && !is_zombie(pid) {
        assert!(start.elapsed() < support::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let ends = place
        .audit()
        .into_iter()
        .filter(|record| record["event"] == "run.end")
        .count();
    assert_eq!(ends, 1, "the run's end is in the log");
}

/// Whether it has ended and only its new parent has not looked yet.
fn is_zombie(pid: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.contains(") Z "))
}

/// Wrong arguments through the real binary: the exact code each time, and the server lives on.
#[test]
fn wrong_arguments_over_http() {
    if !can_confine() {
        return;
    }
    let place = HttpServer::place("http://127.0.0.1:9");
    let server = HttpServer::start(place.command(&["serve"]));
    let image = |mime: &str, data: &str| json!({"mime_type": mime, "data_base64": data});
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let unknown = "00000000-0000-4000-8000-000000000000";
    for (tool, arguments, code) in [
        ("agent_run", json!({}), "request.invalid"),
        ("agent_run", json!({"request": ""}), "request.invalid"),
        ("agent_run", json!({"request": 5}), "request.invalid"),
        ("agent_run", json!({"request": null}), "request.invalid"),
        (
            "agent_run",
            json!({"request": "a", "model": "other"}),
            "request.invalid",
        ),
        (
            "agent_run",
            json!({"request": "a", "temperature": 2.1}),
            "request.invalid",
        ),
        (
            "agent_run",
            json!({"request": "a", "temperature": -0.1}),
            "request.invalid",
        ),
        (
            "agent_run",
            json!({"request": "a", "temperature": "NaN"}),
            "request.invalid",
        ),
        (
            "agent_run",
            json!({"request": "a", "session_id": "no uuid"}),
            "request.invalid",
        ),
        (
            "agent_run",
            json!({"request": "a", "session_id": unknown}),
            "session.not_found",
        ),
        (
            "agent_run",
            json!({"request": "a", "images": vec![image("image/png", png); 5]}),
            "image.invalid",
        ),
        (
            "agent_run",
            json!({"request": "a", "images": [image("image/png", "no base64!")]}),
            "image.invalid",
        ),
        (
            "agent_run",
            json!({"request": "a", "images": [image("image/jpeg", png)]}),
            "image.invalid",
        ),
        (
            "agent_run",
            json!({"request": "a", "images": [image("image/gif", png)]}),
            "image.invalid",
        ),
        (
            "agent_run",
            json!({"request": "a", "images": {}}),
            "request.invalid",
        ),
        ("agent_status", json!({}), "request.invalid"),
        (
            "agent_status",
            json!({"task_id": unknown}),
            "task.not_found",
        ),
        (
            "agent_status",
            json!({"task_id": "../../etc/passwd"}),
            "request.invalid",
        ),
        (
            "agent_status",
            json!({"task_id": [unknown]}),
            "request.invalid",
        ),
    ] {
        let (answer, failed) = server.call(tool, arguments.clone());
        assert!(failed, "{arguments}");
        assert_eq!(field(&answer, "error_code"), code, "{arguments} {answer}");
    }
    let (first, _) = server.call("agent_run", json!({"request": "a"}));
    let (second, _) = server.call("agent_run", json!({"request": "a"}));
    let (answer, failed) = server.call(
        "agent_status",
        json!({"task_id": field(&first, "task_id"), "session_id": field(&second, "session_id")}),
    );
    assert!(failed);
    assert_eq!(
        field(&answer, "error_code"),
        "task.session_mismatch",
        "{answer}"
    );
    assert_eq!(server.ask("ping", json!({}))["result"], json!({}));
    assert_eq!(server.stop(), Some(0));
}

/// SIGTERM and SIGINT are safe stops; a second server takes the same port at once.
#[test]
fn a_stop_frees_the_port_at_once() {
    if !can_confine() {
        return;
    }
    let place = HttpServer::place("http://127.0.0.1:9");
    let mut port = 0;
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        change(&place, &format!("{{port: {port}}}"), "{port: 0}");
        let mut server = HttpServer::start(place.command(&["serve"]));
        let idle = server.connect();
        server.ask("ping", json!({}));
        server.signal(signal);
        assert_eq!(support::wait_for(&mut server.child), Some(0));
        drop(idle);
        port = server.address.port();
        change(&place, "{port: 0}", &format!("{{port: {port}}}"));
        let again = HttpServer::start(place.command(&["serve"]));
        assert_eq!(again.address.port(), port);
        assert_eq!(again.stop(), Some(0));
    }
}

/// Polls a task until it is over, as a client of the Tasks extension does.
fn task_over(server: &HttpServer, task: &Value) -> Value {
    let start = std::time::Instant::now();
    loop {
        let seen = server.ask_for_task("tasks/get", json!({"taskId": task}));
        if seen["status"] != "working" {
            return seen;
        }
        assert!(start.elapsed() < support::PATIENCE, "{seen}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// DESIGN §5.7: a run as a task, through the real program: its record is on the disk before the answer, for this user only,
/// and its result is there for another server too, after this one has stopped.
#[test]
fn design_5_7_a_task_outlives_its_server() {
    if !can_confine() {
        return;
    }
    let model = RecordedModel::start();
    let place = HttpServer::place(&model.endpoint);
    let server = HttpServer::start(place.command(&["serve"]));
    let run = json!({"name": "agent_run", "arguments": {"request": REQUEST}});
    let created = server.ask_for_task("tools/call", run);
    assert_eq!(created["resultType"], "task", "{created}");
    let task = &created["taskId"];
    let name = format!("mcp-tasks/{}.json", task.as_str().unwrap());
    let mode =
        std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(place.state.join(name)).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let over = task_over(&server, task);
    assert_eq!(over["status"], "completed", "{over}");
    let said = over["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(field(said, "status"), "completed", "{said}");
    assert!(place.workspace.join("hello.txt").exists());
    assert_eq!(server.stop(), Some(0));
    let server = HttpServer::start(place.command(&["serve"]));
    let again = server.ask_for_task("tasks/get", json!({"taskId": task}));
    assert_eq!(again["result"], over["result"]);
    assert_eq!(server.stop(), Some(0));
}

/// DESIGN §5.7, X-INST, REC-05: `tasks/cancel` ends a run that waits for a model that never answers; after a kill, the next
/// server says that the task's server was restarted, while one that lives beside it keeps its own.
#[test]
fn x_inst_a_killed_servers_tasks_have_failed() {
    if !can_confine() {
        return;
    }
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = HttpServer::place(&format!("http://{}", silent.local_addr().unwrap()));
    let mut killed = HttpServer::start(place.command(&["serve"]));
    let beside = HttpServer::start(place.command(&["serve"]));
    let run = || json!({"name": "agent_run", "arguments": {"request": REQUEST}});
    let task = |server: &HttpServer| server.ask_for_task("tools/call", run())["taskId"].clone();
    let (cancelled, lost, kept) = (task(&killed), task(&killed), task(&beside));
    let done = killed.ask_for_task("tasks/cancel", json!({"taskId": cancelled}));
    assert_eq!(done["resultType"], "complete");
    assert_eq!(task_over(&killed, &cancelled)["status"], "cancelled");
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let next = HttpServer::start(place.command(&["serve"]));
    let status = |task: &Value| next.ask_for_task("tasks/get", json!({"taskId": task}));
    let seen = status(&lost);
    assert_eq!(
        (&seen["status"], &seen["statusMessage"]),
        (&json!("failed"), &json!("server_restarted"))
    );
    assert_eq!(status(&cancelled)["status"], "cancelled");
    assert_eq!(status(&kept)["status"], "working");
    let own = beside.ask_for_task("tasks/get", json!({"taskId": kept}));
    assert_eq!(own["status"], "working");
    assert_eq!(beside.stop(), Some(0));
    assert_eq!(status(&kept)["status"], "cancelled");
    assert_eq!(next.stop(), Some(0));
}
