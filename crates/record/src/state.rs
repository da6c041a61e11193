//! The state directory (X-STATE): small files that must outlive a crash, for this user only.

use crate::private::{self, Exposure};
use policy::{Blame, Code, Fault, Message};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why the state directory or a file in it cannot be used. Always `state.unusable`.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A link where a directory or file of ours belongs.
    #[error("{path} is a symbolic link")]
    Symlink {
        /// The link.
        path: PathBuf,
    },
    /// Something else where a directory or a regular file belongs.
    #[error("{path} is of the wrong kind")]
    WrongKind {
        /// What it is.
        path: PathBuf,
    },
    /// It belongs to another user.
    #[error("{path} belongs to user {owner}")]
    ForeignOwner {
        /// What it is.
        path: PathBuf,
        /// The owner's user id.
        owner: u32,
    },
    /// Group or others have access.
    #[error("{path} is open to others: mode {mode:o}")]
    OpenToOthers {
        /// What it is.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A file is larger than its reader accepts.
    #[error("{path} is larger than {limit} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes.
        limit: u64,
    },
    /// A name that would lead out of the directory.
    #[error("{name:?} is not a plain file name")]
    NameInvalid {
        /// The name.
        name: String,
    },
    /// The content is not what its type says.
    #[error("{path} is damaged: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The parser's words, for logs.
        reason: String,
    },
    /// So many instances are alive that no number is left.
    #[error("no instance number is free below {limit}")]
    NoInstanceLeft {
        /// The first number that is not tried.
        limit: u32,
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

impl StateError {
    /// The stable code.
    pub fn code(&self) -> Code {
        Code::StateUnusable
    }

    /// What is wrong, for people.
    pub fn reason(&self) -> Message {
        let of = |id: &'static str, path: &Path| Message::new(id).with("path", path.display());
        match self {
            Self::Symlink { path } => of("reason.own_link", path),
            Self::WrongKind { path } => of("reason.own_kind", path),
            Self::ForeignOwner { path, owner } => {
                of("reason.own_foreign", path).with("owner", owner)
            }
            Self::OpenToOthers { path, mode } => {
                of("reason.own_open", path).with("mode", format!("{mode:o}"))
            }
            Self::TooLarge { path, limit } => of("reason.own_too_large", path).with("limit", limit),
            Self::NameInvalid { name } => Message::new("reason.own_name").with("name", name),
            Self::Damaged { path, reason } => of("reason.own_damaged", path).with("detail", reason),
            Self::NoInstanceLeft { limit } => {
                Message::new("reason.own_instances").with("limit", limit)
            }
            Self::Io { path, source, .. } => {
                of("reason.of_path", path).with_message("reason", Message::of_io(source))
            }
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let path = path.to_owned();
            if private::is_link_refusal(&source) {
                Self::Symlink { path }
            } else {
                Self::Io {
                    action,
                    path,
                    source,
                }
            }
        }
    }

    fn exposed(path: &Path, exposure: Exposure) -> Self {
        let path = path.to_owned();
        match exposure {
            Exposure::ForeignOwner { owner } => Self::ForeignOwner { path, owner },
            Exposure::OpenToOthers { mode } => Self::OpenToOthers { path, mode },
        }
    }

    /// A file of ours that is open: regular, and for this user only. Returns its size.
    pub(crate) fn check_file(path: &Path, file: &File) -> Result<u64, Self> {
        let seen = file.metadata().map_err(Self::io("look at", path))?;
        if !seen.is_file() {
            return Err(Self::WrongKind {
                path: path.to_owned(),
            });
        }
        match private::exposure(&seen) {
            None => Ok(seen.len()),
            Some(exposure) => Err(Self::exposed(path, exposure)),
        }
    }

    fn target(&self) -> String {
        match self {
            Self::Symlink { path }
            | Self::WrongKind { path }
            | Self::ForeignOwner { path, .. }
            | Self::OpenToOthers { path, .. }
            | Self::TooLarge { path, .. }
            | Self::Damaged { path, .. }
            | Self::Io { path, .. } => path.display().to_string(),
            Self::NameInvalid { name } => name.clone(),
            Self::NoInstanceLeft { .. } => "instances".to_owned(),
        }
    }
}

impl From<StateError> for Fault {
    fn from(error: StateError) -> Self {
        Self::because(Blame::Machine, error.code(), error.target(), error)
    }
}

impl From<StateError> for Message {
    fn from(error: StateError) -> Self {
        error.reason()
    }
}

/// A directory that only this user can look into.
#[derive(Clone, Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

impl StateDirectory {
    /// Opens it; makes it and missing parents 0700. An empty directory that is open to others is tightened; one with
    /// content is refused, because others may have put the content there.
    ///
    /// # Errors
    /// `state.unusable`: a link, not a directory, another owner, open to others, or the system's refusal.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        match fs::symlink_metadata(path) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_with_parents(path)?,
            Err(error) => return Err(StateError::io("look at", path)(error)),
        }
        let seen = fs::symlink_metadata(path).map_err(StateError::io("look at", path))?;
        if seen.is_symlink() {
            return Err(StateError::Symlink {
                path: path.to_owned(),
            });
        }
        if !seen.is_dir() {
            return Err(StateError::WrongKind {
                path: path.to_owned(),
            });
        }
        let handle = File::open(path).map_err(StateError::io("open", path))?;
        check_directory(path, &handle)?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// What [`StateDirectory::open`] would find, without making or changing anything. Whether it is there already.
    ///
    /// # Errors
    /// As `open`, as far as that can be known before.
    pub fn look(path: &Path) -> Result<bool, StateError> {
        let seen = match fs::symlink_metadata(path) {
            Ok(seen) => seen,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = path.ancestors().skip(1).find(|above| above.exists());
                return match above {
                    Some(above) if !above.is_dir() => Err(StateError::WrongKind {
                        path: above.to_owned(),
                    }),
                    Some(above) => private::may_write(above)
                        .map(|()| false)
                        .map_err(StateError::io("write to", above)),
                    None => Err(StateError::io("look at", path)(error)),
                };
            }
            Err(error) => return Err(StateError::io("look at", path)(error)),
        };
        let path = path.to_owned();
        if seen.is_symlink() {
            return Err(StateError::Symlink { path });
        }
        if !seen.is_dir() {
            return Err(StateError::WrongKind { path });
        }
        match private::exposure(&seen) {
            None => {}
            // An empty one is closed to others when it is opened.
            Some(Exposure::OpenToOthers { .. })
                if fs::read_dir(&path).is_ok_and(|mut content| content.next().is_none()) => {}
            Some(exposure) => return Err(StateError::exposed(&path, exposure)),
        }
        private::may_write(&path)
            .map(|()| true)
            .map_err(StateError::io("write to", &path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory in it, made 0700 when it is missing.
    ///
    /// # Errors
    /// As [`StateDirectory::open`], and for a name with separators.
    pub fn directory(&self, name: &str) -> Result<Self, StateError> {
        Self::open(&self.path.join(plain(name)?))
    }

    /// Takes the lock of this name, a file in it that stays; none while somebody else has it. It is a `flock`: it ends with the
    /// process, however that ends.
    ///
    /// # Errors
    /// For a name with separators, a link, or the system's refusal.
    pub fn try_lock(&self, name: &str) -> Result<Option<StateLock>, StateError> {
        let (path, file) = self.open_lock(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(StateLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(StateError::io("lock", &path)(error)),
        }
    }

    /// The same, and waits for as long as somebody else has it.
    ///
    /// # Errors
    /// As [`StateDirectory::try_lock`].
    pub fn lock(&self, name: &str) -> Result<StateLock, StateError> {
        let (path, file) = self.open_lock(name)?;
        file.lock().map_err(StateError::io("lock", &path))?;
        Ok(StateLock { _file: file })
    }

    fn open_lock(&self, name: &str) -> Result<(PathBuf, File), StateError> {
        let path = self.path.join(plain(name)?);
        let file = private::open_lock(&path).map_err(StateError::io("open", &path))?;
        StateError::check_file(&path, &file)?;
        Ok((path, file))
    }

    /// Removes what writers of [`AtomicFile`]s whose names begin like this left when they were killed: the whole new content, or
    /// a part of it, that never got its name. Whoever calls this holds the lock that all those writers take.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn remove_unfinished(&self, beginning: &str) -> Result<(), StateError> {
        let failed = |error| StateError::io("list", &self.path)(error);
        let beginning = format!(".{beginning}");
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if name.starts_with(beginning.as_bytes()) && name.ends_with(TEMPORARY_SUFFIX.as_bytes())
            {
                let left = entry.path();
                fs::remove_file(&left).map_err(StateError::io("remove", &left))?;
            }
        }
        Ok(())
    }

    /// A file in it; nothing is opened yet.
    ///
    /// # Errors
    /// For a name with separators.
    pub fn file(&self, name: &str) -> Result<AtomicFile, StateError> {
        Ok(AtomicFile {
            path: self.path.join(plain(name)?),
        })
    }
}

/// A held lock; released when it is dropped.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

fn make_with_parents(path: &Path) -> Result<(), StateError> {
    let mut missing = vec![path];
    while let Some(parent) = missing.last().and_then(|path| path.parent()) {
        if parent.as_os_str().is_empty() || parent.exists() {
            break;
        }
        missing.push(parent);
    }
    for directory in missing.into_iter().rev() {
        private::make_directory(directory).map_err(StateError::io("create", directory))?;
    }
    Ok(())
}

/// Judges what is open, not what the name leads to a moment later.
fn check_directory(path: &Path, handle: &File) -> Result<(), StateError> {
    let look = |handle: &File| handle.metadata().map_err(StateError::io("look at", path));
    let Some(exposure) = private::exposure(&look(handle)?) else {
        return Ok(());
    };
    #[cfg(unix)]
    if matches!(exposure, Exposure::OpenToOthers { .. }) {
        let mut content = fs::read_dir(path).map_err(StateError::io("read", path))?;
        if content.next().is_none() {
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            handle
                .set_permissions(private)
                .map_err(StateError::io("restrict", path))?;
            return match private::exposure(&look(handle)?) {
                None => Ok(()),
                Some(still) => Err(StateError::exposed(path, still)),
            };
        }
    }
    Err(StateError::exposed(path, exposure))
}

fn plain(name: &str) -> Result<&str, StateError> {
    let bad =
        name.is_empty() || name == "." || name == ".." || name.contains(['/', '\\', '\0', ':']);
    if bad {
        return Err(StateError::NameInvalid {
            name: name.to_owned(),
        });
    }
    Ok(name)
}

/// A small file that is replaced as a whole: a reader sees the old content or the new, also after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtomicFile {
    path: PathBuf,
}

/// Ends every temporary name, so that leftovers of a crash can be recognized.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

impl AtomicFile {
    /// The file at an absolute path whose directory exists.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Temporary file 0600 in the same directory, fsync, rename, fsync of the directory. Durable when it returns.
    ///
    /// # Errors
    /// The system's refusal; the old content is still there then.
    pub fn write(&self, content: &[u8]) -> Result<(), StateError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let process = std::process::id();
        let temporary = self
            .directory()
            .join(format!(".{name}.{process}-{number}{TEMPORARY_SUFFIX}"));
        let written = self.write_through(&temporary, content);
        if written.is_err() {
            // The error that is reported is the one that matters; a leftover is recognizable by its suffix.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    fn write_through(&self, temporary: &Path, content: &[u8]) -> Result<(), StateError> {
        let mut file =
            private::create_new(temporary).map_err(StateError::io("create", temporary))?;
        file.write_all(content)
            .map_err(StateError::io("write", temporary))?;
        file.sync_all().map_err(StateError::io("sync", temporary))?;
        fs::rename(temporary, &self.path).map_err(StateError::io("rename to", &self.path))?;
        private::sync_directory(self.directory()).map_err(StateError::io("sync", self.directory()))
    }

    /// The whole content, or `None` when there is no such file.
    ///
    /// # Errors
    /// A link, no regular file, another owner, open to others, or more than `limit` bytes.
    pub fn read(&self, limit: u64) -> Result<Option<Vec<u8>>, StateError> {
        let file = match private::open_read(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::io("open", &self.path)(error)),
        };
        let size = StateError::check_file(&self.path, &file)?;
        let mut content = Vec::with_capacity(size.min(limit) as usize);
        file.take(limit.saturating_add(1))
            .read_to_end(&mut content)
            .map_err(StateError::io("read", &self.path))?;
        if content.len() as u64 > limit {
            return Err(StateError::TooLarge {
                path: self.path.clone(),
                limit,
            });
        }
        Ok(Some(content))
    }

    /// [`AtomicFile::write`] of a value as JSON with a line feed at its end.
    ///
    /// # Errors
    /// As `write`; a value that cannot be JSON is `Damaged`.
    pub fn write_json<T: Serialize>(&self, value: &T) -> Result<(), StateError> {
        let mut text = serde_json::to_vec(value).map_err(|error| self.damaged(&error))?;
        text.push(b'\n');
        self.write(&text)
    }

    /// [`AtomicFile::read`] of a JSON value.
    ///
    /// # Errors
    /// As `read`; `Damaged` when it is not this type.
    pub fn read_json<T: DeserializeOwned>(&self, limit: u64) -> Result<Option<T>, StateError> {
        self.read(limit)?
            .map(|text| serde_json::from_slice(&text).map_err(|error| self.damaged(&error)))
            .transpose()
    }

    /// Removes it durably; nothing to remove is fine.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn remove(&self) -> Result<(), StateError> {
        match fs::remove_file(&self.path) {
            Ok(()) => private::sync_directory(self.directory())
                .map_err(StateError::io("sync", self.directory())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StateError::io("remove", &self.path)(error)),
        }
    }

    fn damaged(&self, error: &serde_json::Error) -> StateError {
        StateError::Damaged {
            path: self.path.clone(),
            reason: error.to_string(),
        }
    }
}
