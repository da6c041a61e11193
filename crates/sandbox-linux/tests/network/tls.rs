//! Issue 3, "Shows": TLS with an ordinary client to a listed host works; the same host's other port, another host, DNS
//! and UDP do not.

use crate::flows::spec;
use crate::support::{self, Way, temporary};
use crate::{Checked, NEIGHBOUR, PUBLIC, Test, servers};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub const TESTS: &[(&str, Test)] = &[("issue_3_shows_tls_to_a_listed_host", shows)];

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn has(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A certificate for `four.test` that nobody else trusts.
fn certify(directory: &Path) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args([
            "-subj",
            "/CN=four.test",
            "-addext",
            "subjectAltName=DNS:four.test",
        ])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

fn serve(directory: &Path, address: &str) -> (Server, u16) {
    let port = servers::closed(address).port();
    let server = Command::new("openssl")
        .args([
            "s_server", "-quiet", "-www", "-cert", "cert.pem", "-key", "key.pem", "-accept",
        ])
        .arg(format!("{address}:{port}"))
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server(server);
    support::world::eventually("the server listens", || {
        std::net::TcpStream::connect((address, port)).is_ok()
    });
    (server, port)
}

fn shows(way: Way) -> Checked {
    if !has("openssl") || !has("curl") {
        eprintln!("skipped, needs: openssl, curl");
        assert!(std::env::var_os("AGENT_MCP_FORBID_SKIPS").is_none());
        return Ok(());
    }
    let directory = temporary();
    let mut spec = spec(&directory);
    certify(&spec.workspace);
    let (_server, port) = serve(&spec.workspace, PUBLIC);
    let (_other, other_port) = serve(&spec.workspace, PUBLIC);
    let (_neighbour, neighbour_port) = serve(&spec.workspace, NEIGHBOUR);
    spec.restricted = vec![("four.test".into(), port)];
    let curl =
        |rest: &str| format!("curl -sS -o /dev/null -w '%{{http_code}}' --cacert cert.pem {rest}");
    // The control: all of it works without the sandbox.
    let rows = [
        (curl(&format!("https://four.test:{port}/")), 0),
        (curl(&format!("https://four.test:{other_port}/")), 7),
        (
            curl(&format!(
                "--connect-to ::{NEIGHBOUR}:{neighbour_port} https://four.test/"
            )),
            7,
        ),
        (curl(&format!("https://both.test:{port}/ -k")), 6),
        (
            format!(
                "echo | openssl s_client -connect four.test:{port} -CAfile cert.pem -verify_return_error -servername four.test 2>&1 | grep 'Verify return code: 0'"
            ),
            0,
        ),
    ];
    for (script, status) in rows {
        let control = Command::new("/bin/sh")
            .args(["-c", &script])
            .current_dir(&spec.workspace)
            .output()?;
        assert_eq!(
            control.status.code(),
            Some(0),
            "control of {script}: {control:?}"
        );
        let ran = support::confined(way, &spec, &["/bin/sh", "-c", &script]);
        assert_eq!(ran.code, status.to_string(), "{script}: {ran:?}");
    }
    Ok(())
}
