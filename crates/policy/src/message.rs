//! Text for people is made at the edge, from message ids and data (I18N-01).

use std::fmt::{Display, Formatter};

/// A message id of the locale files with its named placeholders (I18N-09).
///
/// It is an error too, so that an `io::Error` of ours can carry one. `Display` is for logs: the id and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    id: &'static str,
    arguments: Vec<(&'static str, String)>,
    parts: Vec<(&'static str, Message)>,
}

/// `ELOOP` of Linux; the standard library's kind for it is not stable.
const TOO_MANY_LINKS: i32 = if cfg!(target_os = "linux") {
    40
} else {
    i32::MIN
};

impl Message {
    /// A message without placeholders yet.
    pub fn new(id: &'static str) -> Self {
        Self {
            id,
            arguments: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// What the system says, by its kind; what has no text of its own keeps the system's English words.
    pub fn of_io(error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        if let Some(message) = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<Self>())
        {
            return message.clone();
        }
        let id = match error.kind() {
            ErrorKind::NotFound => "os.not_found",
            ErrorKind::PermissionDenied => "os.permission_denied",
            ErrorKind::AlreadyExists => "os.already_exists",
            ErrorKind::NotADirectory => "os.not_a_directory",
            ErrorKind::IsADirectory => "os.is_a_directory",
            ErrorKind::DirectoryNotEmpty => "os.directory_not_empty",
            ErrorKind::ReadOnlyFilesystem => "os.read_only",
            ErrorKind::StorageFull => "os.storage_full",
            ErrorKind::QuotaExceeded => "os.quota_exceeded",
            ErrorKind::FileTooLarge => "os.file_too_large",
            ErrorKind::ResourceBusy => "os.busy",
            ErrorKind::ExecutableFileBusy => "os.busy",
            ErrorKind::InvalidFilename => "os.invalid_name",
            ErrorKind::ArgumentListTooLong => "os.arguments_too_long",
            ErrorKind::TimedOut => "os.timed_out",
            ErrorKind::ConnectionRefused => "os.connection_refused",
            ErrorKind::BrokenPipe => "os.broken_pipe",
            ErrorKind::OutOfMemory => "os.out_of_memory",
            // Ours says more than its kind; the system's own has nothing inside.
            ErrorKind::InvalidData if error.get_ref().is_none() => "os.not_utf8",
            _ if error.raw_os_error() == Some(TOO_MANY_LINKS) => "os.too_many_links",
            _ => return Self::new("os.other").with("error", error),
        };
        Self::new(id)
    }

    /// Adds one named placeholder.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Display) -> Self {
        self.arguments.push((name, value.to_string()));
        self
    }

    /// Adds one named placeholder that is a message itself.
    #[must_use]
    pub fn with_message(mut self, name: &'static str, value: impl Into<Message>) -> Self {
        self.parts.push((name, value.into()));
        self
    }

    /// The key in the locale files.
    pub fn id(&self) -> &'static str {
        self.id
    }

    /// The placeholders in the order they were given.
    pub fn arguments(&self) -> &[(&'static str, String)] {
        &self.arguments
    }

    /// The placeholders that are messages, in the order they were given.
    pub fn parts(&self) -> &[(&'static str, Message)] {
        &self.parts
    }

    /// The same data under another id, as a hint has it.
    #[must_use]
    pub fn renamed(&self, id: &'static str) -> Self {
        Self { id, ..self.clone() }
    }
}

impl From<&std::io::Error> for Message {
    fn from(error: &std::io::Error) -> Self {
        Self::of_io(error)
    }
}

impl From<std::io::Error> for Message {
    fn from(error: std::io::Error) -> Self {
        Self::of_io(&error)
    }
}

impl Display for Message {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)?;
        for (name, value) in &self.arguments {
            write!(f, " {name}={value}")?;
        }
        for (name, value) in &self.parts {
            write!(f, " {name}=({value})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Message {}

/// Turns messages into the chosen language. Implemented by the binary; `mcp` and the console get it from there.
pub trait Localize: Send + Sync {
    /// The message in the chosen locale, else in `en`, else its key (I18N-10).
    fn text(&self, message: &Message) -> String;

    /// The chosen BCP 47 tag (I18N-04).
    fn language(&self) -> &str;
}
