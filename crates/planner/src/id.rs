//! Names of Tasks and tools as a model writes them, checked before anything else sees them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

/// The longest id. Unit: bytes, which are characters because ids are ASCII.
pub const MAX_ID_BYTES: usize = 64;

/// Why a text is not an id. Whose fault: whoever wrote the plan.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "id_problem", rename_all = "snake_case")]
pub enum IdError {
    /// There is no text.
    #[error("an id must not be empty")]
    Empty,
    /// Longer than [`MAX_ID_BYTES`].
    #[error("an id has at most {MAX_ID_BYTES} bytes, not {bytes}")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// A character outside `[A-Za-z0-9_-]`.
    #[error("an id may not contain {character:?} (at byte {at})")]
    Character {
        /// The first such character.
        character: char,
        /// Its offset. Unit: bytes.
        at: usize,
    },
}

fn check(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_ID_BYTES {
        return Err(IdError::TooLong { bytes: text.len() });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match text.char_indices().find(|(_, c)| !allowed(*c)) {
        Some((at, character)) => Err(IdError::Character { character, at }),
        None => Ok(()),
    }
}

// The two kinds of name follow one rule and must not be mixed up; the macro keeps the rule in one place.
macro_rules! checked_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Between 1 and [`MAX_ID_BYTES`] characters of `[A-Za-z0-9_-]`. Cheap to clone: an id is repeated by every
        /// dependent, and the text is shared.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a text and makes it an id.
            ///
            /// # Errors
            /// [`IdError`] when it is empty, too long, or has a character that ids do not have.
            pub fn new(text: &str) -> Result<Self, IdError> {
                check(text)?;
                Ok(Self(Arc::from(text)))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(&text)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

checked_id! {
    /// The name of a planned Task inside one graph (DESIGN §8.1). Not the public `task_id` of a run (X-TASK).
    TaskId
}

checked_id! {
    /// The name of an internal tool. Opaque here: what the tool does is known to the runtime and to [`crate::PlanRules`].
    ToolId
}

impl ToolId {
    /// A name written in this crate's source; a test beside each such constant checks it.
    pub(crate) fn known(text: &'static str) -> Self {
        Self(Arc::from(text))
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error as ValueError, StrDeserializer};

    use super::*;

    fn deserialize(text: &str) -> Result<TaskId, ValueError> {
        let deserializer: StrDeserializer<'_, ValueError> = text.into_deserializer();
        TaskId::deserialize(deserializer)
    }

    /// DESIGN §8.1: the alphabet and the length of an id, also when it comes in through serde.
    #[test]
    fn ids_are_checked_on_every_way_in() {
        let longest = "x".repeat(MAX_ID_BYTES);
        let too_long = "x".repeat(MAX_ID_BYTES + 1);
        for good in ["a", "Task_1-b", longest.as_str()] {
            assert_eq!(TaskId::new(good).unwrap().as_str(), good);
            assert_eq!(deserialize(good).unwrap().as_str(), good);
        }
        for (bad, why) in [
            ("", IdError::Empty),
            (too_long.as_str(), IdError::TooLong { bytes: 65 }),
            (
                "a b",
                IdError::Character {
                    character: ' ',
                    at: 1,
                },
            ),
            (
                "aé",
                IdError::Character {
                    character: 'é',
                    at: 1,
                },
            ),
            (
                "../x",
                IdError::Character {
                    character: '.',
                    at: 0,
                },
            ),
        ] {
            assert_eq!(TaskId::new(bad), Err(why.clone()));
            assert_eq!(ToolId::new(bad), Err(why));
            assert!(deserialize(bad).is_err());
        }
    }
}
