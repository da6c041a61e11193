//! `exec --report json`, version 1: what was asked for, what was enforced, what came of it. Described in
//! `docs/guide/exec.md` (a test compares them); one line of JSON, whatever happened.

use crate::cli::ExecArgs;
use crate::deployment::DeploymentError;
use crate::exit;
use crate::terminal::{err, json_line};
use policy::effective::{GrantedRoot, NetworkPolicy, Origin, RootKind, Sha256Digest};
use policy::sandbox::{
    Denial, Enforcement, Explanation, Finding, FindingKind, ProcessEnd, Relayed,
};
use policy::{Blame, Code, EffectivePolicy, Fault, Message, Right, SandboxMode};
use sandbox_linux::ExecReport;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Error, Write as _};
use std::path::{Path, PathBuf};

/// Where the report goes.
pub(super) enum Report {
    /// None was asked for.
    Nowhere,
    /// Standard error.
    Stderr,
    /// This file.
    File(File),
}

impl Report {
    /// Opens the file, if one was named: a regular file, and no link at its end.
    pub(super) fn open(arguments: &ExecArgs) -> Result<Self, Fault> {
        let Some(path) = &arguments.report_file else {
            return Ok(match arguments.report {
                None => Self::Nowhere,
                Some(_) => Self::Stderr,
            });
        };
        let refused = |error: Error| {
            let place = path.display().to_string();
            Fault::because(Blame::Machine, Code::ToolFailed, place, error)
        };
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
            options.custom_flags(flags.bits() as i32);
        }
        let file = options.open(path).map_err(refused)?;
        if !file.metadata().map_err(refused)?.is_file() {
            return Err(refused(Error::other(Message::new(
                "reason.not_a_regular_file",
            ))));
        }
        file.set_len(0).map_err(refused)?;
        Ok(Self::File(file))
    }

    pub(super) fn write(self, outcome: &Outcome) -> Result<(), Fault> {
        let failed =
            |error: Error| crate::books::fault(Code::ToolFailed, Path::new("--report-file"), error);
        let object = match self {
            Self::Nowhere => return Ok(()),
            _ => serde_json::to_value(outcome).map_err(|error| failed(error.into()))?,
        };
        match self {
            Self::File(mut file) => writeln!(file, "{}", json_line(&object)).map_err(failed),
            _ => {
                err(&json_line(&object));
                Ok(())
            }
        }
    }
}

/// The program's file as it was when it was started.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Program {
    #[serde(serialize_with = "shown")]
    pub(super) path: PathBuf,
    pub(super) sha256: Sha256Digest,
}

/// A path need not be UTF-8; a report must be.
fn shown<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

#[derive(Debug, Serialize)]
struct Root {
    #[serde(serialize_with = "shown")]
    path: PathBuf,
    kind: RootKind,
    rights: Vec<&'static str>,
    origins: BTreeSet<Origin>,
}

impl Root {
    fn of(root: &GrantedRoot) -> Self {
        Self {
            path: root.path.clone(),
            kind: root.kind,
            rights: root.rights.iter().map(Right::word).collect(),
            origins: root.origins.clone(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Left {
    #[serde(serialize_with = "shown")]
    path: PathBuf,
    kind: FindingKind,
}

impl Left {
    fn of(finding: &Finding) -> Self {
        Self {
            path: finding.path.clone(),
            kind: finding.kind,
        }
    }
}

#[derive(Debug, Serialize)]
struct Failure {
    code: &'static str,
    detail: String,
}

/// The report's content. A field is `null` where it did not come to it.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    v: u8,
    /// The exit status of `agent-mcp exec`.
    #[serde(rename = "exit_code")]
    pub(super) code: u8,
    mode: Option<SandboxMode>,
    roots: Vec<Root>,
    network: Option<NetworkPolicy>,
    pub(super) enforcement: Option<Enforcement>,
    pub(super) program: Option<Program>,
    end: Option<ProcessEnd>,
    elapsed_ms: Option<f64>,
    leftovers: Option<u32>,
    explanation: Option<Explanation>,
    denials: Vec<Denial>,
    omitted_denials: u32,
    /// What the command left that a tool outside would obey.
    findings: Vec<Left>,
    /// What went through granted addresses, where something did or could not.
    relayed: serde_json::Value,
    error: Option<Failure>,
}

/// The granted addresses that there is something to tell about.
pub(super) fn relayed(all: &[Relayed]) -> serde_json::Value {
    let notable = all.iter().filter(|line| line.is_notable());
    serde_json::json!(notable.collect::<Vec<_>>())
}

impl Outcome {
    fn empty(code: u8) -> Self {
        Self {
            v: 1,
            code,
            mode: None,
            roots: Vec::new(),
            network: None,
            enforcement: None,
            program: None,
            end: None,
            elapsed_ms: None,
            leftovers: None,
            explanation: None,
            denials: Vec::new(),
            omitted_denials: 0,
            findings: Vec::new(),
            relayed: relayed(&[]),
            error: None,
        }
    }

    /// There is no policy to run under.
    pub(super) fn without_policy(code: u8, problem: &DeploymentError) -> Self {
        let mut outcome = Self::empty(code);
        let (stable, detail) = match problem {
            DeploymentError::Refusals(refusals) => {
                refusals
                    .first()
                    .map_or((Code::ConfigurationInvalid, String::new()), |refusal| {
                        (
                            refusal.code,
                            format!("{}: {}", refusal.target, refusal.rule),
                        )
                    })
            }
            DeploymentError::Faults(faults) => faults
                .first()
                .map_or((Code::ConfigurationInvalid, String::new()), |fault| {
                    (fault.code, fault.to_string())
                }),
            DeploymentError::Unreadable(fault) => (fault.code, fault.to_string()),
            DeploymentError::Findings(findings) => {
                let english = crate::locale::Locale::built_in(crate::locale::DEFAULT_LANGUAGE);
                let lines: Vec<String> = findings
                    .iter()
                    .map(|finding| super::super::opening::finding_line(&english, finding))
                    .collect();
                (Code::ConfigurationInvalid, lines.join("; "))
            }
            DeploymentError::Untrusted { file } => (
                Code::ConfigurationInvalid,
                format!("{}: no person has named it as it is now", file.display()),
            ),
            DeploymentError::NoConfiguration { .. } => {
                (Code::ConfigurationInvalid, "no configuration".to_owned())
            }
        };
        outcome.failed(code, stable, &detail);
        outcome
    }

    /// Nothing has happened yet.
    pub(super) fn under(policy: &EffectivePolicy) -> Self {
        Self {
            mode: Some(policy.mode()),
            roots: policy.roots().iter().map(Root::of).collect(),
            network: Some(policy.network().clone()),
            ..Self::empty(exit::EXEC_SANDBOX)
        }
    }

    /// The command ran to its end.
    pub(super) fn ended(&mut self, done: &ExecReport) {
        self.code = u8::try_from(done.end.exit_code()).unwrap_or(exit::EXEC_SANDBOX);
        self.end = Some(done.end);
        self.enforcement = Some(done.enforcement.clone());
        self.elapsed_ms = Some(done.elapsed.as_secs_f64() * 1e3);
        self.leftovers = Some(done.leftovers);
        self.explanation = Some(done.explanation);
        self.denials = done.denials.clone();
        self.omitted_denials = done.omitted_denials;
        self.findings = done.findings.iter().map(Left::of).collect();
        self.relayed = relayed(&done.relayed);
    }

    /// It did not, or not as it should.
    pub(super) fn failed(&mut self, code: u8, stable: Code, detail: &str) {
        self.code = code;
        self.error = Some(Failure {
            code: stable.as_str(),
            detail: detail.to_owned(),
        });
    }
}
