//! What is wrong with a configuration, where exactly, and what would be right.

use crate::message::Message;

/// Where something is written. Lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// [`super::Source::name`].
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The program starts, `check` shows it.
    Warning,
    /// The program does not start.
    Error,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $severity:ident;)*) => {
        /// What kind of finding it is. Its text is stable, and is the id of its message in the locale files.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FindingCode { $($(#[$doc])* $variant,)* }

        impl FindingCode {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable text and message id.
            pub fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)* }
            }

            /// Whether it stops the program.
            pub fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }
        }
    };
}

kinds! {
    /// Nothing in the file.
    Empty = "config.empty", Error;
    /// More than [`super::MAX_FILE_BYTES`].
    TooLarge = "config.too_large", Error;
    /// Not UTF-8.
    NotUtf8 = "config.not_utf8", Error;
    /// UTF-16 or UTF-32.
    OtherEncoding = "config.other_encoding", Error;
    /// A zero byte.
    Nul = "config.nul", Error;
    /// No YAML.
    Syntax = "config.syntax", Error;
    /// A tab where YAML wants spaces.
    Tab = "config.tab", Error;
    /// Too many nodes or too deep, anchors expanded.
    TooComplex = "config.too_complex", Error;
    /// More than one document.
    ManyDocuments = "config.many_documents", Error;
    /// A YAML tag (`!!str`).
    Tag = "config.tag", Error;
    /// A key that is a list or a map.
    KeyNotText = "config.key_not_text", Error;
    /// The same key twice in one map.
    DuplicateKey = "config.duplicate_key", Error;
    /// The merge key of YAML 1.1.
    MergeKey = "config.merge_key", Error;
    /// More findings than [`super::MOST_FINDINGS`].
    TooMany = "config.too_many", Error;
    /// A section of the base file that the local file erases with an empty key.
    EmptyOverride = "config.empty_override", Error;
    /// No such key.
    UnknownKey = "config.unknown_key", Error;
    /// No such key, but a similar one.
    UnknownKeyNear = "config.unknown_key_near", Error;
    /// A key without default is missing.
    MissingKey = "config.missing_key", Error;
    /// `schema_version` is not there.
    VersionMissing = "config.version_missing", Error;
    /// `schema_version` is 1.
    VersionOne = "config.version_one", Error;
    /// `schema_version` is something else.
    VersionUnknown = "config.version_unknown", Error;
    /// A section is wanted.
    ExpectedMap = "config.expected_map", Error;
    /// A list is wanted.
    ExpectedList = "config.expected_list", Error;
    /// Text is wanted.
    ExpectedText = "config.expected_text", Error;
    /// true or false is wanted.
    ExpectedBool = "config.expected_bool", Error;
    /// A whole number is wanted.
    ExpectedWhole = "config.expected_whole", Error;
    /// A number is wanted.
    ExpectedNumber = "config.expected_number", Error;
    /// A number outside its range.
    OutOfRange = "config.out_of_range", Error;
    /// A word that is not in the list.
    UnknownWord = "config.unknown_word", Error;
    /// Text that is empty.
    EmptyText = "config.empty_text", Error;
    /// A control character in text.
    ControlCharacter = "config.control_character", Error;
    /// No BCP 47 tag.
    BadLanguage = "config.bad_language", Error;
    /// Not 127.0.0.1 or ::1 (MCP-TR-02, ST-22).
    NotLoopback = "config.not_loopback", Error;
    /// No http or https URL with a host.
    BadUrl = "config.bad_url", Error;
    /// User or password in a URL.
    UrlSecret = "config.url_secret", Error;
    /// No value that Ollama reads as `keep_alive`.
    BadKeepAlive = "config.bad_keep_alive", Error;
    /// No host name or address.
    BadHost = "config.bad_host", Error;
    /// No `[scheme://]host[:port]`.
    BadUrlPattern = "config.bad_url_pattern", Error;
    /// Not a name of letters, digits, `.`, `_`, `-`.
    BadName = "config.bad_name", Error;
    /// No name of an environment variable.
    BadVariable = "config.bad_variable", Error;
    /// An absolute path or one with `..` where a relative one is needed.
    BadRelativePath = "config.bad_relative_path", Error;
    /// Two aliases that differ at most in case.
    DuplicateAlias = "config.duplicate_alias", Error;
    /// `local` without `local_endpoints`, `restricted` without `restricted_endpoints` (X-NET).
    NetworkListEmpty = "config.network_list_empty", Error;
    /// A list that does not belong to the level (X-NET).
    NetworkListUnused = "config.network_list_unused", Error;
    /// The readonly profile with a writable mount (DESIGN §10.2).
    MountNotReadOnly = "config.mount_not_read_only", Error;
    /// The development profile under `max_mode: read-only`.
    ProfileAboveMode = "config.profile_above_mode", Error;
    /// `hard_block: observe` with danger-full-access.
    ObserveWithDanger = "config.observe_with_danger", Error;
    /// One limit above the one around it.
    LimitOrder = "config.limit_order", Error;
    /// The endpoint is not on this machine (X-MODEL).
    RemoteEndpoint = "config.remote_endpoint", Warning;
    /// The model runs in the cloud (X-MODEL).
    CloudModel = "config.cloud_model", Warning;
    /// An option that Ollama ignores.
    GoneOption = "config.gone_option", Warning;
    /// An extra option with the name of a known one (OLL-05).
    ExtraOptionIgnored = "config.extra_option_ignored", Warning;
    /// A variable that looks like a secret.
    SecretVariable = "config.secret_variable", Warning;
    /// A program with a set-user-id or set-group-id bit as entry.
    RightsInVain = "config.rights_in_vain", Warning;
    /// The hard block only observes.
    HardBlockObserve = "config.hard_block_observe", Warning;
    /// A key whose feature this version does not have yet.
    LaterKey = "config.later_key", Warning;
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it stops the program.
    pub severity: Severity,
    /// [`super::Source::name`].
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The key's full name, `sandbox.network.access`, `sandbox.mounts[0].path`; empty for the file itself.
    pub key: String,
    /// The kind; its text is stable.
    pub code: FindingCode,
    /// What is allowed, in signs and words that need no translation (`1..65535`, `none, private, local`); else empty.
    pub allowed: String,
    /// The full name of the nearest known key, or the nearest word.
    pub nearest: Option<String>,
    /// For people: id and placeholders `{key}`, `{value}`, `{allowed}`, `{nearest}`, `{detail}` as far as the id uses them.
    pub message: Message,
}

impl Finding {
    /// A finding of whoever looks at what a written value leads to.
    pub fn new(code: FindingCode, place: &Place, key: &str, value: &str) -> Self {
        let details = super::report::Details::value(value);
        super::report::finding(code, place.clone(), key, details)
    }
}
