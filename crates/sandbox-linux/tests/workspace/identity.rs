//! The file that was checked is the file that runs (X-EXE, X-HASH; ST-07, ST-08).

use crate::support::world::{World, eventually, text, world};
use crate::support::{Spec, identity_of, request, standing, this_program, write_program};
use crate::{Checked, Test};
use policy::Code;
use policy::sandbox::{ProcessEnd, ProcessOutcome, ProcessRequest, ProgramClass, SandboxError};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

pub const TESTS: &[(&str, Test)] = &[
    (
        "st_07_x_hash_a_script_swapped_after_the_check_does_not_run",
        swapped_script,
    ),
    (
        "st_07_x_hash_a_program_swapped_at_any_moment_does_not_run",
        swapped_program,
    ),
    ("st_08_x_hash_every_change_is_refused", changes_are_refused),
    ("x_exe_interpreters_need_the_execute_right", interpreters),
    ("x_exe_loader_tricks_run_nothing_else", loader_tricks),
    (
        "x_exe_the_name_that_a_program_is_given_selects_nothing",
        names,
    ),
];

/// The interpreter of [`swapped_script`]: waits between being started and reading its script, as any interpreter may.
pub fn take_over() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).map(String::as_str) == Some("--interpreter") {
        fs::write("ready", "").unwrap();
        eventually("the script is swapped", || Path::new("go").exists());
        print!("{}", fs::read_to_string(&arguments[2]).unwrap());
        std::process::exit(0);
    }
}

/// An approved program beside the workspace, where the sandbox may not write.
fn approved(spec: &mut Spec, world: &World, name: &str, content: &[u8]) -> PathBuf {
    let directory = world.outside.join("approved");
    fs::create_dir_all(&directory).unwrap();
    if !spec.mounts.iter().any(|(path, _)| *path == directory) {
        spec.mounts.push((directory.clone(), "rx".into()));
    }
    let path = directory.join(name);
    write_program(&path, content);
    path
}

fn entry(spec: &Spec, path: &Path, class: ProgramClass) -> ProcessRequest {
    let mut request = request(spec, &[&text(path)]);
    request.program.class = class;
    request.program.identity = Some(identity_of(path));
    request
}

fn out(result: &Result<ProcessOutcome, SandboxError>) -> String {
    match result {
        Ok(outcome) => String::from_utf8_lossy(&outcome.stdout.head).into(),
        Err(error) => error.code().to_string(),
    }
}

/// Between the check and the interpreter's open the host renames another script over the path. The approved one is read all
/// the same. The control is a script that nobody approved, which is read by its path: there the swap wins.
fn swapped_script() -> Checked {
    for (class, wanted) in [
        (ProgramClass::Entry, "APPROVED"),
        (ProgramClass::Shell, "APPROVED"),
        (ProgramClass::WorkspaceArtifact, "SWAPPED"),
    ] {
        let world = world();
        let mut spec = Spec::new(&world.workspace, "rwd");
        let text_of = |word: &str| format!("#!{} --interpreter\n{word}\n", text(&this_program()));
        let path = approved(&mut spec, &world, "tool", text_of("APPROVED").as_bytes());
        let request = entry(&spec, &path, class);
        let sandbox = standing(&spec);
        let result = std::thread::scope(|scope| {
            let running = scope.spawn(|| sandbox.run(&request));
            eventually("the interpreter runs", || {
                world.workspace.join("ready").exists()
            });
            let other = path.with_extension("other");
            write_program(&other, text_of("SWAPPED").as_bytes());
            fs::rename(&other, &path).unwrap();
            fs::write(world.workspace.join("go"), "").unwrap();
            running.join().unwrap()
        });
        assert!(out(&result).contains(wanted), "{class:?}: {result:?}");
        sandbox.end()?;
    }
    Ok(())
}

/// Another program is renamed over the path while it is started again and again: it is the approved one or none.
fn swapped_program() -> Checked {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "rwd");
    let path = approved(&mut spec, &world, "tool", &fs::read("/bin/echo")?);
    let other = path.with_extension("other");
    let sandbox = standing(&spec);
    let (mut ran, mut refused) = (0, 0);
    for round in 0..200 {
        write_program(&path.with_extension("new"), &fs::read("/bin/echo")?);
        fs::rename(path.with_extension("new"), &path)?;
        write_program(&other, b"#!/bin/sh\necho SWAPPED\n");
        let mut request = entry(&spec, &path, ProgramClass::Entry);
        request.argv.push("APPROVED".into());
        let result = std::thread::scope(|scope| {
            let swap = scope.spawn(|| {
                for _ in 0..round * 40 {
                    std::hint::spin_loop();
                }
                fs::rename(&other, &path)
            });
            let result = sandbox.run(&request);
            swap.join().unwrap().unwrap();
            result
        });
        match out(&result).as_str() {
            "APPROVED\n" => ran += 1,
            "executable.hash_changed" => refused += 1,
            other => return Err(format!("{other}: {result:?}").into()),
        }
    }
    eprintln!("{ran} ran before the swap, {refused} were refused after it");
    Ok(sandbox.end()?)
}

type Change = fn(&Path) -> std::io::Result<()>;

/// ST-07, ST-08: whatever is done to the file, or to what the path leads to, is seen on the opened descriptor.
fn changes_are_refused() -> Checked {
    const CHANGES: &[(&str, Change)] = &[
        ("another file renamed over it", |path| {
            fs::copy(path, path.with_extension("new"))?;
            fs::rename(path.with_extension("new"), path)
        }),
        ("rewritten in place", |path| {
            let bytes = fs::read(path)?;
            fs::write(path, bytes)
        }),
        ("one byte more", |path| {
            use std::io::Write as _;
            fs::OpenOptions::new()
                .append(true)
                .open(path)?
                .write_all(b"\n")
        }),
        ("same size, same modification time", |path| {
            let modified = fs::metadata(path)?.modified()?;
            let mut bytes = fs::read(path)?;
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
            fs::write(path, bytes)?;
            fs::File::options()
                .write(true)
                .open(path)?
                .set_modified(modified)
        }),
        ("a link to another file", |path| {
            let other = path.with_extension("other");
            fs::copy(path, &other)?;
            fs::remove_file(path)?;
            std::os::unix::fs::symlink(other, path)
        }),
        ("another file linked to its place", |path| {
            let other = path.with_extension("other");
            fs::copy(path, &other)?;
            fs::remove_file(path)?;
            fs::hard_link(other, path)
        }),
        ("a second name for it", |path| {
            fs::hard_link(path, path.with_extension("second"))
        }),
        ("made to run as its owner", |path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o4755))
        }),
        ("its directory replaced", |path| {
            let directory = path.parent().unwrap_or(path).to_path_buf();
            let (old, new) = (
                directory.with_extension("old"),
                directory.with_extension("new"),
            );
            fs::create_dir(&new)?;
            fs::copy(path, new.join("inner"))?;
            fs::rename(&directory, old)?;
            fs::rename(new, directory)
        }),
    ];
    let script = b"#!/bin/sh\nexit 0\n".to_vec();
    for content in [fs::read("/bin/true")?, script] {
        for (what, change) in CHANGES {
            let world = world();
            let mut spec = Spec::new(&world.workspace, "rwd");
            let directory = approved(&mut spec, &world, "unused", b"").with_file_name("tools");
            fs::create_dir(&directory)?;
            let path = directory.join("inner");
            write_program(&path, &content);
            let request = entry(&spec, &path, ProgramClass::Entry);
            let sandbox = standing(&spec);
            let end = sandbox.run(&request)?.end;
            assert_eq!(end, ProcessEnd::Exited { status: 0 }, "{what}: control");
            change(&path)?;
            let error = sandbox.run(&request).unwrap_err();
            assert_eq!(error.code(), Code::ExecutableHashChanged, "{what}");
            sandbox.end()?;
        }
    }
    Ok(())
}

/// The interpreter that `#!` names must itself be executable under the policy, through a chain of them too.
fn interpreters() -> Checked {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "rw");
    let data = world.outside.join("data");
    fs::create_dir(&data)?;
    spec.mounts.push((data.clone(), "r".into()));
    let copy = data.join("sh");
    write_program(&copy, &fs::read("/bin/sh")?);
    let script = |interpreter: &Path| format!("#!{}\nexit 0\n", text(interpreter)).into_bytes();
    let granted = approved(&mut spec, &world, "granted", &script(Path::new("/bin/sh")));
    let chain = approved(&mut spec, &world, "chain", &script(&granted));
    let refused = approved(&mut spec, &world, "refused", &script(&copy));
    let refused_chain = approved(&mut spec, &world, "refused-chain", &script(&refused));
    let hidden = world.outside.join("hidden-sh");
    write_program(&hidden, &fs::read("/bin/sh")?);
    let invisible = approved(&mut spec, &world, "invisible", &script(&hidden));
    let sandbox = standing(&spec);
    let run = |path: &Path| match sandbox.run(&entry(&spec, path, ProgramClass::Entry)) {
        Ok(outcome) => format!("{:?}", outcome.end),
        Err(SandboxError::NotExecutable { errno, .. }) => format!("errno {errno}"),
        Err(error) => error.code().to_string(),
    };
    let fine = format!("{:?}", ProcessEnd::Exited { status: 0 });
    for (path, wanted) in [
        (&granted, fine.clone()),
        (&chain, fine),
        (&refused, format!("errno {}", libc::EACCES)),
        (&refused_chain, format!("errno {}", libc::EACCES)),
        (&invisible, format!("errno {}", libc::ENOENT)),
    ] {
        assert_eq!(run(path), wanted, "{}", path.display());
        let control = std::process::Command::new(path).status()?;
        assert!(control.success(), "{}: control", path.display());
    }
    Ok(sandbox.end()?)
}

/// Where nothing that is written may run: neither the loader nor an environment that the policy did not set runs it.
fn loader_tricks() -> Checked {
    let world = world();
    let spec = Spec::new(&world.workspace, "rwd");
    let program = text(&world.workspace.join("program"));
    let sandbox = standing(&spec);
    let loader = fs::read_dir("/lib64")
        .or_else(|_| fs::read_dir("/lib"))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| text(path).contains("/ld-linux"));
    let Some(loader) = loader else {
        eprintln!("skipped, needs: a dynamic loader of glibc");
        return Ok(());
    };
    let tricks = [
        (format!("{} {program}", text(&loader)), 127),
        (
            format!("/usr/bin/env -i LD_PRELOAD={program} /bin/true; true"),
            0,
        ),
        (
            format!("/usr/bin/env -i LD_AUDIT={program} /bin/true; true"),
            0,
        ),
    ];
    for (trick, status) in tricks {
        let script = format!("{{ {trick}; }} 2>&1");
        let outcome = sandbox.run(&crate::support::shell(&spec, &script))?;
        let said = String::from_utf8_lossy(&outcome.stdout.head).into_owned();
        assert_eq!(
            outcome.end,
            ProcessEnd::Exited { status },
            "{trick}: {said}"
        );
        // The loader says why: mapping as code is refused, not the reading.
        assert!(
            said.contains("failed to map segment") || said.contains("Operation not permitted"),
            "{trick}: {said}"
        );
        let control = std::process::Command::new("/bin/sh")
            .args(["-c", &script])
            .output()?;
        let unconfined = String::from_utf8_lossy(&control.stdout).into_owned();
        assert!(
            !unconfined.contains("failed to map segment"),
            "{unconfined}"
        );
    }
    Ok(sandbox.end()?)
}

/// `argv[0]` is what a program sees, the path is what runs; a relative path is taken from the working directory inside.
fn names() -> Checked {
    let world = world();
    let mut spec = Spec::new(&world.workspace, "rx");
    let path = approved(&mut spec, &world, "applet", &fs::read("/bin/sh")?);
    let sandbox = standing(&spec);
    let mut request = entry(&spec, &path, ProgramClass::Shell);
    request.argv = ["/bin/other", "-c", "echo $0"].map(Into::into).to_vec();
    assert_eq!(out(&sandbox.run(&request)), "/bin/other\n");
    sandbox.end()?;
    for (program, status) in [
        ("./program", 0),
        ("../out/hidden", 127),
        ("sub/../program", 0),
    ] {
        fs::copy("/bin/true", world.outside.join("hidden"))?;
        let once = crate::support::once_command(&spec, &[program]).status()?;
        assert_eq!(once.code(), Some(status), "{program}");
    }
    Ok(())
}
