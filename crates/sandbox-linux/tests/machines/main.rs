//! The same sandbox on machines that lack something (issue 3 items 5 and 7): exact level and missing list, what is refused,
//! and the escape matrix in what is accepted.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test with a main of its own: it may fail, connect and print"
)]

mod bare;
mod levels;
mod matrix;
#[path = "../support/mod.rs"]
mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use support::Spec;
use support::machine::Machine;

type Checked = Result<(), Failed>;
type Test = fn() -> Checked;

/// A policy that a machine may run with partial enforcement.
fn read_only(workspace: &std::path::Path) -> Spec {
    Spec {
        read_only: true,
        ..Spec::new(workspace, "r")
    }
}

/// What running on the machine comes to: exit code, output, errors.
fn run(machine: &Machine, way: &str, spec: &Spec, argv: &[&str]) -> (Option<i32>, String, String) {
    let spec = serde_json::to_string(spec).unwrap();
    let mut arguments = vec![way, spec.as_str()];
    arguments.extend(argv);
    let output = machine.command(&arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn main() -> ExitCode {
    support::take_over();
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|word| word == "--server") {
        bare::server_main(&arguments[2], &arguments[3]);
    }
    if arguments.get(1).is_some_and(|word| word == "--matrix") {
        matrix::main();
    }
    let mut trials: Vec<Trial> = [levels::TESTS, bare::TESTS]
        .into_iter()
        .flatten()
        .map(|(name, test)| Trial::test(*name, test))
        .collect();
    trials.extend(matrix::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
