//! A configuration decides what may be done, so nobody but its owner may be able to change it: neither the file nor any
//! directory or link on the way to it (issue 4). What is open to others is refused with the command that closes it.

use policy::Message;
use std::path::Path;

/// Why the file must not be obeyed, if so: somebody else could have written it, or put another in its place.
#[cfg(unix)]
pub(super) fn why_not(file: &Path) -> Option<Message> {
    let user = rustix::process::geteuid().as_raw();
    let walk = super::links::walk(file);
    let links = walk.links.iter().map(|(link, _)| link.as_path());
    let directories = walk.directories.iter().map(std::path::PathBuf::as_path);
    links
        .map(|link| (link, std::fs::symlink_metadata(link)))
        .chain(directories.map(|path| (path, std::fs::symlink_metadata(path))))
        .chain([(file, std::fs::metadata(file))])
        .find_map(|(path, seen)| match seen {
            Ok(seen) => {
                let facts = Facts::of(path, &seen);
                facts.problem(path, user, || is_private_group(&facts))
            }
            Err(error) => Some(Message::of_io(&error)),
        })
}

/// Whether nobody but its owner, who is this user or root, may write to a file.
#[cfg(unix)]
pub(super) fn is_closed_to_others(path: &Path, seen: &std::fs::Metadata) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let facts = Facts::of(path, seen);
    facts
        .problem(path, user, || is_private_group(&facts))
        .is_none()
}

/// In doubt not.
#[cfg(not(unix))]
pub(super) fn is_closed_to_others(_: &Path, _: &std::fs::Metadata) -> bool {
    false
}

/// Elsewhere the system's own lists of rights are judged with the sandbox of that system.
#[cfg(not(unix))]
pub(super) fn why_not(_: &Path) -> Option<Message> {
    None
}

/// What is judged.
#[cfg(unix)]
struct Facts {
    owner: u32,
    group: u32,
    mode: u32,
    is_directory: bool,
    is_link: bool,
    /// Users and groups beside the mode; then its group bits speak for them, too.
    has_list: bool,
}

#[cfg(unix)]
impl Facts {
    fn of(path: &Path, seen: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            owner: seen.uid(),
            group: seen.gid(),
            mode: seen.mode() & 0o7777,
            is_directory: seen.is_dir(),
            is_link: seen.is_symlink(),
            has_list: rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0u8; 0])
                .is_ok_and(|length| length > 0),
        }
    }

    fn problem(
        &self,
        path: &Path,
        user: u32,
        is_private_group: impl FnOnce() -> bool,
    ) -> Option<Message> {
        let shown = super::for_shell(&path.display().to_string());
        if self.owner != user && self.owner != 0 {
            let fix = format!("chown {user} {shown}");
            let message = Message::new("reason.foreign_owner")
                .with("path", path.display())
                .with("owner", self.owner)
                .with("fix", fix);
            return Some(message);
        }
        // The mode of a link says nothing. In a sticky directory everybody may make names, and only owners change theirs.
        if self.is_link || (self.is_directory && self.mode & 0o1000 != 0) {
            return None;
        }
        let others = self.mode & 0o002 != 0;
        let group = self.mode & 0o020 != 0 && (self.has_list || !is_private_group());
        let who = match (group, others) {
            (false, false) => return None,
            (true, false) => "g-w",
            (false, true) => "o-w",
            (true, true) => "go-w",
        };
        Some(
            Message::new("reason.writable_by_others")
                .with("path", path.display())
                .with("mode", format!("{:04o}", self.mode))
                .with("fix", format!("chmod {who} {shown}")),
        )
    }
}

/// Whether nobody but the owner is in the group: many systems give each user a group of their own, and a mask that lets
/// it write.
#[cfg(unix)]
fn is_private_group(facts: &Facts) -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    is_private(facts, &read("/etc/passwd"), &read("/etc/group"))
}

/// In doubt not: a user who is not in these files, but in a directory service, is nobody's private group.
#[cfg(unix)]
fn is_private(facts: &Facts, users: &str, groups: &str) -> bool {
    let (owner, group) = (facts.owner.to_string(), facts.group.to_string());
    let mut names = Vec::new();
    for line in users.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let [name, _, id, primary, ..] = fields[..]
            && primary == group
        {
            if id != owner {
                return false;
            }
            names.push(name);
        }
    }
    groups.lines().any(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, id, members] = fields[..] else {
            return false;
        };
        id == group
            && names.contains(&name)
            && members
                .split(',')
                .all(|member| member.is_empty() || names.contains(&member))
    })
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    const ME: u32 = 1000;

    fn facts(owner: u32, mode: u32, is_directory: bool) -> Facts {
        Facts {
            owner,
            group: ME,
            mode,
            is_directory,
            is_link: false,
            has_list: false,
        }
    }

    /// Issue 4, NFR-01: whose, and open to whom; the command closes exactly that.
    #[test]
    fn nfr_01_what_is_open_to_others() {
        let check = |facts: Facts, user: u32, private: bool, expected: &str| {
            let found = facts.problem(Path::new("/c/a b"), user, || private);
            let found = found.map_or_else(String::new, |message| {
                let arguments = message.arguments();
                let fix = arguments.iter().find(|(name, _)| *name == "fix");
                fix.map(|(_, fix)| fix.clone()).unwrap()
            });
            assert_eq!(found, expected);
        };
        check(facts(ME, 0o600, false), ME, false, "");
        check(facts(ME, 0o644, false), ME, false, "");
        check(facts(0, 0o644, false), ME, false, "");
        check(facts(ME, 0o664, false), ME, true, "");
        check(facts(ME, 0o664, false), ME, false, "chmod g-w '/c/a b'");
        check(facts(ME, 0o666, false), ME, true, "chmod o-w '/c/a b'");
        check(facts(ME, 0o666, false), ME, false, "chmod go-w '/c/a b'");
        check(facts(0, 0o777, true), ME, false, "chmod go-w '/c/a b'");
        check(facts(0, 0o1777, true), ME, false, "");
        // The sticky bit of a file protects nothing.
        check(facts(0, 0o1666, false), ME, false, "chmod go-w '/c/a b'");
        check(
            facts(ME + 1, 0o600, false),
            ME,
            false,
            "chown 1000 '/c/a b'",
        );
        check(
            facts(ME + 1, 0o1777, true),
            ME,
            false,
            "chown 1000 '/c/a b'",
        );
        // Root obeys root only.
        check(facts(ME, 0o600, false), 0, false, "chown 0 '/c/a b'");
        // A list of further users makes the group bits theirs.
        let listed = Facts {
            has_list: true,
            ..facts(ME, 0o664, false)
        };
        check(listed, ME, true, "chmod g-w '/c/a b'");
        let link = Facts {
            is_link: true,
            ..facts(ME, 0o777, false)
        };
        check(link, ME, false, "");
    }

    #[test]
    fn a_private_group_has_one_member() {
        let users = "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\nyou:x:1001:1001::/:/bin/sh\n";
        let check = |users: &str, groups: &str, expected| {
            assert_eq!(
                is_private(&facts(ME, 0o664, false), users, groups),
                expected,
                "{groups}"
            );
        };
        check(users, "root:x:0:\nme:x:1000:\n", true);
        check(users, "me:x:1000:me\n", true);
        check(users, "me:x:1000:you\n", false);
        check(users, "staff:x:1000:\n", false);
        check(users, "me:x:1001:\n", false);
        check(users, "", false);
        check("", "me:x:1000:\n", false);
        let shared = users.replace("1001:1001", "1001:1000");
        check(&shared, "me:x:1000:\n", false);
    }

    /// Issue 4: the file, each directory on the way and each link count; a temporary directory of one's own passes.
    #[test]
    fn nfr_01_the_whole_way_counts() {
        let directory = tempfile::tempdir().unwrap();
        let base: PathBuf = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        let file = base.join("a/b/agent.yaml");
        std::fs::write(&file, "x").unwrap();
        symlink("a/b", base.join("link")).unwrap();
        let mode = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for path in [base.join("a"), base.join("a/b"), file.clone()] {
            mode(&path, 0o755);
        }
        let through = base.join("link/agent.yaml");
        for name in [&file, &through] {
            assert_eq!(why_not(name), None, "control");
        }
        for open in [base.join("a"), base.join("a/b"), file.clone()] {
            mode(&open, 0o757);
            for name in [&file, &through] {
                let why = why_not(name).unwrap();
                assert_eq!(why.id(), "reason.writable_by_others");
                let fix = format!("chmod o-w {}", open.display());
                let shown = open.display().to_string();
                assert!(
                    why.arguments().contains(&("fix", fix.clone()))
                        || (open == file && why.to_string().contains("chmod o-w")),
                    "{why} {shown}"
                );
            }
            mode(&open, 0o755);
        }
        mode(&base.join("a"), 0o1777);
        assert_eq!(why_not(&file), None, "sticky");
    }
}
