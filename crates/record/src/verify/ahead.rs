//! What was written ahead of the log, as a verifier sees it: after a power failure the log's end may be only here.

use super::VerifyError;
use crate::audit::AuditKey;
use crate::private;
use hmac::Mac;
use serde_json::Value;
use std::io::{self, Read};
use std::path::Path;

pub(super) const AHEAD_NAME: &str = "audit.ahead";
const HALF_BYTES: usize = 32 << 10;

/// The end of a log, from `size` of file `number` on.
struct Half {
    number: u64,
    size: u64,
    end: Vec<u8>,
}

impl Half {
    fn reach(&self) -> (u64, u64) {
        (self.number, self.size + self.end.len() as u64)
    }
}

/// How what is ahead of the log stands to a log that ends at `size` of file `number`.
pub(super) enum Beyond {
    /// It has nothing that the log does not have.
    Nothing,
    /// The log goes on like this.
    End(Vec<u8>),
    /// The log ends before even this begins.
    Gap,
}

/// Reads it. A half that a power failure tore counts as not there.
pub(super) fn beyond(
    directory: &Path,
    key: &AuditKey,
    number: u32,
    size: u64,
) -> Result<Beyond, VerifyError> {
    let path = directory.join(AHEAD_NAME);
    let file = match private::open_read(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Beyond::Nothing),
        Err(error) => return Err(VerifyError::new(&path, error)),
    };
    let mut text = Vec::with_capacity(2 * HALF_BYTES);
    file.take(2 * HALF_BYTES as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|error| VerifyError::new(&path, error))?;
    if text.len() != 2 * HALF_BYTES {
        return Ok(Beyond::Nothing);
    }
    let here = (u64::from(number), size);
    let half = text
        .chunks(HALF_BYTES)
        .filter_map(|half| judge(half, key))
        .max_by_key(Half::reach)
        .filter(|half| half.reach() > here);
    Ok(match half {
        None => Beyond::Nothing,
        Some(mut half) if half.number == here.0 && half.size <= size => {
            Beyond::End(half.end.split_off((size - half.size) as usize))
        }
        Some(_) => Beyond::Gap,
    })
}

/// `{"bytes":…,"file":…,"hmac":"…",…}`, a line feed, and that many bytes of the log. `None` when it is not that.
fn judge(half: &[u8], key: &AuditKey) -> Option<Half> {
    let line = half.iter().position(|&byte| byte == b'\n')?;
    let (object, rest) = half.split_at(line);
    let value: Value = serde_json::from_slice(object).ok()?;
    let members = value.as_object()?;
    let names = ["bytes", "file", "hmac", "key_id", "size", "v"];
    if members.len() != names.len() || !names.iter().all(|name| members.contains_key(*name)) {
        return None;
    }
    let bytes = usize::try_from(members["bytes"].as_u64()?).ok()?;
    let end = rest.get(1..bytes.checked_add(1)?)?;
    let hmac = members["hmac"].as_str()?;
    let before = format!(
        "{{\"bytes\":{},\"file\":{},",
        members["bytes"], members["file"]
    );
    let member = format!("\"hmac\":\"{hmac}\",");
    let after = object
        .strip_prefix(before.as_bytes())?
        .strip_prefix(member.as_bytes())?;
    let mut hasher = key.for_purpose(b"ahead");
    hasher.update(before.as_bytes());
    hasher.update(after);
    hasher.update(end);
    if private::hex_text(&hasher.finalize().into_bytes().into()) != hmac
        || members["key_id"].as_str()? != key.id()
        || members["v"].as_u64()? != 1
    {
        return None;
    }
    Some(Half {
        number: members["file"].as_u64()?,
        size: members["size"].as_u64()?,
        end: end.to_vec(),
    })
}
