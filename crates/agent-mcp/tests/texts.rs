//! Texts for people: complete, with the same placeholders, and `docs/errors.md` in step with the codes.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use agent_mcp::locale::{Locale, english, japanese, placeholders};
use policy::{Code, Localize, Message};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

fn repository() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.parent().unwrap().parent().unwrap().to_path_buf()
}

/// I18N-02, X-LOCALE, NFR-08: both languages have every key, with the same placeholders (I18N-09).
#[test]
fn i18n_02_en_and_ja_are_complete() {
    assert!(english().len() > 100, "the baseline parses");
    let keys = |texts: &std::collections::BTreeMap<String, String>| {
        texts.keys().cloned().collect::<BTreeSet<_>>()
    };
    assert_eq!(keys(english()), keys(japanese()));
    for (key, text) in english() {
        assert_eq!(placeholders(text), placeholders(&japanese()[key]), "{key}");
        assert!(
            !text.trim().is_empty() && !japanese()[key].trim().is_empty(),
            "{key}"
        );
    }
}

/// I18N-01: every stable code has a message and a hint in both languages.
#[test]
fn i18n_01_every_code_has_its_texts() {
    for code in Code::ALL {
        for id in [code.message_id(), code.hint_id()] {
            assert!(english().contains_key(id), "{id}");
        }
    }
}

/// I18N-10: chosen locale, then en, then the key itself. A placeholder without data leaves no brace behind.
#[test]
fn i18n_10_fallback() {
    let ja = Locale::built_in("ja");
    assert_eq!(ja.text(&Message::new("run.no_such_key")), "run.no_such_key");
    let message = Message::new(Code::FileNotFound.message_id()).with("target", "/w/a.txt");
    assert_eq!(ja.text(&message), "/w/a.txt は存在しません。");
    assert_eq!(
        Locale::built_in("en").text(&message),
        "/w/a.txt does not exist."
    );
    assert!(
        !ja.text(&Message::new(Code::FileTooLarge.message_id()))
            .contains('{')
    );
}

/// product.md §6: `docs/errors.md` lists every code. `UPDATE_DOCS=1` writes it.
#[test]
fn errors_page_is_up_to_date() {
    let en = Locale::built_in("en");
    let mut page = String::from(
        "# Stable codes\n\nWhat was refused or failed, and what to do. `{…}` stands for the object. The codes never change \
         once released; the texts come from `crates/agent-mcp/locales/en.json`.\n\n| code | category | message | what to do |\n|---|---|---|---|\n",
    );
    let raw = |id: &str| english()[id].replace('|', "\\|");
    for code in Code::ALL {
        let _ = writeln!(
            page,
            "| `{code}` | {} | {} | {} |",
            code.category().word(),
            raw(code.message_id()),
            raw(code.hint_id())
        );
    }
    assert_eq!(en.language(), "en");
    let path = repository().join("docs/errors.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == page,
        "run UPDATE_DOCS=1 cargo test -p agent-mcp --test texts"
    );
}
