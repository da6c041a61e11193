//! Locales (SPEC §14, DESIGN §14): `en` and `ja` are compiled in as the complete baseline (X-LOCALE); files in the locale
//! directory add languages or override single texts.

mod file;
mod tag;

use file::invalid;
use policy::{Fault, Localize, Message};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
pub use tag::Tag;

const ENGLISH: &str = include_str!("../locales/en.json");
const JAPANESE: &str = include_str!("../locales/ja.json");

/// The language used where nobody chose one (I18N-06).
pub const DEFAULT_LANGUAGE: &str = "en";

type Texts = BTreeMap<String, String>;

/// One set of texts. The compiled-in ones are only parsed when one of their texts is needed.
#[derive(Clone, Debug)]
enum Layer {
    English,
    Japanese,
    File(Texts),
}

impl Layer {
    fn built_in(tag: &Tag) -> Option<Self> {
        match tag.as_str() {
            "en" => Some(Self::English),
            "ja" => Some(Self::Japanese),
            _ => None,
        }
    }

    fn texts(&self) -> &Texts {
        match self {
            Self::English => english(),
            Self::Japanese => japanese(),
            Self::File(texts) => texts,
        }
    }
}

/// The chosen language with its fallbacks (I18N-10), strongest first: the chosen tag, what it begins with
/// (`zh-CN`, then `zh`), `localization.fallback`, `en`; of each the file before what is compiled in.
#[derive(Clone, Debug)]
pub struct Locale {
    language: String,
    layers: Vec<Layer>,
}

/// Where locale files lie.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Their directory; none: only what is compiled in.
    pub directory: Option<PathBuf>,
    /// Whether a person named that directory, so that it must be there.
    pub named: bool,
    /// `localization.fallback`.
    pub fallback: Option<String>,
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
    /// The compiled-in texts only: of this language, or of what it begins with, else English.
    pub fn built_in(language: &str) -> Self {
        let tag = Tag::parse(language);
        let mut layers: Vec<Layer> = tag
            .iter()
            .flat_map(|tag| tag.chain())
            .filter_map(|tag| Layer::built_in(&tag))
            .collect();
        layers.push(Layer::English);
        Self {
            language: tag.map_or_else(|| language.to_owned(), |tag| tag.as_str().to_owned()),
            layers,
        }
    }

    /// The language (CLI over configuration over `en`, I18N-06) with the files of the locale directory.
    ///
    /// Every `*.json` in the directory is checked, the chosen one or not, so that a broken file is found at start.
    ///
    /// # Errors
    /// `locale.invalid`, everything at once: what is wrong with a file, at which line and column (I18N-11); a directory
    /// that was named and is not there; a language or a fallback that has neither compiled-in texts nor a file.
    pub fn load(language: &str, source: &Source) -> Result<Self, Vec<Fault>> {
        let (files, mut faults) = match &source.directory {
            Some(directory) => read_directory(directory, source.named),
            None => (BTreeMap::new(), Vec::new()),
        };
        let mut layers = Vec::new();
        let mut spelled = language.to_owned();
        let wanted = [
            Some(language),
            source.fallback.as_deref(),
            Some(DEFAULT_LANGUAGE),
        ];
        for (at, wanted) in wanted.into_iter().enumerate() {
            let Some(wanted) = wanted else { continue };
            let Some(tag) = Tag::parse(wanted) else {
                faults.push(invalid(wanted, Message::new("locale.bad_tag")));
                continue;
            };
            let before = layers.len();
            for tag in tag.chain() {
                layers.extend(files.get(&tag).cloned().map(Layer::File));
                layers.extend(Layer::built_in(&tag));
            }
            if layers.len() == before {
                faults.push(invalid(wanted, unknown_language(&files)));
            }
            if at == 0 {
                spelled = tag.as_str().to_owned();
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self {
            language: spelled,
            layers,
        })
    }
}

fn unknown_language(files: &BTreeMap<Tag, Texts>) -> Message {
    let mut have: BTreeSet<&str> = files.keys().map(Tag::as_str).collect();
    have.extend(["en", "ja"]);
    let have: Vec<&str> = have.into_iter().collect();
    Message::new("locale.unknown_language").with("allowed", have.join(", "))
}

impl Localize for Locale {
    fn text(&self, message: &Message) -> String {
        let id = message.id();
        let template = self.layers.iter().find_map(|layer| layer.texts().get(id));
        let Some(template) = template else {
            return id.to_owned();
        };
        let parts: Vec<(&str, String)> = message
            .parts()
            .iter()
            .map(|(name, part)| (*name, self.text(part)))
            .collect();
        let arguments = message.arguments().iter();
        let arguments = arguments.map(|(name, value)| (*name, value.as_str()));
        let parts = parts.iter().map(|(name, value)| (*name, value.as_str()));
        fill(template, &arguments.chain(parts).collect::<Vec<_>>())
    }

    fn language(&self) -> &str {
        &self.language
    }
}

fn fill(template: &str, arguments: &[(&str, &str)]) -> String {
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
        // What is left out leaves no second space.
        if out.ends_with(' ') {
            rest = rest.trim_start_matches(' ');
        }
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

/// Every locale file of a directory, and everything that is wrong with them.
fn read_directory(directory: &Path, named: bool) -> (BTreeMap<Tag, Texts>, Vec<Fault>) {
    let mut files = BTreeMap::new();
    let mut faults = Vec::new();
    let paths = match json_files(directory) {
        Ok(paths) => paths,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !named => Vec::new(),
        Err(error) => {
            faults.push(invalid(directory.display().to_string(), error.into()));
            Vec::new()
        }
    };
    for path in paths {
        let place = || path.display().to_string();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let tag = Tag::parse(&stem);
        match &tag {
            None => faults.push(invalid(place(), Message::new("locale.bad_file_name"))),
            Some(tag) if files.contains_key(tag) => {
                let twice = Message::new("locale.language_twice").with("language", tag.as_str());
                faults.push(invalid(place(), twice));
            }
            Some(_) => {}
        }
        match (file::read(&path), tag) {
            (Ok(texts), Some(tag)) => drop(files.insert(tag, texts)),
            (Ok(_), None) => {}
            (Err(found), tag) => {
                faults.extend(found);
                // Its language exists, though nothing of it can be used.
                files.extend(tag.map(|tag| (tag, Texts::new())));
            }
        }
    }
    (files, faults)
}

fn json_files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
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
