//! The audit key (X-KEYS): its own file or its own variable, and never another secret in its place.

use crate::private::{self, Exposure};
use crate::state::StateDirectory;
use hmac::{Hmac, KeyInit, Mac};
use policy::{Blame, Code, Fault, Message, Secret};
use sha2::Sha256;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The key file's usual name in the state directory.
pub const KEY_FILE: &str = "audit.key";

/// Why there is no usable key. Always `audit.key_unusable`.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is no key file.
    #[error("{path} is missing")]
    Missing {
        /// The key file.
        path: PathBuf,
    },
    /// There is no key file, but there are logs that were signed with it. A new key would make them unprovable.
    #[error("{path} is missing, but {log} was signed with it")]
    MissingWithLogs {
        /// The key file.
        path: PathBuf,
        /// One of the logs.
        log: PathBuf,
    },
    /// A link in the key file's place.
    #[error("{path} is a symbolic link")]
    Symlink {
        /// The key file.
        path: PathBuf,
    },
    /// Not a regular file.
    #[error("{path} is not a regular file")]
    WrongKind {
        /// The key file.
        path: PathBuf,
    },
    /// It belongs to another user.
    #[error("{path} belongs to user {owner}")]
    ForeignOwner {
        /// The key file.
        path: PathBuf,
        /// The owner's user id.
        owner: u32,
    },
    /// Group or others have access.
    #[error("{path} is open to others: mode {mode:o}")]
    OpenToOthers {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not 64 hexadecimal digits.
    #[error("{origin} does not hold 64 hexadecimal digits")]
    Malformed {
        /// The file, or the variable.
        origin: String,
    },
    /// The operating system refused.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
}

impl KeyError {
    /// The stable code.
    pub fn code(&self) -> Code {
        Code::KeyUnusable
    }

    /// What is wrong, for people.
    pub fn reason(&self) -> Message {
        let of = |id: &'static str, path: &Path| Message::new(id).with("path", path.display());
        match self {
            Self::Missing { path } => of("reason.own_missing", path),
            Self::MissingWithLogs { path, log } => {
                of("reason.key_missing_with_logs", path).with("log", log.display())
            }
            Self::Symlink { path } => of("reason.own_link", path),
            Self::WrongKind { path } => of("reason.own_kind", path),
            Self::ForeignOwner { path, owner } => {
                of("reason.own_foreign", path).with("owner", owner)
            }
            Self::OpenToOthers { path, mode } => {
                of("reason.own_open", path).with("mode", format!("{mode:o}"))
            }
            Self::Malformed { origin } => {
                Message::new("reason.key_malformed").with("origin", origin)
            }
            Self::Io { path, source, .. } => {
                of("reason.of_path", path).with_message("reason", Message::of_io(source))
            }
        }
    }

    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let path = path.to_owned();
            if private::is_link_refusal(&source) {
                return Self::Symlink { path };
            }
            Self::Io {
                action,
                path,
                source,
            }
        }
    }

    fn target(&self) -> String {
        match self {
            Self::Missing { path }
            | Self::MissingWithLogs { path, .. }
            | Self::Symlink { path }
            | Self::WrongKind { path }
            | Self::ForeignOwner { path, .. }
            | Self::OpenToOthers { path, .. }
            | Self::Io { path, .. } => path.display().to_string(),
            Self::Malformed { origin } => origin.clone(),
        }
    }
}

impl From<KeyError> for Fault {
    fn from(error: KeyError) -> Self {
        let blame = match error {
            KeyError::Malformed { .. } => Blame::Configuration,
            _ => Blame::Machine,
        };
        Self::because(blame, error.code(), error.target(), error)
    }
}

impl From<KeyError> for Message {
    fn from(error: KeyError) -> Self {
        error.reason()
    }
}

/// Where a key came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    /// From a file that was there.
    File,
    /// Made just now; the log's first act is to say so.
    Created,
    /// Given by the caller, out of `AGENT_MCP_AUDIT_KEY`.
    Given,
}

/// The key of every audit chain of this user: 32 bytes.
#[derive(Clone, Debug)]
pub struct AuditKey {
    bytes: Secret<[u8; 32]>,
    origin: KeyOrigin,
}

/// Keyed state for one purpose, to be cloned for each mac.
pub(crate) type Keyed = Hmac<Sha256>;

impl AuditKey {
    /// The key in the caller's text: 64 hexadecimal digits. `variable` is where the caller has it from, for the error.
    ///
    /// # Errors
    /// `Malformed`. There is no other secret to fall back to (X-KEYS).
    pub fn given(text: &Secret<String>, variable: &str) -> Result<Self, KeyError> {
        let bytes = decode(text.expose().as_bytes()).ok_or_else(|| KeyError::Malformed {
            origin: variable.to_owned(),
        })?;
        Ok(Self {
            bytes,
            origin: KeyOrigin::Given,
        })
    }

    /// The key in a file.
    ///
    /// # Errors
    /// Missing, a link, another owner, open to others, or not 64 hexadecimal digits.
    pub fn open(path: &Path) -> Result<Self, KeyError> {
        let file = match private::open_read(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(KeyError::Missing {
                    path: path.to_owned(),
                });
            }
            Err(error) => return Err(KeyError::io("open", path)(error)),
        };
        let seen = file.metadata().map_err(KeyError::io("look at", path))?;
        if !seen.is_file() {
            return Err(KeyError::WrongKind {
                path: path.to_owned(),
            });
        }
        match private::exposure(&seen) {
            None => {}
            Some(Exposure::ForeignOwner { owner }) => {
                return Err(KeyError::ForeignOwner {
                    path: path.to_owned(),
                    owner,
                });
            }
            Some(Exposure::OpenToOthers { mode }) => {
                return Err(KeyError::OpenToOthers {
                    path: path.to_owned(),
                    mode,
                });
            }
        }
        let mut text = Zeroizing::new(Vec::with_capacity(66));
        file.take(66)
            .read_to_end(&mut text)
            .map_err(KeyError::io("read", path))?;
        let digits = text.strip_suffix(b"\n").unwrap_or(&text);
        let bytes = decode(digits).ok_or_else(|| KeyError::Malformed {
            origin: path.display().to_string(),
        })?;
        Ok(Self {
            bytes,
            origin: KeyOrigin::File,
        })
    }

    /// The key in a file; makes a random one when there is none and nothing was signed yet. When several processes try
    /// at once, all get the key of the one that was first.
    ///
    /// # Errors
    /// As [`AuditKey::open`], and `MissingWithLogs`.
    pub fn open_or_create(state: &StateDirectory, path: &Path) -> Result<Self, KeyError> {
        match Self::open(path) {
            Err(KeyError::Missing { .. }) => {}
            other => return other,
        }
        if let Some(log) = first_log(state.path()).map_err(KeyError::io("list", state.path()))? {
            // Another process may have made the key, and its first log, since we looked.
            return match Self::open(path) {
                Err(KeyError::Missing { path }) => Err(KeyError::MissingWithLogs { path, log }),
                other => other,
            };
        }
        Self::create(path)
    }

    /// What [`AuditKey::open_or_create`] would find, without making anything: none where it would make one. `state` need
    /// not be there.
    ///
    /// # Errors
    /// As `open_or_create`.
    pub fn look(state: &Path, path: &Path) -> Result<Option<Self>, KeyError> {
        match Self::open(path) {
            Err(KeyError::Missing { path }) => {
                match first_log(state).map_err(KeyError::io("list", state))? {
                    Some(log) => Err(KeyError::MissingWithLogs { path, log }),
                    None => Ok(None),
                }
            }
            other => other.map(Some),
        }
    }

    /// Written and synced under another name, then linked: the name appears with its content, and only once.
    fn create(path: &Path) -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new([0u8; 32]);
        getrandom::fill(bytes.as_mut_slice()).map_err(|error| {
            KeyError::io("draw random bytes for", path)(io::Error::other(error))
        })?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unique = uuid::Uuid::new_v4();
        let temporary = path.with_file_name(format!(".{name}.{unique}.tmp"));
        let directory = path.parent().unwrap_or(Path::new("."));
        let linked = write_key(&temporary, &bytes)
            .and_then(|()| fs::hard_link(&temporary, path))
            .and_then(|()| private::sync_directory(directory));
        let removed = fs::remove_file(&temporary);
        match linked {
            Ok(()) => {
                removed.map_err(KeyError::io("remove", &temporary))?;
                Ok(Self {
                    bytes: Secret::new(*bytes),
                    origin: KeyOrigin::Created,
                })
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::open(path),
            Err(error) => Err(KeyError::io("create", path)(error)),
        }
    }

    /// Where it came from.
    pub fn origin(&self) -> KeyOrigin {
        self.origin
    }

    /// A name for it that says nothing about it: 16 hexadecimal digits.
    pub fn id(&self) -> String {
        let mac = self.keyed_for(b"key-id").finalize().into_bytes();
        private::hex_text(&mac.into())[..16].to_owned()
    }

    /// For the records themselves: the key as it is.
    pub(crate) fn for_records(&self) -> Keyed {
        keyed(self.bytes.expose())
    }

    /// For another purpose: a key of its own, derived by HMAC(key, purpose).
    pub(crate) fn for_purpose(&self, purpose: &'static [u8]) -> Keyed {
        let derived = Zeroizing::new(<[u8; 32]>::from(
            self.keyed_for(purpose).finalize().into_bytes(),
        ));
        keyed(&derived)
    }

    fn keyed_for(&self, purpose: &[u8]) -> Keyed {
        let mut mac = self.for_records();
        mac.update(purpose);
        mac
    }
}

/// The purpose of the key that signs the head.
pub(crate) const HEAD_PURPOSE: &[u8] = b"head";
/// The purpose of the key that signs what is written ahead of the log.
pub(crate) const AHEAD_PURPOSE: &[u8] = b"ahead";

fn keyed(bytes: &[u8; 32]) -> Keyed {
    // RFC 2104: a key shorter than a block is filled up with zeros.
    let mut block = Zeroizing::new([0u8; 64]);
    block[..32].copy_from_slice(bytes);
    Keyed::new((&*block).into())
}

fn write_key(path: &Path, bytes: &[u8; 32]) -> io::Result<()> {
    let mut text = Zeroizing::new([b'\n'; 65]);
    text[..64].copy_from_slice(&*Zeroizing::new(private::hex::<32, 64>(bytes)));
    let mut file = private::create_new(path)?;
    file.write_all(text.as_slice())?;
    file.sync_all()
}

fn decode(digits: &[u8]) -> Option<Secret<[u8; 32]>> {
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = Zeroizing::new([0u8; 32]);
    for (slot, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = (pair[0] as char).to_digit(16)?;
        let low = (pair[1] as char).to_digit(16)?;
        *slot = (high << 4 | low) as u8;
    }
    Some(Secret::new(*bytes))
}

/// Any audit file of any instance.
fn first_log(state: &Path) -> io::Result<Option<PathBuf>> {
    let instances = match fs::read_dir(state.join("instances")) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for instance in instances {
        let instance = instance?.path();
        if !instance.is_dir() {
            continue;
        }
        for file in fs::read_dir(instance)? {
            let file = file?;
            if file.file_name().to_string_lossy().starts_with("audit.") {
                return Ok(Some(file.path()));
            }
        }
    }
    Ok(None)
}
