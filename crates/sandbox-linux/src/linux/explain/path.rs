//! A path in a buffer of fixed size, made absolute and plain without allocating and without looking at any file.

/// `PATH_MAX`.
pub(crate) const MOST: usize = 4096;

/// An absolute path without `.`, `..` and repeated slashes. The root is the empty text.
pub(crate) struct PlainPath {
    text: [u8; MOST],
    length: usize,
}

/// It does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl PlainPath {
    pub(crate) const fn root() -> Self {
        Self {
            text: [0; MOST],
            length: 0,
        }
    }

    /// Follows a path from here; an absolute one begins at the root.
    pub(crate) fn follow(&mut self, path: &[u8]) -> Result<(), TooLong> {
        if path.first() == Some(&b'/') {
            self.length = 0;
        }
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    let parent = self.bytes().iter().rposition(|byte| *byte == b'/');
                    self.length = parent.unwrap_or(0);
                }
                name => {
                    let end = self.length + 1 + name.len();
                    let place = self.text.get_mut(self.length..end).ok_or(TooLong)?;
                    if let Some((slash, rest)) = place.split_first_mut() {
                        *slash = b'/';
                        rest.copy_from_slice(name);
                    }
                    self.length = end;
                }
            }
        }
        Ok(())
    }

    /// Replaces the first `prefix` bytes, a link's own path, by where it leads.
    pub(crate) fn redirect(&mut self, prefix: usize, target: &[u8]) -> Result<(), TooLong> {
        let mut other = Self::root();
        if target.first() != Some(&b'/') {
            let directory = self.bytes().get(..prefix).unwrap_or(&[]);
            let parent = directory.iter().rposition(|byte| *byte == b'/');
            other.follow(directory.get(..parent.unwrap_or(0)).unwrap_or(&[]))?;
        }
        other.follow(target)?;
        let rest = self.bytes().get(prefix..).unwrap_or(&[]);
        // It begins with a slash, which here is only a separator.
        other.follow(rest.strip_prefix(b"/").unwrap_or(rest))?;
        *self = other;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.text.get(..self.length).unwrap_or(&[])
    }

    /// As people write it.
    pub(crate) fn shown(&self) -> &[u8] {
        if self.length == 0 { b"/" } else { self.bytes() }
    }
}

/// Whether `path` is `base` or lies below it; both plain, the root being empty.
pub(crate) fn lies_in(path: &[u8], base: &[u8]) -> bool {
    path.strip_prefix(base)
        .is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_plain() {
        let plain = |start: &str, path: &str| {
            let mut made = PlainPath::root();
            made.follow(start.as_bytes()).unwrap();
            made.follow(path.as_bytes()).unwrap();
            String::from_utf8(made.shown().to_vec()).unwrap()
        };
        assert_eq!(plain("/a/b", "c"), "/a/b/c");
        assert_eq!(plain("/a/b", "../.././../c//d/."), "/c/d");
        assert_eq!(plain("/a", "/x/"), "/x");
        assert_eq!(plain("/a", ".."), "/");
        assert_eq!(plain("/", ""), "/");
    }

    #[test]
    fn links_lead_on() {
        let led = |path: &str, link: &str, target: &str| {
            let mut made = PlainPath::root();
            made.follow(path.as_bytes()).unwrap();
            made.redirect(link.len(), target.as_bytes()).unwrap();
            String::from_utf8(made.shown().to_vec()).unwrap()
        };
        assert_eq!(led("/bin/sh", "/bin", "usr/bin"), "/usr/bin/sh");
        assert_eq!(led("/dev/shm/x", "/dev/shm", "/tmp/.shm"), "/tmp/.shm/x");
        assert_eq!(led("/dev/ptmx", "/dev/ptmx", "pts/ptmx"), "/dev/pts/ptmx");
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let mut made = PlainPath::root();
        assert_eq!(made.follow(&[b'a'; MOST]), Err(TooLong));
        assert_eq!(made.follow(&[b'a'; MOST - 1]), Ok(()));
        assert_eq!(made.follow(b"b"), Err(TooLong));
    }

    #[test]
    fn lies_in_respects_names() {
        assert!(lies_in(b"/a/b", b"/a") && lies_in(b"/a", b"/a") && lies_in(b"/a", b""));
        assert!(!lies_in(b"/ab", b"/a") && !lies_in(b"/", b"/a"));
    }
}
