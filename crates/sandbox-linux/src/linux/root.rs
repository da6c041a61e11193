//! Builds the new root from the plan, and the Landlock rules with it. Runs in a child that shares memory.

use super::explain::tripwire::{self, Server};
use super::failure::{At as _, Failure, Stage};
use super::plan::{Bind, HOME, Plan, SHARED_MEMORY, Step, mask_source};
use super::shared::Shared;
use super::sys::{Fd, Result, file, landlock as ll, mount};
use std::ffi::CStr;

const NOTHING_RUNS: u64 = mount::NOSUID | mount::NODEV | mount::NOEXEC;

/// The rules so far; without Landlock nothing is added.
struct Rules {
    ruleset: Option<Fd>,
    known: u64,
}

impl Rules {
    fn allow(&self, tree: Fd, access: u64) -> Result<()> {
        match self.ruleset {
            Some(ruleset) if access & self.known != 0 => {
                ll::allow_beneath(ruleset, tree, access & self.known)
            }
            _ => Ok(()),
        }
    }
}

/// Builds the root and moves into it. Afterwards the host's tree is out of reach of this process and of everyone who
/// shares its file system state.
pub(crate) fn build(
    plan: &Plan,
    shared: &Shared,
    ruleset: Option<Fd>,
) -> std::result::Result<(), Failure> {
    let rules = Rules {
        ruleset,
        known: ll::known_rights(plan.landlock),
    };
    let root = mount::fresh(
        c"tmpfs",
        &[
            (c"size", c"4m"),
            (c"nr_inodes", c"16384"),
            (c"mode", c"0755"),
        ],
        NOTHING_RUNS,
    )
    .at(Stage::RootFilesystem)?;
    // On top of the old root, so that it can be pivoted to; names still resolve in the old one.
    mount::attach(root, Fd::CWD, c"/").at(Stage::RootFilesystem)?;
    file::change_directory_to(root).at(Stage::RootFilesystem)?;
    let server = shared.tripwire().map(|device| Server {
        device,
        nodes: &plan.nodes,
        owner: plan.owner,
    });
    let stand_in = match &server {
        Some(server) => match lay_tripwire(server, root) {
            Ok(stand_in) => Some(stand_in),
            Err(_) => {
                shared.let_go_of_tripwire();
                None
            }
        },
        None => None,
    };
    let built = fill(plan, shared, &rules, root, stand_in.is_some());
    if let Some(stand_in) = stand_in {
        tripwire::dismiss(stand_in);
    }
    built?;
    file::close(root);
    Ok(())
}

/// Mounts it where its directories can be taken from. The number of the process that answers for init meanwhile.
fn lay_tripwire(server: &Server<'_>, root: Fd) -> Result<i32> {
    let tree = tripwire::mount(server.device, server.owner, NOTHING_RUNS | mount::RDONLY)?;
    let attached = file::make_directory(root, tripwire::WORKPLACE, 0o755)
        .and_then(|()| mount::attach(tree, root, tripwire::WORKPLACE));
    file::close(tree);
    attached?;
    let stand_in = tripwire::stand_in(server)?;
    // Otherwise each name is asked for when it is needed.
    let _learned = tripwire::learn(root);
    Ok(stand_in)
}

fn fill(
    plan: &Plan,
    shared: &Shared,
    rules: &Rules,
    root: Fd,
    tripwire: bool,
) -> std::result::Result<(), Failure> {
    for (index, step) in plan.steps.iter().enumerate() {
        if tripwire && tripwire::has(step) {
            continue;
        }
        if !tripwire && matches!(step, Step::Outside(_)) {
            continue;
        }
        make(plan, shared, rules, root, step).map_err(|errno| Failure {
            stage: Stage::RootStep,
            errno: errno.0,
            step: index as u32,
        })?;
    }
    if tripwire {
        mount::detach(tripwire::WORKPLACE).at(Stage::RootFilesystem)?;
    }
    seal(plan, rules, root).at(Stage::RootFilesystem)?;
    mount::pivot_here().at(Stage::Pivot)?;
    file::change_directory(c"/").at(Stage::Pivot)
}

/// The tripwire's directory of this name, over the place of the same name.
fn outside(root: Fd, path: &CStr) -> Result<()> {
    file::make_directory(root, path, 0o755)?;
    let workplace = file::open_at(root, tripwire::WORKPLACE, file::O_PATH_CLOEXEC, 0)?;
    let tree = mount::copy_tree(workplace, path);
    file::close(workplace);
    let tree = tree?;
    let attached = mount::attach(tree, root, path);
    file::close(tree);
    attached
}

/// Generated files may be read, directories above the roots listed where the policy lets everything be read, and
/// nothing be changed.
fn seal(plan: &Plan, rules: &Rules, root: Fd) -> Result<()> {
    let generated = file::open_at(root, c"etc", file::O_PATH_CLOEXEC, 0)?;
    rules.allow(generated, ll::READ_FILE | ll::READ_DIR)?;
    file::close(generated);
    if plan.list_above {
        rules.allow(root, ll::READ_DIR)?;
    }
    // For this mount alone: what is mounted below has its own attributes.
    mount::restrict_one(root, mount::RDONLY)
}

fn make(plan: &Plan, shared: &Shared, rules: &Rules, root: Fd, step: &Step) -> Result<()> {
    match step {
        Step::Directory(path) => file::make_directory(root, path, mode_of(path)),
        Step::Link { target, path } => file::make_link(target, root, path),
        Step::File { path, content } => {
            let mode = if path.as_c_str() == mask_source(false) {
                0
            } else {
                0o644
            };
            file::create(root, path, content, mode)
        }
        Step::Proc(path) => {
            let proc = mount::fresh(c"proc", &[], NOTHING_RUNS | mount::RDONLY)?;
            place(rules, proc, root, path, ll::READ_FILE | ll::READ_DIR)
        }
        Step::Terminals(path) => {
            let options = [
                (c"newinstance", c""),
                (c"ptmxmode", c"0666"),
                (c"mode", c"0620"),
            ];
            let terminals = mount::fresh(c"devpts", &options, mount::NOSUID | mount::NOEXEC)?;
            let access =
                ll::READ_FILE | ll::READ_DIR | ll::WRITE_FILE | ll::TRUNCATE | ll::IOCTL_DEV;
            place(rules, terminals, root, path, access)
        }
        Step::Private(path) => private(plan, rules, root, path),
        Step::Bind(bind) => self::bind(shared, rules, root, bind),
        Step::Outside(path) => outside(root, path),
        Step::Pin(path) => cover(root, path, None, 0),
        Step::Protect(path) => cover(root, path, None, mount::RDONLY),
        Step::ProtectLink { target, path } => {
            let Some(source) = open_place(root, target, file::O_PATH_CLOEXEC)? else {
                return Ok(());
            };
            let result = cover(root, path, Some(source), mount::RDONLY);
            file::close(source);
            result
        }
        Step::Mask { path, directory } => {
            let source = file::open_at(root, mask_source(*directory), file::O_PATH_CLOEXEC, 0)?;
            let result = cover(root, path, Some(source), NOTHING_RUNS | mount::RDONLY);
            file::close(source);
            result
        }
    }
}

/// The covering directory for masks cannot be entered.
fn mode_of(path: &CStr) -> u32 {
    if path == mask_source(true) { 0 } else { 0o755 }
}

fn place(rules: &Rules, tree: Fd, root: Fd, path: &CStr, access: u64) -> Result<()> {
    mount::attach(tree, root, path)?;
    rules.allow(tree, access)?;
    file::close(tree);
    Ok(())
}

fn private(plan: &Plan, rules: &Rules, root: Fd, path: &CStr) -> Result<()> {
    let options = [
        (c"size", plan.private.size.as_c_str()),
        (c"nr_inodes", plan.private.inodes.as_c_str()),
        (c"mode", c"1777"),
    ];
    let area = mount::fresh(c"tmpfs", &options, NOTHING_RUNS)?;
    for name in [HOME, SHARED_MEMORY] {
        file::make_directory(area, name, 0o700)?;
    }
    let everything = ll::known_rights(u32::MAX);
    let access = everything & !(ll::EXECUTE | ll::MAKE_CHAR | ll::MAKE_BLOCK | ll::IOCTL_DEV);
    place(rules, area, root, path, access)
}

fn bind(shared: &Shared, rules: &Rules, root: Fd, bind: &Bind) -> Result<()> {
    let opened = bind.granted.and_then(|(slot, _)| shared.tree(slot));
    let tree = match opened {
        // The privileged launcher opened it, mapped its owner and restricted it.
        Some(tree) => tree,
        None => {
            let tree = mount::copy_tree(Fd::CWD, &bind.source)?;
            mount::restrict(tree, bind.attributes)?;
            tree
        }
    };
    place(rules, tree, root, &bind.path, bind.access)
}

/// Mounts a copy of `source`, or of the place itself, over a path that was found while planning. What is gone by now needs
/// no cover; a link on the way there now is an attack and ends the start. A link at the end is mounted on, where `source`
/// says what; by itself it cannot be copied, which ends the start as well.
fn cover(root: Fd, path: &CStr, source: Option<Fd>, attributes: u64) -> Result<()> {
    let Some(place) = open_place(root, path, file::O_PATH_CLOEXEC | libc::O_NOFOLLOW)? else {
        return Ok(());
    };
    let result = (|| {
        let tree = mount::copy_tree(source.unwrap_or(place), c"")?;
        let result =
            mount::restrict(tree, attributes).and_then(|()| mount::attach(tree, place, c""));
        file::close(tree);
        result
    })();
    file::close(place);
    result
}

/// `None` for what is gone.
fn open_place(root: Fd, path: &CStr, flags: i32) -> Result<Option<Fd>> {
    let resolve = file::RESOLVE_BENEATH | file::RESOLVE_NO_SYMLINKS | file::RESOLVE_NO_MAGICLINKS;
    match file::open_resolved(root, path, flags, resolve) {
        Ok(place) => Ok(Some(place)),
        Err(errno) if errno.0 == libc::ENOENT => Ok(None),
        Err(errno) => Err(errno),
    }
}
