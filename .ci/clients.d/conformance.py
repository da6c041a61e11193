"""Judges the suite's results and keeps docs/conformance.md equal to them.

usage: conformance.py RESULTS TABLE [--update]

RESULTS/SUBJECT-REVISION/ is what `conformance server --output-dir` wrote. A cell counts only checks that looked at
something: a scenario whose checks are all skipped, or that passes because its fixture is missing, is no pass.
"""

import json
import pathlib
import re
import sys

REVISIONS = ("2026-07-28", "2025-11-25")
SUBJECTS = ("product", "fixture")

# What two tools can be asked (spec: mcp.md, "Proving it"). Everything else needs tools, prompts or resources of the suite.
PRODUCT = {
    "tools-list",
    "dns-rebinding-protection",
    "http-header-validation",
    "server-stateless",
    "caching",
    "server-initialize",
    "ping",
    "server-sse-multiple-streams",
}
# Single checks of these that need what the product does not have; the fixture passes them.
EXCEPT = {
    "server-stateless": (
        "need the suite's diagnostic tools",
        {
            "sep-2575-server-rejects-undeclared-capability",
            "sep-2575-missing-capability-http-400",
            "sep-2575-http-server-no-independent-requests-on-stream",
            "sep-2575-server-no-log-without-loglevel",
        },
    ),
    "caching": (
        "are about prompts and resources",
        {
            "sep-2549-prompts-list-caching-hints",
            "sep-2549-resources-list-caching-hints",
            "sep-2549-resources-templates-list-caching-hints",
        },
    ),
}
STREAM = "needs a stream: answers are one JSON document (MCP-TR-04, M-9)"
ASKS = "the server would send a request: it never does"
SESSION = "there are no transport sessions (MCP-TR-03)"
TASKS = "an extension; the suite asks for its own tools that run as Tasks"
# Fails on any server that never streams and never asks: the product's design, so the fixture's too.
BY_DESIGN = {
    "tools-call-with-logging": STREAM,
    "tools-call-with-progress": STREAM,
    "tools-call-sampling": ASKS,
    "tools-call-elicitation": ASKS,
    "elicitation-sep1034-defaults": ASKS,
    "elicitation-sep1330-enums": ASKS,
}
PRODUCT_ONLY = "two tools only: see the fixture"


def not_applicable(subject, revision, scenario):
    if scenario.startswith("tasks-"):
        return TASKS
    if scenario in ("server-sse-polling", "server-session-lifecycle"):
        return SESSION
    if scenario == "server-sse-multiple-streams" and revision == "2025-11-25":
        return SESSION
    if subject == "product" and scenario not in PRODUCT:
        return PRODUCT_ONLY
    return None


def cell(subject, revision, scenario, checks):
    """The cell's text, and what is wrong with it."""
    reason = not_applicable(subject, revision, scenario)
    if reason:
        return f"n/a: {reason}", None
    if scenario in BY_DESIGN:
        fails = any(c["status"] == "FAILURE" for c in checks)
        name = f"{subject} {revision} {scenario}"
        return f"fails by design: {BY_DESIGN[scenario]}", None if fails else f"{name}: passes, against the design"
    why, excepted = EXCEPT.get(scenario, ("", set())) if subject == "product" else ("", set())
    # The suite adds this one to every scenario, so that it says nothing about any of them.
    passed = [c for c in checks if c["status"] == "SUCCESS" and c["id"] != "wire-schema-valid"]
    bad = [c for c in checks if c["status"] in ("FAILURE", "WARNING")]
    wrong = [c for c in bad if c["id"] not in excepted]
    missing = excepted - {c["id"] for c in bad}
    if wrong or missing or not passed:
        names = sorted({c["id"] for c in wrong}) or sorted(missing) or ["nothing was checked"]
        return f"**fail**: {', '.join(names)}", f"{subject} {revision} {scenario}: {names}"
    text = f"pass ({len(passed)})"
    if excepted:
        text += f"; {len(excepted)} more {why}"
    skipped = sum(c["status"] == "SKIPPED" for c in checks)
    if skipped:
        text += f"; {skipped} skipped by the suite"
    return text, None


def read(directory):
    results = {}
    for file in directory.glob("*/checks.json"):
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT.*$", "", file.parent.name).removeprefix("server-")
        results[scenario] = json.loads(file.read_text())
    return results


def main(results, table, update):
    found = {
        (subject, revision): read(pathlib.Path(results, f"{subject}-{revision}"))
        for subject in SUBJECTS
        for revision in REVISIONS
    }
    faults = [f"{subject} {revision}: no results" for (subject, revision), all_ in found.items() if not all_]
    for scenario in PRODUCT | set(BY_DESIGN):
        if not any(scenario in all_ for all_ in found.values()):
            faults.append(f"{scenario}: the suite does not know it")
    lines = [
        "# Conformance",
        "",
        "`@modelcontextprotocol/conformance` 0.2.0-alpha.12 over Streamable HTTP, run and compared with this page by",
        "`.ci/conformance` (`--update` writes it). *Product* is `agent-mcp serve`; *fixture* is",
        "`crates/mcp/examples/conformance`, the suite's own tools, prompts and resources on the same transport stack.",
        "In brackets: checks that passed. A scenario that passes only because its fixture is missing does not count.",
        "What the suite itself would say of a server is stricter: it asks every server for the fixtures and for streams.",
        "",
    ]
    for revision in REVISIONS:
        lines += [f"## {revision}", "", "| scenario | product | fixture |", "|---|---|---|"]
        for scenario in sorted(found["product", revision]):
            cells = []
            for subject in SUBJECTS:
                text, fault = cell(subject, revision, scenario, found[subject, revision].get(scenario, []))
                cells.append(text)
                faults += [fault] if fault else []
            if cells[0] == cells[1] and cells[0].startswith("n/a"):
                cells[1] = "the same"
            lines.append(f"| {scenario} | {cells[0]} | {cells[1]} |")
        lines.append("")
    page = "\n".join(lines)
    file = pathlib.Path(table)
    if update:
        file.write_text(page)
    elif not file.exists() or file.read_text() != page:
        faults.append(f"{table} does not say what the run found: .ci/conformance --update")
    for fault in faults:
        print(f"conformance: {fault}")
    count = {text: page.count(f"| {text}") for text in ("pass (", "fails by design", "n/a")}
    print(f"conformance: {count['pass (']} pass, {count['fails by design']} fail by design, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main(sys.argv[1], sys.argv[2], "--update" in sys.argv[3:]))
