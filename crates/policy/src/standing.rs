//! Whether what a person allowed is still what is there (ST-24). The question is asked before each planned Task; who knows the
//! files answers it.

use crate::Refusal;

/// What a policy was frozen from, looked at again.
pub trait Standing: Send + Sync + std::fmt::Debug {
    /// Looks at it now. May read files.
    ///
    /// # Errors
    /// `sandbox.resolution_changed`, naming the first object that is not as it was applied.
    fn check(&self) -> Result<(), Refusal>;
}

/// For a policy that nobody applies and that ends with its process.
#[derive(Clone, Copy, Debug)]
pub struct NothingApplied;

impl Standing for NothingApplied {
    fn check(&self) -> Result<(), Refusal> {
        Ok(())
    }
}
