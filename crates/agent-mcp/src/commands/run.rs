//! `agent-mcp run`: one request at this terminal, with plan, progress, tokens against estimate, and the answer.

use super::opening::{Opened, open_applied};
use crate::cli::RunArgs;
use crate::compose::{Composed, Running, compose};
use crate::deployment::Narrowing;
use crate::exit;
use crate::terminal::{Terminal, out_json};
use policy::{Blame, Code, Fault, Localize, Message};
use runtime::service::{ClientId, Image, RunEvent, RunRequest, RunState, RunStatus};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The one client of this process.
const CLIENT: ClientId = ClientId(0);

/// Does it.
pub fn run(arguments: &RunArgs) -> u8 {
    let cwd = std::env::current_dir().ok();
    let (Opened { deployment, locale }, watch) = match open_applied(
        &arguments.common,
        &Narrowing {
            cwd: cwd.clone(),
            ..Narrowing::default()
        },
    ) {
        Ok(opened) => opened,
        Err(code) => return code,
    };
    let terminal = Terminal::new(&locale);
    let mut images = Vec::new();
    for path in &arguments.image {
        match read_image(
            path,
            deployment
                .config
                .as_ref()
                .map_or(0, |config| config.mcp.images.max_bytes_each),
        ) {
            Ok(image) => images.push(image),
            Err(fault) => {
                terminal.fault(&fault);
                return exit::USAGE;
            }
        }
    }
    let request = RunRequest {
        request: arguments.request.clone(),
        session_id: None,
        temperature: None,
        images,
        client: CLIENT,
        cwd,
    };
    let composed = match compose(&deployment, &locale, Arc::new(watch)) {
        Ok(composed) => composed,
        Err(fault) => {
            terminal.fault(&fault);
            return exit::of(fault.code);
        }
    };
    let session = match Session::open(composed) {
        Ok(session) => session,
        Err(fault) => {
            terminal.fault(&fault);
            return exit::of(fault.code);
        }
    };
    let (code, _) = session.run(request, &terminal, arguments.json);
    match session.close() {
        Ok(()) => code,
        Err(fault) => {
            terminal.fault(&fault);
            exit::of(fault.code).max(code)
        }
    }
}

/// A running runtime on this terminal.
pub struct Session {
    tokio: tokio::runtime::Runtime,
    running: Running,
}

/// What one run came to at this terminal.
#[derive(Debug, Default)]
pub struct Seen {
    /// The last status, if the run was accepted.
    pub status: Option<Box<RunStatus>>,
    /// Excerpts of everything the tools gave back.
    pub output: String,
    /// Codes of everything that was refused or failed on the way.
    pub problems: Vec<Code>,
}

impl Session {
    /// Starts the runtime.
    ///
    /// # Errors
    /// The machine has no threads left.
    pub fn open(composed: Composed) -> Result<Self, Fault> {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| Fault::new(Blame::Machine, Code::Internal, "tokio", error))?;
        let running = tokio.block_on(async { composed.start() })?;
        Ok(Self { tokio, running })
    }

    /// Runs one request to its end and prints what happens. Ctrl-C, SIGTERM and a closed terminal stop it safely.
    pub fn run(&self, request: RunRequest, terminal: &Terminal<'_>, json: bool) -> (u8, Seen) {
        self.tokio.block_on(async {
            let service = self.running.service();
            let mut seen = Seen::default();
            let submitted = match service.submit(request).await {
                Ok(submitted) => submitted,
                Err(refusal) => {
                    terminal.refusal(&refusal);
                    return (exit::of(refusal.code), seen);
                }
            };
            let mut printer = Printer { terminal, json };
            let mut events = service.subscribe(submitted.run_id).await;
            let mut code = exit::FAILED;
            let mut stopping = false;
            let stop = crate::interrupt::asked_to_stop();
            tokio::pin!(stop);
            loop {
                tokio::select! {
                    event = events.recv() => match event {
                        Some(RunEvent::Finished(status)) => {
                            code = printer.finished(&status);
                            seen.status = Some(status);
                            break;
                        }
                        Some(event) => {
                            if let RunEvent::ToolFinished { problem, excerpt, .. } = &event {
                                seen.output.push_str(excerpt);
                                seen.output.push('\n');
                                seen.problems.extend(problem.iter().map(|(code, _)| *code));
                            }
                            printer.event(&event);
                        }
                        None => break,
                    },
                    () = &mut stop, if !stopping => {
                        stopping = true;
                        terminal.warn(&Message::new("run.stopping"));
                        drop(service.cancel(submitted.run_id).await);
                    }
                }
            }
            (code, seen)
        })
    }

    /// Stops everything and returns when it is clean (DESIGN §16.1).
    ///
    /// # Errors
    /// Something could not be cleaned or recorded.
    pub fn close(self) -> Result<(), Fault> {
        self.tokio.block_on(self.running.stop())
    }
}

/// Prints events as text or as JSON lines.
struct Printer<'a, 'b> {
    terminal: &'a Terminal<'b>,
    json: bool,
}

impl Printer<'_, '_> {
    fn event(&mut self, event: &RunEvent) {
        if self.json {
            out_json(&json_event(self.terminal.texts(), event));
            return;
        }
        let texts = self.terminal.texts();
        match event {
            RunEvent::State(state) => {
                let id = match state {
                    RunState::Planning => "run.planning",
                    _ => return,
                };
                self.terminal.say(&Message::new(id));
            }
            RunEvent::Planned {
                tasks,
                critical_path,
            } => {
                self.terminal
                    .say(&Message::new("run.plan").with("count", tasks.len()));
                for task in tasks {
                    let on_path = critical_path
                        .tasks()
                        .iter()
                        .any(|id| id.as_str() == task.id);
                    let depends = if task.depends_on.is_empty() {
                        String::new()
                    } else {
                        format!(" ← {}", task.depends_on.join(", "))
                    };
                    self.terminal.line(&format!(
                        "  {} {}{depends}  {}  [{}]  ~{:.0} tokens",
                        if on_path { "*" } else { " " },
                        task.id,
                        one_line(&task.description),
                        task.required_tools.join(", "),
                        task.expected_tokens,
                    ));
                }
                self.terminal.say(
                    &Message::new("run.critical_path")
                        .with("tokens", format!("{:.0}", critical_path.expected_tokens())),
                );
            }
            RunEvent::TaskStarted { task, enforcement } => {
                self.terminal
                    .say(&Message::new("run.task_started").with("task", task));
                if let Some(enforcement) = enforcement {
                    let missing: Vec<&str> = enforcement
                        .missing_controls()
                        .iter()
                        .map(|control| control.word())
                        .collect();
                    let level = format!("{:?}", enforcement.level()).to_lowercase();
                    let missing = if missing.is_empty() {
                        "-".to_owned()
                    } else {
                        missing.join(", ")
                    };
                    self.terminal.say(
                        &Message::new("run.enforcement")
                            .with("level", level)
                            .with("missing", missing),
                    );
                }
            }
            RunEvent::ToolFinished {
                tool,
                target,
                problem,
                excerpt,
                ..
            } => {
                match problem {
                    None => self
                        .terminal
                        .line(&format!("    + {tool} {}", one_line(target))),
                    Some((code, message)) => {
                        self.terminal
                            .line(&format!("    x {tool} {}", one_line(target)));
                        self.terminal
                            .line(&format!("      {code}: {}", texts.text(message)));
                    }
                }
                for line in excerpt.lines().take(6) {
                    self.terminal.line(&format!("      | {line}"));
                }
            }
            RunEvent::Notice(message) => self
                .terminal
                .line(&format!("    ! {}", texts.text(message))),
            RunEvent::TaskEnded {
                task,
                completed,
                spent,
                expected,
            } => {
                let id = if *completed {
                    "run.task_completed"
                } else {
                    "run.task_failed"
                };
                self.terminal.say(
                    &Message::new(id)
                        .with("task", task)
                        .with("spent", spent.total())
                        .with("expected", format!("{expected:.0}")),
                );
            }
            RunEvent::Finished(_) => {}
        }
    }

    fn finished(&mut self, status: &RunStatus) -> u8 {
        let texts = self.terminal.texts();
        let code = match status.state {
            RunState::Completed => exit::OK,
            _ => status
                .last_error
                .as_ref()
                .map_or(exit::FAILED, |(code, _)| exit::of(*code)),
        };
        if self.json {
            let last_error = status.last_error.as_ref().map(|(code, message)| {
                serde_json::json!({ "code": code.as_str(), "message": texts.text(message) })
            });
            let object = serde_json::json!({
                "event": "finished", "task_id": status.run_id.to_string(), "session_id": status.session_id.to_string(),
                "status": status.state, "completed_tasks": status.completed_tasks, "total_tasks": status.total_tasks,
                "token_usage": { "input": status.token_usage.input, "output": status.token_usage.output, "total": status.token_usage.total() },
                "critical_path_tokens": status.critical_path_tokens, "iterations": status.iterations, "replans": status.replans,
                "last_error": last_error, "message": texts.text(&status.message), "result": status.result,
            });
            out_json(&object);
            return code;
        }
        self.terminal.say(
            &Message::new("run.usage")
                .with("input", status.token_usage.input)
                .with("output", status.token_usage.output)
                .with("total", status.token_usage.total())
                .with("calls", status.iterations),
        );
        match (&status.result, &status.last_error) {
            (Some(result), _) if status.state == RunState::Completed => {
                self.terminal.line("");
                self.terminal.line(result);
            }
            (_, Some((code, message))) => {
                self.terminal.warn(
                    &Message::new("run.failed")
                        .with("code", code)
                        .with("message", texts.text(message)),
                );
                self.terminal.warn(&message.renamed(code.hint_id()));
            }
            _ => self.terminal.warn(&status.message),
        }
        code
    }
}

fn json_event(texts: &dyn Localize, event: &RunEvent) -> serde_json::Value {
    match event {
        RunEvent::State(state) => serde_json::json!({ "event": "state", "status": state }),
        RunEvent::Planned {
            tasks,
            critical_path,
        } => {
            serde_json::json!({ "event": "planned", "tasks": tasks, "critical_path": critical_path })
        }
        RunEvent::TaskStarted { task, enforcement } => {
            serde_json::json!({ "event": "task_started", "planned_task": task, "enforcement": enforcement })
        }
        RunEvent::ToolFinished {
            task,
            tool,
            target,
            problem,
            excerpt,
        } => {
            let problem = problem.as_ref().map(|(code, message)| {
                serde_json::json!({ "code": code.as_str(), "message": texts.text(message) })
            });
            serde_json::json!({
                "event": "tool_finished", "planned_task": task, "tool": tool, "target": target, "problem": problem, "excerpt": excerpt,
            })
        }
        RunEvent::Notice(message) => {
            serde_json::json!({ "event": "notice", "message": texts.text(message) })
        }
        RunEvent::TaskEnded {
            task,
            completed,
            spent,
            expected,
        } => serde_json::json!({
            "event": "task_ended", "planned_task": task, "completed": completed, "spent": spent, "expected_tokens": expected,
        }),
        RunEvent::Finished(_) => serde_json::Value::Null,
    }
}

/// Text on one line, whole.
pub fn one_line_whole(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Model text on one short line (X-ONELINE).
pub fn one_line(text: &str) -> String {
    let line = one_line_whole(text);
    match line.char_indices().nth(160) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

fn read_image(path: &Path, limit: u64) -> Result<Image, Fault> {
    use base64::Engine;
    let fault = |why: Message| {
        let place = path.display().to_string();
        Fault::because(Blame::Client, Code::ImageInvalid, place, why)
    };
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
        .map_err(|error| fault(error.into()))?;
    if bytes.len() as u64 > limit {
        return Err(fault(Message::new("reason.too_large").with("limit", limit)));
    }
    let mime_type = match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => "image/webp",
        _ => return Err(fault(Message::new("reason.no_image"))),
    };
    Ok(Image {
        mime_type: mime_type.to_owned(),
        data_base64: base64::engine::general_purpose::STANDARD.encode(bytes),
    })
}
