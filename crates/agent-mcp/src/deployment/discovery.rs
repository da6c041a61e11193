//! Which configuration file a command works with, and why (X-CLI): the one that was named, else the project's, found
//! upward from the working directory, else the user's own, else the machine's.
//!
//! The walk upward stays where what lies there is the project's own. It never looks
//! - into a directory that everybody may write, such as `/tmp`, and nowhere above one: its files are anybody's;
//! - above a mount point: what is mounted there belongs to somebody else's tree (git stops there for the same reason);
//! - into the home directory from below, and never above it: a file there would speak for every project at once, which is
//!   what the user's configuration directory is for;
//! - into `/` from below: it is nobody's project.
//!
//! The working directory itself is always looked at, unless everybody may write it.

use super::places::{Variables, user_directory};
use policy::Message;
use std::path::{Path, PathBuf};

/// The machine's own configuration; only root can write it.
pub const SYSTEM_FILE: &str = "/etc/agent-mcp/agent.yaml";
/// In the working directory and each one above it, in this order.
const PROJECT_FILES: [&str; 2] = ["agent.yaml", ".agent-mcp/agent.yaml"];

/// Where a configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A person named it.
    Named(PathBuf),
    /// It lies in the working directory or above it, where anything that ran may have written it.
    InPlace(PathBuf),
    /// It lies in the user's own configuration directory, which no sandbox reaches.
    Own(PathBuf),
    /// It is the machine's, and only root can write it.
    System(PathBuf),
}

impl Found {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Named(path) | Self::InPlace(path) | Self::Own(path) | Self::System(path) => path,
        }
    }

    /// A stable word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Named(_) => "named",
            Self::InPlace(_) => "project",
            Self::Own(_) => "user",
            Self::System(_) => "system",
        }
    }
}

/// Why a file that is there is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassedOver {
    /// Another one goes before it.
    Later,
    /// It belongs to somebody who is neither this user nor root.
    ForeignOwner {
        /// The owner's user id.
        owner: u32,
    },
    /// Everybody may write the directory that it is in.
    SharedDirectory,
}

impl PassedOver {
    /// A stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Later => "later",
            Self::ForeignOwner { .. } => "foreign_owner",
            Self::SharedDirectory => "shared_directory",
        }
    }
}

/// What was found, and what was seen beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// The file that is used.
    pub found: Option<Found>,
    /// Files that are there and not used, in the order of the search.
    pub passed: Vec<(PathBuf, PassedOver)>,
    /// Every place that was looked at, in the order of the search.
    pub looked: Vec<PathBuf>,
}

/// Looks for the configuration. Reads no file.
pub fn discover(named: Option<&Path>) -> Discovery {
    Search {
        cwd: std::env::current_dir().ok(),
        home: Variables::of_process()
            .absolute("HOME")
            .and_then(|home| home.canonicalize().ok()),
        own: user_directory(),
        system: PathBuf::from(SYSTEM_FILE),
        user: user(),
        device,
    }
    .run(named)
}

#[cfg(unix)]
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn user() -> u32 {
    0
}

/// What the search depends on.
struct Search {
    /// Resolved.
    cwd: Option<PathBuf>,
    /// Resolved.
    home: Option<PathBuf>,
    /// The user's own configuration directory.
    own: Option<PathBuf>,
    system: PathBuf,
    user: u32,
    /// Which file system a directory is on.
    device: fn(&Path) -> Option<u64>,
}

impl Search {
    fn run(&self, named: Option<&Path>) -> Discovery {
        let mut discovery = Discovery {
            found: named.map(|file| Found::Named(file.to_owned())),
            ..Discovery::default()
        };
        for directory in self.project_directories() {
            for name in PROJECT_FILES {
                // In the working directory itself names are shown as people write them.
                let path = match &self.cwd {
                    Some(cwd) if *cwd == directory => PathBuf::from(name),
                    _ => directory.join(name),
                };
                let refused = self.refused(&directory.join(name));
                discovery.see(&directory.join(name), refused, Found::InPlace(path));
            }
        }
        if let Some(own) = &self.own {
            let path = own.join("agent.yaml");
            discovery.see(&path, None, Found::Own(path.clone()));
        }
        discovery.see(&self.system, None, Found::System(self.system.clone()));
        discovery
    }

    /// The working directory and those above it that may hold the project's configuration.
    fn project_directories(&self) -> Vec<PathBuf> {
        let mut directories = Vec::new();
        let Some(cwd) = &self.cwd else {
            return directories;
        };
        let device = (self.device)(cwd);
        for directory in cwd.ancestors() {
            let is_start = directory == cwd;
            let is_home = self.home.as_deref() == Some(directory);
            let is_root = directory.parent().is_none();
            if !is_start && (is_home || is_root || (self.device)(directory) != device) {
                break;
            }
            directories.push(directory.to_owned());
            if is_home || is_shared(directory) {
                break;
            }
        }
        directories
    }

    /// Why a file that was found upward is not for this user, if so.
    fn refused(&self, path: &Path) -> Option<PassedOver> {
        let directory = path.parent()?;
        let around = directory
            .parent()
            .filter(|_| directory.ends_with(".agent-mcp"));
        if is_shared(directory) || around.is_some_and(is_shared) {
            return Some(PassedOver::SharedDirectory);
        }
        owners(path)
            .into_iter()
            .find(|owner| *owner != self.user && *owner != 0)
            .map(|owner| PassedOver::ForeignOwner { owner })
    }
}

impl Discovery {
    fn see(&mut self, path: &Path, refused: Option<PassedOver>, found: Found) {
        let shown = found.path().to_owned();
        // What was named is found once, under the name it was given.
        let is_named = matches!(&self.found, Some(Found::Named(named))
            if named.canonicalize().is_ok_and(|named| path.canonicalize().is_ok_and(|path| path == named)));
        if std::fs::symlink_metadata(path).is_ok() && !is_named {
            match (refused, &self.found) {
                (Some(reason), _) => self.passed.push((shown.clone(), reason)),
                (None, Some(_)) => self.passed.push((shown.clone(), PassedOver::Later)),
                (None, None) => self.found = Some(found),
            }
        }
        self.looked.push(shown);
    }
}

/// Why the machine's own configuration is not safe to obey, if so: another user could have written it.
pub fn system_problem(file: &Path) -> Option<Message> {
    problem_of(file, 0)
}

#[cfg(unix)]
fn problem_of(file: &Path, root: u32) -> Option<Message> {
    use std::os::unix::fs::MetadataExt;
    [Some(file), file.parent()]
        .into_iter()
        .flatten()
        .find_map(|path| {
            // What a link leads to is what is read.
            let seen = std::fs::metadata(path).ok()?;
            let (owner, mode) = (seen.uid(), seen.mode() & 0o7777);
            (owner != root || mode & 0o022 != 0).then(|| {
                Message::new("reason.open_to_others")
                    .with("path", path.display())
                    .with("owner", owner)
                    .with("mode", format!("{mode:04o}"))
            })
        })
}

#[cfg(not(unix))]
fn problem_of(_: &Path, _: u32) -> Option<Message> {
    None
}

#[cfg(unix)]
fn device(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|seen| seen.dev())
}

#[cfg(not(unix))]
fn device(_: &Path) -> Option<u64> {
    None
}

/// Whether everybody may make files in a directory. In doubt yes.
#[cfg(unix)]
fn is_shared(directory: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata(directory) {
        Ok(seen) => seen.mode() & 0o002 != 0,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

#[cfg(not(unix))]
fn is_shared(_: &Path) -> bool {
    false
}

/// Who owns a file, and what it leads to where it is a link.
#[cfg(unix)]
fn owners(path: &Path) -> Vec<u32> {
    use std::os::unix::fs::MetadataExt;
    [std::fs::symlink_metadata(path), std::fs::metadata(path)]
        .into_iter()
        .flatten()
        .map(|seen| seen.uid())
        .collect()
}

#[cfg(not(unix))]
fn owners(_: &Path) -> Vec<u32> {
    Vec::new()
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct World {
        _directory: tempfile::TempDir,
        base: PathBuf,
    }

    impl World {
        /// `home/project/deep/er`, nothing else.
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let base = directory.path().canonicalize().unwrap();
            std::fs::create_dir_all(base.join("home/project/deep/er")).unwrap();
            Self {
                _directory: directory,
                base,
            }
        }

        fn write(&self, name: &str) -> PathBuf {
            let path = self.base.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "x").unwrap();
            path
        }

        fn mode(&self, name: &str, mode: u32) {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(self.base.join(name), permissions).unwrap();
        }

        fn search(&self, cwd: &str) -> Search {
            Search {
                cwd: Some(self.base.join(cwd)),
                home: Some(self.base.join("home")),
                own: Some(self.base.join("home/.config/agent-mcp")),
                system: self.base.join("etc/agent-mcp/agent.yaml"),
                user: user(),
                device: |_| Some(1),
            }
        }

        fn found(&self, cwd: &str) -> Option<Found> {
            self.search(cwd).run(None).found
        }
    }

    /// X-CLI, issue 4: named, then the project's from near to far, then the user's own, then the machine's; what was seen
    /// and not used is known.
    #[test]
    fn x_cli_the_order_of_the_search() {
        let world = World::new();
        let deep = "home/project/deep/er";
        assert_eq!(world.found(deep), None);
        let system = world.write("etc/agent-mcp/agent.yaml");
        assert_eq!(world.found(deep), Some(Found::System(system.clone())));
        let own = world.write("home/.config/agent-mcp/agent.yaml");
        assert_eq!(world.found(deep), Some(Found::Own(own.clone())));
        let far = world.write("home/project/.agent-mcp/agent.yaml");
        assert_eq!(world.found(deep), Some(Found::InPlace(far.clone())));
        let near = world.write("home/project/deep/agent.yaml");
        assert_eq!(world.found(deep), Some(Found::InPlace(near.clone())));
        world.write(&format!("{deep}/.agent-mcp/agent.yaml"));
        let discovery = world.search(deep).run(None);
        assert_eq!(
            discovery.found,
            Some(Found::InPlace(".agent-mcp/agent.yaml".into()))
        );
        let passed: Vec<PathBuf> = discovery
            .passed
            .iter()
            .map(|(path, why)| {
                assert_eq!(*why, PassedOver::Later);
                path.clone()
            })
            .collect();
        assert_eq!(passed, [near, far, own, system]);
        let named = world.base.join("home/.config/agent-mcp/agent.yaml");
        let discovery = world.search(deep).run(Some(&named));
        assert_eq!(discovery.found, Some(Found::Named(named)));
        assert_eq!(
            discovery.passed.len(),
            4,
            "the named one is not passed over"
        );
    }

    /// Issue 4: the walk stays below the home directory, and the home directory speaks for itself only.
    #[test]
    fn the_walk_ends_at_home() {
        let world = World::new();
        world.write("agent.yaml");
        world.write("home/agent.yaml");
        assert_eq!(world.found("home/project"), None);
        assert_eq!(
            world.found("home"),
            Some(Found::InPlace("agent.yaml".into())),
            "control"
        );
        assert_eq!(world.search("home").run(None).passed, []);
    }

    /// Issue 4: what is mounted has a project of its own, or none.
    #[test]
    fn the_walk_ends_at_a_mount_point() {
        let world = World::new();
        let file = world.write("home/project/agent.yaml");
        let mut search = world.search("home/project/deep/er");
        assert_eq!(
            search.run(None).found,
            Some(Found::InPlace(file)),
            "control"
        );
        search.device = |path| Some(u64::from(path.to_string_lossy().contains("/deep")));
        assert_eq!(search.run(None).found, None);
        let near = world.write("home/project/deep/agent.yaml");
        assert_eq!(search.run(None).found, Some(Found::InPlace(near)), "inside");
    }

    /// NFR-01: what lies in a directory that everybody may write is anybody's, and so is what lies above.
    #[test]
    fn nfr_01_shared_directories_are_not_looked_into() {
        let world = World::new();
        let file = world.write("home/project/agent.yaml");
        let above = "home/project/deep";
        assert_eq!(
            world.found(above),
            Some(Found::InPlace(file.clone())),
            "control"
        );
        for mode in [0o777, 0o1777] {
            world.mode("home/project", mode);
            let discovery = world.search(above).run(None);
            assert_eq!(discovery.found, None, "{mode:o}");
            assert_eq!(
                discovery.passed,
                [(file.clone(), PassedOver::SharedDirectory)]
            );
        }
        world.mode("home/project", 0o755);
        world.mode("home/project/deep", 0o777);
        assert_eq!(world.found("home/project/deep/er"), None, "nothing above");
        // The directory of its own counts, too.
        world.write("home/project/deep/er/.agent-mcp/agent.yaml");
        world.mode("home/project/deep/er/.agent-mcp", 0o777);
        let discovery = world.search("home/project/deep/er").run(None);
        assert_eq!(discovery.found, None);
        assert_eq!(discovery.passed[0].1, PassedOver::SharedDirectory);
    }

    /// NFR-01: only this user's files and root's are obeyed.
    #[test]
    fn nfr_01_foreign_files_are_passed_over() {
        let world = World::new();
        let file = world.write("home/project/agent.yaml");
        let mut search = world.search("home/project/deep");
        assert_eq!(
            search.run(None).found,
            Some(Found::InPlace(file.clone())),
            "control"
        );
        // Root's files are obeyed by everybody, so root needs a stranger's.
        let owner = if user() == 0 { 12_345 } else { user() };
        std::os::unix::fs::chown(&file, Some(owner), None).unwrap();
        search.user = owner + 1;
        let found = search.run(None);
        assert_eq!(found.found, None);
        assert_eq!(found.passed, [(file, PassedOver::ForeignOwner { owner })]);
    }

    /// Issue 4: the machine's file must be root's alone; the refusal says what to type.
    #[test]
    fn nfr_01_the_machines_file_is_roots_alone() {
        let world = World::new();
        let file = world.write("etc/agent-mcp/agent.yaml");
        world.mode("etc/agent-mcp", 0o755);
        world.mode("etc/agent-mcp/agent.yaml", 0o644);
        assert_eq!(problem_of(&file, user()), None, "control");
        let foreign = problem_of(&file, user() + 1).unwrap();
        assert!(foreign.to_string().contains("owner="), "{foreign}");
        for (name, mode) in [
            ("etc/agent-mcp/agent.yaml", 0o664),
            ("etc/agent-mcp/agent.yaml", 0o646),
            ("etc/agent-mcp", 0o775),
        ] {
            world.mode(name, mode);
            let problem = problem_of(&file, user()).unwrap();
            assert!(
                problem.to_string().contains(&format!("mode={mode:04o}")),
                "{problem}"
            );
            world.mode(name, if name.ends_with("yaml") { 0o644 } else { 0o755 });
        }
    }
}
