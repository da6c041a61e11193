//! sandbox-linux
