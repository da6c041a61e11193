//! X-ARGS: arguments are recorded redacted, with a keyed hash by which a known argument can be proved later.

use crate::audit::AuditKey;
use crate::private;
use hmac::{Hmac, Mac};
use serde_json::{Map, Value};
use sha2::Sha256;
use std::ffi::OsStr;

/// The purpose of the sub-key that stands for redacted arguments.
const ARGUMENTS_PURPOSE: &[u8] = b"arguments";

/// Stands for arguments without saying them. Its key is HMAC(audit key, "arguments").
#[derive(Clone, Debug)]
pub struct Redactor {
    keyed: Hmac<Sha256>,
}

impl Redactor {
    /// With the sub-key of this key.
    pub fn new(key: &AuditKey) -> Self {
        Self {
            keyed: key.for_purpose(ARGUMENTS_PURPOSE),
        }
    }

    /// `{"arguments":"redacted","argument_count":n,"arguments_hmac":"…"}` for a program's arguments.
    pub fn argv<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Map<String, Value> {
        let mac = self.argv_hasher(arguments).finalize().into_bytes().into();
        members(arguments.len(), &mac)
    }

    /// The same for a tool's JSON arguments; an object counts its members, an array its items, anything else is one.
    ///
    /// # Errors
    /// When the value has no canonical form.
    pub fn json(&self, arguments: &Value) -> serde_json::Result<Map<String, Value>> {
        let mac = self.json_hasher(arguments)?.finalize().into_bytes().into();
        Ok(members(count(arguments), &mac))
    }

    /// Whether a record's `arguments_hmac` stands for exactly these program arguments. Constant time.
    pub fn prove_argv<S: AsRef<OsStr>>(&self, arguments_hmac: &str, arguments: &[S]) -> bool {
        proves(self.argv_hasher(arguments), arguments_hmac)
    }

    /// Whether a record's `arguments_hmac` stands for exactly these JSON arguments, in any member order.
    pub fn prove_json(&self, arguments_hmac: &str, arguments: &Value) -> bool {
        self.json_hasher(arguments)
            .is_ok_and(|hasher| proves(hasher, arguments_hmac))
    }

    /// Each argument with its length before it, so that `["a b"]` and `["a","b"]` differ.
    fn argv_hasher<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Hmac<Sha256> {
        let mut hasher = self.keyed.clone();
        hasher.update(b"argv\0");
        for argument in arguments {
            let bytes = argument.as_ref().as_encoded_bytes();
            hasher.update(&(bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        }
        hasher
    }

    fn json_hasher(&self, arguments: &Value) -> serde_json::Result<Hmac<Sha256>> {
        let mut hasher = self.keyed.clone();
        hasher.update(b"json\0");
        hasher.update(&serde_json_canonicalizer::to_vec(arguments)?);
        Ok(hasher)
    }
}

fn count(arguments: &Value) -> usize {
    match arguments {
        Value::Object(members) => members.len(),
        Value::Array(items) => items.len(),
        _ => 1,
    }
}

fn members(count: usize, mac: &[u8; 32]) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("arguments".to_owned(), "redacted".into());
    members.insert("argument_count".to_owned(), count.into());
    members.insert("arguments_hmac".to_owned(), private::hex_text(mac).into());
    members
}

fn proves(hasher: Hmac<Sha256>, text: &str) -> bool {
    text.parse::<policy::effective::Sha256Digest>()
        .is_ok_and(|mac| hasher.verify_slice(&mac.0).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::Secret;
    use serde_json::json;

    fn redactor(digit: &str) -> Redactor {
        let key = AuditKey::given(&Secret::new(digit.repeat(64)), "TEST").unwrap();
        Redactor::new(&key)
    }

    #[test]
    fn x_args_known_arguments_can_be_proved_and_others_cannot() {
        let redactor = redactor("1");
        let record = redactor.argv(&["a", "b c"]);
        let text = serde_json::to_string(&record).unwrap();
        assert!(!text.contains("b c"), "X-ARGS: {text}");
        assert_eq!(record["argument_count"], 2);
        let mac = record["arguments_hmac"].as_str().unwrap();
        assert!(redactor.prove_argv(mac, &["a", "b c"]));
        for other in [vec!["a", "b", "c"], vec!["a b c"], vec!["b c", "a"], vec![]] {
            assert!(!redactor.prove_argv(mac, &other), "{other:?}");
        }
        assert!(!self::redactor("2").prove_argv(mac, &["a", "b c"]), "keyed");
    }

    #[test]
    fn x_args_json_is_proved_in_any_member_order() {
        let redactor = redactor("1");
        let record = redactor.json(&json!({"b": 1, "a": [2]})).unwrap();
        let mac = record["arguments_hmac"].as_str().unwrap();
        assert!(redactor.prove_json(mac, &json!({"a": [2], "b": 1})));
        assert!(!redactor.prove_json(mac, &json!({"a": [2], "b": "1"})));
        assert!(!redactor.prove_json("nonsense", &json!({"a": [2], "b": 1})));
    }
}
