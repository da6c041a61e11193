//! What really does things: walking, dispatching, off the async threads, stopped when the run is.

use super::Run;
use super::begin::Seat;
use super::halt::Halt;
use crate::ledger::Effects;
use crate::tools::{self, ToolContext, ToolResult, Walker};
use policy::call::{ApprovedCall, PermittedCall, ResolvedCall};
use policy::sandbox::{
    Finding, ProcessOutcome, ProcessRequest, Relayed, SandboxError, TaskSandbox,
};
use policy::{Blame, Code, EffectivePolicy, Fault, Refusal};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What the tools of one planned Task work with; shared with the threads they block.
pub(super) struct Hands {
    pub policy: Arc<EffectivePolicy>,
    pub walker: Arc<Walker>,
    pub limits: tools::ToolLimits,
    pub temporary: PathBuf,
    pub sandbox: Option<Witness>,
    pub effects: Effects,
    pub cancelled: AtomicBool,
}

impl Hands {
    fn resolve(&self, call: PermittedCall) -> Result<ResolvedCall, Refusal> {
        let walked = self.walker.walk_call(&self.policy, call.arguments())?;
        call.resolve(&self.policy, walked)
    }

    fn perform(&self, call: ApprovedCall) -> ToolResult {
        let context = ToolContext {
            policy: &self.policy,
            walker: &self.walker,
            limits: self.limits,
            effect_log: &self.effects,
            sandbox: self
                .sandbox
                .as_ref()
                .map(|sandbox| sandbox as &dyn TaskSandbox),
            task_temp: &self.temporary,
            cancelled: Some(&self.cancelled),
            fuse: None,
        };
        tools::dispatch(call, &context)
    }

    fn stop(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        if let Some(sandbox) = &self.sandbox {
            sandbox.kill();
        }
    }
}

/// A Task's sandbox that remembers how its last program ended, for the audit.
pub(super) struct Witness {
    pub inner: Arc<dyn TaskSandbox>,
    pub seen: Mutex<Option<ProcessOutcome>>,
}

impl TaskSandbox for Witness {
    fn run(&self, request: &ProcessRequest) -> Result<ProcessOutcome, SandboxError> {
        let outcome = self.inner.run(request)?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome.clone());
        Ok(outcome)
    }

    fn relayed(&self) -> Vec<Relayed> {
        self.inner.relayed()
    }

    fn findings(&self) -> Vec<Finding> {
        self.inner.findings()
    }

    fn kill(&self) {
        self.inner.kill();
    }

    fn end(&self) -> Result<(), SandboxError> {
        self.inner.end()
    }
}

impl Run {
    /// Stage 5: the platform walks, the policy judges.
    pub(super) async fn resolve(
        &self,
        seat: &Seat,
        call: PermittedCall,
    ) -> Result<Result<ResolvedCall, Refusal>, Halt> {
        let hands = Arc::clone(&seat.hands);
        blocking(move || hands.resolve(call)).await
    }

    /// The effect. A stop kills what runs and waits until the tool has cleaned up after itself.
    pub(super) async fn perform(
        &self,
        seat: &Seat,
        call: ApprovedCall,
    ) -> Result<ToolResult, Halt> {
        let hands = Arc::clone(&seat.hands);
        let mut work = std::pin::pin!(blocking(move || hands.perform(call)));
        tokio::select! {
            biased;
            done = &mut work => done,
            () = self.stop.token().cancelled() => {
                seat.hands.stop();
                work.await
            }
        }
    }
}

/// Runs something that blocks.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Halt> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|problem| Fault::new(Blame::Us, Code::Internal, "tool", problem).into())
}
