//! What every program needs of the system: a table with a reason per line. Everything else of the host is absent.

use policy::Rights;
use std::path::{Path, PathBuf};

/// How a path comes into the sandbox.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// The host's directory, read and execute.
    Programs,
    /// The host's file or directory, read only, nothing in it runs.
    Data,
    /// The host's character device.
    Device,
    /// A link of our own.
    Link(&'static str),
    /// A file made for this sandbox.
    Generated(fn(&Facts) -> String),
}

/// What generated files depend on.
pub(crate) struct Facts {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) home: String,
    /// Lines of the hosts file beyond the loopback's.
    pub(crate) hosts: String,
}

/// One line of the table. Where the host has no such path the line does nothing.
pub(crate) struct Item {
    /// A `*` at the end stands for any rest of the name.
    pub(crate) path: &'static str,
    pub(crate) source: Source,
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "for readers, and for the test that demands one per line"
        )
    )]
    pub(crate) reason: &'static str,
}

const fn item(path: &'static str, source: Source, reason: &'static str) -> Item {
    Item {
        path,
        source,
        reason,
    }
}

/// The rights of [`Source::Programs`].
pub(crate) const PROGRAM_RIGHTS: Rights = Rights::READ_EXECUTE;

pub(crate) const TABLE: &[Item] = &[
    item(
        "/usr",
        Source::Programs,
        "programs, libraries, compilers, zone and locale data",
    ),
    item(
        "/bin",
        Source::Programs,
        "a link into /usr, or a directory on older systems",
    ),
    item(
        "/sbin",
        Source::Programs,
        "a link into /usr, or a directory on older systems",
    ),
    item(
        "/lib",
        Source::Programs,
        "a link into /usr; the loader's path is compiled into programs",
    ),
    item(
        "/lib32",
        Source::Programs,
        "a link into /usr where it exists",
    ),
    item(
        "/lib64",
        Source::Programs,
        "a link into /usr; the x86_64 loader's path",
    ),
    item(
        "/etc/ld.so.cache",
        Source::Data,
        "where the loader finds libraries",
    ),
    item(
        "/etc/ld.so.conf",
        Source::Data,
        "where the linker finds libraries",
    ),
    item(
        "/etc/ld.so.conf.d",
        Source::Data,
        "where the linker finds libraries",
    ),
    item(
        "/etc/alternatives",
        Source::Data,
        "cc, awk, editor and others are links through it",
    ),
    item(
        "/etc/ssl/certs",
        Source::Data,
        "public certificates, without the private directory beside it",
    ),
    item(
        "/etc/ssl/openssl.cnf",
        Source::Data,
        "OpenSSL refuses to start some algorithms without it",
    ),
    item(
        "/etc/pki/tls/certs",
        Source::Data,
        "public certificates on Fedora and RHEL",
    ),
    item(
        "/etc/pki/ca-trust/extracted",
        Source::Data,
        "where those links lead",
    ),
    item(
        "/nix/store",
        Source::Programs,
        "NixOS has every program, library and loader there; readable to everybody by design",
    ),
    item(
        "/etc/ssl/cert.pem",
        Source::Data,
        "public certificates on Alpine and Arch",
    ),
    item(
        "/etc/ssl/ca-bundle.pem",
        Source::Data,
        "public certificates on openSUSE",
    ),
    item(
        "/etc/ca-certificates/extracted",
        Source::Data,
        "where those links lead on Arch",
    ),
    item(
        "/etc/pki/tls/cert.pem",
        Source::Data,
        "public certificates under OpenSSL's name on Fedora and RHEL",
    ),
    item(
        "/etc/pki/tls/openssl.cnf",
        Source::Data,
        "OpenSSL's configuration on Fedora and RHEL",
    ),
    item(
        "/etc/crypto-policies/back-ends",
        Source::Data,
        "included by that configuration, which fails without it",
    ),
    item("/etc/localtime", Source::Data, "local time"),
    item(
        "/etc/services",
        Source::Data,
        "getservbyname: Perl's and Python's network modules",
    ),
    item(
        "/etc/protocols",
        Source::Data,
        "getprotobyname: Perl's and Python's network modules",
    ),
    item(
        "/etc/mime.types",
        Source::Data,
        "types by file name: Python's mimetypes, development servers",
    ),
    item(
        "/etc/terminfo",
        Source::Data,
        "terminals that the system added to those in /lib and /usr",
    ),
    item(
        "/etc/fonts",
        Source::Data,
        "fontconfig: headless browsers, plots, Java's graphics",
    ),
    item(
        "/etc/java-*",
        Source::Data,
        "Debian's Java has its jvm.cfg and security settings there and does not start without",
    ),
    item(
        "/etc/os-release",
        Source::Data,
        "which distribution: .NET, Playwright, installers; no identity of the machine",
    ),
    item(
        "/etc/passwd",
        Source::Generated(passwd),
        "names for the sandbox's own ids; the host's users stay unknown",
    ),
    item(
        "/etc/group",
        Source::Generated(group),
        "names for the sandbox's own ids",
    ),
    item(
        "/etc/hosts",
        Source::Generated(hosts),
        "localhost, and the names that the network level lists, as they were when the Task started",
    ),
    item(
        "/etc/host.conf",
        Source::Generated(host_conf),
        "all addresses of a name, not only its first",
    ),
    item(
        "/etc/nsswitch.conf",
        Source::Generated(nsswitch),
        "files only: no resolver socket is reachable",
    ),
    item("/dev/null", Source::Device, "everything uses it"),
    item("/dev/zero", Source::Device, "memory maps of older programs"),
    item("/dev/full", Source::Device, "tests of error paths"),
    item("/dev/random", Source::Device, "random numbers"),
    item("/dev/urandom", Source::Device, "random numbers"),
    item(
        "/dev/tty",
        Source::Device,
        "a program's own pseudo-terminal by this name; without one it cannot be opened",
    ),
    item(
        "/dev/fd",
        Source::Link("/proc/self/fd"),
        "process substitution in shells",
    ),
    item(
        "/dev/stdin",
        Source::Link("/proc/self/fd/0"),
        "scripts name it",
    ),
    item(
        "/dev/stdout",
        Source::Link("/proc/self/fd/1"),
        "scripts name it",
    ),
    item(
        "/dev/stderr",
        Source::Link("/proc/self/fd/2"),
        "scripts name it",
    ),
    item(
        "/dev/ptmx",
        Source::Link("pts/ptmx"),
        "pseudo-terminals of the sandbox's own instance",
    ),
];

impl Item {
    /// The paths of the host that the line is about.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        let path = Path::new(self.path);
        let (Some(start), Some(parent)) = (self.path.strip_suffix('*'), path.parent()) else {
            return vec![path.to_path_buf()];
        };
        let Ok(entries) = std::fs::read_dir(parent) else {
            return Vec::new();
        };
        let mut places: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|place| {
                place
                    .as_os_str()
                    .as_encoded_bytes()
                    .starts_with(start.as_bytes())
            })
            .collect();
        places.sort();
        places
    }
}

/// The places of the table that this machine has, without our own files and links.
pub(crate) fn system_places() -> Vec<(PathBuf, Rights)> {
    TABLE
        .iter()
        .filter_map(|item| match item.source {
            Source::Programs => Some((item, PROGRAM_RIGHTS)),
            Source::Data => Some((item, Rights::READ)),
            Source::Device => Some((item, Rights::READ_WRITE)),
            Source::Link(_) | Source::Generated(_) => None,
        })
        .flat_map(|(item, rights)| item.places().into_iter().map(move |place| (place, rights)))
        .filter(|(place, _)| place.exists())
        .collect()
}

fn passwd(facts: &Facts) -> String {
    let Facts {
        user, group, home, ..
    } = facts;
    let mut text = format!("agent:x:{user}:{group}::{home}:/bin/sh\n");
    if *user != 0 {
        text.push_str("root:x:0:0::/:/usr/sbin/nologin\n");
    }
    text.push_str("nobody:x:65534:65534::/:/usr/sbin/nologin\n");
    text
}

fn group(facts: &Facts) -> String {
    let mut text = format!("agent:x:{}:\n", facts.group);
    if facts.group != 0 {
        text.push_str("root:x:0:\n");
    }
    text.push_str("nogroup:x:65534:\n");
    text
}

fn hosts(facts: &Facts) -> String {
    format!("127.0.0.1 localhost\n::1 localhost\n{}", facts.hosts)
}

fn host_conf(_: &Facts) -> String {
    "multi on\n".into()
}

fn nsswitch(_: &Facts) -> String {
    "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_listed_once_with_a_reason() {
        let mut paths: Vec<_> = TABLE.iter().map(|item| item.path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), TABLE.len());
        assert!(TABLE.iter().all(|item| item.reason.len() > 8));
    }

    /// SEC-INV-03: never host secrets or host configuration.
    #[test]
    fn nothing_secret_is_listed() {
        for item in TABLE {
            for secret in [
                "shadow",
                "private",
                "sudoers",
                "ssh/",
                "machine-id",
                "/root",
                "/home",
            ] {
                assert!(!item.path.contains(secret), "{}", item.path);
            }
        }
    }
}
