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

pub fn check(row: &Row, way: Way) -> Result<(), Failed> {
    check_with(row, way, |_| {})
}

/// The same with a wider grant (ST-27).
pub fn check_with(row: &Row, way: Way, widen: impl Fn(&mut Spec)) -> Result<(), Failed> {
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
        Control::None => return Ok(()),
        Control::RootOnly if !super::is_root() => {
            eprintln!("{}: control skipped, needs: root", row.name);
            return Ok(());
        }
        _ => unconfined(&(row.probe)(&control_world)),
    };
    match (row.control, control.starts_with("OK")) {
        (_, true) => Ok(()),
        (Control::MachineMayLack(what), false) => {
            eprintln!("{}: control skipped, needs: {what} ({control})", row.name);
            Ok(())
        }
        (_, false) => Err(format!("the control was refused too: {control}").into()),
    }
}
