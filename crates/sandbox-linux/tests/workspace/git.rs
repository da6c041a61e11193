//! Repositories inside a workspace: git works, and nothing that a later git on the host would run can be planted unseen
//! (X-PROTECT; escapes F30, F31, F32, F50, F51).

use crate::support::world::text;
use crate::support::{Spec, once_command, shell, standing, temporary};
use crate::{Checked, Test};
use policy::sandbox::{Finding, FindingKind, ProcessEnd};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const TESTS: &[(&str, Test)] = &[
    ("st_25_git_works_in_a_repository", git_works),
    ("x_protect_no_way_to_plant_code_for_git", no_way_in),
    ("x_protect_planted_repositories_are_reported", reported),
    (
        "x_protect_linked_git_directories_do_not_stop_anyone",
        linked,
    ),
    ("x_protect_roots_inside_a_repository", roots_inside),
    ("x_protect_every_spelling_of_a_name", every_spelling),
];

/// A repository with a submodule, a worktree and a nested repository, owned by whoever runs the test.
struct Repository {
    directory: tempfile::TempDir,
    workspace: PathBuf,
}

fn git(directory: &Path, arguments: &[&str]) -> std::io::Result<()> {
    let output = Command::new("git")
        .current_dir(directory)
        .args(["-c", "protocol.file.allow=always", "-c", "user.name=t"])
        .args(["-c", "user.email=t@example.invalid"])
        .args(arguments)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()?;
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
    Ok(())
}

fn repository() -> std::io::Result<Option<Repository>> {
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("skipped, needs: git");
        return Ok(None);
    }
    let directory = temporary();
    let base = directory.path().canonicalize()?;
    let (workspace, library) = (base.join("ws"), base.join("library"));
    for path in [&library, &workspace] {
        std::fs::create_dir(path)?;
        git(path, &["init", "-q", "-b", "main"])?;
        std::fs::write(path.join("file"), "one\n")?;
        git(path, &["add", "."])?;
        git(path, &["commit", "-qm", "first"])?;
    }
    git(
        &workspace,
        &["submodule", "--quiet", "add", &text(&library), "sub"],
    )?;
    git(&workspace, &["commit", "-qm", "a submodule"])?;
    git(&workspace, &["worktree", "add", "-q", "tree"])?;
    std::fs::create_dir(workspace.join("nested"))?;
    git(&workspace.join("nested"), &["init", "-q"])?;
    git(&workspace, &["init", "-q", "--bare", "bare.git"])?;
    Ok(Some(Repository {
        directory,
        workspace,
    }))
}

impl Repository {
    fn spec(&self) -> Spec {
        let mut spec = Spec::new(&self.workspace, "rwd");
        for (name, value) in [
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@example.invalid"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@example.invalid"),
        ] {
            spec.environment.push((name.into(), value.into()));
        }
        spec
    }

    /// Where the sandbox has git. It may be in a place that only the host has.
    fn git_inside(&self) -> bool {
        let there = ["/usr/bin/git", "/usr/local/bin/git", "/bin/git"];
        let found = there.iter().any(|path| Path::new(path).exists());
        if !found {
            eprintln!("skipped, needs: git below /usr");
        }
        found
    }
}

/// Everything that need not write configuration or hooks.
fn git_works() -> Checked {
    const COMMANDS: &[&str] = &[
        "git status --porcelain",
        "echo two >> file; git add file; git commit -qm second",
        "git checkout -q -b topic; echo three > new; git add new; git commit -qm third; git checkout -q main; git merge -q topic",
        "git branch other; git branch -d other",
        "git stash list; echo x >> file; git stash; git stash pop; git checkout -q file",
        "git tag v1; git log --oneline; git diff HEAD~1",
        "git worktree add -q fresh; cd fresh; git status --porcelain; echo y > y; git add y; git commit -qm y",
        "cd tree; git status --porcelain; echo z > z; git add z; git commit -qm z",
        "cd sub; git status --porcelain; echo w > w; git add w; git commit -qm w",
        "git submodule status; git submodule foreach git status --porcelain",
        "git gc -q; git fsck",
        "git rebase -q HEAD~1; git reset -q --hard HEAD",
        "git clone -q . copy",
        "cd nested; echo v > v; git add v; git commit -qm v",
    ];
    let Some(repository) = repository()? else {
        return Ok(());
    };
    if !repository.git_inside() {
        return Ok(());
    }
    let spec = repository.spec();
    let sandbox = standing(&spec);
    for command in COMMANDS {
        let outcome = sandbox.run(&shell(&spec, &format!("set -e; {{ {command}; }} 2>&1")))?;
        let said = String::from_utf8_lossy(&outcome.stdout.head).into_owned();
        assert_eq!(
            outcome.end,
            ProcessEnd::Exited { status: 0 },
            "{command}: {said}"
        );
    }
    sandbox.end()?;
    // The clone is new; the worktree obeys the repository that was protected all the time.
    let wanted = Finding {
        path: repository.workspace.join("copy/.git"),
        kind: FindingKind::Appeared,
    };
    assert_eq!(sandbox.findings(), [wanted]);
    git(&repository.workspace, &["fsck"])?;
    drop(repository.directory);
    Ok(())
}

/// Every place whose content git would obey on the host.
fn no_way_in() -> Checked {
    const PLACES: &[&str] = &[
        ".git/config",
        ".git/hooks/post-checkout",
        ".git/modules/sub/config",
        ".git/modules/sub/hooks/post-checkout",
        ".git/worktrees/tree/commondir",
        "sub/.git",
        "tree/.git",
        "nested/.git/config",
        "nested/.git/hooks/post-checkout",
        "bare.git/config",
        "bare.git/hooks/post-update",
    ];
    let Some(repository) = repository()? else {
        return Ok(());
    };
    let spec = repository.spec();
    let sandbox = standing(&spec);
    for place in PLACES {
        let write = format!("echo x >> {place} || exit 9");
        let replace = format!("echo x > planted && mv -f planted {place} || exit 9");
        let remove = format!("rm -f {place} && echo gone || exit 9");
        let exists = repository.workspace.join(place).exists();
        for script in [write, replace, remove]
            .into_iter()
            .take(if exists { 3 } else { 2 })
        {
            let outcome = sandbox.run(&shell(&spec, &script))?;
            let said = String::from_utf8_lossy(&outcome.stderr.head).into_owned();
            assert_eq!(outcome.end, ProcessEnd::Exited { status: 9 }, "{script}");
            assert!(
                said.contains("Read-only file system") || said.contains("Device or resource busy"),
                "{script}: {said}"
            );
        }
    }
    sandbox.end()?;
    assert_eq!(sandbox.findings(), []);
    // The control: the same writes outside.
    for place in PLACES {
        let path = repository.workspace.join(place);
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)?;
    }
    Ok(())
}

/// F32 and its kin: what cannot be prevented is reported, one-shot and for a Task, and nothing is removed.
fn reported() -> Checked {
    const PLANTS: &[(&str, &str)] = &[
        (
            "mkdir -p a/b/c/d/.git/hooks; echo '#!/bin/sh' > a/b/c/d/.git/hooks/pre-commit",
            "a/b/c/d/.git",
        ),
        ("echo 'gitdir: ../evil' > a/.git", "a/.git"),
        ("ln -s ../evil a/.git", "a/.git"),
        ("echo /evil > .git/commondir", ".git/commondir"),
        ("echo > .git/config.worktree", ".git/config.worktree"),
        (
            "mkdir -p a/objects a/refs; echo > a/HEAD; echo > a/config",
            "a",
        ),
        (
            "mkdir -p .git/modules/m/objects .git/modules/m/refs; echo > .git/modules/m/HEAD; echo > .git/modules/m/config",
            ".git/modules/m/config",
        ),
    ];
    for (script, planted) in PLANTS {
        for once in [true, false] {
            let directory = temporary();
            let workspace = directory.path().canonicalize()?.join("ws");
            std::fs::create_dir_all(workspace.join(".git/hooks"))?;
            std::fs::create_dir_all(workspace.join("a"))?;
            std::fs::write(workspace.join(".git/config"), "[core]\n")?;
            let spec = Spec::new(&workspace, "rwd");
            let path = workspace.join(planted);
            let found = if once {
                let output = once_command(&spec, &["/bin/sh", "-c", script])
                    .env("ONCE_REPORT", "1")
                    .output()?;
                assert_eq!(output.status.code(), Some(0), "{script}");
                let report = String::from_utf8_lossy(&output.stderr).into_owned();
                report.contains(&format!(
                    "findings: [Finding {{ path: {path:?}, kind: Appeared }}]"
                ))
            } else {
                let sandbox = standing(&spec);
                assert!(sandbox.run(&shell(&spec, script))?.end.is_success());
                sandbox.end()?;
                let wanted = Finding {
                    path: path.clone(),
                    kind: FindingKind::Appeared,
                };
                sandbox.findings() == [wanted]
            };
            assert!(found, "{script}: not reported (once: {once})");
            assert!(path.symlink_metadata().is_ok(), "{script}: removed");
        }
    }
    Ok(())
}

/// `.git`, `config` or `hooks` may be links (Android's repo makes them): the run goes on, the targets are protected.
fn linked() -> Checked {
    let directory = temporary();
    let workspace = directory.path().canonicalize()?.join("ws");
    for path in ["store/hooks", "other/hooks", "one", "two/.git"] {
        std::fs::create_dir_all(workspace.join(path))?;
    }
    for path in ["store/config", "other/config"] {
        std::fs::write(workspace.join(path), "[core]\n")?;
    }
    let link = |target: &str, path: &str| std::os::unix::fs::symlink(target, workspace.join(path));
    link("../store", "one/.git")?;
    link("../../other/config", "two/.git/config")?;
    link("../../other/hooks", "two/.git/hooks")?;
    let spec = Spec::new(&workspace, "rwd");
    let sandbox = standing(&spec);
    for (script, said) in [
        ("echo x >> one/.git/config", "Read-only"),
        ("echo x > store/hooks/pre-commit", "Read-only"),
        ("echo x >> two/.git/config", "Read-only"),
        ("echo x >> other/config", "Read-only"),
        ("rm -f two/.git/config", "busy"),
        ("echo x > two/.git/hooks/x", "Read-only"),
    ] {
        let outcome = sandbox.run(&shell(&spec, &format!("{script} || exit 9")))?;
        let error = String::from_utf8_lossy(&outcome.stderr.head).into_owned();
        assert_eq!(outcome.end, ProcessEnd::Exited { status: 9 }, "{script}");
        assert!(error.contains(said), "{script}: {error}");
    }
    // A link to a directory cannot be mounted on: that it was replaced is reported.
    let replaced = sandbox.run(&shell(&spec, "rm one/.git && ln -s ../evil one/.git"))?;
    assert!(replaced.end.is_success());
    sandbox.end()?;
    let wanted = Finding {
        path: workspace.join("one/.git"),
        kind: FindingKind::Changed,
    };
    assert_eq!(sandbox.findings(), [wanted]);
    Ok(())
}

/// A root that is `.git` itself, or lies in what is protected, is protected all the same.
fn roots_inside() -> Checked {
    let directory = temporary();
    let base = directory.path().canonicalize()?;
    let workspace = base.join("ws");
    std::fs::create_dir(&workspace)?;
    std::fs::create_dir_all(base.join("repo/.git/hooks"))?;
    std::fs::create_dir_all(base.join("repo/.git/refs"))?;
    std::fs::write(base.join("repo/.git/config"), "")?;
    for (root, place) in [
        ("repo/.git", "config"),
        ("repo/.git", "hooks/x"),
        ("repo/.git/hooks", "x"),
        ("repo/.git/config", ""),
    ] {
        let mut spec = Spec::new(&workspace, "rwd");
        let root = base.join(root);
        spec.mounts.push((root.clone(), "rwd".into()));
        let place = if place.is_empty() {
            root
        } else {
            root.join(place)
        };
        let sandbox = standing(&spec);
        let outcome = sandbox.run(&shell(&spec, &format!("echo x >> {}", text(&place))))?;
        let error = String::from_utf8_lossy(&outcome.stderr.head).into_owned();
        assert!(
            error.contains("Read-only file system"),
            "{place:?}: {error}"
        );
        sandbox.end()?;
    }
    Ok(())
}

/// On a file system that ignores case, every spelling is the protected file. In a mount namespace of its own.
fn every_spelling() -> Checked {
    if !crate::support::is_root() {
        eprintln!("left out, needs: root to mount an image");
        return Ok(());
    }
    let directory = temporary();
    let base = directory.path().canonicalize()?;
    let workspace = base.join("mounted/ws");
    std::fs::create_dir(base.join("mounted"))?;
    let spec = Spec::new(&workspace, "rwd");
    let script = "truncate -s 64M \"$1/image\" && mkfs.ext4 -q -O casefold -E encoding=utf8 \"$1/image\" && \
        mount -o loop \"$1/image\" \"$1/mounted\" && mkdir \"$1/mounted/ws\" && chattr +F \"$1/mounted/ws\" && \
        mkdir -p \"$1/mounted/ws/.Git/HOOKS\" && echo x > \"$1/mounted/ws/.Git/CONFIG\" || exit 99; \
        exec \"$2\" --once \"$3\" /bin/sh -c 'for f in .git/config .GIT/Config .Git/CONFIG .git/hooks/x .GIT/HOOKS/y; do echo x >> $f; done'";
    let output = Command::new("/usr/bin/unshare")
        .args(["-m", "/bin/sh", "-c", script, "sh"])
        .arg(&base)
        .arg(crate::support::this_program())
        .arg(serde_json::to_string(&spec)?)
        .output()?;
    if output.status.code() == Some(99) {
        eprintln!("left out, needs: ext4 with casefold, and loop devices");
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("Read-only file system").count(), 5, "{said}");
    Ok(())
}
