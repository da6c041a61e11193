//! JSON out of text that should have been JSON ("Survive these" 5 and 9).

use serde_json::Value;

/// JSON that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Extracted {
    /// An object or a list.
    pub value: Value,
    /// Where it stood.
    pub found: Found,
}

/// Where JSON stood in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is the whole text.
    Whole,
    /// In a fence.
    Fenced,
    /// After or before other text.
    Embedded,
}

/// Why nothing could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtractProblem {
    /// No object and no list.
    #[error("no JSON")]
    NoJson,
    /// It starts and does not end. Nothing inside it is taken for the whole.
    #[error("JSON is cut off")]
    CutOff,
}

/// Where text before JSON may contain braces of its own.
const STARTS: usize = 64;

/// The object or list in a model's text: the whole text, else the first fence that holds one, else the first object in it.
pub fn extract_json(text: &str) -> Result<Extracted, ExtractProblem> {
    let text = text.trim().trim_start_matches('\u{feff}');
    if let Some(value) = container(text) {
        return Ok(Extracted {
            value,
            found: Found::Whole,
        });
    }
    if let Some(value) = fences(text).find_map(container) {
        return Ok(Extracted {
            value,
            found: Found::Fenced,
        });
    }
    for (start, _) in text.match_indices('{').take(STARTS) {
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                return Ok(Extracted {
                    value,
                    found: Found::Embedded,
                });
            }
            Some(Err(problem)) if problem.is_eof() => return Err(ExtractProblem::CutOff),
            _ => {}
        }
    }
    Err(ExtractProblem::NoJson)
}

fn container(text: &str) -> Option<Value> {
    serde_json::from_str(text.trim())
        .ok()
        .filter(|value: &Value| value.is_object() || value.is_array())
}

/// The insides of ``` fences, without the language after the opening.
fn fences(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").skip(1).step_by(2).map(inside)
}

/// A fence's inside, if the text is one fence and nothing else.
pub(super) fn whole_fence(text: &str) -> Option<&str> {
    let body = text.trim().strip_prefix("```")?.strip_suffix("```")?;
    (!body.contains("```")).then(|| inside(body))
}

fn inside(fence: &str) -> &str {
    let language = fence.len()
        - fence
            .trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_')
            .len();
    // A language name only counts when white space follows; else it is content, such as a number.
    match fence.get(language..) {
        Some(rest) if rest.starts_with(char::is_whitespace) || rest.starts_with(['{', '[']) => {
            rest.trim()
        }
        _ => fence.trim(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(text: &str, found: Found) {
        let value = json!({"tasks": [{"id": "t1"}]});
        assert_eq!(extract_json(text), Ok(Extracted { value, found }), "{text}");
    }

    #[test]
    fn survive_5_json_is_found_where_models_put_it() {
        check(r#" {"tasks":[{"id":"t1"}]} "#, Found::Whole);
        check("\u{feff}{\"tasks\":[{\"id\":\"t1\"}]}", Found::Whole);
        check("```json\n{\"tasks\":[{\"id\":\"t1\"}]}\n```", Found::Fenced);
        check("```{\"tasks\":[{\"id\":\"t1\"}]}```", Found::Fenced);
        check(
            "Sure!\n```\n{\"tasks\":[{\"id\":\"t1\"}]}\n```\nDone.",
            Found::Fenced,
        );
        check(
            "The plan {as asked}: {\"tasks\":[{\"id\":\"t1\"}]} I hope it helps {}",
            Found::Embedded,
        );
        check("see [1]: {\"tasks\":[{\"id\":\"t1\"}]}", Found::Embedded);
        check("```json\n{\"tasks\":[{\"id\":\"t1\"}]}", Found::Fenced);
    }

    #[test]
    fn survive_9_a_cut_plan_never_yields_one_of_its_parts() {
        assert_eq!(
            extract_json(r#"{"tasks":[{"id":"t1"},{"id":"#),
            Err(ExtractProblem::CutOff)
        );
        assert_eq!(
            extract_json("```json\n{\"tasks\":[{\"id\":\"t1\"}"),
            Err(ExtractProblem::CutOff)
        );
    }

    #[test]
    fn no_json_is_no_json() {
        for text in ["", "no", "42", "{a}", "```", "``````", "null", "}{a"] {
            assert_eq!(extract_json(text), Err(ExtractProblem::NoJson), "{text}");
        }
        let _ = extract_json(&"{[".repeat(100_000));
    }

    #[test]
    fn only_a_whole_fence_is_a_whole_fence() {
        assert_eq!(whole_fence("```json\n{}\n```"), Some("{}"));
        assert_eq!(whole_fence("a ```json\n{}\n```"), None);
        assert_eq!(whole_fence("```\n{}\n``` ```\n{}\n```"), None);
    }
}
