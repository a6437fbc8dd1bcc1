//! Kafka topics.

pub mod config;
pub mod sink;
pub mod source;
