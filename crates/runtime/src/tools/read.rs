//! `file_read` (DESIGN §7.2): whole text, a byte range, or facts.

use super::open::{self, Opened, shown};
use super::result::{ToolResult, digest};
use super::text::{Encoding, TEST_BYTES};
use super::{EffectLog, ToolContext, os};
use policy::path::{ObjectKind, ResolvedPath};
use policy::tool::{FileRead, ReadMode};
use policy::{Code, Refusal, Right};
use std::io::{Read, Seek, SeekFrom};

/// Reads the judged file. The result carries the file's SHA-256, for a later `expected_sha256`.
///
/// # Errors
/// `file.too_large` (read a range), `file.binary`, `file.wrong_kind`, `file.not_found`, `file.kind_unsupported`.
pub(super) fn run<L: EffectLog>(
    call: &FileRead,
    file: &ResolvedPath,
    context: &ToolContext<'_, L>,
) -> Result<ToolResult, Refusal> {
    let output = match call.mode {
        ReadMode::Whole => whole(file, context.limits.whole_read_bytes)?,
        ReadMode::Range => {
            let length = call
                .length
                .unwrap_or(0)
                .min(context.limits.whole_read_bytes);
            range(file, call.start.unwrap_or(0), length)?
        }
        ReadMode::Metadata => metadata(file)?,
    };
    Ok(ToolResult::success(
        output,
        Some(shown(file.path())),
        Vec::new(),
    ))
}

fn whole(file: &ResolvedPath, limit: u64) -> Result<String, Refusal> {
    let mut opened = open::for_reading(file)?;
    let head = head(&mut opened, file)?;
    if Encoding::of(&head) == Encoding::Binary {
        return Err(binary(file));
    }
    let bytes = opened.bytes(limit, file.path())?;
    let encoding = Encoding::of(&bytes);
    let text = encoding.decode(&bytes).ok_or_else(|| binary(file))?;
    let sha256 = digest(&bytes);
    let mut output = format!(
        "{} ({} bytes, sha256 {sha256}",
        shown(file.path()),
        bytes.len()
    );
    if encoding != Encoding::Utf8 {
        output.push_str(&format!(", {}", encoding.name()));
    }
    output.push_str(")\n");
    output.push_str(&text);
    Ok(output)
}

/// Looks at the first bytes and goes back to the start.
fn head(opened: &mut Opened, file: &ResolvedPath) -> Result<Vec<u8>, Refusal> {
    let failed = |error| os::refused(&error, shown(file.path()), Some(Right::Read));
    let mut head = Vec::with_capacity(TEST_BYTES + 1);
    (&mut opened.file)
        .take(TEST_BYTES as u64 + 1)
        .read_to_end(&mut head)
        .map_err(failed)?;
    opened.file.seek(SeekFrom::Start(0)).map_err(failed)?;
    Ok(head)
}

/// Bytes `start` to `start + length`, cut inwards to whole characters; what was really given is in the first line.
fn range(file: &ResolvedPath, start: u64, length: u64) -> Result<String, Refusal> {
    let failed = |error| os::refused(&error, shown(file.path()), Some(Right::Read));
    let mut opened = open::for_reading(file)?;
    let encoding = Encoding::of(&head(&mut opened, file)?);
    let size = opened.metadata.len();
    let mut bytes = Vec::new();
    opened
        .file
        .seek(SeekFrom::Start(start.min(size)))
        .map_err(failed)?;
    (&mut opened.file)
        .take(length)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let (skipped, text) = match encoding {
        Encoding::Binary => return Err(binary(file)),
        Encoding::Utf8 | Encoding::Utf8Marked => utf8_inside(&bytes).ok_or_else(|| binary(file))?,
        Encoding::Utf16Little | Encoding::Utf16Big => {
            let odd = usize::from(start % 2 == 1).min(bytes.len());
            let even = &bytes[odd..odd + (bytes.len() - odd) / 2 * 2];
            (odd, utf16_lossy(even, encoding == Encoding::Utf16Big))
        }
    };
    let first = start.min(size) + skipped as u64;
    let given = match encoding {
        Encoding::Utf8 | Encoding::Utf8Marked => text.len() as u64,
        _ => text.encode_utf16().count() as u64 * 2,
    };
    let rest = size.saturating_sub(first + given);
    Ok(format!(
        "{} (bytes {first} to {} of {size}, {rest} after them, {})\n{text}",
        shown(file.path()),
        first + given,
        encoding.name()
    ))
}

/// The text between the first and the last whole character, and how many bytes were cut before it. Nothing where the
/// middle is no UTF-8.
fn utf8_inside(bytes: &[u8]) -> Option<(usize, String)> {
    let cut = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0xC0 == 0x80)
        .count();
    let body = &bytes[cut..];
    match std::str::from_utf8(body) {
        Ok(text) => Some((cut, text.to_owned())),
        Err(error) if error.error_len().is_none() => Some((
            cut,
            String::from_utf8_lossy(&body[..error.valid_up_to()]).into_owned(),
        )),
        Err(_) => None,
    }
}

fn utf16_lossy(bytes: &[u8], big: bool) -> String {
    let unit = |pair: &[u8]| {
        let pair = [pair[0], pair[1]];
        if big {
            u16::from_be_bytes(pair)
        } else {
            u16::from_le_bytes(pair)
        }
    };
    let units: Vec<u16> = bytes.chunks_exact(2).map(unit).collect();
    String::from_utf16_lossy(&units)
}

fn metadata(target: &ResolvedPath) -> Result<String, Refusal> {
    let path = shown(target.path());
    let Some(object) = target.object() else {
        return Err(Refusal::new(Code::FileNotFound, "must exist", path));
    };
    if object.kind == ObjectKind::Directory {
        return Ok(format!(
            "{path}\nkind: directory\nmodified: {}\n",
            when(object.identity.modified_ns)
        ));
    }
    let mut opened = open::for_reading(target)?;
    let encoding = Encoding::of(&head(&mut opened, target)?);
    let sha256 = match opened.hash() {
        Ok(sha256) => sha256.to_string(),
        Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
            "not computed, over 1 GiB".to_owned()
        }
        Err(error) => return Err(os::refused(&error, &path, Some(Right::Read))),
    };
    let facts = os::facts(&opened.metadata);
    Ok(format!(
        "{path}\nkind: file\nsize: {} bytes\nmodified: {}\nsha256: {sha256}\ncontent: {}\nhard links: {}\n",
        facts.identity.size,
        when(facts.identity.modified_ns),
        encoding.name(),
        facts.links
    ))
}

/// A time as UTC, whole seconds, in ISO 8601.
fn when(nanoseconds: i128) -> String {
    let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000)).unwrap_or(0);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Civil date from days since 1970-01-01, counted in eras of 400 years that start on 1 March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn binary(file: &ResolvedPath) -> Refusal {
    Refusal::new(
        Code::FileBinary,
        "text: UTF-8, or UTF-16 with byte order mark",
        shown(file.path()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_civil_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_772_323_199, "2026-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(when(seconds * 1_000_000_000), text);
        }
    }

    #[test]
    fn a_range_is_cut_inwards_to_whole_characters() {
        let text = "aé日𝄞z";
        for start in 0..=text.len() {
            for end in start..=text.len() {
                let (cut, inside) = utf8_inside(&text.as_bytes()[start..end]).unwrap();
                let from = start + cut;
                assert_eq!(
                    &text.as_bytes()[from..from + inside.len()],
                    inside.as_bytes()
                );
            }
        }
        assert_eq!(utf8_inside(b"a\xFFb"), None);
    }
}
