//! The signed head, as a verifier sees it.

use super::VerifyError;
use crate::audit::AuditKey;
use crate::kernel_boot::KernelBoot;
use crate::private;
use hmac::Mac;
use serde_json::Value;
use std::io::{self, Read};
use std::path::Path;

pub(super) const HEAD_NAME: &str = "audit.head";
const HEAD_BYTES: usize = 512;

/// What a good head says.
pub(super) struct HeadClaim {
    pub file: u32,
    pub size: u64,
    pub seq: u64,
    pub mac: [u8; 64],
    pub closed: bool,
    pub unsynced: Option<UnsyncedClaim>,
}

/// What follows this record may be lost with the kernel that held it.
pub(super) struct UnsyncedClaim {
    /// The last record that was on the disk ahead of the log.
    pub ahead: Option<u64>,
    pub kernel_boot: String,
    pub seq: u64,
}

impl HeadClaim {
    /// Whether the end is in the memory of this kernel, which still runs.
    pub(super) fn is_held_by(&self, kernel: Option<&KernelBoot>) -> bool {
        matches!(
            (&self.unsynced, kernel),
            (Some(rest), Some(kernel)) if kernel.as_str() == rest.kernel_boot
        )
    }

    /// The record with which the chain may end at the earliest.
    pub(super) fn earliest_end(&self, kernel: Option<&KernelBoot>) -> u64 {
        match &self.unsynced {
            Some(rest) if kernel.is_none_or(|kernel| kernel.as_str() != rest.kernel_boot) => {
                rest.ahead.unwrap_or(rest.seq)
            }
            _ => self.seq,
        }
    }
}

pub(super) enum SeenHead {
    Missing,
    Invalid,
    WrongKey,
    Signed(HeadClaim),
}

impl SeenHead {
    pub(super) fn read(directory: &Path, key: &AuditKey) -> Result<Self, VerifyError> {
        let path = directory.join(HEAD_NAME);
        let file = match private::open_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Missing),
            Err(error) => return Err(VerifyError::new(&path, error)),
        };
        let mut text = Vec::with_capacity(HEAD_BYTES + 1);
        file.take(HEAD_BYTES as u64 + 1)
            .read_to_end(&mut text)
            .map_err(|error| VerifyError::new(&path, error))?;
        Ok(Self::judge(&text, key).unwrap_or(Self::Invalid))
    }

    /// `{…,"hmac":"…",…}`, filled up with spaces to one sector that ends in a line feed. `None` when it is not that.
    fn judge(text: &[u8], key: &AuditKey) -> Option<Self> {
        let (object, filling) = text.split_at(text.iter().rposition(|&byte| byte == b'}')? + 1);
        let spaces = filling.strip_suffix(b"\n")?;
        if text.len() != HEAD_BYTES || !spaces.iter().all(|&byte| byte == b' ') {
            return None;
        }
        let value: Value = serde_json::from_slice(object).ok()?;
        let members = value.as_object()?;
        let names = [
            "boot_id", "closed", "file", "hmac", "key_id", "mac", "seq", "size", "v",
        ];
        let unsynced = match members.get("unsynced") {
            Some(rest) => Some(UnsyncedClaim::read(rest)?),
            None => None,
        };
        let count = names.len() + usize::from(unsynced.is_some());
        if members.len() != count || !names.iter().all(|name| members.contains_key(*name)) {
            return None;
        }
        if members["key_id"].as_str()? != key.id() {
            return Some(Self::WrongKey);
        }
        let hmac = members["hmac"].as_str()?;
        let member = format!("\"hmac\":\"{hmac}\",");
        let at = object
            .windows(member.len())
            .position(|window| window == member.as_bytes())?;
        // The member stands where canonical order has it, behind `file`: its place is not under the mac.
        let before = format!("\"file\":{},", members["file"]);
        if !object[..at].ends_with(before.as_bytes()) {
            return None;
        }
        let mut hasher = key.for_purpose(b"head");
        hasher.update(&object[..at]);
        hasher.update(&object[at + member.len()..]);
        if private::hex_text(&hasher.finalize().into_bytes().into()) != hmac
            || !match members["v"].as_u64()? {
                1 => unsynced.is_none(),
                2 => unsynced.as_ref().is_none_or(|rest| rest.ahead.is_none()),
                version => version == 3,
            }
        {
            return None;
        }
        Some(Self::Signed(HeadClaim {
            file: members["file"].as_u64()?.try_into().ok()?,
            size: members["size"].as_u64()?,
            seq: members["seq"].as_u64()?,
            mac: members["mac"].as_str()?.as_bytes().try_into().ok()?,
            closed: members["closed"].as_bool()?,
            unsynced,
        }))
    }
}

impl UnsyncedClaim {
    fn read(value: &Value) -> Option<Self> {
        let members = value.as_object()?;
        members.get("size")?.as_u64()?;
        let ahead = match members.get("ahead") {
            Some(seq) => Some(seq.as_u64()?),
            None => None,
        };
        let count = 3 + usize::from(ahead.is_some());
        let claim = Self {
            ahead,
            kernel_boot: members.get("kernel_boot")?.as_str()?.to_owned(),
            seq: members.get("seq")?.as_u64()?,
        };
        (members.len() == count).then_some(claim)
    }
}
