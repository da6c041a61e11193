//! Where there is no backend: everything compiles, and a confined run fails (X-PLAT).

use crate::exec::{ExecReport, ExecRequest};
use policy::EffectivePolicy;
use policy::sandbox::{Enforcement, PreparedSandbox, SandboxBackend, SandboxError};
use std::sync::Arc;

/// The backend that always says unavailable.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinuxSandbox;

fn unavailable() -> SandboxError {
    SandboxError::Unavailable {
        stage: "platform",
        reason: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
    }
}

impl SandboxBackend for LinuxSandbox {
    fn survey(&self, _: &EffectivePolicy) -> Result<Enforcement, SandboxError> {
        Err(unavailable())
    }

    fn prepare(
        &self,
        _: &Arc<EffectivePolicy>,
        _: &str,
    ) -> Result<Box<dyn PreparedSandbox>, SandboxError> {
        Err(unavailable())
    }
}

pub(crate) fn init() {}

pub(crate) fn exec_once(
    _: &EffectivePolicy,
    _: &ExecRequest,
    _: impl FnOnce() -> Result<(), SandboxError>,
) -> Result<ExecReport, SandboxError> {
    Err(unavailable())
}
