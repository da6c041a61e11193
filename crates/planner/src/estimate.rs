//! Three-point token estimates, checked against a budget class (SPEC §8.3, Token PERT).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{TokenBudgetClass, TokenSixths, Tokens};

/// Three numbers as a planner wrote them, unchecked. Unit: tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposedEstimate {
    /// O: if everything goes well.
    pub optimistic: Tokens,
    /// M: what is most likely.
    pub most_likely: Tokens,
    /// P: if everything goes badly.
    pub pessimistic: Tokens,
}

/// An estimate for which `0 < O <= M <= P <= budget` was checked; [`TokenEstimate::new`] is its only maker (SPEC §8.3).
///
/// Not deserializable: numbers from outside arrive as [`ProposedEstimate`] and are checked against a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TokenEstimate {
    optimistic: Tokens,
    most_likely: Tokens,
    pessimistic: Tokens,
}

/// Which inequality of `0 < O <= M <= P <= budget` does not hold. Whose fault: whoever estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "inequality", rename_all = "snake_case")]
pub enum EstimateError {
    /// `0 < O` does not hold: O is zero.
    #[error("optimistic must be more than 0 tokens")]
    OptimisticZero,
    /// `O <= M` does not hold.
    #[error("optimistic ({optimistic}) must not exceed most_likely ({most_likely})")]
    OptimisticAboveMostLikely {
        /// O as proposed.
        optimistic: Tokens,
        /// M as proposed.
        most_likely: Tokens,
    },
    /// `M <= P` does not hold.
    #[error("most_likely ({most_likely}) must not exceed pessimistic ({pessimistic})")]
    MostLikelyAbovePessimistic {
        /// M as proposed.
        most_likely: Tokens,
        /// P as proposed.
        pessimistic: Tokens,
    },
    /// `P <= budget` does not hold.
    #[error("pessimistic ({pessimistic}) must not exceed the {class} budget ({budget})")]
    PessimisticAboveBudget {
        /// P as proposed.
        pessimistic: Tokens,
        /// The class it was checked against.
        class: TokenBudgetClass,
        /// That class's limit.
        budget: Tokens,
    },
}

impl TokenEstimate {
    /// Checks three numbers against a budget class (SPEC §8.3).
    ///
    /// # Errors
    /// Every inequality that does not hold, in the order of `0 < O <= M <= P <= budget`; never an empty list.
    pub fn new(
        class: TokenBudgetClass,
        proposed: ProposedEstimate,
    ) -> Result<Self, Vec<EstimateError>> {
        let ProposedEstimate {
            optimistic,
            most_likely,
            pessimistic,
        } = proposed;
        let budget = class.max_tokens();
        let mut failed = Vec::new();
        if optimistic == Tokens::ZERO {
            failed.push(EstimateError::OptimisticZero);
        }
        if optimistic > most_likely {
            failed.push(EstimateError::OptimisticAboveMostLikely {
                optimistic,
                most_likely,
            });
        }
        if most_likely > pessimistic {
            failed.push(EstimateError::MostLikelyAbovePessimistic {
                most_likely,
                pessimistic,
            });
        }
        if pessimistic > budget {
            failed.push(EstimateError::PessimisticAboveBudget {
                pessimistic,
                class,
                budget,
            });
        }
        if failed.is_empty() {
            Ok(Self {
                optimistic,
                most_likely,
                pessimistic,
            })
        } else {
            Err(failed)
        }
    }

    /// O. Unit: tokens.
    #[must_use]
    pub fn optimistic(self) -> Tokens {
        self.optimistic
    }

    /// M. Unit: tokens.
    #[must_use]
    pub fn most_likely(self) -> Tokens {
        self.most_likely
    }

    /// P. Unit: tokens.
    #[must_use]
    pub fn pessimistic(self) -> Tokens {
        self.pessimistic
    }

    /// `O + 4M + P`: the expected cost in exact sixths of a token. Everything that compares costs uses this (NFR-02).
    #[must_use]
    pub fn expected_sixths(self) -> TokenSixths {
        // Cannot overflow: all three are at most 131,072.
        TokenSixths::from_sixths(self.optimistic.0 + 4 * self.most_likely.0 + self.pessimistic.0)
    }

    /// `(O + 4M + P) / 6`, the expected cost (AT-16). Unit: tokens.
    #[must_use]
    pub fn expected(self) -> f64 {
        self.expected_sixths().as_tokens()
    }

    /// `((P - O) / 6)^2`, a diagnostic; nothing is scheduled by it (DESIGN §8.2). Unit: tokens squared.
    #[must_use]
    pub fn variance(self) -> f64 {
        let sixth = (self.pessimistic.0 - self.optimistic.0) as f64 / 6.0;
        sixth * sixth
    }

    /// The three numbers without the proof, for proposing them again.
    #[must_use]
    pub fn proposed(self) -> ProposedEstimate {
        ProposedEstimate {
            optimistic: self.optimistic,
            most_likely: self.most_likely,
            pessimistic: self.pessimistic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(
        class: TokenBudgetClass,
        o: u64,
        m: u64,
        p: u64,
    ) -> Result<TokenEstimate, Vec<EstimateError>> {
        TokenEstimate::new(
            class,
            ProposedEstimate {
                optimistic: Tokens(o),
                most_likely: Tokens(m),
                pessimistic: Tokens(p),
            },
        )
    }

    /// AT-16: O, M and P give one expected cost, by the formula.
    #[test]
    fn at_16_expected_cost_and_variance_follow_the_formula() {
        let checked = estimate(TokenBudgetClass::K1, 100, 200, 600).unwrap();
        assert_eq!(checked.expected_sixths().sixths(), 1500);
        assert_eq!(checked.expected(), 250.0);
        assert_eq!(checked.variance(), (500.0_f64 / 6.0).powi(2));
        let certain = estimate(TokenBudgetClass::K1, 7, 7, 7).unwrap();
        assert_eq!((certain.expected(), certain.variance()), (7.0, 0.0));
    }

    /// AT-16: the bounds themselves are allowed, one beyond each is refused by name and value.
    #[test]
    fn at_16_each_inequality_is_named_with_its_values() {
        assert!(estimate(TokenBudgetClass::K1, 1, 1, 1).is_ok());
        assert!(estimate(TokenBudgetClass::K1, 1024, 1024, 1024).is_ok());
        let cases = [
            ((0, 1, 1), EstimateError::OptimisticZero),
            (
                (3, 2, 4),
                EstimateError::OptimisticAboveMostLikely {
                    optimistic: Tokens(3),
                    most_likely: Tokens(2),
                },
            ),
            (
                (1, 5, 4),
                EstimateError::MostLikelyAbovePessimistic {
                    most_likely: Tokens(5),
                    pessimistic: Tokens(4),
                },
            ),
            (
                (1, 1, 1025),
                EstimateError::PessimisticAboveBudget {
                    pessimistic: Tokens(1025),
                    class: TokenBudgetClass::K1,
                    budget: Tokens(1024),
                },
            ),
        ];
        for ((o, m, p), why) in cases {
            assert_eq!(estimate(TokenBudgetClass::K1, o, m, p), Err(vec![why]));
        }
    }

    /// AT-16: everything wrong is said at once, and extreme numbers do not overflow.
    #[test]
    fn at_16_all_failed_inequalities_are_reported_together() {
        let failed = estimate(TokenBudgetClass::K128, u64::MAX, u64::MAX - 1, u64::MAX - 2);
        assert_eq!(failed.unwrap_err().len(), 3);
        assert_eq!(
            estimate(TokenBudgetClass::K128, 0, 0, 0),
            Err(vec![EstimateError::OptimisticZero])
        );
    }
}
