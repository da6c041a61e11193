//! When a sandbox may start with what it enforces.
#![cfg(unix)]

mod support;

use policy::effective::PartialRule;
use policy::sandbox::{Control, Enforcement, Level, SandboxError};
use policy::{Category, Code, SandboxMode};
use support::{frozen, verdict};

const DECIDING: [Control; 11] = [
    Control::FilesystemView,
    Control::FilesystemRights,
    Control::FilesystemTruncate,
    Control::FilesystemMetadata,
    Control::Execution,
    Control::Network,
    Control::Ipc,
    Control::SignalScope,
    Control::SyscallFilter,
    Control::ProcessTree,
    Control::ProcessView,
];
const RESOURCES: [Control; 5] = [
    Control::MemoryTree,
    Control::Pids,
    Control::WorkspaceQuota,
    Control::PrivateQuota,
    Control::UidSeparation,
];

fn check(missing: &[Control], mode: SandboxMode, partial: PartialRule, expected: &str) {
    let policy = frozen(|draft| {
        draft.mode = mode;
        draft.partial = partial;
    });
    let permit = Enforcement::missing(missing.iter().copied()).permit(&policy);
    assert_eq!(
        verdict(permit),
        expected,
        "{missing:?} {mode:?} {partial:?}"
    );
}

/// X-HARNESS-4, X-PARTIAL: one missing file, network, IPC or tree control is enough to refuse, but in read-only mode
/// where the configuration accepts it.
#[test]
fn x_harness_4_x_partial_each_control_in_each_mode() {
    let refused = "sandbox.partial: sandbox.partial";
    for control in DECIDING {
        for partial in [PartialRule::ReadOnly, PartialRule::Deny] {
            check(&[control], SandboxMode::WorkspaceWrite, partial, refused);
            check(&[control], SandboxMode::DangerFullAccess, partial, refused);
        }
        check(
            &[control],
            SandboxMode::ReadOnly,
            PartialRule::Deny,
            refused,
        );
        check(
            &[control],
            SandboxMode::ReadOnly,
            PartialRule::ReadOnly,
            "ok",
        );
        assert_eq!(Enforcement::missing([control]).level(), Level::Partial);
    }
}

/// X-PARTIAL: missing resource controls are listed and leave the level `full`.
#[test]
fn x_partial_resource_controls_are_listed() {
    for mode in [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite] {
        check(&RESOURCES, mode, PartialRule::Deny, "ok");
        check(&[], mode, PartialRule::Deny, "ok");
    }
    let enforcement = Enforcement::missing(RESOURCES.into_iter().rev().chain(RESOURCES));
    assert_eq!(enforcement.level(), Level::Full);
    assert_eq!(enforcement.missing_controls(), RESOURCES);
}

/// X-HARNESS-4: the refusal names what is missing, and only what decides.
#[test]
fn x_harness_4_the_refusal_names_the_controls() {
    let missing = [Control::Pids, Control::Network, Control::FilesystemView];
    let policy = frozen(|_| ());
    let refusal = Enforcement::missing(missing).permit(&policy).unwrap_err();
    assert_eq!(refusal.target, "filesystem_view, network");
}

/// X-HARNESS-4: a permit starts the sandbox whose enforcement made it, under the rules it was judged by, and no other,
/// even where the other says the same.
#[test]
fn x_harness_4_a_permit_is_for_one_sandbox() {
    let read_only = frozen(|draft| draft.mode = SandboxMode::ReadOnly);
    let writing = frozen(|draft| draft.mode = SandboxMode::WorkspaceWrite);
    let strict = frozen(|draft| {
        draft.mode = SandboxMode::ReadOnly;
        draft.partial = PartialRule::Deny;
    });
    let weak = Enforcement::missing([Control::Network]);
    let equal = Enforcement::missing([Control::Network]);
    assert_eq!(weak, equal);
    let permit = || weak.permit(&read_only).unwrap();
    assert_eq!(permit().redeem(&weak, &read_only), Ok(()));
    assert_eq!(permit().redeem(&weak.clone(), &read_only), Ok(()));
    for (enforcement, policy) in [(&equal, &read_only), (&weak, &writing), (&weak, &strict)] {
        let refusal = permit().redeem(enforcement, policy).unwrap_err();
        assert_eq!(refusal.code, Code::SandboxPartial);
    }
}

/// X-HARNESS-2: no confinement is its own stable code and a denial, and no other failure carries it.
#[test]
fn x_harness_2_no_backend_is_sandbox_unavailable() {
    let unavailable = SandboxError::Unavailable {
        stage: "survey",
        reason: "none".to_owned(),
    };
    assert_eq!(unavailable.code().as_str(), "SANDBOX_UNAVAILABLE");
    assert_eq!(unavailable.code().category(), Category::PolicyDenied);
    let failed = SandboxError::Failed {
        stage: "start",
        reason: "broken".to_owned(),
    };
    assert_eq!(failed.code(), Code::SandboxFailed);
    let refusal = policy::Refusal::new(Code::SandboxPartial, "sandbox.partial", "network");
    assert_eq!(SandboxError::from(refusal).code(), Code::SandboxPartial);
}
