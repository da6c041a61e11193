//! The listener that plays a script.

use crate::http::{Request, read_request};
use crate::script::{Reply, Script, Step, head};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};

/// A model server on loopback that follows a [`Script`] and writes down what it is asked.
///
/// It lives on a thread of its own, so that tests with and without an async runtime can use it. End each test with
/// [`assert_finished`](Self::assert_finished).
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    stage: Arc<Stage>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the connections share.
#[derive(Debug)]
struct Stage {
    state: Mutex<State>,
    counts: watch::Sender<Counts>,
    released: Semaphore,
}

#[derive(Debug)]
struct State {
    steps: VecDeque<Step>,
    standing: BTreeMap<String, Reply>,
    requests: Vec<Request>,
    problems: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: usize,
    hangups: usize,
}

impl ScriptedModel {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// When this machine has no loopback or no threads left.
    pub fn start(script: Script) -> Self {
        let listener =
            StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback");
        listener
            .set_nonblocking(true)
            .expect("a non-blocking listener");
        let address = listener.local_addr().expect("a bound address");
        let stage = Arc::new(Stage {
            state: Mutex::new(State {
                steps: script.steps.into(),
                standing: script.standing,
                requests: Vec::new(),
                problems: Vec::new(),
            }),
            counts: watch::Sender::default(),
            released: Semaphore::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let theirs = Arc::clone(&stage);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    ended = accept(listener, theirs) => ended.expect("the listener lives"),
                }
            });
        });
        Self {
            address,
            stage,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// `http://127.0.0.1:port`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far that reached a step or was not expected; not those with standing answers.
    pub fn requests(&self) -> Vec<Request> {
        self.stage.state().requests.clone()
    }

    /// Lets one stalled step go on.
    pub fn release(&self) {
        self.stage.released.add_permits(1);
    }

    /// Waits until that many requests came.
    pub async fn wait_for_requests(&self, many: usize) {
        self.wait(|counts| counts.requests >= many).await;
    }

    /// Waits until that many clients hung up on a stalled step.
    pub async fn wait_for_hangups(&self, many: usize) {
        self.wait(|counts| counts.hangups >= many).await;
    }

    async fn wait(&self, reached: impl FnMut(&Counts) -> bool) {
        let mut counts = self.stage.counts.subscribe();
        counts
            .wait_for(reached)
            .await
            .expect("the stage lives as long as the model");
    }

    /// Panics unless every step was used and nothing else was asked.
    ///
    /// # Panics
    /// With everything that was left over, came too much or did not fit.
    #[track_caller]
    pub fn assert_finished(&self) {
        let state = self.stage.state();
        let unused = state
            .steps
            .iter()
            .map(|step| format!("unused step: {} {:?}", step.path, step.reply));
        let problems: Vec<String> = state.problems.iter().cloned().chain(unused).collect();
        drop(state);
        assert!(
            problems.is_empty(),
            "the script did not go as written:\n{}",
            problems.join("\n")
        );
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Stage {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no connection panics while it holds this")
    }

    /// Writes the request down and says what to reply.
    fn reply_to(&self, request: Request) -> Reply {
        let mut state = self.state();
        let next_is_here = state
            .steps
            .front()
            .is_some_and(|step| step.path == request.path);
        let reply = match (
            next_is_here.then(|| state.steps.pop_front()).flatten(),
            state.standing.get(&request.path),
        ) {
            (None, Some(standing)) => return standing.clone(),
            (None, None) => {
                let text = format!("not in the script: {} {}", request.method, request.path);
                state
                    .problems
                    .push(format!("{text} {}", String::from_utf8_lossy(&request.body)));
                Reply::error(500, &text)
            }
            (Some(step), _) => {
                if let Some(text) = step
                    .contains
                    .filter(|text| !String::from_utf8_lossy(&request.body).contains(text.as_str()))
                {
                    let body = String::from_utf8_lossy(&request.body);
                    let number = state.requests.len() + 1;
                    state
                        .problems
                        .push(format!("request {number} has no {text:?}: {body}"));
                }
                step.reply
            }
        };
        state.requests.push(request);
        drop(state);
        self.counts.send_modify(|counts| counts.requests += 1);
        reply
    }
}

async fn accept(listener: StdListener, stage: Arc<Stage>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let stage = Arc::clone(&stage);
        // A client that goes away is a part of many scripts and no failure of the server.
        tokio::spawn(async move { serve(stream, &stage).await.unwrap_or_default() });
    }
}

/// One request per connection.
async fn serve(mut stream: TcpStream, stage: &Stage) -> io::Result<()> {
    let Some(request) = read_request(&mut stream).await? else {
        return Ok(());
    };
    let mut reply = stage.reply_to(request);
    while let Reply::Stall(next) = reply {
        let mut nothing = [0; 1];
        tokio::select! {
            permit = stage.released.acquire() => permit.expect("never closed").forget(),
            _ = stream.read(&mut nothing) => {
                stage.counts.send_modify(|counts| counts.hangups += 1);
                return Ok(());
            }
        }
        reply = *next;
    }
    play(stream, reply).await
}

async fn play(mut stream: TcpStream, reply: Reply) -> io::Result<()> {
    match reply {
        Reply::Http {
            status,
            headers,
            body,
            content_type,
        } => {
            let length = body.len().to_string();
            let mut all = vec![("Connection", "close"), ("Content-Length", length.as_str())];
            all.extend(
                headers
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str())),
            );
            stream.write_all(&head(status, content_type, &all)).await?;
            stream.write_all(&body).await?;
            stream.shutdown().await
        }
        Reply::Bytes(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await
        }
        Reply::Reset(bytes) => {
            stream.write_all(&bytes).await?;
            stream.set_zero_linger()
        }
        Reply::Close | Reply::Stall(_) => stream.shutdown().await,
    }
}
