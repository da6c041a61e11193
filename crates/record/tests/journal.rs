//! The journal: DESIGN §12.2, §12.3, NFR-03, REC-07.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use policy::effective::Sha256Digest;
use policy::sandbox::HostResource;
use policy::{Code, RunId};
use record::journal::{
    Backup, FileOperation, INLINE_BACKUP_LIMIT, JournalDocument, JournalError, TaskState,
    stale_journals,
};
use record::{Instance, Intent, Journal, StateError};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

fn digest(byte: u8) -> Sha256Digest {
    Sha256Digest([byte; 32])
}

fn write_intent(backup: Backup) -> Intent {
    Intent {
        planned_task_id: "T1".to_owned(),
        operation: FileOperation::Write,
        path: PathBuf::from("/w/a.txt"),
        new_path: None,
        before_sha256: Some(digest(1)),
        after_sha256: Some(digest(2)),
        backup,
    }
}

/// What recovery would see if the process died now.
fn on_disk(instance: &Instance, run: RunId) -> JournalDocument {
    let path = instance.directory().join(format!("journal/{run}.json"));
    let text = fs::read_to_string(path).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn nfr_03_everything_is_on_the_disk_before_the_proof_exists() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let run = RunId::random();
    let journal = Journal::create(&instance, run, &*clock()).unwrap();
    assert!(on_disk(&instance, run).tasks.is_empty());

    let cgroup = HostResource::Cgroup {
        path: "/sys/fs/cgroup/x".into(),
    };
    let process = HostResource::Process {
        pid: 4,
        start_ticks: 9,
    };
    let begun = journal
        .begin_task(
            "T1",
            vec![cgroup.clone()],
            vec!["/tmp/t1".into()],
            &*clock(),
        )
        .unwrap();
    assert_eq!(begun.value().planned_task_id, "T1");
    let task = on_disk(&instance, run).tasks.remove(0);
    assert_eq!(task.state, TaskState::Preparing);
    assert_eq!(task.host_resources, std::slice::from_ref(&cgroup));
    journal
        .advance("T1", TaskState::Applied, vec![process.clone()])
        .unwrap();
    journal.advance("T1", TaskState::Running, vec![]).unwrap();
    let task = on_disk(&instance, run).tasks.remove(0);
    assert_eq!(task.host_resources, [cgroup, process]);

    let proof = journal
        .intent(write_intent(Backup::Inline(b"old \xff".to_vec())))
        .unwrap();
    let intent = on_disk(&instance, run).tasks[0].file_intents.remove(0);
    assert_eq!(intent.seq, proof.value().seq());
    assert_eq!(intent.backup, Backup::Inline(b"old \xff".to_vec()));
    assert_eq!(intent.before_sha256, Some(digest(1)));
    assert!(!intent.committed);
    let undone = journal
        .intent(write_intent(Backup::File("/tmp/t1/backup".into())))
        .unwrap();
    let open: Vec<u64> = on_disk(&instance, run).tasks[0]
        .open_intents()
        .map(|intent| intent.seq)
        .collect();
    assert_eq!(open, [2, 1], "newest first");

    journal.commit(proof).unwrap();
    let task = on_disk(&instance, run).tasks.remove(0);
    assert_eq!(task.open_intents().count(), 1);
    assert!(task.file_intents[0].committed);
    assert_eq!(task.file_intents[0].backup, Backup::None);
    journal.advance("T1", TaskState::Cleaning, vec![]).unwrap();
    assert!(matches!(
        journal.end_task("T1").unwrap_err(),
        JournalError::Unsettled { .. }
    ));
    journal.rolled_back(undone).unwrap();
    journal.end_task("T1").unwrap();
    let document = on_disk(&instance, run);
    assert!(document.is_clean());
    assert!(document.tasks[0].host_resources.is_empty());
    journal.finish().unwrap();
    assert_eq!(stale_journals(&instance).unwrap().len(), 0);
}

#[test]
fn only_the_transitions_of_design_12_2_are_taken() {
    use TaskState::{Applied, Clean, Cleaning, Preparing, RecoveryRequired, Running};
    let all = [
        Clean,
        Preparing,
        Applied,
        Running,
        Cleaning,
        RecoveryRequired,
    ];
    let legal = [
        (Clean, Preparing),
        (Preparing, Applied),
        (Applied, Running),
        (Running, Cleaning),
        (Cleaning, Clean),
        (Preparing, Cleaning),
        (Applied, Cleaning),
        (Preparing, RecoveryRequired),
        (Applied, RecoveryRequired),
        (Running, RecoveryRequired),
        (Cleaning, RecoveryRequired),
        (RecoveryRequired, Cleaning),
    ];
    for from in all {
        for to in all {
            assert_eq!(
                from.may_become(to),
                legal.contains(&(from, to)),
                "{from:?} -> {to:?}"
            );
        }
    }
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let journal = Journal::create(&instance, RunId::random(), &*clock()).unwrap();
    let _begun = journal.begin_task("T1", vec![], vec![], &*clock()).unwrap();
    let before = journal.document();
    let error = journal.advance("T1", Running, vec![]).unwrap_err();
    assert!(matches!(
        error,
        JournalError::Transition {
            from: Preparing,
            to: Running,
            ..
        }
    ));
    assert_eq!(error.code(), Code::Internal);
    assert!(journal.begin_task("T1", vec![], vec![], &*clock()).is_err());
    assert!(matches!(
        journal.end_task("T2").unwrap_err(),
        JournalError::TaskUnknown { .. }
    ));
    assert_eq!(
        journal.document(),
        before,
        "a refused change changes nothing"
    );
    assert!(matches!(
        journal.finish().unwrap_err(),
        JournalError::Unsettled { .. }
    ));
    assert_eq!(stale_journals(&instance).unwrap().len(), 1, "it stays");
}

#[test]
fn a_large_backup_belongs_into_a_file() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let journal = Journal::create(&instance, RunId::random(), &*clock()).unwrap();
    let _begun = journal.begin_task("T1", vec![], vec![], &*clock()).unwrap();
    let _at_the_limit = journal
        .intent(write_intent(Backup::Inline(vec![0; INLINE_BACKUP_LIMIT])))
        .unwrap();
    assert!(matches!(
        journal.intent(write_intent(Backup::Inline(vec![
            0;
            INLINE_BACKUP_LIMIT + 1
        ]))),
        Err(JournalError::BackupTooLarge { .. })
    ));
}

#[test]
fn nfr_03_recovery_takes_up_what_a_dead_run_left() {
    let place = place();
    let run = RunId::random();
    {
        let instance = Instance::claim(&place.state).unwrap();
        let journal = Journal::create(&instance, run, &*clock()).unwrap();
        let _begun = journal.begin_task("T1", vec![], vec![], &*clock()).unwrap();
        let _lost_with_the_process = journal.intent(write_intent(Backup::None)).unwrap();
    }
    let instance = Instance::claim(&place.state).unwrap();
    let directory = instance.directory().join("journal");
    // The run died in the middle of a line that nobody was promised.
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(directory.join(format!("{run}.json")))
        .unwrap();
    file.write_all(&V1.as_bytes()[..200]).unwrap();
    fs::write(directory.join(".x.json.1-2.tmp"), "{").unwrap();
    let stale = stale_journals(&instance).unwrap();
    assert_eq!(stale.len(), 1);
    assert_eq!(stale[0].document.as_ref().unwrap().run_id, run);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "no leftovers");

    let journal = Journal::adopt(&instance, run).unwrap();
    assert_eq!(
        on_disk(&instance, run).tasks[0].state,
        TaskState::RecoveryRequired
    );
    journal.advance("T1", TaskState::Cleaning, vec![]).unwrap();
    // The recovery dies too, and the next one starts over.
    drop(journal);
    let journal = Journal::adopt(&instance, run).unwrap();
    assert_eq!(
        journal.document().tasks[0].state,
        TaskState::RecoveryRequired
    );
    journal.advance("T1", TaskState::Cleaning, vec![]).unwrap();
    journal.recovered("T1", 1).unwrap();
    assert!(journal.recovered("T1", 1).is_err());
    journal.end_task("T1").unwrap();
    journal.finish().unwrap();
    assert!(stale_journals(&instance).unwrap().is_empty());
}

#[test]
fn the_file_stays_small_however_many_changes_there_are() {
    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let run = RunId::random();
    let journal = Journal::create(&instance, run, &*clock()).unwrap();
    let _begun = journal.begin_task("T1", vec![], vec![], &*clock()).unwrap();
    let path = instance.directory().join(format!("journal/{run}.json"));
    let (mut largest, mut replaced, mut before) = (0, 0, 0);
    for _ in 0..40 {
        let backup = Backup::Inline(vec![7; INLINE_BACKUP_LIMIT]);
        let proof = journal.intent(write_intent(backup)).unwrap();
        assert_eq!(on_disk(&instance, run), journal.document());
        journal.rolled_back(proof).unwrap();
        assert_eq!(on_disk(&instance, run), journal.document());
        let size = fs::metadata(&path).unwrap().len();
        replaced += u32::from(size < before);
        before = size;
        largest = largest.max(size);
    }
    assert!(largest < 2 << 20, "{largest}");
    assert!(replaced > 0);
}

const V1: &str = include_str!("fixtures/v1/journal.json");

#[test]
fn a_journal_of_version_1_is_read_and_another_is_not() {
    let document: JournalDocument = serde_json::from_str(V1).unwrap();
    assert_eq!(document.tasks[0].state, TaskState::Running);
    assert_eq!(document.tasks[0].host_resources.len(), 3);
    assert_eq!(
        document.tasks[0].file_intents[0].backup,
        Backup::Inline(b"old\n".to_vec())
    );
    assert_eq!(serde_json::to_string(&document).unwrap(), V1.trim_end());

    let place = place();
    let instance = Instance::claim(&place.state).unwrap();
    let run = document.run_id;
    Journal::create(&instance, run, &*clock()).unwrap();
    let path = instance.directory().join(format!("journal/{run}.json"));
    let refused = |text: String| {
        fs::write(Path::new(&path), text).unwrap();
        let stale = stale_journals(&instance).unwrap().remove(0);
        let error = stale.document.unwrap_err();
        assert!(matches!(error, StateError::Damaged { .. }), "{error}");
        assert_eq!(error.code(), Code::StateUnusable);
        assert!(Journal::adopt(&instance, run).is_err());
    };
    refused(V1.replace("\"schema_version\":1", "\"schema_version\":2"));
    refused(V1.replace("\"tasks\"", "\"surprise\":1,\"tasks\""));
    refused(V1[..V1.len() / 2].to_owned());
}
