//! On a terminal the command has one of its own (issue 3, item 6): job control, sizes, nothing of the real one.

use crate::support::world::{World, eventually, world};
use crate::support::{Spec, once_command};
use crate::{Checked, Test};
use rustix::process::{Pid, WaitOptions, WaitStatus};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, Test)] = &[
    ("terminal_is_the_commands_own", is_its_own),
    ("terminal_keys_make_signals", keys_make_signals),
    ("terminal_stops_the_whole_job", stops_the_whole_job),
    ("terminal_shells_have_job_control", shells_have_job_control),
    ("terminal_follows_the_size", follows_the_size),
    ("terminal_loses_nothing", loses_nothing),
    (
        "terminal_without_all_three_streams_is_none",
        without_all_three,
    ),
];

/// A person at a terminal, with `Confined::run` as the foreground job.
struct Person {
    near: OwnedFd,
    far: OwnedFd,
    job: Child,
    seen: Vec<u8>,
    _world: World,
}

const FLAGS: OpenptFlags = OpenptFlags::RDWR
    .union(OpenptFlags::NOCTTY)
    .union(OpenptFlags::CLOEXEC);

fn person(argv: &[&str]) -> Person {
    start(argv, [true; 3])
}

fn start(argv: &[&str], on_terminal: [bool; 3]) -> Person {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let near = openpt(FLAGS).unwrap();
    unlockpt(&near).unwrap();
    let far = ioctl_tiocgptpeer(&near, FLAGS).unwrap();
    let size = Winsize {
        ws_row: 31,
        ws_col: 97,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&near, size).unwrap();
    let mut command = once_command(&spec, argv);
    let stream = |on: bool| {
        if on {
            Stdio::from(far.try_clone().unwrap())
        } else {
            Stdio::null()
        }
    };
    command.stdin(stream(on_terminal[0]));
    command.stdout(stream(on_terminal[1]));
    command.stderr(stream(on_terminal[2]));
    let number = far.as_raw_fd();
    // SAFETY: system calls only. The descriptor is open until the child has executed.
    unsafe {
        command.pre_exec(move || {
            if libc::setsid() < 0 || libc::ioctl(number, libc::TIOCSCTTY, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGTSTP, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    Person {
        near,
        far,
        job: command.spawn().unwrap(),
        seen: Vec::new(),
        _world: world,
    }
}

impl Person {
    fn types(&self, keys: &str) {
        assert_eq!(
            rustix::io::write(&self.near, keys.as_bytes()),
            Ok(keys.len())
        );
    }

    /// Reads until this text is on the screen; what is before it is forgotten.
    fn sees(&mut self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let found = self
                .seen
                .windows(text.len())
                .position(|part| part == text.as_bytes());
            if let Some(at) = found {
                self.seen.drain(..at + text.len());
                return;
            }
            let shown = String::from_utf8_lossy(&self.seen).into_owned();
            assert!(Instant::now() < deadline, "{text:?} is not in {shown:?}");
            self.read(&shown);
        }
    }

    fn read(&mut self, so_far: &str) {
        let mut poll = [rustix::event::PollFd::new(
            &self.near,
            rustix::event::PollFlags::IN,
        )];
        let second = rustix::event::Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        if rustix::event::poll(&mut poll, Some(&second)).unwrap() > 0 {
            let mut buffer = [0; 4096];
            let count = rustix::io::read(&self.near, &mut buffer)
                .unwrap_or_else(|error| panic!("{error} after {so_far:?}"));
            self.seen.extend_from_slice(&buffer[..count]);
        }
    }

    fn status(&mut self) -> Option<i32> {
        self.job.wait().unwrap().code()
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.far)
            .unwrap()
            .local_modes
            .contains(LocalModes::ICANON)
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.job)
    }
}

/// A controlling terminal that answers, of the same size, that is not the real one; afterwards the real one is as before.
fn is_its_own() -> Checked {
    let script = "echo asked > /dev/tty; stty size; stty -echo; readlink /proc/self/fd/0; exit 6";
    let mut person = person(&["/bin/sh", "-c", script]);
    let real = rustix::pty::ptsname(&person.near, Vec::new())?.into_string()?;
    person.sees("asked\r\n");
    person.sees("31 97\r\n");
    person.sees("/");
    person.sees("\r\n");
    assert_eq!(person.status(), Some(6));
    let shown = String::from_utf8_lossy(&person.seen).into_owned();
    assert!(!shown.contains(&real), "{shown}");
    assert!(!person.is_raw());
    assert!(
        tcgetattr(&person.far)?
            .local_modes
            .contains(LocalModes::ECHO)
    );
    Ok(())
}

/// Ctrl-C and Ctrl-\ end the command, and the status says by which signal.
fn keys_make_signals() -> Checked {
    for (key, status) in [("\x03", 130), ("\x1c", 131)] {
        let mut person = person(&["/bin/sh", "-c", "echo ready; exec sleep 300"]);
        person.sees("ready\r\n");
        person.types(key);
        assert_eq!(person.status(), Some(status));
    }
    let mut person = person(&["/bin/cat"]);
    person.types("line\n");
    person.sees("line\r\nline\r\n");
    person.types("\x04");
    assert_eq!(person.status(), Some(0));
    Ok(())
}

/// Ctrl-Z stops the command and us, with the terminal as it was; SIGCONT lets both go on. A shell in between watches: here
/// the job is its own session's leader, whose group is orphaned, so the kernel would not stop it; a parent in the session does.
fn stops_the_whole_job() -> Checked {
    let mut person = person(&["/bin/sh", "-c", "echo ready; read word; echo got $word"]);
    person.sees("ready\r\n");
    eventually("raw", || person.is_raw());
    // Nobody could continue us: the key is ignored, as for any program whose group is orphaned.
    person.types("\x1a");
    person.types("one\n");
    person.sees("got one\r\n");
    assert_eq!(person.status(), Some(0));
    // Told by a signal that cannot be refused: both stop, the terminal is free, both go on.
    let mut person = self::person(&["/bin/sh", "-c", "echo ready; read word; echo got $word"]);
    person.sees("ready\r\n");
    eventually("raw", || person.is_raw());
    rustix::process::kill_process(person.id(), rustix::process::Signal::TSTP)?;
    let status = rustix::process::waitpid(Some(person.id()), WaitOptions::UNTRACED)?;
    assert!(status.is_some_and(|(_, status): (_, WaitStatus)| status.stopped()));
    assert!(!person.is_raw());
    rustix::process::kill_process(person.id(), rustix::process::Signal::CONT)?;
    eventually("raw again", || person.is_raw());
    person.types("two\n");
    person.sees("got two\r\n");
    assert_eq!(person.status(), Some(0));
    Ok(())
}

/// A shell inside has jobs of its own: Ctrl-Z is its child's, `fg` brings it back, Ctrl-C ends it.
fn shells_have_job_control() -> Checked {
    if !std::path::Path::new("/bin/bash").exists() {
        eprintln!("skipped, needs: bash");
        return Ok(());
    }
    let mut person = person(&["/bin/bash", "--norc", "--noprofile", "-i"]);
    person.types("PS1='%% '; echo be''gin\n");
    person.sees("begin\r\n");
    // It waits without starting anything: a shell that is waiting for its child of vfork to execute is not stopped when the
    // child is (the kernel lets only SIGKILL through there), and the job would then never be reported as stopped.
    person.types(
        "sh -c 'trap \"echo ag\"\"ain\" CONT; echo st''arted; while :; do read word; done'\n",
    );
    person.sees("started\r\n");
    person.types("\x1a");
    person.sees("Stopped");
    person.sees("%% ");
    person.types("fg\n");
    person.sees("again\r\n");
    person.types("\x03");
    person.sees("%% ");
    person.types("echo status $?; exit 7\n");
    person.sees("status 130");
    assert_eq!(person.status(), Some(7));
    Ok(())
}

/// A change of size reaches the command as SIGWINCH and as a size.
fn follows_the_size() -> Checked {
    let script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done";
    let mut person = person(&["/bin/sh", "-c", script]);
    person.sees("ready\r\n");
    let size = Winsize {
        ws_row: 40,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&person.near, size)?;
    person.sees("40 120\r\n");
    assert_eq!(person.status(), Some(0));
    Ok(())
}

/// What is written last arrives, however much is on its way.
fn loses_nothing() -> Checked {
    let mut person = person(&[
        "/bin/sh",
        "-c",
        "stty -opost; seq 1 30000; printf 'the end'",
    ]);
    person.sees("\n30000\n");
    person.sees("the end");
    assert_eq!(person.status(), Some(0));
    Ok(())
}

/// With one stream elsewhere there is no controlling terminal inside, and ours stays as it is.
fn without_all_three() -> Checked {
    let script = "echo x > /dev/tty && exit 9; read word; echo got $word; exit 3";
    let mut person = start(&["/bin/sh", "-c", script], [true, true, false]);
    person.types("word\n");
    person.sees("got word\r\n");
    assert!(!person.is_raw());
    assert_eq!(person.status(), Some(3));
    Ok(())
}
