//! Only file systems of this machine may be granted (DESIGN §10.6). Elsewhere files change without a change time of ours,
//! an inode number may stand for another file, locks may be nobody's, and whoever has the server has the files: a pinned
//! program or a resolved directory would be a promise that nobody keeps.

use policy::Message;
use std::path::Path;

/// A kind of file system, by the number that `statfs` gives (linux/magic.h).
struct Kind {
    magic: u64,
    name: &'static str,
}

const fn kind(magic: u64, name: &'static str) -> Kind {
    Kind { magic, name }
}

/// On a disk of this machine, or in its memory. What is not listed is refused.
const LOCAL: &[Kind] = &[
    kind(0xef53, "ext4"), // and ext2, ext3
    kind(0x5846_5342, "xfs"),
    kind(0x9123_683e, "btrfs"),
    kind(0xf2f5_2010, "f2fs"),
    kind(0x2fc1_2fc1, "zfs"),
    kind(0xca45_1a4e, "bcachefs"),
    kind(0x3153_464a, "jfs"),
    kind(0x5265_4973, "reiserfs"),
    kind(0x3434, "nilfs2"),
    kind(0x2405_1905, "ubifs"),
    kind(0x0102_1994, "tmpfs"), // memory: gone with the machine, nobody else's
    kind(0x8584_58f6, "ramfs"), // the first root of a machine in memory
    kind(0x794c_7630, "overlay"), // containers; layers of the ones above
    kind(0x6163_6673, "aufs"),  // the same, older
    kind(0x7371_7368, "squashfs"), // read-only images, snaps
    kind(0xe0f5_e1e2, "erofs"),
    kind(0x9660, "iso9660"),
    kind(0x1501_3346, "udf"),
    kind(0x4d44, "vfat"),
    kind(0x2011_bab0, "exfat"),
    kind(0x7366_746e, "ntfs3"),
    kind(0x482b, "hfsplus"),
    kind(0xf15f, "ecryptfs"), // what lies below is judged where it is mounted
];

/// Those whose device and inode numbers, sizes and times identify the bytes of a file: a change time that is taken from this
/// machine's clock at each change, that nobody can set, and pages that are clean after a sync. Not:
///
/// - overlay, aufs, ecryptfs: what lies below may change without the numbers above;
/// - squashfs, erofs, iso9660, udf: the times are whatever the maker of the image wrote, and images of two versions may have the
///   same numbers on the same loop device;
/// - vfat, exfat, hfsplus, ntfs3: no change time of its own, or inode numbers that are made up at each mount;
/// - tmpfs, ramfs: no page is ever clean, so a mapping writes without a new time;
/// - FUSE and everything else: a program, or another machine, answers what it likes.
const KEEPING: &[u64] = &[
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
];

/// Known and refused, so that the message has a name.
const FOREIGN: &[Kind] = &[
    kind(0x6969, "nfs"),
    kind(0xff53_4d42, "cifs"),
    kind(0xfe53_4d42, "smb2"),
    kind(0x517b, "smb"),
    kind(0x0102_1997, "9p"),
    kind(0x00c3_6400, "ceph"),
    kind(0x5346_414f, "afs"),
    kind(0x6b41_4653, "afs"),
    kind(0x7375_7245, "coda"),
    kind(0x0116_1970, "gfs2"),
    kind(0x7461_636f, "ocfs2"),
    kind(0x0bd0_0bd0, "lustre"),
    kind(0x786f_4256, "vboxsf"),
    kind(0x9fa0, "proc"),
    kind(0x6265_6572, "sysfs"),
    kind(0x6462_6720, "debugfs"),
    kind(0x7472_6163, "tracefs"),
    kind(0x0027_e0eb, "cgroup"),
    kind(0x6367_7270, "cgroup2"),
    kind(0x1cd1, "devpts"),
    kind(0x1980_0202, "mqueue"),
    kind(0x6c6f_6f70, "binfmt_misc"),
];

/// A program that is the file system. Only its name tells what is behind it.
const FUSE: u64 = 0x6573_5546;
/// The FUSE file systems that the kernel gives a disk of this machine: ntfs-3g, exfat.
const LOCAL_FUSE: &[&str] = &["fuseblk"];

/// The name of a file system that cannot be granted; none where it can.
///
/// `mounted_as` is asked for the kind that the table of mounts names, which only FUSE needs. In doubt it is refused: behind
/// FUSE is any program, with an answer of its own to every question.
fn refused(magic: u64, mounted_as: impl FnOnce() -> Option<String>) -> Option<String> {
    let named = |table: &[Kind]| {
        table
            .iter()
            .find(|kind| kind.magic == magic)
            .map(|k| k.name)
    };
    if named(LOCAL).is_some() {
        return None;
    }
    if magic == FUSE {
        let name = mounted_as().unwrap_or_else(|| "fuse".to_owned());
        return (!LOCAL_FUSE.contains(&name.as_str())).then_some(name);
    }
    let name = named(FOREIGN).map_or_else(|| format!("{magic:#x}"), str::to_owned);
    Some(name)
}

/// Why what lies on this file system cannot be granted, if so.
#[cfg(target_os = "linux")]
pub(super) fn why_not(resolved: &Path) -> Option<Message> {
    let seen = match rustix::fs::statfs(resolved) {
        Ok(seen) => seen,
        Err(error) => return Some(Message::of_io(&error.into())),
    };
    // The type is signed on some machines; the number has 32 bits.
    let magic = (seen.f_type as u64) & 0xffff_ffff;
    refused(magic, || mounted_as(resolved))
        .map(|kind| Message::new("reason.foreign_filesystem").with("kind", kind))
}

/// Whether what an open file looks like stands for its bytes, as long as it looks like that.
#[cfg(target_os = "linux")]
pub(super) fn keeps_identity(file: &std::fs::File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|seen| keeps((seen.f_type as u64) & 0xffff_ffff))
}

/// In doubt not.
#[cfg(not(target_os = "linux"))]
pub(super) fn keeps_identity(_: &std::fs::File) -> bool {
    false
}

fn keeps(magic: u64) -> bool {
    KEEPING.contains(&magic)
}

/// Other systems have their own way to tell, which comes with their sandbox.
#[cfg(not(target_os = "linux"))]
pub(super) fn why_not(_: &Path) -> Option<Message> {
    None
}

/// What the table of mounts calls the file system of a path.
#[cfg(target_os = "linux")]
fn mounted_as(resolved: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::metadata(resolved).ok()?.dev();
    let device = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    kind_of(
        &std::fs::read_to_string("/proc/self/mountinfo").ok()?,
        &device,
    )
}

/// The kind that stands behind the ` - ` of the line with this device; the last one lies on top.
#[cfg(target_os = "linux")]
fn kind_of(mounts: &str, device: &str) -> Option<String> {
    let line = mounts
        .lines()
        .rfind(|line| line.split(' ').nth(2) == Some(device))?;
    let (_, after) = line.split_once(" - ")?;
    after.split(' ').next().map(str::to_owned)
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// DESIGN §10.6: disks and memory are granted; networks, other machines' directories, the kernel's own views, and
    /// whatever is not listed are not.
    #[test]
    fn design_10_6_only_local_file_systems() {
        let check = |magic, mounted: Option<&str>, expected: Option<&str>| {
            let found = refused(magic, || mounted.map(str::to_owned));
            assert_eq!(found.as_deref(), expected, "{magic:#x} {mounted:?}");
        };
        for local in LOCAL {
            check(local.magic, None, None);
        }
        for foreign in FOREIGN {
            check(foreign.magic, None, Some(foreign.name));
        }
        check(FUSE, Some("fuseblk"), None);
        check(FUSE, Some("fuse.sshfs"), Some("fuse.sshfs"));
        check(FUSE, Some("virtiofs"), Some("virtiofs"));
        check(FUSE, None, Some("fuse"));
        check(0x1234_5678, None, Some("0x12345678"));
        let magics: BTreeSet<u64> = LOCAL.iter().chain(FOREIGN).map(|kind| kind.magic).collect();
        assert_eq!(magics.len(), LOCAL.len() + FOREIGN.len(), "one line a kind");
        // This machine's own answers.
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(why_not(directory.path()), None, "control");
        for path in ["/proc", "/sys"] {
            let why = why_not(Path::new(path)).unwrap();
            assert_eq!(why.id(), "reason.foreign_filesystem", "{path}");
        }
        assert_eq!(mounted_as(Path::new("/proc")).as_deref(), Some("proc"));
    }

    /// Issue 4: hashes are remembered on few file systems, each of them local, and on none that is a program or a layer.
    #[test]
    fn x_hash_few_file_systems_keep_identities() {
        for magic in KEEPING {
            assert!(LOCAL.iter().any(|kind| kind.magic == *magic), "{magic:#x}");
        }
        let kept = |name: &str| {
            let kind = LOCAL.iter().find(|kind| kind.name == name).unwrap();
            keeps(kind.magic)
        };
        for name in ["ext4", "xfs", "btrfs", "f2fs"] {
            assert!(kept(name), "{name}");
        }
        for name in [
            "overlay", "aufs", "ecryptfs", "squashfs", "erofs", "iso9660", "vfat", "exfat", "tmpfs",
        ] {
            assert!(!kept(name), "{name}");
        }
        assert!(!keeps(FUSE));
        assert!(FOREIGN.iter().all(|kind| !keeps(kind.magic)));
        let proc = std::fs::File::open("/proc/version").unwrap();
        assert!(!keeps_identity(&proc));
    }

    #[test]
    fn the_table_of_mounts_is_read() {
        let mounts = "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            30 24 0:44 / /home/me/far rw,nosuid shared:5 master:1 - fuse.sshfs me@far: rw\n\
            31 24 0:44 / /x rw - fuse.other x rw\n";
        assert_eq!(kind_of(mounts, "8:1").as_deref(), Some("ext4"));
        assert_eq!(kind_of(mounts, "0:44").as_deref(), Some("fuse.other"));
        assert_eq!(kind_of(mounts, "0:4"), None);
    }
}
