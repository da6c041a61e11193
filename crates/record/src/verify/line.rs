//! A record's line, read member by member in the one order a canonical record has.

use crate::private;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// What stands in `prev` of the first record.
pub(super) const NO_MAC: [u8; 64] = [b'0'; 64];

/// Opens the member that is not under its own mac.
const MAC_MEMBER: &[u8] = b",\"mac\":\"";

/// The members that the chain is made of, as they stand in the line.
pub(super) struct Line<'a> {
    pub boot_id: &'a [u8],
    pub detail: &'a [u8],
    pub event: &'a [u8],
    pub mac: &'a [u8],
    pub prev: &'a [u8],
    pub seq: u64,
    pub version: &'a [u8],
    mac_member: std::ops::Range<usize>,
}

impl<'a> Line<'a> {
    /// Reads a line without its line feed. Anything else than exactly the 15 members in their order is no record: the
    /// mac does not cover where its own member stands, so its place is fixed here.
    pub(super) fn scan(text: &'a [u8]) -> Option<Self> {
        let mut scan = Scan { text, at: 0 };
        scan.literal(b"{\"boot_id\":\"")?;
        let boot_id = scan.take(36)?;
        scan.literal(b"\",\"code\":")?;
        scan.string_or_null()?;
        scan.literal(b",\"decision\":")?;
        scan.string()?;
        scan.literal(b",\"detail\":")?;
        let detail = scan.object()?;
        scan.literal(b",\"event\":")?;
        let event = scan.string()?;
        let mac_from = scan.at;
        scan.literal(MAC_MEMBER)?;
        let mac = scan.take(64)?;
        scan.literal(b"\"")?;
        let mac_member = mac_from..scan.at;
        scan.literal(b",\"planned_task_id\":")?;
        scan.string_or_null()?;
        scan.literal(b",\"prev\":\"")?;
        let prev = scan.take(64)?;
        scan.literal(b"\",\"run_id\":")?;
        scan.string_or_null()?;
        scan.literal(b",\"seq\":")?;
        let seq = scan.number()?;
        scan.literal(b",\"session_id\":")?;
        scan.string_or_null()?;
        scan.literal(b",\"target\":")?;
        scan.string_or_null()?;
        scan.literal(b",\"trace_id\":")?;
        scan.string()?;
        scan.literal(b",\"ts\":")?;
        scan.string()?;
        scan.literal(b",\"v\":")?;
        let version = scan.digits()?;
        scan.literal(b"}")?;
        (scan.at == text.len()).then_some(Self {
            boot_id,
            detail,
            event,
            mac,
            prev,
            seq,
            version,
            mac_member,
        })
    }

    /// What the mac must be, in lower case digits.
    pub(super) fn mac_of(&self, text: &[u8], keyed: &Hmac<Sha256>) -> [u8; 64] {
        let mut hasher = keyed.clone();
        hasher.update(&text[..self.mac_member.start]);
        hasher.update(&text[self.mac_member.end..]);
        private::hex::<32, 64>(&hasher.finalize().into_bytes().into())
    }
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn literal(&mut self, expected: &[u8]) -> Option<()> {
        let end = self.at + expected.len();
        (self.text.get(self.at..end)? == expected).then(|| self.at = end)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.text.get(self.at..self.at + length)?;
        self.at += length;
        Some(taken)
    }

    /// A string's inside, escapes as they stand.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.literal(b"\"")?;
        let from = self.at;
        loop {
            match self.text.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        self.text.get(from..self.at - 1)
    }

    fn string_or_null(&mut self) -> Option<()> {
        match self.text.get(self.at)? {
            b'"' => self.string().map(|_| ()),
            _ => self.literal(b"null"),
        }
    }

    /// An object as it stands; only its brackets and strings are understood, the rest is under the mac.
    fn object(&mut self) -> Option<&'a [u8]> {
        let from = self.at;
        let mut depth = 0usize;
        loop {
            match self.text.get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' => depth += 1,
                b'}' => depth = depth.checked_sub(1)?,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                let object = self.text.get(from..self.at)?;
                return object.starts_with(b"{").then_some(object);
            }
        }
    }

    fn digits(&mut self) -> Option<&'a [u8]> {
        let from = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        let digits = self.text.get(from..self.at)?;
        (!digits.is_empty()).then_some(digits)
    }

    fn number(&mut self) -> Option<u64> {
        let digits = self.digits()?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}
