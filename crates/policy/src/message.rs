//! Text for people is made at the edge, from message ids and data (I18N-01).

use std::fmt::Display;

/// A message id of the locale files with its named placeholders (I18N-09).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    id: &'static str,
    arguments: Vec<(&'static str, String)>,
}

impl Message {
    /// A message without placeholders yet.
    pub fn new(id: &'static str) -> Self {
        Self {
            id,
            arguments: Vec::new(),
        }
    }

    /// Adds one named placeholder.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Display) -> Self {
        self.arguments.push((name, value.to_string()));
        self
    }

    /// The key in the locale files.
    pub fn id(&self) -> &'static str {
        self.id
    }

    /// The placeholders in the order they were given.
    pub fn arguments(&self) -> &[(&'static str, String)] {
        &self.arguments
    }
}

/// Turns messages into the chosen language. Implemented by the binary; `mcp` and the console get it from there.
pub trait Localize: Send + Sync {
    /// The message in the chosen locale, else in `en`, else its key (I18N-10).
    fn text(&self, message: &Message) -> String;

    /// The chosen BCP 47 tag (I18N-04).
    fn language(&self) -> &str;
}
