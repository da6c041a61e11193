//! What differs between two snapshots, object by object, and which way the door moved.

use super::{AppliedEntry, AppliedRoot, Snapshot};
use policy::{Code, Refusal, SandboxMode};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Which way it moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It was not there.
    Added,
    /// It is not there any more.
    Removed,
    /// More is allowed.
    Widened,
    /// Less is allowed.
    Narrowed,
    /// Something else.
    Changed,
}

impl Change {
    /// Whether a person should look twice.
    pub fn widens(self) -> bool {
        matches!(self, Self::Added | Self::Widened)
    }
}

/// One object that is not as it was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which way.
    pub change: Change,
    /// The object: `workspace /work`, `entry sh`, a configuration key, the configuration itself.
    pub object: String,
    /// What was applied.
    pub old: Option<String>,
    /// What is now.
    pub new: Option<String>,
    /// Whether the bytes of an entry differ.
    #[serde(skip)]
    pub bytes: bool,
}

impl Difference {
    /// ST-24: why everything stays closed.
    pub fn refusal(&self) -> Refusal {
        let code = match self.bytes {
            true => Code::ExecutableHashChanged,
            false => Code::SandboxResolutionChanged,
        };
        Refusal::new(code, "apply", format!("{}: {}", self.object, self.values()))
    }

    /// `old → new`; `-` where there is none.
    pub fn values(&self) -> String {
        let shown = |value: &Option<String>| match value.as_deref() {
            None | Some("") => "-".to_owned(),
            Some(value) => value.to_owned(),
        };
        format!("{} → {}", shown(&self.old), shown(&self.new))
    }
}

/// Everything that differs; empty only if both are the same. Without an old one everything is added.
pub fn differences(old: Option<&Snapshot>, new: &Snapshot) -> Vec<Difference> {
    let mut found = Vec::new();
    if let Some(old) = old
        && old.fingerprint != new.fingerprint
    {
        let difference = changed(
            format!("configuration {}", new.config.display()),
            &old.fingerprint,
            &new.fingerprint,
        );
        found.push(difference);
    }
    roots(old, new, &mut found);
    entries(old, new, &mut found);
    settings(old, new, &mut found);
    found
}

fn changed(object: String, old: &str, new: &str) -> Difference {
    Difference {
        change: Change::Changed,
        object,
        old: Some(old.to_owned()),
        new: Some(new.to_owned()),
        bytes: false,
    }
}

/// Pairs the values of the same key; a key on one side only was added or removed.
fn pair<'s, T, K: Ord>(
    old: impl Iterator<Item = &'s T>,
    new: impl Iterator<Item = &'s T>,
    key: impl Fn(&'s T) -> K,
) -> Vec<(Option<&'s T>, Option<&'s T>)> {
    let mut pairs: BTreeMap<K, (Option<&T>, Option<&T>)> = BTreeMap::new();
    for value in old {
        pairs.entry(key(value)).or_default().0 = Some(value);
    }
    for value in new {
        pairs.entry(key(value)).or_default().1 = Some(value);
    }
    pairs.into_values().collect()
}

fn one_sided<T>(
    (old, new): (Option<&T>, Option<&T>),
    object: impl Fn(&T) -> String,
    value: impl Fn(&T) -> String,
) -> Option<Difference> {
    let (change, present) = match (old, new) {
        (None, Some(new)) => (Change::Added, new),
        (Some(old), None) => (Change::Removed, old),
        _ => return None,
    };
    Some(Difference {
        change,
        object: object(present),
        old: old.map(&value),
        new: new.map(&value),
        bytes: false,
    })
}

fn roots(old: Option<&Snapshot>, new: &Snapshot, found: &mut Vec<Difference>) {
    let object = |root: &AppliedRoot| format!("{} {}", root.origin, root.logical.display());
    let value = |root: &AppliedRoot| format!("{} [{}]", root.place(), root.rights.join(" "));
    let old = old.map(|old| old.roots.as_slice()).unwrap_or_default();
    for (old, new) in pair(old.iter(), new.roots.iter(), AppliedRoot::object) {
        found.extend(one_sided((old, new), object, value));
        let (Some(old), Some(new)) = (old, new) else {
            continue;
        };
        if old.place() != new.place() {
            found.push(changed(object(new), &old.place(), &new.place()));
        }
        if old.rights != new.rights {
            let set = |root: &AppliedRoot| root.rights.iter().cloned().collect::<BTreeSet<_>>();
            let change = match (set(old), set(new)) {
                (old, new) if old.is_subset(&new) => Change::Widened,
                (old, new) if new.is_subset(&old) => Change::Narrowed,
                _ => Change::Widened,
            };
            found.push(Difference {
                change,
                ..changed(object(new), &old.rights.join(" "), &new.rights.join(" "))
            });
        }
    }
}

fn entries(old: Option<&Snapshot>, new: &Snapshot, found: &mut Vec<Difference>) {
    let object = |entry: &AppliedEntry| format!("entry {}", entry.alias);
    let place = |entry: &AppliedEntry| {
        format!(
            "{} = {} ({})",
            entry.logical.display(),
            entry.resolved.display(),
            entry.kind
        )
    };
    let value = |entry: &AppliedEntry| format!("{} sha256 {}", place(entry), entry.sha256);
    let old = old.map(|old| old.entries.as_slice()).unwrap_or_default();
    let key = |entry: &AppliedEntry| entry.alias.to_lowercase();
    for (old, new) in pair(old.iter(), new.entries.iter(), key) {
        found.extend(one_sided((old, new), object, value));
        let (Some(old), Some(new)) = (old, new) else {
            continue;
        };
        if place(old) != place(new) || old.alias != new.alias {
            found.push(changed(object(new), &place(old), &place(new)));
        }
        if old.sha256 != new.sha256 {
            let object = format!("{} ({})", object(new), new.resolved.display());
            found.push(Difference {
                bytes: true,
                ..changed(object, &old.sha256, &new.sha256)
            });
        }
    }
}

fn settings(old: Option<&Snapshot>, new: &Snapshot, found: &mut Vec<Difference>) {
    let none = BTreeMap::new();
    let old = old.map_or(&none, |old| &old.settings);
    let keys: BTreeSet<&String> = old.keys().chain(new.settings.keys()).collect();
    for key in keys {
        let (before, after) = (old.get(key), new.settings.get(key));
        let change = match (before, after) {
            (before, after) if before == after => continue,
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            (Some(before), Some(after)) => direction(key, before, after),
        };
        found.push(Difference {
            change,
            object: key.clone(),
            old: before.cloned(),
            new: after.cloned(),
            bytes: false,
        });
    }
}

/// Which way a setting moved, where its values have an order.
fn direction(key: &str, old: &str, new: &str) -> Change {
    const LEVELS: [&str; 4] = ["none", "private", "local", "restricted"];
    let rank = |value: &str| -> Option<u64> {
        match key {
            "sandbox.mode" | "sandbox.max_mode" => [
                SandboxMode::ReadOnly,
                SandboxMode::WorkspaceWrite,
                SandboxMode::DangerFullAccess,
            ]
            .iter()
            .position(|mode| mode.word() == value)
            .and_then(|at| u64::try_from(at).ok()),
            "sandbox.network.access" => LEVELS
                .iter()
                .position(|level| *level == value)
                .and_then(|at| u64::try_from(at).ok()),
            key if key.starts_with("sandbox.resources.") => value.parse().ok(),
            _ => None,
        }
    };
    match (rank(old), rank(new)) {
        (Some(old), Some(new)) if old < new => Change::Widened,
        (Some(old), Some(new)) if old > new => Change::Narrowed,
        _ => Change::Changed,
    }
}
