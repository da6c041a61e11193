//! Locales (SPEC §14, DESIGN §14): `en` and `ja` are compiled in as the complete baseline (X-LOCALE); files in the locale
//! directory add languages or override single texts.

use policy::{Blame, Code, Fault, Localize, Message};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

const ENGLISH: &str = include_str!("../locales/en.json");
const JAPANESE: &str = include_str!("../locales/ja.json");

/// The language used where nobody chose one (I18N-06).
pub const DEFAULT_LANGUAGE: &str = "en";

/// Largest locale file, bytes.
const MAX_LOCALE_BYTES: u64 = 4 * 1024 * 1024;

type Texts = BTreeMap<String, String>;

/// The chosen language with its fallbacks (I18N-10).
#[derive(Clone, Debug)]
pub struct Locale {
    language: String,
    chosen: Texts,
    english: &'static Texts,
}

fn compiled_in(cell: &'static OnceLock<Texts>, json: &str) -> &'static Texts {
    // A test parses both files, so that a broken baseline cannot be built into a release.
    cell.get_or_init(|| serde_json::from_str(json).unwrap_or_default())
}

/// The `en` baseline: the complete set of keys.
pub fn english() -> &'static Texts {
    static CELL: OnceLock<Texts> = OnceLock::new();
    compiled_in(&CELL, ENGLISH)
}

/// The `ja` baseline.
pub fn japanese() -> &'static Texts {
    static CELL: OnceLock<Texts> = OnceLock::new();
    compiled_in(&CELL, JAPANESE)
}

impl Locale {
    /// A locale without any directory: the compiled-in texts only.
    pub fn built_in(language: &str) -> Self {
        let chosen = if language == "ja" {
            japanese().clone()
        } else {
            Texts::new()
        };
        Self {
            language: language.to_owned(),
            chosen,
            english: english(),
        }
    }

    /// The language (CLI over configuration over `en`, I18N-06) with the files of the locale directory.
    ///
    /// Every `*.json` in the directory is checked, the chosen one or not, so that a broken file is found at start.
    ///
    /// # Errors
    /// `locale.invalid`: broken JSON, an unknown key, a placeholder that differs from `en` (I18N-11), or a language that
    /// has neither a compiled-in text nor a file.
    pub fn load(language: &str, directory: Option<&Path>) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut files: BTreeMap<String, Texts> = BTreeMap::new();
        if let Some(directory) = directory.filter(|directory| directory.is_dir()) {
            match read_directory(directory) {
                Ok(names) => {
                    for path in names {
                        match read_locale(&path) {
                            Ok(texts) => {
                                let stem = path
                                    .file_stem()
                                    .unwrap_or_default()
                                    .to_string_lossy()
                                    .into_owned();
                                files.insert(stem, texts);
                            }
                            Err(found) => faults.extend(found),
                        }
                    }
                }
                Err(error) => faults.push(invalid(directory, error)),
            }
        }
        let mut locale = Self::built_in(language);
        let known = matches!(language, "en" | "ja") || files.contains_key(language);
        if !known {
            let mut have: BTreeSet<&str> = files.keys().map(String::as_str).collect();
            have.extend(["en", "ja"]);
            let have: Vec<&str> = have.into_iter().collect();
            faults.push(Fault::new(
                Blame::Configuration,
                Code::LocaleInvalid,
                language,
                format!("known: {}", have.join(", ")),
            ));
        }
        if let Some(overrides) = files.remove(language) {
            locale.chosen.extend(overrides);
        }
        if faults.is_empty() {
            Ok(locale)
        } else {
            Err(faults)
        }
    }
}

impl Localize for Locale {
    fn text(&self, message: &Message) -> String {
        let template = self
            .chosen
            .get(message.id())
            .or_else(|| self.english.get(message.id()));
        match template {
            Some(template) => fill(template, message.arguments()),
            None => message.id().to_owned(),
        }
    }

    fn language(&self) -> &str {
        &self.language
    }
}

fn fill(template: &str, arguments: &[(&'static str, String)]) -> String {
    let mut out = String::with_capacity(template.len() + 32);
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        let tail = &rest[open..];
        let Some(close) = tail.find('}') else {
            rest = tail;
            break;
        };
        // A placeholder without data is left out: a refusal may have no `{detail}`.
        if let Some((_, value)) = arguments.iter().find(|(name, _)| *name == &tail[1..close]) {
            out.push_str(value);
        }
        rest = &tail[close + 1..];
    }
    out.push_str(rest);
    out.truncate(out.trim_end().len());
    out
}

/// The named placeholders of a text.
pub fn placeholders(text: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let tail = &rest[open + 1..];
        let Some(close) = tail.find('}') else { break };
        let name = &tail[..close];
        if !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        {
            names.insert(name);
        }
        rest = &tail[close + 1..];
    }
    names
}

fn read_directory(directory: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read_locale(path: &Path) -> Result<Texts, Vec<Fault>> {
    let size = std::fs::metadata(path)
        .map_err(|error| vec![invalid(path, error)])?
        .len();
    if size > MAX_LOCALE_BYTES {
        return Err(vec![invalid(
            path,
            format!("larger than {MAX_LOCALE_BYTES} bytes"),
        )]);
    }
    let text = std::fs::read_to_string(path).map_err(|error| vec![invalid(path, error)])?;
    let texts: Texts = serde_json::from_str(&text).map_err(|error| vec![invalid(path, error)])?;
    let mut faults = Vec::new();
    for (key, value) in &texts {
        match english().get(key) {
            None => faults.push(invalid(path, format!("unknown key: {key}"))),
            Some(baseline) if placeholders(baseline) != placeholders(value) => {
                faults.push(invalid(
                    path,
                    format!(
                        "{key}: placeholders differ from en: {:?}",
                        placeholders(baseline)
                    ),
                ));
            }
            Some(_) => {}
        }
    }
    if faults.is_empty() {
        Ok(texts)
    } else {
        Err(faults)
    }
}

fn invalid(path: &Path, detail: impl ToString) -> Fault {
    Fault::new(
        Blame::Configuration,
        Code::LocaleInvalid,
        path.display().to_string(),
        detail,
    )
}
