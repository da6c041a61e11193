//! What a workspace's people rely on: the approved program and no other, repositories that cannot be turned against them,
//! rights per root, and ordinary tools that work.
//!
//! X-EXE, X-HASH, X-PROTECT; ST-01 to ST-04, ST-07 to ST-09, ST-20, ST-25.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test with a main of its own: it may fail, connect and print"
)]

mod git;
mod identity;
mod roots;
mod special;
#[path = "../support/mod.rs"]
mod support;
mod works;

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

type Checked = Result<(), Failed>;
type Test = fn() -> Checked;

fn main() -> ExitCode {
    support::take_over();
    identity::take_over();
    let trials = [
        identity::TESTS,
        git::TESTS,
        roots::TESTS,
        special::TESTS,
        works::TESTS,
    ]
    .into_iter()
    .flatten()
    .map(|(name, test)| Trial::test(*name, test))
    .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
