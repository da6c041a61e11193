//! One locale file: a flat JSON object (DESIGN §14.1), read with the place of every key, so that everything wrong is told at
//! once with line and column (I18N-11).

use super::{Texts, english, placeholders};
use policy::config::nearest::nearest;
use policy::{Blame, Code, Fault, Message};
use serde_json::Value;
use serde_json::error::Category;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// Largest locale file, bytes.
pub const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Something wrong at a place of the text, bytes.
struct Wrong {
    at: usize,
    key: Option<String>,
    why: Message,
}

/// Reads and checks a file.
///
/// # Errors
/// `locale.invalid` for everything that is wrong, each with `file:line:column` and key.
pub fn read(path: &Path) -> Result<Texts, Vec<Fault>> {
    let name = path.display().to_string();
    let whole = |why: Message| vec![invalid(name.clone(), why)];
    let bytes = match bytes_of(path) {
        Ok(bytes) => bytes,
        Err(error) => return Err(whole(Message::from(error))),
    };
    if bytes.len() as u64 > MAX_BYTES {
        let why = Message::new("locale.too_large").with("limit", MAX_BYTES);
        return Err(whole(why));
    }
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) => {
            let good = &bytes[..error.valid_up_to()];
            let good = std::str::from_utf8(good).unwrap_or_default();
            let (line, column) = position(good, good.len());
            let why = Message::new("locale.not_utf8");
            return Err(vec![invalid(format!("{name}:{line}:{column}"), why)]);
        }
    };
    let (texts, wrong) = check(text);
    if wrong.is_empty() {
        return Ok(texts);
    }
    Err(wrong
        .into_iter()
        .map(|Wrong { at, key, why }| {
            let (line, column) = position(text, at);
            let key = key.map_or_else(String::new, |key| format!(": {key}"));
            invalid(format!("{name}:{line}:{column}{key}"), why)
        })
        .collect())
}

/// `locale.invalid` at a place.
pub fn invalid(place: impl Into<String>, why: Message) -> Fault {
    Fault::because(Blame::Configuration, Code::LocaleInvalid, place, why)
}

/// The bytes of a regular file, one more than allowed at most. A FIFO or device is refused and never waited for.
fn bytes_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut options = std::fs::File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other(Message::new(
            "reason.not_a_regular_file",
        )));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Line and column, both from 1; a column is a character.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let begin = before.rfind('\n').map_or(0, |at| at + 1);
    (line, before[begin..].chars().count() + 1)
}

/// The texts, and everything that is wrong with them. What is no JSON ends the search; all else does not.
fn check(text: &str) -> (Texts, Vec<Wrong>) {
    let mut scan = Scan { text, at: 0 };
    let mut texts = Texts::new();
    let mut wrong = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    if let Err(broken) = scan.object(|key, key_at, value, value_at| {
        let mut add = |at, why| {
            let key = Some(key.clone());
            wrong.push(Wrong { at, key, why });
        };
        if let Some(first) = seen.insert(key.clone(), key_at) {
            let (line, _) = position(text, first);
            add(key_at, Message::new("locale.twice").with("line", line));
        }
        let Some(baseline) = english().get(&key) else {
            let unknown = match nearest(&key, english().keys().map(String::as_str)) {
                Some(near) => Message::new("locale.unknown_key_near").with("nearest", near),
                None => Message::new("locale.unknown_key"),
            };
            add(key_at, unknown);
            return;
        };
        let Value::String(value) = value else {
            add(
                value_at,
                Message::new("locale.not_text").with("found", kind(&value)),
            );
            return;
        };
        for why in placeholder_faults(baseline, &value) {
            add(value_at, why);
        }
        texts.insert(key, value);
    }) {
        wrong.push(broken);
    }
    (texts, wrong)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// I18N-09: the same named placeholders as `en`, and no brace that is none.
fn placeholder_faults(baseline: &str, text: &str) -> Vec<Message> {
    let mut faults = Vec::new();
    let (need, have) = (placeholders(baseline), placeholders(text));
    for name in need.difference(&have) {
        faults.push(Message::new("locale.placeholder_missing").with("name", format!("{{{name}}}")));
    }
    let allowed: Vec<String> = need.iter().map(|name| format!("{{{name}}}")).collect();
    for name in have.difference(&need) {
        let unknown =
            Message::new("locale.placeholder_unknown").with("name", format!("{{{name}}}"));
        let allowed = if allowed.is_empty() {
            "-".to_owned()
        } else {
            allowed.join(", ")
        };
        faults.push(unknown.with("allowed", allowed));
    }
    let rest = have.iter().fold(text.to_owned(), |rest, name| {
        rest.replace(&format!("{{{name}}}"), "")
    });
    if rest.contains(['{', '}']) {
        faults.push(Message::new("locale.brace"));
    }
    faults
}

/// Reads one flat object and knows where it is. `serde_json` reads each key and value; only the frame is ours.
struct Scan<'t> {
    text: &'t str,
    at: usize,
}

impl Scan<'_> {
    fn object(&mut self, mut member: impl FnMut(String, usize, Value, usize)) -> Result<(), Wrong> {
        if self.text.starts_with('\u{feff}') {
            return Err(self.wrong(Message::new("locale.byte_order_mark")));
        }
        self.expect('{')?;
        if self.peek() == Some('}') {
            self.at += 1;
            return self.end();
        }
        loop {
            if self.peek() != Some('"') {
                return Err(self.expected("\"key\""));
            }
            let key_at = self.at;
            let key: String = self.value()?;
            self.expect(':')?;
            self.peek();
            let value_at = self.at;
            let value: Value = self.value()?;
            member(key, key_at, value, value_at);
            match self.peek() {
                Some(',') => {
                    self.at += 1;
                    // Many editors leave one behind.
                    if self.peek() == Some('}') {
                        return Err(self.wrong(Message::new("locale.last_comma")));
                    }
                }
                Some('}') => {
                    self.at += 1;
                    return self.end();
                }
                _ => return Err(self.expected(", }")),
            }
        }
    }

    fn end(&mut self) -> Result<(), Wrong> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.wrong(Message::new("locale.more_behind"))),
        }
    }

    /// The next character that is no white space of JSON.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        let next = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        self.at += rest.len() - next.len();
        next.chars().next()
    }

    fn expect(&mut self, wanted: char) -> Result<(), Wrong> {
        if self.peek() == Some(wanted) {
            self.at += 1;
            return Ok(());
        }
        Err(self.expected(&wanted.to_string()))
    }

    fn value<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, Wrong> {
        let rest = &self.text[self.at..];
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<T>();
        match stream.next() {
            Some(Ok(value)) => {
                self.at += stream.byte_offset();
                Ok(value)
            }
            Some(Err(error)) => {
                let at = self.at + offset(rest, error.line(), error.column());
                let why = match error.classify() {
                    Category::Eof => Message::new("locale.cut_off"),
                    _ => Message::new("locale.not_json"),
                };
                Err(Wrong { at, key: None, why })
            }
            None => Err(self.wrong(Message::new("locale.cut_off"))),
        }
    }

    fn expected(&self, wanted: &str) -> Wrong {
        let id = if self.at >= self.text.len() {
            "locale.cut_off"
        } else {
            "locale.expected"
        };
        self.wrong(Message::new(id).with("expected", wanted))
    }

    fn wrong(&self, why: Message) -> Wrong {
        let (at, key) = (self.at, None);
        Wrong { at, key, why }
    }
}

/// Bytes before a place as `serde_json` counts it: lines from 1, and bytes up to and with the one that is wrong.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let begin: usize = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum();
    // Column 0 is the line break before it.
    let mut at = match column.checked_sub(1) {
        Some(before) => (begin + before).min(text.len()),
        None => begin.saturating_sub(1),
    };
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
