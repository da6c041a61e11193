//! Executing the exact program: the file that was approved, and no other (X-HASH).

use super::sys::process::{self, StringArray};
use super::sys::{Errno, Fd, file};
use policy::effective::FileIdentity;
use policy::sandbox::SandboxError;
use policy::{Code, Refusal};
use std::ffi::{CStr, CString, c_char};
use std::path::Path;

/// Why a program was not executed. Fits into one word of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No such file: 127.
    NotFound,
    /// There, but the kernel will not run it: 126.
    NotExecutable(i32),
    /// Another file than the approved one.
    Changed,
    /// The working directory cannot be entered.
    Directory(i32),
}

impl Refused {
    pub(crate) fn pack(self) -> u64 {
        match self {
            Self::NotFound => 1,
            Self::NotExecutable(errno) => 2 | (errno as u64) << 8,
            Self::Changed => 3,
            Self::Directory(errno) => 4 | (errno as u64) << 8,
        }
    }

    pub(crate) fn unpack(word: u64) -> Option<Self> {
        let errno = (word >> 8) as i32;
        match word & 0xff {
            1 => Some(Self::NotFound),
            2 => Some(Self::NotExecutable(errno)),
            3 => Some(Self::Changed),
            4 => Some(Self::Directory(errno)),
            _ => None,
        }
    }

    pub(crate) fn error(self, program: &Path, directory: &Path) -> SandboxError {
        match self {
            Self::NotFound => SandboxError::NotFound(program.to_path_buf()),
            Self::NotExecutable(errno) => SandboxError::NotExecutable {
                path: program.to_path_buf(),
                errno,
            },
            Self::Changed => Refusal::new(
                Code::ExecutableHashChanged,
                "X-HASH",
                program.display().to_string(),
            )
            .into(),
            Self::Directory(errno) => Refusal::new(
                if errno == libc::ENOENT {
                    Code::FileNotFound
                } else {
                    Code::PathDenied
                },
                "working directory",
                directory.display().to_string(),
            )
            .with("detail", Errno(errno))
            .into(),
        }
    }
}

/// A program to execute, borrowed from whatever holds its strings.
pub(crate) struct Program<'p> {
    /// Where it may be; the first that runs is taken.
    pub(crate) candidates: &'p [&'p CStr],
    pub(crate) arguments: &'p [*const c_char],
    pub(crate) environment: &'p [*const c_char],
    pub(crate) identity: Option<FileIdentity>,
    /// Whether those bytes were approved, so that a script must be read through the descriptor that was checked, too.
    pub(crate) approved: bool,
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

/// The identity of an opened file.
pub(crate) fn identity(status: &libc::stat) -> FileIdentity {
    FileIdentity {
        device: status.st_dev,
        inode: status.st_ino,
        size: status.st_size as u64,
        modified_ns: nanoseconds(status.st_mtime, status.st_mtime_nsec),
        changed_ns: nanoseconds(status.st_ctime, status.st_ctime_nsec),
    }
}

/// Executes; returns only with the reason why not.
///
/// With an identity the file is opened once, checked through that descriptor, and that descriptor is executed. A `#!`
/// script is read by its interpreter, which gets a name for it. For an approved one that name is `/dev/fd/N`, a link to the
/// real path that leads to the checked file itself, whatever has been put at the path since (X-HASH). Any other script is
/// given its own path, because `$0` is how build scripts find their directory, and nobody approved its bytes.
///
/// # Safety
/// The arrays in `program` must be as [`process::execute`] wants them.
pub(crate) unsafe fn execute(program: &Program<'_>) -> Refused {
    let mut refused = Refused::NotFound;
    for candidate in program.candidates {
        let answer = match program.identity {
            // SAFETY: the caller vouches for the arrays.
            None => unsafe { by_path(candidate, program) },
            // SAFETY: the caller vouches for the arrays.
            Some(identity) => unsafe { by_descriptor(candidate, identity, program) },
        };
        match answer {
            // Somewhere else on the search path there may be one that runs, as in any shell.
            Refused::NotFound => {}
            Refused::NotExecutable(libc::EACCES) => refused = answer,
            other => return other,
        }
    }
    refused
}

unsafe fn by_path(path: &CStr, program: &Program<'_>) -> Refused {
    // SAFETY: the caller vouches for the arrays.
    let errno = unsafe { process::execute(Fd::CWD, path, program.arguments, program.environment) };
    judge(errno, path)
}

fn judge(errno: Errno, path: &CStr) -> Refused {
    match errno.0 {
        // The file is there: its interpreter is not.
        libc::ENOENT if file::exists(path) => Refused::NotExecutable(libc::ENOENT),
        libc::ENOENT | libc::ENOTDIR => Refused::NotFound,
        other => Refused::NotExecutable(other),
    }
}

unsafe fn by_descriptor(path: &CStr, wanted: FileIdentity, program: &Program<'_>) -> Refused {
    let opened = match file::open_at(Fd::CWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0) {
        Ok(opened) => opened,
        Err(errno) => return judge(errno, path),
    };
    let Ok(status) = file::status(opened) else {
        return Refused::Changed;
    };
    if identity(&status) != wanted {
        return Refused::Changed;
    }
    let mut start = [0u8; 2];
    if file::read(opened, &mut start) == Ok(2) && start == *b"#!" {
        if !program.approved {
            // SAFETY: the caller vouches for the arrays.
            return unsafe { by_path(path, program) };
        }
        // The interpreter opens it again by number.
        if let Err(errno) = file::keep_on_exec(opened) {
            return Refused::NotExecutable(errno.0);
        }
    }
    // SAFETY: the caller vouches for the arrays.
    let errno = unsafe { process::execute(opened, c"", program.arguments, program.environment) };
    judge(errno, path)
}

/// What `argv` means inside the sandbox: a path as it is, a bare name in the sandbox's own search path.
pub(crate) fn candidates(name: &CStr, search: &str) -> Vec<CString> {
    if name.to_bytes().contains(&b'/') {
        return vec![name.to_owned()];
    }
    search
        .split(':')
        .filter(|_| !name.is_empty())
        .filter_map(|directory| {
            let mut path = directory.as_bytes().to_vec();
            path.push(b'/');
            path.extend(name.to_bytes());
            CString::new(path).ok()
        })
        .collect()
}

/// Borrowed pointers for `execve`.
pub(crate) fn pointers(strings: &[CString]) -> StringArray<'_> {
    StringArray::new(strings.iter().map(CString::as_c_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_survives_one_word() {
        for refused in [
            Refused::NotFound,
            Refused::NotExecutable(libc::EACCES),
            Refused::Changed,
            Refused::Directory(libc::ENOENT),
        ] {
            assert_eq!(Refused::unpack(refused.pack()), Some(refused));
        }
        assert_eq!(Refused::unpack(0), None);
    }

    #[test]
    fn bare_names_are_searched_and_paths_are_not() {
        assert_eq!(candidates(c"./x", "/bin"), [c"./x".to_owned()]);
        assert_eq!(
            candidates(c"x", "/usr/bin:/bin"),
            [c"/usr/bin/x".to_owned(), c"/bin/x".to_owned()]
        );
        assert!(candidates(c"", "/bin").is_empty());
    }
}
