//! I18N-01: no sentence for people stands in the code. The sources are parsed, so that comments, attributes and tests are told
//! apart from what runs; every literal with two words in a row is a finding unless the list below says why it may stay.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod literals_allowed;

use agent_mcp::locale::english;
use literals_allowed::{ALLOWED, NOT_FOR_PEOPLE};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use syn::visit::Visit;

/// Crates that can reach a person.
const CRATES: [&str; 6] = [
    "agent-mcp",
    "mcp",
    "runtime",
    "policy",
    "record",
    "sandbox-linux",
];

fn repository() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.parent().unwrap().parent().unwrap().to_path_buf()
}

/// Every source file of the product, by its name below `crates`.
fn sources() -> BTreeMap<String, String> {
    let crates = repository().join("crates");
    let mut found = BTreeMap::new();
    let mut waiting: Vec<PathBuf> = CRATES
        .iter()
        .map(|name| crates.join(name).join("src"))
        .collect();
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&crates).unwrap().display().to_string();
                found.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// String literals of what runs, with their lines.
#[derive(Default)]
struct Literals {
    found: Vec<(usize, String)>,
}

impl Literals {
    fn of(source: &str) -> Vec<(usize, String)> {
        let mut literals = Self::default();
        literals.visit_file(&syn::parse_file(source).unwrap());
        literals.found
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let mut after_hash = false;
        for token in tokens {
            match token {
                // An attribute: a comment of a macro's item.
                TokenTree::Group(_) if after_hash => after_hash = false,
                TokenTree::Punct(punct) => after_hash = punct.as_char() == '#',
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                        let line = literal.span().start().line;
                        self.found.push((line, text.value()));
                    }
                }
                TokenTree::Ident(_) => {}
            }
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        path.is_ident("test")
            || path.is_ident("cfg")
                && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    })
}

impl<'ast> Visit<'ast> for Literals {
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    /// What is compared with is shown to nobody.
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.found
            .push((literal.span().start().line, literal.value()));
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.method == "expect" {
            return self.visit_expr(&call.receiver);
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().unwrap().ident.to_string();
        let path = call.path.segments.first().unwrap().ident.to_string();
        if path != "tracing" && !NOT_FOR_PEOPLE.contains(&name.as_str()) {
            self.tokens(call.tokens.clone());
        }
    }
}

/// Two words with a space between them, or a letter that no English identifier has.
fn is_sentence(text: &str) -> bool {
    let is_word = |word: &&str| {
        let letters = word.trim_matches(|c: char| !c.is_alphanumeric());
        letters.len() > 1 && letters.chars().all(|c| c.is_ascii_lowercase() || c == '\'')
    };
    // What a placeholder stands for is data.
    let mut plain = String::new();
    let mut depth = 0_u32;
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let words: Vec<&str> = plain.split([' ', '\n']).collect();
    let two = words
        .windows(2)
        .any(|pair| is_word(&pair[1]) && pair[0].chars().any(char::is_alphabetic));
    two || text.chars().any(|c| c.is_alphabetic() && c as u32 > 0x2fff)
}

/// I18N-01. It also fails on a line of the list that allows nothing any more.
#[test]
fn i18n_01_no_sentence_stands_in_the_code() {
    let mut used = BTreeSet::new();
    let mut findings = Vec::new();
    for (name, source) in sources() {
        for (line, text) in Literals::of(&source) {
            if !is_sentence(&text) {
                continue;
            }
            let allowed = ALLOWED
                .iter()
                .position(|(place, start, _)| name.starts_with(place) && text.starts_with(start));
            match allowed {
                Some(at) => drop(used.insert(at)),
                None => findings.push(format!("crates/{name}:{line}: {text:?}")),
            }
        }
    }
    assert!(
        findings.is_empty(),
        "{} sentences; give each an id in crates/agent-mcp/locales, or a line with its reason in literals_allowed:\n{}",
        findings.len(),
        findings.join("\n")
    );
    for (at, allowed) in ALLOWED.iter().enumerate() {
        let needed = used.contains(&at);
        assert!(needed, "allows nothing: {allowed:?}");
        assert!(allowed.2.len() > 10, "no reason: {allowed:?}");
    }
}

/// The finder finds: what people would see is a finding, what they do not see is none.
#[test]
fn the_finder_finds() {
    let found = |code: &str| {
        let literals = Literals::of(code);
        literals
            .iter()
            .filter(|(_, text)| is_sentence(text))
            .count()
    };
    for code in [
        "fn f() { terminal.line(\"not a directory\"); }",
        "fn f() { Fault::new(a, b, c, format!(\"larger than {limit} bytes\")); }",
        "const X: &str = \"ファイルがありません\";",
        "fn f() { match x { A => \"no such task\", } }",
        "words! { /// Not a word.\n A = \"no such task\" }",
    ] {
        assert_eq!(found(code), 1, "{code}");
    }
    for code in [
        "/// Not a directory.\n#[error(\"{path} is wrong\")]\nstruct X;",
        "#[cfg(test)]\nmod tests { const X: &str = \"not a directory\"; }",
        "fn f() { tracing::warn!(\"the log is closed\"); x.expect(\"it is there\"); }",
        "const X: &str = \"sandbox.network.access\";",
        "fn f() { match x { \"own files\" => 1, _ => 2 } }",
        "const X: &str = \"GET /api/tags HTTP/1.1\";",
    ] {
        assert_eq!(found(code), 0, "{code}");
    }
}

/// I18N-01: every id that code names has its text, and every text has code that names it.
#[test]
fn i18n_01_ids_and_texts_belong_together() {
    let mut named = BTreeSet::new();
    let mut families = BTreeSet::new();
    for text in sources().values().flat_map(|source| Literals::of(source)) {
        let text = text.1;
        // `format!("control.{}", …)` names a family, which a test of its own holds complete.
        match text.split_once('{') {
            Some((family, _)) if family.ends_with('.') => drop(families.insert(family.to_owned())),
            _ => drop(named.insert(text)),
        }
    }
    for code in policy::Code::ALL {
        named.insert(code.message_id().to_owned());
        named.insert(code.hint_id().to_owned());
    }
    let families = ["control.", "config.", "help."];
    let unused: Vec<&String> = english()
        .keys()
        .filter(|id| !named.contains(*id) && !families.iter().any(|family| id.starts_with(family)))
        .collect();
    assert!(unused.is_empty(), "no code names {unused:?}");
    let sections: BTreeSet<&str> = english()
        .keys()
        .filter_map(|id| id.split_once('.'))
        .map(|(section, _)| section)
        .collect();
    for (name, source) in sources() {
        for (line, id) in message_ids(&source) {
            assert!(
                english().contains_key(&id),
                "crates/{name}:{line}: {id} is in no locale file; sections: {sections:?}"
            );
        }
    }
}

/// What is handed to `Message::new` as a literal.
fn message_ids(source: &str) -> Vec<(usize, String)> {
    struct Ids(Vec<(usize, String)>);
    impl<'ast> Visit<'ast> for Ids {
        fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
            if !is_test(&item.attrs) {
                syn::visit::visit_item_mod(self, item);
            }
        }

        fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
            let is_message = matches!(&*call.func, syn::Expr::Path(path)
                if path.path.segments.iter().map(|part| part.ident.to_string()).collect::<Vec<_>>().ends_with(&["Message".to_owned(), "new".to_owned()]));
            if is_message && let Some(argument) = call.args.first() {
                let mut literals = Literals::default();
                // A choice between ids is a match or an if with literals inside.
                literals.visit_expr(argument);
                let ids = literals.found.into_iter();
                self.0
                    .extend(ids.filter(|(_, id)| id.contains('.') && !id.contains(' ')));
            }
            syn::visit::visit_expr_call(self, call);
        }
    }
    let mut ids = Ids(Vec::new());
    ids.visit_file(&syn::parse_file(source).unwrap());
    ids.0
}
