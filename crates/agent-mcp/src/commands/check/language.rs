//! The language that is spoken, and what the locale directory adds or overrides (I18N-03, I18N-10).

use super::report::{Mark, Report};
use crate::locale::{Locale, english};
use policy::config::Config;
use policy::{Localize, Message};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Its files are right: they were read when the locale was loaded.
pub(super) fn rows(report: &mut Report, locale: &Locale, config: &Config, base: &Path) {
    let language = locale.language();
    report.add_with(
        Mark::Ok,
        "language",
        language,
        json!({ "language": language }),
    );
    let directory = base.join(&config.localization.directory);
    let Ok(entries) = std::fs::read_dir(&directory) else {
        let message = Message::new("check.locales_built_in").with("path", directory.display());
        report.add(Mark::Ok, "language", locale.text(&message));
        return;
    };
    let mut files: Vec<std::path::PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    files.sort();
    for file in files {
        let Some(texts) = std::fs::read(&file)
            .ok()
            .and_then(|text| serde_json::from_slice::<BTreeMap<String, String>>(&text).ok())
        else {
            continue;
        };
        let tag = file.file_stem().unwrap_or_default().to_string_lossy();
        // The two that are compiled in lack nothing.
        let missing = match &*tag {
            "en" | "ja" => 0,
            _ => english().len().saturating_sub(texts.len()),
        };
        let id = if missing == 0 {
            "check.locale_file"
        } else {
            "check.locale_partial"
        };
        let message = Message::new(id)
            .with("language", &tag)
            .with("path", file.display())
            .with("count", texts.len())
            .with("missing", missing);
        let data =
            json!({ "language": tag, "file": file, "texts": texts.len(), "missing": missing });
        report.add_with(Mark::Ok, "language", locale.text(&message), data);
    }
}
