//! `confine` as another program uses it: the door itself, terminals, bad input, roots of every kind.
//!
//! X-HARNESS-1, X-PARTIAL, SEC-INV-10, ST-26.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test with a main of its own: it may fail, connect and print"
)]

mod api;
#[path = "../support/mod.rs"]
mod support;
mod terminal;

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

type Checked = Result<(), Failed>;
type Test = fn() -> Checked;

fn main() -> ExitCode {
    support::take_over();
    let trials = [api::TESTS, terminal::TESTS]
        .into_iter()
        .flatten()
        .map(|(name, test)| Trial::test(*name, test))
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
