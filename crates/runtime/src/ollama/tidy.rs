//! Thinking that leaked into the content ("Survive these" 6).

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Content and the thinking that stood in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) content: String,
    pub(super) thinking: Option<String>,
}

/// Takes leading thinking out of a content: everything up to `</think>`, or all of it after an unclosed `<think>`.
///
/// A closing tag without an opening one counts only where templates leave it: at the start or the end of a line, outside
/// of a fence. A content that merely talks about the tag stays as it is.
pub(super) fn split_thinking(content: String) -> Split {
    let start = content.trim_start();
    if let Some(inside) = start.strip_prefix(OPEN) {
        return match inside.split_once(CLOSE) {
            Some((thinking, rest)) => split(rest, thinking),
            None => split("", inside),
        };
    }
    let leaked = content.match_indices(CLOSE).find_map(|(at, _)| {
        let (before, after) = (&content[..at], &content[at + CLOSE.len()..]);
        let line_edge = before.is_empty()
            || before.ends_with('\n')
            || after.is_empty()
            || after.starts_with(['\n', '\r']);
        let outside_fence = before.matches("```").count() % 2 == 0;
        (line_edge && outside_fence && !before.contains(OPEN)).then(|| split(after, before))
    });
    leaked.unwrap_or(Split {
        content,
        thinking: None,
    })
}

fn split(content: &str, thinking: &str) -> Split {
    Split {
        content: content.trim_start().to_owned(),
        thinking: Some(thinking.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content: &str, rest: &str, thinking: Option<&str>) {
        let split = split_thinking(content.to_owned());
        assert_eq!(
            (split.content.as_str(), split.thinking.as_deref()),
            (rest, thinking),
            "{content:?}"
        );
    }

    #[test]
    fn survive_6_leaked_thinking_is_taken_out() {
        check("<think>\nhm\n</think>\n\nyes", "yes", Some("hm"));
        check("hm\n</think>\n\nyes", "yes", Some("hm"));
        check("hm</think>", "", Some("hm"));
        check("</think>{\"a\":1}", "{\"a\":1}", Some(""));
        check(" <think>for ever and ever", "", Some("for ever and ever"));
    }

    #[test]
    fn talking_about_the_tag_is_not_thinking() {
        check("use `</think>` to end it", "use `</think>` to end it", None);
        check(
            "see\n```\n</think>\n```\nthere",
            "see\n```\n</think>\n```\nthere",
            None,
        );
        check("a <think>b</think>\nc", "a <think>b</think>\nc", None);
        check("", "", None);
    }
}
