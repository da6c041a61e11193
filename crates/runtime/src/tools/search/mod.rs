//! `file_search` (DESIGN §7.1): names, lines, and the end of a file; never through a link, never beyond the judged root.

mod content;
mod names;
mod tail;
mod tree;

use super::open::{existing_file, shown};
use super::result::ToolResult;
use super::{EffectLog, HARD_SEARCH_RESULTS, HARD_TAIL_LINES, ToolContext, text};
use policy::path::{ObjectKind, ResolvedPath};
use policy::tool::{FileSearch, SearchMode};
use policy::{Code, Refusal};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Longest part of a line that is shown, characters.
const LINE_CHARACTERS: usize = 400;
/// Most bytes of results that are shown, whatever their number.
const OUTPUT_BYTES: usize = 256 * 1024;

/// Searches below the judged root.
///
/// Glob patterns without a slash match file names at any depth, others the path below the root; names are compared
/// without regard to case; text and regular expressions with it.
///
/// # Errors
/// `tool.arguments_invalid` for a broken pattern, `file.binary` for the tail of a binary, `run.cancelled`.
pub(super) fn run<L: EffectLog>(
    call: &FileSearch,
    root: &ResolvedPath,
    context: &ToolContext<'_, L>,
) -> Result<ToolResult, Refusal> {
    let Some(object) = root.object() else {
        return Err(Refusal::new(
            Code::FileNotFound,
            "must exist",
            shown(root.path()),
        ));
    };
    if call.mode == SearchMode::Tail {
        existing_file(root)?;
        let most = context.limits.tail_max_lines.min(HARD_TAIL_LINES);
        let output = tail::run(
            root,
            call.tail_lines.unwrap_or(100).min(most),
            context.limits.whole_read_bytes,
        )?;
        return Ok(ToolResult::success(
            output,
            Some(shown(root.path())),
            Vec::new(),
        ));
    }
    let most = context.limits.search_max_results.min(HARD_SEARCH_RESULTS);
    let wanted = call.max_results.unwrap_or(100).min(most);
    let bounds = tree::Bounds {
        keep: usize::try_from(wanted).unwrap_or(usize::MAX),
        own_files: below(context.policy.own_files(), root.path()),
        cancelled: context.cancelled,
    };
    let findings = match call.mode {
        SearchMode::Glob => {
            let glob = names::Names::glob(&call.query, root.path())?;
            tree::walk(
                root,
                object.kind,
                &bounds,
                || glob.clone(),
                names::Names::visit,
            )
        }
        SearchMode::Name => {
            let name = names::Names::part(&call.query);
            tree::walk(
                root,
                object.kind,
                &bounds,
                || name.clone(),
                names::Names::visit,
            )
        }
        SearchMode::Text | SearchMode::Regex | SearchMode::Tail => {
            let pattern =
                content::Pattern::new(&call.query, call.mode == SearchMode::Regex, bounds.keep)?;
            tree::walk(
                root,
                object.kind,
                &bounds,
                || pattern.lines(),
                content::Lines::visit,
            )
        }
    };
    let findings =
        findings.map_err(|error| super::os::refused(&error, shown(root.path()), None))?;
    if context.is_cancelled() {
        return Err(Refusal::new(Code::Cancelled, "run", shown(root.path())));
    }
    let output = report(
        &findings,
        object.kind,
        root.path(),
        context.policy.workspace_root(),
    );
    Ok(ToolResult::success(
        output,
        Some(shown(root.path())),
        Vec::new(),
    ))
}

/// The paths that lie at or below a root, relative to it.
fn below(paths: &[PathBuf], root: &Path) -> Vec<PathBuf> {
    paths
        .iter()
        .filter_map(|path| path.strip_prefix(root).ok())
        .map(Path::to_owned)
        .collect()
}

/// What was found, in order, with the count of what is not shown.
fn report(findings: &tree::Findings, kind: ObjectKind, root: &Path, workspace: &Path) -> String {
    let noun = if findings.total == 1 {
        "result"
    } else {
        "results"
    };
    let mut output = format!("{} {noun} in {}\n", findings.total, shown(root));
    let mut given = 0;
    for found in &findings.kept {
        if output.len() > OUTPUT_BYTES {
            break;
        }
        let place = if kind == ObjectKind::Directory {
            root.join(&found.path)
        } else {
            root.to_owned()
        };
        let place = place
            .strip_prefix(workspace)
            .ok()
            .filter(|rest| *rest != OsStr::new(""))
            .unwrap_or(&place);
        output.push_str(&text::path(place));
        match &found.line {
            Some((number, line)) => output.push_str(&format!(":{number}: {line}\n")),
            None => output.push_str(if found.directory { "/\n" } else { "\n" }),
        }
        given += 1;
    }
    let rest = findings.total.saturating_sub(given);
    if rest > 0 {
        output.push_str(&format!(
            "[{rest} more results not shown; narrow the search]\n"
        ));
    }
    if findings.binary > 0 {
        output.push_str(&format!("[{} binary files skipped]\n", findings.binary));
    }
    if findings.unreadable > 0 {
        output.push_str(&format!(
            "[{} files or directories could not be read]\n",
            findings.unreadable
        ));
    }
    output
}
