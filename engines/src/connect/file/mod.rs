//! Files and standard input.

pub mod config;
pub mod sink;
pub mod source;
pub mod stretches;
