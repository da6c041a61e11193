//! Which command lines send something out: only the real sub-command counts.
#![cfg(unix)]

mod support;

use policy::tool::{Operation, ToolArguments, ToolName};
use serde_json::json;

fn check(line: &str, expected: &[Operation]) {
    let mut words = line.split(' ');
    let arguments = json!({"executable": words.next(), "args": words.collect::<Vec<_>>()});
    let call = ToolArguments::parse(ToolName::ProcessRun, arguments).expect("right shape");
    let operations: Vec<Operation> = call
        .operations()
        .into_iter()
        .filter(|it| *it != Operation::ProcessRun)
        .collect();
    assert_eq!(operations, expected, "{line}");
    assert!(call.operations().contains(&Operation::ProcessRun));
}

#[test]
fn git_pushes() {
    for line in [
        "git push",
        "git PUSH origin main",
        "git -C dir push",
        "git -c user.name=x push",
        "git --git-dir x push",
        "git --git-dir=x --work-tree y push",
        "git --namespace n push",
        "git --no-pager -P --bare push",
        "git --exec-path=/x push",
        "git --config-env user.name=N push",
        "git send-pack x",
        "git http-push x",
        "git subtree -P lib push x main",
        "git lfs push origin",
        "git svn dcommit",
        "git -c alias.x=push x",
        "git -c ALIAS.X=!sh x",
        "git --config-env=alias.x=N x",
        "git -c include.path=/w/aliases x",
        "/usr/bin/git push",
        "C:\\git\\GIT.EXE push",
        "git.cmd push",
        "/usr/lib/git-core/git-push origin",
        "git-send-pack x",
        "git-lfs push origin",
    ] {
        check(line, &[Operation::GitPush]);
    }
}

#[test]
fn git_does_not_push() {
    for line in [
        "git",
        "git commit -m push",
        "git log push",
        "git stash push",
        "git -C push status",
        "git -c push status",
        "git --git-dir push log",
        "git --work-tree push -C push status",
        "git --no-pager log push",
        "git -C",
        "git checkout push",
        "git subtree pull --prefix lib",
        "git lfs pull",
        "git -C push subtree pull",
        "git -c user.name=alias.x status",
        "git-commit -m push",
    ] {
        check(line, &[Operation::GitRead]);
    }
    check("gitk push", &[]);
    check("mygit push", &[]);
}

#[test]
fn packages_are_published() {
    for line in [
        "cargo publish",
        "cargo +nightly publish --dry-run",
        "cargo -Z x --color never publish",
        "cargo --config alias.x='publish' x",
        "npm publish",
        "npm.cmd publish",
        "npm pub",
        "npm --prefix dir publish",
        "npm --registry=x publish",
        "pnpm -r publish",
        "pnpm --filter a publish",
        "yarn npm publish",
        "yarn --cwd d publish",
        "yarn workspace a publish",
        "yarn workspaces foreach npm publish",
        "bun publish",
        "poetry -C d publish",
        "uv publish",
        "maturin upload x",
        "twine upload dist/x",
        "gem push x.gem",
    ] {
        check(line, &[Operation::PackagePublish]);
    }
}

#[test]
fn packages_are_not_published() {
    for line in [
        "cargo run -- publish",
        "cargo test push",
        "cargo --color publish test",
        "npm run publish",
        "npm install publish",
        "npm --prefix publish test",
        "yarn workspace a test",
        "poetry add push",
        "gem install push",
        "twine check upload",
        "echo cargo publish",
    ] {
        check(line, &[]);
    }
}
