//! Runs one row: confined with the exact answer, then its control unconfined.

use super::rows::{Control, Inside, Row};
use super::world::{text, world};
use super::{Spec, Way, confined, this_program};
use libtest_mimic::Failed;
use std::process::{Command, Stdio};

pub fn probe_argv(words: &[String]) -> Vec<String> {
    let mut argv = vec![text(&this_program()), "--probe".into()];
    argv.extend(words.iter().cloned());
    argv
}

pub fn first_line(stdout: &str) -> String {
    stdout.lines().next().unwrap_or("").to_owned()
}

/// The probe without any sandbox.
pub fn unconfined(words: &[String]) -> String {
    let argv = probe_argv(words);
    let output = Command::new(&argv[0])
        .args(&argv[1..])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    first_line(&String::from_utf8_lossy(&output.stdout))
}

/// What became of a row's control.
pub enum Controlled {
    Passed,
    /// The row has nothing to compare.
    NotNeeded,
    /// Out of reach on this machine or for this user.
    Skipped(String),
}

/// `--matrix`: one line for each row and way, `matrix`, row, way, verdict, control, separated by tabs, for `cargo xtask matrix`.
pub fn main() -> ! {
    let mut escapes = 0;
    for way in super::WAYS {
        for row in super::rows::all() {
            let (verdict, control) = match judge(row, way, |_| {}) {
                Ok(controlled) => (
                    match row.inside {
                        Inside::Errno(_) | Inside::Line(_) => "DENY",
                        Inside::Works(_) => "OK",
                    },
                    match controlled {
                        Controlled::Passed => "passed".to_owned(),
                        Controlled::NotNeeded => "none".to_owned(),
                        Controlled::Skipped(needs) => format!("needs {needs}"),
                    },
                ),
                Err(why) => {
                    escapes += 1;
                    (
                        match row.inside {
                            Inside::Works(_) => "BAD",
                            _ => "ESC",
                        },
                        why.message().unwrap_or("").replace(['\t', '\n'], " "),
                    )
                }
            };
            println!("matrix\t{}\t{way:?}\t{verdict}\t{control}", row.name);
        }
    }
    std::process::exit(i32::from(escapes > 0))
}

pub fn check(row: &Row, way: Way) -> Result<(), Failed> {
    check_with(row, way, |_| {})
}

/// The same with a wider grant (ST-27).
pub fn check_with(row: &Row, way: Way, widen: impl Fn(&mut Spec)) -> Result<(), Failed> {
    if let Controlled::Skipped(needs) = judge(row, way, widen)? {
        eprintln!("{}: control skipped, needs: {needs}", row.name);
    }
    Ok(())
}

fn judge(row: &Row, way: Way, widen: impl Fn(&mut Spec)) -> Result<Controlled, Failed> {
    // The confined run comes first: the control may change the world it looks at.
    let confined_world = world();
    let words = (row.probe)(&confined_world);
    let mut spec = Spec::new(&confined_world.workspace, row.rights);
    spec.private_network = row.private_network;
    widen(&mut spec);
    let argv = probe_argv(&words);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let ran = confined(way, &spec, &argv);
    let line = first_line(&ran.stdout);
    let fine = match &row.inside {
        Inside::Errno(list) => list.iter().any(|errno| line == format!("ERRNO {errno}")),
        Inside::Works(start) => line.starts_with(start),
        Inside::Line(judge) => judge(&line),
    };
    if !fine {
        return Err(format!("confined {words:?}: {line:?} ({ran:?})").into());
    }
    drop(confined_world);
    let control_world = world();
    let control = match row.control {
        Control::None => return Ok(Controlled::NotNeeded),
        Control::RootOnly if !super::is_root() => {
            return Ok(Controlled::Skipped("root".into()));
        }
        _ => unconfined(&(row.probe)(&control_world)),
    };
    match (row.control, control.starts_with("OK")) {
        (_, true) => Ok(Controlled::Passed),
        (Control::MachineMayLack(what), false) => {
            Ok(Controlled::Skipped(format!("{what} ({control})")))
        }
        (_, false) => Err(format!("the control was refused too: {control}").into()),
    }
}
