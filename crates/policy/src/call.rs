//! call
