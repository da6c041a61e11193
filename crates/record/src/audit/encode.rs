//! A record's bytes. What depends on the event alone is made by the caller's thread; number, time, chain and mac are
//! put in by the one writer.

use super::RECORD_LIMIT;
use super::error::AuditError;
use super::event::AuditEvent;
use super::key::Keyed;
use crate::private;
use hmac::Mac;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::Write;

/// The version of the record format.
pub(crate) const RECORD_VERSION: u32 = 1;
/// `prev` of the first record of a chain.
pub(crate) const NO_RECORD: [u8; 64] = [b'0'; 64];
/// The largest integer that every JSON reader keeps (RFC 8785).
const EXACT_INTEGERS: u64 = 1 << 53;
/// `mac`, `prev`, `seq` and `ts` with their names, at most.
const LATER_BYTES: usize = 256;

/// The canonical members in order, cut where the writer's own values go: before `mac`, at `prev`, at `seq`, at `ts`.
#[derive(Debug)]
pub(crate) struct Encoded {
    text: Vec<u8>,
    cuts: [usize; 3],
}

impl Encoded {
    /// # Errors
    /// An event that is too large or has no JSON form.
    pub(crate) fn of(event: &AuditEvent, boot_id: &str) -> Result<Self, AuditError> {
        let mut text = Vec::with_capacity(640);
        let put = |text: &mut Vec<u8>, bytes: &str| text.extend_from_slice(bytes.as_bytes());
        put(&mut text, "{\"boot_id\":\"");
        put(&mut text, boot_id);
        put(&mut text, "\",\"code\":");
        scalar(&event.code.map(policy::Code::as_str), &mut text)?;
        put(&mut text, ",\"decision\":\"");
        put(&mut text, event.decision.word());
        put(&mut text, "\",\"detail\":");
        if has_large_integer(&event.detail) {
            canonical(&spell_large_integers(&event.detail), &mut text)?;
        } else {
            canonical(&event.detail, &mut text)?;
        }
        put(&mut text, ",\"event\":\"");
        put(&mut text, event.name.word());
        put(&mut text, "\"");
        let before_mac = text.len();
        put(&mut text, ",\"planned_task_id\":");
        scalar(&event.planned_task_id, &mut text)?;
        put(&mut text, ",\"prev\":\"");
        let at_prev = text.len();
        put(&mut text, "\",\"run_id\":");
        scalar(&event.run_id, &mut text)?;
        put(&mut text, ",\"seq\":");
        let at_seq = text.len();
        put(&mut text, ",\"session_id\":");
        scalar(&event.session_id, &mut text)?;
        put(&mut text, ",\"target\":");
        scalar(&event.target, &mut text)?;
        write!(text, ",\"trace_id\":\"{}\",\"ts\":\"", event.trace_id)
            .map_err(serde_json::Error::io)?;
        if text.len() + LATER_BYTES > RECORD_LIMIT {
            return Err(AuditError::RecordTooLarge {
                bytes: text.len() + LATER_BYTES,
                limit: RECORD_LIMIT,
            });
        }
        Ok(Self {
            text,
            cuts: [before_mac, at_prev, at_seq],
        })
    }

    /// Appends the finished line to `out` and returns its mac.
    pub(crate) fn seal(
        &self,
        seq: u64,
        stamp: &str,
        prev: &[u8; 64],
        keyed: &Keyed,
        out: &mut Vec<u8>,
    ) -> [u8; 64] {
        let [before_mac, at_prev, at_seq] = self.cuts;
        let seq = seq.to_string();
        let end = format!("{stamp}\",\"v\":{RECORD_VERSION}}}");
        let front = &self.text[..before_mac];
        let back: [&[u8]; 6] = [
            &self.text[before_mac..at_prev],
            prev,
            &self.text[at_prev..at_seq],
            seq.as_bytes(),
            &self.text[at_seq..],
            end.as_bytes(),
        ];
        let mut hasher = keyed.clone();
        hasher.update(front);
        back.iter().for_each(|part| hasher.update(part));
        let mac = private::hex::<32, 64>(&hasher.finalize().into_bytes().into());
        out.extend_from_slice(front);
        out.extend_from_slice(b",\"mac\":\"");
        out.extend_from_slice(&mac);
        out.push(b'"');
        back.iter().for_each(|part| out.extend_from_slice(part));
        out.push(b'\n');
        mac
    }

    /// Roughly what it holds in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }
}

fn canonical(members: &Map<String, Value>, out: &mut Vec<u8>) -> serde_json::Result<()> {
    serde_json_canonicalizer::to_writer(members, out)
}

/// A string or null, whose plain JSON is canonical.
fn scalar(value: &impl Serialize, out: &mut Vec<u8>) -> serde_json::Result<()> {
    serde_json::to_writer(out, value)
}

fn is_large(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.as_u64().is_some_and(|n| n > EXACT_INTEGERS)
                || number
                    .as_i64()
                    .is_some_and(|n| n.unsigned_abs() > EXACT_INTEGERS)
        }
        Value::Array(items) => items.iter().any(is_large),
        Value::Object(members) => has_large_integer(members),
        _ => false,
    }
}

fn has_large_integer(members: &Map<String, Value>) -> bool {
    members.values().any(is_large)
}

fn spell_large_integers(members: &Map<String, Value>) -> Map<String, Value> {
    fn spell(value: &Value) -> Value {
        match value {
            Value::Number(number) if is_large(value) => Value::String(number.to_string()),
            Value::Array(items) => Value::Array(items.iter().map(spell).collect()),
            Value::Object(members) => Value::Object(spell_large_integers(members)),
            other => other.clone(),
        }
    }
    members
        .iter()
        .map(|(name, value)| (name.clone(), spell(value)))
        .collect()
}
