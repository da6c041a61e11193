//! Read, write, execute and delete are four rights (SPEC §11.2, FS-04).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::BitOr;

/// One file right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// Read contents, list directories.
    Read,
    /// Create, overwrite and rename; not delete.
    Write,
    /// Use a file as a program.
    Execute,
    /// Remove a file or directory.
    Delete,
}

impl Right {
    /// The stable word used in results and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Execute => "execute",
            Self::Delete => "delete",
        }
    }

    const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Execute, Self::Delete];

    fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::Execute => 4,
            Self::Delete => 8,
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A set of rights.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// No right at all.
    pub const NONE: Self = Self(0);
    /// Read only.
    pub const READ: Self = Self(1);
    /// Read and execute: a runtime root.
    pub const READ_EXECUTE: Self = Self(1 | 4);
    /// Read and write.
    pub const READ_WRITE: Self = Self(1 | 2);
    /// Read, write, delete.
    pub const READ_WRITE_DELETE: Self = Self(1 | 2 | 8);
    /// All four: a development workspace.
    pub const ALL: Self = Self(1 | 2 | 4 | 8);

    /// Whether the right is in the set.
    pub fn allows(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    /// Whether every right of `other` is in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The rights in both sets.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The rights in order.
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL
            .into_iter()
            .filter(move |right| self.allows(*right))
    }
}

impl From<Right> for Rights {
    fn from(right: Right) -> Self {
        Self(right.bit())
    }
}

impl BitOr for Rights {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("none");
        }
        for (index, right) in self.iter().enumerate() {
            if index > 0 {
                f.write_str("+")?;
            }
            f.write_str(right.word())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rights({self})")
    }
}
