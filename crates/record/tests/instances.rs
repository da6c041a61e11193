//! X-INST and NFR-03 with real processes: this test binary starts itself again.
#![allow(
    clippy::disallowed_types,
    reason = "a test that kills has to start what it kills"
)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use record::instance::instances;
use record::journal::stale_journals;
use record::verify::ProblemKind;
use record::{EventName, Instance, Journal, StateDirectory};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

const STATE: &str = "RECORD_TEST_STATE";

/// Starts one test of this binary as a process of its own; the test sees `STATE`.
fn start(test: &str, state: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(STATE, state)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

/// The next line that the child meant for us.
fn said(output: &mut BufReader<ChildStdout>) -> u64 {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the child ended");
        // The test harness writes "test … " in front of the first line.
        if let Some((_, number)) = line.trim_end().rsplit_once("said ") {
            return number.parse().unwrap();
        }
    }
}

fn say(number: u64) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "said {number}").unwrap();
    out.flush().unwrap();
}

fn state_of_child() -> Option<StateDirectory> {
    let path = std::env::var_os(STATE)?;
    Some(StateDirectory::open(Path::new(&path)).unwrap())
}

/// The child's part; does nothing in an ordinary test run.
#[test]
fn child_claims_and_waits() {
    let Some(state) = state_of_child() else {
        return;
    };
    let instance = Instance::claim(&state).unwrap();
    say(u64::from(instance.number()));
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn x_inst_processes_claim_different_instances_and_give_them_back() {
    let place = place();
    let mut children: Vec<_> = (0..6)
        .map(|_| start("child_claims_and_waits", place.state.path()))
        .collect();
    let numbers: Vec<u64> = children
        .iter_mut()
        .map(|(_, output)| said(output))
        .collect();
    let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
    assert_eq!(distinct, (1..=6).collect(), "{numbers:?}");
    let entries = instances(&place.state).unwrap();
    assert_eq!(entries.len(), 6);
    for entry in &entries {
        assert!(entry.try_adopt().unwrap().is_none(), "{entry:?} is held");
    }
    // A killed process gives its lock back: the lowest free number is its number.
    let (victim, _) = &mut children[3];
    victim.kill().unwrap();
    victim.wait().unwrap();
    let instance = Instance::claim(&place.state).unwrap();
    assert_eq!(u64::from(instance.number()), numbers[3]);
    assert_eq!(Instance::claim(&place.state).unwrap().number(), 7);
    for (child, _) in &mut children {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    drop(instance);
    assert_eq!(Instance::claim(&place.state).unwrap().number(), 1);
}

#[test]
fn x_inst_threads_never_share_an_instance() {
    let place = place();
    let held: Vec<Instance> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| Instance::claim(&place.state).unwrap()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let numbers: BTreeSet<u32> = held.iter().map(Instance::number).collect();
    assert_eq!(numbers.len(), 16);
    let copy = held[0].clone();
    let number = copy.number();
    drop(held);
    assert_ne!(Instance::claim(&place.state).unwrap().number(), number);
    drop(copy);
    assert_eq!(Instance::claim(&place.state).unwrap().number(), 1);
}

/// The child's part: promises and intents until it is killed.
#[test]
fn child_works_until_it_is_killed() {
    let Some(state) = state_of_child() else {
        return;
    };
    let instance = Instance::claim(&state).unwrap();
    let log = open(&instance);
    let journal = Journal::create(&instance, policy::RunId::random(), &*clock()).unwrap();
    let _begun = journal.begin_task("T1", vec![], vec![], &*clock()).unwrap();
    loop {
        log.append(event(EventName::ToolCall)).unwrap();
        let proof = log.append_durable(event(EventName::FileWrite)).unwrap();
        say(proof.value().seq);
    }
}

/// NFR-03, DC-3: what was promised as durable is there after SIGKILL, and the chain goes on.
#[test]
fn nfr_03_a_killed_process_loses_nothing_it_promised() {
    let place = place();
    let mut last = 0;
    for round in 1..=5u64 {
        let (mut child, mut output) = start("child_works_until_it_is_killed", place.state.path());
        for _ in 0..20 * round {
            last = said(&mut output);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let entry = &instances(&place.state).unwrap()[0];
        assert!(entry.has_journal().unwrap());
        let report = verify(&entry.directory);
        if let Some(problem) = &report.problem {
            assert_eq!(problem.kind, ProblemKind::TornTail, "{problem:?}");
        }
        assert!(report.last_seq >= last, "{report:?}");
        let instance = entry.try_adopt().unwrap().expect("the lock is free");
        let stale = stale_journals(&instance).unwrap();
        assert_eq!(stale.len() as u64, round);
        for journal in stale {
            assert!(!journal.document.unwrap().is_clean());
        }
        drop(instance);
    }
    let instance = Instance::claim(&place.state).unwrap();
    open(&instance).close().unwrap();
    let report = verify(instance.directory());
    assert_eq!(report.problem, None);
    assert_eq!((report.boots, report.unclean_stops), (6, 5));
}

/// SEC-INV-10, X-INST: what a killed holder had half written is gone when the instance has its next holder; nothing else is.
#[test]
fn sec_inv_10_unfinished_files_go_with_the_next_holder() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(&directory.path().join("state")).unwrap();
    let instance = Instance::claim(&state).unwrap();
    let unfinished = instance.directory().join(".audit.head.4711-0.tmp");
    let other = instance.directory().join("audit.head.tmp");
    for path in [&unfinished, &other] {
        std::fs::write(path, "half").unwrap();
    }
    let place = instance.directory().to_owned();
    // Another one leaves a held instance alone.
    let second = Instance::claim(&state).unwrap();
    assert!(second.directory() != place && unfinished.exists());
    drop((instance, second));
    let next = Instance::claim(&state).unwrap();
    assert_eq!(next.directory(), place);
    assert!(!unfinished.exists() && other.exists());
}
