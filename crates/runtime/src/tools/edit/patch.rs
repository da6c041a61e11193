//! One exact piece of text for another (DESIGN §13.3): no guessing, exactly one match.

use crate::tools::text::Encoding;
use policy::{Code, Refusal};
use serde::Deserialize;

/// The decoded `patch` argument.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Patch {
    old_text: String,
    new_text: String,
}

impl Patch {
    /// Reads `{"old_text":"…","new_text":"…"}`. A unified diff is not accepted.
    ///
    /// # Errors
    /// `tool.arguments_invalid` with what is wrong.
    pub(super) fn parse(json: &str) -> Result<Self, Refusal> {
        let invalid = |detail: String| {
            Refusal::new(
                Code::ToolArgumentsInvalid,
                "{\"old_text\":\"…\",\"new_text\":\"…\"}",
                "patch",
            )
            .with("detail", detail)
        };
        let patch: Self = serde_json::from_str(json).map_err(|error| invalid(error.to_string()))?;
        if patch.old_text.is_empty() {
            return Err(invalid(
                "old_text is empty; give the text to replace".to_owned(),
            ));
        }
        if patch.old_text == patch.new_text {
            return Err(invalid("old_text and new_text are the same".to_owned()));
        }
        Ok(patch)
    }

    /// The file's new bytes, in the encoding it has; everything around the match stays byte for byte.
    ///
    /// # Errors
    /// `file.binary`; `file.patch_mismatch` with the number of matches.
    pub(super) fn apply(&self, old: &[u8], target: &str) -> Result<Vec<u8>, Refusal> {
        let encoding = Encoding::of(old);
        let text = encoding.decode(old).ok_or_else(|| {
            Refusal::new(
                Code::FileBinary,
                "text: UTF-8, or UTF-16 with byte order mark",
                target,
            )
        })?;
        let matches = self.count(&text);
        let (1, Some(at)) = (matches, text.find(&self.old_text)) else {
            let mismatch = Refusal::new(Code::PatchMismatch, "old_text exactly once", target)
                .with("matches", matches);
            let line_ends = text.contains("\r\n")
                && !self.old_text.contains('\r')
                && self.old_text.contains('\n');
            return Err(if line_ends {
                mismatch.with("detail", "this file ends its lines with \\r\\n")
            } else {
                mismatch
            });
        };
        let rest = at + self.old_text.len();
        Ok(encoding.encode(&[&text[..at], &self.new_text, &text[rest..]].concat()))
    }

    /// Places where the old text begins, overlapping ones too, because each is a way to understand the patch.
    fn count(&self, text: &str) -> usize {
        let step = self.old_text.chars().next().map_or(1, char::len_utf8);
        let mut count = 0;
        let mut from = 0;
        while let Some(at) = text[from..].find(&self.old_text) {
            count += 1;
            from += at + step;
            if count == 1_000 {
                break;
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn patch(old: &str, new: &str) -> Patch {
        Patch::parse(&serde_json::json!({"old_text": old, "new_text": new}).to_string()).unwrap()
    }

    #[test]
    fn design_13_3_exactly_one_match() {
        assert_eq!(patch("b", "X").apply(b"abc", "f").unwrap(), b"aXc");
        for (old, text, matches) in [("x", "abc", "0"), ("a", "aba", "2"), ("aa", "aaa", "2")] {
            let refusal = patch(old, "y").apply(text.as_bytes(), "f").unwrap_err();
            assert_eq!(refusal.code, Code::PatchMismatch);
            assert_eq!(
                refusal.detail[0],
                ("matches", matches.to_owned()),
                "{old} in {text}"
            );
        }
    }

    #[test]
    fn bad_patches_are_told() {
        for json in [
            "",
            "--- a\n+++ b",
            "{}",
            r#"{"old_text":"a"}"#,
            r#"{"old_text":"","new_text":"b"}"#,
            r#"{"old_text":"a","new_text":"a"}"#,
            r#"{"old_text":"a","new_text":"b","all":true}"#,
            r#"["a","b"]x"#,
        ] {
            assert_eq!(
                Patch::parse(json).unwrap_err().code,
                Code::ToolArgumentsInvalid,
                "{json}"
            );
        }
    }

    #[test]
    fn marks_line_ends_and_encodings_stay() {
        let applied = patch("two", "2")
            .apply(b"\xEF\xBB\xBFone\r\ntwo\r\n", "f")
            .unwrap();
        assert_eq!(applied, b"\xEF\xBB\xBFone\r\n2\r\n");
        let old = Encoding::Utf16Little.encode("eins\r\nzwei");
        assert_eq!(
            patch("zwei", "2").apply(&old, "f").unwrap(),
            Encoding::Utf16Little.encode("eins\r\n2")
        );
        let refusal = patch("one\ntwo", "x")
            .apply(b"one\r\ntwo\r\n", "f")
            .unwrap_err();
        assert!(
            refusal
                .detail
                .iter()
                .any(|(_, value)| value.contains("\\r\\n"))
        );
        assert_eq!(
            patch("a", "b").apply(b"a\xFF", "f").unwrap_err().code,
            Code::FileBinary
        );
    }

    proptest! {
        #[test]
        fn a_patch_and_its_reverse_leave_the_bytes(before in "[a-y\\r\\n]{0,40}", old in "z[0-9é]{1,8}", new in "Z[0-9日]{1,8}", after in "[a-y]{0,40}") {
            let text = format!("{before}{old}{after}");
            let there = patch(&old, &new).apply(text.as_bytes(), "f").unwrap();
            let back = patch(&new, &old).apply(&there, "f").unwrap();
            prop_assert_eq!(back, text.into_bytes());
        }
    }
}
