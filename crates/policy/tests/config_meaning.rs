//! What a good file means: defaults, presets, merging, and the files that are shipped.

use policy::SandboxMode;
use policy::config::{
    Ask, Config, Finding, HardBlock, KeepAlive, Loaded, LogLevel, Operation, Profile, Severity,
    Source, TEMPLATE, Think, Transport,
};
use policy::effective::{NetworkPolicy, PartialRule, RehashRule, ShellRule};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

fn read(text: &str) -> Result<Loaded, Vec<Finding>> {
    Config::read(&[Source {
        name: "agent.yaml",
        text: text.as_bytes(),
    }])
}

#[track_caller]
fn load(rest: &str) -> Config {
    match read(&format!("schema_version: 2\nollama: {{model: m}}\n{rest}")) {
        Ok(loaded) => loaded.config,
        Err(findings) => panic!("{findings:#?}"),
    }
}

/// DESIGN §10.1 and interfaces.md §3: every default.
#[test]
fn defaults() {
    let config = Config::minimal("m").expect("a model");
    assert_eq!(config.application.language, "en");
    assert_eq!(config.mcp.transport, Transport::Stdio);
    assert_eq!(
        (
            config.mcp.http.host.to_string().as_str(),
            config.mcp.http.port
        ),
        ("127.0.0.1", 8080)
    );
    assert_eq!(
        (
            config.mcp.images.max_count,
            config.mcp.images.max_bytes_each
        ),
        (4, 10_485_760)
    );
    assert_eq!(
        config.mcp.images.message_limit_bytes(),
        27_962_027 + 1_048_576
    );
    assert_eq!(config.mcp.tasks.time_to_live, Duration::from_secs(86_400));
    assert_eq!(config.mcp.tasks.poll_interval, Duration::from_millis(1000));
    assert_eq!(
        (config.agent.max_iterations, config.agent.same_failure_limit),
        (128, 5)
    );
    assert_eq!(
        (config.agent.box_id.as_str(), config.agent.plan_think),
        ("default", false)
    );
    assert_eq!(config.ollama.endpoint.as_str(), "http://localhost:11434/");
    assert_eq!(config.ollama.think, Think::Switch(false));
    assert_eq!(
        config.ollama.keep_alive,
        KeepAlive::Duration("5m".to_owned())
    );
    assert_eq!(config.planner.max_tasks, 32);
    let sandbox = &config.sandbox;
    assert_eq!(
        (sandbox.profile, sandbox.max_mode),
        (Profile::Development, SandboxMode::WorkspaceWrite)
    );
    assert_eq!(sandbox.partial, PartialRule::ReadOnly);
    assert_eq!(
        sandbox.protect,
        [".git/config", ".git/hooks"].map(PathBuf::from)
    );
    assert_eq!(
        (sandbox.execution.shells, sandbox.execution.rehash),
        (ShellRule::Allow, RehashRule::OnChange)
    );
    assert_eq!(sandbox.network, NetworkPolicy::None);
    assert_eq!(
        (
            sandbox.resources.memory_mib,
            sandbox.resources.process_limit
        ),
        (4096, 16)
    );
    assert_eq!(
        sandbox.resources.execution_timeout,
        Duration::from_secs(1800)
    );
    assert_eq!(
        (
            config.guard.max_tool_calls_per_task,
            config.guard.repetition_notice
        ),
        (10, 3)
    );
    assert_eq!(config.guard.hard_block, HardBlock::Enforce);
    let ask = [
        Operation::GitPush,
        Operation::PackagePublish,
        Operation::ModeRaise,
        Operation::NetworkRaise,
    ];
    assert_eq!(config.approvals.ask, ask.map(Ask::Operation));
    assert_eq!(config.approvals.timeout, Duration::from_secs(600));
    assert_eq!((config.console.enabled, config.console.port), (true, 0));
    assert_eq!(config.file_edit.memory_backup_limit_mib, 16);
    let limits = config.limits;
    assert_eq!(
        (limits.whole_read_bytes, limits.search_max_results),
        (1 << 20, 1000)
    );
    assert_eq!(
        (limits.tail_max_lines, limits.dir_list_entries),
        (10_000, 2000)
    );
    assert_eq!(
        (limits.process_output_bytes, limits.edit_bytes),
        (64 << 10, 16 << 20)
    );
    assert_eq!(limits.context_summary_ratio, 0.8);
    assert_eq!(
        (config.logging.level, config.logging.http_requests),
        (LogLevel::Info, true)
    );
    assert_eq!(
        (config.logging.max_file_bytes, config.logging.retained_files),
        (10 << 20, 5)
    );
    assert_eq!(
        (
            config.audit.directory,
            config.state.directory,
            config.logging.directory
        ),
        (None, None, None)
    );
    assert_eq!(config.telemetry.otlp_endpoint, None);
    assert!(Config::minimal("").is_err());
}

/// DESIGN §10.5.
#[test]
fn resource_presets_and_overrides() {
    let check = |rest: &str, memory, processes, seconds| {
        let resources = load(&format!("sandbox: {{resources: {{{rest}}}}}\n"))
            .sandbox
            .resources;
        assert_eq!(
            (resources.memory_mib, resources.process_limit),
            (memory, processes),
            "{rest}"
        );
        assert_eq!(
            resources.execution_timeout,
            Duration::from_secs(seconds),
            "{rest}"
        );
    };
    check("profile: constrained", 1024, 4, 300);
    check("profile: normal", 4096, 16, 1800);
    check("profile: extended", 8192, 32, 3600);
    check("profile: extended, process_limit: 2", 8192, 2, 3600);
    check("memory_mb: 10, execution_timeout_seconds: 7", 10, 16, 7);
}

/// X-MODE: the default mode comes from the profile and is never above the ceiling.
#[test]
fn x_mode_default() {
    let mode = |rest: &str| {
        load(&format!("sandbox: {{{rest}}}\n"))
            .sandbox
            .default_mode()
    };
    assert_eq!(mode(""), SandboxMode::WorkspaceWrite);
    assert_eq!(mode("profile: readonly"), SandboxMode::ReadOnly);
    assert_eq!(mode("max_mode: read-only"), SandboxMode::ReadOnly);
    assert_eq!(
        mode("max_mode: danger-full-access"),
        SandboxMode::WorkspaceWrite
    );
}

/// X-NET: the list is part of the level.
#[test]
fn x_net_meaning() {
    let network = |rest: &str| {
        load(&format!("sandbox: {{network: {{{rest}}}}}\n"))
            .sandbox
            .network
    };
    assert_eq!(network("access: private"), NetworkPolicy::Private);
    let ports = BTreeSet::from([80, 5432]);
    assert_eq!(
        network("access: local, local_endpoints: [5432, 80, 80]"),
        NetworkPolicy::Local { ports }
    );
    let endpoints = BTreeSet::from([("github.com".to_owned(), 443)]);
    assert_eq!(
        network("access: restricted, restricted_endpoints: [{host: GitHub.com, ports: [443]}]"),
        NetworkPolicy::Restricted { endpoints }
    );
}

/// OLL-03, OLL-05, OLL-06: what is sent.
#[test]
fn oll_05_request_options() {
    let loaded = read(
        "schema_version: 2
ollama:
  model: m
  options: {temperature: 0.4, seed: 7, stop: [END], mirostat: 1}
  extra_options: {temperature: 1.9, num_predict: 9, new_knob: [1, 2.5, text, null]}
",
    )
    .expect("valid");
    let ollama = &loaded.config.ollama;
    assert_eq!(
        Value::Object(ollama.request_options(None)),
        json!({"num_ctx": 32768, "num_predict": 4096, "temperature": 0.4, "seed": 7, "stop": ["END"],
            "new_knob": [1, 2.5, "text", null]})
    );
    assert_eq!(ollama.request_options(Some(1.0))["temperature"], json!(1.0));
    assert_eq!(loaded.warnings.len(), 3);
    let plain = load("").ollama;
    assert_eq!(
        Value::Object(plain.request_options(None)),
        json!({"num_ctx": 32768, "num_predict": 4096})
    );
    assert_eq!(
        serde_json::to_value(KeepAlive::Seconds(-1)).expect("JSON"),
        json!(-1)
    );
    assert_eq!(
        serde_json::to_value(plain.think).expect("JSON"),
        json!(false)
    );
}

/// X-NET: hosts are read as people copy them, and kept as DNS and connections know them.
#[test]
fn x_net_hosts_have_one_form() {
    for (written, kept) in [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("b\u{fc}cher.example", "xn--bcher-kva.example"),
        ("B\u{dc}CHER.example.", "xn--bcher-kva.example"),
        ("日本語。jp", "xn--wgv71a119e.jp"),
        ("192.0.2.1", "192.0.2.1"),
        ("'2001:DB8:0::1'", "2001:db8::1"),
        ("'[2001:db8::1]'", "2001:db8::1"),
        ("localhost", "localhost"),
    ] {
        let config = load(&format!(
            "sandbox: {{network: {{access: restricted, restricted_endpoints: [{{host: {written}, ports: [443]}}]}}}}\n"
        ));
        let expected = NetworkPolicy::Restricted {
            endpoints: BTreeSet::from([(kept.to_owned(), 443)]),
        };
        assert_eq!(config.sandbox.network, expected, "{written}");
    }
}

fn read_two(base: &str, local: &str) -> Result<Loaded, Vec<Finding>> {
    Config::read(&[
        Source {
            name: "agent.yaml",
            text: base.as_bytes(),
        },
        Source {
            name: "agent.local.yaml",
            text: local.as_bytes(),
        },
    ])
}

/// DESIGN §10.1: maps merge, everything else is replaced, before typing; each key points into its own file.
#[test]
fn local_file_goes_over_the_base_file() {
    let base = "schema_version: 2
ollama: {model: base, options: {seed: 1, temperature: 0.1}}
sandbox:
  workspaces: [a, b]
  resources: {memory_mb: 100}
  mounts: wrong, but replaced
";
    let local = "ollama: {model: local, options: {temperature: 0.2}}
sandbox:
  workspaces: [c]
  resources: {memory_mb: ~}
  mounts: []
";
    let config = read_two(base, local).expect("valid").config;
    assert_eq!(config.ollama.model, "local");
    assert_eq!(
        (
            config.ollama.options.seed,
            config.ollama.options.temperature
        ),
        (Some(1), Some(0.2))
    );
    assert_eq!(config.sandbox.workspaces, [PathBuf::from("c")]);
    assert_eq!(config.sandbox.resources.memory_mib, 4096);
    let place = |key: &str| {
        let place = config.place(key).expect("written");
        (place.file.as_str(), place.line, place.column)
    };
    assert_eq!(place("ollama.model"), ("agent.local.yaml", 1, 10));
    assert_eq!(place("ollama.options.seed"), ("agent.yaml", 2, 33));
    assert_eq!(place("sandbox.workspaces[0]"), ("agent.local.yaml", 3, 16));
    assert_eq!(config.place("sandbox.profile"), None);
}

#[test]
fn findings_of_both_files() {
    let check = |base: &str, local: &str, expected: &[&str]| {
        let findings = read_two(base, local).err().unwrap_or_default();
        let shown: Vec<String> = findings
            .iter()
            .map(|f| {
                format!(
                    "{}:{}:{} {} {}",
                    f.file,
                    f.line,
                    f.column,
                    f.code.id(),
                    f.key
                )
            })
            .collect();
        assert_eq!(shown, expected);
    };
    let good = "schema_version: 2\nollama: {model: m}\nsandbox: {protect: [secrets]}\n";
    check(good, "# nothing\n", &[]);
    check(
        "schema_version: 3\n",
        "agent: {max_iterations: 0, bix: 1}\n",
        &[
            "agent.yaml:1:1 config.missing_key ollama.model",
            "agent.yaml:1:17 config.version_unknown schema_version",
            "agent.local.yaml:1:25 config.out_of_range agent.max_iterations",
            "agent.local.yaml:1:28 config.unknown_key_near agent.bix",
        ],
    );
    check(
        "a: [\n",
        "b:\n\tc: 1\n",
        &[
            "agent.yaml:1:4 config.syntax ",
            "agent.local.yaml:2:1 config.tab ",
        ],
    );
    // Each file's own duplicates, unknown keys and types, in its own place.
    check(
        good,
        "agent: {box: a}\nagent: {bocks: 1}\nsandbox: {protect: {a: 1}}\nollama: 7\n",
        &[
            "agent.local.yaml:2:1 config.duplicate_key agent",
            "agent.local.yaml:3:20 config.expected_list sandbox.protect",
            "agent.local.yaml:4:9 config.expected_map ollama",
        ],
    );
    check(
        "schema_version: 2\nollama: {model: m}\nsandbox: wrong\n",
        "sandbox: {network: {acces: none}}\n",
        &["agent.local.yaml:1:21 config.unknown_key_near sandbox.network.acces"],
    );
    check(
        good,
        "- a\n",
        &["agent.local.yaml:1:1 config.expected_map "],
    );
    // An empty section would silently drop the base file's protections.
    check(
        good,
        "sandbox:\n",
        &["agent.local.yaml:1:1 config.empty_override sandbox"],
    );
}

/// DESIGN §10.1: a key without value in the local file takes the base file's value away, so that the default applies again;
/// in a map it does so for that key only.
#[test]
fn a_local_key_without_value_restores_the_default() {
    let base = "schema_version: 2\nollama: {model: m, keep_alive: 1h}\nagent: {max_iterations: 5, box: b}\nsandbox: {protect: [x]}\n";
    let local = "ollama: {keep_alive: }\nagent: {max_iterations: ~}\nsandbox: {protect: null}\n";
    let config = read_two(base, local).expect("valid").config;
    assert_eq!(
        config.ollama.keep_alive,
        KeepAlive::Duration("5m".to_owned())
    );
    assert_eq!(
        (config.agent.max_iterations, config.agent.box_id.as_str()),
        (128, "b")
    );
    assert_eq!(
        config.sandbox.protect,
        [".git/config", ".git/hooks"].map(PathBuf::from)
    );
    let missing = read_two(base, "ollama: {model: }\n").expect_err("no default");
    assert_eq!(
        (missing[0].code.id(), missing[0].key.as_str()),
        ("config.missing_key", "ollama.model")
    );
}

/// What `init` writes is right as it is, and still right when the comments that show defaults are made alive.
#[test]
fn template_has_no_findings() {
    let text = TEMPLATE.replace("{model}", "qwen3:8b");
    let loaded = read(&text).expect("the template is valid");
    assert_eq!(
        (loaded.warnings, loaded.config.later_keys()),
        (Vec::new(), Vec::new())
    );
    assert_eq!(loaded.config.ollama.model, "qwen3:8b");

    let example = |line: &&str| {
        ["_endpoints:", "- host", "ports:", " entries:", "    #   "]
            .iter()
            .any(|mark| line.contains(mark))
    };
    let alive: String = text
        .lines()
        .skip_while(|line| !line.is_empty())
        .filter(|line| !example(line))
        .map(|line| match line.trim_start().starts_with("# ") {
            true => format!("{}\n", line.replacen("# ", "", 1)),
            false => format!("{line}\n"),
        })
        .collect();
    let loaded = read(&alive).unwrap_or_else(|findings| panic!("{findings:#?}\n{alive}"));
    assert_eq!(loaded.warnings, []);
    let place = |key| loaded.config.place(key).is_some();
    assert!(
        place("limits.dir_list_entries")
            && place("sandbox.max_mode")
            && place("telemetry.otlp_endpoint")
    );
}

/// Keys of later issues are named only where the human asks for them.
#[test]
fn later_keys_are_reported_when_set() {
    let check = |rest: &str, expected: &[&str]| {
        let findings = load(rest).later_keys();
        assert!(
            findings
                .iter()
                .all(|f| f.severity == Severity::Warning && f.line >= 3)
        );
        let keys: Vec<&str> = findings.iter().map(|f| f.key.as_str()).collect();
        assert_eq!(keys, expected);
    };
    check("", &[]);
    check(
        "mcp: {transport: stdio}\nagent: {box: default}\nconsole: {enabled: false}\n",
        &[],
    );
    check(
        "mcp: {transport: http, tasks: {poll_interval_ms: 500}}\nconsole: {port: 9}\napprovals: {ask: []}\n",
        &[
            "approvals.ask",
            "console.port",
            "mcp.tasks.poll_interval_ms",
        ],
    );
    check(
        "sandbox: {network: {access: private}}\nguard: {url_allowlist: [a.example]}\nskills: {directory: s}\n",
        &["guard.url_allowlist", "skills.directory"],
    );
}
