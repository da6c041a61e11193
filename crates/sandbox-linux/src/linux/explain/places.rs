//! What the plan makes of each part of the tree: for init, which compares paths of calls with it.

use super::path::{PlainPath, lies_in};
use crate::backend::plan::Step;
use crate::backend::sys::landlock as ll;
use policy::{Right, Rights};
use serde::{Deserialize, Serialize};
use std::ffi::CStr;

/// What stands at a path and below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// A directory of our own above other places, or a generated file.
    Own,
    /// A link of our own.
    Link(Vec<u8>),
    /// A part of the host.
    Bound,
    /// The private area, terminals and devices.
    Private,
    /// The process tree, where paths lead anywhere.
    Processes,
    /// Protected inside a writable root.
    Protected,
    /// Covered.
    Masked,
}

/// One part of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Plain.
    path: Vec<u8>,
    pub(crate) kind: Kind,
    /// As letters `r`, `w`, `x`, `d` would say it.
    rights: u8,
}

fn bit(right: Right) -> u8 {
    match right {
        Right::Read => 1,
        Right::Write => 2,
        Right::Execute => 4,
        Right::Delete => 8,
    }
}

impl Place {
    fn new(path: &CStr, kind: Kind, rights: Rights) -> Self {
        let mut plain = vec![b'/'];
        plain.extend_from_slice(path.to_bytes());
        Self {
            path: plain,
            kind,
            rights: rights.iter().map(bit).sum(),
        }
    }

    pub(crate) fn allows(&self, right: Right) -> bool {
        self.rights & bit(right) != 0
    }
}

fn rights_of(access: u64) -> Rights {
    [
        (ll::READ_FILE, Right::Read),
        (ll::WRITE_FILE, Right::Write),
        (ll::EXECUTE, Right::Execute),
        (ll::REMOVE_FILE, Right::Delete),
    ]
    .into_iter()
    .filter(|(bit, _)| access & bit != 0)
    .fold(Rights::NONE, |sum, (_, right)| sum | right.into())
}

/// The places that these steps make.
pub(crate) fn places(steps: &[Step]) -> Vec<Place> {
    let changeable = Rights::READ_WRITE_DELETE;
    let mut places: Vec<Place> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Outside(path) | Step::Directory(path) => {
                Some(Place::new(path, Kind::Own, Rights::READ))
            }
            Step::File { path, .. } => Some(Place::new(path, Kind::Own, Rights::READ)),
            Step::Link { target, path } => Some(Place::new(
                path,
                Kind::Link(target.to_bytes().to_vec()),
                Rights::NONE,
            )),
            Step::Proc(path) => Some(Place::new(path, Kind::Processes, Rights::READ)),
            Step::Terminals(path) | Step::Private(path) => {
                Some(Place::new(path, Kind::Private, changeable))
            }
            Step::Bind(bind) if bind.path.to_bytes().starts_with(b"dev/") => {
                Some(Place::new(&bind.path, Kind::Private, changeable))
            }
            Step::Bind(bind) => Some(Place::new(&bind.path, Kind::Bound, rights_of(bind.access))),
            Step::Protect(path) | Step::ProtectLink { path, .. } => {
                Some(Place::new(path, Kind::Protected, Rights::READ_EXECUTE))
            }
            Step::Mask { path, .. } => Some(Place::new(path, Kind::Masked, Rights::NONE)),
            Step::Pin(_) => None,
        })
        .collect();
    // Of two with one path the later step lies on top: a file, then what is bound onto it.
    places.reverse();
    places
}

/// Where a path leads.
pub(crate) enum Found<'p> {
    /// Into this place.
    In(&'p Place),
    /// To one of the directories above the places; it exists.
    Above,
    /// Nowhere: nothing was granted there.
    Outside,
    /// It cannot be told.
    Unknown,
}

/// A chain of our own links is never longer.
const MOST_LINKS: usize = 4;

/// Follows our own links in `path` and says where it leads.
pub(crate) fn find<'p>(places: &'p [Place], path: &mut PlainPath) -> Found<'p> {
    for _ in 0..MOST_LINKS {
        let mut deepest: Option<&Place> = None;
        for place in places {
            let deeper = deepest.is_none_or(|deepest| place.path.len() > deepest.path.len());
            if deeper && lies_in(path.bytes(), &place.path) {
                deepest = Some(place);
            }
        }
        match deepest {
            Some(Place {
                path: link,
                kind: Kind::Link(target),
                ..
            }) => {
                if path.redirect(link.len(), target).is_err() {
                    return Found::Unknown;
                }
            }
            Some(place) if place.kind == Kind::Processes && leads_anywhere(path.bytes()) => {
                return Found::Unknown;
            }
            Some(place) if place.kind == Kind::Own && place.path != path.bytes() => {
                return Found::Outside;
            }
            Some(place) if place.kind == Kind::Own => return Found::Above,
            Some(place) => return Found::In(place),
            None if path.bytes().is_empty() => return Found::Above,
            None => return Found::Outside,
        }
    }
    Found::Unknown
}

/// Links of the kernel into other trees.
fn leads_anywhere(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/')
        .any(|part| matches!(part, b"fd" | b"cwd" | b"root" | b"exe" | b"map_files"))
}
