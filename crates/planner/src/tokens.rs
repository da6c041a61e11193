//! Amounts of tokens, kept apart from every other number.

use std::fmt;
use std::iter::Sum;

use serde::{Deserialize, Serialize, Serializer};

/// A number of LLM tokens. Unit: whole tokens as the model server counts them (`prompt_eval_count`, `eval_count`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Tokens(pub u64);

impl Tokens {
    /// No tokens.
    pub const ZERO: Self = Self(0);

    /// The sum, or `None` when it does not fit.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An expected token cost in sixths of a token: `O + 4M + P` instead of `(O + 4M + P) / 6` (NFR-02).
///
/// Expected costs are added along paths and compared. In floating point the result of that depends on the order of the
/// additions; whole sixths are exact, so two paths are equal exactly when their costs are. One Task costs less than 2^20
/// sixths (six times the largest budget class), so a sum overflows only after 2^44 Tasks, more than memory can hold.
///
/// Serialized as tokens (a floating point number), because that is what a reader wants to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenSixths(u64);

impl TokenSixths {
    /// No cost.
    pub const ZERO: Self = Self(0);

    pub(crate) fn from_sixths(sixths: u64) -> Self {
        Self(sixths)
    }

    /// The exact amount in sixths of a token.
    #[must_use]
    pub fn sixths(self) -> u64 {
        self.0
    }

    /// The amount in tokens, rounded once to the nearest `f64`.
    #[must_use]
    pub fn as_tokens(self) -> f64 {
        self.0 as f64 / 6.0
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sum for TokenSixths {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::plus)
    }
}

impl Serialize for TokenSixths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_tokens())
    }
}

/// What was really consumed. Unit: tokens, as counted by the model server (SPEC §8.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenUsage {
    /// Sum of `prompt_eval_count`.
    pub input: Tokens,
    /// Sum of `eval_count`.
    pub output: Tokens,
}

impl TokenUsage {
    /// The sum of both uses, or `None` when a side **or the total** would not fit, so that [`Self::total`] is always exact.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let input = self.input.checked_add(other.input)?;
        let output = self.output.checked_add(other.output)?;
        input.checked_add(output)?;
        Some(Self { input, output })
    }

    /// Input plus output. Saturates only for a value put together by hand; sums made by [`Self::checked_add`] always fit.
    #[must_use]
    pub fn total(self) -> Tokens {
        Tokens(self.input.0.saturating_add(self.output.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NFR-02: a usage whose total would not fit is refused and not wrapped.
    #[test]
    fn nfr_02_usage_never_wraps() {
        let nearly_full = TokenUsage {
            input: Tokens(u64::MAX - 1),
            output: Tokens(1),
        };
        let one = TokenUsage {
            input: Tokens(1),
            output: Tokens::ZERO,
        };
        assert_eq!(nearly_full.checked_add(one), None);
        assert_eq!(
            nearly_full.checked_add(TokenUsage::default()),
            Some(nearly_full)
        );
        assert_eq!(nearly_full.total(), Tokens(u64::MAX));
    }

    /// NFR-02: sixths are compared exactly; one sixth is a difference.
    #[test]
    fn nfr_02_one_sixth_is_a_difference() {
        let big = 1_u64 << 53;
        assert!(TokenSixths::from_sixths(big) < TokenSixths::from_sixths(big + 1));
        assert_eq!(TokenSixths::from_sixths(9).as_tokens(), 1.5);
    }
}
