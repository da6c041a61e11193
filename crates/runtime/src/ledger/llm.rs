//! The LLM log's records (DESIGN §15.2): prompts and answers, never thinking.

use super::Ledger;
use crate::ollama::{
    AnswerNote, ChatAnswer, ChatMessage, ChatRequest, OllamaFault, Shape, WireCall,
};
use crate::tools::ToolResult;
use policy::config::Think;
use record::logs::{
    LlmCall, LlmPhase, LlmRecord, LlmToolCall, LlmToolResult, PromptMessage, RequestMetadata,
    TokenUsage,
};
use serde_json::json;
use std::time::Duration;

/// One call to the model and what came of it.
pub(crate) struct LlmExchange<'a> {
    pub phase: LlmPhase,
    pub task: Option<&'a str>,
    pub iteration: u32,
    pub replan: u32,
    pub model: &'a str,
    pub request: &'a ChatRequest,
    pub answered: Result<&'a ChatAnswer, &'a OllamaFault>,
    pub elapsed: Duration,
}

impl Ledger {
    /// Logs a call.
    pub(crate) fn model_call(&self, exchange: &LlmExchange<'_>) {
        let answer = exchange.answered.ok();
        let options = &exchange.request.options.known;
        let attempts = match exchange.answered {
            Ok(answer) => {
                let repeated = |note: &&AnswerNote| matches!(note, AnswerNote::Repeated { .. });
                1 + answer.notes.iter().filter(repeated).count() as u32
            }
            Err(fault) => fault.attempts,
        };
        let tools = match &exchange.request.shape {
            Shape::Tools(set) => set.wires().wire_names().map(str::to_owned).collect(),
            Shape::Text | Shape::Structured(_) => Vec::new(),
        };
        self.log(&LlmRecord::Call(LlmCall {
            ts: self.stamp(),
            call_id: self.call_id(exchange.iteration),
            session_id: self.session,
            task_id: self.run,
            planned_task_id: exchange.task.map(str::to_owned),
            trace_id: self.trace,
            phase: exchange.phase,
            iteration: exchange.iteration,
            replan: exchange.replan,
            model: exchange.model.to_owned(),
            request: RequestMetadata {
                think: exchange.request.think != Think::Switch(false),
                num_ctx: Some(options.num_ctx.into()),
                temperature: options.temperature,
                tools,
                attempts,
                elapsed_ms: u64::try_from(exchange.elapsed.as_millis()).unwrap_or(u64::MAX),
            },
            prompt: exchange.request.messages.iter().map(message).collect(),
            response: answer.map_or_else(String::new, |answer| answer.content.clone()),
            tool_calls: answer.map_or_else(Vec::new, |answer| calls(&answer.tool_calls)),
            usage: answer.map_or_else(TokenUsage::default, |answer| TokenUsage {
                prompt_tokens: answer.usage.input.unwrap_or(0),
                response_tokens: answer.usage.output.unwrap_or(0),
            }),
            error: exchange
                .answered
                .err()
                .map(|fault| fault.code().to_string()),
        }));
    }

    /// Logs what a called tool gave back.
    pub(crate) fn tool_result(
        &self,
        task: &str,
        iteration: u32,
        call: &WireCall,
        result: &ToolResult,
    ) {
        self.log(&LlmRecord::ToolResult(LlmToolResult {
            ts: self.stamp(),
            call_id: self.call_id(iteration),
            iteration,
            session_id: self.session,
            task_id: self.run,
            planned_task_id: Some(task.to_owned()),
            trace_id: self.trace,
            tool: call.wire_name.clone(),
            result: json!({
                "tool_call_id": call.id, "ok": result.ok, "code": result.code.map(policy::Code::as_str),
                "output": result.output, "evidence": result.evidence.to_string(),
            }),
        }));
    }

    fn call_id(&self, iteration: u32) -> String {
        format!("{}-{iteration}", self.run)
    }
}

fn message(message: &ChatMessage) -> PromptMessage {
    let (role, content, images, made) = match message {
        ChatMessage::System(content) => ("system", content, 0, &[][..]),
        ChatMessage::User { content, images } => ("user", content, images.len(), &[][..]),
        ChatMessage::Assistant { content, calls, .. } => ("assistant", content, 0, &calls[..]),
        ChatMessage::Tool { content, .. } => ("tool", content, 0, &[][..]),
    };
    PromptMessage {
        role: role.to_owned(),
        content: content.clone(),
        images: u32::try_from(images).unwrap_or(u32::MAX),
        tool_calls: calls(made),
    }
}

fn calls(calls: &[WireCall]) -> Vec<LlmToolCall> {
    let call = |call: &WireCall| LlmToolCall {
        name: call.wire_name.clone(),
        arguments: call.arguments.clone(),
    };
    calls.iter().map(call).collect()
}
