//! The recorded model: Ollama's API on loopback with answers from a file, so that a machine without Ollama runs the whole
//! path for real, the model's answers excepted (X-MODEL).
//!
//! What it answers depends on what a conversation contains and never on how often it was asked: any number of runs can use
//! it. Absent here: nothing is generated, no file is read while it serves, no address but loopback is listened on, and a
//! request that no recording knows is an error that names it and never a guess.

mod answer;
mod conversation;
mod pattern;
mod recording;
mod server;
mod transcript;

pub use recording::{
    Answer, Call, Exchange, Kind, RecordedModel, Recording, RecordingProblem, When,
};
pub use server::{RunningModel, serve};
pub use transcript::{Served, Transcript};
