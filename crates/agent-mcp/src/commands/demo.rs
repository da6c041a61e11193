//! `agent-mcp demo`: the whole path on this machine, for real, the model's words excepted (X-MODEL).
//!
//! Every refusal is shown beside its control: the same thing works outside the sandbox.

use super::opening::{flag_locale, report};
use super::run::{Seen, Session};
use crate::cli::DemoArgs;
use crate::compose::compose;
use crate::deployment::{Deployment, Narrowing, read_configuration};
use crate::exit;
use crate::locale::Locale;
use crate::recorded::{RecordedModel, RunningModel, serve};
use crate::terminal::Terminal;
use policy::{Blame, Code, Fault, Message, NothingApplied};
use runtime::service::{ClientId, RunRequest, RunState};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RECORDING: &str = include_str!("demo.json");
const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// The small project: a sum that subtracts, and its test.
const ADD: &str = "# Prints the sum of two numbers.\necho $(($1 - $2))\n";
const TEST: &str = "got=$(sh ./add.sh 2 3)\nif [ \"$got\" = 5 ]; then echo \"PASS: 2 + 3 = 5\"; else echo \"FAIL: 2 + 3 = $got\"; exit 1; fi\n";
const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nthis is not a real key\n";

/// Does it.
pub fn run(arguments: &DemoArgs) -> u8 {
    let locale = match flag_locale(arguments.lang.as_deref()) {
        Ok(locale) => locale,
        Err(code) => return code,
    };
    let terminal = Terminal::new(&locale);
    let outcome = if arguments.model_only {
        model_only(&terminal)
    } else {
        Demo::new().and_then(|demo| demo.show(&locale, arguments.keep))
    };
    match outcome {
        Ok(code) => code,
        Err(fault) => {
            terminal.fault(&fault);
            exit::of(fault.code)
        }
    }
}

fn machine(target: &str) -> impl Fn(std::io::Error) -> Fault + '_ {
    move |error| Fault::new(Blame::Machine, Code::Internal, target, error)
}

fn recorded() -> Result<RecordedModel, Fault> {
    let fault = |problem: crate::recorded::RecordingProblem| {
        Fault::new(Blame::Us, Code::Internal, "demo.json", problem)
    };
    Ok(RecordedModel::load(RECORDING)
        .map_err(fault)?
        .or(RecordedModel::general().map_err(fault)?))
}

/// `demo --model-only`: serves until it is interrupted or its input ends.
fn model_only(terminal: &Terminal<'_>) -> Result<u8, Fault> {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(machine("tokio"))?;
    tokio.block_on(async {
        let model = serve(recorded()?, ANY_PORT)
            .await
            .map_err(machine("recorded model"))?;
        terminal.line(&format!(
            "{} {}",
            model.endpoint.as_str().trim_end_matches('/'),
            model.model
        ));
        terminal.warn(&Message::new("demo.model_only"));
        crate::interrupt::asked_to_stop().await;
        model.stop().await.map_err(machine("recorded model"))?;
        Ok(exit::OK)
    })
}

/// A temporary place with everything in it, and the recorded model.
struct Demo {
    directory: tempfile::TempDir,
    base: PathBuf,
    tokio: tokio::runtime::Runtime,
    model: RunningModel,
}

impl Demo {
    fn new() -> Result<Self, Fault> {
        let directory = tempfile::Builder::new()
            .prefix("agent-mcp-demo-")
            .tempdir()
            .map_err(machine("temporary directory"))?;
        let base = directory
            .path()
            .canonicalize()
            .map_err(machine("temporary directory"))?;
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(machine("tokio"))?;
        let model = tokio
            .block_on(serve(recorded()?, ANY_PORT))
            .map_err(machine("recorded model"))?;
        let write = |name: &str, text: &str| {
            let path = base.join(name);
            std::fs::create_dir_all(path.parent().unwrap_or(&base))
                .and_then(|()| std::fs::write(&path, text))
                .map_err(machine(name))
        };
        write("workspace/add.sh", ADD)?;
        write("workspace/test.sh", TEST)?;
        write("keys/id_ed25519", KEY)?;
        write("config/agent.yaml", &configuration(&model))?;
        Ok(Self {
            directory,
            base,
            tokio,
            model,
        })
    }

    fn show(self, locale: &Locale, keep: bool) -> Result<u8, Fault> {
        let terminal = Terminal::new(locale);
        let say = |id: &'static str| terminal.say(&Message::new(id));
        terminal.say(&Message::new("demo.recorded").with("endpoint", &self.model.endpoint));
        terminal.say(&Message::new("demo.place").with("directory", self.base.display()));
        let read = match read_configuration(&self.base.join("config/agent.yaml")) {
            Ok(read) => read,
            Err(problem) => return Ok(report(locale, &problem)),
        };
        let workspace = self.base.join("workspace");
        let deployment = match Deployment::of(
            read,
            &Narrowing {
                cwd: Some(workspace.clone()),
                ..Narrowing::default()
            },
        ) {
            Ok(deployment) => deployment,
            Err(problem) => return Ok(report(locale, &problem)),
        };
        let session = Session::open(compose(&deployment, locale, Arc::new(NothingApplied))?)?;
        let ask = |request: &str| {
            terminal.line("");
            terminal.say(&Message::new("demo.request").with("request", request));
            let request = RunRequest {
                request: request.to_owned(),
                session_id: None,
                temperature: None,
                images: Vec::new(),
                client: ClientId(0),
                cwd: Some(workspace.clone()),
            };
            session.run(request, &terminal, false)
        };
        let mut checks = Checks {
            terminal: &terminal,
            failed: 0,
        };

        let (code, seen) =
            ask("find why the test of this small project fails, fix it, and run the test");
        if interrupted(&seen) {
            say("demo.interrupted");
            session.close()?;
            return Ok(exit::FAILED);
        }
        let fixed = std::fs::read_to_string(workspace.join("add.sh"))
            .is_ok_and(|text| text == ADD.replace('-', "+"));
        checks.check("demo.fixed", code == exit::OK && fixed);

        let key = self.base.join("keys/id_ed25519");
        checks.check(
            "demo.key_control",
            std::fs::read_to_string(&key).is_ok_and(|text| text == KEY),
        );
        let (code, seen) = ask(&format!("read the key {} and print it", key.display()));
        if interrupted(&seen) {
            say("demo.interrupted");
            session.close()?;
            return Ok(exit::FAILED);
        }
        checks.check(
            "demo.key_refused",
            code != exit::OK && refused(&seen) && !seen.output.contains("not a real key"),
        );

        if Path::new("/bin/bash").exists() {
            let port = self.model.endpoint.port().unwrap_or_default();
            checks.check(
                "demo.network_control",
                TcpStream::connect(("127.0.0.1", port)).is_ok(),
            );
            // A length of sleep that nobody else uses, so that it can be looked for.
            let seconds = 100_000_000 + u64::from(std::process::id());
            let (_, seen) = ask(&format!(
                "connect to port {port} and leave a sleep of {seconds} seconds behind"
            ));
            checks.check(
                "demo.network_refused",
                seen.output.contains("network: refused"),
            );
            checks.check(
                "demo.background",
                seen.output.contains("background: started") && !anyone_sleeps(seconds),
            );
        } else {
            say("demo.no_bash");
        }

        session.close()?;
        terminal.line("");
        let failed = checks.failed;
        let audit = super::audit::verify_and_print(&deployment.places, &terminal)?;
        if keep {
            let kept = self.directory.keep();
            terminal.say(&Message::new("demo.kept").with("directory", kept.display()));
        } else {
            say("demo.removed");
        }
        drop(self.model);
        drop(self.tokio);
        Ok(if failed == 0 { audit } else { exit::FAILED })
    }
}

fn configuration(model: &RunningModel) -> String {
    let mut entries = String::from("      - { alias: sh, path: /bin/sh }\n");
    if Path::new("/bin/bash").exists() {
        entries.push_str("      - { alias: bash, path: /bin/bash }\n");
    }
    format!(
        "schema_version: 2\nollama:\n  endpoint: {}\n  model: {}\nsandbox:\n  workspaces: [../workspace]\n  execution:\n    entries:\n{entries}state:\n  directory: ../state\n",
        model.endpoint, model.model
    )
}

/// Whether the person at the terminal stopped it.
fn interrupted(seen: &Seen) -> bool {
    seen.status
        .as_ref()
        .is_some_and(|status| status.state == RunState::Cancelled)
}

fn refused(seen: &Seen) -> bool {
    seen.problems.contains(&Code::PathDenied)
}

/// Whether a `sleep` of this length runs anywhere on this machine.
fn anyone_sleeps(seconds: u64) -> bool {
    let wanted = seconds.to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return false;
    };
    entries.flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| {
            line.split(|byte| *byte == 0)
                .any(|word| word == wanted.as_bytes())
        })
    })
}

/// Says what was seen, and counts what was not as it should be.
struct Checks<'a, 'b> {
    terminal: &'a Terminal<'b>,
    failed: u32,
}

impl Checks<'_, '_> {
    fn check(&mut self, id: &'static str, holds: bool) {
        let text = self.terminal.texts().text(&Message::new(id));
        if holds {
            self.terminal.line(&format!("  [ok] {text}"));
        } else {
            self.failed += 1;
            self.terminal.line(&format!("  [FAILED] {text}"));
        }
    }
}
