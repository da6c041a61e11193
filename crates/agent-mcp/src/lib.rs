//! agent-mcp
pub mod recorded;
