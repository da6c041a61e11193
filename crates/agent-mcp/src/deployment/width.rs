//! Directories that are no workspace: a person who grants one by mistake loses the machine or the keys.

use policy::Message;
use std::path::{Path, PathBuf};

/// The system's own, with everything below.
const SYSTEM: &[&str] = &[
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr",
];
/// Shared by many; directories below them are fine.
const SHARED: &[&str] = &[
    "/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/tmp",
];

/// Why a resolved directory must not be granted for writing, if so.
pub fn too_wide(path: &Path) -> Option<Message> {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .and_then(|home| home.canonicalize().ok());
    if home.is_some_and(|home| home.starts_with(path)) {
        return Some(Message::new("reason.holds_home"));
    }
    if SYSTEM.iter().any(|system| path.starts_with(system)) {
        return Some(Message::new("reason.of_the_system"));
    }
    if SHARED.iter().any(|shared| path == Path::new(shared)) {
        return Some(Message::new("reason.shared"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-INV-04, NFR-01: a writable workspace is a directory of one project.
    #[test]
    fn nfr_01_what_is_no_workspace() {
        for path in [
            "/",
            "/etc",
            "/etc/ssl",
            "/usr/local/src",
            "/tmp",
            "/var",
            "/home",
            "/boot",
        ] {
            assert!(too_wide(Path::new(path)).is_some(), "{path}");
        }
        for path in [
            "/tmp/x",
            "/home/someone-else/project",
            "/srv/project",
            "/var/lib/project",
            "/etcetera",
        ] {
            assert_eq!(too_wide(Path::new(path)), None, "{path}");
        }
    }
}
