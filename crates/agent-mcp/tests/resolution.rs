//! From a configuration to what is there (DESIGN §10.2, §10.3, §10.6; SPEC §15): what is refused, with its place and the way
//! out, and what is granted.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use agent_mcp::deployment::{
    Deployment, DeploymentError, Narrowing, fingerprint_of, read_configuration,
};
use agent_mcp::locale::Locale;
use policy::config::FindingCode;
use policy::effective::{EntryKind, Origin};
use policy::{Code, Localize, Right, Rights};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

struct World {
    _directory: tempfile::TempDir,
    base: PathBuf,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        for name in ["conf", "ws/sub/deep", "lib"] {
            std::fs::create_dir_all(base.join(name)).unwrap();
        }
        Self {
            _directory: directory,
            base,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    fn file(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.at(name);
        std::fs::write(&path, content).unwrap();
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).unwrap();
        path
    }

    /// The configuration, with the `sandbox` section from line 4 on.
    fn configure(&self, sandbox: &str) -> PathBuf {
        let state = self.at("state");
        let text = format!(
            "schema_version: 2\nollama: {{model: m}}\nstate: {{directory: {}}}\nsandbox:\n{sandbox}",
            state.display()
        );
        self.file("conf/agent.yaml", &text, 0o600)
    }

    fn deploy(&self, sandbox: &str) -> Result<Deployment, DeploymentError> {
        let file = self.configure(sandbox);
        Deployment::of(read_configuration(&file)?, &Narrowing::default())
    }

    #[track_caller]
    fn good(&self, sandbox: &str) -> Deployment {
        self.deploy(sandbox)
            .unwrap_or_else(|problem| panic!("{sandbox}{problem:?}"))
    }

    /// Everything wrong in English, with the base directory and the configuration's name left out.
    fn wrong(&self, sandbox: &str) -> Vec<String> {
        let texts = Locale::built_in("en");
        let faults = match self.deploy(sandbox) {
            Err(DeploymentError::Faults(faults)) => faults,
            Err(DeploymentError::Unreadable(fault)) => vec![fault],
            other => panic!("{sandbox}{other:?}"),
        };
        faults
            .iter()
            .map(|fault| {
                assert_eq!(fault.code, Code::ConfigurationInvalid);
                let text = texts.text(&fault.message());
                text.replace(&format!("{}/", self.base.display()), "")
            })
            .collect()
    }

    /// One thing is wrong, and its text holds all of these.
    #[track_caller]
    fn check(&self, sandbox: &str, expected: &[&str]) {
        let wrong = self.wrong(sandbox);
        assert_eq!(wrong.len(), 1, "{wrong:#?}");
        for part in expected {
            assert!(wrong[0].contains(part), "{part} is not in {}", wrong[0]);
        }
    }
}

fn root<'a>(deployment: &'a Deployment, path: &Path) -> &'a policy::effective::GrantedRoot {
    let mut roots = deployment.policy.roots().iter();
    roots.find(|root| root.path == path).unwrap()
}

/// DESIGN §10.6: links are followed to their end; a circle and a link to nowhere are refused at their key, with every link.
#[test]
fn design_10_6_links_are_followed_to_the_end() {
    let world = World::new();
    symlink("ws", world.at("one")).unwrap();
    symlink("one", world.at("two")).unwrap();
    let deployment = world.good("  workspaces: [../two]\n");
    root(&deployment, &world.at("ws"));
    assert_eq!(deployment.policy.roots().len(), 1);
    symlink("b", world.at("a")).unwrap();
    symlink("a", world.at("b")).unwrap();
    world.check(
        "  workspaces: [../ws, ../a]\n",
        &[
            "conf/agent.yaml:5:23 sandbox.workspaces[1]",
            "circle",
            "a -> b, b -> a",
        ],
    );
    symlink("gone/x", world.at("c")).unwrap();
    world.check(
        "  workspaces: [../ws]\n  mounts:\n    - {path: ../c, access: read_only}\n",
        &[
            "conf/agent.yaml:7:8 sandbox.mounts[0].path",
            "link c leads to gone, which does not exist",
        ],
    );
    // Everything at once.
    let wrong = world.wrong(
        "  workspaces: [../a, ../no]\n  execution:\n    entries:\n      - {alias: x, path: ../c}\n      - {alias: y, path: /bin/sh, runtime_root: ../a}\n",
    );
    assert_eq!(wrong.len(), 4, "{wrong:#?}");
}

/// DESIGN §10.6: what is no file system of this machine's own is refused by its kind.
#[test]
fn design_10_6_foreign_file_systems_are_refused() {
    let world = World::new();
    world.check(
        "  workspaces: [../ws]\n  mounts:\n    - {path: /proc/sys, access: read_only}\n",
        &[
            "conf/agent.yaml:7:8 sandbox.mounts[0].path",
            "it lies on proc",
        ],
    );
    world.good("  workspaces: [../ws]\n  mounts:\n    - {path: ../lib, access: read_only}\n");
}

/// DESIGN §10.7: the same root under several keys is one root with the rights of all and every origin.
#[test]
fn design_10_7_the_same_root_is_merged() {
    let world = World::new();
    symlink("lib", world.at("other-name")).unwrap();
    let deployment = world.good(
        "  workspaces: [../ws]\n  mounts:\n    - {path: ../lib, access: read_only}\n    - {path: ../other-name, access: read_write}\n  execution:\n    entries:\n      - {alias: sh, path: /bin/sh, runtime_root: ../lib}\n",
    );
    let merged = root(&deployment, &world.at("lib"));
    assert_eq!(
        merged.rights,
        Rights::READ_WRITE | Rights::from(Right::Execute)
    );
    assert_eq!(
        merged.origins.iter().copied().collect::<Vec<_>>(),
        [Origin::Mount, Origin::RuntimeRoot]
    );
}

/// DESIGN §10.2: a declared root cannot have fewer rights than the one around it; both keys and places are told. Equal ones
/// may lie in each other.
#[test]
fn design_10_2_a_narrower_nested_root_is_refused() {
    let world = World::new();
    world.check(
        "  workspaces: [../ws]\n  mounts:\n    - {path: ../ws/sub, access: read_only}\n",
        &[
            "conf/agent.yaml:7:8 sandbox.mounts[0].path: ws/sub",
            "conf/agent.yaml:5:16 sandbox.workspaces[0]",
        ],
    );
    world.good("  workspaces: [../ws, ../ws/sub]\n");
    world.good(
        "  profile: readonly\n  workspaces: [../ws]\n  mounts:\n    - {path: ../ws/sub, access: read_only}\n",
    );
    // Together they have all the rights of the one around them.
    world.good("  workspaces: [../ws]\n  mounts:\n    - {path: ../ws, access: read_only}\n");
    world.good("  workspaces: [../ws]\n  mounts:\n    - {path: ../lib, access: read_write}\n");
}

/// DESIGN §10.2: an entry's runtime root inside a development workspace inherits the workspace's rights and is no narrower
/// root; the entry itself must not be writable there (X-EXE).
#[test]
fn design_10_2_a_runtime_root_in_a_workspace_inherits() {
    let world = World::new();
    let deployment = world.good(
        "  workspaces: [../ws]\n  execution:\n    entries:\n      - {alias: sh, path: /bin/sh, runtime_root: ../ws/sub}\n",
    );
    let deep = world.at("ws/sub/deep");
    assert_eq!(deployment.policy.rights_at(&deep), Rights::ALL);
    world.file("ws/tool", "#!/bin/sh\n", 0o755);
    let entry = "  execution:\n    entries:\n      - {alias: tool, path: ../ws/tool}\n";
    match world.deploy(&format!("  workspaces: [../ws]\n{entry}")) {
        Err(DeploymentError::Refusals(refusals)) => {
            assert_eq!(refusals.len(), 1);
            assert_eq!(refusals[0].code, Code::ExecutableWritable);
        }
        other => panic!("{other:?}"),
    }
    world.good(&format!(
        "  profile: readonly\n  workspaces: [../ws]\n{entry}"
    ));
}

/// DESIGN §10.3: an entry is a regular file that can be executed, a runtime root a directory.
#[test]
fn design_10_3_what_an_entry_is() {
    let world = World::new();
    world.file("plain", "x", 0o644);
    world.file("tool", "#!/bin/sh\n", 0o755);
    symlink("tool", world.at("link")).unwrap();
    let check = |entry: &str, expected: &[&str]| {
        let text = format!("  workspaces: [../ws]\n  execution:\n    entries:\n      - {entry}\n");
        world.check(&text, expected);
    };
    let path = "conf/agent.yaml:8:23 sandbox.execution.entries[0].path";
    check(
        "{alias: tool, path: ../plain}",
        &[path, "cannot be executed", "chmod +x plain"],
    );
    check("{alias: tool, path: ../lib}", &[path, "it is a directory"]);
    check("{alias: tool, path: ../none}", &[path, "does not exist"]);
    check(
        "{alias: tool, path: /dev/null}",
        &[path, "neither a regular file nor a directory"],
    );
    check(
        "{alias: tool, path: ../tool, runtime_root: ../plain}",
        &[
            "sandbox.execution.entries[0].runtime_root",
            "not a directory",
        ],
    );
    let fifo = world.at("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    check(
        "{alias: tool, path: ../fifo}",
        &[path, "neither a regular file nor a directory"],
    );
    let deployment = world.good(
        "  workspaces: [../ws]\n  execution:\n    entries:\n      - {alias: tool, path: ../link}\n",
    );
    let entry = deployment.policy.entry("TOOL").unwrap();
    assert_eq!(
        (&entry.resolved, entry.kind),
        (&world.at("tool"), EntryKind::Program)
    );
    assert!(deployment.warnings.is_empty());
}

/// X-EXE, PRC-05: the file that is reached decides whether it is a shell, and so does the name that leads there.
#[test]
fn x_exe_shells_by_the_resolved_name() {
    let world = World::new();
    let kind = |file: &str, name: &str| {
        world.file(file, "#!/bin/true\n", 0o755);
        if file != name {
            symlink(file, world.at(name)).unwrap();
        }
        let deployment = world.good(&format!(
            "  workspaces: [../ws]\n  execution:\n    entries:\n      - {{alias: x, path: ../{name}}}\n"
        ));
        deployment.policy.entry("x").unwrap().kind
    };
    for (file, name) in [
        ("busybox", "ls"),
        ("busybox.nosuid", "cat"),
        ("busybox-static", "vi"),
        ("bash-5.2", "anything"),
        ("ksh93", "k"),
        ("real-thing", "sh"),
        ("pwsh-preview", "p"),
        ("dash", "dash"),
    ] {
        assert_eq!(kind(file, name), EntryKind::Shell, "{name} -> {file}");
    }
    for (file, name) in [
        ("bashful", "bashful"),
        ("python3.11", "py"),
        ("sh-tool", "sh-tool"),
    ] {
        assert_eq!(kind(file, name), EntryKind::Program, "{name} -> {file}");
    }
}

/// X-EXE: a program that would take somebody else's rights is told, because it will not get them.
#[test]
fn x_exe_a_set_user_id_program_is_a_warning() {
    let world = World::new();
    world.file("tool", "#!/bin/sh\n", 0o4755);
    let deployment = world.good(
        "  workspaces: [../ws]\n  execution:\n    entries:\n      - {alias: tool, path: ../tool}\n",
    );
    let warning = &deployment.warnings[..];
    assert_eq!(warning.len(), 1);
    assert_eq!(
        (warning[0].code, warning[0].line, warning[0].column),
        (FindingCode::RightsInVain, 8, 23)
    );
}

/// UC-05, SPEC §15: without a workspace nothing is granted, and it is told.
#[test]
fn uc_05_no_workspace() {
    let world = World::new();
    world.check(
        "  workspaces: []\n",
        &["sandbox.workspaces", "no workspace"],
    );
}

/// Issue 4: relative paths of the local file start at the directory of the base file, and its findings name its own place.
#[test]
fn design_10_1_the_local_file() {
    let world = World::new();
    let file = world.configure("  workspaces: [../none]\n");
    world.file(
        "conf/agent.local.yaml",
        "sandbox: {workspaces: [../lib]}\n",
        0o600,
    );
    // The local file may not lie where the base file lets a program write; here it lies beside it.
    let read = read_configuration(&file);
    let deployment = Deployment::of(read.unwrap(), &Narrowing::default()).unwrap();
    root(&deployment, &world.at("lib"));
    world.file(
        "conf/agent.local.yaml",
        "sandbox:\n  workspaces: [../also-none]\n",
        0o600,
    );
    let read = read_configuration(&file).unwrap();
    let Err(DeploymentError::Faults(faults)) = Deployment::of(read, &Narrowing::default()) else {
        panic!("it is not there");
    };
    assert!(
        faults[0]
            .target
            .contains("agent.local.yaml:2:16 sandbox.workspaces[0]"),
        "{faults:?}"
    );
}

/// Issue 4 "Bad input": what is no file of one's own is refused, with the way out; nothing waits.
#[test]
fn spec_15_what_is_no_configuration_file() {
    let world = World::new();
    let texts = Locale::built_in("en");
    let check = |file: &Path, expected: &str| {
        let problem = match fingerprint_of(file) {
            Err(DeploymentError::Unreadable(fault)) => texts.text(&fault.message()),
            other => panic!("{other:?}"),
        };
        let problem = problem.replace(&format!("{}/", world.base.display()), "");
        assert!(problem.contains(expected), "{expected} is not in {problem}");
    };
    let fifo = world.at("conf/fifo.yaml");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    check(&fifo, "not a regular file");
    check(&world.at("conf"), "it is a directory");
    check(Path::new("/dev/zero"), "not a regular file");
    check(&world.at("conf/none.yaml"), "does not exist");
    symlink("loop.yaml", world.at("conf/loop.yaml")).unwrap();
    check(&world.at("conf/loop.yaml"), "conf/loop.yaml -> loop.yaml");
    let good = world.configure("  workspaces: [../ws]\n");
    assert!(fingerprint_of(&good).is_ok(), "control");
    // The local file is judged the same.
    let local = world.at("conf/agent.local.yaml");
    rustix::fs::mkfifoat(rustix::fs::CWD, &local, rustix::fs::Mode::RWXU).unwrap();
    check(&good, "not a regular file");
    std::fs::remove_file(&local).unwrap();
    symlink("gone", &local).unwrap();
    check(&good, "leads to conf/gone, which does not exist");
    std::fs::remove_file(&local).unwrap();
    let big = format!("# {}\n", "x".repeat(10 << 20));
    let big = world.file("conf/big.yaml", &big, 0o600);
    match read_configuration(&big) {
        Err(DeploymentError::Findings(findings)) => {
            assert_eq!(findings.len(), 1);
            assert_eq!(findings[0].code, FindingCode::TooLarge);
        }
        other => panic!("{other:?}"),
    }
    // Root reads everything.
    if !rustix::process::geteuid().is_root() {
        check(
            &world.file("conf/closed.yaml", "x", 0o000),
            "permission denied",
        );
    }
}

/// Issue 4, NFR-01: a configuration that others can change is refused with the command that closes it.
#[test]
fn nfr_01_a_configuration_that_others_can_change() {
    let world = World::new();
    let file = world.configure("  workspaces: [../ws]\n");
    let local = world.file("conf/agent.local.yaml", "ollama: {model: n}\n", 0o600);
    let check = |expected: Option<&str>| {
        let texts = Locale::built_in("en");
        let problem = match fingerprint_of(&file) {
            Ok(_) => None,
            Err(DeploymentError::Unreadable(fault)) => Some(texts.text(&fault.message())),
            other => panic!("{other:?}"),
        };
        match (&problem, expected) {
            (None, None) => {}
            (Some(problem), Some(expected)) if problem.contains(expected) => {}
            _ => panic!("{problem:?} {expected:?}"),
        }
    };
    check(None);
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let conf = world.at("conf");
    for (path, open, closed) in [
        (&file, 0o606, 0o600),
        (&local, 0o606, 0o600),
        (&conf, 0o707, 0o700),
    ] {
        mode(path, open);
        check(Some(&format!("chmod o-w {}", path.display())));
        mode(path, closed);
        check(None);
    }
    // Only root can give a file away.
    if rustix::process::geteuid().is_root() {
        for path in [&file, &local, &conf] {
            std::os::unix::fs::chown(path, Some(12_345), None).unwrap();
            check(Some(&format!(
                "belongs to user 12345, who could change what this configuration allows. Only your own files and root's are used. Needed: chown 0 {}",
                path.display()
            )));
            std::os::unix::fs::chown(path, Some(0), None).unwrap();
        }
        check(None);
    }
}
