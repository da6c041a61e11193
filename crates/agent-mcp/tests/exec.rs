//! `agent-mcp exec`: confined, with exact statuses, and nothing left.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use std::net::TcpListener;
use support::{anyone_runs, can_confine, command, text};

struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

fn exec(workspace: &std::path::Path, argv: &[&str]) -> Run {
    exec_with(workspace, &[], argv)
}

fn exec_with(workspace: &std::path::Path, flags: &[&str], argv: &[&str]) -> Run {
    let state = tempfile::tempdir().unwrap();
    let output = command(state.path())
        .current_dir(workspace)
        .arg("exec")
        .args(flags)
        .arg("--")
        .args(argv)
        .output()
        .unwrap();
    Run {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// SEC-INV-04, AT-07: a host file that is not granted does not exist inside. Control: it exists outside.
#[test]
fn sec_inv_04_shadow_is_not_there() {
    if !can_confine() {
        return;
    }
    assert!(std::fs::symlink_metadata("/etc/shadow").is_ok(), "control");
    let workspace = tempfile::tempdir().unwrap();
    let run = exec(workspace.path(), &["cat", "/etc/shadow"]);
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("No such file or directory"), "{}", run.err);
    assert_eq!(run.out, "");
}

/// SEC-INV-04: the system's programs cannot be changed.
#[test]
fn sec_inv_04_usr_is_read_only() {
    if !can_confine() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let run = exec(workspace.path(), &["sh", "-c", "echo x > /usr/x"]);
    assert_ne!(run.code, Some(0));
    assert!(
        run.err.contains("Read-only file system") || run.err.contains("Permission denied"),
        "{}",
        run.err
    );
    assert!(!std::path::Path::new("/usr/x").exists());
}

/// SEC-INV-06, AT-10, ST-12: a listener on the host's loopback is not reachable. Control: it is, from outside.
#[test]
fn sec_inv_06_at_10_loopback_is_closed() {
    if !can_confine() || !std::path::Path::new("/bin/bash").exists() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok(),
        "control"
    );
    listener.accept().unwrap();
    listener.set_nonblocking(true).unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let run = exec(
        workspace.path(),
        &[
            "bash",
            "-c",
            &format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"),
        ],
    );
    assert_ne!(run.code, Some(0));
    assert!(!run.out.contains("reached"));
    assert_eq!(
        listener.accept().err().map(|error| error.kind()),
        Some(std::io::ErrorKind::WouldBlock)
    );
}

/// SEC-INV-10, REC-03: a daemon does not outlive the command.
#[test]
fn sec_inv_10_a_daemon_is_dead() {
    if !can_confine() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let marker = format!("sleep 98{}", std::process::id());
    let run = exec(
        workspace.path(),
        &["sh", "-c", &format!("setsid {marker} & echo started")],
    );
    assert_eq!((run.code, run.out.trim()), (Some(0), "started"));
    assert!(!anyone_runs(&marker));
}

/// X-HARNESS-1, X-PLAT, interfaces.md §2: the command's own status; 128 + n by signal; 126, 127 for ours.
#[test]
fn x_harness_1_statuses_are_exact() {
    if !can_confine() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 125", 125),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        assert_eq!(
            exec(workspace.path(), &["sh", "-c", script]).code,
            Some(code),
            "{script}"
        );
    }
    let run = exec(workspace.path(), &["no-such-command-here"]);
    assert_eq!(run.code, Some(127), "{}", run.err);
    assert!(run.err.contains("process.not_found"), "{}", run.err);
    std::fs::write(workspace.path().join("plain.txt"), "text").unwrap();
    let run = exec(workspace.path(), &["./plain.txt"]);
    assert_eq!(run.code, Some(126), "{}", run.err);
}

/// UC-05, FS-05, ST-01, ST-02, ST-03: read-only refuses every change; workspace-write allows them below the root only.
#[test]
fn st_02_st_03_modes() {
    if !can_confine() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("a"), "a").unwrap();
    let run = exec_with(
        workspace.path(),
        &["--mode", "read-only"],
        &["sh", "-c", "cat a; echo b > b; rm a; echo done"],
    );
    assert!(run.out.starts_with('a'), "{} {}", run.out, run.err);
    assert!(workspace.path().join("a").exists() && !workspace.path().join("b").exists());
    let run = exec(workspace.path(), &["sh", "-c", "echo b > b && rm a"]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(!workspace.path().join("a").exists() && workspace.path().join("b").exists());
}

/// SEC-INV-08: the environment is a table of ours; secrets of the caller are not in it.
#[test]
fn sec_inv_08_secrets_are_not_inherited() {
    if !can_confine() {
        return;
    }
    let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let output = command(state.path())
        .current_dir(workspace.path())
        .env("AWS_SECRET_ACCESS_KEY", "hunter2")
        .env("SSH_AUTH_SOCK", "/tmp/agent.sock")
        .args(["exec", "--", "env"])
        .output()
        .unwrap();
    let out = text(&output.stdout);
    assert!(
        output.status.success() && out.contains("PATH="),
        "control: {out}"
    );
    assert!(
        !out.contains("hunter2") && !out.contains("SSH_AUTH_SOCK"),
        "{out}"
    );
}

/// X-PARTIAL: the report says what was enforced and what was missing, and the log has it.
#[test]
fn x_partial_the_report_is_honest() {
    if !can_confine() {
        return;
    }
    let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let report = state.path().join("report.json");
    let output = command(state.path())
        .current_dir(workspace.path())
        .args(["exec", "--report", "json", "--report-file"])
        .arg(&report)
        .args(["--", "sh", "-c", "exit 3"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!(report["enforcement"]["level"], "full", "{report}");
    assert!(
        report["enforcement"]["missing"]
            .as_array()
            .unwrap()
            .contains(&"workspace_quota".into()),
        "{report}"
    );
    assert_eq!(
        report["end"],
        serde_json::json!({"how": "exited", "status": 3})
    );
}

/// A large binary output passes untouched.
#[test]
fn output_is_untouched() {
    if !can_confine() {
        return;
    }
    let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let output = command(state.path())
        .current_dir(workspace.path())
        .args(["exec", "--", "head", "-c", "5000000", "/dev/zero"])
        .output()
        .unwrap();
    assert_eq!(output.stdout.len(), 5_000_000);
    assert!(output.stdout.iter().all(|byte| *byte == 0));
}

fn reported(
    workspace: &std::path::Path,
    flags: &[&str],
    argv: &[&std::ffi::OsStr],
) -> (Option<i32>, serde_json::Value, Vec<serde_json::Value>) {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("report.json");
    let output = command(state.path())
        .current_dir(workspace)
        .args(["exec", "--report", "json", "--report-file"])
        .arg(&file)
        .args(flags)
        .arg("--")
        .args(argv)
        .output()
        .unwrap();
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let report: serde_json::Value = serde_json::from_str(&lines).unwrap();
    assert_eq!(report["v"], 1);
    assert_eq!(report["exit_code"], serde_json::json!(output.status.code()));
    let shown = command(state.path())
        .args(["audit", "show", "--json"])
        .output()
        .unwrap();
    let audit = text(&shown.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    (output.status.code(), report, audit)
}

fn events(audit: &[serde_json::Value]) -> Vec<&str> {
    let name = |record: &'_ serde_json::Value| record["event"].as_str().map(str::to_owned);
    assert!(audit.iter().all(|record| name(record).is_some()));
    audit
        .iter()
        .filter_map(|record| record["event"].as_str())
        .filter(|name| !name.starts_with("audit.") && *name != "key.created")
        .collect()
}

/// interfaces.md §2, X-PARTIAL: the report of every kind of end is valid JSON with the same fields, and the log holds what was
/// enforced before it holds the start.
#[test]
fn x_partial_every_end_has_its_report_and_its_events() {
    if !can_confine() {
        return;
    }
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let workspace = tempfile::tempdir().unwrap();
    let sh = |script: &'static str| ["sh", "-c", script].map(OsStr::new);
    let ran = ["enforcement.report", "process.start", "process.exit"];

    let (code, report, audit) = reported(workspace.path(), &[], &sh("exit 9"));
    assert_eq!((code, events(&audit).as_slice()), (Some(9), &ran[..]));
    assert_eq!(report["mode"], "workspace-write");
    assert_eq!(report["network"]["access"], "none");
    assert_eq!(
        report["roots"][0]["rights"],
        serde_json::json!(["read", "write", "execute", "delete"])
    );
    assert_eq!(report["enforcement"]["level"], "full");
    assert!(
        report["program"]["path"].as_str().unwrap().starts_with('/'),
        "{report}"
    );
    assert_eq!(report["program"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(report["leftovers"], 0);
    assert!(report["elapsed_ms"].as_f64().unwrap() > 0.0);
    assert!(report["error"].is_null());

    let (code, report, audit) = reported(workspace.path(), &[], &sh("kill -9 $$"));
    assert_eq!((code, events(&audit).as_slice()), (Some(137), &ran[..]));
    assert_eq!(
        report["end"],
        serde_json::json!({"how": "signaled", "signal": 9})
    );

    // Allowed, and it did not come to it: no denial.
    let (code, report, audit) = reported(workspace.path(), &[], &[OsStr::new("no-such-command")]);
    assert_eq!((code, events(&audit).as_slice()), (Some(127), &ran[..]));
    assert_eq!(report["error"]["code"], "process.not_found");
    assert!(
        report["end"].is_null() && report["program"].is_null(),
        "{report}"
    );
    let exit = audit
        .iter()
        .find(|record| record["event"] == "process.exit")
        .unwrap();
    assert_eq!(
        (&exit["code"], &exit["detail"]["started"]),
        (&"process.not_found".into(), &false.into())
    );

    // Not UTF-8, and far too long for the kernel.
    let (code, _, _) = reported(workspace.path(), &[], &[OsStr::from_bytes(b"no-\xff")]);
    assert_eq!(code, Some(127));

    let (code, report, audit) = reported(
        workspace.path(),
        &["--mode", "danger-full-access"],
        &sh("exit 9"),
    );
    assert_eq!(code, Some(126));
    assert_eq!(report["error"]["code"], "policy.approval_required");
    assert!(report["mode"].is_null(), "{report}");
    assert!(events(&audit).is_empty());
}

/// interfaces.md §2: our own failures are told apart from the command's by our name before every line of ours.
#[test]
fn our_messages_begin_with_our_name() {
    if !can_confine() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    for (flags, argv) in [
        (&[][..], &["no-such-command-here"][..]),
        (&["--root", "/no/such/directory"], &["true"]),
        (&["--root", "/etc"], &["true"]),
        (&["--config", "/no/such/file"], &["true"]),
        (
            &["--report", "json", "--report-file", "/dev/null"],
            &["true"],
        ),
    ] {
        let run = exec_with(workspace.path(), flags, argv);
        assert!(
            matches!(run.code, Some(125..=127)),
            "{flags:?} {:?}",
            run.code
        );
        assert!(!run.err.is_empty());
        for line in run.err.lines() {
            assert!(line.starts_with("agent-mcp: "), "{flags:?}: {line}");
        }
    }
    let run = exec(workspace.path(), &["sh", "-c", "echo theirs >&2; exit 127"]);
    assert_eq!((run.code, run.err.as_str()), (Some(127), "theirs\n"));
}

/// X-PROTECT, escape F32: a repository that a command makes is said in both languages, reported and audited, and stays.
#[test]
fn x_protect_a_planted_repository_is_reported() {
    if !can_confine() {
        return;
    }
    for (lang, word) in [("en", "left"), ("ja", "残しました")] {
        let workspace = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let script = "mkdir -p a/.git/hooks; echo 'curl evil' > a/.git/hooks/pre-commit";
        let output = command(state.path())
            .current_dir(workspace.path())
            .args(["exec", "--lang", lang, "--report", "json", "--", "sh", "-c"])
            .arg(script)
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let planted = workspace.path().canonicalize().unwrap().join("a/.git");
        let shown = planted.display().to_string();
        let line = said.lines().find(|line| line.contains(word));
        assert!(line.is_some_and(|line| line.contains(&shown)), "{said}");
        assert!(said.starts_with("agent-mcp: "), "{said}");
        assert!(!said.contains("agent-mcp: agent-mcp: "), "{said}");
        let report = said.lines().find(|line| line.starts_with('{')).unwrap();
        let report: serde_json::Value = serde_json::from_str(report).unwrap();
        assert_eq!(
            report["findings"],
            serde_json::json!([{ "path": shown, "kind": "appeared" }])
        );
        assert!(planted.join("hooks/pre-commit").exists());
        let audit = command(state.path())
            .args(["audit", "show", "--json"])
            .output()
            .unwrap();
        let recorded = text(&audit.stdout);
        let line = recorded
            .lines()
            .find(|line| line.contains("sandbox.finding"));
        assert!(line.is_some_and(|line| line.contains(&shown)), "{recorded}");
    }
}

/// X-NET, ST-13, ST-14: a listed port of this machine is reached through the configuration, another is not, and the audit
/// says how much went there.
#[test]
fn x_net_local_endpoints_work_and_are_audited() {
    use std::io::{Read as _, Write as _};
    if !can_confine() || !std::path::Path::new("/bin/bash").exists() {
        return;
    }
    let serve = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut four = [0u8; 4];
                let _answered = stream
                    .read_exact(&mut four)
                    .and_then(|()| stream.write_all(b"HOST-OK"));
            }
        });
        port
    };
    let (listed, other) = (serve(), serve());
    let place = support::Place::new(
        "http://localhost:9",
        &format!(
            "sandbox:\n  workspaces: [ws]\n  network:\n    access: local\n    local_endpoints: [{listed}]\n"
        ),
    );
    let talk = |port: u16| {
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && printf ping >&3 && cat <&3");
        let output = command(&place.state)
            .current_dir(&place.workspace)
            .args(["exec", "--config"])
            .arg(&place.config)
            .args(["--", "/bin/bash", "-c", &script])
            .output()
            .unwrap();
        (output.status.code(), text(&output.stdout))
    };
    assert_eq!(talk(listed), (Some(0), "HOST-OK".to_owned()));
    assert_eq!(talk(other), (Some(1), String::new()));
    let exits: Vec<_> = place
        .audit()
        .into_iter()
        .filter(|event| event.to_string().contains("\"relayed\""))
        .map(|event| event.to_string())
        .collect();
    assert_eq!(exits.len(), 2, "{exits:?}");
    let wanted = format!("\"endpoint\":\"localhost:{listed}\"");
    assert!(exits[0].contains(&wanted), "{}", exits[0]);
    assert!(exits[0].contains("\"bytes_out\":4"), "{}", exits[0]);
    assert!(exits[0].contains("\"bytes_in\":7"), "{}", exits[0]);
    assert!(exits[1].contains("\"relayed\":[]"), "{}", exits[1]);
}

/// Issue 3, item 6; users.md 12: what was refused is said with its reason in both languages, reported and audited.
#[test]
fn dc_3_denials_are_explained_in_both_languages() {
    if !can_confine() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    // Not below /tmp or /var/tmp: one of them is the sandbox's private area.
    let home = std::env::var_os("HOME").expect("a home directory");
    let outside = tempfile::tempdir_in(home).unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "x").unwrap();
    let script = format!(
        "cat {}; touch /usr/new; exec 3<>/dev/tcp/192.0.2.1/80",
        secret.display()
    );
    let argv = ["bash", "-c", &script];
    for (lang, write, network, opening) in [
        (
            "en",
            "writing /usr/new was refused",
            "sandbox.network.access is none",
            "opening ",
        ),
        (
            "ja",
            "/usr/new への書き込みは拒否されました",
            "sandbox.network.access が none です",
            " を開くこと",
        ),
    ] {
        // Opens are looked at, because not every machine has a tripwire.
        let run = exec_with(
            workspace.path(),
            &["--explain", "opens", "--lang", lang],
            &argv,
        );
        assert_ne!(run.code, Some(0));
        let ours = |wanted: &str| {
            run.err
                .lines()
                .any(|line| line.starts_with("agent-mcp: ") && line.contains(wanted))
        };
        assert!(ours(write) && ours(network), "{}", run.err);
        assert!(
            ours(opening) && ours(secret.to_str().unwrap()),
            "{}",
            run.err
        );
        let quiet = exec_with(workspace.path(), &["--explain", "off"], &argv);
        assert!(!quiet.err.contains("agent-mcp: "), "{}", quiet.err);
    }
    let argv = argv.map(std::ffi::OsStr::new);
    let (_, report, audit) = reported(workspace.path(), &["--explain", "opens"], &argv);
    let denials = report["denials"].as_array().unwrap();
    assert_eq!(report["explanation"], "on");
    assert!(denials.iter().any(|denial| denial["target"] == "/usr/new"
        && denial["operation"] == "write"
        && denial["rule"] == "runtime"));
    let recorded = events(&audit);
    let recorded = recorded.iter().filter(|event| **event == "policy.deny");
    assert_eq!(recorded.count(), denials.len());
}
