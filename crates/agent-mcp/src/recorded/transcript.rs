//! What was asked and answered, for the demo and for tests.

use super::recording::Kind;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// As many chats as are kept; the model may serve for days.
const MOST: usize = 256;

/// One chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// What it was for; nothing where the request could not be read.
    pub kind: Option<Kind>,
    /// The exchange that fitted.
    pub exchange: Option<String>,
    /// HTTP status.
    pub status: u16,
    /// `prompt_eval_count`.
    pub prompt_tokens: u64,
    /// `eval_count`.
    pub answer_tokens: u64,
}

/// The newest chats, oldest first. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Transcript(Arc<Mutex<VecDeque<Served>>>);

impl Transcript {
    /// A copy of what is kept.
    pub fn entries(&self) -> Vec<Served> {
        self.lock().iter().cloned().collect()
    }

    pub(super) fn add(&self, served: Served) {
        let mut entries = self.lock();
        if entries.len() == MOST {
            entries.pop_front();
        }
        entries.push_back(served);
    }

    /// A list stays a list when someone panicked beside it.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Served>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
