//! The SDK's transport over two byte streams. Messages are the SDK's; here is what it does with lines that are none.

use crate::ending::Ending;
use crate::message::{self, Reading};
use crate::stdio::lifecycle::{Admission, Lifecycle};
use crate::stdio::lines::{Line, Lines};
use crate::stdio::output::Output;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use std::io;
use tokio::io::AsyncRead;

pub(super) struct LineTransport<R> {
    lines: Lines<R>,
    limit: u64,
    lifecycle: Lifecycle,
    /// A reply of our own that is not in the queue yet.
    owed: Option<Vec<u8>>,
    output: Output,
    ending: Ending,
}

impl<R: AsyncRead + Unpin> LineTransport<R> {
    pub(super) fn new(input: R, limit: u64, output: Output, ending: Ending) -> Self {
        Self {
            lines: Lines::new(input, limit),
            limit,
            lifecycle: Lifecycle::default(),
            owed: None,
            output,
            ending,
        }
    }

    /// What of a line the SDK gets to see. A reply of ours becomes owed.
    fn take(&mut self, line: &[u8]) -> Option<ClientJsonRpcMessage> {
        let message = match message::read(line) {
            Reading::Message(message) => *message,
            Reading::Refused(reply) => {
                self.owe(&reply);
                return None;
            }
            Reading::Nothing => return None,
        };
        match self.lifecycle.admit(&message) {
            Admission::Deliver => Some(message),
            Admission::Ignore => None,
            Admission::Refuse(error) => {
                if let JsonRpcMessage::Request(request) = message {
                    self.owe(&ServerJsonRpcMessage::error(error, Some(request.id)));
                }
                None
            }
        }
    }

    fn owe(&mut self, reply: &ServerJsonRpcMessage) {
        match encode(reply) {
            Ok(line) => self.owed = Some(line),
            Err(error) => tracing::error!(%error, "a reply cannot be encoded"),
        }
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for LineTransport<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let output = self.output.clone();
        async move { output.write(encode(&item)?).await }
    }

    /// The SDK drops this future whenever a reply becomes ready; every wait in here can be dropped without loss.
    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            self.output.enqueue(&mut self.owed).await.ok()?;
            let line = tokio::select! {
                biased;
                line = self.lines.next() => line,
                () = self.ending.input_over() => Line::End,
            };
            match line {
                Line::Whole(line) => {
                    if let Some(message) = self.take(&line) {
                        return Some(message);
                    }
                }
                Line::TooLong => self.owe(&message::too_long(self.limit)),
                Line::End => {
                    self.ending.no_more_input();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One line. The two separators that JSON allows inside a string, and some line readers take for an end of line, are escaped.
fn encode(message: &ServerJsonRpcMessage) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_string(message)?;
    if text.contains(['\u{2028}', '\u{2029}']) {
        text = text
            .replace('\u{2028}', "\\u2028")
            .replace('\u{2029}', "\\u2029");
    }
    text.push('\n');
    Ok(text.into_bytes())
}
