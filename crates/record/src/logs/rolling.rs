//! A log file that is replaced by a new one when it is full.

use crate::private;
use crate::state::{StateDirectory, StateError};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

/// Limits of one log (`logging.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollingLimits {
    /// Bytes after which a new file is begun. A single larger write has a file of its own.
    pub max_file_bytes: u64,
    /// Older files that are kept, as `<name>.1` (newest) to `<name>.<n>`; 0 keeps none.
    pub retained_files: u32,
}

/// A log file, 0600, in a directory that is 0700. It rolls only between lines, however few bytes come at once.
#[derive(Debug)]
pub struct RollingFile {
    path: PathBuf,
    limits: RollingLimits,
    file: File,
    size: u64,
    within_line: bool,
}

impl RollingFile {
    /// Opens `name` in `directory` for appending, making it when it is missing.
    ///
    /// # Errors
    /// `state.unusable`: also when the file is open to others or not a regular file.
    pub fn open(
        directory: &StateDirectory,
        name: &str,
        limits: RollingLimits,
    ) -> Result<Self, StateError> {
        let path = directory.file(name)?.path().to_owned();
        let file = private::open_append(&path, true).map_err(StateError::io("open", &path))?;
        let size = StateError::check_file(&path, &file)?;
        Ok(Self {
            path,
            limits,
            file,
            size,
            within_line: false,
        })
    }

    fn older(&self, number: u32) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }

    /// The oldest goes, the others move up, and a new file begins.
    fn roll(&mut self) -> io::Result<()> {
        let kept = self.limits.retained_files;
        if kept == 0 {
            fs::remove_file(&self.path)?;
        } else {
            for number in (1..kept).rev() {
                match fs::rename(self.older(number), self.older(number + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
            fs::rename(&self.path, self.older(1))?;
        }
        self.file = private::create_new(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

impl Write for RollingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let full = self.size + bytes.len() as u64 > self.limits.max_file_bytes;
        if full && self.size > 0 && !self.within_line {
            self.roll()?;
        }
        self.file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        if let Some(last) = bytes.last() {
            self.within_line = *last != b'\n';
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
