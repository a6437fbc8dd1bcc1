//! Files and standard input.

pub mod config;
pub mod source;
