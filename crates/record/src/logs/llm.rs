//! The LLM log (DESIGN §15.2): every call with its prompt and answer. There is no member for thinking text.

use super::rolling::{RollingFile, RollingLimits};
use crate::state::{StateDirectory, StateError};
use policy::{RunId, SessionId, TraceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, Write};

const LLM_VERSION: u32 = 1;

/// One line of the LLM log. Both kinds carry the call id and the iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LlmRecord {
    /// A request and its answer.
    Call(LlmCall),
    /// What a tool that the answer called gave back.
    ToolResult(LlmToolResult),
}

/// What a call was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LlmPhase {
    /// Making the plan.
    Planning,
    /// Choosing skills.
    SkillSelection,
    /// Making the plan again.
    Replanning,
    /// Working on a planned Task.
    Execution,
    /// Summing up the context.
    Summary,
}

/// A request to the model and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlmCall {
    /// When the answer was complete; RFC 3339, UTC.
    pub ts: String,
    /// This call.
    pub call_id: String,
    /// Its session.
    pub session_id: SessionId,
    /// Its run: the public `task_id` (X-TASK).
    pub task_id: RunId,
    /// Its planned Task; none while planning.
    pub planned_task_id: Option<String>,
    /// Links it with the audit (DC-3).
    pub trace_id: TraceId,
    /// What it was for.
    pub phase: LlmPhase,
    /// Counts the calls of the run, from 1.
    pub iteration: u32,
    /// How often the plan was made again before.
    pub replan: u32,
    /// The model.
    pub model: String,
    /// How it was asked.
    pub request: RequestMetadata,
    /// What it was asked.
    pub prompt: Vec<PromptMessage>,
    /// The answer's text, without thinking.
    pub response: String,
    /// The tools it called.
    pub tool_calls: Vec<LlmToolCall>,
    /// Tokens.
    pub usage: TokenUsage,
    /// The stable code of a call that failed.
    pub error: Option<String>,
}

/// How the model was asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestMetadata {
    /// Whether thinking was asked for.
    pub think: bool,
    /// Context length, tokens.
    pub num_ctx: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Names of the tools that were offered.
    pub tools: Vec<String>,
    /// Attempts, from 1 (OLL-12).
    pub attempts: u32,
    /// Wall time, milliseconds.
    pub elapsed_ms: u64,
}

/// One message of the prompt. Images are counted, not kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Its text.
    pub content: String,
    /// Images that went with it.
    pub images: u32,
    /// The tools an earlier answer called.
    pub tool_calls: Vec<LlmToolCall>,
}

/// A tool call in an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlmToolCall {
    /// The tool.
    pub name: String,
    /// Its arguments as the model gave them.
    pub arguments: Value,
}

/// What a tool gave back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlmToolResult {
    /// RFC 3339, UTC.
    pub ts: String,
    /// The call whose answer asked for the tool.
    pub call_id: String,
    /// That call's iteration.
    pub iteration: u32,
    /// Its session.
    pub session_id: SessionId,
    /// Its run.
    pub task_id: RunId,
    /// Its planned Task.
    pub planned_task_id: Option<String>,
    /// Links it with the audit (DC-3).
    pub trace_id: TraceId,
    /// The tool.
    pub tool: String,
    /// What the model will read.
    pub result: Value,
}

/// Tokens of one call, as the server counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenUsage {
    /// In the prompt.
    pub prompt_tokens: u64,
    /// In the answer.
    pub response_tokens: u64,
}

/// The LLM log: JSON Lines, user-only, rolling.
#[derive(Debug)]
pub struct LlmLog {
    file: RollingFile,
}

#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    #[serde(flatten)]
    record: &'a LlmRecord,
}

impl LlmLog {
    /// Opens it.
    ///
    /// # Errors
    /// `state.unusable`.
    pub fn open(
        directory: &StateDirectory,
        name: &str,
        limits: RollingLimits,
    ) -> Result<Self, StateError> {
        RollingFile::open(directory, name, limits).map(|file| Self { file })
    }

    /// Appends one record in one write.
    ///
    /// # Errors
    /// The system's refusal. The log proves nothing, so the caller may go on, but must say so.
    pub fn append(&mut self, record: &LlmRecord) -> io::Result<()> {
        let v = LLM_VERSION;
        let mut line = serde_json::to_vec(&Line { v, record })?;
        line.push(b'\n');
        self.file.write_all(&line)
    }

    /// Reads one line of version 1; a member that is not known is refused.
    ///
    /// # Errors
    /// When it is not such a line.
    pub fn read_line(line: &str) -> serde_json::Result<LlmRecord> {
        let mut value: Value = serde_json::from_str(line)?;
        let version = value.as_object_mut().and_then(|line| line.remove("v"));
        if version != Some(LLM_VERSION.into()) {
            return Err(serde::de::Error::custom("not version 1"));
        }
        serde_json::from_value(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_CALL: &str = r#"{"v":1,"type":"call","ts":"2026-01-02T03:04:05.678Z","call_id":"c1","session_id":"6f1c2f3e-0d7b-4c55-9a3c-1c2b3a4d5e6f","task_id":"6f1c2f3e-0d7b-4c55-9a3c-1c2b3a4d5e60","planned_task_id":"T1","trace_id":"6f1c2f3e-0d7b-4c55-9a3c-1c2b3a4d5e61","phase":"execution","iteration":3,"replan":0,"model":"m","request":{"think":true,"num_ctx":8192,"temperature":0.0,"tools":["file_read"],"attempts":1,"elapsed_ms":12},"prompt":[{"role":"user","content":"読む","images":0,"tool_calls":[]}],"response":"","tool_calls":[{"name":"file_read","arguments":{"path":"a"}}],"usage":{"prompt_tokens":10,"response_tokens":2},"error":null}"#;

    #[test]
    fn version_1_is_read_and_written_back_the_same() {
        let record = LlmLog::read_line(V1_CALL).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&directory.path().join("logs")).unwrap();
        let limits = RollingLimits {
            max_file_bytes: 1 << 20,
            retained_files: 1,
        };
        let mut log = LlmLog::open(&state, "llm.jsonl", limits).unwrap();
        log.append(&record).unwrap();
        let text = std::fs::read_to_string(state.path().join("llm.jsonl")).unwrap();
        assert_eq!(text.trim_end(), V1_CALL);
        assert!(text.contains("読む"), "text stays readable");
    }

    #[test]
    fn thinking_text_has_no_place_in_a_record() {
        let with_thinking =
            V1_CALL.replace("\"response\":\"\"", "\"response\":\"\",\"thinking\":\"x\"");
        assert!(LlmLog::read_line(&with_thinking).is_err());
        assert!(LlmLog::read_line(&V1_CALL.replace("\"v\":1", "\"v\":2")).is_err());
    }
}
