//! layers
