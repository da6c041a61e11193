//! `cargo xtask soak`: thousands of runs of `agent-mcp exec` and of standing Tasks, several at a time, most of them ended by
//! SIGKILL at a random instant; then everything that could be left is counted and compared with what was there before.
//!
//! This process is the reaper of everything it starts, so whatever escapes its launcher ends up below it and is seen, and
//! other work on the machine is not mistaken for residue.

mod census;

use census::Census;
use rustix::process::{self, Pid, Signal, WaitOptions};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the commands do: one line each, with why it is here.
const SCRIPTS: &[(&str, &str)] = &[
    ("true", "ends at once"),
    (
        "echo x > file-$$; mv file-$$ kept; cat kept",
        "changes the workspace",
    ),
    (
        "(setsid sh -c 'sleep 300' &) ; (setsid sleep 300 &); sleep 0.01",
        "daemonizes twice",
    ),
    (
        "sleep 300 & kill -STOP $!; sleep 0.01",
        "leaves a stopped child",
    ),
    ("trap '' TERM INT HUP; sleep 300", ENDLESS),
    (
        "head -c 3000000 /dev/zero > $TMPDIR/big; mkfifo $TMPDIR/f",
        "fills its private area",
    ),
    (
        "for i in 1 2 3 4 5 6 7 8; do sleep 300 & done; true",
        "leaves many children",
    ),
    ("kill -9 $$", "ends by a signal"),
];

const ENDLESS: &str = "does not want to end";

/// Names that the scripts leave in a workspace on purpose.
pub(crate) const KEPT: &[&str] = &["file-", "kept"];

/// Longest life of one run before it is killed.
const LONGEST: Duration = Duration::from_millis(120);
/// Time for the kernel to finish what was killed last.
const SETTLES_WITHIN: Duration = Duration::from_secs(20);

/// What the command line asks for.
#[derive(Clone, Debug)]
struct Options {
    runs: u64,
    at_once: usize,
    seed: u64,
    programs: Option<PathBuf>,
    report: Option<PathBuf>,
}

impl Options {
    fn read(words: &[&str]) -> Result<Self, String> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut options = Self {
            runs: 10_000,
            at_once: 8,
            seed: now.map_or(1, |time| time.as_nanos() as u64) | 1,
            programs: None,
            report: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a value"))?;
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("{word} needs a number"))
            };
            match *word {
                "--runs" => options.runs = number()?,
                "--at-once" => options.at_once = number()?.clamp(1, 256) as usize,
                "--seed" => options.seed = number()? | 1,
                "--programs" => options.programs = Some(value.into()),
                "--report" => options.report = Some(value.into()),
                other => {
                    return Err(format!(
                        "soak has no {other}; it has --runs, --at-once, --seed, --programs DIR, --report FILE"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// xorshift: which script, and when to kill, so that a seed repeats a soak.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

struct Running {
    pid: Pid,
    kill_at: Option<Instant>,
}

#[derive(Default)]
struct Tally {
    exec: u64,
    tasks: u64,
    killed: u64,
    ended: u64,
    ours: u64,
    orphans: u64,
}

/// Everything the soak works in; removed at the end.
struct Ground {
    directory: PathBuf,
    agent: PathBuf,
    task: PathBuf,
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("{}: {error}", self.directory.display());
        }
    }
}

/// Does it.
pub fn run(words: &[&str]) -> Result<(), String> {
    let options = Options::read(words)?;
    let ground = ground(&options)?;
    process::set_child_subreaper(Some(process::getpid())).map_err(|error| error.to_string())?;
    // What a first run makes (state directory, key) is no residue.
    once(&ground, 0)?;
    let before = settle(&ground.directory, &Census::default());
    let started = Instant::now();
    let tally = soak(&options, &ground)?;
    let took = started.elapsed();
    // The next holder of a place in the state directory tidies what a killed one could not: as many as there were.
    hold_all(&ground, options.at_once)?;
    let after = settle(&ground.directory, &before);
    let verified = Command::new(&ground.agent)
        .args(["audit", "verify"])
        .env_clear()
        .env("HOME", &ground.directory)
        .env("XDG_STATE_HOME", ground.directory.join("state"))
        .stdout(Stdio::null())
        .status()
        .map_err(|error| error.to_string())?;
    let (table, residue) = census::table(&before, &after);
    let text = format!(
        "seed {}, {} runs in {:.0} s, {} at once: {} exec, {} Tasks; {} killed, {} ended by themselves, {} with a failure of ours; \
         {} orphans reaped\n{table}audit verify: {verified}\n",
        options.seed,
        options.runs,
        took.as_secs_f64(),
        options.at_once,
        tally.exec,
        tally.tasks,
        tally.killed,
        tally.ended,
        tally.ours,
        tally.orphans
    );
    print!("{text}");
    if let Some(file) = &options.report {
        fs::write(file, &text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    if residue > 0 {
        return Err(format!("{residue} kinds of residue"));
    }
    if tally.ours > 0 {
        return Err(format!("{} runs failed by our own fault", tally.ours));
    }
    if !verified.success() {
        return Err("the audit log does not verify".to_owned());
    }
    Ok(())
}

fn ground(options: &Options) -> Result<Ground, String> {
    let programs = match &options.programs {
        Some(directory) => directory.clone(),
        None => build()?,
    };
    let directory = PathBuf::from(format!("/var/tmp/agent-mcp-soak-{}", std::process::id()));
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    for part in ["state", "tmp", "ws/0"] {
        fs::create_dir_all(directory.join(part)).map_err(failed)?;
    }
    for number in 1..options.at_once {
        fs::create_dir(directory.join(format!("ws/{number}"))).map_err(failed)?;
    }
    // Copies, so that a process of ours can be told by its file.
    let copy = |name: &str, from: PathBuf| {
        let to = directory.join(name);
        fs::copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
        Ok::<_, String>(to)
    };
    Ok(Ground {
        agent: copy("agent-mcp", programs.join("agent-mcp"))?,
        task: copy("task", programs.join("examples/task"))?,
        directory,
    })
}

fn build() -> Result<PathBuf, String> {
    for words in [
        &["build", "--quiet", "-p", "agent-mcp"][..],
        &[
            "build",
            "--quiet",
            "-p",
            "sandbox-linux",
            "--example",
            "task",
        ],
    ] {
        let status = Command::new("cargo")
            .args(words)
            .current_dir(crate::root())
            .status()
            .map_err(|error| format!("cargo: {error}"))?;
        if !status.success() {
            return Err(format!("cargo {}: {status}", words.join(" ")));
        }
    }
    Ok(crate::root().join("target/debug"))
}

/// One run of either kind on workspace `slot`.
fn command(ground: &Ground, slot: usize, script: &str, as_task: bool) -> Command {
    let workspace = ground.directory.join(format!("ws/{slot}"));
    let mut command = Command::new(if as_task { &ground.task } else { &ground.agent });
    if as_task {
        command.arg(&workspace).args(["3", script]);
    } else {
        command.args(["exec", "--root"]).arg(&workspace);
        command.args(["--", "sh", "-c", script]);
    }
    command
        .current_dir(&workspace)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", &ground.directory)
        .env("TMPDIR", ground.directory.join("tmp"))
        .env("XDG_STATE_HOME", ground.directory.join("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// A run that has to work: what the soak counts is only worth something where confining works at all.
fn once(ground: &Ground, slot: usize) -> Result<(), String> {
    for as_task in [false, true] {
        let output = command(ground, slot, "exit 0", as_task)
            .stderr(Stdio::piped())
            .output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("a plain run fails: {}: {said}", output.status));
        }
    }
    Ok(())
}

/// So many runs of `exec` at the same time.
fn hold_all(ground: &Ground, at_once: usize) -> Result<(), String> {
    let children: Result<Vec<_>, _> = (0..at_once)
        .map(|slot| command(ground, slot, "sleep 1", false).spawn())
        .collect();
    for mut child in children.map_err(|error| error.to_string())? {
        let status = child.wait().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("a plain run fails: {status}"));
        }
    }
    Ok(())
}

fn soak(options: &Options, ground: &Ground) -> Result<Tally, String> {
    let mut dice = Dice(options.seed);
    let mut tally = Tally::default();
    let mut slots: Vec<Option<Running>> = (0..options.at_once).map(|_| None).collect();
    let mut begun = 0;
    while begun < options.runs || slots.iter().any(Option::is_some) {
        for (number, slot) in slots.iter_mut().enumerate() {
            if slot.is_none() && begun < options.runs {
                begun += 1;
                *slot = Some(begin(ground, number, &mut dice, &mut tally)?);
            }
        }
        let now = Instant::now();
        for running in slots.iter_mut().flatten() {
            if running.kill_at.is_some_and(|when| when <= now) {
                running.kill_at = None;
                tally.killed += 1;
                // One that has just ended is not reaped yet, so the number is still its own.
                process::kill_process(running.pid, Signal::KILL).map_err(|e| e.to_string())?;
            }
        }
        if !reap(&mut slots, &mut tally) {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
    Ok(tally)
}

fn begin(
    ground: &Ground,
    slot: usize,
    dice: &mut Dice,
    tally: &mut Tally,
) -> Result<Running, String> {
    let as_task = dice.below(2) == 1;
    let (script, why) = SCRIPTS[dice.below(SCRIPTS.len() as u64) as usize];
    let child = command(ground, slot, script, as_task)
        .spawn()
        .map_err(|error| error.to_string())?;
    *(if as_task {
        &mut tally.tasks
    } else {
        &mut tally.exec
    }) += 1;
    // Most instants lie where a sandbox is being built.
    let longest = LONGEST.as_micros() as u64;
    let within = match dice.below(3) {
        0 => longest / 20,
        1 => longest / 5,
        _ => longest,
    };
    // One in four may end by itself, if it would.
    let is_killed = why == ENDLESS || dice.below(4) > 0;
    let instant = Instant::now() + Duration::from_micros(dice.below(within));
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok(Running {
        pid: pid.ok_or("no process id")?,
        kill_at: is_killed.then_some(instant),
    })
}

/// Takes one end, if there is one: a run's, or that of a process whose launcher died.
fn reap(slots: &mut [Option<Running>], tally: &mut Tally) -> bool {
    let Ok(Some((pid, status))) = process::wait(WaitOptions::NOHANG) else {
        return false;
    };
    let ours = slots
        .iter_mut()
        .find(|slot| slot.as_ref().is_some_and(|running| running.pid == pid));
    match ours {
        Some(slot) => {
            *slot = None;
            if let Some(code) = status.exit_status() {
                tally.ended += 1;
                // The scripts never end so.
                if code == 125 {
                    tally.ours += 1;
                }
            }
        }
        None => tally.orphans += 1,
    }
    true
}

/// What is there once no process of ours is left and nothing is new, or the time is over.
fn settle(directory: &Path, before: &Census) -> Census {
    let deadline = Instant::now() + SETTLES_WITHIN;
    loop {
        while let Ok(Some(_)) = process::wait(WaitOptions::NOHANG) {}
        let census = Census::take(directory);
        let is_clean = !before.is_empty() && census::table(before, &census).1 == 0;
        let is_quiet = before.is_empty() && census.has_no_process();
        if is_clean || is_quiet || Instant::now() > deadline {
            return census;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
