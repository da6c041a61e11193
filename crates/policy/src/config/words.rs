//! Keys whose value is one word of a short list.

use crate::effective::{PartialRule, RehashRule, SandboxMode, ShellRule};
pub use crate::tool::Operation;
use schemars::JsonSchema;
use serde::Serialize;

/// A type whose values are written as one word each.
pub trait Word: Copy + 'static {
    /// Every word and what it means.
    const WORDS: &'static [(&'static str, Self)];
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// The word in the configuration.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl Word for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant),)*];
        }
    )*};
}

words! {
    /// `mcp.transport`.
    Transport {
        /// Standard input and output.
        Stdio = "stdio",
        /// Streamable HTTP on loopback (MCP-TR-02).
        Http = "http",
    }
    /// `sandbox.profile`: what `sandbox.workspaces` may be used for (DESIGN §10.2).
    Profile {
        /// Workspaces can be read.
        Readonly = "readonly",
        /// Workspaces can be read, written, deleted in, and their artifacts executed.
        Development = "development",
    }
    /// `sandbox.mounts[].access` (DESIGN §10.2). A mount never gets execute.
    MountAccess {
        /// Read.
        ReadOnly = "read_only",
        /// Read and write; not delete (FS-04).
        ReadWrite = "read_write",
        /// Read, write and delete.
        ReadWriteDelete = "read_write_delete",
    }
    /// `sandbox.network.access` (X-NET).
    NetworkAccess {
        /// Nothing, loopback included.
        None = "none",
        /// The sandbox's own loopback only.
        Private = "private",
        /// That, and listed ports of this machine's loopback.
        Local = "local",
        /// That, and listed hosts and ports.
        Restricted = "restricted",
    }
    /// `sandbox.resources.profile` (DESIGN §10.5).
    ResourceProfile {
        /// 1024 MiB, 4 processes, 300 s.
        Constrained = "constrained",
        /// 4096 MiB, 16 processes, 1800 s.
        Normal = "normal",
        /// 8192 MiB, 32 processes, 3600 s.
        Extended = "extended",
    }
    /// `guard.hard_block` (X-KEYS).
    HardBlock {
        /// Destructive commands are stopped.
        Enforce = "enforce",
        /// Destructive commands are recorded only; needs `sandbox.max_mode` below danger-full-access.
        Observe = "observe",
    }
    /// `logging.level`, from few lines to many.
    LogLevel {
        /// Only failures.
        Error = "error",
        /// And what looks wrong.
        Warn = "warn",
        /// And what happens.
        Info = "info",
        /// And how it is decided.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
    /// A level of `ollama.think` (DESIGN §6.2).
    ThinkLevel {
        /// Short.
        Low = "low",
        /// Between.
        Medium = "medium",
        /// Long.
        High = "high",
        /// As long as the model likes.
        Max = "max",
    }
}

impl Word for Operation {
    const WORDS: &'static [(&'static str, Self)] = &{
        let mut words = [("", Self::FsRead); Self::ALL.len()];
        let mut at = 0;
        while at < words.len() {
            words[at] = (Self::ALL[at].word(), Self::ALL[at]);
            at += 1;
        }
        words
    };
}

impl Word for SandboxMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("read-only", Self::ReadOnly),
        ("workspace-write", Self::WorkspaceWrite),
        ("danger-full-access", Self::DangerFullAccess),
    ];
}

impl Word for PartialRule {
    const WORDS: &'static [(&'static str, Self)] =
        &[("read_only", Self::ReadOnly), ("deny", Self::Deny)];
}

impl Word for ShellRule {
    const WORDS: &'static [(&'static str, Self)] = &[("allow", Self::Allow), ("deny", Self::Deny)];
}

impl Word for RehashRule {
    const WORDS: &'static [(&'static str, Self)] =
        &[("on_change", Self::OnChange), ("always", Self::Always)];
}
