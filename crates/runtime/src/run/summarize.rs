//! A context that grows too full is summarized, never just cut (SES-05, SES-06, DESIGN §9.3).

use super::Run;
use super::begin::Seat;
use super::halt::Halt;
use super::model::Phase;
use crate::compose::{Composer, clip};
use crate::ollama::{ChatMessage, Shape};
use policy::config::Think;
use policy::{Code, Message, Refusal};
use std::fmt::Write;

/// Turns kept as they are behind a summary: the last assistant message and what answered it.
const KEPT_TURNS: usize = 1;
/// Bytes of one message in the record that is summarized.
const RECORD_MESSAGE_BYTES: usize = 3 * 1024;
/// Fewest bytes that a token stands for; a prompt of more than this many bytes per token of context cannot fit.
const LEAST_BYTES_PER_TOKEN: usize = 2;
/// Bytes that a token stands for where nothing was counted yet.
const BYTES_PER_TOKEN: usize = 3;

/// Bytes of a prompt's texts.
pub(super) fn prompt_bytes(messages: &[ChatMessage]) -> usize {
    messages.iter().map(message_bytes).sum()
}

fn message_bytes(message: &ChatMessage) -> usize {
    match message {
        ChatMessage::System(content) => content.len(),
        ChatMessage::User { content, .. } => content.len(),
        ChatMessage::Assistant { content, calls, .. } => {
            let calls: usize = calls
                .iter()
                .map(|call| call.wire_name.len() + call.arguments.to_string().len())
                .sum();
            content.len() + calls
        }
        ChatMessage::Tool { content, .. } => content.len(),
    }
}

impl Run {
    /// A shorter prompt for the same Task, when the context is nearly used up; else nothing.
    pub(super) async fn shortened(
        &mut self,
        seat: &Seat,
        messages: &[ChatMessage],
    ) -> Result<Option<Vec<ChatMessage>>, Halt> {
        let options = &self.engine.parts.model.ollama.options;
        let num_ctx = options.num_ctx as usize;
        let ratio = self.engine.limits().context_summary_ratio;
        let bytes = prompt_bytes(messages);
        let counted = self.last_prompt_tokens.unwrap_or(0) as f64 >= ratio * num_ctx as f64;
        let estimated = bytes / BYTES_PER_TOKEN >= num_ctx;
        if !counted && !estimated {
            return Ok(None);
        }
        let from = first_turn(messages);
        let keep = last_turns(messages).max(from);
        let older_exchanges = !self.session.conversation.is_empty();
        if keep <= from && !older_exchanges {
            // Nothing is old enough. What cannot fit is said before the server says it.
            return if bytes / LEAST_BYTES_PER_TOKEN.pow(2) > num_ctx {
                Err(
                    Refusal::new(Code::OllamaContextExceeded, "num_ctx", "prompt")
                        .with("detail", format!("{bytes} bytes, num_ctx {num_ctx}"))
                        .into(),
                )
            } else {
                Ok(None)
            };
        }
        self.board
            .say(Message::new("status.summarizing").with("task", &seat.id));
        if older_exchanges {
            let mut record = self.session.summary.clone().unwrap_or_default();
            for exchange in &self.session.conversation {
                // Writing to a String cannot fail.
                let _ = writeln!(
                    record,
                    "REQUEST: {}\nANSWER: {}",
                    clip(&exchange.request, RECORD_MESSAGE_BYTES),
                    clip(&exchange.answer, RECORD_MESSAGE_BYTES)
                );
            }
            let summary = self.summary_of(&record).await?;
            self.session.summary = Some(summary);
            self.session.conversation.clear();
        }
        let progress = if keep > from {
            Some(self.summary_of(&transcript(&messages[from..keep])).await?)
        } else {
            None
        };
        // The count belongs to the prompt that is given up.
        self.last_prompt_tokens = None;
        // Graph, results, denials and the request come in anew, by code and word for word (SES-06).
        let mut shorter = self.start_messages(seat, progress.as_deref())?;
        shorter.extend_from_slice(&messages[keep..]);
        Ok(Some(shorter))
    }

    /// One call of session maintenance. Where it gives nothing, code keeps the ends of every line.
    async fn summary_of(&mut self, record: &str) -> Result<String, Halt> {
        let called = self
            .call(
                Phase::Maintenance,
                None,
                &Composer::summary(record),
                Shape::Text,
                Think::Switch(false),
            )
            .await;
        match called {
            Ok(answer) if !answer.content.trim().is_empty() => Ok(answer.content.trim().to_owned()),
            Err(halt @ Halt::Stopped(_)) => Err(halt),
            Err(halt) if halt.code() == Code::MaxIterations => Err(halt),
            Ok(_) | Err(_) => {
                let lines: Vec<String> = record.lines().map(|line| clip(line, 120)).collect();
                Ok(clip(&lines.join("\n"), RECORD_MESSAGE_BYTES))
            }
        }
    }
}

/// Where the turns of the Task begin: behind the closing message.
fn first_turn(messages: &[ChatMessage]) -> usize {
    let closing = messages.iter().position(
        |message| matches!(message, ChatMessage::User { content, .. } if content.starts_with("CURRENT TASK ")),
    );
    closing.map_or(messages.len(), |at| at + 1)
}

/// Where the kept turns begin.
fn last_turns(messages: &[ChatMessage]) -> usize {
    let mut turns = messages
        .iter()
        .enumerate()
        .filter(|(_, message)| matches!(message, ChatMessage::Assistant { .. }))
        .map(|(at, _)| at)
        .rev();
    turns.nth(KEPT_TURNS - 1).unwrap_or(messages.len())
}

fn transcript(messages: &[ChatMessage]) -> String {
    let mut text = String::new();
    let mut put = |who: &str, words: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{who}: {}", clip(words, RECORD_MESSAGE_BYTES));
    };
    for message in messages {
        match message {
            ChatMessage::System(content) => put("RULES", content),
            ChatMessage::User { content, .. } => put("PROGRAM", content),
            ChatMessage::Assistant { content, calls, .. } => {
                if !content.is_empty() {
                    put("YOU", content);
                }
                for call in calls {
                    put(
                        "YOU CALLED",
                        &format!("{} {}", call.wire_name, call.arguments),
                    );
                }
            }
            ChatMessage::Tool { content, .. } => put("RESULT", content),
        }
    }
    text
}
