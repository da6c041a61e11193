//! From bytes to text: UTF-8, with or without its byte order mark. What is written in another encoding is refused by its
//! name, because an editor that saved it so has to be told so.

use super::finding::FindingCode;

/// Why it is no text.
pub(super) struct NoText<'a> {
    pub(super) code: FindingCode,
    /// The encoding, where it is known.
    pub(super) name: &'static str,
    /// What could be read before.
    pub(super) before: &'a [u8],
}

/// Byte order marks of other encodings; the longer ones first, because one begins like the other.
const MARKS: [(&[u8], &str); 4] = [
    (&[0xff, 0xfe, 0, 0], "UTF-32LE"),
    (&[0, 0, 0xfe, 0xff], "UTF-32BE"),
    (&[0xff, 0xfe], "UTF-16LE"),
    (&[0xfe, 0xff], "UTF-16BE"),
];

/// The text without a byte order mark.
pub(super) fn text(bytes: &[u8]) -> Result<&str, NoText<'_>> {
    if let Some(name) = other_encoding(bytes) {
        return Err(NoText {
            code: FindingCode::OtherEncoding,
            name,
            before: &[],
        });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| NoText {
        code: FindingCode::NotUtf8,
        name: "",
        before: &bytes[..error.valid_up_to()],
    })?;
    // A parser may take it for the end of the file, and nobody would see what comes after it.
    if let Some(at) = text.find('\0') {
        return Err(NoText {
            code: FindingCode::Nul,
            name: "",
            before: &bytes[..at],
        });
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// By its mark, or by the zero that is half of every ASCII character.
fn other_encoding(bytes: &[u8]) -> Option<&'static str> {
    let marked = MARKS.iter().find(|(mark, _)| bytes.starts_with(mark));
    marked.map(|(_, name)| *name).or(match bytes {
        [0, 0, 0, first, ..] if *first != 0 => Some("UTF-32BE"),
        [first, 0, 0, 0, ..] if *first != 0 => Some("UTF-32LE"),
        [0, first, 0, second, ..] if *first != 0 && *second != 0 => Some("UTF-16BE"),
        [first, 0, second, 0, ..] if *first != 0 && *second != 0 => Some("UTF-16LE"),
        _ => None,
    })
}
