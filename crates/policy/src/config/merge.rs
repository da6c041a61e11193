//! The local file over the base file (DESIGN §10.1): maps together, everything else replaced, before any typing.

use super::finding::FindingCode;
use super::node::{Content, Node, shorten};
use super::report::{Details, Report, join};
use std::collections::HashMap;

/// Merges `local` over `base`. Every node keeps the position of the file it comes from.
///
/// A key without value in the local file would erase a whole section of the base file, protections included; that is an
/// error, because it is nearly always a section whose lines are commented out.
pub(super) fn merge(base: &mut Node, local: Node, path: &str, report: &mut Report<'_>) {
    let erases = local.is_null();
    match (&mut base.content, local.content) {
        (Content::Map(known), Content::Map(entries)) => {
            let index: HashMap<String, usize> = known
                .iter()
                .enumerate()
                .map(|(index, entry)| (entry.key.clone(), index))
                .collect();
            for entry in entries {
                match index
                    .get(&entry.key)
                    .and_then(|index| known.get_mut(*index))
                {
                    Some(old) => {
                        old.mark = entry.mark;
                        let path = join(path, &shorten(&entry.key));
                        merge(&mut old.value, entry.value, &path, report);
                    }
                    None => known.push(entry),
                }
            }
        }
        (Content::Map(known), _) if erases && !known.is_empty() => {
            report.add(
                FindingCode::EmptyOverride,
                local.mark,
                path,
                Details::default(),
            );
        }
        (_, content) => {
            base.mark = local.mark;
            base.content = content;
        }
    }
}
