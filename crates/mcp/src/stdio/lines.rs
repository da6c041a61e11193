//! Lines of bytes, of which none is kept beyond a limit (M-4).

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

const READ_BYTES: usize = 64 * 1024;

/// What came in.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// A line without its line feed. The last one may lack it: a client may pipe its requests and close.
    Whole(Vec<u8>),
    /// A line longer than the limit. Its rest is thrown away as it comes.
    TooLong,
    /// The input is over, or cannot be read any more.
    End,
}

/// Reads lines. Dropping a call of [`Lines::next`] loses nothing.
pub(super) struct Lines<R> {
    input: BufReader<R>,
    limit: usize,
    line: Vec<u8>,
    /// The line at hand was reported as too long; its end is still to come.
    discarding: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(input: R, limit: u64) -> Self {
        Self {
            input: BufReader::with_capacity(READ_BYTES, input),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            line: Vec::new(),
            discarding: false,
        }
    }

    pub(super) async fn next(&mut self) -> Line {
        loop {
            // The only wait. What follows it changes the state in one go.
            let chunk = match self.input.fill_buf().await {
                Ok(chunk) => chunk,
                Err(error) => {
                    tracing::warn!(%error, "the input cannot be read");
                    return Line::End;
                }
            };
            if chunk.is_empty() {
                return if self.line.is_empty() {
                    Line::End
                } else {
                    Line::Whole(std::mem::take(&mut self.line))
                };
            }
            let feed = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..feed.unwrap_or(chunk.len())];
            let too_long = !self.discarding && self.line.len() + part.len() > self.limit;
            if !self.discarding && !too_long {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(feed.is_some());
            self.input.consume(used);
            if too_long {
                self.line = Vec::new();
                self.discarding = feed.is_none();
                return Line::TooLong;
            }
            if feed.is_some() {
                if !self.discarding {
                    return Line::Whole(std::mem::take(&mut self.line));
                }
                self.discarding = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8], limit: u64) -> Vec<Line> {
        let mut reader = Lines::new(input, limit);
        let mut lines = Vec::new();
        loop {
            match reader.next().await {
                Line::End => return lines,
                line => lines.push(line),
            }
        }
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.into())
    }

    #[tokio::test]
    async fn the_limit_is_inclusive_and_the_next_line_is_read() {
        let read = lines(b"1234\n12345\n1\n", 4).await;
        assert_eq!(read, [whole("1234"), Line::TooLong, whole("1")]);
    }

    #[tokio::test]
    async fn a_last_line_without_its_end_counts() {
        assert_eq!(
            lines(b"a\n\nb", 4).await,
            [whole("a"), whole(""), whole("b")]
        );
        assert_eq!(lines(b"a\n12345", 4).await, [whole("a"), Line::TooLong]);
        assert_eq!(lines(b"", 4).await, []);
    }

    #[tokio::test]
    async fn m_4_a_line_without_end_is_reported_once_and_not_kept() {
        let mut input = vec![b'x'; 5 * READ_BYTES];
        input.extend_from_slice(b"\nok\n");
        let mut reader = Lines::new(&input[..], READ_BYTES as u64 * 2);
        assert_eq!(reader.next().await, Line::TooLong);
        assert_eq!(reader.line.capacity(), 0);
        assert_eq!(reader.next().await, whole("ok"));
        assert_eq!(reader.next().await, Line::End);
    }

    #[tokio::test]
    async fn a_dropped_call_loses_nothing() {
        use tokio::io::AsyncWriteExt;
        let (mut client, server) = tokio::io::duplex(64);
        let mut reader = Lines::new(server, 100);
        client.write_all(b"first ").await.unwrap();
        // Polled once and dropped, as the SDK's loop does when a reply becomes ready.
        tokio::select! {
            biased;
            _ = reader.next() => panic!("no line yet"),
            () = tokio::task::yield_now() => {}
        }
        client.write_all(b"half\n").await.unwrap();
        assert_eq!(reader.next().await, whole("first half"));
    }
}
