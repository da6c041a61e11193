//! A proof that something is on the disk.

/// `T` was written and synced before this value existed. There is no public constructor and no `Clone`: whoever makes
/// an effect takes the proof by value, so the record of it cannot be forgotten and cannot be used twice (DC-3).
///
/// ```compile_fail
/// fn twice(proof: record::Durable<record::Appended>) {
///     let copy = proof.clone();
/// }
/// ```
/// ```compile_fail
/// let forged = record::Durable { value: 1 };
/// ```
#[derive(Debug)]
#[must_use = "the effect this was recorded for takes the proof"]
pub struct Durable<T> {
    value: T,
}

impl<T> Durable<T> {
    /// Only after the sync returned.
    pub(crate) fn after_sync(value: T) -> Self {
        Self { value }
    }

    /// What is on the disk.
    pub fn value(&self) -> &T {
        &self.value
    }

    pub(crate) fn into_value(self) -> T {
        self.value
    }
}
