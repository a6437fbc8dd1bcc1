//! Record formats: payload bytes to Arrow columns.

pub mod avro;
mod grown;
pub mod json;
pub mod timestamp;
