//! Searching lines, with ripgrep's searcher.

use super::LINE_CHARACTERS;
use super::tree::{Entry, Findings, Found};
use crate::tools::open::HASHED_BYTES;
use crate::tools::os;
use crate::tools::text::{Encoding, TEST_BYTES, visible};
use cap_std::fs::File;
use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use policy::path::ObjectKind;
use policy::{Code, Refusal};
use std::io::{self, Read};
use std::path::PathBuf;

/// Files up to this size are searched in memory, larger ones as they are read.
const IN_MEMORY: usize = 4 << 20;
/// Most memory of a compiled expression, bytes.
const EXPRESSION_BYTES: usize = 16 << 20;

/// What lines are searched for.
pub(super) struct Pattern {
    matcher: RegexMatcher,
    line_end: LineTerminator,
    keep: usize,
}

/// One thread's searcher.
pub(super) struct Lines {
    matcher: RegexMatcher,
    searcher: Searcher,
    buffer: Vec<u8>,
    keep: usize,
}

impl Pattern {
    /// Text as it is, or a regular expression; lines are judged one by one.
    ///
    /// # Errors
    /// `tool.arguments_invalid` with the expression's error.
    pub(super) fn new(query: &str, regex: bool, keep: usize) -> Result<Self, Refusal> {
        let invalid = |detail: String| {
            Refusal::new(
                Code::ToolArgumentsInvalid,
                "one line to search for",
                "query",
            )
            .with("detail", detail)
        };
        if !regex && query.contains(['\n', '\r']) {
            return Err(invalid("the text must be on one line".to_owned()));
        }
        let mut builder = RegexMatcherBuilder::new();
        builder
            .fixed_strings(!regex)
            .multi_line(true)
            .line_terminator(Some(b'\n'))
            .crlf(regex);
        builder
            .size_limit(EXPRESSION_BYTES)
            .dfa_size_limit(EXPRESSION_BYTES);
        let matcher = builder
            .build(query)
            .map_err(|error| invalid(error.to_string()))?;
        // `$` stands before `\r\n` too; searcher and expression must agree on what ends a line.
        let line_end = if regex {
            LineTerminator::crlf()
        } else {
            LineTerminator::byte(b'\n')
        };
        Ok(Self {
            matcher,
            line_end,
            keep,
        })
    }

    /// A searcher for one thread.
    pub(super) fn lines(&self) -> Lines {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .line_terminator(self.line_end)
            .binary_detection(BinaryDetection::none())
            .build();
        Lines {
            matcher: self.matcher.clone(),
            searcher,
            buffer: Vec::new(),
            keep: self.keep,
        }
    }
}

impl Lines {
    /// Searches one file, if it is one and is text.
    pub(super) fn visit(&mut self, entry: &Entry<'_>, findings: &mut Findings) {
        if entry.kind != ObjectKind::File {
            return;
        }
        match self.search(entry, findings) {
            Ok(true) => {}
            Ok(false) => findings.binary += 1,
            Err(_) => findings.unreadable += 1,
        }
    }

    /// Whether it is text.
    fn search(&mut self, entry: &Entry<'_>, findings: &mut Findings) -> io::Result<bool> {
        let mut file: File = entry.parent.open_with(entry.name, &os::read_options())?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if metadata.len() > HASHED_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.buffer.clear();
        let whole = metadata.len() <= IN_MEMORY as u64;
        if whole {
            fill(&mut file, &mut self.buffer, metadata.len() as usize)?;
        } else {
            (&mut file)
                .take(TEST_BYTES as u64 + 1)
                .read_to_end(&mut self.buffer)?;
        }
        let encoding = Encoding::of(&self.buffer);
        let marked = match encoding {
            Encoding::Binary => return Ok(false),
            Encoding::Utf8 => false,
            Encoding::Utf8Marked | Encoding::Utf16Little | Encoding::Utf16Big => true,
        };
        if whole
            && !marked
            && !self
                .matcher
                .is_match(&self.buffer)
                .map_err(io::Error::other)?
        {
            return Ok(true);
        }
        let sink = Collect {
            matcher: &self.matcher,
            path: entry.path(),
            found: 0,
            keep: self.keep,
            findings,
        };
        if whole {
            self.searcher
                .search_slice(&self.matcher, &self.buffer, sink)?;
        } else {
            self.searcher
                .search_reader(&self.matcher, self.buffer.as_slice().chain(file), sink)?;
        }
        Ok(true)
    }
}

/// Reads a file of a known size with one read where it does not grow.
fn fill(file: &mut File, buffer: &mut Vec<u8>, size: usize) -> io::Result<()> {
    buffer.resize(size + 1, 0);
    let mut filled = 0;
    loop {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if filled == size || filled == buffer.len() {
            break;
        }
    }
    buffer.truncate(filled);
    Ok(())
}

/// Takes the matching lines of one file.
struct Collect<'c> {
    matcher: &'c RegexMatcher,
    path: PathBuf,
    found: usize,
    keep: usize,
    findings: &'c mut Findings,
}

impl Sink for Collect<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        self.findings.total += 1;
        self.found += 1;
        if self.found <= self.keep {
            let bytes = line.bytes();
            let at = self
                .matcher
                .find(bytes)
                .map_err(io::Error::other)?
                .map_or(0, |found| found.start());
            let number = line.line_number().unwrap_or(0);
            let line = Some((number, around(bytes, at)));
            self.findings.kept.push(Found {
                path: self.path.clone(),
                line,
                directory: false,
            });
        }
        Ok(true)
    }
}

/// The line, or the part of it around the match.
fn around(line: &[u8], at: usize) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= LINE_CHARACTERS {
        return visible(line);
    }
    let text = String::from_utf8_lossy(line);
    let before = String::from_utf8_lossy(&line[..at.min(line.len())])
        .chars()
        .count();
    let from = before.saturating_sub(LINE_CHARACTERS / 4);
    let part: String = text.chars().skip(from).take(LINE_CHARACTERS).collect();
    let cut_before = if from > 0 { "…" } else { "" };
    let cut_after = if text.chars().count() > from + LINE_CHARACTERS {
        "…"
    } else {
        ""
    };
    format!("{cut_before}{}{cut_after}", visible(part.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_clipped_around_the_match() {
        let line = format!("{}needle{}\r\n", "a".repeat(10_000), "é".repeat(10_000));
        let part = around(line.as_bytes(), 10_000);
        assert!(part.contains("needle") && part.starts_with('…') && part.ends_with('…'));
        assert_eq!(part.chars().count(), LINE_CHARACTERS + 2);
        assert_eq!(around(b"short\r\n", 0), "short");
    }

    #[test]
    fn broken_expressions_are_told() {
        let refusal = Pattern::new("(", true, 1).err().unwrap();
        assert_eq!(refusal.code, Code::ToolArgumentsInvalid);
        assert!(
            refusal.detail[0].1.contains("unclosed group"),
            "{refusal:?}"
        );
        assert!(Pattern::new("(", false, 1).is_ok(), "text is no expression");
        assert!(Pattern::new("a\nb", false, 1).is_err());
        assert!(Pattern::new("a\\nb", true, 1).is_err());
        assert!(
            Pattern::new("(a{1000}){1000}", true, 1).is_err(),
            "an expression that would need gigabytes"
        );
    }
}
