//! A set of dense indexes that gives back the smallest first, in constant time.

/// A set of indexes below a fixed bound; [`Self::pop`] takes the smallest.
///
/// A binary heap would make the topological order `O(V log V)`. Here each level is a bit set over the words of the level
/// below, so an operation touches one word per level, and indexes of 32 bits need at most six levels of 64.
pub(crate) struct EarliestFirst {
    levels: Vec<Vec<u64>>,
}

const WORD: usize = u64::BITS as usize;

impl EarliestFirst {
    /// An empty set for indexes `0..bound`.
    pub(crate) fn new(bound: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = bound.div_ceil(WORD).max(1);
        levels.push(vec![0; words]);
        while words > 1 {
            words = words.div_ceil(WORD);
            levels.push(vec![0; words]);
        }
        Self { levels }
    }

    /// Puts `index` in. It must be below the bound.
    pub(crate) fn insert(&mut self, index: usize) {
        let mut position = index;
        for level in &mut self.levels {
            let word = &mut level[position / WORD];
            let was_empty = *word == 0;
            *word |= 1 << (position % WORD);
            // The levels above know already that this word holds something.
            if !was_empty {
                break;
            }
            position /= WORD;
        }
    }

    /// Takes the smallest index out.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        let mut position = 0;
        for level in self.levels.iter().rev() {
            let word = level[position];
            if word == 0 {
                // Only the top can be empty: a set bit above means a non-empty word below.
                return None;
            }
            position = position * WORD + word.trailing_zeros() as usize;
        }
        let smallest = position;
        for level in &mut self.levels {
            let word = &mut level[position / WORD];
            *word &= !(1 << (position % WORD));
            if *word != 0 {
                break;
            }
            position /= WORD;
        }
        Some(smallest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// NFR-02: the same answers as an ordered set, over one to three levels.
        #[test]
        fn nfr_02_behaves_like_an_ordered_set(
            bound in 1_usize..9000,
            steps in prop::collection::vec(prop::option::of(any::<prop::sample::Index>()), 0..300),
        ) {
            let mut model = BTreeSet::new();
            let mut set = EarliestFirst::new(bound);
            for step in steps {
                match step {
                    Some(index) => {
                        let index = index.index(bound);
                        model.insert(index);
                        set.insert(index);
                    }
                    None => prop_assert_eq!(set.pop(), model.pop_first()),
                }
            }
            while let Some(index) = model.pop_first() {
                prop_assert_eq!(set.pop(), Some(index));
            }
            prop_assert_eq!(set.pop(), None);
        }
    }
}
