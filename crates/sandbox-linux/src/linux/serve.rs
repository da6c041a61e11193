//! stub
use super::failure::*;
use super::launch::Never;
use super::plan::Plan;
use super::shared::Shared;
#[derive(Clone, Copy)]
pub(crate) struct Lines;
pub(crate) fn serve(
    _p: &Plan,
    _s: &Shared,
    _f: &[libc::sock_filter],
    _l: Lines,
) -> Result<Never, Failure> {
    super::sys::process::exit(1)
}
