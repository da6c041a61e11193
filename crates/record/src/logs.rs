//! Plain logs: not signed, and not proof of anything. The application, LLM and HTTP logs roll; session events do not.

mod http;
mod llm;
mod rolling;
mod session;

pub use http::{HttpLog, HttpRecord};
pub use llm::{
    LlmCall, LlmLog, LlmPhase, LlmRecord, LlmToolCall, LlmToolResult, PromptMessage,
    RequestMetadata, TokenUsage,
};
pub use rolling::{RollingFile, RollingLimits};
pub use session::{SESSION_EVENTS_FILE, SessionEvent, SessionEvents, SessionRecord, read_events};
