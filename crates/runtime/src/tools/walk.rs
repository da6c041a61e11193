//! Walking a path text from the handles of granted roots to the place it really names (FS-02, FS-03, SEC-INV-04).
//!
//! One component at a time, by handle, without following: a link is read and its target walked in its stead, so the
//! place at the end has no link in it and every directory on the way is held open. Outside every root nothing is looked
//! at, so a refusal never tells whether something exists there.

use super::{os, text};
use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use policy::effective::{FileIdentity, GrantedRoot, RootKind, Sha256Digest};
use policy::path::{ObjectFacts, ObjectKind, ResolvedPath, WalkedPath};
use policy::tool::MAX_PATH_BYTES;
use policy::{Blame, Code, EffectivePolicy, Fault, Refusal, Right};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

/// Most links in one path, as in Linux.
const MAX_LINKS: u32 = 40;
/// Most directories held open below one root during a walk.
const MAX_DEPTH: usize = 256;

/// The opened granted roots of one frozen policy.
#[derive(Debug)]
pub struct Walker {
    roots: Vec<Root>,
    base: PathBuf,
    own_files: Vec<PathBuf>,
    pub(super) hashes: Mutex<HashMap<FileIdentity, Sha256Digest>>,
}

/// One opened root.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    kind: RootKind,
    /// The directory itself; for a file root the directory that holds it.
    handle: Dir,
}

impl Walker {
    /// Opens every granted root, component by component and without following links. Call it when the policy is frozen.
    ///
    /// # Errors
    /// A root is not there, is not what the policy says, or has a link in its path.
    pub fn open(policy: &EffectivePolicy) -> Result<Self, Fault> {
        Ok(Self {
            roots: policy
                .roots()
                .iter()
                .map(Root::open)
                .collect::<Result<_, _>>()?,
            base: policy.workspace_root().to_owned(),
            own_files: policy.own_files().to_vec(),
            hashes: Mutex::new(HashMap::new()),
        })
    }

    /// Walks a path text, relative to the workspace root, to the place it names; links are walked through. The last
    /// component may be missing.
    ///
    /// # Errors
    /// `policy.path_denied` outside every root, `policy.path_escapes` where a link leads out or in circles,
    /// `policy.path_protected` for our own files, `policy.path_invalid` for unusable texts, `file.not_found` where a
    /// directory on the way is missing, `file.wrong_kind` where it is no directory.
    pub fn walk(&self, text: &str) -> Result<WalkedPath, Refusal> {
        self.walk_from(&self.base, text)
    }

    /// As [`Walker::walk`], relative to another resolved directory.
    ///
    /// # Errors
    /// As [`Walker::walk`].
    pub fn walk_from(&self, base: &Path, text: &str) -> Result<WalkedPath, Refusal> {
        self.steps(base, text)?.run(false)
    }

    /// For what removes or moves a name: as [`Walker::walk`], but a link in the last place is not walked through. It is
    /// reported as a link if it stays inside, so that the policy refuses it.
    ///
    /// # Errors
    /// As [`Walker::walk`]; `policy.path_escapes` if the last link leads out.
    pub fn walk_entry(&self, text: &str) -> Result<WalkedPath, Refusal> {
        let mut steps = self.steps(&self.base, text)?;
        steps.keep_last_link = true;
        let found = steps.run(false)?;
        if found.object.map(|object| object.kind) == Some(ObjectKind::Link)
            && let Err(refusal) = self.steps(&self.base, text)?.run(false)
            && refusal.code != Code::FileNotFound
        {
            return Err(refusal);
        }
        Ok(found)
    }

    /// For new directories: as [`Walker::walk`], but directories on the way may be missing too. Then `parent` is the
    /// deepest one that exists and `name` is the rest of the path.
    ///
    /// # Errors
    /// As [`Walker::walk`].
    pub fn walk_for_create(&self, text: &str) -> Result<WalkedPath, Refusal> {
        self.steps(&self.base, text)?.run(true)
    }

    /// Whether the opened parent of a judged path still is at its place. Effects ask this right before they happen.
    ///
    /// # Errors
    /// `policy.path_escapes` if another directory is there now.
    pub fn confirm(&self, target: &ResolvedPath) -> Result<(), Refusal> {
        let moved = || {
            Refusal::new(
                Code::PathEscapes,
                "moved while in use",
                text::path(target.path()),
            )
        };
        let mut place = target.path();
        if target.name() != Path::new(".") {
            for _ in target.name().components() {
                place = place.parent().ok_or_else(moved)?;
            }
        }
        let Some(root) = self.directory_root(place) else {
            return Ok(()); // A granted file: its directory is the handle that was opened with the policy.
        };
        let now = self
            .descend(root, place)
            .and_then(|stack| match stack.last() {
                Some(directory) => directory.dir_metadata(),
                None => Err(io::ErrorKind::NotFound.into()),
            });
        let held = target.parent().dir_metadata();
        match (now, held) {
            (Ok(now), Ok(held)) if os::same_object(&os::identity(&now), &os::identity(&held)) => {
                Ok(())
            }
            _ => Err(moved()),
        }
    }

    fn steps(&self, base: &Path, text: &str) -> Result<Steps<'_>, Refusal> {
        let invalid =
            |rule: &str| Refusal::new(Code::PathInvalid, rule, text::one_line(&clip(text)));
        if text.trim().is_empty() {
            return Err(invalid("not empty"));
        }
        if text.contains('\0') {
            return Err(invalid("no NUL"));
        }
        if text.len() > MAX_PATH_BYTES {
            return Err(invalid("at most 4096 bytes"));
        }
        let asked = base.join(text);
        if !asked.is_absolute() {
            return Err(invalid("absolute, or relative to the workspace"));
        }
        let mut steps = Steps {
            walker: self,
            todo: Vec::new(),
            place: PathBuf::new(),
            stack: Vec::new(),
            links: 0,
            keep_last_link: false,
            directory_only: text.ends_with(std::path::is_separator) || text.ends_with("/."),
            asked: asked.components().collect(),
        };
        steps.push(&asked);
        Ok(steps)
    }

    fn directory_root(&self, place: &Path) -> Option<&Root> {
        let covers =
            |root: &&Root| root.kind == RootKind::Directory && place.starts_with(&root.path);
        self.roots
            .iter()
            .filter(covers)
            .max_by_key(|root| root.path.as_os_str().len())
    }

    fn root_at(&self, place: &Path, kind: RootKind) -> Option<&Root> {
        self.roots
            .iter()
            .find(|root| root.kind == kind && root.path == place)
    }

    fn leads_to_root(&self, place: &Path) -> bool {
        self.roots.iter().any(|root| root.path.starts_with(place))
    }

    /// The handles from a root down to a place without links.
    fn descend(&self, root: &Root, place: &Path) -> io::Result<Vec<Dir>> {
        let mut stack = vec![root.handle.try_clone()?];
        for component in place
            .strip_prefix(&root.path)
            .unwrap_or(Path::new(""))
            .components()
        {
            let Some(parent) = stack.last() else { break };
            let child = parent.open_dir_nofollow(component)?;
            stack.push(child);
        }
        Ok(stack)
    }
}

impl Root {
    fn open(granted: &GrantedRoot) -> Result<Self, Fault> {
        let fault = |error: io::Error| {
            Fault::new(
                Blame::Machine,
                Code::FileNotFound,
                text::path(&granted.path),
                error,
            )
        };
        let directory = match granted.kind {
            RootKind::Directory => Some(granted.path.as_path()),
            RootKind::File => granted.path.parent(),
        };
        let directory = directory.ok_or_else(|| fault(io::ErrorKind::InvalidInput.into()))?;
        let mut top = PathBuf::new();
        let mut names = Vec::new();
        for component in directory.components() {
            match component {
                Component::Prefix(_) | Component::RootDir => top.push(component),
                Component::Normal(name) => names.push(name),
                Component::CurDir | Component::ParentDir => {
                    return Err(fault(io::ErrorKind::InvalidInput.into()));
                }
            }
        }
        let mut handle = Dir::open_ambient_dir(&top, ambient_authority()).map_err(fault)?;
        for name in names {
            handle = handle.open_dir_nofollow(name).map_err(fault)?;
        }
        if let (RootKind::File, Some(name)) = (granted.kind, granted.path.file_name()) {
            let metadata = handle.symlink_metadata(name).map_err(fault)?;
            if metadata.is_dir() || metadata.is_symlink() {
                return Err(fault(io::ErrorKind::IsADirectory.into()));
            }
        }
        Ok(Self {
            path: granted.path.clone(),
            kind: granted.kind,
            handle,
        })
    }
}

/// What is still to be walked.
#[derive(Debug)]
enum Step {
    /// To the top of the file system.
    Top(PathBuf),
    /// To the directory above.
    Up,
    /// To this name.
    Into(OsString),
}

/// A walk on its way.
struct Steps<'w> {
    walker: &'w Walker,
    /// The next step last.
    todo: Vec<Step>,
    /// Where we are: absolute, without links, a directory.
    place: PathBuf,
    /// Open directories from the root's to the one at `place`; empty outside every root.
    stack: Vec<Dir>,
    links: u32,
    keep_last_link: bool,
    /// The text ends like a directory's: `name/` or `name/.`.
    directory_only: bool,
    /// What was asked for, for messages.
    asked: PathBuf,
}

impl Steps<'_> {
    fn push(&mut self, path: &Path) {
        let mut top = PathBuf::new();
        let mut steps = Vec::new();
        for component in path.components() {
            match component {
                Component::Prefix(_) | Component::RootDir => top.push(component),
                Component::CurDir => {}
                Component::ParentDir => steps.push(Step::Up),
                Component::Normal(name) => steps.push(Step::Into(name.to_owned())),
            }
        }
        self.todo.extend(steps.into_iter().rev());
        if !top.as_os_str().is_empty() {
            self.todo.push(Step::Top(top));
        }
    }

    fn run(mut self, parents_may_be_missing: bool) -> Result<WalkedPath, Refusal> {
        while let Some(step) = self.todo.pop() {
            match step {
                Step::Top(top) => self.arrive(top)?,
                Step::Up if self.stack.len() > 1 => {
                    self.stack.pop();
                    self.place.pop();
                }
                Step::Up => {
                    let mut above = self.place.clone();
                    above.pop();
                    self.arrive(above)?;
                }
                Step::Into(name) => {
                    if let Some(found) = self.enter(&name, parents_may_be_missing)? {
                        return Ok(found);
                    }
                }
            }
        }
        self.finish_here()
    }

    /// Stands at a place that is known to have no link in it: the top, or above where we were.
    fn arrive(&mut self, place: PathBuf) -> Result<(), Refusal> {
        self.stack = match self.walker.directory_root(&place) {
            Some(root) => self
                .walker
                .descend(root, &place)
                .map_err(|error| self.unreadable(&error))?,
            None => Vec::new(),
        };
        self.place = place;
        Ok(())
    }

    /// Goes to one name. Returns what is there if it is the last one and no directory to go on from.
    fn enter(
        &mut self,
        name: &OsStr,
        parents_may_be_missing: bool,
    ) -> Result<Option<WalkedPath>, Refusal> {
        let next = self.place.join(name);
        if self
            .walker
            .own_files
            .iter()
            .any(|own| next.starts_with(own))
        {
            return Err(Refusal::new(
                Code::PathProtected,
                "own files",
                text::path(&next),
            ));
        }
        if let Some(root) = self.walker.root_at(&next, RootKind::Directory) {
            self.stack = vec![
                root.handle
                    .try_clone()
                    .map_err(|error| self.unreadable(&error))?,
            ];
            self.place = next;
            return Ok(None);
        }
        let parent = match (
            self.stack.last(),
            self.walker.root_at(&next, RootKind::File),
        ) {
            (Some(directory), _) => directory.try_clone(),
            (None, Some(root)) => root.handle.try_clone(),
            (None, None) if self.walker.leads_to_root(&next) => {
                self.place = next;
                return Ok(None);
            }
            (None, None) => return Err(self.outside()),
        };
        let parent = parent.map_err(|error| self.unreadable(&error))?;
        let object = match parent.symlink_metadata(name) {
            Ok(metadata) => Some(os::facts(&metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(self.unreadable(&error)),
        };
        let last = self.todo.is_empty();
        match object.map(|object| object.kind) {
            Some(ObjectKind::Link) if !(last && self.keep_last_link) => {
                self.links += 1;
                if self.links > MAX_LINKS {
                    return Err(self.escape("links in circles"));
                }
                let target = parent
                    .read_link_contents(name)
                    .map_err(|error| self.unreadable(&error))?;
                self.push(&target);
                Ok(None)
            }
            Some(ObjectKind::Directory) if !last => {
                if self.stack.len() >= MAX_DEPTH {
                    return Err(Refusal::new(
                        Code::PathInvalid,
                        "at most 256 directories deep",
                        self.asked(),
                    ));
                }
                let directory = parent
                    .open_dir_nofollow(name)
                    .map_err(|error| self.unreadable(&error))?;
                self.stack.push(directory);
                self.place = next;
                Ok(None)
            }
            None if !last => self
                .missing(parent, name, next, parents_may_be_missing)
                .map(Some),
            Some(ObjectKind::Other) if !last => Err(Refusal::new(
                Code::FileKindUnsupported,
                "directory",
                text::path(&next),
            )),
            Some(_) if !last => Err(Refusal::new(
                Code::FileWrongKind,
                "directory",
                text::path(&next),
            )),
            Some(ObjectKind::File | ObjectKind::Other) if self.directory_only => Err(Refusal::new(
                Code::FileWrongKind,
                "directory",
                text::path(&next),
            )),
            None if self.directory_only && !parents_may_be_missing => Err(Refusal::new(
                Code::FileNotFound,
                "directory must exist",
                text::path(&next),
            )),
            _ => Ok(Some(WalkedPath {
                resolved: next,
                parent,
                name: name.to_owned(),
                object,
            })),
        }
    }

    /// A directory on the way is missing.
    fn missing(
        &mut self,
        parent: Dir,
        name: &OsStr,
        next: PathBuf,
        allowed: bool,
    ) -> Result<WalkedPath, Refusal> {
        let not_found = Refusal::new(
            Code::FileNotFound,
            "directory must exist",
            text::path(&next),
        );
        if !allowed {
            return Err(not_found);
        }
        let mut resolved = next;
        let mut rest = PathBuf::from(name);
        while let Some(step) = self.todo.pop() {
            let Step::Into(name) = step else {
                return Err(not_found);
            };
            resolved.push(&name);
            rest.push(&name);
        }
        Ok(WalkedPath {
            resolved,
            parent,
            name: rest.into_os_string(),
            object: None,
        })
    }

    /// The path ended at a directory that we already stand in.
    fn finish_here(mut self) -> Result<WalkedPath, Refusal> {
        let Some(here) = self.stack.pop() else {
            return Err(self.outside());
        };
        let (parent, name) = match (self.stack.pop(), self.place.file_name()) {
            (Some(parent), Some(name)) => (parent, name.to_owned()),
            _ => (here, OsString::from(".")),
        };
        let metadata = if name == OsStr::new(".") {
            parent.dir_metadata()
        } else {
            parent.symlink_metadata(&name)
        };
        let object: ObjectFacts = match metadata {
            Ok(metadata) => os::facts(&metadata),
            Err(error) => return Err(self.unreadable(&error)),
        };
        Ok(WalkedPath {
            resolved: self.place,
            parent,
            name,
            object: Some(object),
        })
    }

    fn outside(&self) -> Refusal {
        if self.links > 0 {
            return self.escape("the link leads out of the granted roots");
        }
        Refusal::new(Code::PathDenied, "granted roots", self.asked())
    }

    fn escape(&self, rule: &str) -> Refusal {
        Refusal::new(Code::PathEscapes, rule, self.asked())
    }

    fn unreadable(&self, error: &io::Error) -> Refusal {
        os::refused(error, self.asked(), Some(Right::Read))
    }

    fn asked(&self) -> String {
        text::path(&self.asked)
    }
}

fn clip(text: &str) -> String {
    text.chars().take(200).collect()
}
