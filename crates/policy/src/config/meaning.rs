//! From what was written to what it means: defaults, presets, and everything that two keys say about each other.

use super::defaults;
use super::finding::FindingCode as Code;
use super::node::Mark;
use super::report::{Details, Report};
use super::scalar::{At, Decimal, Item, Whole};
use super::settings as plain;
use super::words::{HardBlock, LogLevel, Operation, Transport, Word};
use super::written as w;
use crate::effective::SandboxMode;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// The meaning of a whole file. Findings go to the report; the result counts only if the report is clean.
pub(super) fn root(written: w::Root, report: &mut Report<'_>) -> Option<plain::Config> {
    let w::Root {
        schema_version,
        application,
        mcp,
        agent,
        ollama,
        planner,
        sandbox,
        guard,
        approvals,
        console,
        boxes,
        audit,
        state,
        file_edit,
        limits,
        localization,
        skills,
        logging,
        telemetry,
    } = written;
    if schema_version.is_none() && !report.mentions("schema_version") {
        let details = Details::allowed("2");
        report.add(
            Code::VersionMissing,
            Mark::start(0),
            "schema_version",
            details,
        );
    }
    let ollama_mark = ollama.as_ref().map_or(Mark::start(0), |at| at.mark);
    let ollama = super::ollama::ollama(section(ollama), ollama_mark, report);
    let sandbox = super::sandbox::sandbox(section(sandbox), report);
    let guard = self::guard(section(guard), sandbox.max_mode, report);
    let config = plain::Config {
        application: self::application(section(application)),
        mcp: self::mcp(section(mcp), report),
        agent: self::agent(section(agent)),
        ollama: ollama?,
        planner: self::planner(section(planner)),
        sandbox,
        guard,
        approvals: self::approvals(section(approvals), report),
        console: self::console(section(console)),
        boxes: self::boxes(section(boxes)),
        audit: self::audit(section(audit)),
        state: self::state(section(state)),
        file_edit: self::file_edit(section(file_edit)),
        limits: self::limits(section(limits)),
        localization: self::localization(section(localization)),
        skills: self::skills(section(skills)),
        logging: self::logging(section(logging)),
        telemetry: self::telemetry(section(telemetry)),
        places: BTreeMap::new(),
    };
    Some(config)
}

/// A section's content, or an empty one.
pub(super) fn section<T: Default>(written: Option<At<T>>) -> T {
    written.map(|at| at.value).unwrap_or_default()
}

/// A value, or its default.
pub(super) fn or<T>(written: Option<At<T>>, default: T) -> T {
    written.map_or(default, |at| at.value)
}

/// A whole number in the plain type that its range fits in, or its default.
pub(super) fn number<const A: i64, const B: i64, T: TryFrom<i64>>(
    written: Option<At<Whole<A, B>>>,
    default: T,
) -> T {
    optional(written).unwrap_or(default)
}

pub(super) fn optional<const A: i64, const B: i64, T: TryFrom<i64>>(
    written: Option<At<Whole<A, B>>>,
) -> Option<T> {
    written.and_then(|at| T::try_from(at.value.0).ok())
}

pub(super) fn decimal<const A: i64, const B: i64>(
    written: Option<At<Decimal<A, B>>>,
) -> Option<f64> {
    written.map(|at| at.value.0)
}

/// A value without default; missing is a finding at its section, unless something about it was said already.
pub(super) fn required<T>(
    written: Option<At<T>>,
    key: &str,
    mark: Mark,
    report: &mut Report<'_>,
) -> Option<T> {
    if written.is_none() && !report.mentions(key) {
        report.add(Code::MissingKey, mark, key, Details::default());
    }
    written.map(|at| at.value)
}

fn application(written: w::Application) -> plain::Application {
    let w::Application { language } = written;
    let language = language.map_or_else(|| defaults::LANGUAGE.to_owned(), |at| at.value.0);
    plain::Application { language }
}

fn mcp(written: w::Mcp, report: &mut Report<'_>) -> plain::Mcp {
    let w::Mcp {
        transport,
        http,
        images,
        tasks,
    } = written;
    let w::Http { host, port } = section(http);
    let w::Tasks {
        time_to_live_hours,
        poll_interval_ms,
    } = section(tasks);
    let hours: u64 = number(time_to_live_hours, defaults::TASK_HOURS);
    plain::Mcp {
        transport: or(transport, Transport::Stdio),
        http: plain::Http {
            host: host.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |at| at.value.0),
            port: number(port, defaults::HTTP_PORT),
        },
        images: self::images(section(images), report),
        tasks: plain::Tasks {
            time_to_live: Duration::from_secs(hours * 3600),
            poll_interval: Duration::from_millis(number(poll_interval_ms, defaults::TASK_POLL_MS)),
        },
    }
}

fn images(written: w::Images, report: &mut Report<'_>) -> plain::Images {
    let w::Images {
        max_count,
        max_bytes_each,
        max_total_bytes,
    } = written;
    let each = max_bytes_each.as_ref().map(|at| at.mark);
    let total = max_total_bytes.as_ref().map(|at| at.mark);
    let images = plain::Images {
        max_count: number(max_count, defaults::IMAGE_COUNT),
        max_bytes_each: number(max_bytes_each, defaults::IMAGE_BYTES),
        max_total_bytes: number(max_total_bytes, defaults::IMAGE_TOTAL_BYTES),
    };
    if images.max_bytes_each > images.max_total_bytes
        && let Some(mark) = each.or(total)
        && !report.mentions("mcp.images")
    {
        let key = if each.is_some() {
            "max_bytes_each"
        } else {
            "max_total_bytes"
        };
        let details = Details::value(images.max_bytes_each.to_string())
            .with_detail(images.max_total_bytes.to_string());
        report.add(
            Code::LimitOrder,
            mark,
            &format!("mcp.images.{key}"),
            details,
        );
    }
    images
}

fn agent(written: w::Agent) -> plain::Agent {
    let w::Agent {
        r#box,
        user_system_prompt,
        max_iterations,
        same_failure_limit,
        plan_think,
    } = written;
    plain::Agent {
        box_id: r#box.map_or_else(|| defaults::BOX_ID.to_owned(), |at| at.value.0),
        user_system_prompt: user_system_prompt.and_then(|at| at.value.0),
        max_iterations: number(max_iterations, defaults::MAX_ITERATIONS),
        same_failure_limit: number(same_failure_limit, defaults::SAME_FAILURES),
        plan_think: or(plan_think, false),
    }
}

fn planner(written: w::Planner) -> plain::Planner {
    let w::Planner { max_tasks } = written;
    plain::Planner {
        max_tasks: number(max_tasks, defaults::MAX_TASKS),
    }
}

fn guard(written: w::Guard, max_mode: SandboxMode, report: &mut Report<'_>) -> plain::Guard {
    let w::Guard {
        max_tool_calls_per_task,
        repetition_notice,
        hard_block,
        url_allowlist,
    } = written;
    if let Some(At {
        value: HardBlock::Observe,
        mark,
    }) = hard_block
    {
        let code = if max_mode == SandboxMode::DangerFullAccess {
            Code::ObserveWithDanger
        } else {
            Code::HardBlockObserve
        };
        report.add(code, mark, "guard.hard_block", Details::value("observe"));
    }
    plain::Guard {
        max_tool_calls_per_task: number(max_tool_calls_per_task, defaults::TOOL_CALLS),
        repetition_notice: number(repetition_notice, defaults::REPETITION),
        hard_block: or(hard_block, HardBlock::Enforce),
        url_allowlist: section(url_allowlist).map(|pattern| pattern.0),
    }
}

fn approvals(written: w::Approvals, report: &mut Report<'_>) -> plain::Approvals {
    let w::Approvals {
        ask,
        timeout_seconds,
    } = written;
    let ask = match ask {
        Some(at) => {
            let items = at.value.0.into_iter();
            items.filter_map(|item| self::ask(item, report)).collect()
        }
        None => Operation::WORDS
            .iter()
            .filter(|(word, _)| defaults::ASK.contains(word))
            .map(|(_, operation)| plain::Ask::Operation(*operation))
            .collect(),
    };
    plain::Approvals {
        ask,
        timeout: Duration::from_secs(number(timeout_seconds, defaults::APPROVAL_SECONDS)),
    }
}

fn ask(item: Item<w::Ask>, report: &mut Report<'_>) -> Option<plain::Ask> {
    let w::AskCommand { name, argv } = match item.value {
        w::Ask::Operation(operation) => return Some(plain::Ask::Operation(operation)),
        w::Ask::Command(command) => command,
    };
    let key = format!("approvals.ask[{}]", item.index);
    let argv_key = format!("{key}.argv");
    let argv_mark = argv.as_ref().map_or(item.mark, |at| at.mark);
    let name = required(name, &format!("{key}.name"), item.mark, report);
    let argv = required(argv, &argv_key, item.mark, report)?.map(|word| word.0);
    if argv.is_empty() && !report.mentions(&argv_key) {
        let first = format!("{argv_key}[0]");
        report.add(Code::MissingKey, argv_mark, &first, Details::default());
    }
    Some(plain::Ask::Command {
        name: name?.0,
        argv,
    })
}

fn console(written: w::Console) -> plain::Console {
    let w::Console {
        enabled,
        host,
        port,
    } = written;
    plain::Console {
        enabled: or(enabled, true),
        host: host.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |at| at.value.0),
        port: number(port, defaults::CONSOLE_PORT),
    }
}

fn path(written: Option<At<super::shapes::PathText>>, default: &str) -> PathBuf {
    written.map_or_else(|| PathBuf::from(default), |at| at.value.0)
}

fn path_or_default(written: Option<At<super::shapes::PathOrDefault>>) -> Option<PathBuf> {
    written.and_then(|at| at.value.0)
}

fn boxes(written: w::Boxes) -> plain::Boxes {
    let w::Boxes { directory } = written;
    plain::Boxes {
        directory: path(directory, defaults::BOXES),
    }
}

fn audit(written: w::Audit) -> plain::Audit {
    let w::Audit {
        directory,
        key_file,
    } = written;
    plain::Audit {
        directory: path_or_default(directory),
        key_file: path_or_default(key_file),
    }
}

fn state(written: w::State) -> plain::State {
    let w::State { directory } = written;
    plain::State {
        directory: path_or_default(directory),
    }
}

fn file_edit(written: w::FileEdit) -> plain::FileEdit {
    let w::FileEdit {
        memory_backup_limit_mb,
    } = written;
    plain::FileEdit {
        memory_backup_limit_mib: number(memory_backup_limit_mb, defaults::BACKUP_MIB),
    }
}

fn limits(written: w::Limits) -> plain::Limits {
    let w::Limits {
        whole_read_bytes,
        search_max_results,
        tail_max_lines,
        context_summary_ratio,
        process_output_bytes,
        dir_list_entries,
        edit_bytes,
    } = written;
    plain::Limits {
        whole_read_bytes: number(whole_read_bytes, defaults::WHOLE_READ_BYTES),
        search_max_results: number(search_max_results, defaults::SEARCH_RESULTS),
        tail_max_lines: number(tail_max_lines, defaults::TAIL_LINES),
        context_summary_ratio: decimal(context_summary_ratio).unwrap_or(defaults::SUMMARY_RATIO),
        process_output_bytes: number(process_output_bytes, defaults::OUTPUT_BYTES),
        dir_list_entries: number(dir_list_entries, defaults::DIR_ENTRIES),
        edit_bytes: number(edit_bytes, defaults::EDIT_BYTES),
    }
}

fn localization(written: w::Localization) -> plain::Localization {
    let w::Localization {
        directory,
        fallback,
    } = written;
    plain::Localization {
        directory: path(directory, defaults::LOCALES),
        fallback: fallback.map_or_else(|| defaults::LANGUAGE.to_owned(), |at| at.value.0),
    }
}

fn skills(written: w::Skills) -> plain::Skills {
    let w::Skills { directory } = written;
    plain::Skills {
        directory: path(directory, defaults::SKILLS),
    }
}

fn logging(written: w::Logging) -> plain::Logging {
    let w::Logging {
        directory,
        level,
        http_requests,
        max_file_bytes,
        retained_files,
    } = written;
    plain::Logging {
        directory: path_or_default(directory),
        level: or(level, LogLevel::Info),
        http_requests: or(http_requests, true),
        max_file_bytes: number(max_file_bytes, defaults::LOG_BYTES),
        retained_files: number(retained_files, defaults::LOG_FILES),
    }
}

fn telemetry(written: w::Telemetry) -> plain::Telemetry {
    let w::Telemetry { otlp_endpoint } = written;
    plain::Telemetry {
        otlp_endpoint: otlp_endpoint.and_then(|at| at.value.0),
    }
}
