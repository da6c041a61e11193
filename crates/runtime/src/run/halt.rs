//! Why a run stops before its plan is done.

use crate::board::RunEnd;
use crate::ollama::OllamaFault;
use crate::stop::Stop;
use policy::{Code, Fault, Message, Refusal};

/// Why a run stops.
#[derive(Clone, Debug)]
pub(crate) enum Halt {
    /// A rule or a limit said no.
    Refused(Box<Refusal>),
    /// Something broke.
    Failed(Box<Fault>),
    /// Somebody stopped it, for this reason.
    Stopped(Code),
}

impl Halt {
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Refused(refusal) => refusal.code,
            Self::Failed(fault) => fault.code,
            Self::Stopped(code) => *code,
        }
    }

    pub(crate) fn message(&self) -> Message {
        match self {
            Self::Refused(refusal) => refusal.message(),
            Self::Failed(fault) => fault.message(),
            Self::Stopped(code) => Message::new(code.message_id())
                .with("target", "")
                .with("detail", ""),
        }
    }

    pub(crate) fn end(&self) -> RunEnd {
        match self {
            Self::Stopped(code) => RunEnd::cancelled(*code),
            _ => RunEnd::failed(self.code(), self.message()),
        }
    }

    /// A call to the model server gave no answer; a stop is not its fault.
    pub(crate) fn of_model(fault: &OllamaFault, stop: &Stop) -> Self {
        match stop.fired() {
            Some(why) => Self::Stopped(why),
            None => fault.to_fault().into(),
        }
    }
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Self::Failed(Box::new(fault))
    }
}
