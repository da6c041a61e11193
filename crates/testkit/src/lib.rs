//! What tests are made with: a model that follows a script, over real HTTP on loopback.
//!
//! A dev-dependency only. Absent here: nothing of `runtime` and nothing of the recorded model that the product ships, so
//! that a test of either never compares it with itself; no test waits for time to pass, and no script checks itself.
#![forbid(unsafe_code)]

mod answer;
mod http;
mod pause;
mod script;
mod scripted;

pub use answer::Answer;
pub use http::Request;
pub use pause::PauseLog;
pub use script::{Reply, Script};
pub use scripted::ScriptedModel;
