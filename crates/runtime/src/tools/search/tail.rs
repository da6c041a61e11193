//! The last lines of a text file.

use crate::tools::open::{self, shown};
use crate::tools::os;
use crate::tools::text::{Encoding, TEST_BYTES, visible};
use policy::path::ResolvedPath;
use policy::{Code, Refusal, Right};
use std::io::{Read, Seek, SeekFrom};

/// The last `lines` lines, from at most the last `limit` bytes. Reads from the end, so the file's size does not matter.
///
/// # Errors
/// `file.binary`.
pub(super) fn run(file: &ResolvedPath, lines: u64, limit: u64) -> Result<String, Refusal> {
    let failed = |error| os::refused(&error, shown(file.path()), Some(Right::Read));
    let binary = || {
        Refusal::new(
            Code::FileBinary,
            "text: UTF-8, or UTF-16 with byte order mark",
            shown(file.path()),
        )
    };
    let mut opened = open::for_reading(file)?;
    let mut head = Vec::new();
    (&mut opened.file)
        .take(TEST_BYTES as u64 + 1)
        .read_to_end(&mut head)
        .map_err(failed)?;
    let encoding = Encoding::of(&head);
    if encoding == Encoding::Binary {
        return Err(binary());
    }
    let size = opened.metadata.len();
    // An even distance from the start keeps the units of UTF-16 whole.
    let start = size.saturating_sub(limit).next_multiple_of(2);
    opened.file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut bytes = Vec::new();
    (&mut opened.file)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let text = decode(encoding, &bytes, start == 0);
    let body = text.strip_suffix('\n').unwrap_or(&text);
    let wanted = usize::try_from(lines).unwrap_or(usize::MAX);
    let first = body
        .rmatch_indices('\n')
        .nth(wanted.saturating_sub(1))
        .map_or(0, |(at, _)| at + 1);
    let shown_text = &body[first..];
    let count = if text.is_empty() {
        0
    } else {
        shown_text.split('\n').count()
    };
    let mut output = format!("{}: last {count} lines\n", shown(file.path()));
    if start > 0 && first == 0 {
        output.push_str(&format!("[only the last {limit} bytes were looked at]\n"));
    }
    if count > 0 {
        output.push_str(&visible(shown_text.replace("\r\n", "\n").as_bytes()));
        output.push('\n');
    }
    Ok(output)
}

fn decode(encoding: Encoding, bytes: &[u8], from_start: bool) -> String {
    let unit: fn([u8; 2]) -> u16 = match encoding {
        Encoding::Utf16Little => u16::from_le_bytes,
        Encoding::Utf16Big => u16::from_be_bytes,
        Encoding::Utf8 | Encoding::Utf8Marked | Encoding::Binary => {
            let mark = from_start && bytes.starts_with(b"\xEF\xBB\xBF");
            return String::from_utf8_lossy(if mark { &bytes[3..] } else { bytes }).into_owned();
        }
    };
    let body = if from_start {
        bytes.get(2..).unwrap_or_default()
    } else {
        bytes
    };
    let units: Vec<u16> = body
        .chunks_exact(2)
        .map(|pair| unit([pair[0], pair[1]]))
        .collect();
    String::from_utf16_lossy(&units)
}
