//! The Ollama client: the only model backend there is (OLL-01), over its chat API (OLL-02).
//!
//! One call in, one complete answer or one typed fault out. Absent here: nothing streams, no conversation is kept, no
//! tool is run, no configuration is read, no text in a user's language is made, the model cannot be changed by a request
//! (OLL-07), and the text of a model's thinking is neither printed nor serialised except back to the model (DESIGN §6.2).

mod alarm;
mod answer;
mod classify;
mod client;
mod extract;
mod fault;
mod info;
mod payload;
mod read;
mod recover;
mod request;
mod retry;
mod schema;
mod settings;
mod tidy;
mod transport;
mod wire;

pub use alarm::{TruncationAlarm, TruncationWatch};
pub use answer::{AnswerNote, ChatAnswer, DoneReason, Durations, Thinking, Usage, WireCall};
pub use client::OllamaClient;
pub use extract::{ExtractProblem, Extracted, Found, extract_json};
pub use fault::{BadAnswer, FaultKind, OllamaFault, Received, Refused};
pub use info::{Capabilities, InstalledModel, LoadedModel, ModelDetails};
pub use request::{ChatMessage, ChatRequest, RequestOptions, Shape};
pub use retry::{Backoff, Pause};
pub use schema::{SchemaProblem, ToolDefinition, ToolSet};
pub use settings::{OllamaSettings, SettingsProblem};
pub use wire::{ToolWire, ToolWires, WireProblem};
