//! Exit codes (interfaces.md §2). `exec` returns the command's own status instead.

use policy::{Category, Code};

/// Everything went well.
pub const OK: u8 = 0;
/// The work failed.
pub const FAILED: u8 = 1;
/// Usage or configuration error.
pub const USAGE: u8 = 2;
/// Refused by policy.
pub const REFUSED: u8 = 3;
/// Sandbox unavailable, or partial where full is required.
pub const SANDBOX: u8 = 4;
/// Recovery failed.
pub const RECOVERY: u8 = 5;
/// `exec`: the sandbox failed.
pub const EXEC_SANDBOX: u8 = 125;
/// `exec`: refused, or not executable.
pub const EXEC_REFUSED: u8 = 126;
/// `exec`: command not found.
pub const EXEC_NOT_FOUND: u8 = 127;

/// The exit code that a stable code leads to.
pub fn of(code: Code) -> u8 {
    match code {
        Code::SandboxUnavailable | Code::SandboxPartial => SANDBOX,
        Code::ConfigurationInvalid | Code::LocaleInvalid | Code::HttpPortUnavailable => USAGE,
        _ => match code.category() {
            Category::PolicyDenied => REFUSED,
            Category::RecoveryFailure => RECOVERY,
            _ => FAILED,
        },
    }
}
