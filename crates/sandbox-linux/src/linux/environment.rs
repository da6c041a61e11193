//! The environment of a confined program: a table, then what the policy gives. Nothing is inherited by accident.

use super::plan::{HOME, PrivateArea};
use policy::EffectivePolicy;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

pub(crate) use crate::exec::PATH;

enum Value {
    /// Always this.
    Fixed(&'static str),
    /// The private directory, or a directory in it.
    Private(Option<&'static CStr>),
    /// The caller's value where it is a plain word, else this.
    Caller(Option<&'static str>),
}

struct Line {
    name: &'static str,
    value: Value,
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "for readers, and for the test that demands one per line"
        )
    )]
    reason: &'static str,
}

const TABLE: &[Line] = &[
    Line {
        name: "PATH",
        value: Value::Fixed(PATH),
        reason: "programs start programs by name",
    },
    Line {
        name: "HOME",
        value: Value::Private(Some(HOME)),
        reason: "tools write caches there; it is memory and gone with the Task",
    },
    Line {
        name: "TMPDIR",
        value: Value::Private(None),
        reason: "temporary files; memory, gone with the Task",
    },
    Line {
        name: "USER",
        value: Value::Fixed("agent"),
        reason: "the one name in the generated passwd",
    },
    Line {
        name: "LOGNAME",
        value: Value::Fixed("agent"),
        reason: "the POSIX spelling of USER",
    },
    Line {
        name: "LANG",
        value: Value::Caller(Some("C.UTF-8")),
        reason: "text encoding and messages as the caller has them",
    },
    Line {
        name: "LC_ALL",
        value: Value::Caller(None),
        reason: "overrides LANG where the caller says so",
    },
    Line {
        name: "TZ",
        value: Value::Caller(None),
        reason: "local time as the caller has it",
    },
    Line {
        name: "TERM",
        value: Value::Caller(None),
        reason: "a program on a terminal must know which",
    },
];

/// Long values and anything but a plain word stay out: a locale or a zone needs no more, an attack might.
fn is_plain(value: &OsStr) -> bool {
    let bytes = value.as_bytes();
    (1..=64).contains(&bytes.len())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.@+/:,".contains(byte))
}

/// `NAME=value` for every variable, sorted by name.
pub(crate) fn environment(
    policy: &EffectivePolicy,
    private: &PrivateArea,
    caller: impl Fn(&str) -> Option<OsString>,
) -> Vec<CString> {
    let mut variables: BTreeMap<&str, OsString> = BTreeMap::new();
    for line in TABLE {
        let value = match line.value {
            Value::Fixed(value) => Some(value.into()),
            Value::Private(below) => Some(private.path_of(below).into_os_string()),
            Value::Caller(fallback) => caller(line.name)
                .filter(|value| is_plain(value))
                .or(fallback.map(Into::into)),
        };
        if let Some(value) = value {
            variables.insert(line.name, value);
        }
    }
    for (name, value) in policy.environment() {
        variables.insert(name, value.into());
    }
    variables
        .into_iter()
        .filter_map(|(name, value)| {
            let mut pair = OsString::from(name).into_vec();
            pair.push(b'=');
            pair.extend(value.into_vec());
            // A NUL cannot be given to any program; the configuration refuses it earlier.
            CString::new(pair).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_listed_once_with_a_reason() {
        let mut names: Vec<_> = TABLE.iter().map(|line| line.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
        assert!(TABLE.iter().all(|line| line.reason.len() > 8));
    }

    #[test]
    fn only_plain_words_come_from_the_caller() {
        for good in ["ja_JP.UTF-8", "Asia/Tokyo", "xterm-256color", "C"] {
            assert!(is_plain(OsStr::new(good)), "{good}");
        }
        for bad in ["", "() { :; }; x", "a b", "a\nb", "$(x)"] {
            assert!(!is_plain(OsStr::new(bad)), "{bad}");
        }
    }
}
