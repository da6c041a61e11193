//! Benches side by side: each prints one row of the table of product.md §5. Ratios count, absolute times do not.

use std::process::Command;

/// A bench: its name, what it measures, and the command that prints its figures.
const BENCHES: &[(&str, &str, &[&str])] = &[
    ("p1", "exec against bwrap", &["bash", "xtask/bench/p1.sh"]),
    (
        "peers",
        "exec beside other sandboxes: time, memory, what is enforced",
        &["bash", "xtask/bench/peers.sh"],
    ),
    (
        "p2",
        "a command inside a running sandbox",
        &[
            "cargo",
            "bench",
            "-q",
            "-p",
            "sandbox-linux",
            "--bench",
            "spawn",
        ],
    ),
    (
        "many",
        "a hundred sandboxes open at once",
        &[
            "cargo",
            "bench",
            "-q",
            "-p",
            "sandbox-linux",
            "--bench",
            "many",
        ],
    ),
    (
        "relay",
        "granted addresses through the relay against plain loopback",
        &[
            "cargo",
            "bench",
            "-q",
            "-p",
            "sandbox-linux",
            "--bench",
            "relay",
        ],
    ),
    (
        "explain",
        "what explaining refusals costs",
        &[
            "cargo",
            "bench",
            "-q",
            "-p",
            "sandbox-linux",
            "--bench",
            "explain",
        ],
    ),
    (
        "p3",
        "file_search against rg",
        &[
            "cargo",
            "run",
            "-q",
            "--release",
            "-p",
            "runtime",
            "--example",
            "search_bench",
        ],
    ),
    (
        "p4",
        "overhead per tool call",
        &[
            "cargo",
            "bench",
            "-q",
            "-p",
            "agent-mcp",
            "--bench",
            "run_overhead",
        ],
    ),
    (
        "p7",
        "graph growth",
        &["cargo", "bench", "-q", "-p", "planner", "--bench", "graph"],
    ),
    (
        "p8",
        "audit speed",
        &["cargo", "bench", "-q", "-p", "record", "--bench", "audit"],
    ),
    (
        "http",
        "agent_status over HTTP under load, and a long queue",
        &[
            "cargo",
            "bench",
            "-q",
            "-p",
            "agent-mcp",
            "--bench",
            "http_load",
        ],
    ),
    (
        "start",
        "an unchanged start with 64 roots and 64 programs of 50 MB against an empty configuration's",
        &[
            "cargo",
            "bench",
            "-q",
            "-p",
            "agent-mcp",
            "--bench",
            "start",
        ],
    ),
    (
        "rss",
        "idle memory of serve",
        &["bash", "xtask/bench/rss.sh"],
    ),
];

/// Runs the named benches, or all.
pub fn run(names: &[&str]) -> Result<(), String> {
    if let Some(unknown) = names
        .iter()
        .find(|name| !BENCHES.iter().any(|(known, _, _)| known == *name))
    {
        let known: Vec<&str> = BENCHES.iter().map(|(name, _, _)| *name).collect();
        return Err(format!(
            "no bench called {unknown}; there are {}",
            known.join(", ")
        ));
    }
    for (name, what, command) in BENCHES
        .iter()
        .filter(|(name, _, _)| names.is_empty() || names.contains(name))
    {
        println!("## {name}: {what}");
        let status = Command::new(command[0])
            .args(&command[1..])
            .current_dir(crate::root())
            .status()
            .map_err(|error| format!("{name}: {}: {error}", command[0]))?;
        if !status.success() {
            return Err(format!("{name}: {status}"));
        }
    }
    Ok(())
}
