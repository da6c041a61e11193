//! The network level, and what its names lead to now. The resolver is asked in a process of its own, for five seconds at
//! most; no address is dialled.

use super::report::{Mark, Report};
use crate::deployment::Deployment;
use crate::exit;
use crate::locale::Locale;
use policy::effective::NetworkPolicy;
use policy::reach::reachable;
use policy::{Localize, Message};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Whether a sandbox could be made with what is granted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Every name leads where it may.
    Known,
    /// One does not, which was told.
    Unknown,
}

pub(super) fn rows(report: &mut Report, locale: &Locale, deployment: &Deployment) -> Reach {
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
    match network {
        NetworkPolicy::Restricted { endpoints } => restricted(report, locale, endpoints),
        NetworkPolicy::None | NetworkPolicy::Private | NetworkPolicy::Local { .. } => Reach::Known,
    }
}

fn restricted(report: &mut Report, locale: &Locale, endpoints: &BTreeSet<(String, u16)>) -> Reach {
    let mut reach = Reach::Known;
    let names: BTreeSet<&String> = endpoints
        .iter()
        .map(|(host, _)| host)
        .filter(|host| host.parse::<IpAddr>().is_err())
        .collect();
    let names: Vec<String> = names.into_iter().cloned().collect();
    let answers = if names.is_empty() {
        Ok(sandbox_linux::Answers::new())
    } else {
        sandbox_linux::ask_for_names(&names)
    };
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => {
            let fault = crate::compose::sandbox_fault(&error);
            report.fault(locale, "network", &fault, exit::SANDBOX);
            return Reach::Unknown;
        }
    };
    for (host, port) in endpoints {
        let endpoint = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let answered: &[IpAddr] = match answers.get(host) {
            None => &[],
            Some(Ok(answered)) if !answered.is_empty() => answered,
            // It may be known when the work starts, so this is no error of the file.
            Some(answer) => {
                let reason = match answer {
                    Ok(_) => "-",
                    Err(reason) => reason,
                };
                let message = Message::new("check.name_unknown")
                    .with("endpoint", &endpoint)
                    .with("detail", reason);
                let data = json!({ "endpoint": endpoint, "addresses": [] });
                report.add_with(Mark::Warning, "network", locale.text(&message), data);
                reach = Reach::Unknown;
                continue;
            }
        };
        match reachable(endpoints, (host, *port), answered) {
            Ok(addresses) => {
                let addresses: Vec<String> = addresses
                    .iter()
                    .map(|address| address.ip().to_string())
                    .collect();
                let detail = format!("{endpoint} = {}", addresses.join(", "));
                let data = json!({ "endpoint": endpoint, "addresses": addresses });
                report.add_with(Mark::Ok, "network", detail, data);
            }
            Err(refusal) => {
                report.refusal(locale, "network", &refusal, exit::USAGE);
                reach = Reach::Unknown;
            }
        }
    }
    reach
}
