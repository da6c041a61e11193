//! Where a name leads, link by link. The kernel resolves and decides; this tells a person which link is to blame (DESIGN
//! §10.6), and which directories a name comes by.

use policy::Message;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Links that the kernel follows in one name.
const MOST_LINKS: usize = 40;
/// Links of a chain that are shown.
const MOST_SHOWN: usize = 8;

/// How the walk ended.
#[derive(Debug)]
pub(super) enum End {
    /// Something is there.
    There,
    /// Nothing has this name.
    Missing(PathBuf),
    /// A link was come to again, or there are too many.
    Circle,
    /// The system says no.
    Stopped,
}

/// A walk along a name.
#[derive(Debug)]
pub(super) struct Walk {
    /// Each link in the order it was followed, and what is written in it.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Each directory in which a name was looked up, once.
    pub(super) directories: Vec<PathBuf>,
    /// How it ended.
    pub(super) end: End,
}

/// Walks along a name, as far as it goes.
pub(super) fn walk(path: &Path) -> Walk {
    let mut walk = Walk {
        links: Vec::new(),
        directories: Vec::new(),
        end: End::There,
    };
    let Ok(absolute) = std::path::absolute(path) else {
        walk.end = End::Stopped;
        return walk;
    };
    let mut here = PathBuf::new();
    let mut left: VecDeque<OsString> = parts(&absolute);
    while let Some(part) = left.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::Normal(_)) => {}
            Some(Component::ParentDir) => {
                here.pop();
                continue;
            }
            Some(Component::CurDir) | None => continue,
            Some(Component::RootDir | Component::Prefix(_)) => {
                here.push(&part);
                continue;
            }
        }
        if !walk.directories.contains(&here) {
            walk.directories.push(here.clone());
        }
        let next = here.join(&part);
        let target = std::fs::symlink_metadata(&next).and_then(|seen| {
            let is_link = seen.file_type().is_symlink();
            is_link.then(|| std::fs::read_link(&next)).transpose()
        });
        match target {
            Ok(None) => here = next,
            Ok(Some(target)) => {
                if walk.links.len() == MOST_LINKS {
                    walk.end = End::Circle;
                    return walk;
                }
                if target.is_absolute() {
                    here = PathBuf::new();
                }
                let mut after = parts(&target);
                after.append(&mut left);
                left = after;
                walk.links.push((next, target));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                walk.end = End::Missing(next);
                return walk;
            }
            Err(_) => {
                walk.end = End::Stopped;
                return walk;
            }
        }
    }
    walk
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

/// Why a name that the system refused leads nowhere, with the whole chain of links where there is one.
pub(super) fn why(path: &Path, error: &io::Error) -> Message {
    let walk = walk(path);
    match walk.end {
        End::Circle => {
            Message::new("reason.links_circle").with("chain", chain(circle(&walk.links)))
        }
        End::Missing(missing) => match walk.links.last() {
            Some((link, _)) => Message::new("reason.link_to_nowhere")
                .with("link", link.display())
                .with("missing", missing.display())
                .with("chain", chain(&walk.links)),
            None if missing != path => {
                Message::new("reason.part_missing").with("missing", missing.display())
            }
            None => Message::of_io(error),
        },
        End::There | End::Stopped => Message::of_io(error),
    }
}

/// From the first link that is come to again until it is; everything where none is.
fn circle(links: &[(PathBuf, PathBuf)]) -> &[(PathBuf, PathBuf)] {
    let again = |first: usize| {
        let after = links.iter().skip(first + 1);
        let length = after.clone().position(|link| *link == links[first])?;
        Some(&links[first..=first + length])
    };
    (0..links.len()).find_map(again).unwrap_or(links)
}

/// `a -> b, b -> c`.
fn chain(links: &[(PathBuf, PathBuf)]) -> String {
    let mut shown: Vec<String> = links
        .iter()
        .take(MOST_SHOWN)
        .map(|(link, target)| format!("{} -> {}", link.display(), target.display()))
        .collect();
    if links.len() > MOST_SHOWN {
        shown.push("…".to_owned());
    }
    shown.join(", ")
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn check(base: &Path, name: &str, id: &str, expected: &[&str]) {
        let path = base.join(name);
        let error = path.canonicalize().unwrap_err();
        let message = why(&path, &error);
        let text = message
            .to_string()
            .replace(&format!("{}/", base.display()), "");
        assert_eq!(message.id(), id, "{text}");
        for part in expected {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    /// DESIGN §10.6: a circle and a link to nowhere are told with every link on the way, and the one that is to blame.
    #[test]
    fn design_10_6_the_chain_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("real")).unwrap();
        for (name, target) in [
            ("a", "b"),
            ("b", "c"),
            ("c", "b"),
            ("me", "me"),
            ("x", "y"),
            ("y", "real/gone/deep"),
            ("good", "real"),
            ("up", "real/../up-there"),
        ] {
            symlink(target, base.join(name)).unwrap();
        }
        symlink(base.join("abroad"), base.join("absolute")).unwrap();
        check(&base, "a", "reason.links_circle", &["chain=b -> c, c -> b"]);
        check(&base, "me", "reason.links_circle", &["chain=me -> me"]);
        check(&base, "me/deep", "reason.links_circle", &["chain=me -> me"]);
        check(
            &base,
            "x",
            "reason.link_to_nowhere",
            &[
                "link=y ",
                "missing=real/gone ",
                "chain=x -> y, y -> real/gone/deep",
            ],
        );
        check(&base, "up", "reason.link_to_nowhere", &["missing=up-there"]);
        check(
            &base,
            "absolute",
            "reason.link_to_nowhere",
            &["missing=abroad"],
        );
        check(&base, "no/where", "reason.part_missing", &["missing=no"]);
        check(&base, "nowhere", "os.not_found", &[]);
        assert!(
            matches!(walk(&base.join("good")).end, End::There),
            "control"
        );
        // More links than the kernel follows, without a circle.
        for number in 0..60 {
            symlink(format!("l{}", number + 1), base.join(format!("l{number}"))).unwrap();
        }
        std::fs::create_dir(base.join("l60")).unwrap();
        check(&base, "l0", "reason.links_circle", &["l0 -> l1", "…"]);
    }

    /// The directories that a name comes by, those of its links among them.
    #[test]
    fn the_way_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("p/q")).unwrap();
        std::fs::create_dir_all(base.join("r")).unwrap();
        std::fs::write(base.join("p/q/file"), "").unwrap();
        symlink("../p/q", base.join("r/link")).unwrap();
        let walk = walk(&base.join("r/link/file"));
        let last: Vec<&Path> = walk.directories.iter().map(PathBuf::as_path).collect();
        for expected in [&base, &base.join("r"), &base.join("p"), &base.join("p/q")] {
            assert!(last.contains(&expected.as_path()), "{expected:?} {last:?}");
        }
        assert!(last.contains(&Path::new("/")));
    }
}
