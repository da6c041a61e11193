//! agent-mcp
