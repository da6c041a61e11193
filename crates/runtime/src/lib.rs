//! runtime
pub mod ollama;
