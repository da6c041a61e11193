//! Sessions: conversation, graph, results and summary, in memory only (SES-01…04).

use crate::evidence::{Denied, VerifiedResult};
use planner::TaskGraph;
use policy::{Code, Refusal, SessionId};
use std::collections::HashMap;

/// A session that nobody uses for this long is closed (X-STATE).
pub const IDLE_SECONDS: i64 = 24 * 60 * 60;

/// One request and what came of it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What was asked.
    pub request: String,
    /// The answer, or a line of ours where there was none.
    pub answer: String,
}

/// What a session holds (SES-04). A run borrows it by value and brings it back.
#[derive(Clone, Debug, Default)]
pub struct SessionContext {
    /// Exchanges that are not in the summary, oldest first.
    pub conversation: Vec<Exchange>,
    /// The last run's graph.
    pub graph: Option<TaskGraph>,
    /// Verified results of completed Tasks, oldest first.
    pub results: Vec<VerifiedResult>,
    /// What was refused (SES-06: never summarized away).
    pub denials: Vec<Denied>,
    /// What older exchanges came to (SES-05).
    pub summary: Option<String>,
}

/// `active → closing → closed` (DESIGN §17.2). A session in use is never closed, so closing takes no time here.
#[derive(Debug)]
enum Held {
    Active {
        context: Option<Box<SessionContext>>,
        runs: usize,
        last_access: i64,
    },
    Closed {
        since: i64,
    },
}

/// Every session of this process.
#[derive(Debug, Default)]
pub struct SessionStore {
    sessions: HashMap<SessionId, Held>,
}

impl SessionStore {
    /// Joins a run to a session, a new one if none is named.
    ///
    /// # Errors
    /// `session.not_found`, `session.closed`.
    pub fn join(&mut self, wanted: Option<SessionId>, now: i64) -> Result<SessionId, Refusal> {
        self.close_idle(now);
        let Some(id) = wanted else {
            let id = SessionId::random();
            let context = Some(Box::default());
            self.sessions.insert(
                id,
                Held::Active {
                    context,
                    runs: 1,
                    last_access: now,
                },
            );
            return Ok(id);
        };
        self.check(id)?;
        if let Some(Held::Active {
            runs, last_access, ..
        }) = self.sessions.get_mut(&id)
        {
            *runs += 1;
            *last_access = now;
        }
        Ok(id)
    }

    /// Whether a session can be used.
    ///
    /// # Errors
    /// `session.not_found`, `session.closed`.
    pub fn check(&self, id: SessionId) -> Result<(), Refusal> {
        let refusal = |code| Refusal::new(code, "session", id.to_string());
        match self.sessions.get(&id) {
            None => Err(refusal(Code::SessionNotFound)),
            Some(Held::Closed { .. }) => Err(refusal(Code::SessionClosed)),
            Some(Held::Active { .. }) => Ok(()),
        }
    }

    /// Notes that somebody asked about it.
    pub fn touch(&mut self, id: SessionId, now: i64) {
        if let Some(Held::Active { last_access, .. }) = self.sessions.get_mut(&id) {
            *last_access = now;
        }
    }

    /// Lends the content to the one run that works.
    pub fn lend(&mut self, id: SessionId) -> SessionContext {
        match self.sessions.get_mut(&id) {
            Some(Held::Active { context, .. }) => context.take().map(|held| *held),
            _ => None,
        }
        .unwrap_or_default()
    }

    /// Takes the content back.
    pub fn give_back(&mut self, id: SessionId, returned: SessionContext) {
        if let Some(Held::Active { context, .. }) = self.sessions.get_mut(&id) {
            *context = Some(Box::new(returned));
        }
    }

    /// One run of the session has ended.
    pub fn leave(&mut self, id: SessionId, now: i64) {
        if let Some(Held::Active {
            runs, last_access, ..
        }) = self.sessions.get_mut(&id)
        {
            *runs = runs.saturating_sub(1);
            *last_access = now;
        }
    }

    /// Closes what was idle for [`IDLE_SECONDS`], and forgets what has been closed for as long again.
    pub fn close_idle(&mut self, now: i64) {
        for held in self.sessions.values_mut() {
            if let Held::Active {
                runs: 0,
                last_access,
                ..
            } = held
                && now - *last_access >= IDLE_SECONDS
            {
                *held = Held::Closed { since: now };
            }
        }
        self.sessions.retain(
            |_, held| !matches!(held, Held::Closed { since } if now - *since >= IDLE_SECONDS),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ses_02_unknown_sessions_are_not_found() {
        let mut store = SessionStore::default();
        let unknown = store.join(Some(SessionId::random()), 0).unwrap_err();
        assert_eq!(unknown.code, Code::SessionNotFound);
    }

    #[test]
    fn ses_03_an_idle_session_closes_after_a_day_and_a_used_one_does_not() {
        let mut store = SessionStore::default();
        let idle = store.join(None, 0).unwrap();
        let busy = store.join(None, 0).unwrap();
        store.leave(idle, 0);
        assert_eq!(store.join(Some(idle), IDLE_SECONDS - 1), Ok(idle));
        store.leave(idle, 10);
        let closed = store.join(Some(idle), IDLE_SECONDS + 10).unwrap_err();
        assert_eq!(closed.code, Code::SessionClosed);
        assert_eq!(store.check(busy), Ok(()), "a run is still at work in it");
        store.close_idle(3 * IDLE_SECONDS);
        assert_eq!(
            store.check(idle).unwrap_err().code,
            Code::SessionNotFound,
            "forgotten in the end"
        );
    }

    #[test]
    fn ses_04_content_is_lent_and_comes_back() {
        let mut store = SessionStore::default();
        let id = store.join(None, 0).unwrap();
        let mut context = store.lend(id);
        context.summary = Some("s".into());
        store.give_back(id, context);
        assert_eq!(store.lend(id).summary.as_deref(), Some("s"));
    }
}
