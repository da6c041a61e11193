//! Time is injected, so that no test sleeps to be right.

use jiff::{SignedDuration, Timestamp};
use std::fmt;
use std::sync::Mutex;

/// Where time stamps come from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The current time, UTC.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that moves only when it is told to.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn at(start: Timestamp) -> Self {
        Self(Mutex::new(start))
    }

    /// Moves it by `step`; it stays where it is at the end of time.
    pub fn advance(&self, step: SignedDuration) {
        let mut now = self.0.lock().unwrap_or_else(|held| held.into_inner());
        *now = now.saturating_add(step).unwrap_or(*now);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(|held| held.into_inner())
    }
}

/// RFC 3339, UTC, milliseconds: `2026-01-02T03:04:05.678Z`.
pub(crate) fn stamp(time: Timestamp) -> String {
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_has_exactly_three_decimals() {
        for (nanosecond, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_999_999, "1970-01-01T00:00:00.001Z"),
            (1_500_000_000, "1970-01-01T00:00:01.500Z"),
        ] {
            assert_eq!(stamp(Timestamp::from_nanosecond(nanosecond).unwrap()), text);
        }
    }
}
