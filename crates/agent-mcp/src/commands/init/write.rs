//! Writes the files of a new configuration: each appears whole, none is overwritten, and where one cannot be written
//! nothing that was made stays.

use policy::{Blame, Code, Fault};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A file of the directory, and its text.
pub(super) struct NewFile {
    /// Relative to the directory.
    pub(super) name: &'static str,
    pub(super) text: String,
}

/// What became of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) path: PathBuf,
    /// It was there already, and was left as it was.
    pub(super) kept: bool,
}

/// Everything that was made so far; removed again unless everything was.
#[derive(Default)]
struct Made {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
    is_whole: bool,
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.is_whole {
            return;
        }
        // What cannot be removed is in a directory that has become somebody else's meanwhile; the failure itself is told.
        for file in self.files.iter().rev() {
            drop(std::fs::remove_file(file));
        }
        for directory in self.directories.iter().rev() {
            drop(std::fs::remove_dir(directory));
        }
    }
}

/// Writes the files, in this order, and makes the directory and `more` of it.
///
/// # Errors
/// The first thing that could not be made; then nothing was.
pub(super) fn write_all(
    directory: &Path,
    files: &[NewFile],
    more: Option<&str>,
) -> Result<Vec<Written>, Fault> {
    let mut made = Made::default();
    make_directory(directory, &mut made)?;
    if let Some(more) = more {
        make_directory(&directory.join(more), &mut made)?;
    }
    // All the writing comes first: a full disk is found before anything has its name.
    let mut staged = Vec::new();
    for NewFile { name, text } in files {
        let path = directory.join(name);
        if is_there(&path) {
            staged.push((path, None));
            continue;
        }
        let parent = path.parent().unwrap_or(directory);
        make_directory(parent, &mut made)?;
        let file = stage(parent, text).map_err(|error| failed(&path, error))?;
        staged.push((path, Some(file)));
    }
    let mut written = Vec::new();
    for (path, file) in staged {
        let kept = match file.map(|file| file.persist_noclobber(&path)) {
            None => true,
            Some(Ok(_)) => {
                made.files.push(path.clone());
                false
            }
            // Somebody was faster.
            Some(Err(error)) if error.error.kind() == std::io::ErrorKind::AlreadyExists => true,
            Some(Err(error)) => return Err(failed(&path, error.error)),
        };
        written.push(Written { path, kept });
    }
    made.is_whole = true;
    Ok(written)
}

/// Whether something has this name, a link to nowhere included.
pub(super) fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// The whole text under another name, on the disk; gone when it is dropped.
fn stage(directory: &Path, text: &str) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".agent-mcp-init-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    let mut file = builder.tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn make_directory(directory: &Path, made: &mut Made) -> Result<(), Fault> {
    let mut missing: Vec<&Path> = directory
        .ancestors()
        .filter(|path| !path.as_os_str().is_empty())
        .take_while(|path| !path.exists())
        .collect();
    while let Some(path) = missing.pop() {
        let mut builder = std::fs::DirBuilder::new();
        // Whatever the mask: a configuration in a directory that others may write is not obeyed.
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o755);
        match builder.create(path) {
            Ok(()) => made.directories.push(path.to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => {}
            Err(error) => return Err(failed(path, error)),
        }
    }
    if directory.is_dir() {
        return Ok(());
    }
    let not_one = std::io::Error::from(std::io::ErrorKind::NotADirectory);
    Err(failed(directory, not_one))
}

fn failed(path: &Path, error: std::io::Error) -> Fault {
    Fault::new(
        Blame::Machine,
        Code::ToolFailed,
        path.display().to_string(),
        error,
    )
}
