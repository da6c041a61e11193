//! `process_run` (DESIGN §7.4): the judged program, inside the Task's sandbox and nowhere else.

use super::effect::{EffectEnd, Intent, record};
use super::open::shown;
use super::result::{Effect, EffectKind, ToolResult, digest};
use super::{EffectLog, Fuse, ToolContext, text};
use policy::path::ResolvedPath;
use policy::sandbox::{
    CapturedOutput, ProcessEnd, ProcessOutcome, ProcessRequest, ProgramIdentity, SandboxError,
};
use policy::tool::ProcessRun;
use policy::{Code, Message, Refusal};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs the program to its end and tells the model what it did. A program that ends with a failure is a failed call.
///
/// # Errors
/// `SANDBOX_UNAVAILABLE` without a sandbox, and what the sandbox refused.
pub(super) fn run<L: EffectLog>(
    call: &ProcessRun,
    program: ProgramIdentity,
    cwd: &ResolvedPath,
    context: &ToolContext<'_, L>,
) -> Result<ToolResult, Refusal> {
    let path = program.path.clone();
    let Some(sandbox) = context.sandbox else {
        return Err(Refusal::new(
            Code::SandboxUnavailable,
            "programs run confined or not at all",
            shown(&path),
        ));
    };
    let most = context.policy.resources().execution_timeout;
    let argv: Vec<OsString> = std::iter::once(&call.executable)
        .chain(&call.args)
        .map(OsString::from)
        .collect();
    let request = ProcessRequest {
        program: program.clone(),
        argv: argv.clone(),
        cwd: cwd.path().to_owned(),
        stdin: call.stdin.as_ref().map(|text| text.as_bytes().to_vec()),
        timeout: call
            .timeout_seconds
            .map_or(most, |seconds| Duration::from_secs(seconds).min(most)),
        spool_directory: Some(context.task_temp.to_owned()),
    };
    let intent = Intent::RunProgram {
        program,
        argv,
        cwd: request.cwd.clone(),
    };
    let recorded = record(context.effect_log, &intent)?;
    context.burn(Fuse::Recorded);
    match sandbox.run(&request) {
        Err(error) => {
            let end = match error {
                SandboxError::Failed { .. } | SandboxError::Residue { .. } => EffectEnd::Unclear,
                SandboxError::Unavailable { .. }
                | SandboxError::Refused(_)
                | SandboxError::NotFound(_)
                | SandboxError::NotExecutable { .. } => EffectEnd::Undone,
            };
            Err(recorded.close_failed(end, of_sandbox(error, &path)))
        }
        Ok(outcome) => {
            context.burn(Fuse::Applied);
            let effects = vec![Effect {
                kind: EffectKind::ProgramRan,
                path: path.clone(),
                before_sha256: None,
                after_sha256: None,
            }];
            let result = observation(&outcome, request.timeout, path, effects);
            Ok(match recorded.close(EffectEnd::Done) {
                Ok(()) => result,
                Err(refusal) => ToolResult::failure(refusal, result.effects),
            })
        }
    }
}

fn of_sandbox(error: SandboxError, program: &Path) -> Refusal {
    let code = error.code();
    match error {
        SandboxError::Refused(refusal) => *refusal,
        SandboxError::Unavailable { stage, reason } | SandboxError::Failed { stage, reason } => {
            Refusal::new(code, stage, shown(program)).with("detail", reason)
        }
        SandboxError::NotFound(path) => Refusal::new(code, "must exist", shown(&path)),
        SandboxError::NotExecutable { path, errno } => {
            Refusal::new(code, "must be executable", shown(&path))
                .because(std::io::Error::from_raw_os_error(errno))
        }
        SandboxError::Residue { what } => Refusal::new(code, "nothing is left behind", what),
    }
}

/// What the model sees of a run, and whether it was a success.
fn observation(
    outcome: &ProcessOutcome,
    timeout: Duration,
    program: PathBuf,
    effects: Vec<Effect>,
) -> ToolResult {
    let limit = timeout.as_secs();
    let why = match outcome.end {
        ProcessEnd::Exited { status } => Message::new("process.status").with("status", status),
        ProcessEnd::Signaled { signal } => Message::new("process.signal").with("signal", signal),
        ProcessEnd::TimedOut => Message::new("process.timed_out").with("limit", limit),
        ProcessEnd::OutOfMemory => Message::new("process.out_of_memory"),
        ProcessEnd::Killed => Message::new("process.killed"),
    };
    let (ended, code) = match outcome.end {
        ProcessEnd::Exited { status: 0 } => ("exit status 0".to_owned(), None),
        ProcessEnd::Exited { status } => {
            (format!("exit status {status}"), Some(Code::ProcessFailed))
        }
        ProcessEnd::Signaled { signal } => (
            format!("ended by signal {signal}"),
            Some(Code::ProcessFailed),
        ),
        ProcessEnd::TimedOut => (
            format!("ended after its time limit of {limit} s"),
            Some(Code::ProcessTimeout),
        ),
        ProcessEnd::OutOfMemory => (
            "ended at its memory limit".to_owned(),
            Some(Code::ProcessMemory),
        ),
        ProcessEnd::Killed => (
            "ended because the Task was ended".to_owned(),
            Some(Code::Cancelled),
        ),
    };
    let mut output = format!("{ended}, {:.3} s\n", outcome.elapsed.as_secs_f64());
    push_stream(&mut output, "stdout", &outcome.stdout);
    push_stream(&mut output, "stderr", &outcome.stderr);
    if !outcome.denials.is_empty() {
        output.push_str("denied by the sandbox; repeating will not help:\n");
    }
    for denial in &outcome.denials {
        let (operation, target, rule) = (
            text::one_line(&denial.operation),
            text::one_line(&denial.target),
            text::one_line(&denial.rule),
        );
        output.push_str(&format!(
            "- {operation} {target}: {rule} (x{})\n",
            denial.count
        ));
    }
    if outcome.leftovers > 0 {
        output.push_str(&format!(
            "{} processes still run; they end with the Task\n",
            outcome.leftovers
        ));
    }
    let target = shown(&program);
    match code {
        None => ToolResult::success(output, Some(target), effects),
        Some(code) => {
            let refusal = Refusal::new(code, "must end with status 0", target).because(why);
            let failure = ToolResult::failure(refusal, effects);
            // The program's own words say more than the code's.
            ToolResult {
                evidence: digest(output.as_bytes()),
                output,
                ..failure
            }
        }
    }
}

fn push_stream(output: &mut String, name: &str, stream: &CapturedOutput) {
    if stream.total_bytes == 0 {
        output.push_str(&format!("{name}: empty\n"));
        return;
    }
    output.push_str(&format!("{name} ({} bytes):\n", stream.total_bytes));
    let omitted = stream.omitted_bytes();
    if omitted == 0 {
        // A character may lie across the two halves.
        output.push_str(&text::visible(
            &[stream.head.as_slice(), stream.tail.as_slice()].concat(),
        ));
    } else {
        output.push_str(&text::visible(without_cut_end(&stream.head)));
        let place = match &stream.spooled {
            Some(path) if stream.spooled_bytes == stream.total_bytes => {
                format!("whole output at {}", shown(path))
            }
            Some(path) => format!(
                "the first {} bytes at {}, the rest dropped",
                stream.spooled_bytes,
                shown(path)
            ),
            None => "dropped".to_owned(),
        };
        output.push_str(&format!("\n[… {omitted} bytes omitted, {place}]\n"));
        output.push_str(&text::visible(without_cut_start(&stream.tail)));
    }
    if !output.ends_with('\n') {
        output.push('\n');
    }
}

/// Without a character that the cut left half.
fn without_cut_end(bytes: &[u8]) -> &[u8] {
    for (back, byte) in bytes.iter().rev().take(4).enumerate() {
        let needed = match byte {
            0x80..=0xBF => continue,
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xFF => 4,
            _ => 1,
        };
        return if needed > back + 1 {
            &bytes[..bytes.len() - back - 1]
        } else {
            bytes
        };
    }
    bytes
}

fn without_cut_start(bytes: &[u8]) -> &[u8] {
    let cut = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0xC0 == 0x80)
        .count();
    &bytes[cut..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_leave_whole_characters() {
        assert_eq!(without_cut_end("aaaé".as_bytes()), "aaaé".as_bytes());
        assert_eq!(without_cut_end(b"aaa\xC3"), b"aaa");
        assert_eq!(without_cut_end(b"\xE6\x97"), b"");
        assert_eq!(without_cut_start(b"\x97\xA5x"), b"x");
        assert_eq!(without_cut_start(b""), b"");
    }
}
