//! The eight sizes a Task's token budget comes in (SPEC §8.2).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use crate::Tokens;

/// How many tokens all model calls of one Task together may consume by plan (SPEC §8.2).
///
/// Not the context window of one call (`num_ctx`), and not what makes something a Task of its own: a Task is a unit of
/// meaning, its class is only a size (PLN-06). Written `1K` … `128K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum TokenBudgetClass {
    /// 1,024 tokens.
    K1,
    /// 2,048 tokens.
    K2,
    /// 4,096 tokens.
    K4,
    /// 8,192 tokens.
    K8,
    /// 16,384 tokens.
    K16,
    /// 32,768 tokens.
    K32,
    /// 65,536 tokens.
    K64,
    /// 131,072 tokens.
    K128,
}

impl TokenBudgetClass {
    /// Every class, smallest first.
    pub const ALL: [Self; 8] = [
        Self::K1,
        Self::K2,
        Self::K4,
        Self::K8,
        Self::K16,
        Self::K32,
        Self::K64,
        Self::K128,
    ];

    /// The limit. Unit: tokens, input and output together.
    #[must_use]
    pub fn max_tokens(self) -> Tokens {
        let kilo = match self {
            Self::K1 => 1,
            Self::K2 => 2,
            Self::K4 => 4,
            Self::K8 => 8,
            Self::K16 => 16,
            Self::K32 => 32,
            Self::K64 => 64,
            Self::K128 => 128,
        };
        Tokens(kilo * 1024)
    }

    /// How it is written in plans and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::K1 => "1K",
            Self::K2 => "2K",
            Self::K4 => "4K",
            Self::K8 => "8K",
            Self::K16 => "16K",
            Self::K32 => "32K",
            Self::K64 => "64K",
            Self::K128 => "128K",
        }
    }
}

/// A text that names no budget class. Whose fault: whoever wrote the plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a token budget class (1K, 2K, 4K, 8K, 16K, 32K, 64K, 128K)")]
pub struct UnknownBudgetClass {
    /// What was written.
    pub text: String,
}

impl FromStr for TokenBudgetClass {
    type Err = UnknownBudgetClass;

    // Exactly the written form: a lenient reading ("8k", " 8K") would have to be the same in the JSON schema the model gets.
    fn from_str(text: &str) -> Result<Self, UnknownBudgetClass> {
        Self::ALL
            .into_iter()
            .find(|class| class.as_str() == text)
            .ok_or_else(|| UnknownBudgetClass {
                text: text.to_owned(),
            })
    }
}

impl TryFrom<String> for TokenBudgetClass {
    type Error = UnknownBudgetClass;

    fn try_from(text: String) -> Result<Self, UnknownBudgetClass> {
        text.parse()
    }
}

impl fmt::Display for TokenBudgetClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for TokenBudgetClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PLN-06, SPEC §8.2: the table of classes, read and written the same way.
    #[test]
    fn pln_06_classes_are_the_table_of_the_specification() {
        let table = [
            ("1K", 1_024),
            ("2K", 2_048),
            ("4K", 4_096),
            ("8K", 8_192),
            ("16K", 16_384),
            ("32K", 32_768),
            ("64K", 65_536),
            ("128K", 131_072),
        ];
        assert_eq!(table.len(), TokenBudgetClass::ALL.len());
        for ((text, limit), class) in table.into_iter().zip(TokenBudgetClass::ALL) {
            assert_eq!(class.to_string(), text);
            assert_eq!(text.parse(), Ok(class));
            assert_eq!(class.max_tokens(), Tokens(limit));
        }
        assert!(TokenBudgetClass::ALL.is_sorted());
        for text in ["", "3K", "8k", " 8K", "8192", "256K"] {
            let unknown = UnknownBudgetClass {
                text: text.to_owned(),
            };
            assert_eq!(text.parse::<TokenBudgetClass>(), Err(unknown));
        }
    }
}
