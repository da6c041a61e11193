//! Where there is no backend: everything compiles, and a confined run fails (X-PLAT).

use crate::exec::{Command, ExecReport};
use policy::EffectivePolicy;
use policy::sandbox::{Enforcement, PreparedSandbox, SandboxBackend, SandboxError};
use std::path::PathBuf;
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

pub(crate) fn ask_for_names(_: &[String]) -> Result<crate::Answers, SandboxError> {
    Err(unavailable())
}

/// Cannot be made here.
#[derive(Debug)]
pub(crate) enum HeadStart {}

impl HeadStart {
    pub(crate) fn begin() -> Option<Self> {
        None
    }
}

/// Cannot be made here.
#[derive(Debug)]
pub(crate) enum Readied {}

impl Readied {
    pub(crate) fn new(_: &EffectivePolicy) -> Result<Self, SandboxError> {
        Err(unavailable())
    }

    pub(crate) fn enforcement(&self) -> Enforcement {
        match *self {}
    }

    pub(crate) fn explain(&mut self, _: crate::exec::Explain) {}

    pub(crate) fn run(
        self,
        _: &EffectivePolicy,
        _: &Command,
        _: Option<HeadStart>,
        _: impl FnMut(&Enforcement) -> Result<(), SandboxError>,
    ) -> Result<ExecReport, SandboxError> {
        match self {}
    }
}

pub(crate) fn locate(_: &EffectivePolicy, _: &Command) -> Option<PathBuf> {
    None
}

pub(crate) fn system_places() -> Vec<(PathBuf, policy::Rights)> {
    Vec::new()
}
