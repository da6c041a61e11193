//! The escape matrix: attack × (one-shot, standing), each with its control unconfined and the exact errno confined; and
//! attacks that take more than one probe.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test with a main of its own: it may fail, connect and print"
)]

mod attacks;
#[path = "../support/mod.rs"]
mod support;

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;
use support::{WAYS, matrix, rows};

fn main() -> ExitCode {
    support::take_over();
    if std::env::args().nth(1).as_deref() == Some("--matrix") {
        matrix::main();
    }
    let mut trials = Vec::new();
    for way in WAYS {
        for row in rows::all() {
            trials.push(Trial::test(format!("{way:?}::{}", row.name), move || {
                matrix::check(row, way)
            }));
        }
        for (name, test) in attacks::TESTS {
            trials.push(Trial::test(format!("{way:?}::{name}"), move || test(way)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
