//! `agent-mcp show`: what the configuration asks for, what that is on this machine, and what of it is applied (DESIGN
//! §10.6). Changes nothing.

use super::opening::{Unjudged, open_unjudged};
use super::resolution::{Answer, resolution, shown};
use crate::cli::ShowArgs;
use crate::deployment::applied::{AppliedEntry, AppliedRoot, Snapshot, Store, differences};
use crate::deployment::{Deployment, Narrowing};
use crate::exit;
use crate::locale::Locale;
use crate::table::{Cell, Style, Table};
use crate::terminal::{Terminal, out_json};
use policy::effective::{GrantedRoot, Origin};
use policy::{Fault, Localize, Message, Right, Rights};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// How an object stands to what is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// As it was applied.
    Applied,
    /// Not applied yet.
    New,
    /// Applied otherwise.
    Changed,
    /// Applied, and not asked for any more.
    Removed,
    /// It comes with the system and is never applied.
    System,
}

impl State {
    fn of<T: PartialEq + ?Sized>(old: Option<&T>, new: Option<&T>) -> Self {
        match (old, new) {
            (Some(old), Some(new)) if old == new => Self::Applied,
            (Some(_), Some(_)) => Self::Changed,
            (None, _) => Self::New,
            (_, None) => Self::Removed,
        }
    }

    fn cell(self, locale: &Locale) -> Cell {
        let (id, style) = match self {
            Self::Applied => ("show.applied", Style::Green),
            Self::New => ("show.new", Style::Yellow),
            Self::Changed => ("show.changed", Style::Red),
            Self::Removed => ("show.removed", Style::Yellow),
            Self::System => ("show.system", Style::Dim),
        };
        Cell::styled(&locale.text(&Message::new(id)), style)
    }
}

#[derive(Serialize)]
struct Root {
    origins: Vec<&'static str>,
    desired: Option<String>,
    resolved: String,
    rights: Vec<&'static str>,
    state: State,
}

#[derive(Serialize)]
struct Entry<'s> {
    alias: &'s str,
    kind: &'s str,
    desired: String,
    resolved: String,
    sha256: &'s str,
    state: State,
}

#[derive(Serialize)]
struct Setting<'s> {
    key: &'s str,
    now: Option<&'s str>,
    applied: Option<&'s str>,
    state: State,
}

#[derive(Serialize)]
struct Network {
    level: &'static str,
    applied_level: Option<String>,
    state: State,
    endpoints: Vec<EndpointRow>,
}

#[derive(Serialize)]
struct EndpointRow {
    endpoint: String,
    /// What it leads to now; none where that is not known.
    addresses: Vec<String>,
    /// Why that is not known, or must not be reached.
    detail: Option<String>,
    state: State,
}

/// Does it. 0 whether or not anything is applied: to look is no failure.
pub fn run(arguments: &ShowArgs) -> u8 {
    let opened = match open_unjudged(&arguments.common, &Narrowing::default()) {
        Ok(opened) => opened,
        Err(code) => return code,
    };
    let (deployment, now, locale) = (&opened.deployment, &opened.snapshot, &opened.locale);
    let terminal = Terminal::new(locale);
    let (applied, unreadable) = match Store::of_user().and_then(|store| store.read(&now.config)) {
        Ok(applied) => (applied, None),
        Err(fault) => (None, Some(fault)),
    };
    let roots = roots(deployment, now, applied.as_ref());
    let entries = entries(now, applied.as_ref());
    let settings = settings(now, applied.as_ref());
    let network = match network(&opened, applied.as_ref()) {
        Ok(network) => network,
        Err(fault) => {
            terminal.fault(&fault);
            return exit::of(fault.code);
        }
    };
    let equal = applied.is_some() && differences(applied.as_ref(), now).is_empty();
    if arguments.json {
        out_json(&json!({
            "config": now.config, "applied": equal, "roots": roots, "entries": entries, "network": network,
            "settings": settings,
        }));
    } else {
        print(&terminal, locale, &roots, &entries, &network, &settings);
        let id = match (&applied, equal) {
            (_, true) => "show.is_applied",
            (None, _) => "show.is_not_applied",
            (Some(_), _) => "show.has_drifted",
        };
        terminal.say(&Message::new(id).with("config", now.config.display()));
    }
    match unreadable {
        None => {
            if let Some(problem) = opened.hashes.problem() {
                terminal.fault(problem);
            }
            exit::OK
        }
        Some(fault) => {
            terminal.fault(&fault);
            exit::of(fault.code)
        }
    }
}

fn words(rights: Rights) -> Vec<&'static str> {
    rights.iter().map(Right::word).collect()
}

/// Every root of the frozen policy with its origins, what was applied and is gone, and what the system needs.
fn roots(deployment: &Deployment, now: &Snapshot, applied: Option<&Snapshot>) -> Vec<Root> {
    let old = applied.map(|old| old.roots.as_slice()).unwrap_or_default();
    let same = |root: &AppliedRoot| {
        old.iter()
            .find(|old| (&old.origin, &old.logical) == (&root.origin, &root.logical))
    };
    let mut shown: Vec<Root> = deployment
        .policy
        .roots()
        .iter()
        .map(|root: &GrantedRoot| {
            let declared = now
                .roots
                .iter()
                .find(|declared| declared.resolved == root.path);
            let entry = now.entries.iter().find(|entry| entry.resolved == root.path);
            let state = match (declared, entry) {
                (Some(declared), _) => State::of(same(declared), Some(declared)),
                (None, Some(entry)) => entry_state(applied, entry),
                (None, None) => State::New,
            };
            let desired = declared
                .map(|declared| &declared.logical)
                .or(entry.map(|entry| &entry.logical));
            Root {
                origins: root.origins.iter().map(|origin| origin.word()).collect(),
                desired: desired.map(|path| path.display().to_string()),
                resolved: root.path.display().to_string(),
                rights: words(root.rights),
                state,
            }
        })
        .collect();
    let gone = old.iter().filter(|old| {
        !now.roots
            .iter()
            .any(|root| (&root.origin, &root.logical) == (&old.origin, &old.logical))
    });
    shown.extend(gone.map(|old| Root {
        origins: Vec::new(),
        desired: None,
        resolved: old.resolved.display().to_string(),
        rights: Vec::new(),
        state: State::Removed,
    }));
    let system = sandbox_linux::system_places().into_iter();
    shown.extend(system.map(|(path, rights)| Root {
        origins: vec![Origin::OsRuntimeRoot.word()],
        desired: None,
        resolved: path.display().to_string(),
        rights: words(rights),
        state: State::System,
    }));
    shown
}

fn entry_state(applied: Option<&Snapshot>, entry: &AppliedEntry) -> State {
    let old = applied.and_then(|old| {
        old.entries
            .iter()
            .find(|old| old.alias.to_lowercase() == entry.alias.to_lowercase())
    });
    State::of(old, Some(entry))
}

fn entries<'s>(now: &'s Snapshot, applied: Option<&'s Snapshot>) -> Vec<Entry<'s>> {
    let show = |entry: &'s AppliedEntry, state| Entry {
        alias: &entry.alias,
        kind: &entry.kind,
        desired: entry.logical.display().to_string(),
        resolved: entry.resolved.display().to_string(),
        sha256: &entry.sha256,
        state,
    };
    let mut shown: Vec<Entry<'s>> = now
        .entries
        .iter()
        .map(|entry| show(entry, entry_state(applied, entry)))
        .collect();
    let old = applied
        .map(|old| old.entries.as_slice())
        .unwrap_or_default();
    let is_asked_for = |old: &AppliedEntry| {
        now.entries
            .iter()
            .any(|entry| entry.alias.to_lowercase() == old.alias.to_lowercase())
    };
    let gone = old.iter().filter(|old| !is_asked_for(old));
    shown.extend(gone.map(|old| show(old, State::Removed)));
    shown
}

fn settings<'s>(now: &'s Snapshot, applied: Option<&'s Snapshot>) -> Vec<Setting<'s>> {
    let mut both: BTreeMap<&str, (Option<&String>, Option<&String>)> = BTreeMap::new();
    for (key, value) in applied.iter().flat_map(|old| &old.settings) {
        both.entry(key).or_default().0 = Some(value);
    }
    for (key, value) in &now.settings {
        both.entry(key).or_default().1 = Some(value);
    }
    both.into_iter()
        .map(|(key, (old, new))| Setting {
            key,
            now: new.map(String::as_str),
            applied: old.map(String::as_str),
            state: State::of(old, new),
        })
        .collect()
}

const ACCESS: &str = "sandbox.network.access";
/// How the applied store calls an endpoint.
const ENDPOINT: &str = "sandbox.network.";

/// The level and each endpoint with what it leads to now, beside what was applied of them. The addresses themselves are never
/// applied: a Task takes those of its start (DESIGN §10.4).
fn network(opened: &Unjudged, applied: Option<&Snapshot>) -> Result<Network, Fault> {
    let policy = opened.deployment.policy.network();
    let setting = |key: &str| applied.and_then(|applied| applied.settings.get(key));
    let level = policy.word();
    let applied_level = setting(ACCESS).cloned();
    let mut gone: BTreeSet<&str> = applied
        .iter()
        .flat_map(|applied| applied.settings.keys())
        .filter_map(|key| {
            key.strip_prefix(ENDPOINT)?
                .strip_suffix(']')?
                .split_once('[')
        })
        .map(|(_, endpoint)| endpoint)
        .collect();
    let mut endpoints = Vec::new();
    for endpoint in resolution(policy, opened.judged)? {
        let was_applied = gone.remove(endpoint.key.as_str());
        let text = |message: &Message| opened.locale.text(message);
        let (addresses, detail) = match &endpoint.answer {
            Answer::Addresses(addresses) => (addresses.as_slice(), None),
            Answer::Unknown(reason) => {
                let unknown = Message::new("check.name_unknown")
                    .with("endpoint", &endpoint.shown)
                    .with("detail", reason.as_deref().unwrap_or("-"));
                (&[][..], Some(text(&unknown)))
            }
            Answer::NotAsked => {
                let not_asked =
                    Message::new("check.name_not_asked").with("endpoint", &endpoint.shown);
                (&[][..], Some(text(&not_asked)))
            }
            Answer::Refused(refusal) => (&[][..], Some(text(&refusal.message()))),
        };
        endpoints.push(EndpointRow {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            detail,
            state: if was_applied {
                State::Applied
            } else {
                State::New
            },
            endpoint: endpoint.shown,
        });
    }
    endpoints.extend(gone.into_iter().map(|endpoint| EndpointRow {
        endpoint: shown(endpoint),
        addresses: Vec::new(),
        detail: None,
        state: State::Removed,
    }));
    Ok(Network {
        level,
        state: State::of(applied_level.as_deref(), Some(level)),
        applied_level,
        endpoints,
    })
}

fn print(
    terminal: &Terminal<'_>,
    locale: &Locale,
    roots: &[Root],
    entries: &[Entry<'_>],
    network: &Network,
    settings: &[Setting<'_>],
) {
    let text = |id: &'static str| locale.text(&Message::new(id));
    let heading = |table: &mut Table, ids: &[&'static str]| {
        let words: Vec<String> = ids.iter().map(|id| text(id)).collect();
        table.heading(words.iter().map(String::as_str));
    };
    let mut table = Table::new();
    heading(
        &mut table,
        &[
            "show.state",
            "show.read",
            "show.write",
            "show.execute",
            "show.delete",
            "show.origin",
            "show.resolved",
            "show.desired",
        ],
    );
    for root in roots {
        let mut cells = vec![root.state.cell(locale)];
        for right in [Right::Read, Right::Write, Right::Execute, Right::Delete] {
            let has = root.rights.contains(&right.word());
            cells.push(Cell::from(if has { right.word() } else { "-" }));
        }
        cells.push(root.origins.join(", ").into());
        cells.push(root.resolved.clone().into());
        cells.push(
            root.desired
                .clone()
                .unwrap_or_else(|| "-".to_owned())
                .into(),
        );
        table.row(cells);
    }
    terminal.table(&table);
    let mut table = Table::new();
    heading(
        &mut table,
        &[
            "show.state",
            "show.entry",
            "show.kind",
            "show.resolved",
            "show.sha256",
        ],
    );
    for entry in entries {
        table.row([
            entry.state.cell(locale),
            entry.alias.into(),
            entry.kind.into(),
            entry.resolved.clone().into(),
            entry.sha256.into(),
        ]);
    }
    if !entries.is_empty() {
        terminal.table(&table);
    }
    let mut table = Table::new();
    heading(
        &mut table,
        &["show.state", "show.network", "show.now", "show.before"],
    );
    let applied_level = network.applied_level.as_deref().unwrap_or("-");
    table.row([
        network.state.cell(locale),
        ACCESS.into(),
        network.level.into(),
        applied_level.into(),
    ]);
    for endpoint in &network.endpoints {
        let now = match &endpoint.detail {
            None if endpoint.addresses.is_empty() => "-".to_owned(),
            None => endpoint.addresses.join(", "),
            Some(detail) => detail.clone(),
        };
        let before = match endpoint.state {
            State::New => "-",
            _ => endpoint.endpoint.as_str(),
        };
        table.row([
            endpoint.state.cell(locale),
            endpoint.endpoint.as_str().into(),
            now.into(),
            before.into(),
        ]);
    }
    terminal.table(&table);
    let mut table = Table::new();
    heading(
        &mut table,
        &["show.state", "show.key", "show.now", "show.before"],
    );
    for setting in settings {
        let before = match setting.state {
            State::Applied => "",
            _ => setting.applied.unwrap_or("-"),
        };
        table.row([
            setting.state.cell(locale),
            setting.key.into(),
            setting.now.unwrap_or("-").into(),
            before.into(),
        ]);
    }
    terminal.table(&table);
}
