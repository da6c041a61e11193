//! The launch plan: everything decided and allocated before the first namespace exists.
//!
//! A plan is made from a frozen policy by whoever asks for the sandbox, and carried out by a process that can neither
//! allocate nor look anything up (one-shot), or by the re-executed helper, to which it travels as JSON (standing).

use super::bare::plan::Bare;
use super::environment;
use super::explain::places::{Place, places};
use super::explain::tripwire::{self, Node};
use super::filter::FilterChoice;
use super::protect;
use super::relay::{self, Reach};
use super::runtime::{self, Facts, Source};
use super::sys::landlock as ll;
use super::sys::mount;
use crate::exec::Explain;
use policy::effective::{GrantedRoot, NetworkPolicy, Origin, RootKind};
use policy::sandbox::SandboxError;
use policy::{Code, EffectivePolicy, Refusal, Right, Rights, SandboxMode};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, OsStr};
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Granted roots that can be opened ahead; more are refused.
pub(crate) use policy::effective::MOST_ROOTS;

/// Directories inside the private area.
pub(crate) const HOME: &CStr = c".home";
pub(crate) const SHARED_MEMORY: &CStr = c".shm";

/// Where the private area lies, in order of preference: never above or below a granted root, because Landlock's
/// grants add up along a path.
const PRIVATE_PLACES: &[&str] = &["/tmp", "/run/private", "/var/private"];

/// Paths that can never be granted: they are the sandbox's own, or the host's control surface.
const NEVER_GRANTED: &[&str] = &["/proc", "/sys", "/dev"];

/// An owner on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

impl Owner {
    fn of(metadata: &Metadata) -> Self {
        Self {
            user: metadata.uid(),
            group: metadata.gid(),
        }
    }
}

/// The memory-backed place for `TMPDIR`, `HOME` and `/dev/shm`, with one limit for all of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PrivateArea {
    /// Absolute.
    pub(crate) path: CString,
    pub(crate) size: CString,
    pub(crate) inodes: CString,
}

impl PrivateArea {
    /// The area itself, or a directory in it.
    pub(crate) fn path_of(&self, below: Option<&CStr>) -> PathBuf {
        let base = Path::new(OsStr::from_bytes(self.path.as_bytes()));
        below.map_or_else(
            || base.to_path_buf(),
            |below| base.join(OsStr::from_bytes(below.to_bytes())),
        )
    }
}

/// A part of the host that becomes visible.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Bind {
    /// Absolute path on the host.
    pub(crate) source: CString,
    /// Where it goes, relative to the new root.
    pub(crate) path: CString,
    /// Mount attributes to add.
    pub(crate) attributes: u64,
    /// Landlock rights.
    pub(crate) access: u64,
    /// For granted roots: the slot of the tree that a privileged launcher opens ahead, and its owner on disk.
    pub(crate) granted: Option<(u16, Owner)>,
    /// Whether something below it can be written at all.
    pub(crate) writable: bool,
}

/// One step of building the root. Paths without a leading slash are relative to the new root.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Step {
    Directory(CString),
    Link {
        target: CString,
        path: CString,
    },
    File {
        path: CString,
        content: Vec<u8>,
    },
    Proc(CString),
    Terminals(CString),
    Private(CString),
    Bind(Bind),
    /// A directory of what is not granted, with the tripwire. Without one it is not made for its own sake.
    Outside(CString),
    /// Binds a directory onto itself, so that it cannot be renamed away.
    Pin(CString),
    /// The same, read-only.
    Protect(CString),
    /// Covers a link to a file with the file, read-only, so that the link cannot be replaced.
    ProtectLink {
        target: CString,
        path: CString,
    },
    /// Covers with something empty that cannot be opened.
    Mask {
        path: CString,
        directory: bool,
    },
}

impl Step {
    pub(crate) fn describe(&self) -> String {
        let (verb, path) = match self {
            Self::Directory(path) => ("directory", path),
            Self::Link { path, .. } => ("link", path),
            Self::File { path, .. } => ("file", path),
            Self::Proc(path) => ("proc", path),
            Self::Terminals(path) => ("devpts", path),
            Self::Private(path) => ("private area", path),
            Self::Bind(bind) => ("bind", &bind.source),
            Self::Outside(path) => ("tripwire", path),
            Self::Pin(path) => ("pin", path),
            Self::Protect(path) | Self::ProtectLink { path, .. } => ("protect", path),
            Self::Mask { path, .. } => ("mask", path),
        };
        format!("{verb} {}", path.to_string_lossy())
    }
}

/// Limits that the kernel or init enforces.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) memory_bytes: u64,
    /// As the policy says.
    pub(crate) policy_processes: u64,
    /// What RLIMIT_NPROC must allow: ours stand beside the policy's.
    pub(crate) processes: u64,
    /// A cgroup counts both; else memory is watched.
    pub(crate) counted: bool,
}

/// See the module's head.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) private: PrivateArea,
    pub(crate) filter: FilterChoice,
    pub(crate) limits: Limits,
    pub(crate) environment: Vec<CString>,
    /// The ids that are shown inside: the workspace's owner for a privileged caller, else the caller.
    pub(crate) owner: Owner,
    /// Whether the caller is the host's root, who must not stay that inside.
    pub(crate) privileged: bool,
    /// Bytes of a memory page.
    pub(crate) page: u64,
    /// Landlock's version, 0 without it.
    pub(crate) landlock: u32,
    /// What replaces the steps where no namespace can be made.
    pub(crate) bare: Option<Bare>,
    /// Whether directories above the granted roots may be listed; nothing but those roots is in them.
    pub(crate) list_above: bool,
    /// What leads out of the network namespace.
    pub(crate) reach: Reach,
    /// What stands where, for explaining.
    pub(crate) places: Vec<Place>,
    /// What exists in the tripwire.
    pub(crate) nodes: Vec<Node>,
    /// For whoever made the plan: what there was to protect.
    #[serde(skip)]
    pub(crate) record: protect::Record,
}

impl Plan {
    /// Explains this much; a plan begins with the default.
    pub(crate) fn explain(&mut self, explain: Explain) {
        self.filter.explain = explain;
    }

    /// Asks nobody: connections are refused, and nothing is explained.
    pub(crate) fn be_quiet(&mut self) {
        self.filter.quiet = true;
        self.filter.explain = Explain::Off;
    }

    /// Whether a cgroup counts memory and processes; known before the start, after the plan.
    pub(crate) fn count(&mut self, counted: bool) {
        self.limits.counted = counted;
        self.filter.memory_counted = counted;
    }
}

const MASK_FILE: &CStr = c".masked/file";
const MASK_DIRECTORY: &CStr = c".masked/directory";

struct Builder {
    steps: Vec<Step>,
    made: BTreeSet<PathBuf>,
    /// Where something is mounted: below it, paths exist already.
    mounted: Vec<PathBuf>,
}

fn c_string(path: impl AsRef<Path>) -> CString {
    // A path with a NUL cannot come from the file system.
    CString::new(path.as_ref().as_os_str().to_owned().into_vec()).unwrap_or_default()
}

/// Relative to the new root.
fn relative(path: &Path) -> CString {
    c_string(path.strip_prefix("/").unwrap_or(path))
}

impl Builder {
    fn is_below_mount(&self, path: &Path) -> bool {
        self.mounted.iter().any(|mounted| path.starts_with(mounted))
    }

    fn directory(&mut self, path: &Path) {
        let ancestors: Vec<&Path> = path.ancestors().collect();
        for ancestor in ancestors.into_iter().rev() {
            if ancestor != Path::new("/")
                && !self.is_below_mount(ancestor)
                && self.made.insert(ancestor.to_path_buf())
            {
                self.steps.push(Step::Directory(relative(ancestor)));
            }
        }
    }

    fn parent(&mut self, path: &Path) {
        if let Some(parent) = path.parent() {
            self.directory(parent);
        }
    }

    fn file(&mut self, path: &Path, content: Vec<u8>) {
        self.parent(path);
        if !self.is_below_mount(path) && self.made.insert(path.to_path_buf()) {
            self.steps.push(Step::File {
                path: relative(path),
                content,
            });
        }
    }

    fn link(&mut self, target: &Path, path: &Path) {
        self.parent(path);
        if self.made.insert(path.to_path_buf()) {
            self.steps.push(Step::Link {
                target: c_string(target),
                path: relative(path),
            });
        }
    }

    fn bind(&mut self, path: &Path, is_directory: bool, bind: Bind) {
        if is_directory {
            self.directory(path);
        } else {
            self.file(path, Vec::new());
        }
        self.mounted.push(path.to_path_buf());
        self.steps.push(Step::Bind(bind));
    }
}

/// Landlock rights for a set of ours.
fn access_of(rights: Rights, is_directory: bool) -> u64 {
    let mut access = 0;
    if rights.allows(Right::Read) {
        access |= ll::READ_FILE | ll::READ_DIR;
    }
    if rights.allows(Right::Write) {
        // No sockets, no devices: a socket in a workspace is a door for the host's programs.
        access |= ll::WRITE_FILE
            | ll::TRUNCATE
            | ll::MAKE_REG
            | ll::MAKE_DIR
            | ll::MAKE_SYM
            | ll::MAKE_FIFO
            | ll::REFER;
    }
    if rights.allows(Right::Execute) {
        access |= ll::EXECUTE;
    }
    if rights.allows(Right::Delete) {
        access |= ll::REMOVE_FILE | ll::REMOVE_DIR | ll::REFER;
    }
    if is_directory {
        access
    } else {
        access & ll::FILE_RIGHTS
    }
}

fn attributes_of(rights: Rights) -> u64 {
    let mut attributes = mount::NOSUID | mount::NODEV;
    if !rights.allows(Right::Write) && !rights.allows(Right::Delete) {
        attributes |= mount::RDONLY;
    }
    if !rights.allows(Right::Execute) {
        attributes |= mount::NOEXEC;
    }
    attributes
}

fn bad_root(code: Code, rule: &str, path: &Path) -> SandboxError {
    Refusal::new(code, rule, path.display().to_string()).into()
}

/// Refuses what this backend cannot make so.
fn check_policy(policy: &EffectivePolicy) -> Result<FilterChoice, SandboxError> {
    if policy.mode() == SandboxMode::DangerFullAccess {
        return Err(bad_root(
            Code::ApprovalRequired,
            "sandbox.max_mode",
            Path::new(policy.mode().word()),
        ));
    }
    if policy.roots().len() > MOST_ROOTS {
        return Err(bad_root(
            Code::ConfigurationInvalid,
            "sandbox roots: at most 256",
            policy.workspace_root(),
        ));
    }
    for root in policy.roots() {
        let never = NEVER_GRANTED
            .iter()
            .any(|never| root.path.starts_with(never) || Path::new(never).starts_with(&root.path));
        if never {
            return Err(bad_root(Code::PathDenied, "SEC-INV-03", &root.path));
        }
        if policy.is_own_file(&root.path) {
            return Err(bad_root(Code::PathProtected, "own files", &root.path));
        }
    }
    let runs_what_it_writes = policy
        .roots()
        .iter()
        .any(|root| root.rights.allows(Right::Write) && root.rights.allows(Right::Execute));
    Ok(FilterChoice {
        loopback: *policy.network() != NetworkPolicy::None,
        execution_limited: !runs_what_it_writes,
        explain: Explain::On,
        memory_counted: false,
        quiet: false,
        no_truncation: ll::version() < 3
            && policy.roots().iter().any(|root| {
                let rights = rights_of(policy, root);
                rights.allows(Right::Delete) && !rights.allows(Right::Write)
            }),
        alone: None,
    })
}

fn private_area(policy: &EffectivePolicy) -> Result<PrivateArea, SandboxError> {
    let place = PRIVATE_PLACES.iter().map(Path::new).find(|place| {
        policy
            .roots()
            .iter()
            .all(|root| !root.path.starts_with(place) && !place.starts_with(&root.path))
    });
    let Some(place) = place else {
        return Err(bad_root(
            Code::ConfigurationInvalid,
            "no place for the private area",
            policy.workspace_root(),
        ));
    };
    // Zero would mean no limit at all.
    let bytes = policy.resources().private_bytes.max(64 << 10);
    // Files without content cost memory too; one for every 4 KiB is what a full area of small files would hold.
    let inodes = (bytes / 4096).clamp(64, 65_536);
    Ok(PrivateArea {
        path: c_string(place),
        size: CString::new(bytes.to_string()).unwrap_or_default(),
        inodes: CString::new(inodes.to_string()).unwrap_or_default(),
    })
}

/// Root, unless of a user namespace that lets nobody change groups (`unshare -r`, some containers): that root can be no
/// other user either, and confines as an ordinary one does.
fn may_become_others() -> bool {
    rustix::process::geteuid().is_root()
        && std::fs::read_to_string("/proc/self/setgroups").is_ok_and(|word| word.trim() != "deny")
}

/// Makes the plan. Reads the file system, asks the resolver where the policy lists names, changes nothing.
///
/// # Errors
/// A refusal where the policy asks for what cannot be made so.
pub(crate) fn plan(policy: &EffectivePolicy) -> Result<Plan, SandboxError> {
    let filter = check_policy(policy)?;
    let private = private_area(policy)?;
    let reach = relay::reach(policy.network())?;
    let privileged = may_become_others();
    let owner = if privileged {
        Owner::of(&look(policy.workspace_root())?)
    } else {
        Owner {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        }
    };
    let mut builder = Builder {
        steps: Vec::with_capacity(64),
        made: BTreeSet::new(),
        mounted: Vec::new(),
    };
    outside(&mut builder, policy);
    own_parts(&mut builder, policy, &private);
    let facts = Facts {
        user: owner.user,
        group: owner.group,
        home: private.path_of(Some(HOME)).display().to_string(),
        hosts: reach.hosts.clone(),
    };
    let programs = runtime_parts(&mut builder, policy, &facts);
    granted_parts(&mut builder, policy, &programs)?;
    let record = overlays(&mut builder, policy)?;
    // One descriptor holder, the init and the zygote stand beside what the policy counts.
    let processes = u64::from(policy.resources().process_limit) + 2;
    Ok(Plan {
        places: places(&builder.steps),
        nodes: tripwire::nodes(&builder.steps),
        steps: builder.steps,
        environment: environment::environment(policy, &private, |name| std::env::var_os(name)),
        private,
        filter,
        limits: Limits {
            memory_bytes: policy.resources().memory_bytes,
            policy_processes: u64::from(policy.resources().process_limit),
            processes,
            counted: false,
        },
        owner,
        privileged,
        page: rustix::param::page_size() as u64,
        landlock: ll::version(),
        bare: None,
        list_above: policy
            .roots()
            .iter()
            .all(|root| root.rights.allows(Right::Read)),
        record,
        reach,
    })
}

fn look(path: &Path) -> Result<Metadata, SandboxError> {
    std::fs::symlink_metadata(path).map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Code::PermissionDenied,
            _ => Code::FileNotFound,
        };
        bad_root(code, "sandbox root", path)
    })
}

/// Where nothing is granted but, perhaps, something below.
fn outside(builder: &mut Builder, policy: &EffectivePolicy) {
    for path in tripwire::COVERED.iter().map(Path::new) {
        if !policy
            .roots()
            .iter()
            .any(|root| path.starts_with(&root.path))
        {
            builder.steps.push(Step::Outside(relative(path)));
        }
    }
}

/// What is the sandbox's own: proc, terminals, private area, and the directories programs expect.
fn own_parts(builder: &mut Builder, policy: &EffectivePolicy, private: &PrivateArea) {
    for path in ["/etc", "/run", "/tmp", "/var"] {
        builder.directory(Path::new(path));
    }
    builder.directory(Path::new("/proc"));
    builder.steps.push(Step::Proc(c"proc".into()));
    builder.mounted.push("/proc".into());
    builder.directory(Path::new("/dev/pts"));
    builder.steps.push(Step::Terminals(c"dev/pts".into()));
    builder.mounted.push("/dev/pts".into());
    let place = private.path_of(None);
    builder.directory(&place);
    builder.steps.push(Step::Private(relative(&place)));
    builder.mounted.push(place.clone());
    builder.link(&private.path_of(Some(SHARED_MEMORY)), Path::new("/dev/shm"));
    let older_name = Path::new("/var/tmp");
    if !policy
        .roots()
        .iter()
        .any(|root| root.path.starts_with(older_name))
    {
        builder.link(&place, older_name);
    }
}

/// The table in [`runtime`], as far as the host has it and no granted root brings it. Returns the executable trees.
fn runtime_parts(builder: &mut Builder, policy: &EffectivePolicy, facts: &Facts) -> Vec<PathBuf> {
    let mut programs = Vec::new();
    let places = runtime::TABLE.iter().flat_map(|item| {
        let places = item.places().into_iter();
        places.map(move |place| (item, place))
    });
    for (item, path) in places {
        let path = path.as_path();
        let granted = policy.roots().iter().any(|root| {
            root.kind == RootKind::Directory
                && path.starts_with(&root.path)
                && !root
                    .origins
                    .iter()
                    .all(|origin| *origin == Origin::OsRuntimeRoot)
        });
        if granted {
            continue;
        }
        if let Source::Generated(make) = item.source {
            builder.file(path, make(facts).into_bytes());
            continue;
        }
        if let Source::Link(target) = item.source {
            builder.link(Path::new(target), path);
            continue;
        }
        let Ok(metadata) = std::fs::symlink_metadata(path) else {
            continue;
        };
        if metadata.is_symlink() {
            if let Ok(target) = std::fs::read_link(path) {
                builder.link(&target, path);
            }
            continue;
        }
        let (attributes, access) = match item.source {
            Source::Programs => (
                attributes_of(runtime::PROGRAM_RIGHTS),
                access_of(runtime::PROGRAM_RIGHTS, true),
            ),
            Source::Device => (
                mount::NOSUID | mount::NOEXEC,
                ll::READ_FILE | ll::WRITE_FILE | ll::TRUNCATE | ll::IOCTL_DEV,
            ),
            _ => (
                attributes_of(Rights::READ),
                access_of(Rights::READ, metadata.is_dir()),
            ),
        };
        if matches!(item.source, Source::Programs) {
            programs.push(path.to_path_buf());
        }
        builder.bind(
            path,
            metadata.is_dir(),
            Bind {
                source: c_string(path),
                path: relative(path),
                attributes,
                access,
                granted: None,
                writable: false,
            },
        );
    }
    programs
}

/// The policy's roots, outer ones first.
fn granted_parts(
    builder: &mut Builder,
    policy: &EffectivePolicy,
    programs: &[PathBuf],
) -> Result<(), SandboxError> {
    for (slot, root) in policy.roots().iter().enumerate() {
        let metadata = look(&root.path)?;
        let is_directory = root.kind == RootKind::Directory;
        if metadata.is_symlink() || metadata.is_dir() != is_directory {
            return Err(bad_root(Code::FileWrongKind, "sandbox root", &root.path));
        }
        let from_runtime = programs.iter().any(|tree| root.path.starts_with(tree));
        if from_runtime && runtime::PROGRAM_RIGHTS.contains(root.rights) {
            continue;
        }
        let mut rights = rights_of(policy, root);
        if from_runtime {
            rights = rights | runtime::PROGRAM_RIGHTS;
        }
        builder.bind(
            &root.path,
            is_directory,
            Bind {
                source: c_string(&root.path),
                path: relative(&root.path),
                attributes: attributes_of(rights),
                access: access_of(rights, is_directory),
                granted: Some((slot as u16, Owner::of(&metadata))),
                writable: rights.allows(Right::Write) || rights.allows(Right::Delete),
            },
        );
    }
    Ok(())
}

/// Rights add up along nested roots, in Landlock as in the policy.
fn rights_of(policy: &EffectivePolicy, root: &GrantedRoot) -> Rights {
    root.rights | policy.rights_at(&root.path)
}

enum Overlay {
    Pin,
    Protect,
    Link { target: PathBuf },
    Mask { directory: bool },
}

/// Covers our own files and protects what the policy protects, inside granted roots. Ancestors are pinned where they
/// could be renamed; renaming needs the delete right.
fn overlays(
    builder: &mut Builder,
    policy: &EffectivePolicy,
) -> Result<protect::Record, SandboxError> {
    let mut overlays: BTreeMap<PathBuf, Overlay> = BTreeMap::new();
    let protected = protect::look(policy)?;
    for path in protected.covered {
        overlays.insert(path, Overlay::Protect);
    }
    for (path, target) in protected.links {
        overlays.insert(path, Overlay::Link { target });
    }
    let mut masks = false;
    for path in policy.own_files() {
        let Ok(metadata) = std::fs::symlink_metadata(path) else {
            continue;
        };
        if !builder.is_below_mount(path) {
            continue;
        }
        if metadata.is_symlink() {
            return Err(bad_root(Code::PathProtected, "own files", path));
        }
        protect::check_spelling(path)?;
        masks = true;
        overlays.insert(
            path.clone(),
            Overlay::Mask {
                directory: metadata.is_dir(),
            },
        );
    }
    let covered: Vec<PathBuf> = overlays.keys().cloned().collect();
    for path in covered {
        for ancestor in path.ancestors().skip(1) {
            let Some(root) = policy.root_of(ancestor) else {
                break;
            };
            if root.path == ancestor {
                // A mount point already.
                continue;
            }
            if rights_of(policy, root).allows(Right::Delete) {
                overlays
                    .entry(ancestor.to_path_buf())
                    .or_insert(Overlay::Pin);
            }
        }
    }
    if masks {
        builder.directory(Path::new("/.masked"));
        builder.steps.push(Step::Directory(MASK_DIRECTORY.into()));
        builder.steps.push(Step::File {
            path: MASK_FILE.into(),
            content: Vec::new(),
        });
    }
    for (path, overlay) in overlays {
        let path = relative(&path);
        builder.steps.push(match overlay {
            Overlay::Pin => Step::Pin(path),
            Overlay::Protect => Step::Protect(path),
            Overlay::Link { target } => Step::ProtectLink {
                target: relative(&target),
                path,
            },
            Overlay::Mask { directory } => Step::Mask { path, directory },
        });
    }
    Ok(protected.record)
}

/// What covers a masked path, relative to the new root.
pub(crate) fn mask_source(directory: bool) -> &'static CStr {
    if directory { MASK_DIRECTORY } else { MASK_FILE }
}
