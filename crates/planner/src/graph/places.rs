//! Which Task has which place in creation order, found in constant time.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use crate::{NodeIndex, TaskId};

/// A table from ids to places that can only be asked, never walked through: no answer can depend on an order (NFR-02).
///
/// A map ordered by id would make validation `O(E log V)`, and it is slower still than that once the tree has outgrown the
/// processor's caches (P-7). The standard hash map is fenced off in this crate because it can be walked through and takes
/// random keys from the system. Without random keys, a planner could choose ids that collide; a lookup then takes as many
/// steps as there are Tasks, of which `PlanRules::max_tasks` allows few.
///
/// The ids are copied into one text: compared there they are close together, and sharing them would write to every one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// All ids, one after the other, in the order of their places.
    text: String,
    /// Where in `text` the id of each place ends.
    ends: Vec<usize>,
    /// Open addressing with linear probing. At least half of the slots stay free, so that a search ends.
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// The upper half of the id's hash, so that the ids themselves are compared only when they are most likely equal.
    fingerprint: u32,
    /// The place plus one; zero is a free slot.
    place_plus_one: u32,
}

impl Places {
    /// An empty table with room for `tasks`.
    pub(super) fn for_tasks(tasks: usize) -> Self {
        Self {
            text: String::new(),
            ends: Vec::with_capacity(tasks),
            slots: vec![Slot::default(); (tasks * 2).next_power_of_two()],
        }
    }

    /// Gives the next place to `id`. `false` when the id has a place already: it keeps that one, and the next place is used up.
    pub(super) fn take_next(&mut self, id: &TaskId) -> bool {
        let hash = hash(id);
        let at = self.search(id, hash);
        self.text.push_str(id.as_str());
        self.ends.push(self.text.len());
        let is_free = self.slots[at].place().is_none();
        if is_free {
            self.slots[at] = Slot {
                fingerprint: fingerprint(hash),
                // A graph too large for 32 bits is refused by `Dag::build`.
                place_plus_one: self.ends.len() as u32,
            };
        }
        is_free
    }

    /// The place of `id`.
    pub(super) fn of(&self, id: &TaskId) -> Option<NodeIndex> {
        self.slots[self.search(id, hash(id))].place()
    }

    /// The slot that holds `id`, or the free one where it would be.
    fn search(&self, id: &TaskId, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            match slot.place() {
                Some(place) if !self.is_at(id, fingerprint(hash), slot, place) => {
                    at = (at + 1) & mask;
                }
                _ => return at,
            }
        }
    }

    fn is_at(&self, id: &TaskId, fingerprint: u32, slot: Slot, place: NodeIndex) -> bool {
        if slot.fingerprint != fingerprint {
            return false;
        }
        let start = match place.place() {
            0 => 0,
            later => self.ends[later - 1],
        };
        self.text.as_bytes()[start..self.ends[place.place()]] == *id.as_str().as_bytes()
    }
}

impl Slot {
    fn place(self) -> Option<NodeIndex> {
        self.place_plus_one.checked_sub(1).map(NodeIndex)
    }
}

fn fingerprint(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn hash(id: &TaskId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// NFR-02: the same answers as an ordered map, full tables and repeated ids included.
        #[test]
        fn nfr_02_behaves_like_an_ordered_map(numbers in prop::collection::vec(0_u32..60, 0..70)) {
            let id = |number: u32| TaskId::new(&format!("t{number}")).unwrap();
            let mut model = BTreeMap::new();
            let mut places = Places::for_tasks(numbers.len());
            for (place, &number) in (0_u32..).zip(&numbers) {
                let is_new = !model.contains_key(&number);
                model.entry(number).or_insert(NodeIndex(place));
                prop_assert_eq!(places.take_next(&id(number)), is_new);
            }
            for number in 0..60 {
                prop_assert_eq!(places.of(&id(number)), model.get(&number).copied());
            }
        }
    }
}
