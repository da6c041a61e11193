//! The order of checks as types (product.md §3): a later stage is only reached with the value the earlier one returned.
//!
//! `ProposedCall → ValidatedCall → ScopedCall → PlausibleCall → PermittedCall → ResolvedCall → ApprovedCall`. The
//! dispatcher takes only the last; nothing but this module makes one.

use crate::code::Code;
use crate::effective::{EffectivePolicy, EntryKind, FileIdentity, Sha256Digest, ShellRule};
use crate::fault::Refusal;
use crate::layers::PermissionLayers;
use crate::path::{ObjectKind, ResolvedPath, WalkedPath, judge, judge_place};
use crate::rights::{Right, Rights};
use crate::sandbox::{ProgramClass, ProgramIdentity};
use crate::secret::Untrusted;
use crate::tool::{Operation, ToolArguments, ToolName};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What the model asked for.
#[derive(Clone, Debug)]
pub struct ProposedCall {
    /// The catalogue name, as the model wrote it.
    pub tool: Untrusted<String>,
    /// The arguments, as the model wrote them.
    pub arguments: Untrusted<serde_json::Value>,
}

/// Stage 1 passed: typed arguments.
#[derive(Debug)]
pub struct ValidatedCall {
    arguments: ToolArguments,
}

/// Stage 2 passed: in the box's tools and in the planned Task's scope.
#[derive(Debug)]
pub struct ScopedCall {
    arguments: ToolArguments,
}

/// Stage 3 passed: nothing destructive found.
#[derive(Debug)]
pub struct PlausibleCall {
    arguments: ToolArguments,
}

/// Stage 4 passed: no permission layer refused.
#[derive(Debug)]
pub struct PermittedCall {
    arguments: ToolArguments,
    asked: BTreeSet<Operation>,
}

/// Stage 5 passed: every target was resolved, opened and judged by the effective policy.
#[derive(Debug)]
pub struct ResolvedCall {
    arguments: ToolArguments,
    asked: BTreeSet<Operation>,
    targets: ResolvedTargets,
}

/// Stage 6 passed: what the dispatcher takes.
#[derive(Debug)]
pub struct ApprovedCall {
    arguments: ToolArguments,
    targets: ResolvedTargets,
}

/// What the platform found for a call, before it is judged.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one value a call, never in a collection"
)]
pub enum WalkedTargets {
    /// One walked path for each of [`ToolArguments::paths`], in that order.
    Paths(Vec<WalkedPath>),
    /// A program and its working directory.
    Program {
        /// The file that would start.
        program: ProgramFacts,
        /// The directory it would start in.
        cwd: WalkedPath,
    },
    /// The call touches only the TaskGraph.
    Graph,
}

/// Facts about the file that a `process_run` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramFacts {
    /// The name is the alias of an entry.
    Alias {
        /// The alias as configured.
        alias: String,
        /// Where the entry's logical path leads now.
        resolved: PathBuf,
        /// Which file that is now.
        identity: FileIdentity,
        /// Its bytes now; only given when the identity differs from the pinned one, or when every start hashes.
        sha256: Option<Sha256Digest>,
    },
    /// The name is a path.
    Path {
        /// Where it leads.
        resolved: PathBuf,
        /// Which file that is.
        identity: FileIdentity,
    },
    /// The name is neither an alias nor an existing path.
    Unknown {
        /// The name.
        name: String,
    },
}

/// Judged targets, with the opened objects.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one value a call, never in a collection"
)]
pub enum ResolvedTargets {
    /// One for each of [`ToolArguments::paths`].
    Paths(Vec<ResolvedPath>),
    /// A program that may start, and where.
    Program {
        /// The exact program.
        program: ProgramIdentity,
        /// The judged working directory.
        cwd: ResolvedPath,
    },
    /// Only the TaskGraph.
    Graph,
}

impl ProposedCall {
    /// Stage 1: the shape.
    ///
    /// # Errors
    /// `tool.unknown` with the valid names, `tool.arguments_invalid` with the reason; the model may try again.
    pub fn validate(self) -> Result<ValidatedCall, Refusal> {
        let tool: ToolName = self.tool.examine().parse()?;
        ToolArguments::parse(tool, self.arguments.into_examined())
            .map(|arguments| ValidatedCall { arguments })
    }
}

/// What the current planned Task may use, frozen when the run starts (GUARD 3) and when the Task starts (DESIGN §8.1).
#[derive(Clone, Debug)]
pub struct Scope {
    /// The box's tools.
    pub whitelist: BTreeSet<ToolName>,
    /// The planned Task's `required_tools`.
    pub required_tools: BTreeSet<ToolName>,
}

impl ValidatedCall {
    /// The typed arguments.
    pub fn arguments(&self) -> &ToolArguments {
        &self.arguments
    }

    /// Stage 2: whitelist and planned-Task scope.
    ///
    /// # Errors
    /// `policy.tool_not_allowed`; `tool.out_of_scope` for a tool with side effects outside the current Task.
    pub fn scope(self, scope: &Scope) -> Result<ScopedCall, Refusal> {
        let tool = self.arguments.tool();
        if !scope.whitelist.contains(&tool) {
            return Err(Refusal::new(
                Code::ToolNotAllowed,
                "box tools",
                tool.as_str(),
            ));
        }
        if self.arguments.has_side_effect() && !scope.required_tools.contains(&tool) {
            let allowed: Vec<&str> = scope
                .required_tools
                .iter()
                .map(|tool| tool.as_str())
                .collect();
            return Err(Refusal::new(
                Code::ToolOutOfScope,
                "required_tools of the current Task",
                tool.as_str(),
            )
            .with("allowed", allowed.join(", ")));
        }
        Ok(ScopedCall {
            arguments: self.arguments,
        })
    }
}

impl ScopedCall {
    /// Stage 3: the plausibility gate. Its rules come with the guardrails issue; until then it finds nothing.
    ///
    /// # Errors
    /// `policy.plausibility_blocked`.
    pub fn plausible(self) -> Result<PlausibleCall, Refusal> {
        Ok(PlausibleCall {
            arguments: self.arguments,
        })
    }
}

impl PlausibleCall {
    /// Stage 4: permission layers.
    ///
    /// # Errors
    /// The first layer's refusal.
    pub fn permit(self, layers: &mut PermissionLayers) -> Result<PermittedCall, Refusal> {
        let asked = layers.judge(
            self.arguments.tool(),
            &self.arguments.operations(),
            fingerprint(&self.arguments),
        )?;
        Ok(PermittedCall {
            arguments: self.arguments,
            asked,
        })
    }
}

impl PermittedCall {
    /// The typed arguments, for the platform that walks their targets.
    pub fn arguments(&self) -> &ToolArguments {
        &self.arguments
    }

    /// Stage 5: the effective policy, on what the platform opened.
    ///
    /// # Errors
    /// The refusal of the first target.
    pub fn resolve(
        self,
        policy: &EffectivePolicy,
        walked: WalkedTargets,
    ) -> Result<ResolvedCall, Refusal> {
        let targets = match walked {
            WalkedTargets::Graph => ResolvedTargets::Graph,
            WalkedTargets::Paths(paths) => {
                let wanted: Vec<Rights> = self
                    .arguments
                    .paths()
                    .into_iter()
                    .map(|(_, rights)| rights)
                    .collect();
                if wanted.len() != paths.len() {
                    return Err(Refusal::new(
                        Code::Internal,
                        "stage 5",
                        self.arguments.tool().as_str(),
                    ));
                }
                let judged: Result<Vec<_>, _> = paths
                    .into_iter()
                    .zip(wanted)
                    .map(|(path, rights)| judge(policy, path, rights))
                    .collect();
                ResolvedTargets::Paths(judged?)
            }
            WalkedTargets::Program { program, cwd } => {
                let cwd = judge(policy, cwd, Rights::READ)?;
                if cwd.object().map(|object| object.kind) != Some(ObjectKind::Directory) {
                    return Err(Refusal::new(
                        Code::FileWrongKind,
                        "cwd",
                        cwd.path().display().to_string(),
                    ));
                }
                ResolvedTargets::Program {
                    program: judge_program(policy, program)?,
                    cwd,
                }
            }
        };
        Ok(ResolvedCall {
            arguments: self.arguments,
            asked: self.asked,
            targets,
        })
    }
}

impl ResolvedCall {
    /// The operations a human must be asked for.
    pub fn asked(&self) -> &BTreeSet<Operation> {
        &self.asked
    }

    /// Stage 6: nothing to ask. Grants come with the guardrails issue; until then what would need one is refused.
    ///
    /// # Errors
    /// `policy.approval_required`.
    pub fn approve(self) -> Result<ApprovedCall, Refusal> {
        match self.asked.iter().next() {
            Some(operation) => Err(Refusal::new(
                Code::ApprovalRequired,
                "L5 approvals.ask",
                operation.word(),
            )),
            None => Ok(ApprovedCall {
                arguments: self.arguments,
                targets: self.targets,
            }),
        }
    }
}

impl ApprovedCall {
    /// The typed arguments.
    pub fn arguments(&self) -> &ToolArguments {
        &self.arguments
    }

    /// Takes it apart for the one dispatcher.
    pub fn into_parts(self) -> (ToolArguments, ResolvedTargets) {
        (self.arguments, self.targets)
    }
}

/// Identifies tool and canonical arguments, for repetition (X-REPEAT, L4).
pub fn fingerprint(arguments: &ToolArguments) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(arguments.tool().as_str().as_bytes());
    hash.update([0]);
    hash.update(serde_json::to_vec(arguments).unwrap_or_default());
    hash.finalize().into()
}

/// Which class a program is of, or why it may not start (DESIGN §11.4, X-EXE, ST-20).
fn judge_program(
    policy: &EffectivePolicy,
    facts: ProgramFacts,
) -> Result<ProgramIdentity, Refusal> {
    match facts {
        ProgramFacts::Unknown { name } => {
            let known: Vec<&str> = policy
                .entries()
                .iter()
                .map(|entry| entry.alias.as_str())
                .collect();
            Err(
                Refusal::new(Code::ExecutableUnknown, "sandbox.execution.entries", name)
                    .with("allowed", known.join(", ")),
            )
        }
        ProgramFacts::Alias {
            alias,
            resolved,
            identity,
            sha256,
        } => {
            let Some(entry) = policy.entry(&alias) else {
                return Err(Refusal::new(
                    Code::ExecutableUnknown,
                    "sandbox.execution.entries",
                    alias,
                ));
            };
            if entry.kind == EntryKind::Shell && policy.shells() == ShellRule::Deny {
                return Err(Refusal::new(
                    Code::ShellDenied,
                    "sandbox.execution.shells",
                    alias,
                ));
            }
            if resolved != entry.resolved {
                return Err(Refusal::new(
                    Code::ExecutableResolutionChanged,
                    alias,
                    resolved.display().to_string(),
                ));
            }
            let same_bytes = match sha256 {
                Some(now) => now == entry.sha256,
                None => identity == entry.identity,
            };
            if !same_bytes {
                return Err(Refusal::new(
                    Code::ExecutableHashChanged,
                    alias,
                    resolved.display().to_string(),
                ));
            }
            let class = match entry.kind {
                EntryKind::Shell => ProgramClass::Shell,
                EntryKind::Program => ProgramClass::Entry,
            };
            Ok(ProgramIdentity {
                path: resolved,
                class,
                identity: Some(identity),
                sha256: Some(entry.sha256),
            })
        }
        ProgramFacts::Path { resolved, identity } => {
            let target = resolved.display().to_string();
            if policy
                .entries()
                .iter()
                .any(|entry| entry.resolved == resolved)
            {
                return Err(Refusal::new(
                    Code::ExecutableDenied,
                    "use the entry's alias",
                    target,
                ));
            }
            if policy.shells() == ShellRule::Deny && EntryKind::of(&resolved) == EntryKind::Shell {
                return Err(Refusal::new(
                    Code::ShellDenied,
                    "sandbox.execution.shells",
                    target,
                ));
            }
            let in_runtime = policy
                .entries()
                .iter()
                .filter_map(|entry| entry.runtime_root.as_ref())
                .any(|root| resolved.starts_with(root));
            if in_runtime {
                let class = ProgramClass::RuntimeComponent;
                return Ok(ProgramIdentity {
                    path: resolved,
                    class,
                    identity: Some(identity),
                    sha256: None,
                });
            }
            let rights = judge_place(policy, &resolved, Rights::READ)?;
            let artifact = rights.allows(Right::Execute)
                && policy.root_of(&resolved).is_some_and(|root| {
                    root.origins.contains(&crate::effective::Origin::Workspace)
                });
            if artifact {
                let class = ProgramClass::WorkspaceArtifact;
                return Ok(ProgramIdentity {
                    path: resolved,
                    class,
                    identity: Some(identity),
                    sha256: None,
                });
            }
            Err(Refusal::new(
                Code::ExecutableDenied,
                "entries, runtime roots, workspace artifacts",
                target,
            ))
        }
    }
}
