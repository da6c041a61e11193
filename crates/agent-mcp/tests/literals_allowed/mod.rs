//! What may stand in the code as a sentence, and why.

/// Macros whose texts only developers see.
pub const NOT_FOR_PEOPLE: &[&str] = &[
    "assert",
    "assert_eq",
    "debug_assert",
    "panic",
    "unreachable",
    "asm",
    "naked_asm",
    "include_str",
];

const MODEL: &str =
    "told to the model, whose prompts are in English; the language of its answer is an instruction";
const RULE: &str = "names a rule for the audit and the model; people get its text from policy::fault, or no rule at all";
const TABLE: &str = "a reason in a table, for who reads the code (style.md)";
const STEP: &str =
    "names the step that failed, for the bug report that the localized message asks for";
const PROTOCOL: &str = "a JSON-RPC error for the program that sent broken protocol";
const WIRE: &str = "what another program says or reads, word for word";
const OURS: &str =
    "our own fault at that place, for the bug report that the localized message asks for";
const DEMO: &str = "what the demonstration asks the recorded model, which answers in English";
const FILE: &str = "content of a file that is written or read";

/// Start of a path below `crates`, how the text begins, and the reason.
pub const ALLOWED: &[(&str, &str, &str)] = &[
    (
        "agent-mcp/src/table.rs",
        "、",
        "characters that begin no line",
    ),
    ("agent-mcp/src/recorded/", "", WIRE),
    ("agent-mcp/src/commands/demo.rs", "", DEMO),
    ("agent-mcp/src/commands/exec.rs", "X-MODE: ", RULE),
    (
        "agent-mcp/src/commands/exec/report.rs",
        "",
        "the JSON report, which programs read",
    ),
    ("agent-mcp/src/commands/init", "", FILE),
    ("agent-mcp/src/deployment/own_files.rs", "", RULE),
    (
        "mcp/src/result_text.rs",
        "",
        "fields of a result text, whose names are fixed (DESIGN §5.5)",
    ),
    ("mcp/src/http/", "", PROTOCOL),
    ("mcp/src/message.rs", "", PROTOCOL),
    ("mcp/src/server.rs", "", PROTOCOL),
    ("mcp/src/tasks.rs", "", PROTOCOL),
    ("mcp/src/stdio/", "", PROTOCOL),
    ("policy/src/call.rs", "", RULE),
    ("policy/src/call/program.rs", "", RULE),
    (
        "policy/src/config/",
        "",
        "values that may be written, as they are written",
    ),
    ("policy/src/effective/freeze.rs", "", RULE),
    ("policy/src/fault.rs", "", RULE),
    ("policy/src/layers.rs", "", RULE),
    ("policy/src/path.rs", "", RULE),
    ("policy/src/reach.rs", "", TABLE),
    ("policy/src/sandbox.rs", "", OURS),
    ("policy/src/tool.rs", "", MODEL),
    ("record/src/", "", STEP),
    ("runtime/src/capability.rs", "", MODEL),
    ("runtime/src/catalogue.rs", "", MODEL),
    ("runtime/src/compose.rs", "", MODEL),
    ("runtime/src/desk.rs", "", RULE),
    ("runtime/src/ledger.rs", "", STEP),
    ("runtime/src/ledger/", "", STEP),
    ("runtime/src/ollama/classify.rs", "", WIRE),
    (
        "runtime/src/ollama/payload.rs",
        "",
        "the log of what was sent",
    ),
    ("runtime/src/ollama/schema.rs", "", TABLE),
    ("runtime/src/plan.rs", "", MODEL),
    ("runtime/src/run/", "", MODEL),
    ("runtime/src/service.rs", "", RULE),
    ("runtime/src/tools/", "", MODEL),
    ("sandbox-linux/src/linux/", "", STEP),
];
