//! Kafka topics.

pub mod config;
pub mod error;
pub mod gate;
pub mod offsets;
pub mod sample;
pub mod source;
