//! The shipped locale files, read as the binary ships them.

use policy::{Code, Localize, Message};
use std::collections::BTreeMap;
use std::path::Path;

/// Every id this crate makes messages of.
const IDS: [&str; 15] = [
    "mcp.field_empty",
    "mcp.field_missing",
    "mcp.field_range",
    "mcp.field_type",
    "mcp.field_unknown",
    "mcp.field_uuid",
    "mcp.image_base64",
    "mcp.image_count",
    "mcp.image_mime_type",
    "mcp.image_size",
    "mcp.image_total",
    "mcp.instructions",
    "mcp.task_queued",
    "mcp.tool_agent_run",
    "mcp.tool_agent_status",
];

pub(crate) struct Shipped {
    language: &'static str,
    texts: BTreeMap<String, String>,
}

impl Shipped {
    pub(crate) fn new(language: &'static str) -> Self {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let file = crates
            .join("agent-mcp/locales")
            .join(format!("{language}.json"));
        let texts = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        Self { language, texts }
    }
}

impl Localize for Shipped {
    fn text(&self, message: &Message) -> String {
        let Some(template) = self.texts.get(message.id()) else {
            return message.id().to_owned();
        };
        message
            .arguments()
            .iter()
            .fold(template.clone(), |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), value)
            })
    }

    fn language(&self) -> &str {
        self.language
    }
}

#[test]
fn i18n_02_every_id_has_its_text_in_both_languages() {
    let (en, ja) = (Shipped::new("en"), Shipped::new("ja"));
    for id in IDS.into_iter().chain(
        [
            Code::RequestInvalid,
            Code::ImageInvalid,
            Code::ServerStopping,
        ]
        .map(Code::message_id),
    ) {
        assert_ne!(en.text(&Message::new(id)), id, "en has no {id}");
        assert_ne!(ja.text(&Message::new(id)), id, "ja has no {id}");
        assert_ne!(
            en.text(&Message::new(id)),
            ja.text(&Message::new(id)),
            "{id}"
        );
    }
}
