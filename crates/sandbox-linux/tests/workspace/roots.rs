//! Four rights, each alone, on directories and on files; nested roots (DESIGN §10.2; ST-01 to ST-03, ST-20).

use crate::support::matrix::{first_line, probe_argv, unconfined};
use crate::support::world::text;
use crate::support::{Spec, WAYS, confined, temporary, write_program};
use crate::{Checked, Test};
use libc::{EACCES, EBUSY, EROFS};
use std::path::Path;

pub const TESTS: &[(&str, Test)] = &[
    ("st_01_st_02_st_03_each_right_alone", each_right_alone),
    ("design_10_2_rights_of_nested_roots_add_up", nested),
    ("st_26_a_hard_link_is_what_it_leads_to", hard_links),
];

const OK: &[i32] = &[];

/// What is tried, and the answer under `r`, `w`, `x` and `d` alone. An empty list: it works.
struct Attempt {
    verb: &'static str,
    on: &'static str,
    answers: [(char, &'static [i32]); 4],
}

const fn attempt(
    verb: &'static str,
    on: &'static str,
    r: &'static [i32],
    w: &'static [i32],
    x: &'static [i32],
    d: &'static [i32],
) -> Attempt {
    Attempt {
        verb,
        on,
        answers: [('r', r), ('w', w), ('x', x), ('d', d)],
    }
}

const NO: &[i32] = &[EACCES];
const READ_ONLY: &[i32] = &[EROFS];

/// Below a directory root. A root without write and delete is a read-only mount, which answers before Landlock does.
const IN_DIRECTORY: &[Attempt] = &[
    attempt("read", "file", OK, NO, NO, NO),
    attempt("list", "", OK, NO, NO, NO),
    attempt("append", "file", READ_ONLY, OK, READ_ONLY, NO),
    attempt("truncate", "file", READ_ONLY, OK, READ_ONLY, NO),
    attempt("create", "new", READ_ONLY, OK, READ_ONLY, NO),
    attempt("mkdir", "newer", READ_ONLY, OK, READ_ONLY, NO),
    attempt("unlink", "file", READ_ONLY, NO, READ_ONLY, OK),
    // Linux opens a program for reading as well to execute it; `rx` runs, see the nested roots.
    attempt("run", "program", NO, NO, NO, NO),
];

/// A file root: the file alone. It is a mount point, so that it cannot be unlinked whatever the rights.
const ON_FILE: &[Attempt] = &[
    attempt("read", "", OK, NO, NO, NO),
    attempt("append", "", READ_ONLY, OK, READ_ONLY, NO),
    attempt("truncate", "", READ_ONLY, OK, READ_ONLY, NO),
    attempt(
        "unlink",
        "",
        &[EACCES, EROFS, EBUSY],
        &[EACCES, EROFS, EBUSY],
        &[EACCES, EROFS, EBUSY],
        &[EACCES, EROFS, EBUSY],
    ),
];

fn answer(line: &str) -> Option<Vec<i32>> {
    if line.starts_with("OK") {
        return Some(Vec::new());
    }
    Some(vec![line.strip_prefix("ERRNO ")?.parse().ok()?])
}

/// `true` for the wanted answer.
fn is_wanted(line: &str, wanted: &[i32]) -> bool {
    match answer(line).as_deref() {
        Some([]) => wanted.is_empty(),
        Some([errno]) => wanted.contains(errno),
        _ => false,
    }
}

fn make(root: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(root)?;
    std::fs::write(root.join("file"), "content")?;
    std::fs::write(root.join("alone"), "content")?;
    write_program(&root.join("program"), &std::fs::read("/bin/true")?);
    Ok(())
}

fn each_right_alone() -> Checked {
    let mut failed = Vec::new();
    for way in WAYS {
        for (is_file, attempts) in [(false, IN_DIRECTORY), (true, ON_FILE)] {
            for attempt in attempts {
                for (right, wanted) in attempt.answers {
                    let directory = temporary();
                    let base = directory.path().canonicalize()?;
                    make(&base.join("root"))?;
                    std::fs::create_dir(base.join("ws"))?;
                    let root = base.join(if is_file { "root/alone" } else { "root" });
                    let mut spec = Spec::new(&base.join("ws"), "r");
                    spec.mounts.push((root.clone(), right.to_string()));
                    let target = if attempt.on.is_empty() {
                        root
                    } else {
                        root.join(attempt.on)
                    };
                    let words = [attempt.verb.to_owned(), text(&target)];
                    let argv = probe_argv(&words);
                    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
                    let line = first_line(&confined(way, &spec, &argv).stdout);
                    if !is_wanted(&line, wanted) {
                        failed.push(format!(
                            "{way:?} {words:?} under {right}: {line}, wanted {wanted:?}"
                        ));
                    }
                    // The confined run may have changed what it was tried on.
                    std::fs::remove_dir_all(base.join("root"))?;
                    make(&base.join("root"))?;
                    let control = unconfined(&words);
                    if !control.starts_with("OK") {
                        failed.push(format!("control {words:?}: {control}"));
                    }
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Rights add up: the inner root has its own and the outer one's; the outer one does not get the inner one's.
fn nested() -> Checked {
    const ROWS: &[(&str, &str, &str, &str, &[i32])] = &[
        // Outer rights, inner rights, what, where, answer.
        ("r", "rw", "create", "inner/new", OK),
        ("r", "rw", "create", "new", READ_ONLY),
        ("r", "rw", "unlink", "inner/file", NO),
        ("rw", "rwd", "unlink", "inner/file", OK),
        ("rw", "rwd", "unlink", "file", NO),
        ("r", "rx", "run", "inner/program", OK),
        ("r", "rx", "run", "program", NO),
        ("rwd", "rwdx", "run", "inner/program", OK),
        ("rwd", "rwdx", "run", "program", NO),
        // The same root twice has both.
        ("r", "r", "read", "inner/file", OK),
    ];
    for way in WAYS {
        for (outer, inner, verb, on, wanted) in ROWS {
            let directory = temporary();
            let base = directory.path().canonicalize()?;
            make(&base.join("root"))?;
            make(&base.join("root/inner"))?;
            std::fs::create_dir(base.join("ws"))?;
            let mut spec = Spec::new(&base.join("ws"), "r");
            spec.mounts.push((base.join("root"), (*outer).into()));
            spec.mounts.push((base.join("root/inner"), (*inner).into()));
            let words = [(*verb).to_owned(), text(&base.join("root").join(on))];
            let argv = probe_argv(&words);
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            let line = first_line(&confined(way, &spec, &argv).stdout);
            assert!(
                is_wanted(&line, wanted),
                "{way:?} {outer} over {inner}, {words:?}: {line}"
            );
        }
    }
    Ok(())
}

/// A hard link in a writable root is a name of the granted file as any other: a program writes through it. That cannot be
/// known from inside the root, so it is a stated limit; what is known is that no new one can be made.
fn hard_links() -> Checked {
    for way in WAYS {
        let directory = temporary();
        let base = directory.path().canonicalize()?;
        let (workspace, outside) = (base.join("ws"), base.join("out"));
        for path in [&workspace, &outside] {
            std::fs::create_dir(path)?;
        }
        std::fs::write(outside.join("target"), "content")?;
        std::fs::hard_link(outside.join("target"), workspace.join("before"))?;
        let mut spec = Spec::new(&workspace, "rwd");
        let reading = base.join("reading");
        std::fs::create_dir(&reading)?;
        std::fs::write(reading.join("data"), "x")?;
        spec.mounts.push((reading.clone(), "r".into()));
        for (words, wanted) in [
            (
                [
                    "append".to_owned(),
                    text(&workspace.join("before")),
                    String::new(),
                ],
                "OK",
            ),
            (
                [
                    "link".to_owned(),
                    text(&reading.join("data")),
                    text(&workspace.join("new")),
                ],
                "ERRNO 18",
            ),
        ] {
            let argv = probe_argv(&words);
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            let line = first_line(&confined(way, &spec, &argv).stdout);
            assert!(line.starts_with(wanted), "{words:?}: {line}");
        }
    }
    Ok(())
}
