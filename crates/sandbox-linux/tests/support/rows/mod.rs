//! The rows of the escape matrix: attack × what must happen inside × whether the control must succeed outside.
//!
//! SEC-INV-03, SEC-INV-04, SEC-INV-06, SEC-INV-08, SEC-INV-10; ST-01 to ST-03, ST-05, ST-06, ST-10, ST-12, ST-19, ST-20; FS-03, FS-04;
//! AT-07, AT-08, AT-10. Runs as root and as an ordinary user; what one of them cannot try is a typed skip.

macro_rules! p {
    ($($word:expr),*) => { |_| vec![$($word.to_string()),*] };
}

mod calls;
mod keeps;
mod kernel;
pub mod network;
mod rights;
mod view;

use super::world::{World, text};
use std::path::Path;

/// What must happen inside.
pub enum Inside {
    /// Exactly one of these error numbers.
    Errno(&'static [i32]),
    /// It works, and the line starts so.
    Works(&'static str),
    /// The program is ended by this signal or cannot be started.
    Line(fn(&str) -> bool),
}

/// Whether the same probe must succeed unconfined.
#[derive(Clone, Copy, PartialEq)]
pub enum Control {
    /// It must: else the row proves nothing and fails.
    Succeeds,
    /// Only for the host's root; others skip the row's control.
    RootOnly,
    /// The machine may lack it.
    MachineMayLack(&'static str),
    /// The probe only reports; there is nothing to compare.
    None,
}

pub struct Row {
    pub name: &'static str,
    pub rights: &'static str,
    pub private_network: bool,
    pub probe: fn(&World) -> Vec<String>,
    pub control: Control,
    pub inside: Inside,
}

pub const fn row(
    name: &'static str,
    probe: fn(&World) -> Vec<String>,
    control: Control,
    errno: &'static [i32],
) -> Row {
    Row {
        name,
        rights: "rwd",
        private_network: false,
        probe,
        control,
        inside: Inside::Errno(errno),
    }
}

pub const fn works(
    name: &'static str,
    probe: fn(&World) -> Vec<String>,
    start: &'static str,
) -> Row {
    Row {
        name,
        rights: "rwd",
        private_network: false,
        probe,
        control: Control::Succeeds,
        inside: Inside::Works(start),
    }
}

impl Row {
    pub const fn errno(self, errno: &'static [i32]) -> Self {
        Row {
            inside: Inside::Errno(errno),
            ..self
        }
    }
    pub const fn rights(self, rights: &'static str) -> Self {
        Row { rights, ..self }
    }
    pub const fn private(self) -> Self {
        Row {
            private_network: true,
            ..self
        }
    }
    pub const fn control(self, control: Control) -> Self {
        Row { control, ..self }
    }
}

pub fn at(directory: &Path, rest: &str) -> String {
    text(&directory.join(rest))
}

/// Every row.
pub fn all() -> impl Iterator<Item = &'static Row> {
    [
        view::ROWS,
        rights::ROWS,
        kernel::ROWS,
        network::ROWS,
        keeps::ROWS,
        calls::OUTSIDE,
        calls::REFUSED,
        calls::MORE,
    ]
    .into_iter()
    .flatten()
}
