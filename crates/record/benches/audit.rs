//! P-8 and the audit's part of P-1 and P-4: one plain program that measures and prints, since each figure is a ratio of
//! its own kind. Run with `cargo bench -p record`.
#![allow(
    clippy::disallowed_macros,
    reason = "a benchmark's figures go to standard output"
)]

use policy::{RunId, Secret, SessionId, TraceId};
use record::journal::{Backup, FileOperation};
use record::verify::verify_instance;
use record::{
    AuditEvent, AuditKey, AuditLog, Decision, EventName, Instance, Intent, Journal, StateDirectory,
    SystemClock,
};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Place {
    _root: tempfile::TempDir,
    state: StateDirectory,
    key: AuditKey,
    event: AuditEvent,
}

fn place(root: &str) -> Place {
    let root = tempfile::tempdir_in(root).expect("a directory");
    let state = StateDirectory::open(&root.path().join("state")).expect("state");
    Place {
        _root: root,
        state,
        key: AuditKey::given(&Secret::new("a".repeat(64)), "BENCH").expect("a key"),
        event: AuditEvent::new(EventName::ProcessStart, TraceId::random())
            .session(SessionId::random())
            .run(RunId::random())
            .planned_task("T1")
            .decision(Decision::Allow)
            .target("/usr/bin/cargo")
            .detail("sha256", "0".repeat(64))
            .detail("arguments", "redacted")
            .detail("argument_count", 3)
            .detail("arguments_hmac", "0".repeat(64)),
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Records a second, from the first append to the last sync.
fn group_commit(root: &str) {
    const RECORDS: u32 = 200_000;
    for threads in [1, 4] {
        let place = place(root);
        let instance = Instance::claim(&place.state).expect("an instance");
        let log = AuditLog::open(&instance, &place.key, Arc::new(SystemClock)).expect("a log");
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..RECORDS / threads {
                        log.append(place.event.clone()).expect("appended");
                    }
                });
            }
        });
        log.flush().expect("synced");
        let elapsed = start.elapsed();
        log.close().expect("closed");
        let rate = f64::from(RECORDS) / elapsed.as_secs_f64();
        println!(
            "{root}: group commit, {threads} thread(s): {rate:.0} records/s, all synced at the end"
        );
        if threads == 1 {
            verification(root, &instance, &place.key);
        }
    }
}

/// Bytes a second of a verification, twice so that the files are in the page cache.
fn verification(root: &str, instance: &Instance, key: &AuditKey) {
    let mut best = Duration::MAX;
    let mut bytes = 0;
    for _ in 0..3 {
        let start = Instant::now();
        let report = verify_instance(instance.directory(), key).expect("readable");
        best = best.min(start.elapsed());
        assert!(report.is_good(), "{report:?}");
        bytes = report.bytes;
    }
    let rate = bytes as f64 / best.as_secs_f64() / 1e6;
    println!(
        "{root}: verify {:.0} MB: {rate:.0} MB/s",
        bytes as f64 / 1e6
    );
}

fn durable(root: &str) {
    let place = place(root);
    let instance = Instance::claim(&place.state).expect("an instance");
    let log = AuditLog::open(&instance, &place.key, Arc::new(SystemClock)).expect("a log");
    let times = (0..500)
        .map(|_| {
            let start = Instant::now();
            let _ = black_box(log.append_durable(place.event.clone()).expect("durable"));
            start.elapsed()
        })
        .collect();
    println!(
        "{root}: append_durable: {:.0} us median",
        micros(median(times))
    );
}

/// What one short `exec` pays: claim, open, two records, close. On a memory file system the syncs are free.
fn inline(root: &str) {
    let place = place(root);
    let mut parts: [Vec<Duration>; 4] = Default::default();
    for _ in 0..1000 {
        let mut last = Instant::now();
        let mut lap = |part: &mut Vec<Duration>| {
            part.push(last.elapsed());
            last = Instant::now();
        };
        let instance = Instance::claim(&place.state).expect("an instance");
        lap(&mut parts[0]);
        let log =
            AuditLog::open_inline(&instance, &place.key, Arc::new(SystemClock)).expect("a log");
        lap(&mut parts[1]);
        let proof = log.append_durable(place.event.clone()).expect("durable");
        black_box(proof.value().seq);
        lap(&mut parts[2]);
        log.append(place.event.clone()).expect("appended");
        log.close().expect("closed");
        lap(&mut parts[3]);
    }
    let [claim, open, durable, close] = parts.map(|part| micros(median(part)));
    let sum = claim + open + durable + close;
    println!(
        "{root}: inline: claim {claim:.0} + open {open:.0} + durable append {durable:.0} + append and close {close:.0} = {sum:.0} us"
    );
}

fn journal(root: &str) {
    let place = place(root);
    let instance = Instance::claim(&place.state).expect("an instance");
    let journal = Journal::create(&instance, RunId::random(), &SystemClock).expect("a journal");
    let _begun = journal
        .begin_task("T1", vec![], vec![], &SystemClock)
        .expect("begun");
    let times = (0..100)
        .map(|number| {
            let start = Instant::now();
            let proof = journal
                .intent(Intent {
                    planned_task_id: "T1".to_owned(),
                    operation: FileOperation::Write,
                    path: format!("/w/{number}").into(),
                    new_path: None,
                    before_sha256: None,
                    after_sha256: None,
                    backup: Backup::Inline(vec![b'x'; 4096]),
                })
                .expect("recorded");
            journal.commit(proof).expect("committed");
            start.elapsed()
        })
        .collect();
    println!(
        "{root}: journal intent + commit: {:.0} us median",
        micros(median(times))
    );
}

fn stale(root: &str) {
    let place = place(root);
    let instance = Instance::claim(&place.state).expect("an instance");
    for _ in 0..1000 {
        let journal = Journal::create(&instance, RunId::random(), &SystemClock).expect("a journal");
        let _begun = journal
            .begin_task("T1", vec![], vec![], &SystemClock)
            .expect("begun");
    }
    let start = Instant::now();
    let stale = record::journal::stale_journals(&instance).expect("readable");
    assert_eq!(stale.len(), 1000);
    println!(
        "{root}: 1,000 stale journals read: {:.0} us",
        micros(start.elapsed())
    );
}

fn main() {
    for root in ["/var/tmp", "/dev/shm"] {
        group_commit(root);
        durable(root);
        inline(root);
        journal(root);
    }
    stale("/dev/shm");
}
