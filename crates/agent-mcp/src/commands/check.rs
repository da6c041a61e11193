//! `agent-mcp check`: everything that can be known before the start, in one table (SPEC §15, interfaces.md §2). Changes
//! nothing, and waits for nobody longer than a few seconds.

mod configuration;
mod enforcement;
mod language;
mod machine;
mod model;
mod network;
mod places;
mod report;

pub(crate) use machine::memory_bytes;

use super::opening::{configured_locale, flag_locale, load_flag_locale};
use crate::cli::CheckArgs;
use crate::deployment::{
    Deployment, DeploymentError, Hashes, Judged, Narrowing, Threads, discover, look,
};
use crate::locale::Locale;
use policy::Localize;
use report::{Mark, Report};
use serde_json::json;
use std::path::Path;

/// Does it.
pub fn run(arguments: &CheckArgs) -> u8 {
    let named = arguments.common.config.as_deref();
    let mut report = Report::default();
    let read = match look(named) {
        Ok(read) => read,
        Err(problem) => {
            let locale = match flag_locale(arguments.common.lang.as_deref()) {
                Ok(locale) => locale,
                Err(code) => return code,
            };
            let nothing_to_show = matches!(problem, DeploymentError::NoConfiguration { .. });
            if nothing_to_show && !arguments.json {
                return super::opening::report(&locale, &problem);
            }
            let mut discovery = discover(named);
            // What cannot be used is told as that.
            discovery.found = None;
            configuration::discovered(&mut report, &locale, &discovery, Judged::NotYet);
            configuration::problem(&mut report, &locale, &problem);
            return report.print(arguments.json, &locale);
        }
    };
    // Whoever wrote what nobody has named or applied may have put texts beside it.
    let locale = match configured_locale(arguments.common.lang.as_deref(), &read) {
        Ok(locale) if read.judged == Judged::Yes => locale,
        Ok(locale) => load_flag_locale(Some(locale.language()))
            .unwrap_or_else(|_| Locale::built_in(locale.language())),
        Err(code) => return code,
    };
    configuration::discovered(&mut report, &locale, &discover(named), read.judged);
    let judged = read.judged;
    let mut hashes = Hashes::of(&read.file, Threads::All);
    match Deployment::with_hashes(read, &Narrowing::default(), &mut hashes) {
        Ok(deployment) => rows(&mut report, &locale, &deployment, &hashes, judged),
        Err(problem) => configuration::problem(&mut report, &locale, &problem),
    }
    report.print(arguments.json, &locale)
}

fn rows(
    report: &mut Report,
    locale: &Locale,
    deployment: &Deployment,
    hashes: &Hashes,
    judged: Judged,
) {
    configuration::applied(report, locale, deployment, hashes);
    configuration::contents(report, locale, deployment);
    if let Some(config) = &deployment.config {
        let base = deployment.file.as_deref().and_then(Path::parent);
        language::rows(report, locale, config, base.unwrap_or(Path::new("")));
    }
    places::rows(report, locale, &deployment.places);
    for root in deployment.policy.roots() {
        let detail = format!("{} {}", root.path.display(), root.rights);
        let data = json!({ "path": root.path, "rights": root.rights.to_string() });
        report.add_with(Mark::Ok, "root", detail, data);
    }
    for entry in deployment.policy.entries() {
        let (path, hash) = (&entry.resolved, entry.sha256.to_string());
        let detail = format!("{} = {} sha256:{hash}", entry.alias, path.display());
        let data = json!({ "alias": entry.alias, "path": path, "sha256": hash });
        report.add_with(Mark::Ok, "entry", detail, data);
    }
    let reach = network::rows(report, locale, deployment, judged);
    machine::rows(report, locale, deployment);
    enforcement::rows(report, locale, deployment, reach);
    if let Some(config) = &deployment.config {
        model::rows(report, locale, config, judged);
    }
}
