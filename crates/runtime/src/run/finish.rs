//! The final answer: one closing call without tools over facts that code checked; without it, an answer by code.

use super::Run;
use super::halt::Halt;
use super::model::Phase;
use crate::compose::{clip, data, one_line};
use crate::evidence::VerifiedResult;
use crate::ollama::Shape;
use policy::{Localize, Message};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Bytes of all facts together.
const FACT_BYTES: usize = 16 * 1024;
/// Bytes of one result among them.
const ONE_FACT_BYTES: usize = 3 * 1024;

impl Run {
    /// The work is done, whatever becomes of its description: only a stop still ends the run.
    pub(super) async fn answer(&mut self) -> Result<String, Halt> {
        self.board.say(Message::new("status.answering"));
        let messages = self.engine.composer.answer(&self.request, &self.facts());
        let think = self.engine.parts.model.ollama.think;
        let written = match self
            .call(Phase::Answer, None, &messages, Shape::Text, think)
            .await
        {
            Ok(answer) => answer.content.trim().to_owned(),
            Err(halt @ Halt::Stopped(_)) => return Err(halt),
            Err(halt) => {
                tracing::warn!(code = %halt.code(), "no closing answer");
                String::new()
            }
        };
        let texts = &*self.engine.parts.texts;
        let mut answer = if written.is_empty() {
            self.fallback(texts)
        } else {
            written
        };
        // A refusal is stated by code, whatever the model wrote about it.
        for refused in self.refusals(texts) {
            answer.push('\n');
            answer.push_str(&refused);
        }
        Ok(answer)
    }

    fn own_results(&self) -> &[VerifiedResult] {
        self.session
            .results
            .get(self.results_from..)
            .unwrap_or_default()
    }

    fn facts(&self) -> String {
        let mut facts = String::new();
        // Writing to a String cannot fail.
        let mut put = |words: std::fmt::Arguments<'_>| {
            let _ = writeln!(facts, "{words}");
        };
        if let Some(graph) = &self.graph {
            for task in graph.tasks() {
                put(format_args!(
                    "COMPLETED: {}",
                    one_line(&clip(&task.description, ONE_FACT_BYTES))
                ));
            }
        }
        for result in self.own_results() {
            let kind = if result.changed { "CHANGED" } else { "SEEN" };
            let text = result.result["output"].as_str().unwrap_or("");
            put(format_args!(
                "{kind}: {}\n{}",
                result.target,
                data(&clip(text, ONE_FACT_BYTES))
            ));
        }
        if self.changed().is_empty() {
            put(format_args!("CHANGED: nothing at all"));
        }
        for denied in &self.denied {
            put(format_args!(
                "REFUSED and not done: {} ({})",
                one_line(&denied.target),
                denied.code
            ));
        }
        for (_, text) in &self.texts {
            if !text.is_empty() {
                put(format_args!(
                    "WRITTEN BY THE MODEL (not checked):\n{}",
                    data(&clip(text, ONE_FACT_BYTES))
                ));
            }
        }
        clip(&facts, FACT_BYTES)
    }

    fn changed(&self) -> BTreeSet<&str> {
        self.own_results()
            .iter()
            .filter(|result| result.changed)
            .map(|result| result.target.as_str())
            .collect()
    }

    fn fallback(&self, texts: &dyn Localize) -> String {
        let spoken: Vec<&str> = self
            .texts
            .iter()
            .map(|(_, text)| text.as_str())
            .filter(|text| !text.is_empty())
            .collect();
        let changed = self.changed();
        let first = if changed.is_empty() {
            Message::new("result.done").with("count", self.texts.len())
        } else {
            let list = changed.into_iter().collect::<Vec<_>>().join(", ");
            Message::new("result.changed").with("targets", list)
        };
        let mut lines = vec![texts.text(&first)];
        lines.extend(spoken.into_iter().map(str::to_owned));
        lines.join("\n")
    }

    fn refusals(&self, texts: &dyn Localize) -> Vec<String> {
        let mut seen = BTreeSet::new();
        self.denied
            .iter()
            .filter(|denied| seen.insert((denied.code, denied.target.as_str())))
            .map(|denied| {
                let why = texts.text(&denied.message);
                texts.text(&Message::new("result.refused").with("reason", one_line(&why)))
            })
            .collect()
    }
}
