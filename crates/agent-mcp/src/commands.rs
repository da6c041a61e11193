//! One module for each command; each returns the exit code.

pub mod apply;
pub mod audit;
pub mod check;
pub mod demo;
mod denials;
pub mod exec;
pub mod generate;
pub mod init;
mod opening;
mod resolution;
pub mod run;
pub mod serve;
pub mod show;

pub use opening::flag_locale_or_built_in;
