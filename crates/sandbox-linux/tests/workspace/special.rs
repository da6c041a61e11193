//! ST-26: roots with special modes, access lists, attributes and owners work as far as they are granted, and are byte for
//! byte as they were.

use crate::support::world::text;
use crate::support::{Spec, WAYS, confined, is_root, temporary, this_program};
use crate::{Checked, Test};
use rustix::fs::{IFlags, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const TESTS: &[(&str, Test)] = &[
    ("st_26_special_roots_stay_as_they_are", special_roots),
    ("st_26_roots_on_other_mounts", mounted_roots),
];

/// Mode, owner, group, and every extended attribute (access lists among them) of each file and directory.
type Looks = BTreeMap<PathBuf, (u32, u32, u32, BTreeMap<String, Vec<u8>>)>;

fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0u8; 4096];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => panic!("{}: {errno}", path.display()),
    };
    names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let name = String::from_utf8(name.to_vec()).unwrap();
            let mut value = vec![0u8; 4096];
            let length = rustix::fs::lgetxattr(path, name.as_str(), &mut value[..]).unwrap();
            value.truncate(length);
            (name, value)
        })
        .collect()
}

fn looks(root: &Path) -> Looks {
    let mut looks = Looks::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            waiting.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .flatten()
                    .map(|entry| entry.path()),
            );
        }
        let look = (
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            attributes(&path),
        );
        looks.insert(path, look);
    }
    looks
}

/// An access list as the kernel keeps it: version 2, then tag, permissions and id of each entry. One more user may do all.
fn access_list() -> Vec<u8> {
    let nobody = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [
        (1, 7, nobody),
        (2, 7, 54_321),
        (4, 5, nobody),
        (16, 7, nobody),
        (32, 5, nobody),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// What makes a root special. `None`: this machine or user cannot make one.
type Make = fn(&Path) -> Option<()>;

fn mode(path: &Path, mode: u32) -> Option<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).ok()
}

fn attribute(path: &Path, name: &str, value: &[u8]) -> Option<()> {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).ok()
}

fn flags(path: &Path, change: impl Fn(IFlags) -> IFlags) -> Option<()> {
    let file = std::fs::File::open(path).ok()?;
    let before = rustix::fs::ioctl_getflags(&file).ok()?;
    rustix::fs::ioctl_setflags(&file, change(before)).ok()
}

const SPECIAL: &[(&str, Make)] = &[
    ("sticky", |root| mode(root, 0o1777)),
    ("set-group-id", |root| mode(root, 0o2775)),
    ("access list", |root| {
        attribute(root, "system.posix_acl_access", &access_list())?;
        attribute(
            &root.join("file"),
            "system.posix_acl_access",
            &access_list(),
        )
    }),
    ("default access list", |root| {
        attribute(root, "system.posix_acl_default", &access_list())
    }),
    ("attributes", |root| {
        attribute(root, "user.note", b"one\0two")?;
        attribute(&root.join("file"), "user.note", b"three")
    }),
    ("an immutable file", |root| {
        flags(&root.join("file"), |before| before | IFlags::IMMUTABLE)
    }),
    ("another owner", |root| {
        for path in [root.to_path_buf(), root.join("file")] {
            std::os::unix::fs::chown(path, Some(54_321), Some(54_322)).ok()?;
        }
        Some(())
    }),
];

fn special_roots() -> Checked {
    let script = "cat file >/dev/null && ls -la >/dev/null && echo new > made && mkdir below && rmdir below && rm made && \
                  echo worked; chmod u+s file 2>/dev/null; echo x > /usr/x";
    let mut made = 0;
    for (name, make) in SPECIAL {
        for way in WAYS {
            let directory = temporary();
            let base = directory.path().canonicalize()?;
            let root = base.join("root");
            std::fs::create_dir(&root)?;
            std::fs::write(root.join("file"), "content")?;
            if make(&root).is_none() {
                eprintln!("{name}: left out, not to be made here");
                continue;
            }
            made += 1;
            let before = looks(&root);
            let spec = Spec::new(&root, "rwd");
            let ran = confined(way, &spec, &["/bin/sh", "-c", script]);
            let after = looks(&root);
            let content = std::fs::read(root.join("file"))?;
            // So that it can be removed.
            let _no_flags = flags(&root.join("file"), |flags| flags - IFlags::IMMUTABLE);
            assert_eq!(ran.stdout, "worked\n", "{name}, {way:?}: {ran:?}");
            assert!(
                ran.stderr.contains("cannot create /usr/x"),
                "{name}, {way:?}: {ran:?}"
            );
            assert_eq!(before, after, "{name}, {way:?}");
            assert_eq!(content, b"content", "{name}, {way:?}: {}", text(&root));
        }
    }
    // As an ordinary user: everything but flags and other owners.
    assert!(made >= if is_root() { 8 } else { 6 }, "{made}");
    Ok(())
}

/// How a root is mounted, what is done in it, and what comes out of that.
const MOUNTED: &[(&str, &str, &str, &str)] = &[
    (
        "mount -t tmpfs -o mode=755 none \"$1\"",
        "echo x > new && cat new && mkdir below && rm -r below new && echo worked",
        "x\nworked\n",
        "",
    ),
    (
        "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"",
        "cat file; echo x > new",
        "content",
        "Read-only file system",
    ),
    (
        "mount --bind \"$1\" \"$1\" && mount -o remount,bind,noexec \"$1\"",
        "cp /bin/true program && chmod 755 program && ./program",
        "",
        "Permission denied",
    ),
];

/// A grant widens nothing that the machine's own mount forbids; a file system in memory works as any other.
fn mounted_roots() -> Checked {
    if !is_root() {
        eprintln!("skipped, needs: root");
        return Ok(());
    }
    for (mount, script, out, error) in MOUNTED {
        let directory = temporary();
        let base = directory.path().canonicalize()?;
        let root = base.join("root");
        std::fs::create_dir(&root)?;
        std::fs::write(root.join("file"), "content")?;
        let spec = Spec::new(&root, "rwdx");
        // In a mount namespace of its own, so that the machine sees none of it.
        let ran = Command::new("/usr/bin/unshare")
            .args(["-m", "/bin/sh", "-c"])
            .arg(format!(
                "{mount} || exit 99; exec \"$2\" --once \"$3\" /bin/sh -c \"$4\""
            ))
            .args(["sh".as_ref(), root.as_os_str(), this_program().as_os_str()])
            .args([serde_json::to_string(&spec)?.as_str(), script])
            .output()?;
        let (seen, said) = (
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr),
        );
        if ran.status.code() == Some(99) {
            eprintln!("skipped, needs: mounts in a namespace");
            return Ok(());
        }
        assert_eq!(seen, *out, "{mount}: {said}");
        assert!(said.contains(error), "{mount}: {said}");
    }
    Ok(())
}
