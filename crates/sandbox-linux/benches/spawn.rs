//! P-2: one more program in a running sandbox against `std::process::Command`, side by side; and what BeginTask costs.
//!
//! A plain program, because the two are measured alternately in one loop: on a shared machine everything else drifts.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test with a main of its own: it may fail, connect and print"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Spec, prepare, request, standing, temporary};

const ROUNDS: usize = 400;

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn timed(times: &mut Vec<Duration>, what: impl FnOnce()) {
    let started = Instant::now();
    what();
    times.push(started.elapsed());
}

fn main() {
    support::take_over();
    let directory = temporary();
    let workspace = directory.path().canonicalize().unwrap();
    let spec = Spec::new(&workspace, "rwdx");
    let sandbox = standing(&spec);
    // A server has memory and threads.
    let memory = vec![1u8; 25 << 20];
    for argv in [
        &["/bin/true"][..],
        &["/usr/bin/git", "--version"],
        &["/bin/sh", "-c", "ls /usr/bin | wc -l"],
    ] {
        if !std::path::Path::new(argv[0]).exists() {
            continue;
        }
        let request = request(&spec, argv);
        let (mut plain, mut confined) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            timed(&mut plain, || {
                let output = Command::new(argv[0])
                    .args(&argv[1..])
                    .current_dir(&workspace)
                    .stdin(Stdio::null())
                    .output();
                assert!(output.unwrap().status.success());
            });
            timed(&mut confined, || {
                assert!(sandbox.run(&request).unwrap().end.is_success());
            });
        }
        let (plain, confined) = (median(&mut plain), median(&mut confined));
        eprintln!(
            "{argv:?}: {plain:.0} µs unconfined, {confined:.0} µs in the sandbox, P-2 ratio {:.2}",
            confined / plain
        );
    }
    sandbox.end().unwrap();
    let (mut begin, mut end) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        let mut made = None;
        timed(&mut begin, || {
            let prepared = prepare(&spec).unwrap();
            let permit = prepared.enforcement().permit(&spec.policy()).unwrap();
            made = Some(prepared.start(permit).unwrap());
        });
        timed(&mut end, || made.unwrap().end().unwrap());
    }
    eprintln!(
        "BeginTask {:.0} µs, EndTask {:.0} µs",
        median(&mut begin),
        median(&mut end)
    );
    std::hint::black_box(&memory);
}
