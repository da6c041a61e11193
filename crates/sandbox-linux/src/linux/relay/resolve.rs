//! Asking the host's resolver, in a process of its own that can be ended.
//!
//! The C library's resolver cannot be interrupted, and a thread that waits in it could neither be ended nor tolerated
//! when the sandbox's init is cloned. So this program is executed again, answers on a pipe, and is killed when it takes
//! too long or is done. The same in one-shot and standing sandboxes.

use super::super::helper;
use super::super::sys::{names, process};
use policy::sandbox::SandboxError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read as _, Write as _};
use std::net::ToSocketAddrs as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use crate::Answers;

/// The name the resolving process is started under.
pub(crate) const NAME: &str = "agent-mcp: resolver";

/// For all names of a sandbox together.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Names that are asked for at the same time.
const AT_ONCE: usize = 16;
/// Addresses of one name that are looked at.
const MOST_ANSWERS: usize = 1024;
/// Bytes of answers that are taken.
const MOST_BYTES: usize = 4 << 20;

/// Asks for all names at once, for five seconds at most.
///
/// # Errors
/// `Unavailable` where this program cannot be executed again. What is wrong with one name is that name's answer.
pub(crate) fn ask(names: &[String]) -> Result<Answers, SandboxError> {
    let unavailable = |reason: String| SandboxError::Unavailable {
        stage: "resolver",
        reason,
    };
    if !helper::is_possible() {
        return Err(unavailable(
            "the program did not call sandbox_linux::init() first in main".into(),
        ));
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME);
    ask_through(&mut command, names, ANSWERS_WITHIN).map_err(|error| unavailable(error.to_string()))
}

/// A child that is gone afterwards, whatever happens.
struct Asked(Child);

impl Drop for Asked {
    fn drop(&mut self) {
        // One that has ended already is what is wanted; where children reap themselves there is nothing to wait for.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn ask_through(
    command: &mut Command,
    names: &[String],
    within: Duration,
) -> std::io::Result<Answers> {
    let deadline = Instant::now() + within;
    let mut child = Asked(
        command
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?,
    );
    let (input, output) = (child.0.stdin.take(), child.0.stdout.take());
    if let Some(mut input) = input {
        // At most 256 names of 253 bytes fit into a pipe. A child that is gone answers nothing, which is seen below.
        let _gone = input.write_all((names.join("\n") + "\n").as_bytes());
    }
    let mut text = Vec::new();
    let mut in_time = true;
    if let Some(mut output) = output {
        while text.len() < MOST_BYTES {
            let left = deadline.saturating_duration_since(Instant::now());
            let limit = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&limit)) {
                Ok(0) => {
                    in_time = false;
                    break;
                }
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let mut chunk = [0u8; 4096];
            match output.read(&mut chunk)? {
                0 => break,
                length => text.extend_from_slice(&chunk[..length]),
            }
        }
    }
    let silent = if in_time {
        "the resolver ended without an answer".to_owned()
    } else {
        format!("no answer within {} s", within.as_secs_f32())
    };
    Ok(read(names, &text, &silent))
}

/// One line for each name: the name, `=` and its addresses, or `!` and the reason.
fn read(names: &[String], text: &[u8], silent: &str) -> Answers {
    let mut answers: Answers = names
        .iter()
        .map(|name| (name.clone(), Err(silent.to_owned())))
        .collect();
    let text = String::from_utf8_lossy(text);
    // What has no end of line was cut.
    for line in text
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
    {
        let mut words = line.splitn(3, ' ');
        let (Some(name), Some(kind)) = (words.next(), words.next()) else {
            continue;
        };
        let rest = words.next().unwrap_or_default();
        let Some(answer) = answers.get_mut(name) else {
            continue;
        };
        *answer = match kind {
            "=" => rest
                .split_ascii_whitespace()
                .map(|word| word.parse().map_err(|_| format!("not an address: {word}")))
                .collect(),
            _ => Err(rest.to_owned()),
        };
    }
    answers
}

/// The resolving process: names come on standard input, answers go to standard output.
pub(crate) fn run() -> ! {
    // Whatever a thread of the server had open without close-on-exec.
    let status = match super::super::sys::file::close_range(3, u32::MAX, false) {
        Ok(()) => answer_all(),
        Err(_) => 125,
    };
    process::exit(status)
}

fn answer_all() -> i32 {
    names::use_built_in_services();
    let mut text = String::new();
    let read = std::io::stdin()
        .take(MOST_BYTES as u64)
        .read_to_string(&mut text);
    if process::die_with_parent().is_err() || read.is_err() {
        return 125;
    }
    let names: Vec<&str> = text.lines().collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        loop {
            let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(name) = names.get(index) else { return };
            // Nobody reads any more: the one who asked has given up, and ends us.
            let _gone = std::io::stdout().write_all(answer(name).as_bytes());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..names.len().min(AT_ONCE) {
            scope.spawn(work);
        }
    });
    i32::from(std::io::stdout().flush().is_err())
}

fn answer(name: &str) -> String {
    // The port only makes it an endpoint; every address comes once for TCP.
    match (name, 0u16).to_socket_addrs() {
        Ok(found) => {
            let mut line = format!("{name} =");
            for address in found.take(MOST_ANSWERS) {
                line.push(' ');
                line.push_str(&address.ip().to_string());
            }
            line + "\n"
        }
        Err(error) => format!("{name} ! {}\n", error.to_string().replace('\n', " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(text);
        command
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn answers_are_read_and_the_rest_is_silence() {
        let mut command = script(
            "read first; echo \"$first = 1.1.1.1 2606::1\"; echo 'b ! no such name'; echo 'd = x'",
        );
        let asked = names(&["a", "b", "c", "d"]);
        let answers = ask_through(&mut command, &asked, Duration::from_secs(60)).unwrap();
        assert_eq!(
            answers["a"],
            Ok(vec!["1.1.1.1".parse().unwrap(), "2606::1".parse().unwrap()])
        );
        assert_eq!(answers["b"], Err("no such name".into()));
        assert_eq!(
            answers["c"],
            Err("the resolver ended without an answer".into())
        );
        assert_eq!(answers["d"], Err("not an address: x".into()));
    }

    /// Issue 3: a name that never answers is given up, and what was answered meanwhile is kept.
    #[test]
    fn a_name_that_never_answers_is_given_up() {
        let mut command = script("echo 'a = 1.1.1.1'; printf 'b = 9.9'; exec sleep 600");
        let limit = Duration::from_millis(300);
        let answers = ask_through(&mut command, &names(&["a", "b"]), limit).unwrap();
        assert!(answers["a"].is_ok());
        assert_eq!(answers["b"], Err("no answer within 0.3 s".into()));
    }

    #[test]
    fn the_hosts_file_is_asked() {
        let line = answer("localhost");
        assert!(line.starts_with("localhost = "), "{line}");
        assert!(line.ends_with('\n') && line.contains("127.0.0.1"), "{line}");
    }
}
