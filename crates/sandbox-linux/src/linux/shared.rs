//! The page that launcher, init and command share while a sandbox is built and, one-shot, while it runs.

use super::failure::Failure;
use super::plan::MOST_ROOTS;
use super::relay::MOST_GRANTS;
use super::sys::{Fd, Result, memory};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Zero is the initial state of every word.
pub(crate) struct Shared {
    /// The launcher has written the id maps and opened the granted roots.
    pub(crate) identity: AtomicI32,
    /// The command's own network namespace, plus one; negative when it could not be made.
    pub(crate) network: AtomicI32,
    /// The root is complete; as far as that goes the command may start.
    pub(crate) root: AtomicI32,
    /// What the caller wanted to have done before any effect is done; the command may start.
    pub(crate) recorded: AtomicI32,
    /// Where notifications of the filter come from, plus one; negative when the filter could not be loaded.
    pub(crate) listener: AtomicI32,
    /// The rule set, plus one.
    pub(crate) ruleset: AtomicI32,
    /// The command's pidfd (a number in the launcher's table), written by the kernel.
    pub(crate) command: AtomicI32,
    /// The command has ended and so has everything else.
    pub(crate) ended: AtomicI32,
    /// The command was stopped; whoever acts on it clears it.
    pub(crate) stopped: AtomicI32,
    /// Set before the end word: how the command ended, as `wait` says it.
    pub(crate) status: AtomicI32,
    /// Set before the end word: processes alive when the command ended.
    pub(crate) leftovers: AtomicI32,
    /// The memory watcher ended the tree.
    pub(crate) out_of_memory: AtomicI32,
    /// The tripwire's device, plus one.
    pub(crate) tripwire: AtomicI32,
    /// Init has a descriptor table of its own, or never will: the launcher must let go of the tripwire's device, so that
    /// init's end is the end of its server.
    pub(crate) apart: AtomicI32,
    /// Why the program could not be executed, packed.
    pub(crate) refused: AtomicU64,
    /// The first failure, packed.
    failure: AtomicU64,
    /// Trees of granted roots, plus one.
    trees: [AtomicI32; MOST_ROOTS],
    /// Listening sockets of the granted addresses, plus one; zero after they were taken.
    listeners: [AtomicI32; MOST_GRANTS],
}

impl Shared {
    pub(crate) fn new() -> Result<&'static Self> {
        // SAFETY: atomics of zero are the documented initial state.
        unsafe { memory::shared_zeroed() }
    }

    pub(crate) fn tree(&self, slot: u16) -> Option<Fd> {
        let word = self.trees.get(usize::from(slot))?.load(Ordering::Acquire);
        (word > 0).then(|| Fd(word - 1))
    }

    pub(crate) fn set_tree(&self, slot: u16, tree: Fd) {
        if let Some(word) = self.trees.get(usize::from(slot)) {
            word.store(tree.0 + 1, Ordering::Release);
        }
    }

    pub(crate) fn set_listener(&self, slot: usize, listener: Fd) {
        if let Some(word) = self.listeners.get(slot) {
            word.store(listener.0 + 1, Ordering::Release);
        }
    }

    /// The listening sockets, in the order of the grants. They now belong to the caller.
    pub(crate) fn take_listeners(&self) -> impl Iterator<Item = Fd> + '_ {
        let taken = |word: &AtomicI32| word.swap(0, Ordering::AcqRel);
        let made = |number: &i32| *number > 0;
        let numbers = self.listeners.iter().map(taken).take_while(made);
        numbers.map(|number| Fd(number - 1))
    }

    /// For a second attempt with another identity.
    pub(crate) fn forget_trees(&self) {
        for word in &self.trees {
            let tree = word.swap(0, Ordering::AcqRel);
            if tree > 0 {
                super::sys::file::close(Fd(tree - 1));
            }
        }
        let ruleset = self.ruleset.swap(0, Ordering::AcqRel);
        if ruleset > 0 {
            super::sys::file::close(Fd(ruleset - 1));
        }
        for listener in self.take_listeners() {
            super::sys::file::close(listener);
        }
        self.let_go_of_tripwire();
        for word in [&self.network, &self.listener, &self.command, &self.apart] {
            word.store(0, Ordering::Release);
        }
    }

    /// The tripwire's device in this process's table.
    pub(crate) fn tripwire(&self) -> Option<Fd> {
        let word = self.tripwire.load(Ordering::Acquire);
        (word > 0).then(|| Fd(word - 1))
    }

    /// For a launcher whose init has a table of its own, or is to end.
    pub(crate) fn let_go_of_tripwire(&self) {
        let device = self.tripwire.swap(0, Ordering::AcqRel);
        if device > 0 {
            super::sys::file::close(Fd(device - 1));
        }
    }

    /// Keeps the first failure.
    pub(crate) fn fail(&self, failure: Failure) {
        let packed = failure.pack();
        // A later failure follows from the first.
        let _first = self
            .failure
            .compare_exchange(0, packed, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        Failure::unpack(self.failure.load(Ordering::Acquire))
    }

    pub(crate) fn ruleset(&self) -> Option<Fd> {
        let word = self.ruleset.load(Ordering::Acquire);
        (word > 0).then(|| Fd(word - 1))
    }
}
