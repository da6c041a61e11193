//! What server, helper, init and zygote say to each other. One binary on both sides, so native byte order.

use super::program::Refused;
use policy::effective::FileIdentity;
use std::ffi::CStr;

/// From the server on the control line: end every program.
pub(crate) const KILL: u8 = b'K';
/// From init on the control line: requests are served.
pub(crate) const READY: u8 = b'R';
/// From init on the control line, with listening sockets of granted addresses, in order.
pub(crate) const LISTENERS: u8 = b'L';
/// From the helper on the control line, with init's pidfd; then the separated flag and init's number.
pub(crate) const STARTED: u8 = b'S';
/// From the helper on the control line: a packed failure.
pub(crate) const FAILED: u8 = b'F';

/// The longest request that travels as a message; longer ones come in a memory file.
pub(crate) const MOST_INLINE: usize = 32 * 1024;

const HAS_STDIN: u8 = 1;
const HAS_IDENTITY: u8 = 2;
const IN_FILE: u8 = 4;
const APPROVED: u8 = 8;

const IDENTITY_BYTES: usize = 3 * 8 + 2 * 16;
/// Flags, three bytes of nothing, length of the strings, their count, identity.
const HEADER_BYTES: usize = 4 + 4 + 4 + IDENTITY_BYTES;

/// The fixed part of a request. Then come NUL-terminated strings: directory, program, arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) has_stdin: bool,
    pub(crate) in_file: bool,
    pub(crate) identity: Option<FileIdentity>,
    pub(crate) approved: bool,
    pub(crate) bytes: u32,
    pub(crate) arguments: u32,
}

impl Header {
    pub(crate) const BYTES: usize = HEADER_BYTES;

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0u8; HEADER_BYTES];
        out[0] = if self.has_stdin { HAS_STDIN } else { 0 }
            | if self.identity.is_some() {
                HAS_IDENTITY
            } else {
                0
            }
            | if self.in_file { IN_FILE } else { 0 }
            | if self.approved { APPROVED } else { 0 };
        out[4..8].copy_from_slice(&self.bytes.to_ne_bytes());
        out[8..12].copy_from_slice(&self.arguments.to_ne_bytes());
        if let Some(identity) = self.identity {
            out[12..20].copy_from_slice(&identity.device.to_ne_bytes());
            out[20..28].copy_from_slice(&identity.inode.to_ne_bytes());
            out[28..36].copy_from_slice(&identity.size.to_ne_bytes());
            out[36..52].copy_from_slice(&identity.modified_ns.to_ne_bytes());
            out[52..68].copy_from_slice(&identity.changed_ns.to_ne_bytes());
        }
        out
    }

    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let flags = *message.first()?;
        let identity = FileIdentity {
            device: u64::from_ne_bytes(array(message, 12)?),
            inode: u64::from_ne_bytes(array(message, 20)?),
            size: u64::from_ne_bytes(array(message, 28)?),
            modified_ns: i128::from_ne_bytes(array(message, 36)?),
            changed_ns: i128::from_ne_bytes(array(message, 52)?),
        };
        Some(Self {
            has_stdin: flags & HAS_STDIN != 0,
            in_file: flags & IN_FILE != 0,
            identity: (flags & HAS_IDENTITY != 0).then_some(identity),
            approved: flags & APPROVED != 0,
            bytes: u32::from_ne_bytes(array(message, 4)?),
            arguments: u32::from_ne_bytes(array(message, 8)?),
        })
    }
}

fn array<const N: usize>(message: &[u8], at: usize) -> Option<[u8; N]> {
    message.get(at..at + N)?.try_into().ok()
}

/// The next NUL-terminated string, and what follows it.
pub(crate) fn next_string(bytes: &[u8]) -> Option<(&CStr, &[u8])> {
    let string = CStr::from_bytes_until_nul(bytes).ok()?;
    Some((string, bytes.get(string.to_bytes_with_nul().len()..)?))
}

/// What came of a request, on its own pipe. A pipe that ends without one means that init is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// It ended with this wait status.
    Ended {
        status: i32,
        leftovers: u32,
        out_of_memory: bool,
    },
    /// It was not executed.
    Refused(Refused),
    /// It could not be started at all, for this errno.
    Failed(i32),
}

impl Report {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let (kind, extra, value): (u8, u32, u64) = match self {
            Self::Ended {
                status,
                leftovers,
                out_of_memory,
            } => (
                if out_of_memory { 2 } else { 1 },
                leftovers,
                u64::from(status as u32),
            ),
            Self::Refused(refused) => (3, 0, refused.pack()),
            Self::Failed(errno) => (4, 0, u64::from(errno as u32)),
        };
        let mut out = [0u8; Self::BYTES];
        out[0] = kind;
        out[4..8].copy_from_slice(&extra.to_ne_bytes());
        out[8..16].copy_from_slice(&value.to_ne_bytes());
        out
    }

    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let leftovers = u32::from_ne_bytes(array(message, 4)?);
        let value = u64::from_ne_bytes(array(message, 8)?);
        match *message.first()? {
            kind @ (1 | 2) => Some(Self::Ended {
                status: value as u32 as i32,
                leftovers,
                out_of_memory: kind == 2,
            }),
            3 => Refused::unpack(value).map(Self::Refused),
            4 => Some(Self::Failed(value as u32 as i32)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_reports_arrive_as_sent() {
        let header = Header {
            has_stdin: true,
            in_file: false,
            identity: Some(FileIdentity {
                device: 1,
                inode: u64::MAX,
                size: 3,
                modified_ns: -4,
                changed_ns: i128::MAX,
            }),
            approved: true,
            bytes: 77,
            arguments: 3,
        };
        assert_eq!(Header::decode(&header.encode()), Some(header));
        let bare = Header {
            identity: None,
            approved: false,
            in_file: true,
            ..header
        };
        assert_eq!(Header::decode(&bare.encode()), Some(bare));
        assert_eq!(Header::decode(&[0; 20]), None);
        for report in [
            Report::Ended {
                status: 0x8b,
                leftovers: 2,
                out_of_memory: true,
            },
            Report::Refused(Refused::NotExecutable(13)),
            Report::Failed(11),
        ] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        assert_eq!(Report::decode(&[0; 16]), None);
    }
}
