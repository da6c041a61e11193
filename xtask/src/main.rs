//! One entry for the chores of this repository: `cargo xtask requirements [--check]`, `cargo xtask attacks`, `cargo xtask matrix`,
//! `cargo xtask soak`, `cargo xtask bench [NAME…]`,
//! `cargo xtask release`, `cargo xtask soak [--runs N]`.
//!
//! Absent here: nothing of the product depends on this crate, and it depends on nothing of the product.
#![forbid(unsafe_code)]

mod attacks;
mod bench;
mod matrix;
mod release;
mod requirements;
mod soak;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["requirements"] => requirements::write(),
        ["requirements", "--check"] => requirements::check(),
        ["attacks"] => attacks::check(),
        ["bench", names @ ..] => bench::run(names),
        ["release"] => release::build(),
        ["soak", options @ ..] => soak::run(options),
        ["matrix"] => matrix::run(false),
        ["matrix", "--vm"] => matrix::run(true),
        _ => {
            eprintln!(
                "usage: cargo xtask requirements [--check] | attacks | release | matrix [--vm] | soak [--runs N] | bench [p1 peers p2 many explain p3 p4 p7 p8 start rss …]"
            );
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root: this crate's folder is `xtask` in it.
fn root() -> std::path::PathBuf {
    // At run time first: the tests may run from a copy that another user can read.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(
        || env!("CARGO_MANIFEST_DIR").into(),
        std::path::PathBuf::from,
    );
    manifest
        .parent()
        .map_or(manifest.clone(), std::path::Path::to_path_buf)
}
