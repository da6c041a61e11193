//! A standing sandbox without namespaces: the helper itself stays as guard and does what init does elsewhere.

use super::{load_rules, tree};
use crate::backend::explain::table::Table;
use crate::backend::failure::{At as _, Failure, Stage};
use crate::backend::filter::compile;
use crate::backend::launch::Never;
use crate::backend::plan::Plan;
use crate::backend::serve::{self, Lines};
use crate::backend::shared::Shared;
use crate::backend::sys::{Fd, file, process, signal, socket};
use crate::backend::wire::STARTED;
use std::sync::atomic::Ordering;

/// Serves until the control line ends; then everything below is ended and the private area removed.
pub(crate) fn serve(plan: &Plan, table: &'static Table, lines: Lines) -> Result<Never, Failure> {
    // Inherited, it would take our children's ends away from us.
    signal::reset(libc::SIGCHLD).at(Stage::Serve)?;
    process::adopt_orphans().at(Stage::Serve)?;
    let shared = Shared::new().at(Stage::Serve)?;
    let filter = compile(plan.filter);
    if let Some(ruleset) = load_rules(plan)? {
        shared.ruleset.store(ruleset.0 + 1, Ordering::Release);
    }
    tell_started(lines.control).at(Stage::Serve)?;
    process::set_dumpable(false).at(Stage::Privileges)?;
    serve::serve(plan, shared, table, &filter, lines)
}

fn tell_started(control: Fd) -> crate::backend::sys::Result<()> {
    let own = process::id();
    let pidfd = process::open_pidfd(own, 0)?;
    let mut message = [STARTED, 0, 0, 0, 0, 0];
    message[2..].copy_from_slice(&own.to_ne_bytes());
    socket::send(control, &message, &[pidfd])?;
    file::close(pidfd);
    Ok(())
}

/// The end of the guard, of everything below it, and of the private area.
pub(crate) fn end(plan: &Plan) {
    tree::end_below(process::id());
    super::place::remove(&plan.private.path_of(None));
}
