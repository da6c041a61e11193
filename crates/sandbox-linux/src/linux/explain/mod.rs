//! Says what was refused (`sandbox.md`, "Saying what was blocked"). Explains only: nothing here decides what a program may do.
//!
//! Inside, init looks at calls that the filter stops ([`calls`]), compares their paths with what the plan grants
//! ([`places`]) and remembers what the kernel is going to refuse ([`table`]). Outside, when the program has ended, the
//! launcher finds the rule for each line in the same policy ([`tell`]).
//!
//! Init never opens a path of a program for this: a file system that hangs must not hang init. Links are therefore
//! followed only where the plan made them.

pub(crate) mod calls;
pub(crate) mod observe;
pub(crate) mod path;
pub(crate) mod places;
pub(crate) mod table;
pub(crate) mod tell;
pub(crate) mod tripwire;
