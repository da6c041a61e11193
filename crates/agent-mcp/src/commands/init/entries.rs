//! Programs that most requests need and that are on this machine, as entries of the new configuration.

use std::io::Read;
use std::path::{Path, PathBuf};

/// What is looked for, by alias.
const PROGRAMS: [&str; 7] = ["sh", "git", "make", "python3", "node", "cargo", "go"];
/// Where the system keeps programs, in the usual order. What lies elsewhere, such as in a home directory, may be changed
/// by whoever runs there.
const DIRECTORIES: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// Permission bits that an entry must not have: set-user-id, set-group-id, writable by group or others.
#[cfg(unix)]
const UNWANTED_MODE: u32 = 0o6022;

/// One program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) alias: &'static str,
    /// The file itself, no link to it.
    pub(super) path: PathBuf,
}

/// Those that are here.
pub(super) fn installed() -> Vec<Entry> {
    let directories: Vec<&Path> = DIRECTORIES.iter().map(Path::new).collect();
    PROGRAMS
        .into_iter()
        .filter_map(|alias| {
            directories
                .iter()
                .find_map(|directory| usable(alias, &directory.join(alias)))
        })
        .collect()
}

fn usable(alias: &'static str, path: &Path) -> Option<Entry> {
    let resolved = path.canonicalize().ok()?;
    let is_program = resolved.is_file() && is_safe(&resolved) && is_binary(&resolved);
    // A file that is many programs (busybox, rustup) is told by the name that leads to it.
    let named_after = resolved
        .file_name()
        .is_some_and(|name| alias == "sh" || name.to_string_lossy().starts_with(alias));
    let is_many = resolved.file_name().is_some_and(|name| name == "busybox");
    (is_program && named_after && !is_many).then_some(Entry {
        alias,
        path: resolved,
    })
}

#[cfg(unix)]
fn is_safe(program: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(program).is_ok_and(|seen| {
        seen.uid() == 0 && seen.mode() & UNWANTED_MODE == 0 && seen.mode() & 0o111 != 0
    })
}

#[cfg(not(unix))]
fn is_safe(_: &Path) -> bool {
    false
}

/// A script would start whatever its first line names.
fn is_binary(program: &Path) -> bool {
    let mut start = [0; 2];
    std::fs::File::open(program)
        .and_then(|mut file| file.read_exact(&mut start))
        .is_ok_and(|()| start != *b"#!")
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// X-EXE: entries are the files themselves; no set-uid program, none that others can change, no script, no link to a
    /// program of many names.
    #[test]
    fn x_exe_what_is_no_entry() {
        for entry in installed() {
            assert_eq!(entry.path, entry.path.canonicalize().unwrap());
        }
        assert!(installed().iter().any(|entry| entry.alias == "sh"));
        assert_eq!(usable("sh", Path::new("/nowhere/sh")), None);
        // Only root can make a program of root's, so the rest needs root.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let make = |name: &str, content: &[u8], mode: u32| {
            let path = base.join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let good = make("git", b"\x7fELF", 0o755);
        let expected = Entry {
            alias: "git",
            path: good.clone(),
        };
        assert_eq!(usable("git", &good), Some(expected.clone()), "control");
        let link = base.join("link-to-it");
        std::os::unix::fs::symlink(&good, &link).unwrap();
        assert_eq!(usable("git", &link), Some(expected), "resolved");
        for mode in [0o4755, 0o2755, 0o775, 0o757, 0o644] {
            assert_eq!(
                usable("git", &make("git-x", b"\x7fELF", mode)),
                None,
                "{mode:o}"
            );
        }
        assert_eq!(usable("git", &make("git-y", b"#!/bin/sh\n", 0o755)), None);
        assert_eq!(usable("cargo", &make("rustup", b"\x7fELF", 0o755)), None);
        assert_eq!(usable("sh", &make("busybox", b"\x7fELF", 0o755)), None);
        let foreign = make("git-z", b"\x7fELF", 0o755);
        std::os::unix::fs::chown(&foreign, Some(12_345), None).unwrap();
        assert_eq!(usable("git", &foreign), None);
    }
}
