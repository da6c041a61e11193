//! A log of format version 1, as it was written when that was the newest, must stay readable and continuable.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use record::Instance;
use record::verify::{ProblemKind, ShowFilter, show};
use std::fs;

const LOG: &str = include_str!("fixtures/v1/audit.0001.jsonl");
const HEAD: &str = include_str!("fixtures/v1/audit.head");

fn restored() -> (Place, Instance) {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    fs::write(log_file(instance.directory(), 1), LOG).unwrap();
    fs::write(instance.directory().join("audit.head"), HEAD).unwrap();
    (place, instance)
}

#[test]
fn a_log_of_version_1_verifies_is_shown_and_goes_on() {
    let (_place, instance) = restored();
    let report = verify(instance.directory());
    assert_eq!(report.problem, None);
    assert_eq!((report.records, report.closed), (3, true));
    let records: Vec<_> = show(instance.directory(), ShowFilter::default())
        .unwrap()
        .map(|record| record.unwrap())
        .collect();
    let deny = &records[1];
    assert_eq!(
        (deny.v, deny.seq, deny.event.as_str()),
        (1, 2, "policy.deny")
    );
    assert_eq!(deny.code.as_deref(), Some("policy.path_denied"));
    assert_eq!(deny.target.as_deref(), Some("/w/引用 \"x\""));
    assert_eq!(deny.detail["ratio"], 0.5);

    open(&instance).close().unwrap();
    let report = verify(instance.directory());
    assert_eq!(report.problem, None);
    assert_eq!(
        (report.records, report.boots, report.unclean_stops),
        (5, 2, 0)
    );
}

/// Unknown members are refused by the reader, and by the verifier whatever their mac is.
#[test]
fn a_record_with_a_foreign_member_is_no_record() {
    let (_place, instance) = restored();
    let surprise = LOG.replacen("\"v\":1}", "\"v\":1,\"w\":1}", 1);
    fs::write(log_file(instance.directory(), 1), surprise).unwrap();
    assert_eq!(kind(instance.directory()), Some(ProblemKind::RecordAltered));
    let first = show(instance.directory(), ShowFilter::default())
        .unwrap()
        .next();
    assert!(first.unwrap().is_err());
}
