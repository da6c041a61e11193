//! Lives and deaths: exact ends, limits, output, residue, and what a Task's sandbox must survive.
//!
//! SEC-INV-10; PRC-06; ST-11, ST-17; AT-08, AT-12; X-HASH, X-PARTIAL; P-1 and P-2 are measured in the examples and benches.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test with a main of its own: it may fail, connect and print"
)]

mod ends;
mod honesty;
mod limits;
mod once;
mod programs;
#[path = "../support/mod.rs"]
mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

type Checked = Result<(), Failed>;
type Test = fn() -> Checked;

fn main() -> ExitCode {
    support::take_over();
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|word| word == "--server") {
        ends::server_main(&arguments[2], &arguments[3]);
    }
    let trials = [
        programs::TESTS,
        ends::TESTS,
        honesty::TESTS,
        limits::TESTS,
        once::TESTS,
    ]
    .into_iter()
    .flatten()
    .map(|(name, test)| Trial::test(*name, test))
    .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
