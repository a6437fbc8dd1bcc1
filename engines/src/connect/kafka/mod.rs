//! Kafka topics.

pub mod config;
pub mod error;
pub(crate) mod format;
pub mod gate;
pub mod offsets;
pub mod partitions;
pub mod sample;
pub mod sink;
pub mod source;
