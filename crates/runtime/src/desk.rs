//! The one owner of sessions, of the run queue and of what is known about runs (DESIGN §17.0).
//!
//! Everything arrives as a message, in order. One run at a time is planning or running; the others wait in arrival order.

use crate::board::{self, Board, RunEnd};
use crate::image;
use crate::run::{Ending, Engine, Job, execute};
use crate::service::{ClientId, RunEvent, RunRequest, RunState, RunStatus, Submitted};
use crate::session::{IDLE_SECONDS, SessionStore};
use crate::stop::Stop;
use policy::{Code, Message, Refusal, Right, RunId, SessionId, TraceId};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// What is asked of the desk, or told to it.
pub(crate) enum Ask {
    Submit(Box<RunRequest>, oneshot::Sender<Result<Submitted, Refusal>>),
    Status(
        RunId,
        Option<SessionId>,
        oneshot::Sender<Result<RunStatus, Refusal>>,
    ),
    Cancel(RunId, oneshot::Sender<Result<(), Refusal>>),
    ClientGone(ClientId, oneshot::Sender<()>),
    Shutdown(oneshot::Sender<()>),
    Subscribe(RunId, mpsc::UnboundedSender<RunEvent>),
    Happened(RunId, RunEvent),
    Ended(RunId, Option<Box<Ending>>),
}

/// One run as the desk knows it.
struct Known {
    session: SessionId,
    client: ClientId,
    trace: TraceId,
    stop: Stop,
    phase: Phase,
    events: Vec<RunEvent>,
    watchers: Vec<mpsc::UnboundedSender<RunEvent>>,
    waiters: Vec<Waiter>,
}

enum Phase {
    Waiting {
        request: Box<RunRequest>,
        images: Vec<String>,
        bytes: usize,
        status: Box<RunStatus>,
    },
    Working(watch::Receiver<RunStatus>),
    Over {
        status: Box<RunStatus>,
        at: i64,
    },
}

/// Somebody who waits for a run's clean end.
enum Waiter {
    Cancel(oneshot::Sender<Result<(), Refusal>>),
    /// Dropped when the run is over; the other side counts.
    Gone(#[expect(dead_code, reason = "its drop is the message")] mpsc::Sender<()>),
}

pub(crate) struct Desk {
    engine: Arc<Engine>,
    inbox: mpsc::UnboundedReceiver<Ask>,
    /// Given to the run at work, so that its events arrive here in order.
    own: mpsc::WeakUnboundedSender<Ask>,
    sessions: SessionStore,
    runs: HashMap<RunId, Known>,
    queue: VecDeque<RunId>,
    /// What the waiting requests take, bytes.
    queued_bytes: usize,
    working: Option<RunId>,
    stopping: bool,
    /// When what is old was last forgotten, seconds.
    swept: Option<i64>,
}

impl Desk {
    pub(crate) fn new(
        engine: Arc<Engine>,
        inbox: mpsc::UnboundedReceiver<Ask>,
        own: mpsc::WeakUnboundedSender<Ask>,
    ) -> Self {
        Self {
            engine,
            inbox,
            own,
            sessions: SessionStore::default(),
            runs: HashMap::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            working: None,
            stopping: false,
            swept: None,
        }
    }

    /// Works until every handle is gone and nothing runs.
    pub(crate) async fn work(mut self) {
        while let Some(ask) = self.inbox.recv().await {
            self.answer(ask);
            self.start_next();
        }
    }

    fn now(&self) -> i64 {
        self.engine.now_seconds()
    }

    // A receiver that is gone no longer wants its answer; sending to it is no failure of ours.
    fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Submit(request, reply) => drop(reply.send(self.submit(request))),
            Ask::Status(run, session, reply) => drop(reply.send(self.status(run, session))),
            Ask::Cancel(run, reply) => self.cancel(run, reply),
            Ask::ClientGone(client, reply) => {
                let runs = self.unfinished(|known| known.client == client);
                self.stop_all(runs, Code::ClientGone, reply);
            }
            Ask::Shutdown(reply) => {
                self.stopping = true;
                let runs = self.unfinished(|_| true);
                self.stop_all(runs, Code::ServerStopping, reply);
            }
            Ask::Subscribe(run, watcher) => self.subscribe(run, watcher),
            Ask::Happened(run, event) => self.happened(run, event),
            Ask::Ended(run, ending) => self.ended(run, ending.map(|ending| *ending)),
        }
    }

    fn submit(&mut self, mut request: Box<RunRequest>) -> Result<Submitted, Refusal> {
        if self.stopping {
            return Err(Refusal::new(Code::ServerStopping, "shutdown", "agent_run"));
        }
        self.check(&request)?;
        let limits = self.engine.limits();
        let images = image::check(&request.images, limits.images)?;
        // Checked and taken over.
        request.images = Vec::new();
        let bytes = request.request.len() + images.iter().map(String::len).sum::<usize>();
        // A request alone is never too heavy: its size is limited elsewhere.
        let heavy = self.queued_bytes > 0 && self.queued_bytes + bytes > limits.queue_bytes;
        if self.queue.len() >= limits.queue || heavy {
            return Err(Refusal::new(Code::QueueFull, "run queue", "agent_run")
                .with("count", self.queue.len()));
        }
        let now = self.now();
        self.forget_old(now);
        let session_id = self.sessions.join(request.session_id, now)?;
        let run_id = RunId::random();
        let waiting = self.queue.len() + usize::from(self.working.is_some());
        let status = Box::new(board::queued(run_id, session_id, waiting));
        let known = Known {
            session: session_id,
            client: request.client,
            trace: TraceId::random(),
            stop: Stop::default(),
            phase: Phase::Waiting {
                request,
                images,
                bytes,
                status,
            },
            events: vec![RunEvent::State(RunState::Queued)],
            watchers: Vec::new(),
            waiters: Vec::new(),
        };
        self.runs.insert(run_id, known);
        self.queue.push_back(run_id);
        self.queued_bytes += bytes;
        Ok(Submitted { run_id, session_id })
    }

    /// What can be judged without the model.
    fn check(&self, request: &RunRequest) -> Result<(), Refusal> {
        let wrong = |field: &str, why: Message| {
            Err(Refusal::new(Code::RequestInvalid, "SPEC §5.3", field).because(why))
        };
        if request.request.trim().is_empty() {
            return wrong("request", Message::new("mcp.field_empty"));
        }
        if request
            .temperature
            .is_some_and(|degrees| !(0.0..=2.0).contains(&degrees))
        {
            return wrong(
                "temperature",
                Message::new("mcp.field_range")
                    .with("minimum", "0.0")
                    .with("maximum", "2.0"),
            );
        }
        if let Some(cwd) = &request.cwd
            && !self.engine.policy().rights_at(cwd).allows(Right::Read)
        {
            let target = cwd.display().to_string();
            return Err(
                Refusal::new(Code::PathDenied, "X-ROOT: cwd", target).requiring(Right::Read)
            );
        }
        Ok(())
    }

    fn known(&self, run: RunId) -> Result<&Known, Refusal> {
        self.runs
            .get(&run)
            .ok_or_else(|| Refusal::new(Code::TaskNotFound, "task_id", run.to_string()))
    }

    fn status(&mut self, run: RunId, session: Option<SessionId>) -> Result<RunStatus, Refusal> {
        let now = self.now();
        self.forget_old(now);
        let known = self.known(run)?;
        if let Some(session) = session
            && session != known.session
        {
            self.sessions.check(session)?;
            return Err(Refusal::new(
                Code::TaskSessionMismatch,
                session.to_string(),
                run.to_string(),
            ));
        }
        let session = known.session;
        let status = match &known.phase {
            Phase::Waiting { status, .. } => RunStatus {
                message: self.place_in_queue(run),
                ..(**status).clone()
            },
            Phase::Over { status, .. } => (**status).clone(),
            Phase::Working(status) => status.borrow().clone(),
        };
        self.sessions.touch(session, now);
        Ok(status)
    }

    fn place_in_queue(&self, run: RunId) -> Message {
        let before = self.queue.iter().take_while(|waiting| **waiting != run);
        board::waiting(before.count() + usize::from(self.working.is_some()))
    }

    fn cancel(&mut self, run: RunId, reply: oneshot::Sender<Result<(), Refusal>>) {
        match self.known(run) {
            Err(refusal) => drop(reply.send(Err(refusal))),
            Ok(known) if matches!(known.phase, Phase::Over { .. }) => drop(reply.send(Ok(()))),
            Ok(_) => self.stop_one(run, Code::Cancelled, Waiter::Cancel(reply)),
        }
    }

    fn unfinished(&self, wanted: impl Fn(&Known) -> bool) -> Vec<RunId> {
        let unfinished = self
            .runs
            .iter()
            .filter(|(_, known)| !matches!(known.phase, Phase::Over { .. }) && wanted(known));
        unfinished.map(|(run, _)| *run).collect()
    }

    /// Stops them and says so when all of them are over and clean.
    fn stop_all(&mut self, runs: Vec<RunId>, why: Code, reply: oneshot::Sender<()>) {
        let (all_gone, mut waiting) = mpsc::channel(1);
        for run in runs {
            self.stop_one(run, why, Waiter::Gone(all_gone.clone()));
        }
        drop(all_gone);
        tokio::spawn(async move {
            // Yields nothing, and ends when the last waiter was dropped.
            while waiting.recv().await.is_some() {}
            let _ = reply.send(());
        });
    }

    fn stop_one(&mut self, run: RunId, why: Code, waiter: Waiter) {
        let Some(known) = self.runs.get_mut(&run) else {
            return;
        };
        known.waiters.push(waiter);
        known.stop.fire(why);
        if let Phase::Waiting { status, bytes, .. } = &known.phase {
            let status = status.clone();
            self.queued_bytes -= bytes;
            self.queue.retain(|waiting| *waiting != run);
            let (board, _) = self.board(run, *status);
            board.end(RunEnd::cancelled(why));
            self.over(run, board.snapshot());
        }
    }

    fn subscribe(&mut self, run: RunId, watcher: mpsc::UnboundedSender<RunEvent>) {
        let Some(known) = self.runs.get_mut(&run) else {
            return;
        };
        for event in &known.events {
            drop(watcher.send(event.clone()));
        }
        if !matches!(known.phase, Phase::Over { .. }) {
            known.watchers.push(watcher);
        }
    }

    fn happened(&mut self, run: RunId, event: RunEvent) {
        let Some(known) = self.runs.get_mut(&run) else {
            return;
        };
        known
            .watchers
            .retain(|watcher| watcher.send(event.clone()).is_ok());
        known.events.push(event);
    }

    fn board(&self, run: RunId, status: RunStatus) -> (Board, watch::Receiver<RunStatus>) {
        let (sender, receiver) = watch::channel(status);
        let desk = self.own.clone();
        let events = move |event| {
            // Without a desk nobody is left to tell.
            if let Some(desk) = desk.upgrade() {
                drop(desk.send(Ask::Happened(run, event)));
            }
        };
        (Board::new(sender, Box::new(events)), receiver)
    }

    /// The next waiting run begins, if none is at work (DESIGN §17.0).
    fn start_next(&mut self) {
        if self.working.is_some() {
            return;
        }
        let (Some(run), Some(desk)) = (self.queue.pop_front(), self.own.upgrade()) else {
            return;
        };
        let Some(Phase::Waiting { status, .. }) = self.runs.get(&run).map(|known| &known.phase)
        else {
            return;
        };
        let (board, receiver) = self.board(run, (**status).clone());
        let Some(known) = self.runs.get_mut(&run) else {
            return;
        };
        let Phase::Waiting {
            request,
            images,
            bytes,
            ..
        } = std::mem::replace(&mut known.phase, Phase::Working(receiver))
        else {
            return;
        };
        let session_id = known.session;
        let (trace, stop) = (known.trace, known.stop.clone());
        let job = Job {
            run_id: run,
            session_id,
            trace,
            request: *request,
            images,
            stop,
            board,
            session: self.sessions.lend(session_id),
        };
        self.queued_bytes -= bytes;
        self.working = Some(run);
        let work = tokio::spawn(execute(Arc::clone(&self.engine), job));
        tokio::spawn(async move {
            // A panic in a run ends that run and not the server.
            let ending = work.await.ok().map(Box::new);
            drop(desk.send(Ask::Ended(run, ending)));
        });
    }

    fn ended(&mut self, run: RunId, ending: Option<Ending>) {
        self.working = None;
        let status = match ending {
            Some(Ending { board, session }) => {
                if let Some(known) = self.runs.get(&run) {
                    self.sessions.give_back(known.session, session);
                }
                board.snapshot()
            }
            None => {
                let Some(Phase::Working(last)) = self.runs.get(&run).map(|known| &known.phase)
                else {
                    return;
                };
                let (board, _) = self.board(run, last.borrow().clone());
                let message = Message::new(Code::Internal.message_id())
                    .with("target", "run")
                    .with("detail", "");
                board.end(RunEnd::failed(Code::Internal, message));
                board.snapshot()
            }
        };
        self.over(run, status);
    }

    /// The end of a run: its last event, everybody who waited, and room for the next one.
    fn over(&mut self, run: RunId, status: RunStatus) {
        let now = self.now();
        self.happened(run, RunEvent::State(status.state));
        self.happened(run, RunEvent::Finished(Box::new(status.clone())));
        let Some(known) = self.runs.get_mut(&run) else {
            return;
        };
        known.phase = Phase::Over {
            status: Box::new(status),
            at: now,
        };
        known.watchers.clear();
        for waiter in known.waiters.drain(..) {
            match waiter {
                Waiter::Cancel(reply) => drop(reply.send(Ok(()))),
                Waiter::Gone(_) => {}
            }
        }
        let session = known.session;
        self.sessions.leave(session, now);
    }

    /// Statuses are kept for a day after the end, sessions for a day of silence.
    /// Once a second at most: it looks at every run and session.
    fn forget_old(&mut self, now: i64) {
        if self.swept.replace(now) == Some(now) {
            return;
        }
        self.runs.retain(
            |_, known| !matches!(known.phase, Phase::Over { at, .. } if now - at >= IDLE_SECONDS),
        );
        self.sessions.close_idle(now);
    }
}
