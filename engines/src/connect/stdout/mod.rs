//! Standard output, and the null sink.

pub mod config;
pub mod sink;
pub(crate) mod text;
