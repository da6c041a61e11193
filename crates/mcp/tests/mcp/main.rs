//! The real server over in-memory pipes and loopback sockets: what a client sends as bytes, and what it gets back as lines.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod arguments;
mod client;
mod fake;
mod fuzz;
mod http_client;
mod http_protocol;
mod http_wire;
mod lifecycle;
mod listing;
mod results;
mod stdio;
mod tasks;
mod texts;
