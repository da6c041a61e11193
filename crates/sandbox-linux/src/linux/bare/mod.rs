//! Confinement without any new namespace, for machines that forbid them: Landlock, the system call filter, limits, no
//! privileges, and a guard process instead of an init.
//!
//! The same plan is carried out by other means, and what these cannot do is named in the report (see
//! [`super::enforcement`]): hidden paths can still be asked for (`stat`), readable files be mapped as code, and a tree
//! whose guard is killed from outside is not sure to die. The level is therefore always `partial`, which only the
//! read-only mode accepts; what no permit can start is not built.

pub(crate) mod guard;
pub(crate) mod once;
mod place;
pub(crate) mod plan;
mod rules;
pub(crate) mod tree;

pub(crate) use place::Area;
pub(crate) use rules::load as load_rules;
