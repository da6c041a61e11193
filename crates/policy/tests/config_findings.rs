//! What is wrong, where, and what would be right (SPEC §15): one table of files and their findings.

use policy::config::{Config, Finding, Severity, Source};
use std::fmt::Write as _;

/// One line a finding: `line:column code key [allowed]`, or `~nearest` in place of what is allowed; warnings with `?`
/// before them.
fn show(findings: &[Finding]) -> String {
    let mut lines = String::new();
    for finding in findings {
        let mark = match finding.severity {
            Severity::Error => "",
            Severity::Warning => "?",
        };
        let code = finding.code.id().trim_start_matches("config.");
        let Finding {
            line,
            column,
            key,
            allowed,
            nearest,
            ..
        } = finding;
        let _ = write!(lines, "{mark}{line}:{column} {code} {key}");
        if let Some(nearest) = nearest {
            let _ = write!(lines, " ~{nearest}");
        } else if !allowed.is_empty() && code != "unknown_key" {
            let _ = write!(lines, " [{allowed}]");
        }
        lines.push('\n');
    }
    lines
}

fn read(text: &[u8]) -> (bool, Vec<Finding>) {
    match Config::read(&[Source {
        name: "agent.yaml",
        text,
    }]) {
        Ok(loaded) => (true, loaded.warnings),
        Err(findings) => (false, findings),
    }
}

/// Checks a whole file.
#[track_caller]
fn check_file(text: impl AsRef<[u8]>, expected: &str) {
    let (good, findings) = read(text.as_ref());
    let expected: String = expected
        .lines()
        .map(|line| format!("{}\n", line.trim_start()))
        .collect();
    let text: String = String::from_utf8_lossy(text.as_ref())
        .chars()
        .take(400)
        .collect();
    assert_eq!(show(&findings), expected, "{text}");
    assert_eq!(
        good,
        findings.iter().all(|f| f.severity == Severity::Warning)
    );
    for finding in &findings {
        assert_eq!(finding.file, "agent.yaml");
        assert_eq!(finding.message.id(), finding.code.id());
    }
}

/// Checks what comes after the two keys that every file needs; its first line is line 3.
#[track_caller]
fn check(rest: &str, expected: &str) {
    check_file(
        format!("schema_version: 2\nollama: {{model: m}}\n{rest}"),
        expected,
    );
}

/// Checks what comes below `ollama:` after the model; its first line is line 4.
#[track_caller]
fn check_ollama(rest: &str, expected: &str) {
    check_file(
        format!("schema_version: 2\nollama:\n  model: m\n{rest}"),
        expected,
    );
}

#[test]
fn a_file_that_is_no_configuration() {
    check_file("", "1:1 empty ");
    check_file("# nothing\n\n", "1:1 empty ");
    check_file("---\n", "1:1 empty ");
    check_file("- a\n", "1:1 expected_map ");
    check_file("text\n", "1:1 expected_map ");
    check_file(b"schema_version: 2\nx: \xff\n", "2:4 not_utf8 ");
    check_file("\u{feff}schema_version: 2\nollama: {model: m}\n", "");
    check_file(
        "schema_version: 2\n---\nschema_version: 2\n",
        "2:1 many_documents ",
    );
    check_file("schema_version: 2\nollama: {model: m\n", "2:9 syntax ");
    check_file("schema_version: 2\n\tollama: {model: m}\n", "2:1 tab ");
    check_file("schema_version: 2\nollama:\n \tmodel: m\n", "3:2 tab ");
    check_file(
        "{\n\t\"schema_version\": 2,\n\t\"ollama\": { \"model\": \"m\" }\n}\n",
        "",
    );
    check_file("%YAML 1.1\n---\na: 1\n", "1:1 syntax ");
    check_file("schema_version: !!int 2\n", "1:17 tag schema_version");
    check_file("? [a]\n: 1\n", "1:3 key_not_text ");
    check_file("a: *nobody\n", "1:4 syntax ");
    check_file("# ".repeat(600_000), "1:1 too_large  [..1048576]");
}

/// Issue 4 "Bad input": another encoding is told by its name, a zero byte by its place; a byte order mark and the line ends
/// of Windows change no position.
#[test]
fn spec_15_encodings() {
    let good = "schema_version: 2\nollama: {model: m}\n";
    let wide = |swap: bool, mark: &[u8]| -> Vec<u8> {
        let units = good.encode_utf16().flat_map(|unit| match swap {
            true => unit.to_be_bytes(),
            false => unit.to_le_bytes(),
        });
        mark.iter().copied().chain(units).collect()
    };
    for (bytes, name) in [
        (wide(false, &[0xff, 0xfe]), "UTF-16LE"),
        (wide(true, &[0xfe, 0xff]), "UTF-16BE"),
        (wide(false, &[]), "UTF-16LE"),
        (wide(true, &[]), "UTF-16BE"),
        (vec![0xff, 0xfe, 0, 0, b's', 0, 0, 0], "UTF-32LE"),
        (vec![0, 0, 0xfe, 0xff, 0, 0, 0, b's'], "UTF-32BE"),
        (vec![b's', 0, 0, 0, b'c', 0, 0, 0], "UTF-32LE"),
    ] {
        check_file(&bytes, "1:1 other_encoding ");
        let (_, findings) = read(&bytes);
        let arguments = findings[0].message.arguments();
        assert!(
            arguments.contains(&("value", name.to_owned())),
            "{arguments:?}"
        );
    }
    // What stands behind it would not have been seen.
    check_file(format!("{good}\0sandbox: {{}}\n"), "3:1 nul ");
    check_file(
        b"schema_version: 2\nollama: {model: \xe9}\n",
        "2:17 not_utf8 ",
    );
    let wrong = "schema_version: 2\nollama:\n  model: m\n  kepp_alive: 1\nagent: {box: 5}\n";
    let expected = "4:3 unknown_key_near ollama.kepp_alive ~ollama.keep_alive
        5:14 expected_text agent.box";
    check_file(wrong, expected);
    for text in [
        format!("\u{feff}{wrong}"),
        wrong.replace('\n', "\r\n"),
        format!("\u{feff}{}", wrong.replace('\n', "\r\n")),
    ] {
        check_file(text, expected);
    }
}

/// Issue 4 "Bad input": what YAML 1.1 did behind the scenes is refused where it stands.
#[test]
fn spec_15_merge_keys_tags_and_documents() {
    check("<<: {planner: {}}\n", "3:1 merge_key ");
    check(
        "agent: &a {}\nplanner:\n  <<: *a\n",
        "5:3 merge_key planner",
    );
    check("ollama2:\n  - <<: [1]\n", "4:5 merge_key ollama2[0]");
    check("agent: {'<<': 1}\n", "3:9 unknown_key agent.<<");
    check("agent: !!python/object:os.system [x]\n", "3:8 tag agent");
    check("agent: !<tag:yaml.org,2002:map> {}\n", "3:8 tag agent");
    check("---\nagent: {}\n", "3:1 many_documents ");
    check("...\n---\n", "4:1 many_documents ");
}

/// Issue 4 "Bad input": the same key twice, with both places; a key in other letters is an unknown one.
#[test]
fn spec_15_duplicate_keys() {
    check(
        "agent: {box: a, max_iterations: 1, box: b}\nagent: {}\n",
        "3:36 duplicate_key agent.box
        4:1 duplicate_key agent",
    );
    check(
        "agent: {box: a, Box: b}\n",
        "3:17 unknown_key_near agent.Box ~agent.box",
    );
    check(
        "sandbox: {mounts: [{path: a, access: read_only, path: b}]}\n",
        "3:49 duplicate_key sandbox.mounts[0].path",
    );
    check(
        "sandbox: {environment: {A: x, A: y}}\n",
        "3:31 duplicate_key sandbox.environment.A",
    );
}

/// Issue 4 "Bad input": bombs are refused by what they hold, and a file of mistakes by their number.
#[test]
fn spec_15_findings_are_bounded() {
    let mut text = "schema_version: 2\nollama: {model: m}\n".to_owned();
    for number in 0..20_000 {
        let _ = writeln!(text, "{}{number}: 1", "maximal_iterations_".repeat(2));
    }
    let (good, findings) = read(text.as_bytes());
    assert!(!good);
    assert_eq!(findings.len(), policy::config::MOST_FINDINGS);
    assert_eq!(
        findings.last().map(|f| f.code.id()),
        Some("config.too_many")
    );
    // Long keys, long numbers, many anchors, one long line.
    for text in [
        format!("{}: 1\n", "k".repeat(1_000_000)),
        format!("planner: {{max_tasks: {}}}\n", "9".repeat(1_000_000)),
        format!("planner: {{max_tasks: 1{}e5}}\n", "0".repeat(1_000_000)),
        (0..40_000).fold(String::new(), |text, n| text + &format!("&a{n} k{n}: 1\n")),
        format!("a: {}\n", "[],".repeat(300_000)),
        format!("a: {}\n", "? ".repeat(300_000)),
        format!("a: \"{}\n", "\\n".repeat(400_000)),
        format!("a: {}\n", "&x ".repeat(300_000)),
        "- ".repeat(500_000),
        "{".repeat(1_000_000),
        "a:\n".repeat(300_000),
        "#".repeat(1_000_000),
        "\n".repeat(1_000_000),
        "'".repeat(1_000_000),
        "|\n".repeat(500_000),
        "%TAG ! x\n".repeat(100_000),
    ] {
        let (good, findings) = read(text.as_bytes());
        assert!(
            !good && findings.len() <= policy::config::MOST_FINDINGS,
            "{}",
            &text[..20]
        );
        let shown = findings.iter().flat_map(|f| f.message.arguments());
        for (_, shown) in shown {
            assert!(shown.len() < 2000, "{}: {}", &text[..20], shown.len());
        }
    }
}

#[test]
fn alias_bombs_and_deep_nesting_are_bounded() {
    let first = |text: &str| read(text.as_bytes()).1[0].code.id();
    let mut bomb = "a0: &a0 [x]\n".to_owned();
    for level in 1..30 {
        let below = format!("*a{},", level - 1).repeat(10);
        let _ = writeln!(bomb, "a{level}: &a{level} [{below}]");
    }
    assert_eq!(first(&bomb), "config.too_complex");
    let wide = format!(
        "a: &a {}\nb:\n{}",
        "x".repeat(500_000),
        "- *a\n".repeat(1000)
    );
    assert_eq!(first(&wide), "config.too_complex");
    for open in ["[", "{a: ", "- "] {
        assert_eq!(first(&open.repeat(5000)), "config.too_complex", "{open}");
    }
    check_file("a: &a [*a]\n", "1:8 too_complex a[0]");
    check_file(
        "schema_version: 2\nollama: {model: &m qwen3}\nagent: {box: *m}\n",
        "",
    );
}

/// X-SCHEMA: version 1 is refused with its own message; the version is required.
#[test]
fn x_schema_version() {
    check_file(
        "schema_version: 1\nollama: {model: m}\n",
        "1:17 version_one schema_version [2]",
    );
    check_file(
        "schema_version: 3\nollama: {model: m}\n",
        "1:17 version_unknown schema_version [2]",
    );
    check_file(
        "ollama: {model: m}\n",
        "1:1 version_missing schema_version [2]",
    );
    check_file(
        "schema_version: two\nollama: {model: m}\n",
        "1:17 expected_whole schema_version [2]",
    );
}

/// X-MODEL: there is no default model.
#[test]
fn x_model_required() {
    check_file("schema_version: 2\n", "1:1 missing_key ollama.model");
    check_file(
        "schema_version: 2\nollama:\n  think: true\n",
        "3:3 missing_key ollama.model",
    );
    check_file(
        "schema_version: 2\nollama:\n  model:\n",
        "3:3 missing_key ollama.model",
    );
    check_file(
        "schema_version: 2\nollama:\n  model: ''\n",
        "3:10 empty_text ollama.model",
    );
    check_file(
        "schema_version: 2\nollama:\n  model: 7\n",
        "3:10 expected_text ollama.model",
    );
}

/// SPEC §15: everything in one pass, all errors at once.
#[test]
fn spec_15_all_errors_at_once() {
    check_file(
        "schema_version: 1
sandbx: {}
mcp:
  http:
    host: 0.0.0.0
    port: 70000
    prot: 1
ollama:
  endpoint: localhost:11434
  options: {temperature: hot, top_p: 2}
sandbox:
  network: {access: open}
  network: {access: none}
",
        "1:17 version_one schema_version [2]
        2:1 unknown_key_near sandbx ~sandbox
        5:11 not_loopback mcp.http.host [127.0.0.1, ::1]
        6:11 out_of_range mcp.http.port [0..65535]
        7:5 unknown_key_near mcp.http.prot ~mcp.http.port
        9:3 missing_key ollama.model
        9:13 bad_url ollama.endpoint [http://host:port, https://host:port]
        10:26 expected_number ollama.options.temperature [0..2]
        10:38 out_of_range ollama.options.top_p [0..1]
        12:21 unknown_word sandbox.network.access [none, private, local, restricted]
        13:3 duplicate_key sandbox.network",
    );
}

#[test]
fn unknown_keys_name_the_nearest() {
    check(
        "sandbox: {netwrok: {}}\n",
        "3:11 unknown_key_near sandbox.netwrok ~sandbox.network",
    );
    check("model: m\n", "3:1 unknown_key_near model ~ollama.model");
    check("zzzzz: m\n", "3:1 unknown_key zzzzz");
    check(
        "agent: {Box: b}\n",
        "3:9 unknown_key_near agent.Box ~agent.box",
    );
    check(
        "sandbox: {mounts: [{path: a, acess: read_only}]}\n",
        "3:20 missing_key sandbox.mounts[0].access
        3:30 unknown_key_near sandbox.mounts[0].acess ~sandbox.mounts[0].access",
    );
    check(
        "guard: {hard_block: enforced}\n",
        "3:21 unknown_word guard.hard_block ~enforce",
    );
}

#[test]
fn wrong_types_and_ranges() {
    check("agent: 5\n", "3:8 expected_map agent");
    check(
        "agent: {plan_think: yes}\n",
        "3:21 expected_bool agent.plan_think [true, false]",
    );
    check(
        "agent: {plan_think: 'true'}\n",
        "3:21 expected_bool agent.plan_think [true, false]",
    );
    for (value, code) in [
        ("1.5", "expected_whole"),
        ("'5'", "expected_whole"),
        (".nan", "expected_whole"),
        ("[5]", "expected_whole"),
        ("0", "out_of_range"),
        ("99999999999999999999", "out_of_range"),
    ] {
        let expected = format!("3:25 {code} agent.max_iterations [1..10000]");
        check(&format!("agent: {{max_iterations: {value}}}\n"), &expected);
    }
    check(
        "limits: {context_summary_ratio: 0}\n",
        "3:33 out_of_range limits.context_summary_ratio [0.1..1]",
    );
    check("limits: {context_summary_ratio: 1e-1}\n", "");
    check(
        "sandbox: {workspaces: src}\n",
        "3:23 expected_list sandbox.workspaces",
    );
    check(
        "sandbox: {workspaces: [[]]}\n",
        "3:24 expected_text sandbox.workspaces[0]",
    );
    check(
        "sandbox: {workspaces: [~]}\n",
        "3:24 expected_text sandbox.workspaces[0]",
    );
    check(
        "logging: {level: verbose}\n",
        "3:18 unknown_word logging.level [error, warn, info, debug, trace]",
    );
    check(
        "sandbox: {environment: {PORT: 8080}}\n",
        "3:31 expected_text sandbox.environment.PORT",
    );
    check(
        "sandbox: {environment: {A-B: x}}\n",
        "3:25 bad_variable sandbox.environment.A-B [A-Z a-z 0-9 _]",
    );
    check(
        "skills: {directory: \"a\\0b\"}\n",
        "3:21 control_character skills.directory",
    );
}

/// DESIGN §10.5: overrides are positive; absent and empty ones leave the preset.
#[test]
fn resource_overrides_are_positive() {
    check(
        "sandbox: {resources: {memory_mb: 0}}\n",
        "3:34 out_of_range sandbox.resources.memory_mb [1..1048576]",
    );
    check(
        "sandbox: {resources: {process_limit: -1}}\n",
        "3:38 out_of_range sandbox.resources.process_limit [1..65536]",
    );
    check(
        "sandbox:\n  resources:\n    profile: normal\n    memory_mb:\n",
        "",
    );
}

/// I18N-06: the configured language has the shape of a BCP 47 tag.
#[test]
fn i18n_06_language() {
    for good in ["en", "ja", "zh-CN", "zh-Hant-TW", "es-419"] {
        check(&format!("application: {{language: {good}}}\n"), "");
    }
    for bad in ["e", "ja_JP", "english1", "zh-", "日本語"] {
        let expected = "3:25 bad_language application.language [en, ja, zh-CN]";
        check(&format!("application: {{language: {bad}}}\n"), expected);
    }
}

/// MCP-TR-02, AT-02, ST-22: only 127.0.0.1 and ::1, for the MCP endpoint and the console.
#[test]
fn mcp_tr_02_at_02_st_22_loopback() {
    for good in ["127.0.0.1", "'::1'"] {
        check(
            &format!("mcp: {{http: {{host: {good}}}}}\nconsole: {{host: {good}}}\n"),
            "",
        );
    }
    for bad in [
        "0.0.0.0",
        "'::'",
        "192.168.1.2",
        "localhost",
        "127.0.0.2",
        "'::ffff:127.0.0.1'",
        "example.com",
    ] {
        check(
            &format!("mcp: {{http: {{host: {bad}}}}}\nconsole: {{host: {bad}}}\n"),
            "3:20 not_loopback mcp.http.host [127.0.0.1, ::1]
            4:17 not_loopback console.host [127.0.0.1, ::1]",
        );
    }
}

/// X-NET: level and list belong together; an empty list is an error, never open.
#[test]
fn x_net_lists_match_the_level() {
    let check = |lines: &[&str], expected: &str| {
        let rest: String = lines.iter().map(|line| format!("    {line}\n")).collect();
        check(&format!("sandbox:\n  network:\n{rest}"), expected);
    };
    let local = "sandbox.network.local_endpoints [local]";
    let restricted = "sandbox.network.restricted_endpoints [restricted]";
    check(
        &[
            "access: none",
            "local_endpoints: []",
            "restricted_endpoints: []",
        ],
        "",
    );
    check(&["access: private"], "");
    check(&["access: local", "local_endpoints: [5432]"], "");
    check(
        &[
            "access: restricted",
            "restricted_endpoints: [{host: a.example, ports: [443]}]",
        ],
        "",
    );
    check(
        &["access: local"],
        &format!("5:13 network_list_empty {local}"),
    );
    check(
        &["access: local", "local_endpoints: []"],
        &format!("6:22 network_list_empty {local}"),
    );
    check(
        &["access: restricted", "restricted_endpoints: []"],
        &format!("6:27 network_list_empty {restricted}"),
    );
    check(
        &[
            "access: restricted",
            "restricted_endpoints: [{host: a.example, ports: []}]",
        ],
        "6:53 network_list_empty sandbox.network.restricted_endpoints[0].ports [1..65535]",
    );
    check(
        &["local_endpoints: [5432]"],
        &format!("5:22 network_list_unused {local}"),
    );
    check(
        &[
            "access: private",
            "restricted_endpoints: [{host: a.example, ports: [1]}]",
        ],
        &format!("6:27 network_list_unused {restricted}"),
    );
    check(
        &[
            "access: local",
            "restricted_endpoints: [{host: a.example, ports: [1]}]",
        ],
        &format!("5:13 network_list_empty {local}\n6:27 network_list_unused {restricted}"),
    );
    check(
        &["access: local", "local_endpoints: [0]"],
        "6:23 out_of_range sandbox.network.local_endpoints[0] [1..65535]",
    );
    for bad in [
        "'*.example.com'",
        "https://example.com",
        "example.com:443",
        "a..b",
        "-a.example",
        "256.1.1.1",
        "'[192.0.2.1]'",
        "'[2001:db8::1]:443'",
        "'[2001:db8::1'",
        "'fe80::1%eth0'",
        "'.'",
        "a..",
        "a_b.example",
        "１２７.0.0.1",
        "b\u{fc}cher.example/x",
        "user@a.example",
        "0x7f.1",
    ] {
        check(
            &[
                "access: restricted",
                "restricted_endpoints:",
                &format!("- host: {bad}"),
                "  ports: [1]",
            ],
            "7:13 bad_host sandbox.network.restricted_endpoints[0].host [example.com, 192.0.2.1, 2001:db8::1]",
        );
    }
}

/// X-MODE, X-PARTIAL, X-KEYS, DESIGN §10.2: values that contradict each other.
#[test]
fn x_mode_contradictions() {
    check(
        "sandbox: {profile: development, max_mode: read-only}\n",
        "3:20 profile_above_mode sandbox.profile [readonly]",
    );
    check("sandbox: {max_mode: read-only}\n", "");
    check(
        "sandbox: {profile: readonly, mounts: [{path: a, access: read_write}]}\n",
        "3:57 mount_not_read_only sandbox.mounts[0].access [read_only]",
    );
    check(
        "sandbox: {max_mode: danger-full-access}\nguard: {hard_block: observe}\n",
        "4:21 observe_with_danger guard.hard_block",
    );
    check(
        "guard: {hard_block: observe}\n",
        "?3:21 hard_block_observe guard.hard_block",
    );
    check(
        "sandbox: {partial: allow}\n",
        "3:20 unknown_word sandbox.partial [read_only, deny]",
    );
    check(
        "mcp: {images: {max_bytes_each: 2000, max_total_bytes: 1000}}\n",
        "3:32 limit_order mcp.images.max_bytes_each",
    );
    check(
        "mcp: {images: {max_total_bytes: 1000}}\n",
        "3:33 limit_order mcp.images.max_total_bytes",
    );
}

/// X-PROTECT: relative patterns only.
#[test]
fn x_protect_is_relative() {
    for bad in ["/etc", "../x", "a/../b", "'C:\\x'", "a//b", "./a"] {
        let expected = "3:21 bad_relative_path sandbox.protect[0] [a/b]";
        check(&format!("sandbox: {{protect: [{bad}]}}\n"), expected);
    }
    check("sandbox: {protect: [.git/config, secrets/]}\n", "");
}

/// DESIGN §10.3, X-EXE: aliases are unique without regard to case.
#[test]
fn x_exe_entries() {
    check(
        "sandbox:
  execution:
    entries:
      - {alias: py, path: /usr/bin/python3}
      - {alias: PY, path: /usr/bin/python3}
      - {alias: 'a b', path: /bin/x}
      - path: /bin/y
      - {alias: z}
",
        "7:17 duplicate_alias sandbox.execution.entries[1].alias
        8:17 bad_name sandbox.execution.entries[2].alias [A-Z a-z 0-9 . _ - (64)]
        9:9 missing_key sandbox.execution.entries[3].alias
        10:9 missing_key sandbox.execution.entries[4].path",
    );
}

/// OLL-03, OLL-04: known options are typed and have ranges; those that Ollama dropped are accepted with a warning.
#[test]
fn oll_03_oll_04_options() {
    let check = |option: &str, expected: &str| {
        check_ollama(&format!("  options:\n    {option}\n"), expected)
    };
    for good in [
        "seed: -1",
        "stop: [\"\\n\", END]",
        "temperature: 2",
        "num_predict: -1",
        "num_gpu:",
    ] {
        check(good, "");
    }
    check(
        "temperature: 2.01",
        "5:18 out_of_range ollama.options.temperature [0..2]",
    );
    check(
        "temperature: '1'",
        "5:18 expected_number ollama.options.temperature [0..2]",
    );
    check(
        "top_k: 1.5",
        "5:12 expected_whole ollama.options.top_k [0..1000000]",
    );
    check(
        "num_predict: 0",
        "5:18 out_of_range ollama.options.num_predict [-1, 1..16777216]",
    );
    check(
        "use_mmap: 1",
        "5:15 expected_bool ollama.options.use_mmap [true, false]",
    );
    check("stop: END", "5:11 expected_list ollama.options.stop");
    check(
        "presence_penalty: -2.5",
        "5:23 out_of_range ollama.options.presence_penalty [-2..2]",
    );
    check(
        "temprature: 1",
        "5:5 unknown_key_near ollama.options.temprature ~ollama.options.temperature",
    );
    for gone in [
        "tfs_z",
        "mirostat",
        "mirostat_tau",
        "mirostat_eta",
        "penalize_newline",
        "low_vram",
        "use_mlock",
    ] {
        let column = 5 + gone.len() + 2;
        check(
            &format!("{gone}: 1"),
            &format!("?5:{column} gone_option ollama.options.{gone}"),
        );
    }
}

/// OLL-05: extra options pass, but never in place of a known one.
#[test]
fn oll_05_extra_options() {
    check_ollama(
        "  extra_options: {new_knob: [1, {a: b}], flash: true}\n",
        "",
    );
    check_ollama(
        "  extra_options:\n    temperature: 1\n",
        "?5:5 extra_option_ignored ollama.extra_options.temperature ~ollama.options.temperature",
    );
    check_ollama(
        "  extra_options: []\n",
        "4:18 expected_map ollama.extra_options",
    );
}

/// X-MODEL: what leaves this machine is said.
#[test]
fn x_model_remote_is_a_warning() {
    for cloud in ["deepseek-v4-flash:cloud", "gpt-oss:120b-cloud"] {
        let expected = "?2:17 cloud_model ollama.model";
        check_file(
            format!("schema_version: 2\nollama: {{model: '{cloud}'}}\n"),
            expected,
        );
    }
    check_ollama(
        "  endpoint: http://192.0.2.7:11434\n",
        "?4:13 remote_endpoint ollama.endpoint",
    );
    check_ollama(
        "  endpoint: http://0.0.0.0:11434\n",
        "?4:13 remote_endpoint ollama.endpoint",
    );
    for local in [
        "http://localhost:11434",
        "http://127.0.0.1:1",
        "https://[::1]:1/ollama",
    ] {
        check_ollama(&format!("  endpoint: {local}\n"), "");
    }
    for bad in [
        "localhost:11434",
        "ftp://localhost",
        "http://",
        "http://h/?q=1",
    ] {
        let expected = "4:13 bad_url ollama.endpoint [http://host:port, https://host:port]";
        check_ollama(&format!("  endpoint: '{bad}'\n"), expected);
    }
}

/// Secrets do not belong in the file, and no finding repeats one.
#[test]
fn secrets_are_not_repeated() {
    check_ollama(
        "  endpoint: http://me:hunter2@localhost\n",
        "4:13 url_secret ollama.endpoint",
    );
    check(
        "sandbox: {environment: {GITHUB_TOKEN: hunter2, OTHER: [hunter2]}}\n",
        "?3:25 secret_variable sandbox.environment.GITHUB_TOKEN
        3:55 expected_text sandbox.environment.OTHER",
    );
    for text in [
        "ollama: {endpoint: 'http://me:hunter2@localhost'}\ntelemetry: {otlp_endpoint: 'http://me:hunter2@localhost'}\n",
        "ollama: {endpoint: 'ftp://me:hunter2@localhost'}\n",
        "sandbox: {environment: {A_TOKEN: hunter2, B: [hunter2], C: {hunter2: 1}}}\n",
    ] {
        assert!(
            !format!("{:?}", read(text.as_bytes())).contains("hunter2"),
            "{text}"
        );
    }
}

#[test]
fn keep_alive_and_think() {
    for good in ["5m", "1h30m", "-1", "0", "300", "1.5h", "'-1m'"] {
        check_ollama(&format!("  keep_alive: {good}\n"), "");
    }
    for bad in ["'5'", "5 minutes", "m", "5mm", "''", "1.5"] {
        let expected = "4:15 bad_keep_alive ollama.keep_alive [5m, 1h30m, 300, 0, -1]";
        check_ollama(&format!("  keep_alive: {bad}\n"), expected);
    }
    for good in ["true", "false", "low", "max"] {
        check_ollama(&format!("  think: {good}\n"), "");
    }
    check_ollama(
        "  think: 1\n",
        "4:10 unknown_word ollama.think [true, false, low, medium, high, max]",
    );
}

#[test]
fn url_patterns() {
    for good in [
        "example.com",
        "'*.example.com'",
        "http://a.example:8080",
        "'https://[2001:db8::1]:8443'",
        "192.0.2.1",
    ] {
        check(&format!("guard: {{url_allowlist: [{good}]}}\n"), "");
    }
    for bad in [
        "ftp://a",
        "a/b",
        "'*'",
        "'a:0'",
        "'a:x'",
        "u@a",
        "'*.1.2.3.4'",
        "'[::1'",
        "'https://'",
        "'a:+1'",
        "'[a]'",
    ] {
        let expected =
            "3:25 bad_url_pattern guard.url_allowlist[0] [[https://|http://]host[:port], *.host]";
        check(&format!("guard: {{url_allowlist: [{bad}]}}\n"), expected);
    }
}

#[test]
fn approvals_ask_takes_operations_and_own_patterns() {
    check(
        "approvals: {ask: [git_push, {name: deploy, argv: [kubectl, apply, '*']}]}\n",
        "",
    );
    check(
        "approvals: {ask: [git_pusj, {name: deploy}, {argv: []}]}\n",
        "3:19 unknown_word approvals.ask[0] ~git_push
        3:29 missing_key approvals.ask[1].argv
        3:45 missing_key approvals.ask[2].name
        3:52 missing_key approvals.ask[2].argv[0]",
    );
}
