//! The escape matrix on machines whose enforcement is partial, in the mode that accepts it: read-only.

use crate::support::machine::{MACHINES, Machine};
use crate::support::matrix::{first_line, probe_argv};
use crate::support::rows::{self, Inside, Row};
use crate::support::world::world;
use crate::{Checked, read_only, run};
use libc::{EACCES, EPERM, EROFS};
use libtest_mimic::Trial;

/// What is open without namespaces: the row, and the control that the report names for it.
const OPEN: &[(&str, &str)] = &[
    ("sec_inv_03_stat_secret_outside", "filesystem_view"),
    ("sec_inv_03_outside_access", "filesystem_view"),
    ("sec_inv_03_outside_o_path", "filesystem_view"),
    ("sec_inv_03_outside_statfs", "filesystem_view"),
    ("sec_inv_03_outside_statx", "filesystem_view"),
    ("sec_inv_10_the_parent_is_inside", "process_view"),
    ("st_20_dynamic_loader", "execution"),
    // Harmless: nobody is asked here, and a program's own filter only narrows.
    ("st_19_second_notification_listener", ""),
];

/// What only works where something may be written.
const WRITERS: &[&str] = &["keeps_deep_directories", "keeps_names_that_are_no_text"];

/// What works with namespaces and is refused without, with the reason.
const NARROWER: &[(&str, &str)] = &[
    ("keeps_shared_memory", "/dev/shm is the machine's"),
    ("keeps_terminals", "so are its pseudo-terminals"),
    ("keeps_private_sockets", "names of sockets are refused"),
    (
        "keeps_private_temporary_files",
        "the private area has another name",
    ),
];

fn has_namespaces(machine: &Machine) -> bool {
    machine.name.starts_with("landlock-") || machine.name == "no-notification"
}

/// One of each kind; the others differ in the errno that leads there.
const ASKED: &[&str] = &[
    "docker",
    "docker-landlock-2",
    "landlock-off",
    "landlock-2",
    "no-notification",
];

fn is_accepted(machine: &Machine) -> bool {
    machine.is_possible() && ASKED.contains(&machine.name)
}

/// Rows that a read-only policy can ask: the network is `none`, nothing is written, artifacts of the workspace do not run.
fn is_asked(row: &Row) -> bool {
    let develops =
        row.name.starts_with("fs_04") || row.rights.contains('x') || WRITERS.contains(&row.name);
    !(row.private_network || develops && matches!(row.inside, Inside::Works(_)))
}

fn judge(machine: &Machine, row: &Row, line: &str) -> Result<(), String> {
    let errno = |list: &[i32]| list.iter().any(|errno| line == format!("ERRNO {errno}"));
    let alone = !has_namespaces(machine);
    let open = OPEN.iter().find(|(name, _)| *name == row.name);
    let narrower = NARROWER.iter().any(|(name, _)| *name == row.name);
    let fine = match &row.inside {
        // The machine's own answer.
        _ if row.name == "st_19_second_notification_listener" && !alone => {
            errno(&[libc::EBUSY, libc::EINVAL])
        }
        _ if alone && open.is_some() => line.starts_with("OK"),
        // Both keep their names in a private area whose sockets nobody may be asked about.
        _ if narrower && machine.name == "no-notification" => {
            line.starts_with("OK") || errno(&[EACCES])
        }
        _ if alone && narrower => errno(&[EACCES]),
        // An ordinary user cannot empty the bounding set, and without privileges to gain it bounds nothing.
        _ if alone && row.name == "sec_inv_10_no_capabilities" => line.starts_with("OK 0 held"),
        // As if the file system had none.
        _ if alone && row.name.ends_with("_xattr") => errno(&[libc::EOPNOTSUPP, EACCES, EPERM]),
        // Read-only everywhere, so the answer may be about that.
        Inside::Errno(list) => errno(list) || errno(&[EACCES, EROFS]) || (alone && errno(&[EPERM])),
        Inside::Works(start) => line.starts_with(start),
        Inside::Line(judge) => judge(line),
    };
    if fine {
        Ok(())
    } else {
        Err(format!("{line:?}"))
    }
}

fn check(machine: &Machine, way: &str, row: &Row) -> Checked {
    let world = world();
    let spec = read_only(&world.workspace);
    let argv = probe_argv(&(row.probe)(&world));
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let (code, out, errors) = run(machine, way, &spec, &argv);
    judge(machine, row, &first_line(&out))
        .map_err(|line| format!("{line} {code:?} {errors}").into())
}

/// `--matrix`: one line for each machine, row and way, `matrix`, machine, row, way, verdict, separated by tabs, for
/// `cargo xtask matrix`. What is open is open by name: the report lists the control as missing. The controls are those of the
/// same rows with everything in place.
pub fn main() -> ! {
    let mut escapes = 0;
    for machine in MACHINES.iter().filter(|machine| is_accepted(machine)) {
        for (way, name) in [("--once", "Once"), ("--standing", "Standing")] {
            for row in rows::all().filter(|row| is_asked(row)) {
                let open =
                    !has_namespaces(machine) && OPEN.iter().any(|(name, _)| *name == row.name);
                let verdict = match (check(machine, way, row), &row.inside) {
                    (Err(_), Inside::Works(_)) => "BAD",
                    (Err(_), _) => "ESC",
                    (Ok(()), _) if open => "named",
                    (Ok(()), Inside::Works(_)) => "OK",
                    (Ok(()), _) => "DENY",
                };
                escapes += i32::from(matches!(verdict, "BAD" | "ESC"));
                println!("matrix\t{}\t{}\t{name}\t{verdict}", machine.name, row.name);
            }
        }
    }
    std::process::exit(i32::from(escapes > 0))
}

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for machine in MACHINES.iter().filter(|machine| is_accepted(machine)) {
        for way in ["--once", "--standing"] {
            for row in rows::all().filter(|row| is_asked(row)) {
                let name = format!("{}::{}::{}", machine.name, &way[2..], row.name);
                trials.push(Trial::test(name, move || check(machine, way, row)));
            }
        }
    }
    trials
}
