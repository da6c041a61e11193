//! The JSON Schema, the reader, the defaults and the documentation speak of the same keys.

mod schema;

use policy::config::{Config, Source, known_keys};
use schema::every_key;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Every key of the schema has a reader that objects to nonsense at its place.
#[test]
fn every_key_of_the_schema_is_read() {
    let keys: BTreeSet<String> = known_keys().iter().cloned().collect();
    let mut in_schema = BTreeSet::new();
    every_key(|key, _| {
        in_schema.insert(key.to_owned());
    });
    assert_eq!(in_schema, keys);
    for key in keys.iter().filter(|key| !key.contains("[]")) {
        let mut value = json!([{ "nonsense": 1 }]);
        for part in key.rsplit('.') {
            value = json!({ part: value });
        }
        let text = value.to_string();
        let source = Source {
            name: "a",
            text: text.as_bytes(),
        };
        let findings = Config::read(&[source]).expect_err("no version");
        let objects =
            |code: &str| code != "config.missing_key" && !code.starts_with("config.unknown_key_");
        let found = findings
            .iter()
            .any(|f| f.key.starts_with(key.as_str()) && objects(f.code.id()));
        assert!(found, "{key}: {findings:?}");
    }
}

/// DESIGN §27, interfaces.md §3, ollama.md.
#[test]
fn every_documented_key_is_in_the_schema() {
    let documented = "schema_version application.language mcp.transport mcp.http.host mcp.http.port
        mcp.images.max_count mcp.images.max_bytes_each mcp.images.max_total_bytes mcp.tasks.time_to_live_hours
        mcp.tasks.poll_interval_ms agent.user_system_prompt agent.max_iterations agent.same_failure_limit
        ollama.endpoint ollama.model ollama.think ollama.keep_alive ollama.extra_options planner.max_tasks
        sandbox.profile sandbox.workspaces sandbox.mounts sandbox.execution.entries sandbox.network.access
        sandbox.network.local_endpoints sandbox.network.restricted_endpoints sandbox.resources.profile
        sandbox.resources.memory_mb sandbox.resources.process_limit sandbox.resources.execution_timeout_seconds
        file_edit.memory_backup_limit_mb localization.directory localization.fallback skills.directory
        logging.directory logging.level logging.http_requests logging.max_file_bytes logging.retained_files
        limits.whole_read_bytes limits.search_max_results limits.tail_max_lines limits.context_summary_ratio
        agent.box agent.plan_think sandbox.max_mode sandbox.partial sandbox.protect sandbox.environment
        sandbox.execution.shells sandbox.execution.rehash guard.max_tool_calls_per_task guard.repetition_notice
        guard.hard_block guard.url_allowlist approvals.ask approvals.timeout_seconds console.enabled console.host
        console.port boxes.directory audit.directory audit.key_file state.directory limits.process_output_bytes
        limits.dir_list_entries limits.edit_bytes telemetry.otlp_endpoint
        sandbox.mounts[].path sandbox.mounts[].access sandbox.execution.entries[].alias
        sandbox.execution.entries[].path sandbox.execution.entries[].runtime_root
        sandbox.network.restricted_endpoints[].host sandbox.network.restricted_endpoints[].ports
        approvals.ask[].name approvals.ask[].argv";
    let options = "num_ctx num_batch num_gpu main_gpu use_mmap num_thread draft_num_predict num_keep seed num_predict
        top_k top_p min_p typical_p repeat_last_n temperature repeat_penalty presence_penalty frequency_penalty stop
        tfs_z mirostat mirostat_tau mirostat_eta penalize_newline low_vram use_mlock";
    let options = options
        .split_whitespace()
        .map(|name| format!("ollama.options.{name}"));
    let documented: BTreeSet<String> = documented
        .split_whitespace()
        .map(str::to_owned)
        .chain(options)
        .collect();
    assert_eq!(
        known_keys().iter().cloned().collect::<BTreeSet<_>>(),
        documented
    );
}

/// The defaults that editors show are the ones that apply, and every key is explained.
#[test]
fn schema_defaults_are_the_defaults() {
    let mut file = json!({ "schema_version": 2, "ollama": { "model": "m" } });
    let mut count = 0;
    every_key(|key, node| {
        assert!(
            node["description"].is_string(),
            "{key} is not explained: {node}"
        );
        if let Some(default) = node.get("default") {
            let mut at = &mut file;
            for part in key.split('.') {
                let section = at.as_object_mut().expect("a section");
                at = section
                    .entry(part)
                    .or_insert_with(|| Value::Object(Map::new()));
            }
            *at = default.clone();
            count += 1;
        }
    });
    assert!(count > 40, "{count}");
    let text = file.to_string();
    let source = Source {
        name: "a",
        text: text.as_bytes(),
    };
    let config = Config::read(&[source]).expect("defaults are valid").config;
    let minimal = Config::minimal("m").expect("a model");
    assert_eq!(
        Config {
            places: Default::default(),
            ..config
        },
        minimal
    );
}
