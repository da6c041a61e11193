//! Text or not (DESIGN §7.1), and text that cannot be mistaken for something else when it is shown.

use std::fmt::Write;
use std::path::Path;

/// How many bytes decide whether a file is text.
pub(super) const TEST_BYTES: usize = 4096;

/// What the first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// UTF-8 without mark.
    Utf8,
    /// UTF-8 with its mark, three bytes.
    Utf8Marked,
    /// UTF-16, little endian, with its mark.
    Utf16Little,
    /// UTF-16, big endian, with its mark.
    Utf16Big,
    /// Not text.
    Binary,
}

impl Encoding {
    /// Judges by the first [`TEST_BYTES`] bytes: byte order marks, else strict UTF-8. A NUL alone decides nothing.
    pub(super) fn of(start: &[u8]) -> Self {
        let head = &start[..start.len().min(TEST_BYTES)];
        match head {
            [0xEF, 0xBB, 0xBF, rest @ ..] if is_utf8(rest, start.len() > TEST_BYTES) => {
                Self::Utf8Marked
            }
            [0xFF, 0xFE, ..] => Self::Utf16Little,
            [0xFE, 0xFF, ..] => Self::Utf16Big,
            _ if is_utf8(head, start.len() >= TEST_BYTES) => Self::Utf8,
            _ => Self::Binary,
        }
    }

    /// The name for people and models.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf8Marked => "UTF-8 with byte order mark",
            Self::Utf16Little => "UTF-16LE",
            Self::Utf16Big => "UTF-16BE",
            Self::Binary => "binary",
        }
    }

    /// The text of a whole file, without its mark; nothing if it is not wholly text.
    pub(super) fn decode(self, bytes: &[u8]) -> Option<String> {
        match self {
            Self::Utf8 => std::str::from_utf8(bytes).ok().map(str::to_owned),
            Self::Utf8Marked => std::str::from_utf8(&bytes[3..]).ok().map(str::to_owned),
            Self::Utf16Little => utf16(bytes, u16::from_le_bytes),
            Self::Utf16Big => utf16(bytes, u16::from_be_bytes),
            Self::Binary => None,
        }
    }

    /// The bytes of a file with this text, with its mark.
    pub(super) fn encode(self, text: &str) -> Vec<u8> {
        match self {
            Self::Utf8 | Self::Binary => text.as_bytes().to_vec(),
            Self::Utf8Marked => [b"\xEF\xBB\xBF", text.as_bytes()].concat(),
            Self::Utf16Little => [0xFF, 0xFE]
                .into_iter()
                .chain(text.encode_utf16().flat_map(u16::to_le_bytes))
                .collect(),
            Self::Utf16Big => [0xFE, 0xFF]
                .into_iter()
                .chain(text.encode_utf16().flat_map(u16::to_be_bytes))
                .collect(),
        }
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let body = &bytes[2..];
    if !body.len().is_multiple_of(2) {
        return None;
    }
    let units: Vec<u16> = body
        .chunks_exact(2)
        .map(|pair| unit([pair[0], pair[1]]))
        .collect();
    String::from_utf16(&units).ok()
}

/// Strict UTF-8; where the bytes were cut, a character may be cut with them.
fn is_utf8(bytes: &[u8], cut: bool) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => cut && error.error_len().is_none(),
    }
}

/// A path on one line: control characters and bytes that are no UTF-8 become visible escapes.
pub(super) fn path(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        push_visible(&mut text, chunk.valid(), |_| false);
        for byte in chunk.invalid() {
            let _infallible = write!(text, "\\x{byte:02X}");
        }
    }
    text
}

/// A value on one line (X-ONELINE): control characters become visible escapes.
pub(super) fn one_line(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    push_visible(&mut text, value, |_| false);
    text
}

/// Output of a program: everything but line feeds and tabs that a terminal would act on becomes visible.
pub(super) fn visible(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        push_visible(&mut text, chunk.valid(), |character| {
            matches!(character, '\n' | '\t')
        });
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    text
}

fn push_visible(text: &mut String, value: &str, keep: fn(char) -> bool) {
    for character in value.chars() {
        if keep(character) || !(character.is_control() || is_format(character)) {
            text.push(character);
        } else {
            text.extend(character.escape_default());
        }
    }
}

/// Line separators, and marks that turn or hide text.
fn is_format(character: char) -> bool {
    matches!(character, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn design_7_1_text_is_told_by_mark_then_strict_utf8() {
        assert_eq!(Encoding::of(b""), Encoding::Utf8);
        assert_eq!(Encoding::of("käse".as_bytes()), Encoding::Utf8);
        assert_eq!(Encoding::of(b"\xEF\xBB\xBFx"), Encoding::Utf8Marked);
        assert_eq!(Encoding::of(b"\xFF\xFEa\0"), Encoding::Utf16Little);
        assert_eq!(Encoding::of(b"\xFE\xFF\0a"), Encoding::Utf16Big);
        assert_eq!(Encoding::of(b"\x7FELF\x02\x01\xB0"), Encoding::Binary);
        assert_eq!(
            Encoding::of(b"k\xC3"),
            Encoding::Binary,
            "a short file that ends inside a character"
        );
        assert_eq!(
            Encoding::of(b"a\0b"),
            Encoding::Utf8,
            "a NUL alone decides nothing"
        );
    }

    #[test]
    fn a_character_cut_at_4096_bytes_is_still_text() {
        let mut bytes = vec![b'a'; TEST_BYTES - 1];
        bytes.extend("é and more".as_bytes());
        assert_eq!(Encoding::of(&bytes), Encoding::Utf8);
        assert_eq!(
            Encoding::of(&bytes[..TEST_BYTES]),
            Encoding::Utf8,
            "only the first 4 KiB are looked at"
        );
    }

    #[test]
    fn utf16_goes_there_and_back() {
        for encoding in [
            Encoding::Utf16Little,
            Encoding::Utf16Big,
            Encoding::Utf8Marked,
            Encoding::Utf8,
        ] {
            let bytes = encoding.encode("a\r\n𝄞 日本");
            assert_eq!(Encoding::of(&bytes), encoding);
            assert_eq!(encoding.decode(&bytes).unwrap(), "a\r\n𝄞 日本");
        }
        assert_eq!(
            Encoding::Utf16Little.decode(b"\xFF\xFEa"),
            None,
            "half a unit"
        );
    }

    #[test]
    fn names_and_output_cannot_forge_lines() {
        assert_eq!(
            one_line("a\nb\u{1b}[31m\u{202E}"),
            "a\\nb\\u{1b}[31m\\u{202e}"
        );
        assert_eq!(visible(b"ok\n\tx\x1b[0m\xFF"), "ok\n\tx\\u{1b}[0m\u{FFFD}");
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStrExt;
            let name = std::ffi::OsStr::from_bytes(b"caf\xE9\n");
            assert_eq!(path(Path::new(name)), "caf\\xE9\\n");
        }
    }
}
