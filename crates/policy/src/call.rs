//! The order of checks as types (product.md §3): a later stage is only reached with the value the earlier one returned.
//!
//! `ProposedCall → ValidatedCall → ScopedCall → PlausibleCall → PermittedCall → ResolvedCall → ApprovedCall`. The
//! dispatcher takes only the last; nothing but this module makes one.

use crate::code::Code;
use crate::effective::{EffectivePolicy, FileIdentity, Sha256Digest};
use crate::fault::Refusal;
use crate::layers::{OperationRules, PermissionLayers};
use crate::path::{ObjectKind, ResolvedPath, WalkedPath, judge};
use crate::rights::Rights;
use crate::sandbox::ProgramIdentity;
use crate::secret::Untrusted;
use crate::tool::{Operation, ProcessRun, ToolArguments, ToolName, program_operations};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::PathBuf;

mod program;

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
    rules: OperationRules,
}

/// Stage 5 passed: every target was resolved, opened and judged by the effective policy.
#[derive(Debug)]
pub struct ResolvedCall {
    arguments: ToolArguments,
    asked: BTreeSet<Operation>,
    targets: ResolvedTargets,
}

/// Stage 6 passed: what the dispatcher takes. Only the stages lead to one, each once and in order (SEC-INV-01).
///
/// ```
/// use policy::call::*;
/// fn every_stage(
///     call: ProposedCall,
///     scope: &Scope,
///     layers: &mut policy::layers::PermissionLayers,
///     policy: &policy::EffectivePolicy,
///     walked: WalkedTargets,
/// ) -> Result<ApprovedCall, policy::Refusal> {
///     call.validate()?.scope(scope)?.plausible()?.permit(layers)?.resolve(policy, walked)?.approve()
/// }
/// ```
/// It cannot be built outside, and no stage can be left out:
///
/// ```compile_fail,E0451
/// use policy::call::*;
/// fn built(arguments: policy::tool::ToolArguments) -> ApprovedCall {
///     ApprovedCall { arguments, targets: ResolvedTargets::Graph }
/// }
/// ```
/// ```compile_fail,E0599
/// use policy::call::*;
/// fn no_scope(call: ValidatedCall) { drop(call.plausible()); }
/// ```
/// ```compile_fail,E0599
/// use policy::call::*;
/// fn no_gate(call: ScopedCall, layers: &mut policy::layers::PermissionLayers) { drop(call.permit(layers)); }
/// ```
/// ```compile_fail,E0599
/// use policy::call::*;
/// fn no_layers(call: PlausibleCall, policy: &policy::EffectivePolicy, walked: WalkedTargets) {
///     drop(call.resolve(policy, walked));
/// }
/// ```
/// ```compile_fail,E0599
/// use policy::call::*;
/// fn no_policy(call: PermittedCall) { drop(call.approve()); }
/// ```
/// ```compile_fail,E0382
/// use policy::call::*;
/// fn twice(call: ResolvedCall) { drop(call.approve()); drop(call.approve()); }
/// ```
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
            rules: layers.rules().clone(),
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
    /// The refusal of the first target; `internal` for targets of another shape than the arguments name.
    pub fn resolve(
        mut self,
        policy: &EffectivePolicy,
        walked: WalkedTargets,
    ) -> Result<ResolvedCall, Refusal> {
        let targets = match (&self.arguments, walked) {
            (ToolArguments::TaskUpdate(_), WalkedTargets::Graph) => ResolvedTargets::Graph,
            (ToolArguments::ProcessRun(call), WalkedTargets::Program { program, cwd }) => {
                let program = program::judge_program(policy, &call.executable, program)?;
                let asked = self
                    .rules
                    .judge(&resolved_operations(policy, call, &program))?;
                self.asked.extend(asked);
                ResolvedTargets::Program {
                    program,
                    cwd: judge_cwd(policy, cwd)?,
                }
            }
            (
                ToolArguments::FileSearch(_)
                | ToolArguments::FileRead(_)
                | ToolArguments::FileEdit(_)
                | ToolArguments::Dir(_),
                WalkedTargets::Paths(paths),
            ) => ResolvedTargets::Paths(judge_paths(policy, &self.arguments, paths)?),
            (_, _) => return Err(mismatch(&self.arguments)),
        };
        Ok(ResolvedCall {
            arguments: self.arguments,
            asked: self.asked,
            targets,
        })
    }
}

fn judge_paths(
    policy: &EffectivePolicy,
    arguments: &ToolArguments,
    walked: Vec<WalkedPath>,
) -> Result<Vec<ResolvedPath>, Refusal> {
    let wanted = arguments.paths();
    if wanted.len() != walked.len() {
        return Err(mismatch(arguments));
    }
    let mut judged = Vec::with_capacity(walked.len());
    for (path, (_, rights)) in walked.into_iter().zip(wanted) {
        let path = judge(policy, path, rights)?;
        if matches!(arguments, ToolArguments::FileEdit(_)) {
            judge_edited(policy, &path)?;
        }
        judged.push(path);
    }
    Ok(judged)
}

/// `file_edit` edits files: moving a directory would move what is protected in it, and a file in the place of a
/// protected directory would lead around it (X-PROTECT).
fn judge_edited(policy: &EffectivePolicy, path: &ResolvedPath) -> Result<(), Refusal> {
    let target = || path.path().display().to_string();
    if path.object().map(|object| object.kind) == Some(ObjectKind::Directory) {
        return Err(Refusal::new(Code::FileWrongKind, "file_edit", target()));
    }
    match policy.protects_below(path.path()) {
        Some(pattern) => Err(Refusal::new(
            Code::PathProtected,
            format!("sandbox.protect: {}", pattern.display()),
            target(),
        )),
        None => Ok(()),
    }
}

fn judge_cwd(policy: &EffectivePolicy, cwd: WalkedPath) -> Result<ResolvedPath, Refusal> {
    let cwd = judge(policy, cwd, Rights::READ)?;
    if cwd.object().map(|object| object.kind) == Some(ObjectKind::Directory) {
        Ok(cwd)
    } else {
        Err(Refusal::new(
            Code::FileWrongKind,
            "cwd",
            cwd.path().display().to_string(),
        ))
    }
}

/// The operations under every name of the program: an alias `vcs` for git pushes as well.
fn resolved_operations(
    policy: &EffectivePolicy,
    call: &ProcessRun,
    program: &ProgramIdentity,
) -> BTreeSet<Operation> {
    let logical = policy.entry(&call.executable).map(|entry| &entry.logical);
    let mut operations = BTreeSet::new();
    for name in logical.into_iter().chain([&program.path]) {
        operations.extend(program_operations(&name.to_string_lossy(), &call.args));
    }
    operations
}

fn mismatch(arguments: &ToolArguments) -> Refusal {
    Refusal::new(Code::Internal, "stage 5", arguments.tool().as_str())
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
