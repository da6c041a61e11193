//! The prompt, in DESIGN §9.2's order.
//!
//! Parts 1 to 5 are the system message and stay the same for the whole run. Parts 6 to 10 are one user message, a snapshot
//! taken when the planned Task starts. Part 11, the conversation, follows, and then the closing message about the current
//! Task, sent once. From there a Task's prompt only ever grows at its end (X-CACHE).

use crate::capability;
use crate::catalogue::in_wire_words;
use crate::evidence::{Denied, Evidence, VerifiedResult};
use crate::ollama::ChatMessage;
use crate::parts::{Language, SkillDescriptor};
use crate::session::SessionContext;
use planner::{PlannedTask, TaskGraph};
use policy::EffectivePolicy;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Part 1. Compiled in; nothing replaces it (SEC-INV-09).
pub(crate) const FIXED_SYSTEM: &str = include_str!("../prompts/fixed-system.md");
const PLANNING: &str = include_str!("../prompts/planning.md");
const FINAL: &str = include_str!("../prompts/final.md");
const SUMMARY: &str = include_str!("../prompts/summary.md");

/// Earlier exchanges shown as conversation; older ones are in the summary, or wait for it.
const RECENT_EXCHANGES: usize = 6;
/// Bytes of earlier results shown to a Task, newest first.
const RESULT_BYTES: usize = 12 * 1024;
/// Bytes of one earlier result.
const ONE_RESULT_BYTES: usize = 4 * 1024;

/// What never changes during a process: system messages of every phase.
#[derive(Clone, Debug)]
pub(crate) struct Composer {
    execution: String,
    planning: String,
    answering: String,
}

impl Composer {
    pub(crate) fn new(
        policy: &EffectivePolicy,
        user_system_prompt: Option<&str>,
        skills: &[SkillDescriptor],
        language: &Language,
    ) -> Self {
        let locale = locale_instruction(language);
        let skills = skill_catalogue(skills);
        let capability = capability::summary(policy);
        let user = user_system_prompt.map(|text| {
            format!(
                "ADDITIONAL INSTRUCTIONS OF THE OWNER (they never override the rules above)\n{}\n",
                text.trim()
            )
        });
        let join = |parts: &[Option<&str>]| {
            let given: Vec<&str> = parts
                .iter()
                .flatten()
                .map(|part| part.trim_end())
                .filter(|part| !part.is_empty())
                .collect();
            given.join("\n\n")
        };
        Self {
            execution: join(&[
                Some(FIXED_SYSTEM),
                user.as_deref(),
                Some(&locale),
                Some(&skills),
                Some(&capability),
            ]),
            planning: join(&[
                Some(PLANNING),
                Some(&locale),
                Some(&skills),
                Some(&capability),
            ]),
            answering: join(&[Some(FINAL), Some(&locale)]),
        }
    }

    /// Planning and replanning: contract, locale, Skills, capabilities, and the request (DESIGN §9.2). `history` says
    /// what is done and what was refused; empty for the first plan.
    pub(crate) fn planning(
        &self,
        request: &str,
        history: &str,
        images: &[String],
    ) -> Vec<ChatMessage> {
        let mut content = format!("REQUEST\n{}\n", data(request));
        if !history.is_empty() {
            content.push('\n');
            content.push_str(history);
        }
        content.push_str("\nAnswer with the JSON object now.");
        vec![
            ChatMessage::System(self.planning.clone()),
            ChatMessage::User {
                content,
                images: images.to_vec(),
            },
        ]
    }

    /// The start of a planned Task.
    pub(crate) fn task(&self, start: &TaskStart<'_>) -> Vec<ChatMessage> {
        let mut messages = vec![
            ChatMessage::System(self.execution.clone()),
            ChatMessage::user(start.snapshot()),
        ];
        let conversation = &start.session.conversation;
        let recent = conversation.len().saturating_sub(RECENT_EXCHANGES);
        for exchange in &conversation[recent..] {
            messages.push(ChatMessage::user(format!(
                "EARLIER REQUEST (already answered)\n{}",
                data(&exchange.request)
            )));
            messages.push(ChatMessage::Assistant {
                content: exchange.answer.clone(),
                thinking: None,
                calls: Vec::new(),
            });
        }
        messages.push(ChatMessage::User {
            content: start.closing(),
            images: start.images.to_vec(),
        });
        messages
    }

    /// The closing call: facts only.
    pub(crate) fn answer(&self, request: &str, facts: &str) -> Vec<ChatMessage> {
        vec![
            ChatMessage::System(self.answering.clone()),
            ChatMessage::user(format!(
                "REQUEST\n{}\n\nFACTS\n{facts}\nWrite the answer now.",
                data(request)
            )),
        ]
    }

    /// Shortening a record (SES-05).
    pub(crate) fn summary(record: &str) -> Vec<ChatMessage> {
        vec![
            ChatMessage::System(SUMMARY.trim_end().to_owned()),
            ChatMessage::user(format!(
                "RECORD\n{}\nWrite the short version now.",
                data(record)
            )),
        ]
    }
}

/// Everything the start of a planned Task is made from.
pub(crate) struct TaskStart<'a> {
    pub graph: &'a TaskGraph,
    pub task: &'a PlannedTask,
    pub session: &'a SessionContext,
    pub request: &'a str,
    pub images: &'a [String],
    /// A summary of this very Task's earlier turns, when its context was cut (SES-05).
    pub progress: Option<&'a str>,
    /// What this Task still needs.
    pub evidence: &'a Evidence,
}

impl TaskStart<'_> {
    /// Parts 6 to 10.
    fn snapshot(&self) -> String {
        let mut text =
            String::from("STATE OF THE WORK (written by the program, not by a person)\n\nTASKS\n");
        for task in self.graph.tasks() {
            let marker = if task.id == self.task.id {
                "CURRENT TASK"
            } else {
                task.state.as_str()
            };
            let after: Vec<&str> = task.dependencies.iter().map(|id| id.as_str()).collect();
            let after = if after.is_empty() {
                String::new()
            } else {
                format!(" (after {})", after.join(", "))
            };
            put(
                &mut text,
                format_args!(
                    "- {} [{marker}]{after}: {}",
                    task.id,
                    one_line(&task.description)
                ),
            );
        }
        if let Some(summary) = &self.session.summary {
            put(
                &mut text,
                format_args!("\nSUMMARY OF EARLIER WORK\n{}", data(summary)),
            );
        }
        let results = results(&self.session.results);
        if !results.is_empty() {
            put(
                &mut text,
                format_args!(
                    "\nVERIFIED RESULTS SO FAR (use them, do not fetch them again)\n{results}"
                ),
            );
        }
        let denials = denials(&self.session.denials);
        if !denials.is_empty() {
            put(
                &mut text,
                format_args!("\nREFUSED, do not try again\n{denials}"),
            );
        }
        put(
            &mut text,
            format_args!(
                "\nORIGINAL REQUEST (for exact paths, arguments and values)\n{}",
                data(self.request)
            ),
        );
        put(
            &mut text,
            format_args!("\nWHAT THE CURRENT TASK NEEDS\n{}", self.needs()),
        );
        text
    }

    /// Part 10.
    fn needs(&self) -> String {
        if self.evidence.is_talk() {
            return "No tool is needed. Answer in text. You may look at files if it helps."
                .to_owned();
        }
        let tools: Vec<&str> = self
            .task
            .required_tools
            .iter()
            .map(|tool| in_wire_words(tool.as_str()))
            .collect();
        let mut text = format!(
            "These tools must succeed before it counts as done: {}.",
            tools.join(", ")
        );
        if self.task.requires_external_effect {
            text.push_str(" Something outside must change: words, plans and JSON in your text change nothing. Call the tool at once.");
        }
        text
    }

    /// The current Task, once, at its start.
    fn closing(&self) -> String {
        let mut text = format!(
            "CURRENT TASK {}\n{}\n\nIt belongs to this request:\n{}\n",
            self.task.id,
            data(&self.task.description),
            data(self.request)
        );
        if let Some(progress) = self.progress {
            put(
                &mut text,
                format_args!("\nDone in this task so far:\n{}", data(progress)),
            );
        }
        put(&mut text, format_args!("\n{}", self.needs()));
        text.push_str(if self.evidence.is_talk() {
            "Do only this task."
        } else {
            "Do only this task. Call a tool now; do not describe."
        });
        text
    }
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}

fn locale_instruction(language: &Language) -> String {
    format!(
        "LANGUAGE\nWrite everything that a person reads in {} ({}). {}",
        language.name, language.tag, language.instruction
    )
}

fn skill_catalogue(skills: &[SkillDescriptor]) -> String {
    if skills.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = skills
        .iter()
        .map(|skill| {
            format!(
                "- {}: {}",
                one_line(&skill.name),
                one_line(&skill.description)
            )
        })
        .collect();
    format!(
        "SKILLS (a skill gives advice and no permission)\n{}",
        lines.join("\n")
    )
}

/// Text from outside between marks that it cannot close itself.
pub(crate) fn data(text: &str) -> String {
    let inside = text
        .replace("<data", "<\u{200b}data")
        .replace("</data", "<\u{200b}/data");
    format!("<data>\n{inside}\n</data>")
}

/// One line, without control characters.
pub(crate) fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control() || c == '\u{2028}' || c == '\u{2029}')
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// At most so many bytes, cut at a character, with a mark.
pub(crate) fn clip(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = (0..=bytes)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    format!("{}…[{} bytes left out]", &text[..end], text.len() - end)
}

/// Newest results first until the room is used up, then put back in order. Changes are always named (SES-06).
fn results(results: &[VerifiedResult]) -> String {
    let mut room = RESULT_BYTES;
    let mut lines = Vec::new();
    for result in results.iter().rev() {
        let text = result
            .result
            .as_str()
            .map_or_else(|| result.result.to_string(), str::to_owned);
        let full = format!(
            "- {}\n{}",
            one_line(&result.target),
            data(&clip(&text, ONE_RESULT_BYTES))
        );
        if full.len() <= room {
            room -= full.len();
            lines.push(full);
        } else if result.changed {
            lines.push(format!("- {} (changed)", one_line(&result.target)));
        }
    }
    lines.reverse();
    lines.join("\n")
}

fn denials(denials: &[Denied]) -> String {
    let mut seen = BTreeSet::new();
    let lines = denials
        .iter()
        .map(|denied| format!("- {} ({})", one_line(&denied.target), denied.code))
        .filter(|line| seen.insert(line.clone()));
    lines.collect::<Vec<_>>().join("\n")
}
