//! The network level, and what its names lead to now.

use super::super::resolution::{Answer, resolution};
use super::report::{Mark, Report};
use crate::deployment::{Deployment, Judged};
use crate::exit;
use crate::locale::Locale;
use policy::effective::NetworkPolicy;
use policy::{Localize, Message};
use serde_json::json;

/// Whether a sandbox could be made with what is granted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Every name leads where it may.
    Known,
    /// One does not, which was told, or nobody was asked.
    Unknown,
}

pub(super) fn rows(
    report: &mut Report,
    locale: &Locale,
    deployment: &Deployment,
    judged: Judged,
) -> Reach {
    let network = deployment.policy.network();
    let level = network.word();
    let (detail, data) = match network {
        NetworkPolicy::Local { ports } => {
            let words: Vec<String> = ports.iter().map(u16::to_string).collect();
            (
                format!("{level}: {}", words.join(", ")),
                json!({ "level": level, "ports": ports }),
            )
        }
        NetworkPolicy::None | NetworkPolicy::Private | NetworkPolicy::Restricted { .. } => {
            (level.to_owned(), json!({ "level": level }))
        }
    };
    report.add_with(Mark::Ok, "network", detail, data);
    if !matches!(network, NetworkPolicy::Restricted { .. }) {
        return Reach::Known;
    }
    let endpoints = match resolution(network, judged) {
        Ok(endpoints) => endpoints,
        Err(fault) => {
            report.fault(locale, "network", &fault, exit::SANDBOX);
            return Reach::Unknown;
        }
    };
    let mut reach = Reach::Known;
    for endpoint in endpoints {
        let shown = &endpoint.shown;
        let nothing = json!({ "endpoint": shown, "addresses": [] });
        match endpoint.answer {
            Answer::Addresses(addresses) => {
                let words: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                let detail = format!("{shown} = {}", words.join(", "));
                let data = json!({ "endpoint": shown, "addresses": words });
                report.add_with(Mark::Ok, "network", detail, data);
                continue;
            }
            // It may be known when the work starts, so this is no error of the file.
            Answer::Unknown(reason) => {
                let message = Message::new("check.name_unknown")
                    .with("endpoint", shown)
                    .with("detail", reason.as_deref().unwrap_or("-"));
                report.add_with(Mark::Warning, "network", locale.text(&message), nothing);
            }
            Answer::NotAsked => {
                let message = Message::new("check.name_not_asked").with("endpoint", shown);
                report.add_with(Mark::Warning, "network", locale.text(&message), nothing);
            }
            Answer::Refused(refusal) => {
                report.refusal(locale, "network", &refusal, exit::USAGE);
            }
        }
        reach = Reach::Unknown;
    }
    reach
}
