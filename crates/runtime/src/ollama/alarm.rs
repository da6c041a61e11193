//! Notices when the server silently drops the start of a conversation ("Survive these" 7).
//!
//! `truncate:false` asks it not to; an old or foreign server ignores that, and the user's goal falls out first.

use super::answer::Usage;

/// Why a prompt looks shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationAlarm {
    /// The conversation grew and the server counted fewer tokens.
    CountFell {
        /// Counted before.
        before: u64,
        /// Counted now.
        now: u64,
    },
    /// The count sits just below half of `num_ctx` again, where a server that truncates cuts to.
    NearHalf {
        /// Counted now.
        now: u64,
        /// The context asked for.
        num_ctx: u32,
    },
}

/// Watches one growing conversation: one planned Task (X-CACHE).
#[derive(Clone, Debug)]
pub struct TruncationWatch {
    num_ctx: u32,
    last: Option<(usize, u64)>,
}

impl TruncationWatch {
    /// For a conversation with this context.
    pub fn new(num_ctx: u32) -> Self {
        Self {
            num_ctx,
            last: None,
        }
    }

    /// Looks at one more call: how large the prompt was in bytes, and what the server counted. An unknown count says nothing.
    pub fn observe(&mut self, prompt_bytes: usize, usage: Usage) -> Option<TruncationAlarm> {
        let now = usage.input?;
        let before = self.last.replace((prompt_bytes, now));
        let (last_bytes, before) = before?;
        if prompt_bytes <= last_bytes {
            return None;
        }
        if now < before {
            return Some(TruncationAlarm::CountFell { before, now });
        }
        // Two calls in a row within 2 % of the half while the prompt grew: it no longer grows at the server.
        let half = u64::from(self.num_ctx) / 2;
        let near = |count: u64| count.abs_diff(half) <= half / 50;
        (near(now) && near(before) && now - before < 8).then_some(TruncationAlarm::NearHalf {
            now,
            num_ctx: self.num_ctx,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(count: u64) -> Usage {
        Usage {
            input: Some(count),
            output: None,
        }
    }

    #[test]
    fn survive_7_a_falling_count_is_noticed() {
        let mut watch = TruncationWatch::new(8192);
        assert_eq!(watch.observe(1000, input(300)), None);
        assert_eq!(watch.observe(2000, input(600)), None);
        assert_eq!(watch.observe(2500, Usage::default()), None);
        assert_eq!(
            watch.observe(3000, input(500)),
            Some(TruncationAlarm::CountFell {
                before: 600,
                now: 500
            })
        );
        assert_eq!(
            watch.observe(900, input(200)),
            None,
            "a new prefix is no alarm"
        );
    }

    #[test]
    fn survive_7_a_count_that_stays_at_half_the_context_is_noticed() {
        let mut watch = TruncationWatch::new(8192);
        assert_eq!(watch.observe(15_000, input(4090)), None);
        assert_eq!(
            watch.observe(18_000, input(4093)),
            Some(TruncationAlarm::NearHalf {
                now: 4093,
                num_ctx: 8192
            })
        );
        let mut growing = TruncationWatch::new(8192);
        assert_eq!(growing.observe(15_000, input(4050)), None);
        assert_eq!(growing.observe(15_200, input(4110)), None, "it still grows");
    }
}
