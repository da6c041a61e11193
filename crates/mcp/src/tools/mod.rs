//! The two tools: what they are called, what they take, what they refuse.

pub(crate) mod arguments;
pub(crate) mod images;
pub(crate) mod schema;

use policy::{Localize, Message};
use rmcp::model::{Tool, ToolAnnotations};

/// Hands over work.
pub(crate) const RUN: &str = "agent_run";
/// Asks what became of it.
pub(crate) const STATUS: &str = "agent_status";

/// What `tools/list` shows: these two and nothing else (AGT-06).
pub(crate) fn list(localize: &dyn Localize) -> Vec<Tool> {
    let run = Tool::new(
        RUN,
        localize.text(&Message::new("mcp.tool_agent_run")),
        schema::run(),
    )
    // Honest hints: a run may change and delete files, and no two runs are the same.
    .with_annotations(
        ToolAnnotations::new()
            .read_only(false)
            .destructive(true)
            .idempotent(false)
            .open_world(true),
    );
    let status = Tool::new(
        STATUS,
        localize.text(&Message::new("mcp.tool_agent_status")),
        schema::status(),
    )
    .with_annotations(
        ToolAnnotations::new()
            .read_only(true)
            .idempotent(true)
            .open_world(false),
    );
    vec![run, status]
}
