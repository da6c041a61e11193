//! Values that must not be printed, and values that must not be trusted.

use std::fmt;
use zeroize::Zeroize;

/// A secret: it has no `Display`, its `Debug` shows nothing of it, and its memory is overwritten when it is dropped.
///
/// ```compile_fail,E0277
/// println!("{}", policy::Secret::new(String::from("key")));
/// ```
/// ```
/// let secret = policy::Secret::new(String::from("key"));
/// assert_eq!(format!("{secret:?}"), "Secret(…)");
/// assert_eq!(secret.expose(), "key");
/// ```
#[derive(Clone)]
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Takes ownership of a secret value.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The only way to the value; easy to search for.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Text that came from a model, a client or a file: data, never an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untrusted<T>(T);

impl<T> Untrusted<T> {
    /// Marks a value as coming from outside.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, to be checked by whoever asks for it.
    pub fn examine(&self) -> &T {
        &self.0
    }

    /// Takes the value out, to be checked by whoever takes it.
    pub fn into_examined(self) -> T {
        self.0
    }
}
