//! The only writer of the output: one task, one message a line, nothing else (SEC-INV-12).

use crate::ending::Ending;
use std::io;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Lines that may wait. A client that sends without reading is not read from any more once they are used up.
const WAITING_LINES: usize = 64;

struct Line {
    bytes: Vec<u8>,
    written: Option<oneshot::Sender<()>>,
}

/// A handle to the writer. When the last one is dropped the writer ends after what is waiting.
#[derive(Clone)]
pub(super) struct Output {
    lines: mpsc::Sender<Line>,
}

pub(super) fn open<W>(stdout: W, ending: Ending) -> (Output, JoinHandle<()>)
where
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (sender, receiver) = mpsc::channel(WAITING_LINES);
    (
        Output { lines: sender },
        tokio::spawn(write(stdout, receiver, ending)),
    )
}

async fn write<W: AsyncWrite + Unpin>(
    mut stdout: W,
    mut lines: mpsc::Receiver<Line>,
    ending: Ending,
) {
    while let Some(line) = lines.recv().await {
        let writing = async {
            stdout.write_all(&line.bytes).await?;
            stdout.flush().await
        };
        let outcome = tokio::select! {
            biased;
            outcome = writing => outcome,
            () = ending.output_over() => Err(io::ErrorKind::TimedOut.into()),
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "the output is closed or not read");
            ending.client_left();
            return;
        }
        if let Some(written) = line.written {
            // The sender may have stopped waiting.
            let _ = written.send(());
        }
    }
}

impl Output {
    /// Writes a line and waits until it is out.
    pub(super) async fn write(self, bytes: Vec<u8>) -> io::Result<()> {
        let (written, done) = oneshot::channel();
        let line = Line {
            bytes,
            written: Some(written),
        };
        self.lines.send(line).await.map_err(|_| closed())?;
        done.await.map_err(|_| closed())
    }

    /// Puts `line` into the queue and leaves nothing behind. Dropping the call before that leaves the line where it is.
    pub(super) async fn enqueue(&self, line: &mut Option<Vec<u8>>) -> io::Result<()> {
        if line.is_none() {
            return Ok(());
        }
        let permit = self.lines.reserve().await.map_err(|_| closed())?;
        if let Some(bytes) = line.take() {
            permit.send(Line {
                bytes,
                written: None,
            });
        }
        Ok(())
    }
}

fn closed() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}
